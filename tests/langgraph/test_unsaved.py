"""Graphs without a checkpointer: the wrapper sees what is said, so it is on record."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, Send

import rath_bridge as rb
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import TextPart
from rath_bridge.session import Session, Store
from rath_langgraph import RathCallbackHandler, wrap
from rath_langgraph.items import join_list
from rath_langgraph.serde import RathSerializer
from rath_langgraph.unsaved import WITH_MESSAGES, WITHOUT
from tests.langgraph.graphs import add, asks, chat, echo, react, scripted

HELLO = {"messages": [("user", "hello")]}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Store]:
    with rb.open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/r.db") as opened:
        yield opened


def texts(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in session.messages()]


def steps(*nodes: Any, state: Any = MessagesState, **options: Any) -> Any:
    """Nodes in a row."""
    graph = StateGraph(state, **options)
    names = [f"n{i}" for i in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        graph.add_node(name, node)
    for one, other in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(one, other)
    return graph.compile()


class Kind(Enum):
    LOUD = "loud"


def decoded(chunk: Any) -> Any:
    return RathSerializer().loads_typed(("msgpack", join_list([chunk.native.data])))[0]


def says(*messages: Any) -> Any:
    return lambda state: {"messages": list(messages)}


def fails(state: Any) -> Any:
    raise ValueError("no")


async def answers(state: MessagesState) -> Any:
    return {"messages": [AIMessage("hi")]}


def ways() -> dict[str, Any]:
    async def streamed(app: Any) -> None:
        async for _ in app.astream(HELLO, stream_mode=["messages", "custom"]):
            pass

    return {
        "invoke": lambda app: app.invoke(HELLO),
        "stream": lambda app: list(app.stream(HELLO, stream_mode="updates")),
        "custom": lambda app: list(app.stream(HELLO, stream_mode=["custom", "values"])),
        "ainvoke": lambda app: asyncio.run(app.ainvoke(HELLO)),
        "astream": lambda app: asyncio.run(streamed(app)),
        "batch": lambda app: app.batch([HELLO]),
        "abatch": lambda app: asyncio.run(app.abatch([HELLO])),
        "thread": lambda app: app.invoke(HELLO, {"configurable": {"thread_id": "t"}}),
        "only": lambda app: app.invoke(HELLO, output_keys="messages"),
    }


@pytest.mark.parametrize("way", ways())
def test_what_is_said_is_on_record_however_the_graph_is_called(store: Store, way: str) -> None:
    ways()[way](wrap(chat(answers if way in ("ainvoke", "astream", "abatch") else says(AIMessage("hi"))), store, session="s"))
    session = store.session("s")
    assert texts(session) == [("user", "hello"), ("assistant", "hi")]
    assert session.fsck() == []
    items, report = rb.encode(session, "openai_agents")
    assert [item["content"] for item in items] == ["hello", "hi"]
    assert report.exact


def test_inside_of_record_and_with_no_name_at_all(store: Store) -> None:
    with rb.record(store, "ticket"):
        wrap(chat(echo), store).invoke(HELLO)
    assert texts(store.session("ticket")) == [("user", "hello"), ("assistant", "you said: hello")]
    wrap(chat(echo), store).invoke(HELLO)
    (other,) = [session for session in store.sessions() if session.name != "ticket"]
    assert texts(other) == [("user", "hello"), ("assistant", "you said: hello")]


def test_a_batch_of_several_keeps_each_of_them(store: Store) -> None:
    inputs = [{"messages": [("user", f"q{i}")]} for i in range(4)]
    wrap(chat(echo), store, session="s").batch(inputs)
    said = texts(store.session("s"))
    assert sorted(said) == sorted([*[("user", f"q{i}") for i in range(4)], *[("assistant", f"you said: q{i}") for i in range(4)]])


def test_calls_stand_behind_the_message_that_asks_for_them_and_go_elsewhere_whole(store: Store) -> None:
    wrap(react(scripted(asks("add", "c1", a=1, b=2), "3")), store, session="s").invoke(HELLO)
    session = store.session("s")
    assert [message.role for message in session.messages()] == ["user", "assistant", "tool", "assistant"]
    kinds = [chunk.kind for chunk in session.chunks() if chunk.kind in ("message", "tool_call", "tool_result")]
    assert kinds == ["message", "message", "tool_call", "tool_result", "message", "message"]
    assert session.pending() == () or session.pending() == []
    items, report = rb.encode(session, "openai_agents")
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert report.exact


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tools_that_are_sent_to_see_no_state(store: Store) -> None:
    model = Bound(messages=iter([asks("add", "c1", a=1, b=2), AIMessage("3")]))
    wrap(create_react_agent(model, [add], version="v2"), store, session="s").invoke(HELLO)
    assert [message.role for message in store.session("s").messages()] == ["user", "assistant", "tool", "assistant"]


class Bound(GenericFakeChatModel):
    """A scripted model that lets itself be given tools."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return self


def test_history_that_the_caller_hands_in_again_is_known_by_its_ids(store: Store) -> None:
    app = wrap(chat(echo), store, session="s")
    first = app.invoke(HELLO)
    app.invoke({"messages": [*first["messages"], ("user", "more")]})
    assert [text for _, text in texts(store.session("s"))] == ["hello", "you said: hello", "more", "you said: more"]


def test_history_without_ids_is_known_by_its_place(store: Store) -> None:
    app = wrap(chat(echo), store, session="s")
    app.invoke(HELLO)
    app.invoke({"messages": [("user", "hello"), ("ai", "you said: hello"), ("user", "more")]})
    assert [text for _, text in texts(store.session("s"))] == ["hello", "you said: hello", "more", "you said: more"]


def test_the_same_words_said_again_are_said_again(store: Store) -> None:
    app = wrap(chat(echo), store, session="s")
    app.invoke(HELLO)
    app.invoke(HELLO)
    assert [text for _, text in texts(store.session("s"))] == ["hello", "you said: hello"] * 2


def test_what_another_framework_said_is_handed_in_once(store: Store) -> None:
    session = store.create("s").append(rb.message("user", "hello"), rb.message("assistant", "hi"))
    messages, _ = rb.encode(session, "langgraph")
    wrap(chat(echo), store, session="s").invoke({"messages": [*messages, HumanMessage("more")]})
    assert [text for _, text in texts(store.session("s"))] == ["hello", "hi", "more", "you said: more"]
    other, report = rb.encode(session, "langgraph")
    wrap(chat(echo), store, session="t", continues=report).invoke({"messages": [*other, HumanMessage("more")]})
    assert [text for _, text in texts(store.session("t"))] == ["more", "you said: more"]


def test_an_edit_by_the_caller_stands_in_place(store: Store) -> None:
    app = wrap(chat(echo), store, session="s")
    first = app.invoke(HELLO)["messages"]
    app.invoke({"messages": [HumanMessage("good day", id=first[0].id), first[1], ("user", "more")]})
    assert [text for _, text in texts(store.session("s"))] == ["good day", "you said: hello", "more", "you said: more"]


def test_edits_removals_and_insertions_of_the_graph(store: Store) -> None:
    def edits(state: MessagesState) -> Any:
        ids = [message.id for message in state["messages"]]
        return {"messages": [HumanMessage("HELLO", id=ids[0]), RemoveMessage(id=str(ids[1])), AIMessage("done", id="d")]}

    wrap(steps(says(AIMessage("thinking", id="t")), edits), store, session="s").invoke(HELLO)
    session = store.session("s")
    assert texts(session) == [("user", "HELLO"), ("assistant", "done")]
    assert [chunk.kind for chunk in session.chunks()].count("message") == 4
    assert [chunk.kind for chunk in session.chunks()].count("compaction") == 1
    assert session.fsck() == []


@pytest.mark.parametrize("seen", ["plain", "opaque"])
def test_a_message_that_a_node_changes_in_place_is_on_record_as_it_was_and_as_it_is(store: Store, seen: str) -> None:
    more: dict[str, Any] = {"n": [1]} if seen == "plain" else {"n": [1], "kind": Kind.LOUD}

    def changes(state: MessagesState) -> Any:
        held: Any = state["messages"][0]
        held.content[0]["text"] = "goodbye"
        held.additional_kwargs["n"].append(2)
        return {}

    given = HumanMessage([{"type": "text", "text": "hello"}], additional_kwargs=more, id="1")
    wrap(steps(changes, says(AIMessage("hi"))), store, session="s").invoke({"messages": [given]})
    session = store.session("s")
    assert texts(session) == [("user", "goodbye"), ("assistant", "hi")]
    first, second, _ = [chunk for chunk in session.chunks() if chunk.kind == "message"]
    bodies = [cast(Message, chunk.body) for chunk in (first, second)]
    assert [body.parts for body in bodies] == [(TextPart("hello"),), (TextPart("goodbye"),)]
    assert bodies[1].replaces == first.id
    natives = [decoded(chunk) for chunk in (first, second)]
    assert [(message.content[0]["text"], message.additional_kwargs["n"]) for message in natives] == [
        ("hello", [1]),
        ("goodbye", [1, 2]),
    ]


def test_lists_without_ids_and_other_names_and_shapes_of_state(store: Store) -> None:
    class Added(TypedDict):
        chat: Annotated[list[AnyMessage], operator.add]

    @dataclass
    class Held:
        messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list[AnyMessage])

    one = steps(lambda state: {"chat": [AIMessage("yes")]}, lambda state: {"chat": [AIMessage("yes")]}, state=Added)
    wrap(one, store, session="added").invoke({"chat": [HumanMessage("yes")]})
    assert [text for _, text in texts(store.session("added"))] == ["yes"] * 3
    wrap(steps(says(("ai", "a")), says(("ai", "b")), state=Held), store, session="held").invoke({"messages": "hello"})
    assert [text for _, text in texts(store.session("held"))] == ["hello", "a", "b"]


def test_an_output_that_leaves_the_messages_out(store: Store) -> None:
    class Out(TypedDict):
        note: str

    class Both(MessagesState):
        note: str

    def last(state: Both) -> Any:
        return {"note": "n", "messages": [AIMessage("b", id="b")]}

    app = steps(says(AIMessage("a", id="a")), last, state=Both, output_schema=Out)
    assert wrap(app, store, session="s").invoke(HELLO) == {"note": "n"}
    assert [text for _, text in texts(store.session("s"))] == ["hello", "a", "b"]


def test_a_crash_keeps_the_input_and_what_was_said(store: Store) -> None:
    with pytest.raises(ValueError, match="no"):
        wrap(steps(fails), store, session="first").invoke(HELLO)
    assert texts(store.session("first")) == [("user", "hello")]
    with pytest.raises(ValueError, match="no"):
        wrap(steps(says(("ai", "a")), says(("ai", "b")), fails), store, session="third").invoke(HELLO)
    assert [text for _, text in texts(store.session("third"))] == ["hello", "a", "b"]
    with pytest.raises(GraphRecursionError):
        wrap(steps(says(("ai", "a")), says(("ai", "b"))), store, session="limit").invoke(HELLO, {"recursion_limit": 1})
    assert [text for _, text in texts(store.session("limit"))] == ["hello", "a"]
    with pytest.raises(Exception, match="InvalidUpdate|must be|Expected"):
        wrap(steps(lambda state: 3), store, session="update").invoke(HELLO)
    assert texts(store.session("update")) == [("user", "hello")]


def test_a_stream_that_is_left_keeps_what_was_said(store: Store) -> None:
    for _ in wrap(steps(says(("ai", "a")), says(("ai", "b"))), store, session="s").stream(HELLO, stream_mode="updates"):
        break
    assert [text for _, text in texts(store.session("s"))][:2] == ["hello", "a"]


def test_sent_tasks_and_commands(store: Store) -> None:
    def sends(state: MessagesState) -> Any:
        return Command(goto=[Send("w", {"messages": [HumanMessage("private")]}) for _ in range(2)], update=says(("ai", "a"))(0))

    graph = StateGraph(MessagesState)
    graph.add_node("s", sends)
    graph.add_node("w", lambda state: {"messages": [AIMessage("w")]})
    graph.add_edge(START, "s")
    wrap(graph.compile(), store, session="s").invoke(HELLO)
    assert [text for _, text in texts(store.session("s"))] == ["hello", "a", "w", "w"]


def test_no_messages_in_the_state_is_said(store: Store) -> None:
    class Count(TypedDict):
        n: int

    wrap(steps(lambda state: {"n": state["n"] + 1}, state=Count), store, session="s").invoke({"n": 1})
    session = store.session("s")
    assert session.messages() == () or list(session.messages()) == []
    begun = next(chunk.body for chunk in session.chunks() if chunk.kind == "run")
    assert WITHOUT in begun.attributes["blind_spots"]  # type: ignore[union-attr]


def test_a_checkpointer_says_its_messages_alone(store: Store) -> None:
    app = wrap(chat(echo, checkpointer=InMemorySaver()), store, session="s")
    app.invoke(HELLO, {"configurable": {"thread_id": "t"}})
    wrap(chat(echo), store, checkpointer="rath", session="r").invoke(HELLO, {"configurable": {"thread_id": "r"}})
    for name in "sr":
        session = store.session(name)
        assert [text for _, text in texts(session)] == ["hello", "you said: hello"]
        assert not any(WITH_MESSAGES in (chunk.body_bytes or b"").decode() for chunk in session.chunks())


def test_a_session_that_is_gone_on_with_says_nothing_twice(store: Store) -> None:
    app = wrap(chat(echo), store)
    session = app(store.create("s").append(rb.message("user", "hello")))
    session = app(session.append(rb.message("user", "more")))
    assert [text for _, text in texts(session)] == ["hello", "you said: hello", "more", "you said: more"]


def test_a_bare_handler_keeps_the_messages_of_a_graph_without_a_thread(store: Store) -> None:
    chat(echo).invoke(HELLO, {"callbacks": [RathCallbackHandler(store, "s")]})
    assert texts(store.session("s")) == [("user", "hello"), ("assistant", "you said: hello")]


def test_secrets_and_structure(store: Store) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    long = f"{'word ' * 200} key {secret}"
    wrap(chat(says(AIMessage(long))), store, session="s").invoke({"messages": [("user", secret)]})
    session = store.session("s")
    assert len(session.messages()) == 2
    assert not any(secret.encode() in (chunk.body_bytes or b"") for chunk in session.chunks())
    assert all(secret not in message.text for message in session.messages())
    assert [chunk.kind for chunk in session.chunks()].count("gap") == 0
    with rb.record(store, "bare", record_content=False):
        wrap(chat(echo), store).invoke(HELLO)
    assert [message.role for message in store.session("bare").messages()] == ["user", "assistant"]
    assert "hello" not in str(texts(store.session("bare")))


@pytest.mark.parametrize("old", [False, True])
def test_a_replay_is_equal_and_so_is_one_of_a_record_from_before(
    store: Store, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = wrap(react(scripted(asks("add", "c1", a=1, b=2), "3", "4")), store, session="s")

    def run() -> None:
        first = app.invoke(HELLO)
        app.invoke({"messages": [*first["messages"], SystemMessage("be short"), ("user", "more")]})

    with monkeypatch.context() as patched:
        if old:
            patched.setattr("rath_langgraph.record.unsaved_spot", lambda graph: None)
        run()
    assert len(store.session("s").messages()) == (0 if old else 7)
    report = rb.replay(store.session("s"), run)
    assert report.equal, report
    assert report.live == 0


def test_a_replay_by_the_graph_alone_says_what_it_lacks(store: Store) -> None:
    app = wrap(chat(echo), store, session="s")
    app.invoke(HELLO)
    report = rb.replay(store.session("s"), app)
    assert not report.equal
    assert any("its graph had no checkpointer" in reason for reason in report.reasons)
