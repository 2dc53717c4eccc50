"""The transcript of one run as it grows: which items of a model's input are new, and what a model says.

Every model call is handed the whole list again. An item is known when it stands behind the last known one in what this run
has seen; content alone never decides, so two turns that both say "yes" stay two (law 12).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, Final

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Native
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Body, Handoff, ToolResult
from rath_bridge.model.report import ManifestEntry, align
from rath_bridge.model.trees import Tree, list_tree
from rath_bridge.recorder import Recorder, RunHandle
from rath_openai_agents.decode import native, texts
from rath_openai_agents.encode import standing
from rath_openai_agents.items import NATIVE, PAIRS, Known, from_bytes, grouped, known, of_model, parse, table, to_bytes
from rath_openai_agents.messages import message

Write = Callable[[Body, Native | None, Mapping[Digest, bytes] | None], None]
"""Writes one chunk of the run: body, native record, objects."""


@dataclass(slots=True)
class Asked:
    """A call that the model's last reply asked for, until somebody is seen running it."""

    call_id: str
    name: str
    arguments: Any
    exact: bool
    """Recorded, not read from a span."""
    to_agent: str | None = None
    """The agent that it hands off to."""
    kind: str = "function_call"
    """Type of its item."""
    taken: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """A model's input, ready for an ``inference`` chunk."""

    ref: TreeRef
    objects: Mapping[Digest, bytes]
    """New nodes, new items, and the long texts inside them."""
    rows: Sequence[Known]
    erasures: int
    """Of the store, when the rest was taken for stored."""

    def whole(self) -> Mapping[Digest, bytes]:
        """All nodes and items, and the long texts inside them."""
        found = list_tree([row.raw for row in self.rows])[1] | {row.raw.hex(): row.data for row in self.rows}
        return {**found, **texts([replace(row, value=from_bytes(row.data)) for row in self.rows])}


@dataclass(slots=True)
class Conversation:
    """State of one transcript: a top-level run's, or that of an agent used as a tool."""

    recorder: Recorder
    run: RunHandle | None
    """The run that its messages belong to."""
    manifest: Sequence[ManifestEntry] = ()
    """What `encode` handed over to this run."""
    bounded: bool = False
    """Its end is known, so that every call belongs to one run; without it, the start of another run is concluded."""
    hooked: bool = False
    """Hooks see its tools start."""
    asked: list[Asked] = field(default_factory=list[Asked])
    _seen: list[ManifestEntry] | None = None
    """Comparison keys of all items so far, in order."""
    _items: dict[bytes, Known] = field(default_factory=dict[bytes, Known])
    """Items that were worked out, by their bytes as they came; values dropped."""
    _tree: Tree | None = None
    _unsaved: dict[Digest, bytes] = field(default_factory=dict[Digest, bytes])
    """Objects that no chunk on record has brought yet."""
    _erasures: int = -1
    """`Recorder.erasures` since which all that was brought is taken for stored."""
    _last: Sequence[Any] = ()
    _said: bool = False
    """The model has said something since the last input."""
    _lock: RLock = field(default_factory=RLock)

    def take_input(self, items: Sequence[Any], write: Write, *, turn: int | None = None, exact: bool = True) -> Input:
        """Note what a model is handed: write the messages that are new, and return the input as a list tree.

        Args:
            items: The whole list, or (with a server-side conversation) what is new.
            write: Writes a message.
            turn: Turn of the run.
            exact: The items are the SDK's own; without it they were put together from a span, and no native record is kept.
        """
        with self._lock:
            if self.recorder.erased_since(self._erasures):
                self._items.clear()
                self._tree = None
            self._erasures = self.recorder.erasures
            rows = [self._known(item) for item in items]
            tree, nodes = list_tree([row.raw for row in rows], self._tree)
            self._tree = tree
            self._unsaved.update(nodes)
            if not self.bounded and not self._goes_on(items, rows):
                self._seen, self.manifest = None, ()
            self._last, self._said = items, False
            first = self._seen is None
            new, basis = self._new(rows)
            # values of known items are not kept; these few are read again
            fresh = [replace(rows[i], value=from_bytes(rows[i].data)) for i in new]
            if not first:
                # a list that was rewritten (a nested history, a filter) puts words into the model's mouth: not said, so no message
                fresh = [row for row in fresh if not of_model(row.value)]
            for start, stop in grouped([row.value for row in fresh]):
                self._write(fresh[start:stop], write, turn=turn, exact=exact, basis=basis)
            return Input(tree.ref, dict(self._unsaved), rows, self._erasures)

    def saved(self, given: Input) -> None:
        """Note that an input's objects are on record."""
        with self._lock:
            for name in given.objects:
                self._unsaved.pop(name, None)

    def take_output(
        self,
        items: Sequence[Any],
        write: Write,
        *,
        name: str | None = None,
        turn: int | None = None,
        finish_reason: str | None = None,
        exact: bool = True,
        handoffs: Mapping[str, str] | None = None,
    ) -> None:
        """Note what a model said: one message, and the calls that it asks for.

        Args:
            items: Output items as JSON.
            write: Writes a message.
            name: The agent.
            turn: Turn of the run.
            finish_reason: Why the model stopped.
            exact: As for `take_input`.
            handoffs: Tool name to agent, where known.
        """
        with self._lock:
            rows = [known(self._clean(item), f"output[{i}]") for i, item in enumerate(items)]
            self._said = self._said or bool(rows)
            self._seen = self._seen or []
            self._seen += [ManifestEntry(len(self._seen), "", row.key) for row in rows]
            self.asked = [_asked(row.value, exact, handoffs or {}) for row in rows if str(row.value.get("type")) in PAIRS]
            if rows:
                self._write(rows, write, name=name, turn=turn, finish_reason=finish_reason, exact=exact)

    def stands(self, keys: Sequence[Digest]) -> None:
        """Note items that somebody else has put on record (a ``RathSession`` of the same session): they are known from here on."""
        with self._lock:
            seen = self._seen or []
            self._seen = seen + [ManifestEntry(len(seen) + n, "", key) for n, key in enumerate(keys)]

    @property
    def begun(self) -> bool:
        """Tell whether it is known what this run goes on from."""
        return self._seen is not None

    def go_on_from(self, before: Conversation) -> None:
        """Take over what was noted before this run's first span (a session's history is read ahead of it)."""
        with before._lock:
            if not before._said:
                self._seen, before._seen = before._seen, None

    def take_rest(self, items: Sequence[Any], write: Write) -> None:
        """Note what a run ended with and no model was handed: the last answers of tools."""
        if self._seen is not None:
            self.take_input(items, write)

    def pair(self, name: str, arguments: Any, *, any_arguments: bool = False) -> Asked | None:
        """Take the first call of this name (and these arguments) that nobody has taken."""
        with self._lock:
            for asked in self.asked:
                if not asked.taken and asked.name == name and (any_arguments or asked.arguments == arguments):
                    asked.taken = True
                    return asked
            return None

    def pair_kind(self, kind: str | None) -> Asked | None:
        """Take the first call of an item type that nobody has taken: the SDK carries out such calls one after the other."""
        with self._lock:
            found = next((asked for asked in self.asked if not asked.taken and asked.kind == kind), None)
            if found is not None:
                found.taken = True
            return found

    def take_call(self, call_id: str) -> None:
        """Note that somebody was seen running a call."""
        with self._lock:
            for asked in self.asked:
                if asked.call_id == call_id:
                    asked.taken = True

    def pair_handoff(self, to_agent: str | None) -> Asked | None:
        """Take the call that hands off to an agent: by what the model was offered, else by the SDK's default tool name."""
        with self._lock:
            left = [asked for asked in self.asked if not asked.taken]
            told = [asked for asked in left if asked.to_agent is not None and asked.to_agent == to_agent]
            named = [asked for asked in left if asked.name.startswith("transfer_to_")]
            found = next(iter(told or named), None)
            if found is not None:
                found.taken = True
            return found

    # ---------------------------------------------------------------- inside

    def _clean(self, item: Any) -> Any:
        redactor = self.recorder.redactor
        return item if redactor is None else redactor.apply(item)

    def _known(self, item: Any) -> Known:
        came = to_bytes(item)
        found = self._items.get(came)
        if found is None:
            full = known(self._clean(item))
            self._unsaved[full.raw.hex()] = full.data
            self._unsaved.update(texts([full]))
            # the value may be the caller's own, changeable dict
            found = replace(full, value={}, data=came if full.data == came else full.data)
            self._items[came] = found
        return found

    def _goes_on(self, items: Sequence[Any], rows: Sequence[Known]) -> bool:
        """Tell a further call of the run at hand from the first call of another one."""
        if self._seen is None or items is self._last:  # the SDK hands a failed attempt's own list over again
            return True
        answered = {table(item).get("call_id") for item in items}
        if any(asked.call_id in answered for asked in self.asked):
            return True
        keys = [entry.digest for entry in self._seen]
        return self._said and [row.key for row in rows[: len(keys)]] == keys

    def _new(self, rows: Sequence[Known]) -> tuple[list[int], str | None]:
        """Return the places of the new items, and ``inferred`` where the known ones were concluded."""
        keys = [row.key for row in rows]
        basis = None
        if self._seen is None:
            before = self.manifest
            if not before and self._top and len(keys) > 1:
                before = self._standing(keys)
                basis = "inferred" if before else None
            self._seen = list(before)
        found = align(self._seen, keys)
        new = [i for i, chunk in enumerate(found) if chunk is None]
        self._seen += [ManifestEntry(len(self._seen) + n, "", keys[i]) for n, i in enumerate(new)]
        return new, basis

    @property
    def _top(self) -> bool:
        return self.run is None or self.run.parent is None

    def _standing(self, keys: Sequence[Digest]) -> tuple[ManifestEntry, ...]:
        """Return the whole transcript where a longer list begins with it: somebody handed ``to_input_list()`` over by hand."""
        try:
            for found in standing(self.recorder.session):
                if 0 < len(found) < len(keys) and [entry.digest for entry in found] == list(keys[: len(found)]):
                    return found
        except RathError:  # nothing to compare with: every item is new
            pass
        return ()

    def _write(self, rows: Sequence[Known], write: Write, *, exact: bool, **fields: Any) -> None:
        body = message([row.value for row in rows], **fields)
        write(body, native(rows) if exact else None, texts(rows))


def _asked(item: Mapping[str, Any], exact: bool, handoffs: Mapping[str, str]) -> Asked:
    kind = str(item.get("type"))
    name = str(item.get("name") or NATIVE.get(kind) or kind)
    given = next((item[field] for field in ("arguments", "input", "action", "actions", "operation") if field in item), None)
    return Asked(str(item.get("call_id") or item.get("id")), name, parse(given), exact, handoffs.get(name), kind)


def handoff_bodies(from_agent: str | None, to_agent: str | None, asked: Asked | None, marks: Mapping[str, Any]) -> list[Body]:
    """Return a handoff's chunks: itself, and the answer to the call that asked for it.

    An input filter or a nested history may keep the answer from every later model call; the SDK's own text stands in for it.
    """
    if asked is None:
        return [Handoff(from_agent=from_agent, to_agent=to_agent, attributes=marks)]
    basis = None if asked.to_agent is not None else "inferred"
    body = Handoff(
        from_agent=from_agent, to_agent=to_agent, call_id=asked.call_id, input=asked.arguments, basis=basis, attributes=marks
    )
    answer = json.dumps({"assistant": to_agent})
    return [body, ToolResult(name=asked.name, call_id=asked.call_id, result=answer, basis="inferred")]


_LIMIT: Final = 64
_ambient: dict[tuple[str, str | None, str | None], Conversation] = {}
_ambient_lock: Final = RLock()


def ambient(recorder: Recorder, run: RunHandle | None, trace_id: str | None) -> Conversation:
    """Return the conversation of a run that somebody else began (a node of a graph, ``recorder.run``); the last few are kept."""
    place = (recorder.id, run.id if run else None, trace_id)
    with _ambient_lock:
        found = _ambient.pop(place, None) or Conversation(recorder, run)
        _ambient[place] = found
        while len(_ambient) > _LIMIT:
            del _ambient[next(iter(_ambient))]
        return found


__all__ = ["Asked", "Conversation", "Input", "Write", "ambient", "handoff_bodies"]
