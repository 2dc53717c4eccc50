"""Evidence packets."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import rath_bridge as rb
from benchmarks.table import Row, once, workspace


def rows() -> Iterator[Row]:
    """A packet of 10 000 chunks, written and verified."""
    with workspace() as folder:
        store = rb.open_store(f"sqlite:///{folder / 'p.db'}")
        session = store.create("p").append(*[rb.message("user", f"message {i} " * 20) for i in range(10_000)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wrote = once(lambda: rb.export_packet(session, folder / "p.zip"))
        checked = once(lambda: rb.verify_packet(folder / "p.zip"))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        store.close()
    yield Row(
        "packet of 10 000 chunks, write + verify", f"{wrote:.2f} + {checked:.2f} s, peak memory +{grown:.0f} MB", "<= 3 s, flat memory", "",
        wrote + checked <= 3,
    )  # fmt: skip
