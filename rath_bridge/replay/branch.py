"""The branch of a what-if: what a run does once it has left the record, forked at the chunk where it left, in the user's store.

Up to there the scratch repeats the record, chunk for chunk with new ids; only what is new is written, and it speaks of the runs and
chunks of the record by the record's own ids. Index entries are not taken along: a framework that looks up its thread finds the
line that really happened.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any, Final

import orjson

from rath_bridge.errors import StoreError
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest, digest, new_id
from rath_bridge.model.kinds import SessionStart
from rath_bridge.model.reaching import Memo, body_references, reach
from rath_bridge.replay.comparing import stream_of
from rath_bridge.replay.marking import Marks
from rath_bridge.replay.tape import Tape
from rath_bridge.session import Session
from rath_bridge.store.overlay import OverlayBackend
from rath_bridge.store.protocol import Ref
from rath_bridge.verbs.replay_form import Renumber, Step

_DIGEST: Final = re.compile(rb'"([0-9a-f]{64})"')
_PARENT: Final = re.compile(rb'"parent":"([^"\\]*)"')


class Branch:
    """Follows a scratch line, and writes what is new to a branch of the record's session."""

    def __init__(self, tape: Tape, scratch: OverlayBackend, name: str | None = None) -> None:
        """Get ready; nothing is written before the run has changed something.

        Args:
            tape: The replay.
            scratch: Where the run records.
            name: Of the branch; ``replay-<8 hex>`` when absent.
        """
        self._tape, self._scratch = tape, scratch
        self._name = name or f"replay-{new_id(4)}"
        self._lock = RLock()
        self._renumber = Renumber()
        self._expected: dict[tuple[str, ...], deque[Step]] = {}
        for step in map(Renumber().step, tape.held.chunks):
            if step.kind != "session" and step.chunk.position > tape.after:
                self._expected.setdefault(stream_of(step), deque()).append(step)
        self._waiting: list[tuple[Chunk, Step | None]] = []
        self._names: dict[bytes, bytes] = {}
        self._runs: dict[str, str] = {}
        self._trees = Memo(1 << 62)
        self._marks = Marks(tape)
        self.point: int | None = tape.point
        """Position of the chunk at which the branch begins; where the replay does not name it, known once the run has parted."""
        self._ref: Ref | None = None
        self.error: str | None = None

    @property
    def session(self) -> Session | None:
        """The branch; None as long as nothing is written."""
        ref = self._ref
        return ref and Session(self._tape.held.session.store, *ref)

    def follow(self, ref: Ref, start: int) -> None:
        """Take note of what was appended to a ref of the scratch, from a position on."""
        record = self._tape.held.session
        if ref.name not in (record.name, record.session):
            return
        with self._lock:
            for chunk in self._scratch.line(ref.head, start):
                if chunk.kind != "session":
                    self._take(chunk)
            self.write()

    def write(self) -> None:
        """Write what is new, if the run has parted."""
        with self._lock:
            if not self._tape.changed or not self._waiting:
                return
            if self.point is None:
                self.point = min((left[0].chunk.position for left in self._expected.values() if left), default=1 << 62) - 1
                self.point = min(self.point, len(self._tape.held.chunks) - 1)
            try:
                self._write(self.point)
                self.error = None
            except StoreError as error:  # the run goes on; what waits is tried again with the next chunk
                self.error = str(error)

    # ---------------------------------------------------------------- inside

    def _take(self, chunk: Chunk) -> None:
        """Find the chunk of the record that a new one repeats, if there is one."""
        step = self._renumber.step(chunk)
        waiting = self._expected.get(stream_of(step))
        same = None
        at = next((one for one in self._may_be(waiting) if one.key == step.key), None) if waiting else None
        if waiting and at is not None and (self.point is None or at.chunk.position <= self.point):
            same = at
            waiting.remove(at)
            self._names[chunk.id.encode()] = same.chunk.id.encode()
            if chunk.run is not None and same.chunk.run is not None:
                self._runs.setdefault(chunk.run, same.chunk.run)
        self._waiting.append((chunk, same))

    def _may_be(self, waiting: deque[Step]) -> Iterator[Step]:
        """What may come next in a stream: tools that ran side by side may begin in another order."""
        reach = waiting[0].chunk.position + 1
        for step in waiting:
            if step.chunk.position >= reach:
                return
            yield step
            if step.kind != "tool_call":
                return
            call = self._tape.held.call_at(step.chunk.id)
            reach = max(reach, self._tape.held.position(call.end) or 0) if call is not None else reach

    def _write(self, point: int) -> None:
        record = self._tape.held.session
        backend = record.store.kept
        if self._ref is None:
            start = SessionStart(
                op="replay", name=record.session, branch=self._name, of=record.name, source=record.head, reason=self._tape.told()
            )
            parent = self._tape.held.chunks[point].id
            done = backend.append(record.session, self._name, [draft(start)], head=None, parents=(parent,), reason="replay")
            self._ref = done.ref
        new = [chunk for chunk, same in self._waiting if same is None or same.chunk.position > point]
        self._waiting = [(chunk, None) for chunk in new]
        for chunk in new:  # one after the other: bodies speak of chunks before them by the names that they have got here
            done = backend.append(
                record.session,
                self._name,
                [self._translated(chunk)],
                head=self._ref.head,
                on_conflict="serialise",
                reason="replay",
            )
            self._ref = done.ref
            self._names[chunk.id.encode()] = done.ref.head.encode()
            del self._waiting[0]

    def _translated(self, chunk: Chunk) -> Draft:
        body = _DIGEST.sub(self._renamed, chunk.body_bytes or b"")
        if chunk.kind == "run":
            body = _PARENT.sub(self._rerun, body)
        body = self._marks.marked(chunk, body)
        run = None if chunk.run is None else self._runs.get(chunk.run, chunk.run)
        return Draft(
            kind=chunk.kind, body=body, body_digest=digest(body), objects=self._objects(body), at=chunk.at, run=run,
            origin=chunk.origin, span=chunk.span,
        )  # fmt: skip

    def _renamed(self, found: re.Match[bytes]) -> bytes:
        return b'"' + self._names.get(found[1], found[1]) + b'"'

    def _rerun(self, found: re.Match[bytes]) -> bytes:
        name = found[1].decode()
        return b'"parent":"' + self._runs.get(name, name).encode() + b'"'

    def _objects(self, body: bytes) -> Mapping[Digest, bytes]:
        """What a body stands on, as far as the scratch alone holds it."""
        if b'"digest"' not in body:
            return {}
        parsed: Any = orjson.loads(body)
        references = list(body_references(parsed))
        found: dict[Digest, bytes] = {}
        for reached in (
            *reach([one for one in references if not one.tree], self._scratch.objects, Memo()),
            *reach([one for one in references if one.tree], self._scratch.objects, self._trees),
        ):
            if reached.data is not None and self._scratch.holds(reached.reference.digest):
                found[reached.reference.digest] = reached.data
        return found
