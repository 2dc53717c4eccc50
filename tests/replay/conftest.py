"""Each test starts without any tracing processor, and leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rath_bridge as rb
from tests.openai_agents.conftest import no_processors, sync_loop

__all__ = ["no_processors", "store", "sync_loop"]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[rb.Store]:
    with rb.open_store("memory:" if request.param == "memory" else sqlite_url) as opened:
        yield opened
