"""What a keeper knows when it rests, in JSON: so a spool's beginning can be given back to the disk while its proxy lives.

A spool grows for as long as its proxy runs. Once what it holds is in the store, its beginning is of no use but for one thing: a keeper
that comes later must know what this one knew (which calls are open, what the server had said, how many chunks were written).
"""

from __future__ import annotations

import ctypes
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rath_bridge.model.chunk import SpanContext
from rath_mcp.exchange import Book, Exchange, Server
from rath_mcp.frames import Numbered, frame_from_json
from rath_mcp.record import Connection

RECLAIM: Final = 64 << 20
"""Bytes of a spool that are in the store, after which they are given back."""
_PUNCH: Final = 3
"""``FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE``: offsets stay as they are, so the proxy need not know."""

Json = dict[str, Any]


def beside(spool: Path) -> Path:
    """Return the file that tells how far a spool was written."""
    return spool.with_suffix(".rest")


def rest(spool: Path, descriptor: int, offset: int, known: Mapping[str, Any]) -> None:
    """Note what is known at a place of a spool, and give back what stands before it; a disk that refuses loses nothing."""
    note, new = beside(spool), beside(spool).with_suffix(".rest-new")
    with suppress(OSError):
        with open(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
            json.dump({"offset": offset, **known}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(note)
        fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
        if fallocate is not None:
            fallocate(descriptor, _PUNCH, ctypes.c_longlong(0), ctypes.c_longlong(offset))


def rested(spool: Path) -> Json:
    """Return what was noted; a spool that was never given back has nothing."""
    try:
        return json.loads(beside(spool).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def forget(spool: Path) -> None:
    """Remove a spool, and what was noted of it."""
    spool.unlink(missing_ok=True)
    beside(spool).unlink(missing_ok=True)


def state_of(one: Connection) -> Json:
    """Return what a connection knows."""
    server = asdict(one.server)
    return {
        "count": one.count, "server": {**server, "info": dict(server["info"]), "lists": list(server["lists"])},
        "run": _span(one.home.run), "hello": [[*key, method] for key, method in one.hello.items()],
        "before": _frames(one.before), "waiting": _frames(one.waiting),
        "open": [_exchange(exchange) for exchange in one.open.values()],
        "tokens": {token: [exchange.by, exchange.key] for token, exchange in one.tokens.items()}, "closed": one.closed,
    }  # fmt: skip


def connection_from(state: Mapping[str, Any], make: Callable[[], Connection]) -> Connection:
    """Return a connection that knows what one knew; the inverse of `state_of`.

    Args:
        state: From `state_of`.
        make: Makes it anew.
    """
    one = make()
    one.count, one.closed, one.server = state["count"], state["closed"], Server(**state["server"])
    if state["run"] is not None:
        one.home.run = SpanContext(*state["run"])
        one.books.append(one.home)
    one.hello.update({(by, key): method for by, key, method in state["hello"]})
    one.before, one.waiting = _numbered(state["before"]), _numbered(state["waiting"])
    for given in state["open"]:
        exchange = _exchange_from(given, one.home)
        one.open[exchange.by, exchange.key] = exchange
    for token, (by, key) in state["tokens"].items():
        if (by, key) in one.open:
            one.tokens[token] = one.open[by, key]
    return one


def text_of(parts: Sequence[bytes]) -> str:
    """Return the pieces of a line that has no end yet, as JSON holds them."""
    return b64encode(b"".join(parts)).decode()


def parts_of(text: str) -> list[bytes]:
    """Inverse of `text_of`."""
    return [b64decode(text)] if text else []


def _exchange(one: Exchange) -> Json:
    return {
        "id": one.id, "by": one.by, "method": one.method, "params": one.params, "at": one.at, "run": one.run, "call_id": one.call_id,
        "span": _span(one.span), "frames": _frames(one.frames), "progress": one.progress, "name": one.name,
    }  # fmt: skip


def _exchange_from(given: Mapping[str, Any], book: Book) -> Exchange:
    span = None if given["span"] is None else SpanContext(*given["span"])
    fields: Json = {**given, "span": span, "frames": _numbered(given["frames"]), "book": book}
    return Exchange(**fields)


def _span(span: SpanContext | None) -> list[Any] | None:
    return None if span is None else [span.trace_id, span.span_id, span.parent_id]


def _frames(items: Sequence[Numbered]) -> list[Any]:
    return [[item.connection, item.number, item.frame.to_json()] for item in items]


def _numbered(items: Sequence[Any]) -> list[Numbered]:
    return [Numbered(connection, number, frame_from_json(frame)) for connection, number, frame in items]
