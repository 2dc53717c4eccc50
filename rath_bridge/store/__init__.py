"""Stores: where chunks, objects and refs are kept. `connect` opens one by its address."""

from __future__ import annotations

import os
from typing import Any, Final

from rath_bridge.errors import MissingExtraError, StoreAddressError
from rath_bridge.store.protocol import Backend

DEFAULT_URL: Final = "sqlite:///.rath/store.db"


def connect(url: str | None = None, **options: Any) -> Backend:
    """Open a backend by its address: ``sqlite:///path``, ``postgresql://…`` or ``memory:``.

    Args:
        url: The address; ``$RATH_BRIDGE_STORE`` or ``sqlite:///.rath/store.db`` when absent.
        **options: Passed to the backend.

    Raises:
        StoreAddressError: Not an address of a store.
        MissingExtraError: PostgreSQL without its driver.
    """
    address = url or os.environ.get("RATH_BRIDGE_STORE") or DEFAULT_URL
    scheme = address.partition(":")[0]
    if scheme == "memory":
        from rath_bridge.store.memory import MemoryBackend

        return MemoryBackend()
    if scheme == "sqlite":
        from rath_bridge.store.sqlite import SqliteBackend

        return SqliteBackend(address, **options)
    if address.startswith(("postgresql://", "postgres://")):
        try:
            from rath_bridge.store.postgres import PostgresBackend
        except ImportError as error:
            raise MissingExtraError("a postgresql:// store", "postgres") from error
        return PostgresBackend(address, **options)
    raise StoreAddressError(address)
