"""Every adapter accepts a record of which parts were erased: by a boundary, or by a redaction."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.errors import ErasedError
from rath_bridge.maintenance import find_text, prune, redact
from rath_bridge.model.chunk import now
from rath_langgraph import RathSaver
from rath_openai_agents import RathSession
from tests.cli_store import run as cli
from tests.langgraph.graphs import chat, echo
from tests.replay.mixed import Answers, program


def said(store: rb.Store) -> list[Any]:
    return [item["content"] for item in asyncio.run(RathSession("conv", store).get_items())]


@pytest.mark.parametrize("how", ["prune", "redact"])
def test_it_is_read_handed_over_and_goes_on(tmp_path: Path, how: str) -> None:
    store = rb.open_store("memory:")
    asyncio.run(program(store, Answers(), wire=True)())
    session = RathSession("conv", store)
    asyncio.run(session.add_items([{"role": "user", "content": "I am Ada's brother"}, {"role": "assistant", "content": "Hi."}]))
    moment = now()
    time.sleep(0.01)
    asyncio.run(session.add_items([{"role": "user", "content": "young"}]))
    asyncio.run(program(store, Answers(order="A-2"))())
    if how == "prune":
        prune(store, timedelta(microseconds=now() - moment))
        assert said(store) == ["young"]
    else:
        hits = find_text(store.backend, "Ada's")
        redact(store, hits.chunks, objects=hits.objects, reason="asked", forget=True)
        assert said(store) == ["Hi.", "young"]
    assert list(store.fsck()) == []
    for one in store.sessions():
        for name in ("langgraph", "openai_agents", "autogen", "mcp"):
            native, report = rb.encode(one, name)
            assert native is not None
            assert report is not None
        assert one.messages()
        assert one.usage().total_tokens >= 0
        assert len(one.calls()) >= len(one.pending())
    assert rb.verify_packet(rb.export_packet(store.sessions(), tmp_path / "p")).ok
    asyncio.run(program(store, Answers(order="A-3"))())
    asyncio.run(RathSession("conv", store).add_items([{"role": "user", "content": "and on"}]))
    assert said(store)[-1] == "and on"
    assert list(store.fsck()) == []


def test_threads_that_cannot_be_loaded_any_more_are_named_before_and_after(sqlite_url: str) -> None:
    where: Any = {"configurable": {"thread_id": "ann"}}
    with rb.open_store(sqlite_url) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        app.invoke({"messages": [("user", "first")]}, where)
        app.invoke({"messages": [("user", "number ZQ-4711-ann")]}, where)
        app.invoke({"messages": [("user", "no number")]}, {"configurable": {"thread_id": "bob"}})
    dry = cli("redact", "--text", "ZQ-4711-ann", "--dry-run", store=sqlite_url).output
    assert "this thread could not be loaded any more: langgraph ann" in dry
    assert "--forget lets go of those states" in dry
    assert "bob" not in dry
    forgetting = cli("redact", "--text", "ZQ-4711-ann", "--forget", "--dry-run", store=sqlite_url).output
    assert "this thread goes on from the newest state that can be read: langgraph ann" in forgetting
    blocked = json.loads(cli("redact", "--text", "ZQ-4711-ann", "--dry-run", "--json", store=sqlite_url).output)["blocked"]
    assert [one["native_id"] for one in blocked] == ["ann"]
    done = cli("redact", "--text", "ZQ-4711-ann", "--reason", "asked", "--yes", store=sqlite_url).output
    assert "this thread cannot be loaded any more: langgraph ann" in done
    with rb.open_store(sqlite_url) as store, pytest.raises(ErasedError):
        chat(echo, checkpointer=RathSaver(store)).get_state(where)
    (line,) = [line for line in done.splitlines() if line.startswith("rath-bridge redact --object")]
    named = line.removeprefix("rath-bridge ").partition(" lets go")[0].split()
    assert cli(*named, "--yes", store=sqlite_url).exit_code == 0
    with rb.open_store(sqlite_url) as store:
        held = chat(echo, checkpointer=RathSaver(store)).get_state(where).values["messages"]
        assert [message.content for message in held] == ["first", "you said: first"]
