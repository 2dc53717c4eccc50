"""`rb.replay` on LangGraph: wrapped graphs run again with no model and no tool called, whatever their shape (law 5)."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from threading import Thread
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportPrivateUsage]
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

import rath_bridge as rb
from rath_bridge.errors import MergeConflict
from rath_bridge.session import Session, Store
from rath_bridge.store.protocol import Ref
from rath_langgraph import RathSaver, wrap
from tests.langgraph.graphs import USAGE, asks, thread

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@pytest.fixture
def store() -> Iterator[Store]:
    with rb.open_store("memory:") as opened:
        yield opened


class Model(GenericFakeChatModel):
    """A scripted model that tells when it is called."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        RAN.append("model")
        return super()._generate(*args, **kwargs)


def model(*answers: Any) -> Model:
    made = [AIMessage(a, usage_metadata=USAGE) if isinstance(a, str) else a for a in answers]  # type: ignore[arg-type]
    return Model(messages=(one.model_copy() for one in cycle(made)))


@tool
def add(a: int, b: int) -> int:
    """Add."""
    RAN.append("add")
    return a + b


@tool
def fail(reason: str) -> str:
    """Fail."""
    RAN.append("fail")
    raise ValueError(reason)


@tool(response_format="content_and_artifact")
def look(what: str) -> tuple[str, Any]:
    """Look, and keep what was seen."""
    RAN.append("look")
    return f"seen {what}", {"raw": [what]}


@tool
def ask(question: str) -> str:
    """Ask a person."""
    RAN.append("ask")
    return f"they said {interrupt(question)}"


@tool
def hand_over(to: str) -> Command[Any]:
    """Change the state directly."""
    RAN.append("hand_over")
    return Command(update={"messages": [ToolMessage(f"over to {to}", tool_call_id="h1")]})


def react(m: Any, tools: Any = (add, fail, look), **compiled: Any) -> Any:
    def llm(state: MessagesState) -> dict[str, Any]:
        return {"messages": [m.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("llm", llm)
    graph.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
    graph.add_edge(START, "llm")
    graph.add_conditional_edges("llm", tools_condition)
    graph.add_edge("tools", "llm")
    return graph.compile(**compiled)


def said_by(m: Any) -> Any:
    """A node in which a model answers."""
    return lambda state: {"messages": [m.invoke(state["messages"])]}


@dataclass
class Case:
    """A graph, made anew each time, and what it is invoked with."""

    make: Callable[[], Any]
    inputs: list[Any] = field(default_factory=lambda: [{"messages": [HumanMessage("go")]}])


class Work(TypedDict):
    """Map and reduce."""

    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[Any], operator.add]


def mapped() -> Any:
    def work(state: Any) -> dict[str, Any]:
        return {"done": [model(f"did {state['i']}").invoke([HumanMessage(f"do {state['i']}")]).content]}

    graph = StateGraph(Work)
    graph.add_node("plan", lambda state: {"messages": [("ai", "three")]})
    graph.add_node("work", work)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {"i": i}) for i in range(3)], ["work"])
    graph.add_edge("work", END)
    return graph.compile()


def supervised() -> Any:
    worker = react(model(asks("add", "c", a=1, b=1), "two"), [add])
    boss = model("worker", "FINISH")

    def supervisor(state: MessagesState) -> Command[Any]:
        said = boss.invoke([*state["messages"], HumanMessage("who is next?")]).content
        return Command(goto=END if said == "FINISH" else "worker")

    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", supervisor, destinations=("worker", END))
    graph.add_node("worker", worker)
    graph.add_edge(START, "supervisor")
    graph.add_edge("worker", "supervisor")
    return graph.compile()


def nested(checkpointer: Any) -> Callable[[], Any]:
    def make() -> Any:
        m = model("inner one", "inner two")
        graph = StateGraph(MessagesState)
        graph.add_node("llm", said_by(m))
        graph.add_edge(START, "llm")
        outer = StateGraph(MessagesState).add_node("child", graph.compile(checkpointer=checkpointer)).add_edge(START, "child")
        return outer.compile()

    return make


class Slow(TypedDict):
    """A delta channel."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]  # type: ignore[arg-type]


def delta() -> Any:
    m = model("one", "two")
    graph = StateGraph(Slow).add_node("bot", said_by(m)).add_edge(START, "bot")
    return graph.compile()


class Order(BaseModel):
    """A pydantic state."""

    messages: Annotated[list[AnyMessage], add_messages] = []
    note: str = ""


@dataclass
class Parcel:
    """A dataclass state."""

    messages: Annotated[list[AnyMessage], add_messages]
    note: str = ""


def stated(kind: type[Any]) -> Callable[[], Any]:
    def make() -> Any:
        m = model("noted")

        def bot(state: Any) -> dict[str, Any]:
            said = m.invoke(state.messages)
            return {"messages": [said], "note": said.content}

        return StateGraph(kind).add_node("bot", bot).add_edge(START, "bot").compile()  # type: ignore[type-var]

    return make


GO: Any = {"messages": [HumanMessage("go", id="go")]}
CASES: dict[str, Case] = {
    "react": Case(lambda: react(model(asks("add", "c1", a=1, b=2), asks("fail", "c2", reason="x"), asks("look", "c3", what="y"), "end"))),
    "supervisor": Case(supervised),
    "map-reduce": Case(mapped, [{"messages": [HumanMessage("go")], "done": []}]),
    "subgraph": Case(nested(None), [GO, GO]),
    "subgraph-that-remembers": Case(nested(True), [GO, GO]),
    "delta": Case(delta, [GO, GO]),
    "pydantic": Case(stated(Order)),
    "dataclass": Case(stated(Parcel)),
    "human": Case(lambda: react(model(asks("ask", "c1", question="sure?"), "fine"), [ask]), [GO, Command(resume="yes")]),
    "tool-commands": Case(lambda: react(model(asks("hand_over", "h1", to="ann"), "fine"), [hand_over])),
    "own-checkpointer": Case(lambda: react(model(asks("add", "c1", a=1, b=2), "end"), checkpointer=InMemorySaver())),
}  # fmt: skip


def state(store: Store) -> tuple[list[Ref], int]:
    return store.backend.refs(), sum(len(s) for s in store.sessions())


def invoked(store: Store, case: Case, app: Any = None) -> Callable[[], Any]:
    def run() -> Any:
        graph = app or wrap(case.make(), store, checkpointer=None if case is CASES["own-checkpointer"] else "rath")
        return [graph.invoke(one, thread()) for one in case.inputs]

    return run


@pytest.mark.parametrize("name", ["react", "map-reduce"])
def test_pain_26_a_replay_from_disk_calls_no_model(sqlite_url: str, name: str) -> None:
    with rb.open_store(sqlite_url) as store:
        test_a_graph_is_replayed_and_nothing_runs_and_nothing_is_written(store, name)


@pytest.mark.parametrize("name", CASES)
def test_a_graph_is_replayed_and_nothing_runs_and_nothing_is_written(store: Store, name: str) -> None:
    case = CASES[name]
    first = invoked(store, case)()
    assert RAN
    RAN.clear()
    before = state(store)
    report = rb.replay(store.session("langgraph/1"), invoked(store, case))
    assert report.divergence is None
    assert (report.equal, report.live, report.unused, RAN) == (True, 0, (), [])
    assert [[m.content for m in one["messages"]] for one in report.value] == [
        [m.content for m in one["messages"]] for one in first
    ]
    assert state(store) == before


def on(app: Any, session: Session, text: str) -> Session:
    """Run on a session; a person answers what is asked."""
    done = app(session.append(rb.message("user", text)))
    config = {"configurable": {"thread_id": session.name}}
    if app.get_state(config).next:
        with rb.record(session.store, session.name):
            app.invoke(Command(resume="yes"), config)
    return done.latest()


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_graph_is_forked_and_merged(store: Store, name: str) -> None:
    app = wrap(CASES[name].make(), store, checkpointer=None if name == "own-checkpointer" else "rath")
    begun = on(app, store.create("ticket"), "go")
    theirs = on(app, begun.fork("try-b"), "their way")
    ours = on(app, begun, "our way")
    shared, (here, there) = len(begun.messages()), (len(ours.messages()), len(theirs.messages()))
    assert shared < here
    assert shared < there
    try:
        merged = ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    except MergeConflict as error:  # the plain fields of both sides say the same here, so nothing else may conflict
        pytest.fail(str(error))
    assert len(merged.messages()) == here + there - shared
    held = app.get_state({"configurable": {"thread_id": "ticket"}}).values["messages"]
    if name != "own-checkpointer":  # that one is told when the graph runs next
        assert [m.content for m in held] == [m.text or _answer(m) for m in merged.messages()]
    again = on(app, merged, "go on")
    held = app.get_state({"configurable": {"thread_id": "ticket"}}).values["messages"]
    assert [m.content for m in held] == [m.text or _answer(m) for m in again.messages()]
    assert again.fsck() == []


def _answer(message: Any) -> str:
    return "".join(str(part.response) for part in message.parts if part.type == "tool_call_response")


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_graph_that_has_run_is_itself_what_is_replayed(store: Store, name: str) -> None:
    case = CASES[name]
    app = wrap(case.make(), store, checkpointer=None if name == "own-checkpointer" else "rath")
    invoked(store, case, app)()
    RAN.clear()
    before, held = state(store), app.get_state(thread()).values
    report = rb.replay(store.session("langgraph/1"), app)
    assert report.divergence is None
    assert (report.equal, report.live, report.unused, RAN) == (True, 0, (), [])
    assert state(store) == before
    assert app.get_state(thread()).values == held  # the user's own thread is as it was


def test_async_and_streamed_runs_are_replayed(store: Store) -> None:
    def make() -> Any:
        m = model("one two three")

        async def bot(state: MessagesState) -> dict[str, Any]:
            pieces = [piece async for piece in m.astream(state["messages"])]
            whole = pieces[0]
            for piece in pieces[1:]:
                whole = whole + piece  # type: ignore[assignment]
            return {"messages": [whole]}

        return StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").compile()

    async def run() -> list[Any]:
        app = wrap(make(), store, checkpointer="rath")
        return [item async for item in app.astream(GO, thread(), stream_mode=["values", "messages"])]

    items = asyncio.run(run())
    assert len(items) > 3
    RAN.clear()
    report = asyncio.run(rb.areplay(store.session("langgraph/1"), run))
    assert report.divergence is None
    assert (report.equal, report.live, report.unused, RAN) == (True, 0, (), [])
    assert report.value[-1][1]["messages"][-1].content == "one two three"


def test_model_stream_inside_of_a_sync_node_is_replayed(store: Store) -> None:
    def make() -> Any:
        m = model("a b c")

        def bot(state: MessagesState) -> dict[str, Any]:
            return {"messages": [AIMessage("".join(str(piece.content) for piece in m.stream(state["messages"])), id="x")]}

        return StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").compile()

    run = invoked(store, Case(make))
    run()
    RAN.clear()
    report = rb.replay(store.session("langgraph/1"), run)
    assert report.divergence is None
    assert (report.equal, report.live, RAN) == (True, 0, [])


def test_a_failing_model_fails_again_in_the_same_words(store: Store) -> None:
    def make() -> Any:
        class Broken(Model):
            def _generate(self, *args: Any, **kwargs: Any) -> Any:
                RAN.append("model")
                raise ConnectionError("provider is down")

        m = Broken(messages=iter([]))

        def bot(state: MessagesState) -> dict[str, Any]:
            try:
                m.invoke(state["messages"])
            except ConnectionError as error:
                return {"messages": [AIMessage(f"sorry: {error}", id="s")]}
            return {}

        return StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").compile()

    run = invoked(store, Case(make))
    run()
    RAN.clear()
    report = rb.replay(store.session("langgraph/1"), run)
    assert report.divergence is None
    assert (report.equal, RAN, report.value[0]["messages"][-1].content) == (True, [], "sorry: provider is down")


@pytest.mark.parametrize("change", ["prompt", "extra", "tool", "missing", "state"])
def test_what_changed_is_named(store: Store, change: str) -> None:
    def graph(changed: bool = False) -> Any:
        m = model(asks("add", "c1", a=1, b=2), "three")

        def llm(state: MessagesState) -> dict[str, Any]:
            said: Any = m.invoke(["be brief", *state["messages"]] if changed and change == "prompt" else state["messages"])
            if changed and change == "extra" and not said.tool_calls:
                m.invoke([HumanMessage("and now?")])
            if changed and change == "tool" and said.tool_calls:
                said.tool_calls[0]["args"] = {"a": 1, "b": 3}
            if changed and change == "missing" and isinstance(state["messages"][-1], ToolMessage):
                return {}
            if changed and change == "state" and not said.tool_calls:
                said = AIMessage("something else", id=said.id)
            return {"messages": [said]}

        made = StateGraph(MessagesState)
        made.add_node("llm", llm)
        made.add_node("tools", ToolNode([add]))
        made.add_edge(START, "llm")
        made.add_conditional_edges("llm", tools_condition)
        made.add_edge("tools", "llm")
        return made.compile()

    invoked(store, Case(graph))()
    RAN.clear()
    report = rb.replay(store.session("langgraph/1"), invoked(store, Case(lambda: graph(True))))
    assert not report.equal
    assert RAN == []
    assert report.divergence is not None
    found = report.divergence
    if change == "prompt":
        assert (found.what, found.path, found.found) == ("model call of llm", "input[0]", "human: be brief")
    elif change == "extra":
        assert (found.what, found.found, found.expected) == ("model call of llm", "human: and now?", "nothing left")
    elif change == "tool":
        assert (found.what, found.path) == ("tool call add", "arguments")
    else:
        assert found.what.startswith(("message of thread[0]", "task of thread[0]", "checkpoint of thread[0]"))


def test_a_replay_has_no_effect_on_other_threads(store: Store) -> None:
    case = CASES["react"]
    invoked(store, case)()
    seen: list[str] = []

    def run() -> Any:
        other = Thread(target=lambda: seen.append(str(model("live").invoke("x").content)))
        other.start()
        other.join()
        return invoked(store, case)()

    assert rb.replay(store.session("langgraph/1"), run).equal
    assert seen == ["live"]
    assert model("after").invoke("x").content == "after"
    assert add.invoke({"a": 1, "b": 1}) == 2


def test_a_what_if_goes_on_live_behind_a_changed_tool(store: Store) -> None:
    run = invoked(store, Case(lambda: react(model(asks("add", "c1", a=1, b=2), "three"), [add])))
    run()
    RAN.clear()

    def again() -> Any:
        app = wrap(react(model("it is forty"), [add]), store, checkpointer="rath")
        return app.invoke(GO, thread())

    report = rb.replay(store.session("langgraph/1"), again, overrides={"tool:add": 40}, then="live")
    assert [m.content for m in report.value["messages"]] == ["go", "", "40", "it is forty"]
    assert RAN == ["model"]


def test_content_that_was_not_kept_is_a_reason(store: Store) -> None:
    app = wrap(react(model("fine"), []), store, checkpointer="rath")
    with rb.record(store, "s", record_content=False):
        app.invoke(GO, thread())
    report = rb.replay(store.session("s"), lambda: app.invoke(GO, thread()))
    assert any("answers of models were not kept" in reason for reason in report.reasons)
    assert not report.equal


def test_a_bare_saver_and_handler_are_replayed_too(store: Store) -> None:
    from rath_langgraph import RathCallbackHandler

    def run() -> Any:
        app = react(model(asks("add", "c1", a=1, b=2), "three"), [add], checkpointer=RathSaver(store, session="s"))
        return app.invoke(GO, {**thread(), "callbacks": [RathCallbackHandler(store, "s")]})

    run()
    RAN.clear()
    report = rb.replay(store.session("s"), run)
    assert report.divergence is None
    assert (report.equal, report.live, RAN) == (True, 0, [])


def test_a_graph_that_is_not_wrapped_leaves_its_own_checkpointer_alone(store: Store) -> None:
    from rath_langgraph import RathCallbackHandler

    own = InMemorySaver()
    app = react(model(asks("add", "c1", a=1, b=2), "three"), [add], checkpointer=own)

    def run() -> Any:
        app.invoke(GO, {**thread(), "callbacks": [RathCallbackHandler(store, "s")]})
        return app.get_state(thread()).values["messages"]

    run()
    before = list(own.list(thread()))
    RAN.clear()
    report = rb.replay(store.session("s"), run)
    assert report.divergence is None
    assert (report.equal, report.live, RAN, len(report.value)) == (True, 0, [], 4)
    assert list(own.list(thread())) == before
