"""`replay`: the user's code runs, models and tools answer from the record, and nothing reaches the user's sessions (law 5)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from rath_bridge.errors import NameInUseError, RathError
from rath_bridge.given import check_program, check_session
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.plugins import adapters
from rath_bridge.recorder import Recorder, enter, leave, standin
from rath_bridge.replay.arriving import arriving
from rath_bridge.replay.branch import Branch
from rath_bridge.replay.comparing import NOTHING, first_difference
from rath_bridge.replay.counting import in_words, runs
from rath_bridge.replay.divergence import Divergence, ReplayDivergenceError, ReplayHaltedError, words
from rath_bridge.replay.effects import Policy
from rath_bridge.replay.inside import contradicted, inside_of_served
from rath_bridge.replay.leftover import standing_in
from rath_bridge.replay.players import frameworks, players
from rath_bridge.replay.report import ReplayReport, in_order
from rath_bridge.replay.tape import Tape
from rath_bridge.replay.twins import at_once
from rath_bridge.replay.unanswered import Unanswered, made_itself, reason, unanswered
from rath_bridge.replay.versions import versions
from rath_bridge.session import Session, Store, check_name, redirect
from rath_bridge.store.overlay import OverlayBackend
from rath_bridge.store.protocol import Backend
from rath_bridge.verbs.lineage import apart

Place = Chunk | Digest | int


def replay(
    session: Session,
    run: Callable[..., Any],
    *,
    until: Place | None = None,
    then: str = "halt",
    overrides: Mapping[Any, Any] | None = None,
    policy: Policy | None = None,
    allow_effects: bool = False,
    after: Place | None = None,
    branch: str | None = None,
) -> ReplayReport:
    """Run code again on a record: models and tools of every framework are served from it, and nothing live is called.

    Args:
        session: The record.
        run: What was run: a function without arguments (it opens what it needs; its recordings go to a scratch in memory), or one that
            takes the session to begin with (a scratch that holds what stood there before the first run, or up to ``after``): wrapped
            runnables are such functions. What it yields, as a generator, is in the report's ``value`` as a list.
        until: Serve the record up to this chunk (position, digest or `Chunk`), then go on as ``then`` says.
        then: ``halt`` or ``live``.
        overrides: What to change: a chunk to its new answer (a value, a map of paths such as ``body.result.rows[0]``, or a function of
            the old value); ``model:AGENT`` to the framework's own model; ``prompt:AGENT`` to instructions; ``tool:NAME`` to a
            function of the arguments, or a result.
        policy: Tool name or pattern to ``live``, ``error``, ``fail`` (what becomes of a call that the record does not hold), ``pure``,
            ``reads``, ``writes`` (what the tool does), or a `ToolPolicy` with both.
        allow_effects: Let writes that are on record be done again where the run goes on live.
        after: What stands up to this chunk is there already when the run begins.
        branch: Name of the branch on which a what-if is recorded; ``replay-<8 hex>`` when absent.

    Returns:
        What came of it; a divergence is a finding, not an exception.

    Raises:
        ValueError: An argument means nothing for this record; nothing was run.
        WrongTypeError: No Session, or no such function; nothing was run.
    """
    check_program(run, "replay")
    playing = _Replay.of(session, until, then, overrides, policy, allow_effects, after, branch)
    playing.tape.program = run
    if playing.may_run:
        with playing.stage() as scratch:
            playing.value = _called(run, scratch, playing)
    return playing.report()


async def areplay(session: Session, run: Callable[..., Any], **options: Any) -> ReplayReport:
    """Async twin of `replay`: ``run`` may be a coroutine function, or an `rath_bridge.transform.AsyncTransform`."""
    check_program(run, "areplay")
    playing = _Replay.of(session, *(options.pop(name, default) for name, default in _OPTIONS.items()))
    if options:
        raise TypeError(f"areplay() got unexpected arguments: {', '.join(options)}")
    playing.tape.program = run
    if playing.may_run:
        with playing.stage(awaited=True) as scratch:
            call = getattr(run, "acall", None) or run
            found = call(scratch()) if _takes_a_session(call) else call()
            found = await found if inspect.isawaitable(found) else found
            playing.value = await _all(found) if inspect.isasyncgen(found) else _listed(found)
    return playing.report()


_OPTIONS: Mapping[str, Any] = {
    "until": None, "then": "halt", "overrides": None, "policy": None, "allow_effects": False, "after": None, "branch": None,
}  # fmt: skip


def _called(run: Callable[..., Any], scratch: Callable[[], Session], playing: _Replay) -> Any:
    found = run(scratch()) if _takes_a_session(run) else run()
    if inspect.isasyncgen(found):
        found = _all(found)
    if not inspect.iscoroutine(found):
        return _listed(found)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _listed(asyncio.run(found))
    found.close()
    raise RuntimeError("a coroutine cannot be replayed from inside of a running loop: use await rath_bridge.areplay(...)")


def _listed(found: Any) -> Any:
    """A generator runs when it is asked, and that must be inside of the replay."""
    return list(cast("Generator[Any]", found)) if inspect.isgenerator(found) else found


async def _all(found: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in found]


def _beside(session: Session, after: int) -> Iterator[Digest]:
    """What stands on the session's other branches, where they parted within what is replayed: it was done in the same runs."""
    backend = session.store.kept
    for ref in backend.refs(session.session):
        if ref.branch != session.branch:
            base, _, theirs = apart(session.head, ref.head, backend)
            if base is None or backend.chunk(base).position >= after:
                yield from (chunk.id for chunk in theirs)


def _first_asked(chunks: Sequence[Chunk]) -> int:
    """Where a record without runs begins: with what its first call was asked, which the same observer wrote just before it."""
    first = next((chunk for chunk in chunks if chunk.kind in ("inference", "tool_call")), None)
    at = len(chunks) if first is None else first.position
    while first is not None and at and chunks[at - 1].kind == "message" and chunks[at - 1].origin == first.origin:
        at -= 1
    return at


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that the replay runs in."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def _takes_a_session(run: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(one.kind in positional and one.default is inspect.Parameter.empty for one in parameters)


@dataclass(slots=True)
class _Replay:
    """One replay, from its arguments to its report."""

    tape: Tape
    problems: tuple[str, ...]
    scratch: OverlayBackend
    branch: Branch
    alone: list[Unanswered]
    """Calls without a player."""
    value: Any = None
    error: str | None = None
    reasons: list[str] = field(default_factory=list[str])

    @classmethod
    def of(
        cls, session: Session, until: Any, then: str, overrides: Any, policy: Any, allow_effects: bool, after: Any,
        branch: str | None,
    ) -> _Replay:  # fmt: skip
        check_session(session, "replay")
        session = Session(session.store.bound(), session.session, session.branch, session.head, session.position)
        tape = Tape.of(
            session, until=until, then=then, overrides=overrides, policy=policy, allow_effects=allow_effects, after=after
        )  # fmt: skip
        tape.players, problems = players(tape)
        alone = unanswered(tape)
        problems += (reason(refused),) if (refused := [one for one in alone if not one.let]) else ()
        if branch is not None:
            check_name(branch, "branch")
            if tape.may_part and session.store.kept.ref(session.session, branch) is not None:
                raise NameInUseError(f"{session.session}@{branch}")
        hidden = {chunk.id for chunk in tape.held.chunks if chunk.position > tape.after} | set(_beside(session, tape.after))
        scratch = OverlayBackend(session.store.kept, session=session.session, hidden=hidden)
        following = Branch(tape, scratch, branch)
        if tape.may_part:
            scratch.follower = following.follow
        return cls(tape, problems, scratch, following, alone)

    @property
    def may_run(self) -> bool:
        """What is on record, and cannot be served, would run live."""
        return not self.problems

    @contextmanager
    def stage(self, *, awaited: bool = False) -> Generator[Callable[[], Session]]:
        """Set everything up: the tape is current, what is recorded goes to the scratch, frameworks answer from the record.

        Args:
            awaited: Somebody else may end the block from outside, by an exception of a kind of his own.
        """
        record = self.tape.held.session
        store = Store(self.scratch)
        if self.tape.after >= 0:
            self.scratch.stand(record.session, record.branch, self.tape.held.chunks[self.tape.after].id)
        with ExitStack() as undo:
            undo.callback(setattr, self.tape, "over", True)
            token = redirect.set(self._elsewhere)
            undo.callback(redirect.reset, token)
            recorder = Recorder.late(store, record.name)
            undo.callback(recorder.close)
            other = standin.set(recorder)
            undo.callback(standin.reset, other)
            undo.callback(leave, enter(recorder, None))
            standing = undo.enter_context(standing_in())
            undo.enter_context(self.tape.current())
            for player in self.tape.players.values():
                standing.enter_context(player.installed())
            undo.enter_context(arriving(self._late(standing)))
            try:
                yield lambda: self._beginning(store)
            except (ReplayDivergenceError, ReplayHaltedError):
                pass  # it is on the tape
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything; so it may have done then
                if not self._is_ours(error):
                    self.error = words(error)
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                self.error = "CancelledError: the run was cancelled from inside"
            except SystemExit as error:
                if error.code not in (None, 0):
                    self.error = words(error)
            except BaseException as error:
                if awaited or isinstance(error, KeyboardInterrupt):
                    raise
                self.error = words(error)

    def _late(self, undo: ExitStack) -> dict[str, Callable[[], None]]:
        """Frameworks that are not in use yet: their players are asked for when they are imported."""

        def arrived(name: str, adapter: Any) -> None:
            if name not in self.tape.players:
                player = adapter.player(self.tape)
                if player is not None:
                    self.tape.players[name] = player
                    undo.enter_context(player.installed())

        return {
            module: partial(arrived, name, adapter)
            for name, adapter in adapters().items()
            if name not in self.tape.players
            for module in frameworks(adapter)
        }

    def _is_ours(self, error: BaseException) -> bool:
        """Tell whether a framework has wrapped our own error."""
        seen: set[int] = set()
        at: BaseException | None = error
        while at is not None and id(at) not in seen:
            seen.add(id(at))
            if isinstance(at, (ReplayDivergenceError, ReplayHaltedError)):
                return True
            at = at.__cause__ or at.__context__
        return bool(self.tape.misses or self.tape.halted)

    def _elsewhere(self, backend: Backend) -> Backend:
        if isinstance(backend, OverlayBackend) and backend.lies_over(self.scratch):
            return backend  # the scratch of a replay inside of this one
        self.scratch.over(backend)
        return self.scratch

    def _beginning(self, store: Store) -> Session:
        """The session that a run of one argument begins with: what stood there before the first run began."""
        record, chunks = self.tape.held.session, self.tape.held.chunks
        if self.tape.after < 0:
            first = next((chunk.position for chunk in chunks if chunk.run is not None), None)
            first = _first_asked(chunks) if first is None else first
            self.scratch.stand(record.session, record.branch, chunks[max(first - 1, 0)].id)
        return store.session(record.name)

    # ---------------------------------------------------------------- afterwards

    def made(self) -> Session | None:
        """The session that the run has left in the scratch: that of the record's name, else the only one."""
        store, record = Store(self.scratch), self.tape.held.session
        own = self.scratch.own()
        for name in (record.name, record.session):
            if any(ref.name == name for ref in own):
                return store.session(name)
        return store.session(own[0].name) if len(own) == 1 else None

    def report(self) -> ReplayReport:
        """Compare what the run has left with the record."""
        tape, record = self.tape, self.tape.held.session
        self.branch.write()
        made = self.made() if self.may_run else None
        itself = made_itself(tape, self.alone, made.chunks() if made is not None else ())
        divergence = tape.divergence or (self._compared(made) if self.may_run else None)
        reasons = [*self.problems, *tape.held.faults]
        for found in (*(player.reasons for player in tape.players.values()), tape.reasons, self.reasons):
            reasons += [reason for reason in found if reason not in reasons]
        asked_for_less = tape.parted or tape.halted is not None
        unused = [] if asked_for_less else [name for one in tape.players.values() for name in one.unused]
        inside = inside_of_served(tape)
        span = range(tape.after + 1, len(tape.held.chunks) if tape.until is None else tape.until + 1)
        unused = [n for n in unused if n not in tape.answered and n not in inside and tape.held.by_id[n].position in span]
        cause = contradicted(tape, divergence.chunk) if divergence is not None else None
        lacking = list(dict.fromkeys(tape.lacking))
        if divergence is not None:
            reasons, lacking = [*reasons, *lacking], []
        equal = None if reasons else divergence is None
        told: str | None = None
        if divergence is not None and made is not None:
            ended = not (tape.misses or asked_for_less or self.error)
            held, again = runs(tape.held.chunks, span, inside), runs(made.chunks(), range(tape.after + 1, len(made)))
            merged = divergence.what == "merge" and divergence.found == NOTHING
            told = in_words(held, again, ended=ended, left=bool(unused) or merged)
        unused = list(in_order(record, unused))
        return ReplayReport(
            equal=equal, unasked=tape.overrides.unasked, unchanged=bool(tape.overrides) and not tape.overrides.taken,
            served=tape.served, live=len(tape.made) + len(itself), made=(*tape.made, *itself), itself=tuple(itself),
            unused=tuple(unused), unused_words=tuple(map(tape.held.words, unused)),
            misses=tuple(tape.misses), divergence=divergence, cause=cause, reasons=tuple(reasons), notes=(*self._notes(), *lacking),
            unknown=tuple(call.chunks[0] for call in tape.unknown if call.chunks), spent=tape.spent, halted=tape.halted,
            session=record, result=self.branch.session or made, value=self.value, error=self.error, in_words=told,
        )  # fmt: skip

    def _compared(self, made: Session | None) -> Divergence | None:
        tape = self.tape
        until = self.branch.point if tape.parted else tape.point
        try:
            return first_difference(
                tape.held.chunks, made.chunks() if made is not None else (), until=until, after=tape.after,
                excused=inside_of_served(tape),
            )  # fmt: skip
        except RathError as error:
            self.reasons.append(str(error))
            return None

    def _notes(self) -> list[str]:
        tape = self.tape
        told = [*versions(tape.held), *at_once(tape.held)]
        failed = [] if self.branch.error is None else [f"the branch could not be written: {self.branch.error}"]
        kept = [f"{what} was answered from the record, not done again" for what in dict.fromkeys(tape.kept)]
        again = [f"{what} came again and was answered as changed, not done" for what in dict.fromkeys(tape.changed_again)]
        return told + failed + kept + again
