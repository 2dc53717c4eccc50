"""The command line under attack: hostile names and texts, streams that are closed or full, stores that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Note, Run, Unknown
from rath_bridge.model.parts import GenericPart, ToolCallPart

HOSTILE = "näme[red]\u202e\u200bx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("cli")
    with rb.open_store(f"sqlite:///{found}/x.db") as store:
        store.create(HOSTILE).append(
            rb.message("user", "\x1b[31mred\x07 \ud800 \u2028 [bold]x[/bold] {0} %s"),
            draft(Note(text="\x1b]0;title\x07", author="\x1b[2J")),
            draft(Run(phase="begin", name="\x1b[1m", type="\r\n"), run="r\x1b[0m"),
            draft(Unknown(name="odd.kind", fields={"\x1b": "\x1b"})),
            rb.message("assistant", [ToolCallPart("c\x1b", "n\x1b", {"\x1b": [1]}), GenericPart("z\x1b", {"a": "\x1b"})]),
            rb.message("user", "big " * 100_000),
        ).fork("b\u202e")
    return found


def run(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run in a shell: ``R`` is the program."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RATH_", "PYTHON", "FORCE_"))}
    return subprocess.run(
        ["bash", "-c", command.replace("R ", f'"{sys.executable}" -m rath_bridge ')],
        cwd=folder, capture_output=True, timeout=60, stdin=subprocess.DEVNULL,
        env={**known, "RATH_BRIDGE_STORE": "sqlite:///x.db", "N": HOSTILE, **environment},
    )  # fmt: skip


def test_hostile_texts_steer_no_terminal(folder: Path) -> None:
    for verb, environment in (
        ('log "$N"', "PYTHONIOENCODING=ascii"),
        ('show "$N:5"', "COLUMNS=5"),
        ('log "$N" --json', "TERM=dumb"),
    ):
        done = run(folder, f"export {environment}; R {verb}")
        assert (done.returncode, done.stderr) == (0, b"")
        assert not any(bad in done.stdout for bad in (b"\x1b", b"\x07", "\u202e".encode(), "\u2028".encode()))


def test_streams_that_are_closed_or_full(folder: Path) -> None:
    assert run(folder, "R ls >&-").returncode == 0
    assert run(folder, "R log nothere 2>&-").returncode == 2
    assert run(folder, "R ls >&- 2>&- <&-").returncode == 0
    for command in ("R ls --json >/dev/full", 'R show "$N:6" >/dev/full'):
        done = run(folder, command)
        assert done.returncode == 4
        assert b"No space left" in done.stderr
        assert b"Traceback" not in done.stderr
    done = run(folder, 'R show "$N:6" | head -c 1; exit ${PIPESTATUS[0]}')
    assert done.returncode in (0, 141)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("store", "status"),
    [
        ("nonsense", 2), ("sqlite:////tmp", 4), ("postgresql://u:hid@den@127.0.0.1:1/x", 2),
    ],
)  # fmt: skip
def test_stores_that_are_none(folder: Path, store: str, status: int) -> None:
    done = run(folder, "R ls", RATH_BRIDGE_STORE=store)
    assert done.returncode == status
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1
    assert b"hid" not in done.stderr
    assert b"hid" not in run(folder, "R doctor", RATH_BRIDGE_STORE=store).stdout


def test_numbers_beyond_every_history(folder: Path) -> None:
    from tests.cli_store import run as at_once

    for verb in (["log"], ["blame"], ["show"]):
        place = [*verb, HOSTILE, *(["red"] if verb == ["blame"] else [])]
        done = at_once(*place, "-n", "9" * 30, store=f"sqlite:///{folder}/x.db")
        assert done.exit_code == 0, done.stderr


def test_packets_by_whatever_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a directory of a bare name, in capitals, with line ends: every verb takes what `packet` has written."""
    from tests.cli_store import run as at_once

    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{folder}/x.db"
    with rb.open_store(url) as store:
        store.create("plain").append(rb.message("user", "hi"))
    for name in ("P.ZIP", "bare", "a b", "p\nq.zip", "*.zip", "-"):
        assert at_once("packet", "plain", f"--out={name}", store=url).exit_code == 0
        assert at_once("verify", name, store=url).exit_code == 0
        assert at_once("claim", "check", name, store=url).exit_code == 0, name
        assert at_once("claim", "check", name, store="sqlite:///nowhere.db").exit_code == 0, name
        assert at_once("audit", "plain", "--packet", name, store=url).exit_code == 0
    done = at_once("import", ".", store="sqlite:///new.db")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "1 session imported, 2 unchanged" in done.stdout, "the directories, each as one"
    done = at_once("packet", "plain", "-o", "/proc/p.zip", store=url)
    assert (done.exit_code, "/proc/p.zip: " in done.stderr) == (2, True), done.stderr
