"""RathSaver in real graphs: threads are sessions, messages are lifted, nothing is lost."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Send

import rath_bridge as rb
from rath_bridge.errors import ConflictError, EncodeError
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.ciphers import Xor
from tests.langgraph.graphs import add, asking, asks, chat, echo, react, scripted, thread


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with rb.open_store(sqlite_url) as opened:
        yield opened


def texts(session: Any, run: str | None = None) -> list[str]:
    return [m.text for m in session.messages(run)]


def kinds(session: Any) -> Counter[str]:
    return Counter(chunk.kind for chunk in session.chunks())


def test_a_turn_is_three_checkpoints_two_tasks_two_messages(store_url: str) -> None:
    with rb.open_store(store_url) as opened:
        app = chat(echo, checkpointer=RathSaver(opened))
        app.invoke({"messages": [("user", "hello")]}, thread())
        app.invoke({"messages": [("user", "again")]}, thread())
        session = opened.session("langgraph/1")
        assert kinds(session) == {"session": 1, "run": 1, "checkpoint": 6, "task": 4, "message": 4}
        assert texts(session) == ["hello", "you said: hello", "again", "you said: again"]
        assert [m.role for m in session.messages()] == ["user", "assistant"] * 2
        assert [m.content for m in app.get_state(thread()).values["messages"]] == texts(session)
        assert session.fsck() == []


def test_what_is_loaded_equals_what_langgraphs_own_saver_gives(store: Store) -> None:
    def run(saver: Any) -> Any:
        app = react(scripted(asks("add", "c1", a=1, b=2), "three"), checkpointer=saver)
        app.invoke({"messages": [HumanMessage("1 + 2?", id="h")]}, thread())
        return list(saver.list(thread()))

    ours, theirs = run(RathSaver(store)), run(InMemorySaver())
    assert len(ours) == len(theirs) == 5
    for a, b in zip(ours, theirs, strict=True):
        assert a.metadata == b.metadata
        assert a.checkpoint.keys() == b.checkpoint.keys()
        assert a.checkpoint["channel_values"].keys() == b.checkpoint["channel_values"].keys()
        said, told = (x.checkpoint["channel_values"].get("messages", []) for x in (a, b))
        assert [(type(m), m.content) for m in said] == [(type(m), m.content) for m in told]
        assert [w[1] for w in a.pending_writes] == [w[1] for w in b.pending_writes]
        assert (a.parent_config is None) == (b.parent_config is None)


def test_tools_and_their_calls_pair_in_the_transcript(store: Store) -> None:
    app = react(scripted(asks("add", "c1", a=1, b=2), asks("fail", "c2", reason="no"), "done"), checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "go")]}, thread())
    session = store.session("langgraph/1")
    assert [m.role for m in session.messages()] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [(c.call_id, c.name, c.status) for c in session.calls()] == [("c1", "add", "ok"), ("c2", "fail", "error")]
    assert session.pending() == ()


def test_one_saver_serves_sync_and_async(store_url: str) -> None:
    import asyncio

    with rb.open_store(store_url) as opened:
        saver = RathSaver(opened)
        app = chat(echo, checkpointer=saver)

        async def turn(text: str) -> Any:
            return await app.ainvoke({"messages": [("user", text)]}, thread())

        app.invoke({"messages": [("user", "one")]}, thread())
        asyncio.run(turn("two"))  # each on a loop of its own
        asyncio.run(turn("three"))
        app.invoke({"messages": [("user", "four")]}, thread())
        said = texts(opened.session("langgraph/1"))
        assert said[::2] == ["one", "two", "three", "four"]

        async def listed() -> list[Any]:
            return [item async for item in saver.alist(thread(), limit=9)]

        assert [x.config for x in asyncio.run(listed())] == [x.config for x in list(saver.list(thread()))[:9]]


def test_an_interrupted_run_goes_on_in_another_process(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as opened:
        app = asking(checkpointer=RathSaver(opened))
        asked = app.invoke({"messages": [("user", "write it")], "note": ""}, thread())
        assert asked["__interrupt__"][0].value["question"] == "publish?"
    with RathSaver.from_conn_string(sqlite_url) as saver:  # nothing in memory
        app = asking(checkpointer=saver)
        assert app.get_state(thread()).next == ("review",)
        done = app.invoke(Command(resume="yes"), thread())
        assert done["note"] == "reviewed: yes"
        assert texts(saver.store.session("langgraph/1")) == ["write it", "answer was yes"]
        assert list(saver.store.session("langgraph/1").heads()) == ["main"]


@pytest.mark.parametrize("mode", [None, True])
def test_a_subgraphs_messages_stand_in_its_own_run(store: Store, mode: Any) -> None:
    inner = chat(echo, checkpointer=mode)
    graph = StateGraph(MessagesState)
    graph.add_node("child", inner)
    graph.add_edge(START, "child")
    app: Any = graph.compile(checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "one")]}, thread())
    app.invoke({"messages": [("user", "two")]}, thread())
    session = store.session("langgraph/1")
    assert texts(session) == ["one", "you said: one", "two", "you said: two"]
    bodies: list[Any] = [(c.run, c.body) for c in session.chunks() if c.kind == "run"]
    top, *nested = [(run, body.parent) for run, body in bodies if body.phase == "begin"]
    ended = [run for run, body in bodies if body.phase == "end"]
    assert ended == ([] if mode else [run for run, _ in nested])  # a call ends; what accumulates lasts, as the thread does
    assert bodies[0][1].type == "thread"
    assert all(c.span is not None for c in session.chunks() if c.kind == "run")
    assert top[1] is None
    assert [parent for _, parent in nested] == [top[0]] * len(nested)
    assert len(nested) == (1 if mode else 2)
    said = [text for run, _ in nested for text in texts(session, run)]
    assert said == ["you said: one", "you said: two"]  # what came from outside is not said again
    assert app.get_state(thread(), subgraphs=True).values["messages"][-1].content == "you said: two"


def test_time_travel_leaves_two_heads(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    app.invoke({"messages": [HumanMessage("one", id="h1")]}, thread())
    app.invoke({"messages": [HumanMessage("two", id="h2")]}, thread())
    old = next(s for s in app.get_state_history(thread()) if s.next == ("bot",) and len(s.values["messages"]) == 3)
    forked = app.update_state(old.config, {"messages": [HumanMessage("TWO", id="h2")]})
    app.invoke(None, forked)
    session = store.session("langgraph/1")
    other = next(name for name in session.heads() if name != "main")
    assert other.startswith("fork-")
    assert texts(session) == ["one", "you said: one", "two", "you said: two"]
    assert texts(store.session(f"langgraph/1@{other}")) == ["one", "you said: one", "TWO", "you said: TWO"]
    app.invoke({"messages": [("user", "three")]}, thread())  # the newest checkpoint goes on, on its branch
    assert len(session.heads()) == 2
    assert texts(store.session(f"langgraph/1@{other}"))[-2:] == ["three", "you said: three"]
    assert store.session(f"langgraph/1@{other}").fsck() == []


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
@pytest.mark.parametrize("said", [None, {"messages": [("user", "another way")]}])
def test_who_goes_on_from_an_old_checkpoint_travels_and_does_not_race(store: Store, durability: Any, said: Any) -> None:
    app = chat(echo, checkpointer=RathSaver(store, on_conflict="raise"))
    app.invoke({"messages": [("user", "one")]}, thread())
    app.invoke({"messages": [("user", "two")]}, thread())
    old = next(s for s in app.get_state_history(thread()) if s.next == ("bot",) and len(s.values["messages"]) == 3)
    app.invoke(said, old.config, durability=durability)
    (branch,) = (name for name in store.session("langgraph/1").heads() if name != "main")
    assert branch.startswith("fork-")
    assert texts(store.session(f"langgraph/1@{branch}"))[:3] == ["one", "you said: one", "two"]


@pytest.mark.parametrize("shared", [True, False])
def test_two_runs_on_one_thread_lose_nothing(store_url: str, shared: bool) -> None:
    # langchain-ai/langgraph/issues/7417: with the bundled savers one answer silently disappears
    begin, middle = threading.Barrier(2), threading.Barrier(2)

    class Together(RathSaver):
        """Both runs have read the thread before either writes."""

        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            begin.wait(60)
            return found

    def slow(state: MessagesState) -> dict[str, Any]:
        middle.wait(60)
        return echo(state)

    with rb.open_store(store_url) as opened:
        chat(echo, checkpointer=RathSaver(opened)).invoke({"messages": [("user", "base")]}, thread())
        first = Together(opened)
        savers = [first, first] if shared else [first, Together(opened)]
        apps = [chat(slow, checkpointer=saver) for saver in savers]
        work = [
            threading.Thread(target=lambda app=app, i=i: app.invoke({"messages": [("user", f"q{i}")]}, thread()))
            for i, app in enumerate(apps)
        ]
        for one in work:
            one.start()
        for one in work:
            one.join(60)
        session = opened.session("langgraph/1")
        heads = session.heads()
        assert len(heads) == 2
        assert any(name.startswith("race-") for name in heads)
        said = [texts(opened.session(f"langgraph/1@{branch}")) for branch in heads]
        assert sorted(lines[-1] for lines in said) == ["you said: q0", "you said: q1"]
        assert all(lines[:2] == ["base", "you said: base"] and len(lines) == 4 for lines in said)


def test_a_conflict_is_raised_where_it_is_asked_for(store: Store) -> None:
    saver = RathSaver(store, on_conflict="raise")
    app = chat(echo, checkpointer=saver)
    app.invoke({"messages": [("user", "one")]}, thread())
    old = list(saver.list(thread()))[-1]
    with pytest.raises(ConflictError, match="thread '1'"):
        saver.put(old.config, {**old.checkpoint, "id": "1fff"}, {"source": "loop", "step": 9, "parents": {}}, {})  # type: ignore[arg-type]
    assert list(store.session("langgraph/1").heads()) == ["main"]


def test_edits_and_removals_show_in_the_transcript(store: Store) -> None:
    app = chat(lambda state: {}, checkpointer=RathSaver(store))
    app.invoke({"messages": [HumanMessage("a", id="1"), AIMessage("b", id="2"), HumanMessage("c", id="3")]}, thread())
    app.update_state(thread(), {"messages": [AIMessage("B", id="2")]})
    session = store.session("langgraph/1")
    assert texts(session) == ["a", "B", "c"]
    app.update_state(thread(), {"messages": [RemoveMessage(id="1")]})
    assert texts(session.latest()) == ["B", "c"]
    assert kinds(session.latest())["compaction"] == 1
    app.update_state(thread(), {"messages": [RemoveMessage(id="2"), HumanMessage("d", id="4")]})
    assert texts(session.latest()) == ["c", "d"]


def test_a_summary_takes_the_place_of_what_it_stands_for(store: Store) -> None:
    app = chat(lambda state: {}, checkpointer=RathSaver(store))
    app.invoke({"messages": [HumanMessage(str(i), id=str(i)) for i in range(6)]}, thread())
    session = store.session("langgraph/1")
    before = [m.id for m in session.messages()]
    kept = app.get_state(thread()).values["messages"][-2:]
    app.update_state(thread(), {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), SystemMessage("0 to 3", id="s"), *kept]})
    assert texts(session.latest()) == ["0 to 3", "4", "5"]
    assert session.latest().messages()[0].body.stands_for == tuple(before[:4])
    app.update_state(thread(), {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    assert texts(session.latest()) == []


def test_edits_find_their_messages_in_a_new_process(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as opened:
        app = chat(echo, checkpointer=RathSaver(opened))
        app.invoke({"messages": [HumanMessage("a", id="1")]}, thread())
    with rb.open_store(sqlite_url) as opened:
        app = chat(echo, checkpointer=RathSaver(opened))
        app.update_state(thread(), {"messages": [HumanMessage("A", id="1")]})
        assert texts(opened.session("langgraph/1")) == ["A", "you said: a"]


def test_what_is_inserted_stands_where_it_belongs(store: Store) -> None:
    class State(TypedDict):
        messages: Annotated[list[Any], lambda old, new: new]  # replaced whole

    graph = StateGraph(State)
    graph.add_node("nothing", lambda state: {})
    graph.add_edge(START, "nothing")
    app: Any = graph.compile(checkpointer=RathSaver(store))
    for order in ("ac", "abc", "abxyc", "zabxyc", "cba"):
        app.invoke({"messages": [HumanMessage(letter, id=letter) for letter in order]}, thread())
        assert texts(store.session("langgraph/1")) == list(order), order


def test_any_text_can_be_kept(store_url: str) -> None:
    # langchain-ai/langgraph/issues/1878: PostgresSaver refuses U+0000
    odd = "nul \x00 line \u2028 \U0001f600 " + "é" * 600
    with rb.open_store(store_url) as opened:
        app = chat(echo, checkpointer=RathSaver(opened))
        app.invoke({"messages": [HumanMessage(odd, id="h\x00")]}, thread("t\x00\ud800", user="x\x00y"))
        state = app.get_state(thread("t\x00\ud800"))
        assert [m.content for m in state.values["messages"]] == [odd, f"you said: {odd}"]
        name = next(s.name for s in opened.sessions())
        assert texts(opened.session(name)) == [odd, f"you said: {odd}"]
        app.invoke({"messages": [HumanMessage("half \ud800", id="s")]}, thread("2"))  # LangGraph's serde writes "?" for it
        assert texts(opened.session("langgraph/2"))[0] == "half \ud800"


def test_a_saver_survives_a_shallow_copy_and_reads_its_serde_on_every_call(store: Store) -> None:
    saver = RathSaver(store)
    clone = copy.copy(saver)
    clone.serde = EncryptedSerializer(Xor())
    chat(echo, checkpointer=saver).invoke({"messages": [("user", "clear")]}, thread())
    app = chat(echo, checkpointer=clone)
    app.invoke({"messages": [("user", "hidden")]}, thread())
    assert [m.content for m in app.get_state(thread()).values["messages"]][-1] == "you said: hidden"
    assert texts(store.session("langgraph/1")) == ["clear", "you said: clear"]


def test_parallel_tasks_write_in_their_order(store: Store) -> None:
    class State(TypedDict):
        items: Annotated[list[str], lambda a, b: a + b]

    graph = StateGraph(State)
    graph.add_node("work", lambda state: {"items": [state["n"]]})  # type: ignore[typeddict-item]
    graph.add_conditional_edges(START, lambda state: [Send("work", {"n": f"{i:02}"}) for i in range(20)], ["work"])
    app: Any = graph.compile(checkpointer=RathSaver(store))
    assert app.invoke({"items": []}, thread())["items"] == [f"{i:02}" for i in range(20)]
    history = list(app.get_state_history(thread()))
    assert sum(len(s.tasks) for s in history) >= 20


def test_a_thread_in_another_session_is_found_by_its_id(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as opened, rb.record(opened, "ticket-4711"):
        chat(echo, checkpointer=RathSaver(opened)).invoke({"messages": [("user", "in a ticket")]}, thread())
    with rb.open_store(sqlite_url) as opened:
        assert [s.name for s in opened.sessions()] == ["ticket-4711"]
        app = chat(echo, checkpointer=RathSaver(opened))
        app.invoke({"messages": [("user", "tomorrow")]}, thread())
        assert [s.name for s in opened.sessions()] == ["ticket-4711"]
        assert texts(opened.session("ticket-4711")) == ["in a ticket", "you said: in a ticket", "tomorrow", "you said: tomorrow"]


def test_a_named_session_wins(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store, session="mine"))
    with rb.record(store, "ambient"):
        app.invoke({"messages": [("user", "x")]}, thread())
    assert texts(store.session("mine")) == ["x", "you said: x"]
    assert kinds(store.session("ambient")) == {"session": 1}


def test_a_thread_that_lives_elsewhere_is_told_of(store: Store) -> None:
    """A named session or branch does not move a thread that stands: who expects it to is warned, once."""
    chat(echo, checkpointer=RathSaver(store, session="x")).invoke({"messages": [("user", "one")]}, thread())
    store.session("x").fork("b")
    app = chat(echo, checkpointer=RathSaver(store, session="x@b"))
    with pytest.warns(UserWarning, match=r"session='x@b'.*'1' lives in x; it goes on there"):
        app.invoke({"messages": [("user", "two")]}, thread())
    app.invoke({"messages": [("user", "three")]}, thread())
    assert texts(store.session("x"))[::2] == ["one", "two", "three"]
    app.invoke({"messages": [("user", "another thread")]}, thread("2"))
    assert texts(store.session("x@b")) == ["one", "you said: one", "another thread", "you said: another thread"]
    app = chat(echo, checkpointer=RathSaver(store, session="y"))
    with pytest.warns(UserWarning, match="lives in x; it goes on in y"):
        app.invoke({"messages": [("user", "four")]}, thread())


def test_a_deleted_thread_is_gone_and_its_id_can_be_used_again(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "old")]}, thread())
    app.checkpointer.delete_thread("1")
    assert app.get_state(thread()).values == {}
    app.invoke({"messages": [("user", "new")]}, thread())
    assert texts(store.session("langgraph/1")) == ["new", "you said: new"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_mode(store: Store, durability: Any) -> None:
    app = react(scripted(asks("add", "c", a=1, b=1), "two"), [add], checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "1+1")]}, thread(), durability=durability)
    assert texts(store.session("langgraph/1")) == ["1+1", "", "", "two"]
    assert isinstance(app.get_state(thread()).values["messages"][2], ToolMessage)


def test_bytes_grow_with_what_is_said(tmp_path: Path) -> None:
    import random
    import string

    letters = random.Random(7)

    def said() -> str:
        return "".join(letters.choices(string.ascii_letters + string.digits, k=1024))

    sizes = []
    with RathSaver.from_conn_string(f"sqlite:///{tmp_path / 's.db'}") as saver:
        app = chat(lambda state: {"messages": [AIMessage(said())]}, checkpointer=saver)
        for turn in range(120):
            app.invoke({"messages": [HumanMessage(said())]}, thread())
            if turn in (39, 79, 119):
                saver.store.backend._link(0).connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[attr-defined]
                sizes.append((tmp_path / "s.db").stat().st_size)
    assert sizes[2] - sizes[1] < 40 * 8_000  # 2 KB said; SqliteSaver writes half a megabyte per turn here
    assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])


KEY = "sk-proj-" + "Zz9" * 16


@pytest.mark.parametrize("ambient", [False, True])
def test_secrets_leave_the_state_where_it_is_asked_for(sqlite_url: str, ambient: bool) -> None:
    folder = Path(sqlite_url.removeprefix("sqlite:///")).parent
    with rb.open_store(sqlite_url) as store:
        saver = RathSaver(store, redact_state=not ambient)
        app = chat(echo, checkpointer=saver)
        config = {**thread(), "metadata": {"note": f"key {KEY}"}}
        with rb.record(store, "ticket", redact_state=True) if ambient else nullcontext():
            app.invoke({"messages": [("user", f"my key is {KEY}, " + "and much more " * 60)]}, config)
            values = app.get_state(thread()).values["messages"]
        assert all(KEY not in m.content and "redacted" in m.content for m in values)
        assert KEY not in str([t.metadata for t in saver.list(None)])
        assert not any(KEY.encode() in file.read_bytes() for file in folder.iterdir())
        assert texts(store.session("ticket" if ambient else "langgraph/1")) == [m.content for m in values]
        if ambient:  # outside of the recorder it is kept as given
            app.invoke({"messages": [("user", f"again {KEY}")]}, thread())
            assert KEY in app.get_state(thread()).values["messages"][-1].content
        else:  # no text: what cannot be taken out is refused
            state: Any = {**empty_checkpoint(), "channel_values": {"x": Path(KEY)}, "channel_versions": {"x": 1}}
            with pytest.raises(EncodeError, match=r"a known secret in a PosixPath at state\['x'\]"):
                saver.put(thread("2"), state, {}, {"x": 1})
