"""What should not break a replay: what outlives it, runs side by side, is nested, raises strange things, or is named wrongly."""

from __future__ import annotations

import asyncio
import operator
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from pathlib import Path
from typing import Annotated, Any, TypedDict

import orjson
import pytest
from agents.testing import ScriptedModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

import rath_bridge as rb
from rath_bridge.errors import InvalidNameError, NameInUseError
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_bridge.model.parts import ToolCallPart
from rath_bridge.replay.tape import Tape, current_tape
from rath_langgraph import RathCallbackHandler, RathSaver
from tests.replay.programs import RAN, never, program, recorded, scripted, state, steps
from tests.replay.sealed import sealed

# ------------------------------------------------------------------ what outlives a replay


class Asked(ScriptedModel):
    """Counts what it is really asked."""

    def __init__(self) -> None:
        super().__init__(steps())
        self.count = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return await super().get_response(*args, **kwargs)


async def test_a_task_that_outlives_the_replay_makes_nothing_live() -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)
    before, model, tasks, over = state(store), Asked(), list[asyncio.Task[Any]](), asyncio.Event()

    async def later() -> Any:
        await over.wait()
        return await program(store, model)()

    async def run() -> None:
        tasks.append(asyncio.create_task(later()))

    await rb.areplay(s, run)
    over.set()
    (found,) = await asyncio.gather(*tasks, return_exceptions=True)
    assert "after the replay had ended" in str(found)
    assert (model.count, RAN, state(store)) == (0, [], before)
    assert (await rb.areplay(s, program(store, never()))).equal, "the next one is not hindered"


def test_a_thread_that_outlives_the_replay_makes_nothing_live() -> None:
    store = rb.open_store("memory:")
    s = asyncio.run(recorded(store))
    before, model, over = state(store), Asked(), threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        over.wait(60)
        with pytest.raises(rb.errors.RathError):
            asyncio.run(program(store, model)())

    def run() -> None:
        threads.append(threading.Thread(target=copy_context().run, args=(work,)))
        threads[0].start()

    rb.replay(s, run)
    over.set()
    threads[0].join()
    assert (model.count, RAN, state(store)) == (0, [], before)


async def test_a_generator_runs_inside_of_the_replay() -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)

    async def run() -> AsyncIterator[Any]:
        yield "begun"
        yield await program(store, never())()

    report = await rb.areplay(s, run)
    assert (report.equal, report.value) == (True, ["begun", "It is sunny, and A-1 is refunded."])


# ------------------------------------------------------------------ side by side


NUMBER = [0]


@tool
def look(x: int) -> str:
    """Look."""
    NUMBER[0] += 1
    return f"result {NUMBER[0]}"


class Found(TypedDict):
    out: Annotated[list[str], operator.add]


def asks(store: rb.Store, arguments: tuple[int, ...], order: tuple[int, ...] = (0, 1, 2, 3)) -> Callable[[], Any]:
    """Tools that one message asks for; LangGraph runs them in threads."""

    def ask(state: MessagesState) -> dict[str, Any]:
        calls: Any = [{"name": "look", "args": {"x": x}, "id": f"c{i}"} for i, x in enumerate(arguments)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    class Shuffled(ToolNode):
        """Begins them in another order, as threads may."""

        def _run_one(self, call: Any, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.02 * order.index(int(call["id"][1:])))
            return super()._run_one(call, *args, **kwargs)

    def run() -> Any:
        with rb.record(store, "t"):
            graph = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", Shuffled([look]))
            graph = graph.add_edge(START, "ask").add_edge("ask", "tools").add_edge("tools", END)
            app = graph.compile(checkpointer=RathSaver(store))
            config: Any = {"configurable": {"thread_id": "1"}, "callbacks": [RathCallbackHandler(store)]}
            return [m.content for m in app.invoke({"messages": [HumanMessage("hi")]}, config)["messages"]]

    return run


def sends(store: rb.Store, order: tuple[int, ...] = (0, 1, 2, 3)) -> Callable[[], Any]:
    """The same node four times at once; each makes the same call, which has no id."""

    def work(state: Any) -> dict[str, Any]:
        time.sleep(0.02 * order.index(state["i"]))
        return {"out": [look.invoke({"x": 1})]}

    def four(_: Any) -> list[Send]:
        return [Send("work", {"i": i}) for i in range(4)]

    def run() -> Any:
        with rb.record(store, "t"):
            graph = StateGraph(Found).add_node("work", work).add_edge("work", END)
            graph = graph.add_conditional_edges(START, four)
            app = graph.compile(checkpointer=RathSaver(store))
            config: Any = {"configurable": {"thread_id": "1"}, "callbacks": [RathCallbackHandler(store)]}
            return app.invoke({"out": []}, config)["out"]

    return run


@pytest.mark.parametrize("arguments", [(1, 1, 1, 1), (1, 2, 3, 4), (1, 2, 1, 2)])
def test_tools_that_run_side_by_side_may_begin_in_any_order(arguments: tuple[int, ...]) -> None:
    store = rb.open_store("memory:")
    value = asks(store, arguments)()
    report = rb.replay(store.session("t"), asks(store, arguments, (3, 1, 0, 2)))
    assert report.equal, str(report)
    assert report.value == value, "each call has its own answer"


def test_another_argument_of_one_of_them_is_still_found() -> None:
    store = rb.open_store("memory:")
    asks(store, (1, 2, 3, 4))()
    report = rb.replay(store.session("t"), asks(store, (1, 2, 3, 5), (3, 1, 0, 2)))
    assert (report.equal, report.live) == (False, 0)
    assert report.divergence is not None
    assert "look" in report.divergence.what


def test_equal_calls_of_equal_tasks_keep_their_own_answers() -> None:
    store = rb.open_store("memory:")
    value = sends(store)()
    report = rb.replay(store.session("t"), sends(store, (2, 0, 3, 1)))
    assert report.equal, str(report)
    assert report.value == value


# ------------------------------------------------------------------ nested


async def test_a_replay_inside_of_a_replay_is_compared_with_its_own_run() -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)
    before, inner = state(store), list[rb.ReplayReport]()

    async def run() -> Any:
        found = await program(store, never())()
        inner.append(await rb.areplay(s, lambda: None))
        inner.append(await rb.areplay(s, program(store, never())))
        return found

    outer = await rb.areplay(s, run)
    assert [outer.equal, *(one.equal for one in inner)] == [True, False, True]
    assert inner[1].as_json()["branch"] is None
    assert state(store) == before


# ------------------------------------------------------------------ what user code raises


class NoWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "words"),
    [(NoWords(), "NoWords: (its text raises RuntimeError)"), (ValueError("\ud800"), "ValueError: \\ud800"),
     (asyncio.CancelledError(), "CancelledError"), (SystemExit("\ud800"), "SystemExit: \\ud800")],
)  # fmt: skip
def test_whatever_the_run_raises_is_on_the_report(error: BaseException, words: str) -> None:
    store = rb.open_store("memory:")
    s = asyncio.run(recorded(store))

    async def run() -> None:
        raise error

    report = rb.replay(s, run)
    assert report.error is not None
    assert report.error.startswith(words)
    assert orjson.loads(orjson.dumps(report.as_json()))["error"] == report.error
    assert str(report).encode()
    assert current_tape() is None


async def test_who_cancels_the_replay_is_obeyed() -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)

    async def run() -> None:
        await asyncio.sleep(300)

    task = asyncio.create_task(rb.areplay(s, run))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize("name", ["a@b", "", "a b", "\ud800", "a" * 500])
async def test_a_branch_that_cannot_be_is_told_before_anything_runs(name: str) -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)
    with sealed(), pytest.raises(InvalidNameError):
        await rb.areplay(s, program(store, never()), until=4, then="live", branch=name)


async def test_a_branch_that_is_there_is_told_before_anything_runs() -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)
    s.fork("taken", at=s[3].id)
    model = scripted()
    with pytest.raises(NameInUseError):
        await rb.areplay(s, program(store, model), until=4, then="live", branch="taken")


@pytest.mark.parametrize(
    "options",
    [
        {"until": True}, {"until": 1.5}, {"until": 3, "after": 6}, {"overrides": [1]}, {"policy": "live"}, {"policy": {1: "live"}},
        {"policy": {"look": 3}},
    ],
)  # fmt: skip
async def test_arguments_that_mean_nothing_are_told_before_anything_runs(options: dict[str, Any]) -> None:
    store = rb.open_store("memory:")
    s = await recorded(store)
    with pytest.raises(ValueError, match=r".+"):
        await rb.areplay(s, program(store, never()), **options)


# ------------------------------------------------------------------ scripts

SCRIPT = """
import asyncio, atexit, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
import rath_bridge as rb
from agents import Agent
from agents.testing import ScriptedModel, assistant_message
from rath_openai_agents import wrap

class Model(ScriptedModel):
    async def get_response(self, *args, **kwargs):
        with open("ran", "a") as file:
            file.write("asked ")
        return await super().get_response(*args, **kwargs)

def go():
    store = rb.open_store("sqlite:///runs.db")
    asyncio.run(wrap(Agent(name="Solo", model=Model([[assistant_message("ok")]])), store, session="ticket").run("hi"))

how = sys.argv[1]
if how == "plain":
    go()
elif how == "thread":
    threading.Thread(target=go).start()
elif how == "pool":
    with ThreadPoolExecutor() as pool:
        pool.submit(go).result()
elif how == "atexit":
    atexit.register(go)
elif how == "exit":
    go()
    sys.exit(3)
elif how == "closes":
    go()
    print("said by the script")
    sys.stdout.close()
    sys.stderr.close()
"""


@pytest.mark.parametrize(("how", "status"), [("thread", 0), ("atexit", 1), ("closes", 0)])
def test_a_script_is_replayed_with_all_its_threads_and_whatever_it_closes(tmp_path: Path, how: str, status: int) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "adapters")])}
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert run("script.py", "plain").returncode == 0
    (tmp_path / "ran").unlink()
    with rb.open_store(f"sqlite:///{tmp_path}/runs.db") as store:
        head = store.session("ticket").head
        done = run(
            "-m", "rath_bridge", "--store", "sqlite:///runs.db", "replay", "ticket", "--", "python", "script.py", how
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        assert "ticket: " in done.stdout, "the report is there"
        assert how != "closes" or done.stdout.startswith("said by the script"), done.stdout
        assert store.session("ticket").head == head, "nothing was written"
    assert not (tmp_path / "ran").exists(), "nobody was asked"


def test_a_patch_over_ours_stays_when_the_last_replay_leaves() -> None:
    """A replay's players may leave late; what somebody has put in front meanwhile is theirs, and ours is not asked again below it."""
    from rath_bridge.replay.patching import patched

    class Client:
        def send(self) -> str:
            return "sent"

    def ours(original: Any, client: Client) -> str:
        return f"asked, {original(client)}"

    def theirs(client: Client) -> str:
        return f"recorded, {below(client)}"

    first = patched(Client, "send", ours)
    first.__enter__()
    below = Client.send
    Client.send = theirs  # type: ignore[method-assign]
    first.__exit__(None, None, None)
    assert Client().send() == "recorded, sent"
    tape = Tape.of(rb.open_store("memory:").create("s"))
    with patched(Client, "send", ours), tape.current():
        assert Client().send() == "asked, recorded, sent"
    assert Client().send() == "recorded, sent"


# ------------------------------------------------------------------ twins


@pytest.mark.parametrize(("second", "asked", "notes"), [("b", False, 1), ("a", False, 0), ("b", True, 0)])
def test_equal_calls_at_one_time_that_were_answered_differently_are_named(second: str, asked: bool, notes: int) -> None:
    s = rb.open_store("memory:").create("t")
    if asked:  # by a model, whose ids the record gives again
        s = s.append(rb.message("assistant", [ToolCallPart(f"c{n}", "look", {"x": 1}) for n in range(2)]))
    s = s.append(*(rb.draft(ToolCall(name="look", arguments={"x": 1}, call_id=f"c{n}"), run="aa") for n in range(2)))
    s = s.append(rb.draft(ToolResult(name="look", call_id="c0", result="a"), run="aa"))
    s = s.append(rb.draft(ToolResult(name="look", call_id="c1", result=second), run="aa"))
    report = rb.replay(s, lambda: None)
    assert [note for note in report.notes if "at one time" in note] == [
        "2 equal calls of look ran at one time and were answered differently: they are served in the order in which they come"
    ] * notes


async def test_what_cannot_be_compared_is_not_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that could not be made is a reason."""
    from rath_bridge.errors import MissingObjectError
    from rath_bridge.replay import running

    store = rb.open_store("memory:")
    s = await recorded(store)

    def gone(*_: Any, **__: Any) -> None:
        raise MissingObjectError("ab" * 32)

    monkeypatch.setattr(running, "first_difference", gone)
    report = await rb.areplay(s, program(store, never()))
    assert (report.equal, report.exit_status) == (None, 125)
    assert "abab" in report.reasons[0]
