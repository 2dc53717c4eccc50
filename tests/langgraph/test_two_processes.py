"""Two processes on one thread: nothing that was answered is lost, whoever comes second is told or has a branch, also where one dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.session import Session, Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import thread
from tests.postgres_server import fresh_database

DEADLINE = 60
SCRIPT = """
import json, os, signal, sys
import rath_bridge as rb
from langchain_core.messages import AIMessage, HumanMessage
from rath_langgraph import RathSaver, wrap
from rath_langgraph.puts import Put
from tests.langgraph.graphs import chat, thread

url, kind, who, dies = sys.argv[1:]

def bot(state):
    print("asked", flush=True)
    sys.stdin.readline()
    said = state["messages"][-1].content
    return {"messages": [AIMessage(f"re {said}", id=f"a-{said}")]}

def dying(real):
    def call(put, *args, **kwargs):
        found = real(put, *args, **kwargs) if dies == "behind" else None
        if "re b0" in str(put.checkpoint["channel_values"].get("messages", "")):
            os.kill(os.getpid(), signal.SIGKILL)
        return found if dies == "behind" else real(put, *args, **kwargs)
    return call

if dies == "before":
    Put._where = dying(Put._where)
elif dies == "behind":
    Put._stored = dying(Put._stored)
store = rb.open_store(url)
apps = {name: chat(bot, checkpointer=RathSaver(store, on_conflict=name)) for name in ("branch", "raise")}
apps = {name: app if kind == "bare" else wrap(app, store) for name, app in apps.items()}
print("ready", flush=True)
turns = {}
while line := sys.stdin.readline():
    name = line.strip()
    turns[name] = turns.get(name, -1) + 1
    text = f"{who}{turns[name]}"
    try:
        given = {"messages": [HumanMessage(text, id=f"h-{text}")]}
        result = apps["raise" if name == "raise" else "branch"].invoke(given, thread(name), durability="sync")
        print(json.dumps([m.content for m in result["messages"]]), flush=True)
    except rb.errors.ConflictError as error:
        print(json.dumps(type(error).__name__), flush=True)
"""


class Worker:
    """A process that invokes the graph when it is told, and waits in its node until it is told to answer."""

    def __init__(self, place: tuple[str, str], who: str, dies: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *place, who, dies], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asked(self, name: str) -> None:
        """Begin a turn on a thread, up to where the node is."""
        self.tell(name)
        assert self.hear() == "asked"

    def answer(self) -> Any:
        """End the turn."""
        self.tell()
        heard = self.hear()
        return json.loads(heard) if heard else None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass(frozen=True)
class Around:
    """Two processes that live on, two that will die, and the store."""

    store: Store
    one: Worker
    other: Worker
    dying: dict[str, Worker]


@pytest.fixture(scope="module", params=["sqlite-bare", "postgres-wrapped"])
def around(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Around]:
    """On each store, and with each way to record."""
    kind, _, recorded = request.param.partition("-")
    with ExitStack() as stack:
        folder: Path = tmp_path_factory.mktemp("processes")
        url = f"sqlite:///{folder / 'store.db'}"
        if kind == "postgres":
            url = stack.enter_context(fresh_database(request.getfixturevalue("postgres_server")))
        store = stack.enter_context(rb.open_store(url))
        made = [stack.enter_context(Worker((url, recorded), *one)) for one in (("a",), ("b",), ("b", "before"), ("b", "behind"))]
        for worker in made:
            assert worker.hear() == "ready"
        yield Around(store, made[0], made[1], {"before": made[2], "behind": made[3]})


def lines(session: Session) -> dict[str, list[str]]:
    """What each branch says."""
    found: dict[str, list[str]] = {}
    for branch in session.heads():
        messages = session.store.session(f"{session.name}@{branch}").messages()
        found[branch] = [str(getattr(message.parts[0], "content", "")) for message in messages]
    return found


def test_both_answers_stand_each_on_a_branch(around: Around) -> None:
    one, other, store = around.one, around.other, around.store
    one.asked("branch")
    assert one.answer() == ["a0", "re a0"]
    other.asked("branch")
    one.asked("branch")  # both stand on what the other has not ended
    second, first = other.answer(), one.answer()
    other.asked("branch")
    third = other.answer()
    session = store.session("langgraph/branch")
    found = lines(session)
    assert all(answered in found.values() or third[: len(answered)] == answered for answered in (first, second))
    assert third in found.values()
    assert sorted(name.partition("-")[0] for name in found) == ["main", "race"]
    assert list(session.fsck()) == []
    newest = next(iter(RathSaver(store).list(thread("branch"), limit=1)))
    assert [message.content for message in newest.checkpoint["channel_values"]["messages"]] == third


def test_who_comes_second_is_told_and_changes_nothing(around: Around) -> None:
    one, other, store = around.one, around.other, around.store
    one.asked("raise")
    one.answer()
    one.asked("raise")
    other.asked("raise")  # its input stands in front of what `one` is about to say
    assert one.answer() == "ConflictError"
    expected = ["a0", "re a0", "a1", "b0", "re b0"]
    assert other.answer() == expected
    session = store.session("langgraph/raise")
    assert lines(session) == {"main": expected}
    assert list(session.fsck()) == []
    one.asked("raise")
    assert one.answer() == [*expected, "a2", "re a2"]


@pytest.mark.parametrize("dies", ["before", "behind"])
def test_who_is_killed_in_a_put_leaves_the_thread_to_the_other(around: Around, dies: str) -> None:
    one, other, store = around.one, around.dying[dies], around.store
    one.asked(dies)
    one.answer()
    other.asked(dies)
    assert other.answer() is None
    other.process.wait(DEADLINE)
    stands = ["a0", "re a0", "b0", *(["re b0"] if dies == "behind" else [])]
    one.asked(dies)
    assert one.answer() == [*stands, "a1", "re a1"]
    session = store.session(f"langgraph/{dies}")
    assert lines(session) == {"main": [*stands, "a1", "re a1"]}
    assert list(session.fsck()) == []
