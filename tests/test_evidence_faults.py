"""Each fault that a verification must find, as a property: any history, any place; the sums are made again by whoever did it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import CorruptStoreError
from rath_bridge.evidence import PacketReport
from rath_bridge.model.digests import digest
from rath_bridge.testing import strategies
from tests.test_evidence_packet import contents
from tests.test_evidence_tamper import Files, resummed

Fault = Callable[[st.DataObject, Files], tuple[Files, set[str]]]
"""Changes files; returns them, and of what one must be named: objects, or beginnings of places."""
OURS = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def lines(files: Files, name: str) -> list[bytes]:
    return files[name].splitlines(keepends=True)


def with_lines(files: Files, name: str, found: list[bytes]) -> Files:
    return files | {name: b"".join(found)}


def ids(found: list[bytes]) -> list[str]:
    return [digest(line.removesuffix(b"\n")) for line in found]


def flipped_bit(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    name = data.draw(
        st.sampled_from(sorted(n for n in files if n in ("chunks.jsonl", "bodies.jsonl") or n.startswith(("blobs/", "trees/"))))
    )
    changed = bytearray(files[name])
    if not changed:
        return files | {name: b"x"}, {name}
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    return files | {name: bytes(changed)}, {name, name.rpartition("/")[2]}


def dropped_chunk(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    found = lines(files, "chunks.jsonl")
    at = data.draw(st.integers(0, len(found) - 1))
    name = ids(found)[at]
    del found[at]
    return with_lines(files, "chunks.jsonl", found), {name, "bodies.jsonl"}


def added_chunk(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    found = lines(files, "chunks.jsonl")
    told = orjson.loads(data.draw(st.sampled_from(found)))
    told["at"] = "2001-01-01T00:00:00.000000Z"
    extra = orjson.dumps(told, option=orjson.OPT_SORT_KEYS) + b"\n"
    found.insert(data.draw(st.integers(0, len(found))), extra)
    return with_lines(files, "chunks.jsonl", found), set(ids([extra]))


def swapped_chunks(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    found = lines(files, "chunks.jsonl")
    one = data.draw(st.integers(0, len(found) - 2))
    names = set(ids(found[one : one + 2]))
    found[one], found[one + 1] = found[one + 1], found[one]
    return with_lines(files, "chunks.jsonl", found), names


def reordered_bodies(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    found = lines(files, "bodies.jsonl")
    return with_lines(files, "bodies.jsonl", [found[-1], *found[:-1]]), {"chunks.jsonl", "bodies.jsonl"}


def swapped_bodies(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    """Two events change places with all that they say; whoever does it hashes their envelopes again."""
    found, bodies = lines(files, "chunks.jsonl"), lines(files, "bodies.jsonl")
    at = data.draw(st.integers(1, len(found) - 2)) if len(found) > 2 else 0
    names = set(ids(found[at : at + 2]))
    first, second = orjson.loads(found[at]), orjson.loads(found[at + 1])
    for key in ("body", "size", "kind"):
        first[key], second[key] = second[key], first[key]
    found[at : at + 2] = [orjson.dumps(one, option=orjson.OPT_SORT_KEYS) + b"\n" for one in (first, second)]
    bodies[at], bodies[at + 1] = bodies[at + 1], bodies[at]
    return with_lines(with_lines(files, "chunks.jsonl", found), "bodies.jsonl", bodies), names | {"refs.json"}


def cut_tail(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    found, bodies = lines(files, "chunks.jsonl"), lines(files, "bodies.jsonl")
    left = data.draw(st.integers(1, len(found) - 1))
    return with_lines(with_lines(files, "chunks.jsonl", found[:left]), "bodies.jsonl", bodies[:left]), {ids(found)[-1]}


def foreign_blob(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    blob = data.draw(st.binary(max_size=50)) + b"foreign"
    return files | {f"{data.draw(st.sampled_from(('blobs', 'trees')))}/{digest(blob)}": blob}, {digest(blob)}


def moved_ref(data: st.DataObject, files: Files) -> tuple[Files, set[str]]:
    told = orjson.loads(files["refs.json"])
    names = ids(lines(files, "chunks.jsonl"))
    ref = told["refs"][0]
    at = data.draw(st.integers(0, len(names) - 2))
    ref.update(head=names[at], position=at)
    ref["reflog"] = [*ref["reflog"][:-1], {**ref["reflog"][-1], "new": names[at]}]
    changed = orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    return files | {"refs.json": changed}, {names[-1], "refs.json", "manifest.json"}


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        flipped_bit, dropped_chunk, added_chunk, swapped_chunks, reordered_bodies, swapped_bodies, cut_tail, foreign_blob, moved_ref,
    )
}  # fmt: skip


def made(drafts: list[rb.Draft], place: Path, *keys: object) -> Path:
    s = rb.open_store("memory:").create("s").append(*drafts)
    try:
        packet = rb.export_packet(s, place, environment=False, sign_with=keys)
    except CorruptStoreError:  # a reference that was drawn by chance names an object of another kind
        reject()
    if not rb.verify_packet(packet).ok:  # or one of another size
        reject()
    return packet


def verified(files: Files, place: Path, **known: object) -> PacketReport:
    for name in ("blobs", "trees"):
        (place / name).mkdir(parents=True)
    for name, data in files.items():
        (place / name).write_bytes(data)
    return rb.verify_packet(place, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", FAULTS)
@given(data=st.data(), drafts=st.lists(strategies.drafts(), min_size=2, max_size=5))
@settings(max_examples=10, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_it_is_found_and_named(fault: str, data: st.DataObject, drafts: list[rb.Draft]) -> None:
    with tempfile.TemporaryDirectory() as home:
        files = contents(made(drafts, Path(home) / "p.zip"))
        changed, names = FAULTS[fault](data, files)
        if changed == files:
            return
        report = verified(resummed(changed), Path(home) / "changed")
    assert not report.ok
    told = {found.object for found in report.findings} | {found.path.partition(":")[0] for found in report.findings}
    assert told & names, report.findings


def public(place: Path, key: Ed25519PrivateKey) -> Path:
    place.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return place


@given(st.lists(strategies.drafts(), min_size=1, max_size=3), st.binary(min_size=32, max_size=32))
@settings(max_examples=10, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_a_wrong_key_is_found_and_named(drafts: list[rb.Draft], seed: bytes) -> None:
    theirs = Ed25519PrivateKey.from_private_bytes(seed)
    with tempfile.TemporaryDirectory() as home:
        packet = made(drafts, Path(home) / "p", theirs)
        known = public(Path(home) / "ours.pub", OURS)
        report = rb.verify_packet(packet, keys=[known])
        assert [found.path for found in report.findings] == ([] if seed == bytes(range(32)) else [str(known)])
        assert rb.verify_packet(packet, keys=[public(Path(home) / "theirs.pub", theirs)]).ok


@given(st.lists(strategies.drafts(), min_size=1, max_size=3), st.lists(strategies.drafts(), min_size=1, max_size=3))
@settings(max_examples=10, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_a_rebuilt_unsigned_packet_is_found_with_a_key_or_a_head(drafts: list[rb.Draft], others: list[rb.Draft]) -> None:
    with tempfile.TemporaryDirectory() as home:
        genuine = rb.verify_packet(made(drafts, Path(home) / "p", OURS))
        rebuilt = made(others, Path(home) / "other")
        known = public(Path(home) / "ours.pub", OURS)
        head = genuine.heads["s"]
        assert rb.verify_packet(rebuilt).ok  # by itself it is a sound packet of another history
        assert [found.path for found in rb.verify_packet(rebuilt, keys=[known]).findings] == [str(known)]
        assert [found.object for found in rb.verify_packet(rebuilt, head=head).findings] == [head]
