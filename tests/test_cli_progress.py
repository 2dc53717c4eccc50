"""Long work shows a bar to a person at a terminal, and nothing to a pipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import rath_bridge as rb

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "import sys; from rath_bridge.cli import main; sys.exit(main())"]


def _at_a_terminal(*args: str, cwd: Path) -> str:
    """Run ``rath-bridge`` with a terminal for its stderr; returns what a person would have seen there."""
    ours, theirs = pty.openpty()
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    env = {**os.environ, "PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [*COMMAND, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, cwd=cwd, env=env
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side has gone
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert process.wait(60) == 0
    return seen.decode(errors="replace")


def test_an_import_of_many_files_shows_how_far_it_is(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"talk-{number}.json").write_text(json.dumps([{"role": "user", "content": f"hello {number}"}]))
    seen = _at_a_terminal("--store", "sqlite:///runs.db", "import", "talk-*.json", cwd=tmp_path)
    assert "importing" in seen
    assert "12/12" in seen
    with rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        assert len(store.sessions()) == 12
    command = [*COMMAND, "--store", "sqlite:///runs.db", "import", "talk-*.json"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    piped = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)
    assert piped.returncode == 0
    assert piped.stderr == ""
