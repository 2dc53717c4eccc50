"""The tape: one for a whole replay, whatever frameworks take part. It decides what becomes of each call, and keeps count.

Adapters find the recorded call that a live one is equal to (they know their framework's records), and ask the tape: `Tape.ask` says
whether to serve it, to serve another value, to make it live, or ends the run with a divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, Literal, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Usage
from rath_bridge.replay.divergence import Divergence, ReplayDivergenceError, ReplayHaltedError
from rath_bridge.replay.effects import Policy, Rules
from rath_bridge.replay.held import Held, HeldCall
from rath_bridge.replay.overrides import Overrides, label
from rath_bridge.session import Session

Kind = Literal["model", "tool", "input", "guardrail", "code"]
Action = Literal["serve", "value", "live", "error"]

_tape: Final[ContextVar[Tape | None]] = ContextVar("rath_bridge_tape", default=None)


def current_tape() -> Tape | None:
    """Return the tape of the replay that the calling code runs in; None outside of one."""
    return _tape.get()


@contextmanager
def set_aside() -> Generator[None]:
    """Let no tape be current inside the block."""
    token = _tape.set(None)
    try:
        yield
    finally:
        _tape.reset(token)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one call."""

    action: Action
    """``serve`` the recorded answer that was found; answer with ``value``; make the call ``live``; answer with the ``error``."""
    value: Any = None
    """For ``value``: the answer, in neutral form (a tool's result; for a model, a text or a list of output items). For ``live``: what
    stands in for the model, where it was overridden; None is the model itself."""
    error: str | None = None
    """For ``error``: what to tell the model."""
    prompt: Any = None
    """For ``live`` model calls: the instructions to use instead, where they were overridden (a text, or a function of the text)."""
    chunk: Digest | None = None
    """For ``value``: the recorded call that it stems from."""


@dataclass(slots=True, eq=False)
class Tape:
    """A record that is being replayed. Safe from any thread."""

    held: Held
    rules: Rules = field(default_factory=Rules)
    overrides: Overrides = field(default_factory=Overrides)
    until: int | None = None
    """Position of the last chunk that is served; None serves all."""
    then: Literal["halt", "live"] = "halt"
    allow_effects: bool = False
    after: int = -1
    """Position of the last chunk that stands before the replay begins."""
    players: dict[str, Any] = field(default_factory=dict[str, Any])
    served: int = 0
    spent: Usage = field(default_factory=Usage)
    """What the model calls that were served have cost, then."""
    made: list[str] = field(default_factory=list[str])
    """What was made live, in order."""
    misses: list[Divergence] = field(default_factory=list[Divergence])
    unknown: list[HeldCall] = field(default_factory=list[HeldCall])
    """Calls whose intent is on record and whose result is not, and that the run came to again."""
    kept: list[str] = field(default_factory=list[str])
    """Writes that were answered from the record although the run had left it: they are not done twice."""
    changed_again: list[str] = field(default_factory=list[str])
    """Writes that came again, and were answered by what an override says of an equal call."""
    repeated: list[tuple[Digest, bool]] = field(default_factory=list[tuple[Digest, bool]])
    """Recorded chunks whose answers were given again, in order, and whether they were changed."""
    answered: set[Digest] = field(default_factory=set[Digest])
    """Chunks of recorded calls that were answered for (served, overridden, or made live)."""
    parted: bool = False
    """The run has left the record, as asked."""
    changed: bool = False
    """Something was answered otherwise than recorded, or made live: what follows is new."""
    halted: str | None = None
    reasons: list[str] = field(default_factory=list[str])
    """Why something of the record could not be made again, as found while it ran."""
    lacking: list[str] = field(default_factory=list[str])
    """What a run that was made again could not be given: a reason where the replay left the record, else a note."""
    program: Any = None
    """What is run."""
    over: bool = False
    """The replay has ended: what it left running is answered no more, and makes nothing live."""
    _lock: RLock = field(default_factory=RLock)

    @classmethod
    def of(
        cls,
        session: Session,
        *,
        until: Chunk | Digest | int | None = None,
        then: str = "halt",
        overrides: Mapping[Any, Any] | None = None,
        policy: Policy | None = None,
        allow_effects: bool = False,
        after: Chunk | Digest | int | None = None,
    ) -> Tape:
        """Read a record.

        Raises:
            ValueError: ``until``, ``then``, an override or a policy means nothing for this record.
        """
        if then not in ("halt", "live"):
            raise ValueError(f"then={then!r} is not 'halt' or 'live'")
        held = Held.of(session, _position(session, after, -1))
        changes = Overrides.read(overrides, held)
        stop: int | None = None if until is None else _position(session, until, -1)
        begin = _position(session, after, -1)
        if stop is not None and stop < begin:
            raise ValueError(f"until={stop} lies before after={begin}: the run would begin behind its end")
        return cls(held, Rules.read(policy), changes, stop, cast(Any, then), allow_effects, begin)

    @property
    def session(self) -> Session:
        """The record, as far as it can be read: adapters read it as any session."""
        return self.held.readable

    @property
    def divergence(self) -> Divergence | None:
        """The first place where the run left the record without being asked to."""
        return self.misses[0] if self.misses else None

    @property
    def may_part(self) -> bool:
        """Whether the run may do something that is not on record."""
        return self.until is not None or bool(self.overrides) or any(one.on_miss == "live" for _, one in self.rules.of)

    @property
    def point(self) -> int | None:
        """Position of the last chunk up to which the run and the record must be the same; None where the replay does not name one."""
        changed = None if self.overrides.first is None else self.overrides.first - 1
        return changed if self.until is None else self.until if changed is None else min(self.until, changed)

    def told(self) -> str:
        """Return in words what the replay was asked to change."""
        names = list(dict.fromkeys(self.overrides.given))
        until = [] if self.until is None else [f"until {self.until}, then {self.then}"]
        return "; ".join([*until, *(["changed: " + ", ".join(names)] if names else [])]) or "replay"

    def player(self, adapter: str) -> Any:
        """Return an adapter's player."""
        return self.players.get(adapter)

    @contextmanager
    def current(self) -> Generator[None]:
        """Make this tape the current one inside the block."""
        token = _tape.set(self)
        try:
            yield
        finally:
            _tape.reset(token)

    # ---------------------------------------------------------------- what adapters call

    def ask(
        self,
        kind: Kind,
        name: str | None,
        *,
        chunk: Digest | None = None,
        arguments: Any = None,
        expected: Divergence | Callable[[], Divergence] | None = None,
    ) -> Verdict:
        """Decide what becomes of a call, and count it.

        Args:
            kind: ``model`` (``name`` is the agent), ``tool``, ``input`` (a person), ``guardrail``, ``code``.
            name: Agent, tool, person, guardrail.
            chunk: The recorded call that this one is equal to (its ``inference``, ``tool_result`` or ``message`` chunk); None where
                there is none.
            arguments: Of a tool.
            expected: Where there is none: how this call differs from what the record has next. A function of it is asked only when
                it is needed.

        Raises:
            ReplayDivergenceError: The record has no such call, and nothing says what to do then.
            ReplayHaltedError: The replay was asked to halt here.
        """
        with self._lock:
            return self._ask(kind, name, chunk, arguments, expected)

    def miss(self, divergence: Divergence) -> Divergence:
        """Note that the record does not hold something; returns it, to be raised."""
        with self._lock:
            self.misses.append(divergence)
            return divergence

    # ---------------------------------------------------------------- inside

    def _ask(
        self, kind: Kind, name: str | None, chunk: Digest | None, arguments: Any,
        expected: Divergence | Callable[[], Divergence] | None,
    ) -> Verdict:  # fmt: skip
        title = f"{kind} call of {name}" if kind == "model" and name else f"{kind} call" if name is None else f"{kind} {name}"
        if self.over:
            raise ReplayHaltedError(f"{title}, which came after the replay had ended")
        if self.halted is not None:
            raise ReplayHaltedError(self.halted)
        changed = self._changed(kind, name, chunk, arguments, title)
        if changed is not None:
            return changed
        position = self.held.position(chunk)
        if chunk is not None and (self.until is None or (position is not None and position <= self.until)):
            return self._serve(chunk)
        if chunk is not None:
            self.parted = True
            if kind == "tool" and not self._may_run(name, chunk):
                changed = self._as_changed(name or "", arguments)
                if changed is not None:
                    return self._again(changed, title)
                self.kept.append(title)
                return self._serve(chunk)
            self._note(chunk)
            return self._go_on(title)
        if kind == "tool" and (known := self._done_before(name or "", arguments)) is not None:
            return self._again(known, title)
        divergence = expected() if callable(expected) else expected
        where = None if divergence is None else self.held.position(divergence.chunk)
        if not self.parted and self.until is not None and (where is None or where > self.until):
            self.parted = True
        pattern = f"model:{name}" if kind == "model" else name or ""
        told = self.rules.on_miss(pattern)
        if self.parted and told is None:
            return self._go_on(title)
        if told == "live":
            return self._live(title)
        divergence = divergence or Divergence(title, "a call", "no such call")
        self.misses.append(divergence)
        if told == "error" and kind != "model":
            return Verdict("error", error=f"not on record: {divergence}")
        raise ReplayDivergenceError(divergence)

    def _changed(self, kind: Kind, name: str | None, chunk: Digest | None, arguments: Any, title: str) -> Verdict | None:
        """Apply an override."""
        call = self.held.call_at(chunk) if kind == "tool" else None
        found = self.overrides.at(chunk, call)
        if found is not None and chunk is not None:
            self.repeated.append((chunk, True))
            self.parted = self.changed = True
            self._note(chunk)
            return Verdict("value", found.value, chunk=chunk)
        if kind == "tool" and name is not None and name in self.overrides.tools:
            self.parted = self.changed = True
            self._note(chunk)
            change = self.overrides.tools[name]
            self.overrides.taken.add(label("tool", name))
            return Verdict("value", change(arguments) if callable(change) else change, chunk=chunk)
        if kind == "model" and name is not None:
            model, prompt = self.overrides.models.get(name), self.overrides.prompts.get(name)
            if model is not None or prompt is not None:
                self.parted = self.changed = True
                self._note(chunk)
                self.made.append(title)
                told = {"model": model, "prompt": prompt}
                self.overrides.taken.update(label(what, name) for what, given in told.items() if given is not None)
                return Verdict("live", model, prompt=prompt)
        return None

    def _serve(self, chunk: Digest) -> Verdict:
        self.served += 1
        self.repeated.append((chunk, False))
        self._note(chunk)
        cost = self.held.spent(chunk)
        if cost is not None:
            self.spent += cost
        return Verdict("serve", chunk=chunk)

    def _note(self, chunk: Digest | None) -> None:
        if chunk is not None:
            call = self.held.call_at(chunk)
            self.answered.update(call.chunks if call is not None else (chunk,))

    def _go_on(self, title: str) -> Verdict:
        if self.then == "halt":
            self.halted = title
            raise ReplayHaltedError(title)
        return self._live(title)

    def _live(self, title: str) -> Verdict:
        self.changed = True
        self.made.append(title)
        return Verdict("live")

    def _may_run(self, name: str | None, chunk: Digest) -> bool:
        """Tell whether a recorded tool call may be made live: what it writes was written."""
        call = self.held.call_at(chunk)
        effect = self.rules.effect(name or "", call.effect if call is not None else None)
        return self.allow_effects or effect != "writes"

    def _done_before(self, name: str, arguments: Any) -> HeldCall | None:
        """Find a write of the record that this call would do again, or one of which nobody knows whether it was done."""
        same = [call for call in self.held.same(name, arguments) if call.position > self.after and call.started]
        found = next((call for call in same if call.unknown), same[-1] if same else None)
        found = self._as_changed(name, arguments) or found
        if found is None or self.allow_effects or self.rules.effect(name, found.effect) != "writes":
            return None
        return found if found.unknown or self.parted or self.rules.on_miss(name) == "live" else None

    def _as_changed(self, name: str, arguments: Any) -> HeldCall | None:
        """Find the equal call whose answer was changed: what would be done again is answered as in the world of the what-if."""
        same = [call for call in self.held.same(name, arguments) if call.position > self.after]
        return next((call for call in reversed(same) if self.overrides.changes(call)), None)

    def _again(self, call: HeldCall, title: str) -> Verdict:
        change = self.overrides.at(call.end or next(iter(call.chunks), None), call)
        if change is not None:
            self.parted = self.changed = True
            self.changed_again.append(title)
            self.repeated.extend([] if call.end is None else [(call.end, True)])
            return Verdict("value", change.value, chunk=call.end)
        if not call.unknown:
            self.kept.append(title)
            self.served += 1
            if call.end is not None:
                self.repeated.append((call.end, False))
            return Verdict("value", call.value, chunk=call.end)
        if call not in self.unknown:
            self.unknown.append(call)
        told = "its intent, and no result: nobody knows whether it was done (look, then allow effects, or serve a result by an override)"
        raise ReplayDivergenceError(self.miss(Divergence(title, "the call", told, call.chunks[0] if call.chunks else None)))


def _position(session: Session, place: Chunk | Digest | int | None, default: int) -> int:
    if place is None:
        return default
    if not isinstance(place, (int, str, Chunk)) or isinstance(place, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{place!r} is no chunk of {session.name}: give a position, a digest or a Chunk")
    if isinstance(place, int):
        at = place + len(session) if place < 0 else place
        if not 0 <= at < len(session):
            raise ValueError(f"{session.name} has {len(session)} chunks, there is no number {place}")
        return at
    name = place.id if isinstance(place, Chunk) else place
    found = [chunk.position for chunk in session.chunks() if chunk.id.startswith(name)] if len(name) >= 4 else []
    if len(found) != 1:
        raise ValueError(f"{name[:16]!r} is {'no chunk' if not found else 'not one chunk'} of {session.name}")
    return found[0]
