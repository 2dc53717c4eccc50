"""What users of other savers have reported, with the right behaviour. Links: the table in the facts of this adapter's issue.

Elsewhere: values (test_values.py: 6718, 8184, 8388, 8606, 5054, 7695, 8522), growth and races and NUL bytes (test_saver.py: 7843, 7547,
7417, 1878), copies and pruning (test_upkeep.py: 8531, 6883, 7859).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

import rath_bridge as rb
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import chat, echo, thread


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def test_writes_of_many_threads_are_all_there(store: Store) -> None:
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


def test_a_late_write_never_hides_newer_state(store: Store) -> None:
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


def test_listing_reads_the_index_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_two_applications_share_one_file(sqlite_url: str) -> None:
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
