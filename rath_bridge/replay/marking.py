"""What a what-if repeats from its record is marked on the branch: a replayed effect is never recorded as newly executed (law 5).

Its chunk carries ``attributes.replayed``, the recorded chunk that it repeats; a model call that was served carries no usage, since its
tokens were spent once (law 7).
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import decode, dumps
from rath_bridge.replay.held import arguments_key
from rath_bridge.replay.tape import Tape

_KINDS: Final = frozenset({"inference", "tool_call", "tool_result"})


class Marks:
    """Finds the recorded chunk that a new one repeats; each recorded answer is repeated as often as it was served."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._used: set[tuple[str, int]] = set()

    def marked(self, chunk: Chunk, body: bytes) -> bytes:
        """Return a body, marked where what it tells of was answered from the record.

        Args:
            chunk: The new chunk.
            body: Its body, in which references have been translated.
        """
        if chunk.kind not in _KINDS:
            return body
        values: dict[str, Any] = decode(body, None)
        found = self._repeated(chunk.kind, values)
        if found is None:
            return body
        parsed: dict[str, Any] = orjson.loads(body)
        parsed["attributes"] = {**parsed.get("attributes", {}), "replayed": found}
        if chunk.kind == "inference":
            parsed.pop("usage", None)
        return dumps(parsed)

    def _repeated(self, kind: str, values: dict[str, Any]) -> Digest | None:
        for index, (name, changed) in enumerate(self._tape.repeated):
            if (kind, index) not in self._used and self._is_same(kind, values, name, changed):
                self._used.add((kind, index))
                call = self._tape.held.call_at(name)
                return name if call is None else call.chunks[0] if kind == "tool_call" else call.end or name
        return None

    def _is_same(self, kind: str, values: dict[str, Any], name: Digest, changed: bool) -> bool:
        held = self._tape.held
        recorded = held.by_id[name]
        if kind == "inference":
            if recorded.kind != "inference" or recorded.body_bytes is None:
                return False
            body: dict[str, Any] = decode(recorded.body_bytes, None)
            return body.get("agent") == values.get("agent") and (changed or body.get("output") == values.get("output"))
        call = held.call_at(name)
        if call is None or call.name != values.get("name"):
            return False
        if kind == "tool_call":
            return call.key == arguments_key(values.get("arguments"))
        return changed or call.value == values.get("result")
