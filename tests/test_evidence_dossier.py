"""``examples/dossier.py``: claims over a session, signed, checked by coreutils and openssh alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.model.kinds import ToolCall, ToolResult

SCRIPT = Path(__file__).parents[1] / "examples" / "dossier.py"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")
def test_the_dossier_is_written_and_checked(tmp_path: Path) -> None:
    (tmp_path / "demo-out").mkdir()
    with rb.open_store(f"sqlite:///{tmp_path}/demo-out/runs.db") as store:
        store.create("ticket-4711").append(
            rb.message("user", "Ada's export is empty."),
            rb.draft(ToolCall(name="refund", call_id="c1")),
            rb.draft(ToolResult(name="refund", call_id="c1", status="error", error="the bank refused to refund A-1")),
            rb.draft(ToolCall(name="set_filter", call_id="c2")),
            rb.draft(ToolResult(name="set_filter", call_id="c2", result="the filter is month=10")),
            rb.message("assistant", "Dear Ada, your export of October is repaired."),
        )
        head = store.session("ticket-4711").head
    done = subprocess.run([sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with rb.open_store(f"sqlite:///{tmp_path}/demo-out/runs.db") as store:
        assert store.session("ticket-4711").head == head, "the demo's session is as it was"
    for words in ("Good", "integrity  holds", "1 of 5 lowered", "approved   pending", "no-refund  supported"):
        assert words in done.stdout
    assert rb.verify_packet(tmp_path / "demo-out" / "dossier", keys=[tmp_path / "demo-out" / "desk.pub"]).ok


def test_without_a_demo_it_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("there is no demo-out")
    assert "run make demo first" in done.stderr
    assert not list(tmp_path.iterdir())
