"""Signatures: the real ssh-keygen and sha256sum agree, and whoever is not who he says is found."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

import rath_bridge as rb
from rath_bridge.errors import PacketError
from rath_bridge.evidence import layout, load_signer, sign_packet
from rath_bridge.evidence.signing import KeyFileError, load_keys, sign
from rath_bridge.model.digests import digest
from tests.rich_session import rich_session
from tests.test_evidence_packet import contents

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")


def make_key(place: Path, name: str, *options: str) -> Path:
    path = place / name
    arguments = options or ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", name, "-f", str(path), *arguments], check=True)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys")
    for name in ("ann", "ben", "eve"):
        make_key(place, name)
    return place


@pytest.fixture
def signed(tmp_path: Path, keys: Path) -> Path:
    s = rich_session(rb.open_store("memory:"), turns=1)
    return rb.export_packet(s, tmp_path / "p", sign_with=[keys / "ann", keys / "ben"])


def shell_lines(text: str) -> list[str]:
    """Every command of the page's blocks."""
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def ssh_verify(packet: Path, signature: str, public: Path) -> subprocess.CompletedProcess[str]:
    allowed = packet.parent / f"{public.stem}.allowed"
    allowed.write_text(f"signer {public.read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "signer", "-n", "rath-bridge-packet", "-s", signature]
    return subprocess.run(
        command, cwd=packet, input=(packet / "SHA256SUMS").read_text(), capture_output=True, text=True, check=False
    )


def test_ssh_keygen_verifies_what_we_sign(signed: Path, keys: Path) -> None:
    for file, name in (("SHA256SUMS.sig", "ann"), ("SHA256SUMS.2.sig", "ben")):
        done = ssh_verify(signed, file, keys / f"{name}.pub")
        assert done.returncode == 0, done.stderr
        assert "Good" in done.stdout
        assert ssh_verify(signed, file, keys / "eve.pub").returncode != 0
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=signed, check=True)


def test_the_page_in_the_packet_says_exactly_what_to_type(signed: Path, keys: Path) -> None:
    page = (signed / "VERIFY.md").read_text()
    shutil.copy(keys / "ann.pub", signed.parent / "signer.pub")
    lines = [line.replace("signer.pub", "../signer.pub") for line in shell_lines(page)]
    done = subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=signed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    chunks = (signed / "chunks.jsonl").read_bytes().splitlines()
    number = next(n for n, line in enumerate(chunks, 1) if any(digest(line) in told for told in lines))
    assert done.stdout.splitlines()[1:] == [str(number)], "the head is there, and nothing is missing"
    for key in ("ann", "ben"):
        shown = subprocess.run(["ssh-keygen", "-l", "-f", str(keys / f"{key}.pub")], capture_output=True, text=True, check=True)
        assert f"`{shown.stdout.split()[1]}`" in page


@pytest.mark.parametrize("forged", ["content", "dropped", "blob"])
def test_the_page_finds_what_was_forged_with_new_sums(tmp_path: Path, forged: str) -> None:
    """Found by a newcomer: the head alone was looked for, and neither parents nor contents."""
    packet = rb.export_packet(rich_session(rb.open_store("memory:"), turns=2), tmp_path / "p")
    name = "bodies.jsonl" if forged == "content" else "chunks.jsonl" if forged == "dropped" else ""
    if name:
        found = (packet / name).read_bytes().splitlines(keepends=True)
        middle = len(found) // 2
        new = [
            *found[:middle],
            *([found[middle].replace(b"}", b',"x":1}', 1)] if forged == "content" else []),
            *found[middle + 1 :],
        ]
        (packet / name).write_bytes(b"".join(new))
    else:
        next((packet / "blobs").iterdir()).write_bytes(b"forged")
    sums = [f"{digest(path.read_bytes())}  {path.relative_to(packet)}\n" for path in sorted(packet.rglob("*")) if path.is_file()]
    (packet / "SHA256SUMS").write_text("".join(sums[:0] + [one for one in sums if "SHA256SUMS" not in one]))
    lines = shell_lines((packet / "VERIFY.md").read_text())
    check = [line for line in lines if line.startswith(("ids()", "comm", "for f"))]
    assert len(check) == 4
    done = subprocess.run(["bash", "-uc", "\n".join(check)], cwd=packet, capture_output=True, text=True, check=True)
    assert done.stdout.strip(), forged


def test_we_verify_what_ssh_keygen_signs(tmp_path: Path, keys: Path) -> None:
    s = rich_session(rb.open_store("memory:"), turns=1)
    packet = rb.export_packet(s, tmp_path / "p")
    assert rb.verify_packet(packet).signatures == ()
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(keys / "eve"), "-n", "rath-bridge-packet", "SHA256SUMS"]
    subprocess.run(command, cwd=packet, check=True, capture_output=True)
    report = rb.verify_packet(packet, keys=[keys / "eve.pub"])
    assert report.ok, report
    assert [one.file for one in report.signatures] == ["SHA256SUMS.sig"]
    ours = sign((packet / "SHA256SUMS").read_bytes(), load_signer(keys / "eve"))
    assert (packet / "SHA256SUMS.sig").read_bytes() == ours  # Ed25519 is deterministic: the same bytes, armour and all


def test_each_key_that_is_given_must_have_signed(signed: Path, keys: Path, tmp_path: Path) -> None:
    assert rb.verify_packet(signed, keys=[keys / "ann.pub", keys / "ben.pub"]).ok
    report = rb.verify_packet(signed, keys=[keys / "ann.pub", keys / "eve.pub"])
    assert [f.path for f in report.findings] == [str(keys / "eve.pub")]
    both = tmp_path / "allowed_signers"
    both.write_text(f"# ours\neve {(keys / 'eve.pub').read_text()}ann {(keys / 'ann.pub').read_text()}")
    assert rb.verify_packet(signed, keys=[both]).ok  # one of a file's keys
    assert "give --key" in " ".join(rb.verify_packet(signed).notes)


def test_a_rebuilt_packet_is_found_with_a_key(signed: Path, keys: Path, tmp_path: Path) -> None:
    s = rich_session(rb.open_store("memory:"), turns=2)
    other = rb.export_packet(s, tmp_path / "q")
    unsigned = rb.verify_packet(other, keys=[keys / "ann.pub"])
    assert [f.problem for f in unsigned.findings] == ["this key has not signed the packet as it is: it carries no signature"]
    shutil.copy(signed / "SHA256SUMS.sig", other)  # the old signature on a new history
    report = rb.verify_packet(other, keys=[keys / "ann.pub"])
    assert {f.object for f in report.findings} >= {"SHA256SUMS.sig"}
    assert not rb.verify_packet(other).ok  # even without a key: the signature does not fit
    forged = rb.export_packet(s, tmp_path / "r", sign_with=[keys / "eve"])
    assert rb.verify_packet(forged).ok
    assert not rb.verify_packet(forged, keys=[keys / "ann.pub"]).ok


@pytest.mark.parametrize("damage", ["flip", "cut", "foreign", "empty", "namespace", "rsa", "large"])
def test_signatures_that_do_not_hold(signed: Path, keys: Path, tmp_path: Path, damage: str) -> None:
    file = signed / "SHA256SUMS.2.sig"
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-60] ^= 1
    elif damage == "cut":
        del data[60:]
    elif damage == "foreign":
        data[:] = b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"
    elif damage == "empty":
        data.clear()
    elif damage == "large":
        data += b" " * (1 << 17)
    else:
        rsa = damage == "rsa"
        key = make_key(tmp_path, "other", *(("-t", "rsa", "-b", "2048") if rsa else ()))
        file.unlink()
        command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "rath-bridge-packet" if rsa else "file", "SHA256SUMS"]
        (signed / "SHA256SUMS.sig").unlink()
        subprocess.run(command, cwd=signed, check=True, capture_output=True)
        (signed / "SHA256SUMS.sig").rename(file)
        data = bytearray(file.read_bytes())
    file.write_bytes(data)
    report = rb.verify_packet(signed)
    assert "SHA256SUMS.2.sig" in {f.object for f in report.findings}
    assert any(one.problem for one in report.signatures) or damage == "large"


def test_an_archive_is_signed_alike(tmp_path: Path, keys: Path) -> None:
    s = rich_session(rb.open_store("memory:"), turns=1)
    for name in ("a.zip", "b.zip"):
        rb.export_packet(s, tmp_path / name, sign_with=[load_signer(keys / "ann")])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert rb.verify_packet(tmp_path / "a.zip", keys=[keys / "ann.pub"]).ok
    with ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist()[-2:] == [layout.SUMS, "SHA256SUMS.sig"]
    assert "SHA256SUMS.sig" in contents(tmp_path / "a.zip")


def test_keys_of_other_forms(tmp_path: Path, keys: Path) -> None:
    pem = tmp_path / "pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(pem)], check=True, capture_output=True)
    public = subprocess.run(["openssl", "pkey", "-in", str(pem), "-pubout"], check=True, capture_output=True).stdout
    (tmp_path / "pem.pub").write_bytes(public)
    packet = rb.export_packet(rb.open_store("memory:").create("s"), tmp_path / "p", sign_with=[pem])
    assert rb.verify_packet(packet, keys=[tmp_path / "pem.pub"]).ok
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a secret", "-f", str(locked)], check=True)
    with pytest.raises(KeyFileError):
        load_signer(locked)
    with pytest.raises(KeyFileError):
        load_signer(locked, "another")
    assert load_signer(locked, "a secret")
    make_key(tmp_path, "rsa", "-t", "rsa", "-b", "2048")
    for path, problem in ((tmp_path / "rsa", "another kind"), (keys / "ann.pub", "no private key")):
        with pytest.raises(KeyFileError, match=problem):
            rb.export_packet(rb.open_store("memory:").create("s"), tmp_path / "x", sign_with=[path])
    for path, problem in ((keys / "ann", "private key"), (tmp_path / "rsa.pub", "no ssh-ed25519 key")):
        with pytest.raises(KeyFileError, match=problem):
            load_keys(path)
        with pytest.raises(KeyFileError):
            rb.verify_packet(packet, keys=[path])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("form", ["directory", "archive"])
def test_others_sign_a_packet_that_stands_already(tmp_path: Path, keys: Path, form: str) -> None:
    place = rb.export_packet(
        rich_session(rb.open_store("memory:")), tmp_path / ("p.zip" if form == "archive" else "p"), sign_with=[keys / "ben"]
    )
    made = sign_packet(place, [keys / "ben", keys / "ann"])
    assert [one.file for one in made] == ["SHA256SUMS.2.sig"]
    report = rb.verify_packet(place, keys=[keys / "ben.pub", keys / "ann.pub"])
    assert report.ok
    assert len(report.signatures) == 2
    assert sign_packet(place, [keys / "ann"]) == ()
    if form == "directory":
        (place / "chunks.jsonl").write_bytes((place / "chunks.jsonl").read_bytes() + b"{}\n")
    else:
        place.write_bytes(place.read_bytes()[:-40])
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(PacketError, match="was not signed"):
        sign_packet(place, [keys / "eve"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
