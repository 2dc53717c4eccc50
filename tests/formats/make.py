"""Write the files of today's format into a folder: ``python tests/formats/make.py tests/formats/v1``.

Run it once for each new format; what older versions wrote stays as it is.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import rath_bridge as rb
from rath_bridge.model.chunk import Key, Native, SpanContext, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef
from rath_bridge.model.kinds import Checkpoint, Inference, Message, Run, ToolCall, ToolResult, Unknown, Usage
from rath_bridge.model.parts import GenericPart, TextPart, ToolCallPart
from rath_bridge.model.trees import list_tree, map_tree
from rath_bridge.session import Session, Store

LONG = "a long text with \u2028, é and \U0001f600; " * 30
NATIVE = b'{"content": "' + LONG.encode() + b'", "odd": "\xff"}'


def fill(store: Store) -> Session:
    """A little of everything."""
    items = [b"item %d" % i for i in range(100)]
    names = [bytes.fromhex(digest(item)) for item in items]
    tree, nodes = list_tree(names)
    state, state_nodes = map_tree({"messages": bytes.fromhex(tree.ref.digest), "odd \ud800 key": names[0]})
    objects = {**nodes, **state_nodes, **{digest(item): item for item in items}}
    span = SpanContext("1" * 32, "2" * 16, "3" * 16)
    session = store.create("ticket-4711").append(
        draft(Run(phase="begin", name="agent"), run="r1", span=span),
        rb.message("user", "hello"),
        draft(
            Message(role="user", parts=(TextPart(LONG), GenericPart("later", {"x": 1}))),
            native=Native("made", "1.0", "raw", NATIVE),
        ),
        draft(
            Message(
                role="assistant", parts=(ToolCallPart("call-1", "add", {"a": 2**70, "b": [float("inf"), b"\0\xff", "\ud800"]}),)
            ),
            run="r1",
        ),
        draft(
            Inference(model="m", usage=Usage(input_tokens=3, output_tokens=4)),
            run="r1",
            origin={"adapter": "rath_made", "version": "1"},
        ),
        draft(ToolCall(name="add", arguments={1: "odd key"}, call_id="call-1"), run="r1"),
        draft(ToolResult(name="add", result=7, call_id="call-1"), run="r1", keys=[Key("made", "t\0", "", "k")]),
        draft(Unknown(name="later.kind", fields={"x": {"$rath": 1}})),
        draft(Checkpoint(state=state, lists={"messages": 100}), objects=objects, once=Key("made", "t\0", "", "c1")),
        draft(
            Unknown(name="file", fields={"blob": BlobRef(digest(b"\x89PNG"), 4, "image/png")}),
            objects={digest(b"\x89PNG"): b"\x89PNG"},
        ),
    )
    other = session.fork("try-b", at=session[3].id).append(rb.message("assistant", "another way"))
    session.detach("copy").append(rb.message("user", "apart"))
    return session.merge(other)


def facts(store: Store) -> dict[str, Any]:
    """What must be read from it, whatever version reads."""
    found: dict[str, Any] = {}
    for ref in store.backend.refs():
        session = store.session(ref.name)
        found[ref.name] = {
            "head": session.head,
            "chunks": [digest(chunk.envelope) for chunk in session.chunks()],
            "bodies": [chunk.body_digest for chunk in session.chunks()],
            "messages": [
                [m.role, [part.type for part in m.parts], digest(m.text.encode("utf-8", "surrogatepass"))]
                for m in session.messages()
            ],
            "calls": [[call.call_id, call.status] for call in session.calls()],
            "usage": session.usage().total_tokens,
            "reflog": [[move.old, move.new, move.reason] for move in store.backend.reflog(ref.session, ref.branch)],
        }
    return found


def main(folder: Path) -> None:
    """Write ``store.db``, ``packet.zip`` and ``facts.json``."""
    folder.mkdir(parents=True)
    path = folder / "store.db"
    with rb.open_store(f"sqlite:///{path}") as store:
        session = fill(store)
        rb.export_packet(session, folder / "packet.zip")
        (folder / "facts.json").write_text(json.dumps(facts(store), indent=1) + "\n")
    with sqlite3.connect(path) as db:  # one small file, without its log
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
