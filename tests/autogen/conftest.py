"""A store of each everyday kind for the adapter's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rath_bridge as rb


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Iterator[rb.Store]:
    url = "memory:" if request.param == "memory" else request.getfixturevalue("sqlite_url")
    with rb.open_store(url) as opened:
        yield opened
