"""What users of other savers have reported, each with the right behaviour.

`PAINS` names the test for every report of the facts' table that concerns a saver; those that stand here carry the number in their name.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from secrets import token_hex
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import rath_bridge as rb
from rath_bridge.session import Store
from rath_bridge.store import sqlite
from rath_langgraph import RathSaver
from rath_langgraph import saver as saver_module
from tests.langgraph.graphs import chat, echo, thread
from tests.langgraph.test_upkeep import State as Items
from tests.langgraph.test_upkeep import delta

PAINS = {
    "langchain-ai/langgraph/issues/7843": "test_saver.py::test_bytes_grow_with_what_is_said",
    "langchain-ai/langgraph/pull/7547": "test_saver.py::test_bytes_grow_with_what_is_said",
    "pizza-bot-app/pizza-bot/issues/58": "test_pains.py::test_58_what_does_not_change_is_stored_once",
    "langchain-ai/langgraphjs/issues/1138": "test_upkeep.py::test_pruning_keeps_what_a_thread_goes_on_from",
    "langchain-ai/langgraph/issues/8531": "test_upkeep.py::test_pruning_never_breaks_a_thread_with_delta_channels",
    "langchain-ai/langgraph/pull/6883": "test_upkeep.py::test_checkpoints_of_a_run_are_deleted_wherever_they_are",
    "langchain-ai/langgraph/issues/7859": "test_forgetting.py::test_a_copy_is_one_chunk_and_no_index_row",
    "langchain-ai/langgraph/issues/4987": "test_pains.py::test_4987_going_on_from_an_old_checkpoint_moves_its_own_head",
    "langchain-ai/langgraph/issues/8551": "test_pains.py::test_8551_8443_branches_of_a_delta_channel_do_not_touch_each_other",
    "langchain-ai/langgraph/issues/8443": "test_pains.py::test_8551_8443_branches_of_a_delta_channel_do_not_touch_each_other",
    "langchain-ai/langgraph/issues/8470": "test_pains.py::test_8470_a_nested_graphs_delta_channel_is_read",
    "langchain-ai/langgraph/issues/495": "test_saver.py::test_one_saver_serves_sync_and_async",
    "lfnovo/open-notebook/issues/509": "test_saver.py::test_one_saver_serves_sync_and_async",
    "langchain-ai/langgraph/issues/6583": "test_saver.py::test_one_saver_serves_sync_and_async",
    "langchain-ai/langgraph/issues/8136": "test_pains.py::test_8136_two_applications_share_one_file",
    "langchain-ai/langgraph/issues/7263": "test_pains.py::test_7263_listing_reads_the_index_once",
    "langchain-ai/deepagents/pull/4005": "test_pains.py::test_4005_a_list_of_threads_reads_no_state",
    "langchain-ai/langgraph/issues/5675": "test_surroundings.py::test_5675_7304_dead_connections_are_noticed_before_they_are_used",
    "langchain-ai/langgraph/issues/7304": "test_surroundings.py::test_5675_7304_dead_connections_are_noticed_before_they_are_used",
    "langchain-ai/langgraph/issues/7630": "test_pains.py::test_7630_setup_does_nothing_anywhere",
    "langchain-ai/langgraph/issues/1878": "test_saver.py::test_any_text_can_be_kept",
    "langchain-ai/langgraph/issues/6718": "test_values.py::test_values_come_back_as_they_were",
    "langchain-ai/langgraph/issues/8184": "test_values.py::test_values_come_back_as_they_were",
    "langchain-ai/langgraph/issues/8388": "test_values.py::test_values_come_back_as_they_were",
    "langchain-ai/langgraph/pull/8467": "test_values.py::test_anything_made_of_builtins_comes_back",
    "langchain-ai/langgraph/issues/8606": "test_values.py::test_put_names_the_place_in_the_state",
    "langchain-ai/langgraph/issues/5054": "test_values.py::test_what_cannot_be_kept_is_named",
    "langchain-ai/langgraph/issues/8522": "test_values.py::test_loading_never_imports",
    "langchain-ai/langgraph/issues/7533": "test_values.py::test_loading_never_imports",
    "langchain-ai/langgraph/issues/7847": "test_values.py::test_functions_in_stored_bytes_are_not_called",
    "langchain-ai/langgraph/issues/7695": "test_values.py::test_pydantic_and_dataclass_states_just_work",
    "langchain-ai/langgraph/issues/8039": "test_pains.py::test_8039_a_checkpoint_waits_for_the_writes_that_it_supersedes",
    "langchain-ai/langgraph/issues/8115": "test_pains.py::test_8115_writes_of_many_threads_are_all_there",
    "langchain-ai/langgraph/issues/7417": "test_saver.py::test_two_runs_on_one_thread_lose_nothing",
    "yeongseon/azure-functions-langgraph-python/issues/186": "test_saver.py::test_two_runs_on_one_thread_lose_nothing",
    "langchain-ai/langgraph/issues/8810": "test_pains.py::test_8810_a_late_write_never_hides_newer_state",
    "langchain-ai/langgraph/issues/8458": "test_pains_of_the_loop.py::test_8458_a_replay_from_inside_a_subgraph_runs_the_same_nodes",
    "langchain-ai/langgraph/issues/8753": "test_pains_of_the_loop.py::test_8753_graphs_that_share_a_node_cache_answer_the_same",
    "langchain-ai/langgraph/issues/8009": "test_pains_of_the_loop.py::test_8009_inputs_that_share_a_cache_key_are_answered_the_same",
    "langchain-ai/docs/issues/4018": "test_conformance.py::test_every_capability_holds",
}


@pytest.mark.parametrize(("link", "test"), PAINS.items())
def test_every_report_has_its_test(link: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (Path(__file__).parent / file).read_text(), link


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def test_8115_writes_of_many_threads_are_all_there(store: Store) -> None:
    # langchain-ai/langgraph/issues/8115: a race in put_writes loses pending writes
    saver = RathSaver(store)
    config = saver.put(thread(), empty_checkpoint(), {"source": "loop", "step": 0, "parents": {}}, {})
    rows = [(config, [("c", f"{n}"), ("d", n)], f"task-{n:02}", f"path {n:02}") for n in range(16)]
    work = [threading.Thread(target=saver.put_writes, args=row) for row in rows]
    for one in work:
        one.start()
    for one in work:
        one.join(60)
    found = saver.get_tuple(thread())
    assert found is not None
    assert [w[2] for w in found.pending_writes or ()] == [x for n in range(16) for x in (f"{n}", n)]


def test_8810_a_late_write_never_hides_newer_state(store: Store) -> None:
    # langchain-ai/langgraph/issues/8810: the late write of a cancelled run overwrites a newer checkpoint
    saver = RathSaver(store)
    app = chat(echo, checkpointer=saver)
    app.invoke({"messages": [("user", "one")]}, thread())
    old = next(saver.list(thread(), limit=1))
    app.invoke({"messages": [("user", "two")]}, thread())
    saver.put_writes(old.config, [("messages", "late")], "cancelled")
    newest = saver.get_tuple(thread())
    saver.put(old.parent_config or {}, old.checkpoint, old.metadata, {})  # and its put once more
    assert newest is not None
    assert saver.get_tuple(thread()) == newest
    assert [m.content for m in app.get_state(thread()).values["messages"]][::2] == ["one", "two"]


def test_7263_listing_reads_the_index_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # langchain-ai/langgraph/issues/7263: N+1 queries
    app = chat(echo, checkpointer=RathSaver(store))
    for n in range(8):
        app.invoke({"messages": [("user", str(n))]}, thread())
    asked: Counter[str] = Counter()

    def counted(name: str) -> Any:
        real = getattr(store.backend, name)
        return lambda *args, **options: (asked.update([name]), real(*args, **options))[1]

    for name in ("scan", "lookup", "line"):
        monkeypatch.setattr(store.backend, name, counted(name))
    assert len(list(RathSaver(store).list(thread(), limit=20))) == 20
    assert asked == {"scan": 1}


def test_7263_listing_more_takes_no_more_queries(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = sqlite._Tx.all
    with rb.open_store(sqlite_url) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        for n in range(12):
            app.invoke({"messages": [("user", str(n))]}, thread())
        monkeypatch.setattr(sqlite._Tx, "all", lambda tx, sql, params=(): (asked.append(sql), real(tx, sql, params))[1])
        counts: list[tuple[int, int]] = []
        for limit in (5, 20, 32):
            asked.clear()
            assert len(list(RathSaver(store).list(thread(), limit=limit))) == limit
            of_values = [sql for sql in asked if "rath_object" in sql]
            counts.append((len(asked) - len(of_values), len(of_values)))
        asked.clear()
        assert list(RathSaver(store).list(thread(), filter={"tenant": 5})) == []
    assert {page for page, _ in counts} == {7}  # the index and the chunks, whatever their number
    assert max(values for _, values in counts) <= 12  # two for each level of a tree, and the items
    assert not any("rath_object" in sql for sql in asked)  # a filter looks at metadata alone


def test_8136_two_applications_share_one_file(sqlite_url: str) -> None:
    # langchain-ai/langgraph/issues/8136: "database is locked" across connections
    with rb.open_store(sqlite_url) as one, rb.open_store(sqlite_url) as two:
        apps = [chat(echo, checkpointer=RathSaver(store)) for store in (one, two)]
        failed: list[BaseException] = []

        def turns(app: Any, name: str) -> None:
            try:
                for n in range(5):
                    app.invoke({"messages": [("user", f"{name} {n}")]}, thread(name))
            except BaseException as error:  # noqa: BLE001 - shown below
                failed.append(error)

        work = [threading.Thread(target=turns, args=(app, name)) for app, name in zip(apps, "ab", strict=True)]
        for thing in work:
            thing.start()
        for thing in work:
            thing.join(90)
        assert failed == []
        apps[0].invoke({"messages": [("user", "seen by the other")]}, thread("b"))  # what the other wrote is seen
        assert len(apps[1].get_state(thread("b")).values["messages"]) == 12


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_8039_a_checkpoint_waits_for_the_writes_that_it_supersedes(
    store: Store, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    # LangGraph hands both to a pool and awaits neither: a crash in between must not leave the checkpoint without the writes
    saver = RathSaver(store)
    first = saver.put(thread(), empty_checkpoint(), {"source": "loop", "step": 0, "parents": {}}, {})
    held, begun, real = threading.Event(), threading.Event(), saver_module.task_body

    def slow(*args: Any) -> Any:
        begun.set()
        assert held.wait(60)
        return real(*args)

    monkeypatch.setattr(saver_module, "task_body", slow)
    following: Any = (first, empty_checkpoint(), {"source": "loop", "step": 1, "parents": {}}, {})
    if asynchronous:
        writing: Any = asyncio.create_task(saver.aput_writes(first, [("c", 1)], "task"))
        putting: Any = asyncio.create_task(saver.aput(*following))
        await asyncio.sleep(0.2)
        assert (writing.done(), putting.done()) == (False, False)
        held.set()
        await asyncio.gather(writing, putting)
    else:
        with ThreadPoolExecutor() as pool:
            writing = pool.submit(saver.put_writes, first, [("c", 1)], "task")
            assert begun.wait(60)
            putting = pool.submit(saver.put, *following)
            assert wait([writing, putting], timeout=0.2).done == set()
            held.set()
    kinds = [c.kind for c in store.session("langgraph/1").chunks()]
    assert kinds == ["session", "run", "checkpoint", "task", "checkpoint"]
    found = saver.get_tuple(first)
    assert found is not None
    assert found.pending_writes == [("task", "c", 1)]


def test_58_what_does_not_change_is_stored_once(sqlite_url: str) -> None:
    # 1.24 GB for 32 threads: a static payload, stored again at every step
    class State(TypedDict):
        payload: str
        n: int

    payload = token_hex(50_000)
    graph: Any = StateGraph(State)
    graph.add_node("n", lambda state: {"n": state["n"] + 1}).add_edge(START, "n")
    with rb.open_store(sqlite_url) as store:
        app = graph.compile(checkpointer=RathSaver(store))
        for name in range(8):
            app.invoke({"payload": payload, "n": 0}, thread(str(name)))
            for _ in range(4):
                app.invoke({"n": 1}, thread(str(name)))
        assert app.get_state(thread("7")).values == {"payload": payload, "n": 2}
    assert Path(sqlite_url.removeprefix("sqlite:///")).stat().st_size < 4 * len(payload)


def test_4005_a_list_of_threads_reads_no_state(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # a list of threads took a minute: metadata shared its rows with states
    app = chat(echo, checkpointer=RathSaver(store))
    for n in range(6):
        app.invoke({"messages": [("user", "long " * 500)]}, {**thread(str(n)), "metadata": {"tenant": n % 2}})
    asked: list[int] = []
    real = store.backend.objects
    monkeypatch.setattr(store.backend, "objects", lambda names: (asked.append(len(found := list(names))), real(found))[1])
    saver = RathSaver(store)
    newest = [next(iter(saver.list(thread(str(n)), filter={"tenant": 5}, limit=1)), None) for n in range(6)]
    assert newest == [None] * 6
    assert asked == []  # a filter looks at metadata alone


def test_4987_going_on_from_an_old_checkpoint_moves_its_own_head(store: Store) -> None:
    # after time travel, the id of the newest checkpoint stood still
    app = chat(echo, checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "one")]}, thread())
    old = next(s for s in app.get_state_history(thread()) if s.next == ("bot",))
    app.invoke({"messages": [("user", "two")]}, thread())
    newest = app.get_state(thread()).config["configurable"]["checkpoint_id"]
    app.invoke(None, old.config)
    travelled = app.get_state(thread())
    assert travelled.config["configurable"]["checkpoint_id"] > newest
    assert len(travelled.values["messages"]) == 2
    app.invoke({"messages": [("user", "three")]}, thread())
    (branch,) = (name for name in store.session("langgraph/1").heads() if name != "main")
    assert [m.text for m in store.session(f"langgraph/1@{branch}").messages()][::2] == ["one", "three"]
    assert [m.text for m in store.session("langgraph/1").messages()][::2] == ["one", "two"]


def test_8551_8443_branches_of_a_delta_channel_do_not_touch_each_other(store: Store) -> None:
    app = delta(checkpointer=RathSaver(store))
    for n in range(3):
        app.invoke({"items": [f"base {n}"]}, thread())
    old = next(s for s in app.get_state_history(thread()) if s.values.get("items") and s.values["items"][-1] == "base 1")
    base = app.get_state(thread())
    app.invoke({"items": ["fork"]}, old.config)
    fork = app.get_state(thread()).values["items"]
    assert "base 2" not in fork
    assert "fork" in fork
    assert app.get_state(base.config).values == base.values
    assert "fork" not in base.values["items"]
    app.invoke({"items": ["after base"]}, base.config)
    assert [x for x in app.get_state(thread()).values["items"] if x in ("fork", "base 2")] == ["base 2"]


@pytest.mark.parametrize("mode", [None, True])
def test_8470_a_nested_graphs_delta_channel_is_read(store: Store, mode: Any) -> None:
    def ask(state: Any) -> Any:
        return {"items": [str(interrupt("which?"))]}

    inner: Any = StateGraph(Items).add_node("one", lambda state: {"items": ["inner"]}).add_node("ask", ask)
    inner.add_edge(START, "one").add_edge("one", "ask")
    outer: Any = StateGraph(Items).add_node("child", inner.compile(checkpointer=mode)).add_edge(START, "child")
    app = outer.compile(checkpointer=RathSaver(store))
    app.invoke({"items": ["outer"]}, thread())
    nested = app.get_state(thread(), subgraphs=True).tasks[0].state
    assert nested.values["items"][-1] == "inner"
    app.invoke(Command(resume="this"), thread())
    assert app.get_state(thread()).values["items"][-1] == "this"


def test_7630_setup_does_nothing_anywhere(postgres_url: str) -> None:
    # setup() failed inside a transaction: CREATE INDEX CONCURRENTLY
    import psycopg

    with psycopg.connect(postgres_url) as outer, outer.transaction():
        with RathSaver.from_conn_string(postgres_url) as saver:
            assert saver.setup() is None  # type: ignore[func-returns-value]
            assert chat(echo, checkpointer=saver).invoke({"messages": [("user", "x")]}, thread())
        outer.execute("SELECT 1")
