"""Tool calls, read in one place: from chunks of their own where they stand, else from the parts of messages.

Some frameworks tell of a call by a ``tool_call`` and a ``tool_result`` chunk; of others, and of a chat that was imported, only messages
tell: a ``tool_call`` part asks, a ``tool_call_response`` part answers. Where both stand, it is one call, and the chunks of its own
count: an answer in a message adds nothing to a ``tool_result``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

import orjson

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest

CALLS: Final = frozenset({"run", "message", "tool_call", "tool_result"})
"""Kinds that tell of calls, or of how runs nest, in which their ids are scoped."""
What = Literal["asked", "started", "result", "answered"]


@dataclass(frozen=True, slots=True)
class Told:
    """What one chunk tells of one call."""

    what: What
    """``asked`` and ``answered`` in a message, ``started`` and ``result`` in a chunk of its own."""
    id: Any
    """The call's id: a text, unless somebody plays."""
    name: str = ""
    """The tool, where it is said here."""
    value: Any = None
    """The arguments of a call that is asked for or started; what came of one that is over."""
    status: str = "pending"
    """``ok``, ``error`` or ``no_response`` of one that is over."""


@dataclass(slots=True)
class Call:
    """One tool call through its life, folded from the chunks that tell of it."""

    scope: str
    """The top-level run in which its id is unique; empty outside of runs."""
    call_id: str
    name: str
    asked: Digest | None = None
    """The message chunk in which a model asked."""
    started: Digest | None = None
    """The ``tool_call`` chunk."""
    result: Digest | None = None
    """The ``tool_result`` chunk."""
    answered: Digest | None = None
    """The message chunk that carries the answer."""
    status: str = "pending"
    """``pending``, ``ok``, ``error`` or ``no_response``."""
    extra: list[Digest] = field(default_factory=list[Digest])
    """Further ``tool_result`` chunks: a fault (law 8)."""

    @property
    def begun(self) -> Digest | None:
        """The chunk that tells of its beginning best: what was done, else what was asked for."""
        return self.started or self.asked

    @property
    def ended(self) -> Digest | None:
        """The chunk that tells how it ended best: a result of its own, else a message's answer."""
        return self.result or self.answered


def failed(part: Mapping[str, Any]) -> bool:
    """Tell whether an answer in a message says that its call failed: frameworks say ``is_error`` or ``status: error``."""
    return bool(part.get("is_error")) or part.get("status") == "error"


def told(kind: str, body: Any) -> Iterator[Told]:
    """What a chunk tells of calls, those without an id too; a message that repeats or edits another one tells nothing.

    Args:
        kind: Of the chunk.
        body: Its body as a map, decoded or as its JSON stands; nothing in it is taken for granted.
    """
    if kind not in CALLS or not isinstance(body, Mapping):
        return
    value = cast("Mapping[str, Any]", body)
    if kind == "tool_call":
        yield Told("started", value.get("call_id"), _text(value.get("name")), value.get("arguments"))
    elif kind == "tool_result":
        result = value.get("result") if value.get("error") is None else value["error"]
        yield Told("result", value.get("call_id"), _text(value.get("name")), result, _text(value.get("status", "ok")))
    elif kind == "message" and not value.get("same_as") and not value.get("replaces"):
        parts: Any = value.get("parts")
        for part in cast("list[Any]", parts) if isinstance(parts, list | tuple) else ():
            if isinstance(part, Mapping):
                yield from _part(cast("Mapping[str, Any]", part))


def _part(part: Mapping[str, Any]) -> Iterator[Told]:
    if part.get("type") == "tool_call":
        yield Told("asked", part.get("id"), _text(part.get("name")), part.get("arguments"))
    elif part.get("type") == "tool_call_response":
        value = part.get("response", part.get("result"))  # the older name of the field
        yield Told("answered", part.get("id"), _text(part.get("name")), value, "error" if failed(part) else "ok")


def _text(value: Any) -> str:
    """A name is a text; what else may stand there (half a surrogate pair, in JSON as it stands) is told as JSON."""
    return value if isinstance(value, str) else "" if value is None else orjson.dumps(value, default=repr).decode()


class CallFold:
    """Pairs calls with results (law 8). Fed chunks in order; in a history that was merged, parents first.

    Ids are scoped by top-level run, and an id that is used again after its call was closed is another call. A call that was asked
    for in one run and left open, and is carried out in a later one that did not ask for it (an approval, a resumed run), is one call.
    """

    def __init__(self, roots: Mapping[str, str] | None = None, *, part: bool = False) -> None:
        """Begin with nothing.

        Args:
            roots: The top-level run of each run, where that is known already; else runs are learned as they begin.
            part: What is fed begins in the middle of a line: the beginning of a call may stand before it.
        """
        self._part = part
        self._roots = dict(roots or {})
        self._found: list[Call] = []
        self._latest: dict[tuple[str, str], Call] = {}

    def scope(self, run: str | None) -> str:
        """The top-level run that a run nests in; empty outside of runs."""
        return self._roots.get(run, run) if run else ""

    def feed(self, chunk: Chunk, body: Any) -> list[Told]:
        """Take the next chunk.

        Args:
            chunk: Only its envelope is looked at.
            body: As for `told`.

        Returns:
            What it told of calls.
        """
        if chunk.kind == "run":
            self._begin(chunk, body)
            return []
        found = list(told(chunk.kind, body))
        scope = self.scope(chunk.run)
        for one in found:
            if one.id is not None:
                self._take(chunk.id, scope, str(one.id), one)
        return found

    def calls(self) -> list[Call]:
        """The calls so far, in order of first appearance."""
        return _resumed([replace(call, extra=[*call.extra]) for call in self._found])

    def _begin(self, chunk: Chunk, body: Any) -> None:
        value = cast("Mapping[str, Any]", body if isinstance(body, Mapping) else {})
        if value.get("phase") == "begin" and chunk.run is not None and chunk.run not in self._roots:
            parent: Any = value.get("parent")
            self._roots[chunk.run] = self._roots.get(parent, parent) if isinstance(parent, str) and parent else chunk.run

    def _over(self, call: Call, what: What) -> bool:
        """Tell whether what begins under this id is another call."""
        if getattr(call, what) is not None:
            return True
        return self._part and (call.answered if what == "asked" else call.result) is not None

    def _take(self, name: Digest, scope: str, call_id: str, one: Told) -> None:
        call = self._latest.get((scope, call_id))
        if one.what == "answered":
            call = call or next((c for c in reversed(self._found) if c.call_id == call_id and c.status == "pending"), None)
            if call is not None and call.answered is None:
                call.answered = name
                if call.status == "pending":
                    call.status = one.status
            return
        if call is None or (one.what != "result" and self._over(call, one.what)):
            call = self._latest[scope, call_id] = Call(scope, call_id, one.name)
            self._found.append(call)
        if one.what == "asked":
            call.asked = name
        elif one.what == "started":
            call.started = name
        elif call.result is not None:
            call.extra.append(name)
        else:
            call.result, call.status = name, one.status


def _resumed(found: list[Call]) -> list[Call]:
    """Join each call that was carried out where nobody asked for it to the open one that asked, in an earlier run."""
    asking: dict[tuple[str, str], Call] = {}
    kept: list[Call] = []
    for call in found:
        before = asking.get((call.call_id, call.name))
        if call.asked is None and before is not None and before.scope != call.scope and before.status == "pending":
            before.started = before.started or call.started
            before.result, before.answered, before.status = call.result, call.answered, call.status
            before.extra += call.extra
            continue
        if call.asked is not None:
            asking[call.call_id, call.name] = call
        kept.append(call)
    return kept
