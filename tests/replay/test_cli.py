"""``rath-bridge replay NAME -- python my_script.py``: a plain script, with a store of its own, as a person replays it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import Result

import rath_bridge as rb
from rath_bridge.replay.script import script
from tests.cli_store import run

ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(__file__).parent / "script_of_a_user.py")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store into which the script has recorded one run."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"STORE": "sqlite:///runs.db", "RAN": "ran", "OPENAI_AGENTS_DISABLE_TRACING": "0"}.items():
        monkeypatch.setenv(name, value)
    script(["python", SCRIPT])()
    assert Path("ran").read_text() == "Oslo\n"
    Path("ran").unlink()
    return "sqlite:///runs.db"


def replayed(url: str, *options: str, command: tuple[str, ...] = ("python", SCRIPT)) -> Result:
    return run("replay", "ticket", *options, "--", *command, store=url)


def test_a_script_is_replayed_in_a_process_of_its_own(url: str) -> None:
    before = Path("runs.db").read_bytes()
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    words = [sys.executable, "-m", "rath_bridge", "--store", url, "replay", "ticket", "--", "python", SCRIPT]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.splitlines() == [
        "It is sunny.", "ticket: equal", "  3 served, 0 live, 0 unused, 0 misses; 0 tokens not spent again",
    ]  # fmt: skip
    assert Path("runs.db").read_bytes() == before
    assert {one.name for one in Path.cwd().iterdir()} <= {"runs.db", "runs.db-wal", "runs.db-shm"}, "nothing ran, no other store"


LATE = """
import asyncio, os
import rath_bridge as rb

def main():
    store = rb.open_store(os.environ["STORE"])
    with rb.record(store, "plain") as recorder:
        recorder.append(rb.message("user", "hi"))
        if os.environ.get("LATE"):
            from agents import Agent, Runner
            from agents.testing import ScriptedModel, assistant_message
            from rath_openai_agents import RecordingModel
            model = ScriptedModel([[assistant_message("live!")]])
            Runner.run_sync(Agent(name="Late", model=RecordingModel(model)), "hi")
            print("it was asked live")

main()
"""


def test_a_framework_that_was_never_recorded_and_is_imported_late_is_not_asked_live(url: str) -> None:
    """The program has changed: it calls an agent now, of an SDK that is on no record and that nothing had imported."""
    Path("late.py").write_text(LATE)
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "late.py"], env=environment, check=True)
    words = [sys.executable, "-m", "rath_bridge", "--store", url, "replay", "plain", "--", "python", "late.py"]
    same = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert same.returncode == 0, same.stderr + same.stdout
    late = subprocess.run(words, env={**environment, "LATE": "1"}, capture_output=True, text=True, check=False)
    assert late.returncode == 1, late.stderr + late.stdout
    assert "it was asked live" not in late.stdout
    assert "first divergence: model call of Late" in late.stdout


ODD = """
import atexit, os, subprocess, sys
sys.argv = sys.argv[:1]
import tests.replay.script_of_a_user as program

class Stop(BaseException):
    pass

program.main()
child = os.fork()
if child == 0:
    sys.exit(3)
if os.fork() == 0:
    raise ValueError("the child's own")
print("the child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os.wait()
os.write(1, b"past Python\\n")
subprocess.run(["echo", "from a child"])
atexit.register(print, "at its exit")
raise Stop("odd")
"""


def test_a_program_with_children_and_an_end_of_its_own_leaves_the_answer_alone(url: str) -> None:
    """What its children and exit handlers print is no part of the JSON; a forked child gives no second answer."""
    Path("odd.py").write_text(ODD)
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    words = [sys.executable, "-m", "rath_bridge", "--store", url, "replay", "ticket", "--json", "--", "python", "odd.py"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["equal"], found["error"]) == (True, "Stop: odd")
    for printed in ("the child ended with 3", "ValueError: the child's own", "past Python", "from a child", "at its exit"):
        assert done.stderr.count(printed) == 1, done.stderr


HANGS = """
import time
import tests.replay.script_of_a_user as program

program.main()
print("ready", flush=True)
time.sleep(300)
"""


def test_a_program_that_hangs_is_interrupted_and_nothing_is_written(url: str) -> None:
    """Ctrl-C in the middle of a what-if: its branch is not begun, and the store is sound."""
    Path("hangs.py").write_text(HANGS)
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    words = [sys.executable, "-m", "rath_bridge", "--store", url, "replay", "ticket", "--until", "-1", "--then", "live"]
    with subprocess.Popen(
        [*words, "--branch", "what-if", "--", "python", "hangs.py"],
        env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        last = threading.Timer(60, running.kill)
        last.start()
        try:
            assert running.stdout is not None
            assert running.stderr is not None
            assert "ready\n" in iter(running.stdout.readline, "")
            running.send_signal(signal.SIGINT)
            assert "Traceback" not in running.stderr.read()
            assert running.wait(60) == 128 + signal.SIGINT
        finally:
            running.kill()
            last.cancel()
    with rb.open_store(url) as store:
        assert [ref.name for ref in store.backend.refs()] == ["ticket"]
        assert list(store.fsck()) == []


def test_changed_arguments_of_the_script_diverge(url: str) -> None:
    done = replayed(url, "--json", command=(sys.executable, SCRIPT, "hello", "there"))
    assert done.exit_code == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["equal"], found["served"], found["live"]) == (False, 0, 0)
    assert found["divergence"]["what"] == "model call of Solo: input[0]"
    assert found["next_actions"][0].startswith(f"rath-bridge show {found['divergence']['chunk'][:12]}")


def test_a_what_if_from_the_command_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with rb.open_store(url) as store:
        s = store.session("ticket")
        number = next(c.position for c in s if c.kind == "tool_result")
        monkeypatch.setenv("SKIP", "1")
        monkeypatch.setenv("ANSWER", "Stay at home.")
        done = replayed(url, "--until", str(number), "--set", "body.response=rain", "--branch", "rain", "--json")
        assert done.exit_code == 0, done.stderr + done.stdout
        found = json.loads(done.stdout)
        assert (found["served"], found["live"], found["branch"]) == (1, 1, "ticket@rain")
        assert done.stderr.splitlines()[-1] == "Stay at home."
        assert [m.text for m in store.session("ticket@rain").messages() if m.text] == ["hi", "Stay at home."]
        assert store.session("ticket").head == s.head
    assert not Path("ran").exists()


def test_on_the_command_line_a_write_that_comes_again_is_answered_as_changed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALL", "c2")
    with rb.open_store(url) as store:
        number = next(c.position for c in store.session("ticket") if c.kind == "tool_result")
        done = replayed(url, "--until", str(number), "--set", "body.result=rain", "--branch", "rain")
        assert done.exit_code == 0, done.stderr + done.stdout
        assert "tool weather came again and was answered as changed, not done" in done.stdout
        results = [c.values["result"] for c in store.session("ticket@rain") if c.kind == "tool_result"]
        assert results == ["rain", "rain"]
    assert not Path("ran").exists()


def test_one_run_of_several(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--after`` and ``--until`` are ``after=`` and ``until=``: a number, from the end, or a digest."""
    with rb.open_store(url) as store:
        first = store.session("ticket")
    monkeypatch.setenv("ANSWER", "Still sunny.")
    script(["python", SCRIPT, "again"])()
    Path("ran").unlink()
    whole = replayed(url)
    assert (whole.exit_code, "--after, --until" in whole.stdout) == (1, True), whole.stdout
    last = str(first.position)
    with rb.open_store(url) as store:
        length = len(store.session("ticket"))
    for place in (last, first.head[:12], str(first.position - length)):
        second = replayed(url, "--after", place, command=("python", SCRIPT, "again"))
        assert (second.exit_code, second.stdout.splitlines()[:2]) == (0, ["Still sunny.", "ticket: equal"]), second.output
        monkeypatch.setenv("ANSWER", "It is sunny.")
        assert replayed(url, "--until", place).exit_code == 0
        monkeypatch.setenv("ANSWER", "Still sunny.")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("options", "command", "words"),
    [
        ((), (), "say what to run"),
        ((), ("bash", "-c", "true"), "is no .py file"),
        ((), ("python", "nowhere.py"), "there is no file"),
        ((), ("python", "-m"), "-m names no module"),
        (("--set", "body.result=1"), ("python", SCRIPT), "named there or by --until"),
        (("--on-miss", "weather=perhaps"), ("python", SCRIPT), "fail, live, error"),
        (("--effect", "reads"), ("python", SCRIPT), "TOOL=pure"),
        (("--until", "4711"), ("python", SCRIPT), "there is no number 4711"),
        (("--after", "4711"), ("python", SCRIPT), "there is no number 4711"),
        (("--after", "abcdef"), ("python", SCRIPT), "is no chunk of ticket"),
        (("--after", "1", "--until", "0"), ("python", SCRIPT), "lies before after=1"),
    ],
)
def test_usage(tmp_path: Path, options: tuple[str, ...], command: tuple[str, ...], words: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with rb.open_store(url) as store:
        store.create("ticket").append(rb.message("user", "hi"))
    done = replayed(url, *options, command=command)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert words in done.stderr
