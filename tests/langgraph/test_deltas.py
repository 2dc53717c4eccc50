"""Messages in a delta channel: LangGraph stores their writes, and the session says them all the same, each once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, TypedDict, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import (
    REMOVE_ALL_MESSAGES,
    _messages_delta_reducer,  # pyright: ignore[reportPrivateUsage]
)
from langgraph.types import Overwrite

import rath_bridge as rb
from rath_bridge.model.trees import read_map
from rath_bridge.session import Session, Store
from rath_langgraph import RathSaver, import_thread, wrap
from tests.langgraph.ciphers import Xor
from tests.langgraph.graphs import thread
from tests.langgraph.test_upkeep import delta


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def answer(state: Any) -> dict[str, Any]:
    last = state["messages"][-1] if state["messages"] else None
    return {"messages": [AIMessage(f"ok: {last.content if last else ''}", usage_metadata=USAGE)]}


USAGE: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


def slow(node: Any = answer, every: int = 100, **compiled: Any) -> Any:
    """A graph whose messages are kept as deltas."""
    reducer = DeltaChannel(cast(Any, _messages_delta_reducer), snapshot_frequency=every)
    kind: Any = TypedDict("kind", {"messages": Annotated[list[AnyMessage], reducer]})
    graph: Any = StateGraph(kind)
    graph.add_node("bot", node)
    graph.add_edge(START, "bot")
    return graph.compile(**compiled)


def texts(session: Session) -> list[str]:
    return [m.text for m in session.messages()]


def held(app: Any, name: str = "1") -> list[Any]:
    return app.get_state(thread(name)).values["messages"]


def said(session: Session) -> Counter[str]:
    return Counter(chunk.kind for chunk in session.chunks() if chunk.kind in ("message", "compaction"))


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("every", [3, 100])
def test_what_is_said_between_snapshots_stands_in_the_transcript(store: Store, every: int, durability: Any) -> None:
    app = slow(every=every, checkpointer=RathSaver(store))
    for turn in range(4):
        app.invoke({"messages": [HumanMessage(f"turn {turn}")]}, thread(), durability=durability)
        session = store.session("langgraph/1")
        assert texts(session) == [m.content for m in held(app)]
        assert said(session) == {"message": 2 * (turn + 1)}
        handed, report = rb.encode(session, "langgraph")
        assert handed == held(app)  # by their own bytes: ids, usage and all
        assert report.exact
    assert session.fsck() == []


async def test_async_and_side_by_side(store: Store) -> None:
    app = slow(checkpointer=RathSaver(store))
    for turn in range(2):
        work = [app.ainvoke({"messages": [("user", f"{turn} of {n}")]}, thread(str(n))) for n in range(4)]
        await asyncio.gather(*work)
    for n in range(4):
        assert texts(store.session(f"langgraph/{n}")) == [m.content for m in held(app, str(n))]


def test_another_process_goes_on_in_the_middle(store: Store) -> None:
    for turn in range(4):
        app = slow(checkpointer=RathSaver(store))  # knows nothing of what was before
        app.invoke({"messages": [HumanMessage(f"turn {turn}")]}, thread())
    assert texts(store.session("langgraph/1")) == [m.content for m in held(app)]
    assert said(store.session("langgraph/1")) == {"message": 8}


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.text("ab", max_size=3)),
        st.tuples(st.just("edit"), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.sampled_from([("clear", 0), ("overwrite", 2), ("restart", 0), ("pair", 0)]),
    ),
    min_size=1,
    max_size=12,
)


def written(op: str, arg: Any, now: Sequence[Any]) -> Any:
    """What a node writes to do this to a list."""
    one = now[arg % len(now)] if now and isinstance(arg, int) else None
    if op == "edit" and one is not None:
        return [type(one)(f"{one.content}!", id=one.id)]
    if op == "remove" and one is not None:
        return [RemoveMessage(id=one.id)]
    if op == "clear":
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("summary")]
    if op == "overwrite":
        return Overwrite([*now[:arg], AIMessage("instead")])
    if op == "pair":
        return [HumanMessage("same"), AIMessage("same")]
    return HumanMessage(str(arg))


@given(ops=OPS, every=st.integers(1, 6))
def test_edits_removals_and_overwrites_reach_the_transcript(ops: list[tuple[str, Any]], every: int) -> None:
    store = rb.open_store("memory:")
    todo: list[tuple[str, Any]] = []

    def node(state: Any) -> dict[str, Any]:
        return {"messages": written(*todo[-1], state["messages"])}

    app = slow(node, every, checkpointer=RathSaver(store))
    for op in ops:
        if op[0] == "restart":
            app = slow(node, every, checkpointer=RathSaver(store))
            continue
        todo.append(op)
        app.invoke({"messages": []}, thread())
        messages = held(app)
        assert texts(store.session("langgraph/1")) == [m.content for m in messages]
        known = [entry.body.id for entry in store.session("langgraph/1").messages()]
        assert known == [m.id for m in messages]


def test_time_travel_and_a_change_by_hand_are_forks_that_say_what_they_hold(store: Store) -> None:
    app = slow(checkpointer=RathSaver(store))
    for text in ("one", "two"):
        app.invoke({"messages": [HumanMessage(text)]}, thread())
    old = [s for s in app.get_state_history(thread()) if len(s.values["messages"]) == 2 and not s.next][-1]
    app.invoke({"messages": [HumanMessage("instead")]}, old.config)
    branch = next(ref for ref in store.backend.refs("langgraph/1") if ref.branch != "main")
    assert texts(store.session(branch.name)) == ["one", "ok: one", "instead", "ok: instead"]
    assert texts(store.session("langgraph/1")) == ["one", "ok: one", "two", "ok: two"]
    app.update_state(thread(), {"messages": [HumanMessage("by hand")]}, as_node="bot")
    assert texts(store.session(branch.name)) == [m.content for m in held(app)]


def test_two_runs_at_once_are_two_branches_that_each_say_their_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = RathSaver(store)
    app = slow(checkpointer=saver)
    app.invoke({"messages": [HumanMessage("start")]}, thread())
    both, read = threading.Barrier(2), saver.get_tuple

    def together(config: Any) -> Any:
        found = read(config)
        both.wait(60)  # nobody has written yet
        return found

    monkeypatch.setattr(saver, "get_tuple", together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: app.invoke({"messages": [HumanMessage(text)]}, thread()), ("a", "b")))
    lines = [texts(store.session(ref.name)) for ref in store.backend.refs("langgraph/1")]
    assert sorted(lines) == [["start", "ok: start", said, f"ok: {said}"] for said in "ab"]


def test_a_graph_inside_says_its_own_and_not_twice_what_it_was_given(store: Store) -> None:
    graph: Any = slow(slow())  # the inner graph is the outer one's node
    app = graph.copy({"checkpointer": RathSaver(store)})
    for text in ("one", "two"):
        app.invoke({"messages": [HumanMessage(text)]}, thread())
    session = store.session("langgraph/1")
    assert texts(session) == [m.content for m in held(app)] == ["one", "ok: one", "two", "ok: two"]


def test_what_came_from_another_saver_is_said_with_what_follows(store: Store) -> None:
    old = InMemorySaver()
    before = slow(checkpointer=old)
    for name in ("moved", "read-through"):
        for text in ("one", "two"):
            before.invoke({"messages": [HumanMessage(text)]}, thread(name))
    saver = RathSaver(store, fallback=old)
    import_thread(old, saver, "moved")
    app = slow(checkpointer=saver)
    for name in ("moved", "read-through"):
        app.invoke({"messages": [HumanMessage("three")]}, thread(name))
        wanted = ["one", "ok: one", "two", "ok: two", "three", "ok: three"]
        assert texts(store.session(f"langgraph/{name}")) == [m.content for m in held(app, name)] == wanted


def snapshot(store: Store) -> str:
    """The checkpoint that holds a delta channel whole."""
    chunks = (c for c in store.session("langgraph/1").chunks() if c.kind == "checkpoint")
    return next(c.id for c in chunks if "items" in read_map(cast(Any, c.body).state, store.backend.objects))


def test_other_lists_are_left_alone_and_read_at_no_cost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    app = delta(checkpointer=RathSaver(store))
    app.invoke({"items": ["first"]}, thread())
    asked: list[Any] = []
    real = RathSaver.get_delta_channel_history
    monkeypatch.setattr(RathSaver, "get_delta_channel_history", lambda *a, **k: (asked.append(k), real(*a, **k))[1])
    app.invoke({"items": ["second"]}, thread())
    assert len(asked) == 1  # LangGraph's own, as it begins
    session = store.session("langgraph/1")
    assert said(session) == {}
    _, report = rb.encode(session, "langgraph", as_="state")
    assert [loss.path for loss in report.losses] == ["state['items']"]  # between two snapshots: told, not left out in silence
    for _ in range(2):
        app.invoke({"items": ["more"]}, thread())
    state, _ = rb.encode(store.session("langgraph/1").fork("at", at=snapshot(store)), "langgraph", as_="state")
    assert state["items"][:2] == ["first", "after 1"]


def test_what_is_stored_whole_shares_its_items_and_is_read_in_a_few_pages(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, size = 60, 700
    with rb.open_store(sqlite_url) as store:
        app = slow(every=20, checkpointer=RathSaver(store))
        for _ in range(turns):
            app.invoke({"messages": [HumanMessage(token_hex(size // 2))]}, thread())
        asked: list[str] = []
        real = store.backend.scan
        monkeypatch.setattr(store.backend, "scan", lambda *a, **k: (asked.append(a[1]), real(*a, **k))[1])
        fresh = RathSaver(store)
        newest = fresh.get_tuple(thread())
        assert newest is not None
        asked.clear()
        found: Any = fresh.get_delta_channel_history(config=newest.config, channels=["messages"])
        assert [type(m) for m in found["messages"]["seed"].value] == [HumanMessage, AIMessage] * 50
        assert len(found["messages"]["writes"]) == 20
        assert len(asked) <= 5
        monkeypatch.undo()
        assert slow(checkpointer=fresh).get_state(thread()).values["messages"] == held(app)
        assert rb.encode(store.session("langgraph/1"), "langgraph", as_="state")[0]["messages"] == held(app)
    assert Path(sqlite_url.removeprefix("sqlite:///")).stat().st_size < 6 * turns * 2 * size


def test_with_a_serde_that_encrypts_nothing_is_said(store: Store) -> None:
    saver = RathSaver(store, serde=EncryptedSerializer(Xor()))
    slow(checkpointer=saver).invoke({"messages": [HumanMessage("secret")]}, thread())
    assert said(store.session("langgraph/1")) == {}


def goes_on(app: Any, session: Session, text: str) -> Session:
    return app(session.append(rb.message("user", text))).latest()


@pytest.mark.parametrize("own", [False, True], ids=["rath", "own-checkpointer"])
@pytest.mark.parametrize("every", [2, 100])
def test_a_session_is_forked_merged_and_goes_on(store: Store, every: int, own: bool) -> None:
    app = wrap(slow(every=every, checkpointer=InMemorySaver() if own else None), store, checkpointer=None if own else "rath")
    begun = goes_on(app, store.create("ticket"), "one")
    theirs = goes_on(app, begun.fork("try-b"), "theirs")
    ours = goes_on(app, begun, "ours")
    assert texts(theirs) == ["one", "ok: one", "theirs", "ok: theirs"]
    assert [m.content for m in held(app, theirs.name)] == texts(theirs)
    merged = ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    assert texts(merged) == [*texts(ours), "theirs", "ok: theirs"]
    again = goes_on(app, merged, "on")
    assert [m.content for m in held(app, "ticket")] == texts(again) == [*texts(merged), "on", "ok: on"]
    assert again.fsck() == []


async def test_a_session_that_another_framework_went_on_with_comes_back(store: Store) -> None:
    app = wrap(slow(), store, checkpointer="rath")
    session = await app.acall(store.create("ticket").append(rb.message("user", "one")))
    session = session.latest().append(rb.message("assistant", "from elsewhere"), rb.message("user", "two"))
    session = await app.acall(session)
    wanted = ["one", "ok: one", "from elsewhere", "two", "ok: two"]
    assert texts(session) == [m.content for m in held(app, "ticket")] == wanted
