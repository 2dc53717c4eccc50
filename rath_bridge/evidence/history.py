"""The history that a packet tells: bodies, envelopes and refs, checked as they stream by."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import DecodeError, InvalidNameError, RathError, in_words
from rath_bridge.evidence.layout import BODIES, CHUNKS, REFS
from rath_bridge.evidence.reading import shown
from rath_bridge.model.chunk import Chunk, parse_envelope, parse_time
from rath_bridge.model.digests import Digest, digest, is_digest
from rath_bridge.model.reaching import Reference, body_references
from rath_bridge.session import check_name
from rath_bridge.verbs.fsck import Finding
from rath_bridge.verbs.pairing import Pairing, call_events

_HINTS: Final = ("phase", "parent", "call_id", "same_as", "replaces")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a chunk stands."""

    stretch: int
    position: int
    line: int


class History:
    """Collects findings while bodies (first) and envelopes (then) are fed in; keeps digests, not content."""

    def __init__(self, findings: list[Finding]) -> None:
        self._found = findings
        self.chunks: dict[Digest, _Place] = {}
        self.references: dict[Reference, str] = {}
        """What bodies refer to, each with the place that names it first."""
        self.without_body: set[Digest] = set()
        self._bodies: list[bytes] = []
        """Raw digests, in order."""
        self._sizes = array("Q")
        self._lines: dict[bytes, list[int]] = {}
        self._passed: dict[bytes, int] = {}
        """Of equal bodies, how many at the front are used."""
        self._hints: dict[bytes, Any] = {}
        """What pairing needs of a body."""
        self._next = 0
        self._used = bytearray()
        self._tips: list[Digest] = []
        self._childless: dict[Digest, int] = {}
        self._orphans: list[tuple[Digest, Digest, int]] = []
        self._pairing = Pairing()
        self._bare: list[tuple[int, Digest]] = []
        """Chunks whose body was not found, each with the line at which it should stand at the earliest."""

    @property
    def bodies(self) -> int:
        """How many bodies there are."""
        return len(self._bodies)

    # ---------------------------------------------------------------- bodies

    def body(self, number: int, line: bytes) -> None:
        """Take one line of ``bodies.jsonl``."""
        name = sha256(line).digest()
        while len(self._bodies) < number - 1:  # a line that was too long to read
            self._bodies.append(b"")
            self._sizes.append(0)
            self._used.append(1)
        self._lines.setdefault(name, []).append(len(self._bodies))
        self._bodies.append(name)
        self._sizes.append(len(line))
        self._used.append(0)
        place = f"{BODIES}:{number}"
        try:
            value = orjson.loads(line)
            if b'"digest"' in line:
                for reference in body_references(value):
                    if is_digest(reference.digest):
                        self.references.setdefault(reference, place)
                    else:
                        self._found.append(Finding(shown(reference.digest), "a reference that is no digest", place))
        except (ValueError, TypeError, AttributeError, RecursionError, RathError) as error:
            self._found.append(Finding(name.hex(), f"the body cannot be read ({error})", place))
            return
        if type(value) is not dict:
            self._found.append(Finding(name.hex(), "the body is not a JSON object", place))
        elif "call_id" in value or "phase" in value or b'"tool_call"' in line:
            fields = cast("dict[str, Any]", value)
            parts: Any = fields.get("parts")
            hint = {key: fields[key] for key in _HINTS if key in fields}
            if isinstance(parts, list):
                calls = [cast("dict[str, Any]", part) for part in cast("list[Any]", parts) if type(part) is dict]
                hint["parts"] = [{"type": "tool_call", "id": c.get("id")} for c in calls if c.get("type") == "tool_call"]
            self._hints[name] = hint

    # ---------------------------------------------------------------- envelopes

    def chunk(self, number: int, line: bytes, erased: set[str]) -> None:
        """Take one line of ``chunks.jsonl``; all bodies are known."""
        place = f"{CHUNKS}:{number}"
        name = digest(line)
        if name in self.chunks:
            self._found.append(Finding(name, f"the chunk stands twice, first on line {self.chunks[name].line}", place))
            return
        try:
            chunk = parse_envelope(line, None, place=place)
        except (DecodeError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            self._found.append(Finding(name, f"the line is no envelope ({_problem(error)})", place))
            return
        where = self._place(chunk, number)
        self.chunks[name] = where
        self._childless[name] = number
        for parent in chunk.parents:
            if parent not in self.chunks or parent == name:
                self._orphans.append((parent, name, number))
            self._childless.pop(parent, None)
        self._match(chunk, where, place, erased)

    def _place(self, chunk: Chunk, number: int) -> _Place:
        above = self.chunks.get(chunk.parents[0]) if chunk.parents else None
        if above is not None and self._tips[above.stretch] == chunk.parents[0]:
            self._tips[above.stretch] = chunk.id
            return _Place(above.stretch, above.position + 1, number)
        stretch = self._pairing.stretch(None if above is None else (above.stretch, above.position))
        self._tips.append(chunk.id)
        return _Place(stretch, 0 if above is None else above.position + 1, number)

    def _match(self, chunk: Chunk, where: _Place, place: str, erased: set[str]) -> None:
        """Find the body of an envelope: the next one, unless something was dropped, added or moved."""
        wanted = bytes.fromhex(chunk.body_digest)
        at = self._next
        if at >= len(self._bodies) or self._bodies[at] != wanted:
            line = self._free(wanted)
            if line is None:
                self.without_body.add(chunk.id)
                if chunk.id not in erased:
                    problem = f"its body {chunk.body_digest} is missing or was changed, and it is not listed as erased"
                    self._found.append(Finding(chunk.id, problem, place))
                    self._bare.append((self._next, chunk.id))
                return
            at = line
            if at < self._next:
                self._found.append(Finding(chunk.id, f"its body stands out of order, on line {at + 1} of {BODIES}", place))
        self._used[at] = 1
        self._next = max(self._next, at + 1)
        if self._sizes[at] != chunk.size:
            problem = f"its body has {self._sizes[at]} bytes where {chunk.size} are written"
            self._found.append(Finding(chunk.id, problem, place))
        hint = self._hints.get(wanted)
        if hint is None:
            return
        events = call_events(chunk, hint)
        for event, first in self._pairing.feed(where.stretch, [replace(event, position=where.position) for event in events]):
            self._found.append(Finding(chunk.id, f"a second result of call {event.id!r}: {first} answered it", place))

    def _free(self, wanted: bytes) -> int | None:
        """A body that no envelope has yet: the next one of its kind, else the first that was passed over.

        Behind ``_next`` nothing is used; what is used before it is dropped, so that a million equal bodies are looked at once.
        """
        lines = self._lines.get(wanted, [])
        at = bisect_left(lines, self._next)
        if at < len(lines):
            return lines[at]
        start = self._passed.get(wanted, 0)
        while start < len(lines) and self._used[lines[start]]:
            start += 1
        self._passed[wanted] = start
        return lines[start] if start < len(lines) else None

    def finish(self) -> None:
        """Name what only shows once everything was read."""
        for parent, child, number in self._orphans:
            later = self.chunks.get(parent)
            problem = "is missing" if later is None else f"stands behind it, on line {later.line}"
            self._found.append(Finding(parent, f"it is the parent of {child}, but {problem}", f"{CHUNKS}:{number}"))
        instead = self._instead()
        for line, used in enumerate(self._used):
            if not used:
                problem = "no envelope names this body, or the envelope has one already"
                because = instead.get(line) or self._torn
                self._found.append(Finding(self._bodies[line].hex(), problem, f"{BODIES}:{line + 1}", because))

    @property
    def _torn(self) -> Digest:
        """The first chunk that is named as a parent and is not where it should be: what is counted from it is wrong, too."""
        return self._orphans[0][0] if self._orphans else ""

    def _instead(self) -> dict[int, Digest]:
        """Lines of bodies that nothing names, each with the chunk in whose body's place it stands."""
        found: dict[int, Digest] = {}
        after = 0
        for at, chunk in self._bare:
            after = max(at, after)
            if after < len(self._used) and not self._used[after]:
                found[after] = chunk
                after += 1
        return found

    # ---------------------------------------------------------------- refs

    def refs(self, value: Any) -> dict[str, Digest]:
        """Check ``refs.json`` against the chunks; return the heads by name."""
        heads: dict[str, Digest] = {}
        for number, ref in enumerate(cast("list[Any]", value) if isinstance(value, list) else []):
            try:
                self._ref(ref, f"{REFS}: ref {number + 1}", heads)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                problem = str(error) if isinstance(error, InvalidNameError) else repr(error)
                self._found.append(Finding(REFS, f"a ref that cannot be read ({shown(problem)})", f"{REFS}: ref {number + 1}"))
        if not heads:
            self._found.append(Finding(REFS, "it names no ref", REFS))
        for head in heads.values():
            self._childless.pop(head, None)
        for name, number in self._childless.items():
            self._found.append(Finding(name, "no chunk follows it and no ref stands at it", f"{CHUNKS}:{number}", self._torn))
        return heads

    def _ref(self, ref: dict[str, Any], place: str, heads: dict[str, Digest]) -> None:
        session, branch, head = check_name(ref["session"]), check_name(ref["branch"], "branch"), str(ref["head"])
        name = session if branch == "main" else f"{session}@{branch}"
        if name in heads:
            self._found.append(Finding(shown(name), "the ref stands twice", place))
        heads[name] = head
        standing = self.chunks.get(head)
        if standing is None:
            self._found.append(Finding(shown(head), f"{shown(name)} stands at it, but it is not in the packet", place))
        elif type(ref["position"]) is not int or standing.position != ref["position"]:
            problem = f"it gives position {ref['position']!r}, its head stands at {standing.position}"
            self._found.append(Finding(shown(name), problem, place, self._torn))
        before: str | None = None
        for number, move in enumerate(ref["reflog"]):
            at = f"{place}, move {number + 1}"
            if move["old"] != before:
                self._found.append(Finding(shown(name), f"the move starts from {move['old']!r}, not from {before}", at))
            before = str(move["new"])
            parse_time(move["at"])
            if type(move["reason"]) is not str:
                raise TypeError(f"move {number + 1} gives no reason")
            if before not in self.chunks:
                self._found.append(Finding(shown(before), "the reflog names it, but it is not in the packet", at))
        if before != head:
            self._found.append(Finding(shown(name), f"its reflog ends at {before}, not at its head", place))


def _problem(error: Exception) -> str:
    return error.problem if isinstance(error, DecodeError) else in_words(error)
