"""A graph that is cancelled in the middle: it goes at once, what it began is closed, and its thread goes on as with any saver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from threading import Event
from typing import Any, TypeVar

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import rath_bridge as rb
from rath_bridge.session import Session, Store
from rath_langgraph import RathSaver, wrap
from tests.langgraph.graphs import asks, chat, echo, thread

DEADLINE = 20
T = TypeVar("T")


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with rb.open_store(sqlite_url) as opened:
        yield opened


def said(messages: list[AnyMessage]) -> list[str]:
    return [str(message.content) for message in messages]


async def until(happened: Event) -> None:
    """Let the loop go on until a thread has told."""
    end = asyncio.get_running_loop().time() + DEADLINE
    while not happened.is_set():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.001)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, DEADLINE))


def one(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=text)]}


# ------------------------------------------------------------------------------------------- in a put


class Gated(RathSaver):
    """Its n-th put stands still in its thread until it may go on."""

    def __init__(self, store: Store, nth: int, on_conflict: Any = "raise") -> None:
        super().__init__(store, on_conflict=on_conflict)
        self.left, self.reached, self.go = nth, Event(), Event()

    def put(self, *args: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            assert self.go.wait(DEADLINE)
        return super().put(*args)


@pytest.mark.parametrize(("nth", "kept"), [(1, []), (2, ["one"]), (3, ["one", "you said: one"])])
def test_a_put_that_a_graph_waits_for_stands_before_it_goes(store: Store, nth: int, kept: list[str]) -> None:
    saver = Gated(store, nth)

    async def main() -> list[str]:
        app = chat(echo, checkpointer=saver)
        running = asyncio.create_task(app.ainvoke(one("one"), thread(), durability="sync"))
        await until(saver.reached)
        running.cancel()
        asyncio.get_running_loop().call_later(0.05, saver.go.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        return said((await app.ainvoke(one("two"), thread()))["messages"])

    assert run(main()) == [*kept, "two", "you said: two"]  # what was but an input is nobody's: a graph takes the next one
    whole(store, [*kept, "two", "you said: two"])


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_puts_that_a_graph_leaves_behind_are_read_by_who_comes_next(store: Store, nth: int) -> None:
    saver, answered = Gated(store, nth), Event()

    async def bot(state: MessagesState) -> dict[str, Any]:
        answered.set()
        return echo(state)

    async def main() -> list[str]:
        app = chat(bot, checkpointer=saver)
        running = asyncio.create_task(app.ainvoke(one("one"), thread()))
        await until(saver.reached)
        await until(answered)
        for _ in range(100):  # it has nothing to do any more but to wait
            await asyncio.sleep(0)
        running.cancel()
        asyncio.get_running_loop().call_later(0.05, saver.go.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        return said((await app.ainvoke(one("two"), thread()))["messages"])

    expected = ["one", "you said: one", "two", "you said: two"]
    assert run(main()) == expected
    whole(store, expected)


def whole(store: Store, expected: list[str]) -> None:
    session = store.session("langgraph/1")
    assert list(session.heads()) == ["main"]
    assert said_there(session) == expected
    assert list(session.fsck()) == []


def test_who_is_cancelled_in_a_put_goes_when_it_stands(store: Store) -> None:
    saver = Gated(store, 2)

    async def main() -> None:
        app = chat(echo, checkpointer=saver)
        running = asyncio.create_task(app.ainvoke(one("one"), thread(), durability="sync"))
        await until(saver.reached)
        running.cancel()
        await asyncio.sleep(0.01)
        running.cancel()  # twice is once
        assert not running.done()
        saver.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(main())
    found = saver.get_tuple(thread())
    assert found is not None
    assert found.metadata.get("step") == 0


def test_a_loop_that_is_held_up_does_not_hold_up_what_is_under_way(store: Store) -> None:
    saver = Gated(store, 3, "branch")

    async def main() -> list[str]:
        app = chat(echo, checkpointer=saver)
        running = asyncio.create_task(app.ainvoke(one("one"), thread()))
        await until(saver.reached)
        running.cancel()
        saver.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        return said(app.invoke(one("two"), thread(), durability="sync")["messages"])  # on the loop, as in a notebook

    assert run(main())[-1] == "you said: two"


def test_a_mirror_keeps_the_order_of_its_checkpoints(store: Store) -> None:
    app = wrap(chat(echo, checkpointer=InMemorySaver()), store)
    mirror: Any = app.checkpointer
    reached, go, stands, real, left = Event(), Event(), Event(), mirror.followers.put, 3

    def put(*args: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            reached.set()
            assert go.wait(DEADLINE)
            real(*args)
            stands.set()
        else:
            real(*args)

    mirror.followers.put = put

    async def main() -> list[str]:
        running = asyncio.create_task(app.ainvoke(one("one"), thread()))
        await until(reached)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        asyncio.get_running_loop().call_later(0.2, go.set)
        result = await app.ainvoke(one("two"), thread())
        await until(stands)
        return said(result["messages"])

    found = run(main())
    session = store.session("langgraph/1")
    assert said_there(session) == found == ["one", "you said: one", "two", "you said: two"]
    assert list(session.heads()) == ["main"]


def said_there(session: Session) -> list[str]:
    return ["".join(str(getattr(part, "content", "")) for part in message.parts) for message in session.latest().messages()]


# ------------------------------------------------------------------------------------------- anywhere


class Where:
    """Stands still at one place of a run, and tells when it is reached; the second run passes."""

    def __init__(self, place: str) -> None:
        self.place, self.reached, self.passed = place, Event(), False

    async def at(self, place: str) -> None:
        if place == self.place and not self.passed:
            self.passed = True
            self.reached.set()
            await asyncio.Event().wait()


class Waiting(BaseChatModel):
    """Asks for two tools, then is done."""

    where: Any

    @property
    def _llm_type(self) -> str:
        return "waiting"

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        name = len(messages)
        calls = asks("wait", f"a{name}", text="x").tool_calls + asks("count", f"b{name}", text="xy").tool_calls
        answer = AIMessage("", tool_calls=calls) if messages[-1].type == "human" else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        await self.where.at("model" if messages[-1].type == "human" else "second model")
        return self._generate(messages)


def acting(where: Where, **compiled: Any) -> Any:
    """A model and two tools in a loop."""
    model = Waiting(where=where)

    @tool
    async def wait(text: str) -> str:
        """Wait."""
        await where.at("tool")
        return text

    @tool
    def count(text: str) -> str:
        """Count."""
        return str(len(text))

    async def llm(state: MessagesState) -> dict[str, Any]:
        await where.at("node")
        answer = await model.ainvoke(state["messages"])
        await where.at("end of a node")
        return {"messages": [answer]}

    graph = StateGraph(MessagesState)
    graph.add_node("llm", llm)
    graph.add_node("tools", ToolNode([wait, count]))
    graph.add_edge(START, "llm")
    graph.add_conditional_edges("llm", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "llm")
    return graph.compile(**compiled)


def kinds(store: Store) -> dict[str, Callable[[Where], Any]]:
    return {
        "rath": lambda where: wrap(acting(where), store, checkpointer="rath"),
        "own": lambda where: wrap(acting(where, checkpointer=InMemorySaver()), store),
        "bare": lambda where: acting(where, checkpointer=RathSaver(store)),
        "memory": lambda where: acting(where, checkpointer=InMemorySaver()),
    }


async def cancelled_at(place: str, make: Callable[[Where], Any], how: str) -> tuple[Any, ...]:
    where = Where(place)
    app = make(where)

    async def go() -> None:
        if how == "invoke":
            await app.ainvoke(one("one"), thread())
        else:
            async for _ in app.astream(one("one"), thread(), stream_mode=["values", "messages"], subgraphs=True):
                pass

    running = asyncio.create_task(go())
    await until(where.reached)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, DEADLINE)
    before = await app.aget_state(thread())
    result = await asyncio.wait_for(app.ainvoke(one("two"), thread()), DEADLINE)
    return said(before.values["messages"]), before.next, said(result["messages"])


@pytest.mark.parametrize("kind", ["rath", "own", "bare"])
@pytest.mark.parametrize("how", ["invoke", "stream"])
@pytest.mark.parametrize("place", ["model", "second model", "tool", "node", "end of a node"])
def test_a_run_is_cancelled_wherever_it_stands(
    store: Store, place: str, how: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = run(cancelled_at(place, kinds(store)["memory"], how))
    assert run(cancelled_at(place, kinds(store)[kind], how)) == expected
    session = store.session("langgraph/1")
    assert said_there(session) == [text if text in ("one", "two", "done") else "" for text in expected[2]]
    assert list(session.heads()) == ["main"]
    assert list(session.fsck()) == []
    if kind != "bare":
        closed(session)
    assert [entry.getMessage() for entry in caplog.records if entry.levelname in ("WARNING", "ERROR")] == []


def closed(session: Session) -> None:
    chunks: list[Any] = list(session.latest().chunks())
    begun = {c.run: c.body for c in chunks if c.kind == "run" and c.body.phase == "begin" and c.body.type != "thread"}
    ended = {c.run: c.body.status for c in chunks if c.kind == "run" and c.body.phase == "end" and c.run in begun}
    assert begun.keys() == ended.keys()
    assert [ended[run] for run, body in begun.items() if body.type == "graph"] == ["cancelled", "ok"]
    asked = [c.body.call_id for c in chunks if c.kind == "tool_call"]
    assert sorted(asked) == sorted(c.body.call_id for c in chunks if c.kind == "tool_result")
    assert not [c for c in chunks if c.kind == "gap"]
