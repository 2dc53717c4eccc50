"""Every store that we ship keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rath_bridge.store import connect
from rath_bridge.store.protocol import Backend
from rath_bridge.testing import StoreContract


def opened(url: str) -> Iterator[Backend]:
    backend = connect(url)
    yield backend
    backend.close()


class TestMemory(StoreContract):
    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        yield from opened("memory:")


class TestSqlite(StoreContract):
    @pytest.fixture
    def backend(self, sqlite_url: str) -> Iterator[Backend]:
        self.url = sqlite_url
        yield from opened(sqlite_url)

    def reopen(self, backend: Backend) -> Backend:
        return connect(self.url)


class TestPostgres(StoreContract):
    @pytest.fixture
    def backend(self, postgres_url: str) -> Iterator[Backend]:
        self.url = postgres_url
        yield from opened(postgres_url)

    def reopen(self, backend: Backend) -> Backend:
        return connect(self.url)
