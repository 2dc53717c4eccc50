"""Messages as a state showed them: taken down on the graph's thread, made into bytes off it.

A graph may change a message after it was shown. So what can change is copied when it is shown; where that is not possible, the chunk is
built at once.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple, cast

from langchain_core.messages import BaseMessage

from rath_bridge.model.chunk import Draft, Native, now
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import INLINE_LIMIT
from rath_bridge.recorder import Recorder, RunHandle
from rath_langgraph.compare import compare_key
from rath_langgraph.items import long_texts
from rath_langgraph.mirror import Mirror, OpaqueError, snapshot
from rath_langgraph.neutral import message_body, origin
from rath_langgraph.observed import cleaned, message_native


class Place(NamedTuple):
    """Where a message stands among those that are on record."""

    replaces: Digest | None = None
    after: Digest | None = None
    stands_for: tuple[Digest, ...] = ()


class Shown:
    """A message of a state, as it was when it was shown. Safe from any thread."""

    def __init__(self, message: BaseMessage, mirror: Mirror, chunk: Digest | None = None) -> None:
        """Take it down.

        Args:
            message: What the graph holds.
            mirror: Of the list that it stands in; grows by it.
            chunk: Where it is on record; None where it is new.
        """
        self.id, self.chunk = message.id, chunk
        self.body: Digest | None = None
        """Of the body of its chunk, which may be on its way; its own digest is known when it stands."""
        self._lock = Lock()
        self._bytes: tuple[bytes, Native | None] | None = None
        self._name: bytes | None = None
        self._key: Digest | None = None
        try:
            fields, extra = snapshot(message.__dict__), snapshot(message.__pydantic_extra__)
        except OpaqueError:
            fields = extra = None
        mirror.add(b"", type(message), fields, extra)
        self.fixed = fields is not None
        """Whether nothing changes it any more."""
        self.message = message
        if self.fixed:
            self.message = made = copy(message)
            vars(made).update(cast("dict[str, Any]", fields))
            if extra:
                cast(dict[str, Any], made.__pydantic_extra__).update(extra)
        else:
            self.same()
            self.name()

    def same(self) -> Digest:
        """What it says (`compare_key`)."""
        if self._key is None:
            self._key = compare_key(self.message)
        return self._key

    def name(self) -> bytes:
        """Digest of its bytes; of what it says where it cannot be written."""
        return self._name or self._written()[0]

    def _written(self) -> tuple[bytes, Native | None]:
        with self._lock:
            if self._bytes is None:
                native = message_native(self.message, None)
                self._bytes = sha256(f"{self.id} {self.same()}".encode() if native is None else native.data).digest(), native
            return self._bytes

    def becomes(self, other: Shown) -> None:
        """It was written before it had an id, and stands in the state with one now."""
        self.id, self._name = other.id, other.name()

    def tell(self, recorder: Recorder, run: RunHandle, place: Place) -> None:
        """Queue its chunk."""
        at = now()

        def made() -> Draft:
            built = self._draft(recorder, run, place, at)
            self.body = built.body_digest
            return built

        if self.fixed:
            recorder.defer(made)
        else:
            built = made()
            recorder.defer(lambda: built)

    def _draft(self, recorder: Recorder, run: RunHandle, place: Place, at: int) -> Draft:
        native, redactor, clean = self._written()[1], recorder.redactor, self.message
        if redactor is not None and (native is None or redactor.suspects(native.data)):
            clean = cast(BaseMessage, cleaned(self.message, redactor))
            native = native if clean is self.message else message_native(clean, None)
        body = message_body(clean)
        if place.replaces is not None or place.after is not None:
            body = replace(body, replaces=place.replaces, after=place.after, stands_for=place.stands_for)
        objects: dict[Digest, bytes] = {}
        if native is None or len(native.data) >= INLINE_LIMIT:
            long_texts(clean, objects)
        return recorder.draft(body, run=run, at=at, native=native, objects=objects, origin=origin())
