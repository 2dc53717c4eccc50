"""Each test starts without any tracing processor, and leaves none behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from agents.tracing import get_trace_provider, set_trace_processors

import rath_bridge as rb


@pytest.fixture(autouse=True)
def no_processors() -> Iterator[None]:
    before = list(get_trace_provider()._multi_processor._processors)  # type: ignore[attr-defined]
    set_trace_processors([])
    yield
    set_trace_processors(before)


@pytest.fixture
def sync_loop() -> Iterator[None]:
    """Close the event loop that ``Runner.run_sync`` keeps for the next call."""
    policy = asyncio.get_event_loop_policy()
    loop = policy.new_event_loop()
    policy.set_event_loop(loop)
    yield
    loop.close()
    policy.set_event_loop(None)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[rb.Store]:
    with rb.open_store("memory:" if request.param == "memory" else sqlite_url) as opened:
        yield opened
