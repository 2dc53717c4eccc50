"""Messages of a run whose state no checkpointer keeps: its input, and what its message channel holds when a node begins and at the end.

Callbacks show all of that. What a node returned is noted by itself only where no state shows it any more: the run failed, or its output
leaves the messages out. Messages that the caller hands in again are those of the session (law 12).

Sources: ``langgraph.graph.message.add_messages``, ``langgraph.pregel.main.Pregel.stream`` (langgraph 1.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from langgraph.graph.message import add_messages  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command

from rath_bridge.model.chunk import Chunk, Draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Compaction, Run
from rath_bridge.model.report import align, manifest_of
from rath_bridge.recorder import Recorder, RunHandle
from rath_bridge.replay import current_tape
from rath_langgraph.compare import compare_key
from rath_langgraph.inputs import fields_of
from rath_langgraph.lift import TRANSCRIPT, difference, message_channel
from rath_langgraph.mirror import Mirror
from rath_langgraph.native import encode_chunks
from rath_langgraph.neutral import origin
from rath_langgraph.shown import Place, Shown

_END: Final = Place()
_ROOT: Final = "__root__"
WITH_MESSAGES: Final = "the graph's state, but for its messages: it has no checkpointer"
WITHOUT: Final = "the graph's state: it has no checkpointer, and no channel of messages is known in it"
"""Blind spots of such a run."""


def unsaved_spot(graph: Any) -> str | None:
    """What the run of a graph without a checkpointer says that it does not keep; None in a replay of a record that is older than this."""
    tape = current_tape()
    if tape is not None and not any(is_unsaved(chunk) for chunk in tape.held.chunks):
        return None
    return WITH_MESSAGES if _feed(graph) is not None else WITHOUT


def is_unsaved(chunk: Chunk) -> bool:
    """Whether it begins the run of a graph whose state no checkpointer kept."""
    if chunk.kind != "run" or chunk.body_bytes is None or b"it has no checkpointer" not in chunk.body_bytes:
        return False
    spots: Any = cast(Run, chunk.body).attributes.get("blind_spots")
    return isinstance(spots, list) and (WITH_MESSAGES in spots or WITHOUT in spots)


def _feed(graph: Any) -> str | None:
    """The channel that feeds the transcript; None where only values will show it."""
    channels: Mapping[str, Any] = getattr(graph, "channels", None) or {}
    found = [name for name, channel in channels.items() if _adds(channel)]
    if TRANSCRIPT in channels:
        return TRANSCRIPT
    return found[0] if len(found) == 1 else None


def _adds(channel: Any) -> bool:
    return add_messages in (getattr(channel, "operator", None), getattr(channel, "reducer", None))


class _Given(NamedTuple):
    """A message of the input."""

    message: BaseMessage
    chunk: Digest | None
    """Where it is on record."""
    edited: bool
    """It says something else now."""


class Unsaved:
    """The messages of one run. Safe from any thread; never breaks the graph."""

    def __init__(self, recorder: Recorder, run: RunHandle, graph: Any, inputs: Any, rows: Sequence[Sequence[object]]) -> None:
        """Take the input down; it is written when the first node begins, since it has its ids by then.

        Args:
            recorder: Where to write.
            run: The run that the messages belong to.
            graph: The compiled graph, if it is known.
            inputs: What the graph was invoked with.
            rows: Manifest of the messages that the run starts from.
        """
        self._recorder, self._run = recorder, run
        self._name = _feed(graph)
        self._converts = self._name is not None and _adds(graph.channels[self._name])
        self._lock = Lock()
        self._mirror = Mirror()
        self._held: list[Shown] = []
        """The messages of the state, all on record; the mirror is of these."""
        self._said: set[str] = set()
        self._told: list[Shown] = []
        self._results: list[BaseMessage] = []
        self._first: list[_Given] | None = []
        with self._kept():
            given = self._within(inputs)
            known = self._known(given, rows) if given else {}
            self._first = [_Given(message, *known.get(i, (None, False))) for i, message in enumerate(given)]

    # ---------------------------------------------------------------- what callbacks tell

    def step(self, values: Any) -> None:
        """A node begins on this state; None where it is given something else."""
        with self._kept():
            self._seen_now(self._messages(values))

    def result(self, update: Any) -> None:
        """A node has returned this."""
        with self._kept():
            self._results += self._within(update)

    def end(self, values: Any) -> None:
        """The run has ended with this state; None where it failed."""
        with self._kept():
            found = self._messages(values)
            self._seen_now(found)
            if found is None:
                self._left()

    @contextmanager
    def _kept(self) -> Generator[None]:
        """One at a time; what fails is a counted gap, or the recorder's error if it is strict."""
        try:
            with self._lock:
                yield
        except Exception as error:  # noqa: BLE001 - an observer never breaks the user's run
            self._recorder.defer(_raising(error))

    # ---------------------------------------------------------------- reading

    def _messages(self, values: Any) -> list[BaseMessage] | None:
        """The messages of a state; None where it does not show them."""
        found = self._value(values)
        if not isinstance(found, list) or not all(isinstance(item, BaseMessage) for item in cast("list[Any]", found)):
            return None
        return cast("list[BaseMessage]", found)

    def _value(self, values: Any) -> Any:
        if self._name == _ROOT:
            return values
        fields = None if values is None else fields_of(values)
        if fields is None:
            return None
        if self._name is None:
            self._name = message_channel(fields)
        return fields.get(self._name) if self._name is not None else None

    def _within(self, update: Any) -> list[BaseMessage]:
        """The messages of an input or of what a node returned, as far as they are messages or become ones."""
        found: list[BaseMessage] = []
        for one in _updates(update):
            value = self._value(one)
            given = cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]
            try:
                made = convert_to_messages(given) if self._converts else [m for m in given if isinstance(m, BaseMessage)]
            except (ValueError, NotImplementedError, TypeError, KeyError):  # the graph will say so
                continue
            found += [message for message in made if not isinstance(message, RemoveMessage)]
        return found

    def _known(self, given: Sequence[BaseMessage], rows: Sequence[Sequence[object]]) -> dict[int, tuple[Digest, bool]]:
        """Messages of the input that the session holds, with their chunk, and whether they say something else now."""
        if not rows and len(given) == 1 and given[0].id is None:
            return {}
        keys = [compare_key(message) for message in given]
        if rows:
            return {i: (name, False) for i, name in enumerate(align(manifest_of(rows), keys)) if name is not None}
        messages, report = encode_chunks(list(self._recorder.session.chunks()))
        ids = {messages[entry.position].id: entry for entry in report.manifest}
        known: dict[int, tuple[Digest, bool]] = {}
        for i, message in enumerate(given):
            entry = ids.get(message.id) if message.id is not None else None
            if entry is not None:
                known[i] = entry.chunk, entry.digest != keys[i]
        handed = [compare_key(message) for message in messages]
        if len(keys) > len(handed) > 0 and keys[: len(handed)] == handed:
            known.update({entry.position: (entry.chunk, False) for entry in report.manifest if entry.position not in known})
        return known

    # ---------------------------------------------------------------- comparing

    def _seen_now(self, values: list[BaseMessage] | None) -> None:
        if self._first is not None:
            waiting, self._first = self._first, None
            self._begin(waiting, [one.message for one in waiting] if values is None else values)
        elif values is not None:
            self._compare(values)

    def _begin(self, waiting: Sequence[_Given], values: Sequence[BaseMessage]) -> None:
        """The first state: what the caller handed in again is known, all else is new."""
        known: dict[int, tuple[Digest, bool]] = {}
        at = 0
        for message, chunk, edited in waiting:
            if chunk is None:
                continue
            place = next((i for i in range(at, len(values)) if _same(message, values[i])), None)
            if place is not None:
                known[place], at = (chunk, edited), place + 1
        self._mirror, self._held = Mirror(), []
        last, anchor = max(known, default=-1), None
        between: list[tuple[Shown, Place]] = []
        new: list[tuple[Shown, Place]] = []
        for i, message in enumerate(values):
            chunk, edited = known.get(i, (None, False))
            one = self._shown(message, None if edited else chunk)
            self._held.append(one)
            anchor = chunk or anchor
            if one.chunk is None and chunk is None and i < last and anchor is not None:  # an answer that closes a call, say
                between.append((one, Place(after=anchor)))
            elif one.chunk is None:
                new.append((one, Place(replaces=chunk)))
        for one, place in [*reversed(between), *new]:  # each goes directly behind its anchor
            self._tell(one, place)

    def _compare(self, values: Sequence[BaseMessage]) -> None:
        front = self._mirror.matches(values)
        if front == len(values) == len(self._held):
            return
        before, self._mirror = self._held, self._mirror.front(front)
        now = [*before[:front], *(self._shown(message) for message in values[front:])]
        if front == len(before):
            self._held = now
            for one in now[front:]:
                self._tell(one)
        else:
            self._changed(before, now)

    def _changed(self, before: Sequence[Shown], now: Sequence[Shown]) -> None:
        """Something that is on record was edited, moved or removed, or only looks so."""
        new = [one.name() for one in now]
        at = 0
        for entry in before:  # one that was written before it had an id
            if entry.id is None and entry.name() not in new:
                place = next((i for i in range(at, len(new)) if now[i].same() == entry.same()), None)
                if place is not None:
                    entry.becomes(now[place])
                    at = place + 1
        found = difference(
            [entry.name() for entry in before],
            new,
            lambda: [one.id for one in now],
            lambda places: [before[i].id for i in places],
        )
        points = found.dropped or any(said.replaces is not None or said.after is not None for said in found.said)
        chunks = self._standing() if points else {}
        names = [entry.chunk or chunks.get(entry.body or "") for entry in before]
        said = {one.place for one in found.said}
        self._held = [now[i] if i in said else before[i if found.appended else found.kept[i]] for i in range(len(now))]
        for one in found.said:
            stands = tuple(name for i in one.stands_for if (name := names[i]) is not None)
            ahead = None if one.replaces is None else names[one.replaces]
            behind = None if one.after is None else names[one.after]
            self._tell(now[one.place], Place(ahead, behind, stands))
        dropped = tuple(chunk for i in found.dropped if (chunk := names[i]) is not None)
        if dropped:
            self._recorder.emit(Compaction(dropped=dropped, reason="removed"), run=self._run, origin=origin())

    def _left(self) -> None:
        """What nodes returned and no state has shown."""
        told = Counter(one.same() for one in self._told)
        for message in self._results:
            if message.id is not None and message.id in self._said:
                continue
            if message.id is None and told[key := compare_key(message)]:
                told[key] -= 1
                continue
            self._tell(self._shown(message))

    def _standing(self) -> dict[Digest, Digest]:
        """Chunks of messages by the digest of their body."""
        return {chunk.body_digest: chunk.id for chunk in self._recorder.session.chunks() if chunk.kind == "message"}

    # ---------------------------------------------------------------- writing

    def _shown(self, message: BaseMessage, chunk: Digest | None = None) -> Shown:
        if message.id is not None:
            self._said.add(message.id)
        return Shown(message, self._mirror, chunk)

    def _tell(self, one: Shown, place: Place = _END) -> None:
        self._told.append(one)
        one.tell(self._recorder, self._run, place)


def _same(given: BaseMessage, held: BaseMessage) -> bool:
    return given is held or (given.id == held.id if given.id is not None else compare_key(given) == compare_key(held))


def _updates(update: Any) -> Iterator[Any]:
    """The states of an input or of what a node returned: commands and lists of updates are looked into."""
    for one in cast("list[Any]", update) if isinstance(update, list) else [update]:
        yield cast(Any, one).update if isinstance(one, Command) else one


def _raising(error: Exception) -> Callable[[], Draft]:
    def make() -> Draft:
        raise error

    return make
