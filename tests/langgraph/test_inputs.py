"""What invocations were given, as `rb.replay(session, app)` takes it from the record: messages that are named again, and contexts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel

import rath_bridge as rb
from rath_bridge.model.kinds import Note
from rath_bridge.session import Store
from rath_langgraph import wrap
from tests.langgraph.graphs import react, scripted, thread


@pytest.fixture
def store() -> Iterator[Store]:
    with rb.open_store("memory:") as opened:
        yield opened


def _twice(say: Callable[[list[Any]], None]) -> None:
    hello = HumanMessage("hi")
    say([hello])
    say([hello])


def _in_one_list(say: Callable[[list[Any]], None]) -> None:
    hello = HumanMessage("hi")
    say([hello, HumanMessage("more"), hello])
    say([HumanMessage("hi"), HumanMessage("hi")])


def _removed(say: Callable[[list[Any]], None]) -> None:
    hello = HumanMessage("hi")
    say([hello])
    say([RemoveMessage(str(hello.id)), HumanMessage("again")])


@pytest.mark.parametrize("checkpointer", ["rath", "own"])
@pytest.mark.parametrize("talk", [_twice, _in_one_list, _removed])
def test_messages_that_got_their_ids_from_the_graph_have_the_same_ones_in_a_replay(
    store: Store, checkpointer: str, talk: Callable[..., None]
) -> None:
    own = InMemorySaver() if checkpointer == "own" else None
    graph = react(scripted("one", "two"), checkpointer=own)
    app = wrap(graph, store, session="s", checkpointer=None if own else "rath")
    talk(lambda messages: app.invoke({"messages": messages}, thread()))
    report = rb.replay(store.session("s"), app)
    assert report.divergence is None
    assert (report.equal, report.served, report.live, report.unused) == (True, 2, 0, ())


@dataclass
class Desk:
    """A context as a dataclass."""

    user: str
    tags: list[str] = field(default_factory=list)
    database: Any = None


class Form(BaseModel):
    """A context as a pydantic model."""

    user: str


class Card(TypedDict):
    """A context as a map."""

    user: str


def _desk(schema: type[Any]) -> Any:
    model = scripted("one", "two")

    def bot(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
        given = runtime.context
        name = given["user"] if isinstance(given, dict) else given.user
        return {"messages": [model.invoke([HumanMessage(f"I am {name}"), *state["messages"]])]}

    graph = StateGraph(MessagesState, context_schema=schema)
    graph.add_node("bot", bot)
    graph.add_edge(START, "bot")
    return graph.compile()


def _noted(store: Store) -> list[dict[str, Any]]:
    return [dict(c.body.attributes) for c in store.session("s") if isinstance(c.body, Note) and c.body.text == "context"]


@pytest.mark.parametrize("context", [Desk("ann", ["x"]), {"user": "bob"}, Form(user="eve"), Card(user="joe")])
@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
def test_a_context_is_recorded_and_given_again(store: Store, context: Any, way: str) -> None:
    schema = Desk if context == {"user": "bob"} else Card if isinstance(context, dict) else type(context)
    app = wrap(_desk(schema), store, session="s", checkpointer="rath")
    given = ({"messages": [HumanMessage("hi", id="h")]}, thread())

    async def run() -> None:
        if way == "ainvoke":
            await app.ainvoke(*given, context=context)
        elif way == "astream":
            async for _ in app.astream(*given, context=context):
                pass

    if way == "invoke":
        app.invoke(*given, context=context)
    elif way == "stream":
        list(app.stream(*given, context=context))
    else:
        asyncio.run(run())
    fields = context if isinstance(context, dict) else vars(context)
    assert _noted(store) == [{"context": dict(fields)}]
    report = rb.replay(store.session("s"), app)
    assert report.divergence is None
    assert (report.equal, report.live) == (True, 0)


SECRET = "sk-proj-" + "a1B2" * 12


@pytest.mark.parametrize(
    ("context", "missing"), [(Desk("ann", database=object()), "database"), (Desk("ann", tags=[f"key {SECRET}"]), "tags")]
)
def test_what_cannot_be_kept_of_a_context_is_named_and_a_function_replays_it(store: Store, context: Any, missing: str) -> None:
    app = wrap(_desk(Desk), store, session="s", checkpointer="rath")

    def run() -> Any:
        return app.invoke({"messages": [HumanMessage("hi", id="h")]}, thread(), context=context)

    run()
    (noted,) = _noted(store)
    assert noted["missing"] == [missing]
    assert noted["context"]["user"] == "ann"
    assert SECRET not in str(noted)
    report = rb.replay(store.session("s"), app)
    assert (report.equal, report.live, report.served) == (None, 0, 0)
    assert missing in report.reasons[0]
    assert "function that invokes the graph" in report.reasons[0]
    report = rb.replay(store.session("s"), run)
    assert (report.equal, report.divergence, report.reasons) == (True, None, ())


def test_a_state_that_was_changed_between_two_runs_is_a_reason(store: Store) -> None:
    app = wrap(react(scripted("one", "two")), store, session="s", checkpointer="rath")

    def run() -> None:
        app.invoke({"messages": [HumanMessage("a", id="a")]}, thread())
        app.update_state(thread(), {"messages": [AIMessage("in between", id="b")]})
        app.invoke({"messages": [HumanMessage("c", id="c")]}, thread())

    run()
    report = rb.replay(store.session("s"), app)
    assert (report.equal, report.live) == (None, 0)
    assert "update_state" in report.reasons[0]
    report = rb.replay(store.session("s"), run)
    assert (report.equal, report.divergence) == (True, None)


def test_inputs_that_no_checkpoint_holds_are_a_reason(store: Store) -> None:
    app = wrap(react(scripted("one", "two")), store, session="s", checkpointer="rath")

    def run() -> None:
        for name in ("a", "b"):
            app.invoke({"messages": [HumanMessage(name, id=name)]}, thread(), durability="exit")

    run()
    report = rb.replay(store.session("s"), app)
    assert (report.equal, report.live) == (None, 0)
    assert "durability" in report.reasons[0]
    report = rb.replay(store.session("s"), run)
    assert (report.equal, report.divergence) == (True, None)


def test_threads_that_run_at_the_same_time_in_one_session_are_given_their_own_inputs(store: Store) -> None:
    app = wrap(react(scripted(*["yes"] * 4)), store, session="s", checkpointer="rath")
    app.batch([{"messages": [HumanMessage(f"for {name}")]} for name in "1234"], [thread(name) for name in "1234"])
    report = rb.replay(store.session("s"), app)
    assert report.divergence is None
    assert (report.equal, report.served, report.live, report.unused) == (True, 4, 0, ())
