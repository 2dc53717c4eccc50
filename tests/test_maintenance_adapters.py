"""Every adapter accepts a record of which parts were erased: by a boundary, or by a redaction."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.maintenance import find_text, prune, redact
from rath_bridge.model.chunk import now
from rath_openai_agents import RathSession
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
