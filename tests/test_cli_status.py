"""Exit statuses and errors: one line on stderr that says what to do, never a traceback."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import termios
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.cli.manual import manual
from tests.cli_store import fill, run
from tests.waiting import started, until

ROOT = Path(__file__).parents[1]


@pytest.fixture
def url(sqlite_url: str) -> str:
    fill(sqlite_url).close()
    return sqlite_url


def process(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run ``python -m rath_bridge`` for real."""
    command = [sys.executable, "-m", "rath_bridge", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        (["ls"], 0, None),
        (["diff", "ticket-4711", "ticket-4711"], 0, None),
        (["diff", "ticket-4711", "ticket-4711@try-b"], 1, None),
        (["blame", "ticket-4711", "never said"], 1, None),
        (["nope"], 2, "nope"),
        (["log"], 2, "NAME"),
        (["log", "ticket-4711", "--nope"], 2, "rath-bridge log --help"),
        (["log", "ticket-4711", "-n", "many"], 2, "integer"),
        (["log", "tiket-4711"], 2, "'ticket-4711'"),
        (["log", "ticket-4711@try-c"], 2, "'ticket-4711@try-b'"),
        (["log", "two words"], 2, "no spaces"),
        (["show", "ffff0000"], 2, "rath-bridge log NAME"),
        (["show", "fff"], 2, "rath-bridge ls"),
        (["show", "ticket-4711:99"], 2, "0 to"),
        (["show", "ticket-4711:-99"], 2, "from the end"),
        (["fork", "ticket-4711"], 2, "BRANCH"),
        (["fork", "ticket-4711", "try-b"], 2, "exists already"),
        (["merge", "ticket-4711", "copy", "--strategy", "guess"], 2, "summary"),
        (["fsck", "--head", "abcd"], 2, "64"),
        (["verify", "no-such-packet.zip"], 2, "no-such-packet.zip"),
    ],
)
def test_statuses(url: str, args: list[str], status: int, told: str | None) -> None:
    found = run(*args, store=url)
    assert found.exit_code == status, found.output
    if told is None:
        assert found.stderr == ""
    else:
        assert found.stderr.startswith("rath-bridge: ")
        assert found.stderr.count("\n") == 1
        assert told in found.stderr
        assert found.stdout == ""


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    found = run("ls", store=f"sqlite:///{missing}")
    assert found.exit_code == 4
    assert "record something" in found.stderr
    assert not missing.exists()


def test_other_stores_that_cannot_be_opened(tmp_path: Path) -> None:
    assert run("ls", store="what").exit_code == 2
    assert run("ls", store=f"sqlite:///{tmp_path}").exit_code == 4
    text = tmp_path / "notes.txt"
    text.write_text("dear diary " * 100)
    assert run("ls", store=f"sqlite:///{text}").exit_code in (2, 3, 4)
    assert text.read_text().startswith("dear diary")


def test_a_store_that_is_down(postgres_url: str) -> None:
    address = postgres_url.rpartition("/")[0].rpartition(":")[0]
    found = run("ls", store=f"{address}:1/none?connect_timeout=2")
    assert found.exit_code == 4
    assert found.stderr.count("\n") == 1


def test_damage_is_found_by_fsck(url: str, tmp_path: Path) -> None:
    assert "holds" in run("fsck", store=url).stdout
    path = url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        connection.execute("DELETE FROM rath_object" if "rath_object" in tables else f"DELETE FROM {tables[0]}")
    found = run("fsck", store=url)
    assert found.exit_code == 3
    assert "finding" in found.stdout
    assert "OBJECT" in found.stdout
    data = json.loads(run("fsck", "ticket-4711", "--json", store=url).stdout)
    assert not data["ok"]
    assert {"object", "problem", "path"} == set(data["findings"][0])
    assert "unreadable" in run("log", "ticket-4711", store=url).stdout
    assert run("show", "ticket-4711:7", store=url).exit_code == 0


def test_fsck_against_a_known_head(url: str) -> None:
    with rb.open_store(url) as store:
        head = store.session("ticket-4711").head
    assert run("fsck", "ticket-4711", "--head", head, store=url).exit_code == 0
    assert run("fsck", "copy", "--head", head, store=url).exit_code == 3
    assert run("fsck", "--head", "0" * 64, store=url).exit_code == 3


def test_fsck_of_a_session_checks_all_its_branches_and_says_what_it_checked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    with fill(url) as store:
        session = store.session("ticket-4711")
        branch = session.fork("cut", at=session[1].id).append(rb.message("user", "only here"))
    assert "the whole store: 2 sessions, 4 refs" in run("fsck", store=url).stdout
    assert "ticket-4711: main, cut, try-b, 1" in run("fsck", "ticket-4711", store=url).stdout
    assert "ticket-4711@main alone (2 other branches not checked)" in run("fsck", "ticket-4711@main", store=url).stdout
    data = json.loads(run("fsck", "ticket-4711", "--json", store=url).stdout)
    assert [ref["name"] for ref in data["refs"]] == ["ticket-4711", "ticket-4711@cut", "ticket-4711@try-b"]
    with closing(sqlite3.connect(tmp_path / "s.db")) as db, db:
        db.execute("UPDATE rath_chunk SET at = at + 1 WHERE id = ?", (bytes.fromhex(branch.head),))
    assert run("fsck", "ticket-4711@main", store=url).exit_code == 0
    assert run("fsck", "ticket-4711", store=url).exit_code == 3
    assert run("fsck", "ticket-4711@cut", store=url).exit_code == 3
    assert run("fsck", "nothing", store=url).exit_code == 2


def test_packet_and_verify(url: str, tmp_path: Path) -> None:
    place = tmp_path / "packet"
    made = run("packet", "ticket-4711", "copy", "-o", str(place), store=url)
    assert made.exit_code == 0
    assert "ticket-4711@try-b" in made.stdout
    again = run("packet", "ticket-4711", "-o", str(place), store=url)
    assert again.exit_code != 0
    assert again.stderr.count("\n") == 1
    assert run("packet", "ticket-4711", "copy", "-o", str(place), "--force", store=url).exit_code == 0
    good = run("verify", str(place))
    assert good.exit_code == 0
    assert "holds" in good.stdout
    data = json.loads(run("verify", str(place), "--json").stdout)
    head = data["heads"]["ticket-4711"]
    assert data["ok"]
    assert data["next_actions"]
    assert run("verify", str(place), "--head", head).exit_code == 0
    assert run("verify", str(place), "--head", "0" * 64).exit_code == 3
    lines = place / "chunks.jsonl"
    lines.write_bytes(lines.read_bytes().replace(b'"kind":"note"', b'"kind":"nota"'))
    bad = run("verify", str(place))
    assert bad.exit_code == 3
    assert "chunks.jsonl" in bad.stdout
    assert "✗" in bad.stdout
    archive = tmp_path / "p.zip"
    assert run("packet", "copy", "-o", str(archive), store=url).exit_code == 0
    assert run("verify", str(archive)).exit_code == 0
    archive.write_bytes(archive.read_bytes()[:-30])
    assert run("verify", str(archive)).exit_code == 3


def test_forks_detaches_and_merges(url: str) -> None:
    assert run("fork", "ticket-4711", "x", "--at", ":3", store=url).exit_code == 0
    assert run("fork", "ticket-4711", "--session", "own", "--at", "ticket-4711:-2", store=url).exit_code == 0
    assert run("detach", "ticket-4711@x", "twin", store=url).exit_code == 0
    dry = run("merge", "ticket-4711", "ticket-4711@x", "--dry-run", store=url)
    assert "Would append" in dry.stdout
    assert "merged ticket-4711@x" in dry.stdout  # nobody said anything there: no block
    with rb.open_store(url) as store:
        before = store.session("ticket-4711").head
        assert len(store.session("ticket-4711@x")) == 5
        assert {s.session for s in store.sessions()} == {"copy", "own", "ticket-4711", "twin"}
    made = json.loads(run("merge", "ticket-4711", "ticket-4711@x", "--json", store=url).stdout)
    assert made["head"] != before
    assert "nothing to merge" in run("merge", "ticket-4711", "ticket-4711@x", store=url).stdout
    assert json.loads(run("merge", "ticket-4711", "ticket-4711@x", "--dry-run", "--json", store=url).stdout)["would_append"] == []
    assert run("fsck", store=url).exit_code == 0


def test_a_merge_conflict_lists_all_and_writes_nothing(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("s").append(rb.message("user", "a"))
        s.fork("b").place("docker", root="/x")
        head = s.place("local", root="./ws").head
    found = run("merge", "s", "s@b", store=sqlite_url)
    assert found.exit_code == 1
    assert "placement" in found.stderr
    assert found.stderr.count("\n") == 1
    with rb.open_store(sqlite_url) as store:
        assert store.session("s").head == head


def test_hostile_names_in_errors() -> None:
    found = run("ls", store="what\x1b[2J\u202e\nis this")
    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1
    assert "\x1b" not in found.stderr
    assert "\u202e" not in found.stderr


def test_an_error_that_nobody_expected_is_no_finding(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rath_bridge.session.Session.log", lambda *_, **__: 1 / 0)
    found = run("log", "ticket-4711", store=url)
    assert found.exit_code == 4
    assert "ZeroDivisionError" in found.stderr
    assert "bug" in found.stderr


# ---------------------------------------------------------------- as a process


def test_as_a_process(url: str) -> None:
    environment = {**os.environ, "RATH_BRIDGE_STORE": url, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    found = process("graph", "ticket-4711", env=environment)
    assert found.returncode == 0
    assert found.stdout.isascii()
    assert "[try-b]" in found.stdout
    assert process("log", "ticket-4711", env=environment).returncode == 0
    lost = process("log", "nobody", env=environment)
    assert (lost.returncode, lost.stdout, lost.stderr.count("\n")) == (2, "", 1)
    assert process("--version").stdout == f"rath-bridge {rb.__version__}\n"


def test_the_script_is_the_same(url: str) -> None:
    script = Path(sys.executable).with_name("rath-bridge")
    assert subprocess.run([script, "ls", "--store", url], capture_output=True, check=True).stdout


def test_a_reader_that_goes_away(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        store.create("long").append(*(rb.message("user", f"number {i} " * 20) for i in range(3000)))
    for extra in ([], ["--json"]):
        command = [sys.executable, "-m", "rath_bridge", "log", "long", "--store", sqlite_url, *extra]
        with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.read(100)
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait(60) == 128 + signal.SIGPIPE


def waiting_to_be_read(pipe: Any) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_control_c(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        store.create("long").append(*(rb.message("user", f"number {i} " * 20) for i in range(3000)))
    command = [sys.executable, "-m", "rath_bridge", "log", "long", "--store", sqlite_url]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        most = fcntl.fcntl(running.stdout, fcntl.F_SETPIPE_SZ, 4096)
        until(lambda: waiting_to_be_read(running.stdout) > most - 1000 and sleeps(running.pid))
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.wait(60) == 128 + signal.SIGINT
        assert b"Traceback" not in running.stderr.read()


def test_control_c_before_anything_has_begun() -> None:
    code = (
        "import sys\nfrom rath_bridge.cli import main\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'rath_bridge.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_no_framework_is_imported(url: str) -> None:
    names = ("langgraph", "langchain_core", "agents", "openai", "autogen_core", "mcp")
    code = (
        "import sys; from rath_bridge.cli import main; sys.argv = ['rath-bridge', 'doctor']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {names} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_manual_is_current() -> None:
    written = (ROOT / "docs" / "cli.md").read_text()
    assert written == manual(), "write it again: python -m rath_bridge.cli.manual > docs/cli.md"


@pytest.mark.parametrize("word", ["record", "replay", "drift", "serve"])
def test_the_manual_has_the_verbs_of_our_own_adapters(word: str) -> None:
    assert f"\n    rath-bridge mcp {word} [OPTIONS]" in manual()


def test_every_verb_explains_itself() -> None:
    for verb in [
        "ls",
        "log",
        "show",
        "graph",
        "diff",
        "blame",
        "fork",
        "detach",
        "merge",
        "fsck",
        "packet",
        "verify",
        "adapters",
        "doctor",
    ]:
        found = run(verb, "--help")
        assert found.exit_code == 0
        assert "--store" in found.stdout
    assert run().exit_code == 0
    assert "Commands" in run().stdout
