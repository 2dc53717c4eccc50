"""`wrap`: an agent or a team whose runs are recorded as they happen, and which works as a step Session -> Session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ToolCallRequestEvent
from autogen_core import CancellationToken

from rath_autogen.capture import members, wrapped
from rath_autogen.chat import chat_messages
from rath_autogen.guard import guarded
from rath_autogen.handover import Handover, known, prepare, task_messages
from rath_autogen.items import history
from rath_autogen.ledger import Ledger, close_ledger, open_ledger
from rath_autogen.natives import FRAMEWORK
from rath_autogen.structured import register_structured
from rath_autogen.transcriber import Transcriber, describe
from rath_autogen.turns import Turn, recorded_turns
from rath_bridge.aio import in_thread
from rath_bridge.errors import UnsupportedError
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.report import LossReport
from rath_bridge.recorder import Recorder, current_recorder, enter, leave, recorder_for
from rath_bridge.replay import may_go_on
from rath_bridge.session import Session, Store, open_store

GRACE: Final = 10.0
"""Seconds that a cancelled run has to come to its end by itself."""

LOOK: Final = 0.05
"""Seconds after which a signal that has no answer yet looks whether the team still runs."""


def wrap(
    runner: Any,
    store: Store | None = None,
    session: str | None = None,
    *,
    continues: LossReport | None = None,
    grace: float = GRACE,
) -> Wrapped:
    """Wrap an agent or a team so that its runs are recorded as they happen.

    Args:
        runner: Anything of AutoGen with ``run`` and ``run_stream``: an agent, or a team of any kind.
        store: Where to record outside of an ambient recorder; the default store when absent.
        session: Session to record to; without it the ambient recorder, else a session of this object's own.
        continues: What `encode` returned beside the history that you gave the agent: those messages are known and stay one each.
        grace: Seconds that a run has to end after it was cancelled or left (AutoGen waits for ever where a tool was running); then
            ``CancelledError`` is raised.

    Raises:
        UnsupportedError: It has no ``run_stream``.
    """
    if not callable(getattr(runner, "run_stream", None)):
        raise UnsupportedError(f"cannot wrap a {type(runner).__name__}: it has no run_stream; pass an AutoGen agent or team")
    check_store(store, "wrap", session, optional=True)
    register_structured(runner)
    return Wrapped(runner, store, session, continues, grace)


class Wrapped:
    """An agent or a team with a record. Everything that is not listed here is passed on (``name``, ``pause``, ``resume`` ...)."""

    def __init__(self, runner: Any, store: Store | None, session: str | None, continues: LossReport | None, grace: float) -> None:
        self.runner = runner
        self._store, self._session, self._continues, self._grace = store, session, continues, grace
        self._native_id = new_id(8)
        self._last: Session | None = None
        """Where a team that works on sessions left the last one; None once a run of it failed."""
        self._used = False
        self._ran = False

    def __getattr__(self, name: str) -> Any:
        if name == "runner" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.runner, name)

    async def run(
        self, *, task: Any = None, cancellation_token: CancellationToken | None = None, output_task_messages: bool = True
    ) -> TaskResult:
        """Run, and record; takes and returns what the runner's own ``run`` does."""
        stream = self.run_stream(task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages)
        result: TaskResult | None = None
        async with aclosing(stream):
            async for item in stream:
                if isinstance(item, TaskResult):
                    result = item
        assert result is not None, "the stream ends with its result"
        return result

    async def run_stream(
        self, *, task: Any = None, cancellation_token: CancellationToken | None = None, output_task_messages: bool = True
    ) -> AsyncGenerator[Any, None]:
        """Run, record each message as it arrives, and pass it on; ends with the ``TaskResult``.

        Messages that the session holds already (``continues``, or a task list that begins with the whole transcript) are not recorded
        again. However the run ends, its chunks stay; calls that were left open are closed ``no_response``.
        """
        recorder, owned = self.recorder()
        try:
            given = task_messages(task)
            handover = Handover()
            with guarded(recorder, "which messages of a task are known"):
                handover = known(given, recorder, self._continues)
            async with aclosing(self._recorded(recorder, handover, given, cancellation_token, output_task_messages)) as items:
                async for item in items:
                    yield item
        finally:
            self._continues = None
            if owned:
                recorder.close()

    async def _recorded(
        self, recorder: Recorder, handover: Handover, task: Any, token: CancellationToken | None, output_task_messages: bool
    ) -> AsyncGenerator[Any, None]:
        self._ran = True
        ledger, watch = Ledger(), _Watch(token, self._grace)
        transcriber = Transcriber(recorder, describe(self.runner), handover, ledger)
        run = transcriber.begin(task)
        stream = self.runner.run_stream(task=task, cancellation_token=token, output_task_messages=output_task_messages)
        status, problem, alone = "ok", None, not members(self.runner)
        try:
            while True:
                mark, tokens = open_ledger(ledger), enter(recorder, run)
                try:
                    item = await watch.next(stream)
                except StopAsyncIteration:
                    break
                finally:
                    leave(tokens)
                    close_ledger(mark)
                transcriber.came(item)
                if alone and isinstance(
                    item, ToolCallRequestEvent
                ):  # it has not started the tools yet; in a team they run already
                    await in_thread(recorder.flush)
                yield item
        except GeneratorExit:
            status = "abandoned"
            raise
        except BaseException as error:
            status = "error" if isinstance(error, Exception) else "cancelled"
            problem = f"{type(error).__name__}: {error}"[:2000]
            raise
        finally:
            try:
                if status == "abandoned":
                    await watch.closed(stream)
            finally:
                transcriber.end(status, problem)

    async def pause(self) -> None:
        """Pause what runs, as the runner's own ``pause`` does.

        Raises:
            RuntimeError: Nothing runs: a team of AutoGen would wait for ever for its own runtime, which stands still between runs.
        """
        await self._tell("pause")

    async def resume(self) -> None:
        """Resume what was paused, as the runner's own ``resume`` does.

        Raises:
            RuntimeError: Nothing runs, as for `pause`.
        """
        await self._tell("resume")

    async def _tell(self, what: str) -> None:
        """Send a signal to a team, but wait for its answer no longer than it runs."""
        team = self.runner
        signal = asyncio.ensure_future(getattr(team, what)())
        while not (await asyncio.wait({signal}, timeout=LOOK))[0]:
            if getattr(team, "_embedded_runtime", False) and not team._is_running:
                signal.cancel()
                await asyncio.wait({signal})
                raise RuntimeError(
                    f"{team.name} does not run: there is nothing to {what}; a run that has ended is gone on with by run()"
                )
        await signal

    async def save_state(self) -> Mapping[str, Any]:
        """The runner's own saved state."""
        return await self.runner.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a saved state; use a fresh team (a loaded selector keeps what it had)."""
        await self.runner.load_state(state)

    async def reset(self) -> None:
        """Reset the runner (an agent on its own has ``on_reset``)."""
        if hasattr(self.runner, "reset"):
            await self.runner.reset()
        else:
            await self.runner.on_reset(CancellationToken())

    # ---------------------------------------------------------------- Session -> Session

    def __call__(self, session: Session, /) -> Session:
        """Continue a session and return it as it stands afterwards; inside a running event loop, await `acall`.

        Raises:
            UnsupportedError: An event loop is running here.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            _unbind(self.runner)
            return asyncio.run(self.acall(session))
        raise UnsupportedError(f"{self.runner.name} was called inside a running event loop: await wrapped.acall(session) there")

    async def acall(self, session: Session, /) -> Session:
        """Continue a session: hand its history over, run, and return the session as it stands afterwards. As what a replay runs:
        make every run of the record again.

        An ``AssistantAgent`` gets the transcript as its model context, roles and calls kept. A ``Swarm`` gets it as the context of a
        handoff, any other runner as task messages: what that loses is named in the run's ``attributes.losses``. A team that goes on
        with the session that it left gets only what is new since.
        """
        turns = await in_thread(recorded_turns, self, session, describe(self.runner).name)
        return await self._turn(session) if turns is None else await self._again(session, turns)

    async def _again(self, session: Session, turns: Sequence[Turn | Draft]) -> Session:
        """Make again what is on record, in order: what others wrote, and this object's runs."""
        if self._ran:
            await self.reset()
            self._used, self._last = False, None
        for turn in turns:
            if isinstance(turn, Draft):
                await session.latest().aappend(turn, on_conflict="serialise")
                continue
            try:
                await self._turn(session.latest(), turn)
            except Exception as error:
                if not may_go_on(error, failed=turn.failed, last=turn is turns[-1]):
                    raise
        return session.latest()

    async def _turn(self, session: Session, turn: Turn | None = None) -> Session:
        """One run on a session; in a replay, one of the record, with its task."""
        recorder, owned = self.recorder(session)
        try:
            if turn is not None and not turn.handed and (turn.task or not self._used):
                if turn.fresh:
                    await self.reset()
                handover, task = Handover(), turn.task or None
            elif turn is not None and turn.listed:
                task = [*chat_messages(history(session))[0], *turn.task]
                handover = known(task, recorder, None)
            else:
                since = self._last.position if self._last is not None and _follows(session, self._last) else None
                if since is None and self._used:
                    await self.reset()  # the session is what counts, not what the runner did elsewhere
                self._used, self._last = True, None
                handover = await prepare(self.runner, session, since)
                task = handover.task
                if turn is not None and not (task and not handover.known):  # a swarm's own handoff is not said twice
                    task = [*(task or ()), *turn.task] or None
            async for _ in self._recorded(recorder, handover, task, None, True):
                pass
            left = recorder.session
            if turn is None or turn.handed:
                self._last = left
            return left
        finally:
            if owned:
                recorder.close()

    def recorder(self, session: Session | None = None) -> tuple[Recorder, bool]:
        """Where a run from here and now is recorded, and whether the caller must close it."""
        if session is not None:
            return recorder_for(session.store, FRAMEWORK, session=session.name)
        if self._store is None and self._session is None and (ambient := current_recorder()) is not None:
            return ambient, False
        if self._store is None:
            self._store = open_store()
        return recorder_for(self._store, FRAMEWORK, self._native_id, self._session)


def _unbind(runner: Any) -> None:
    """Let a team that waited in an event loop of an earlier call wait in that of this one: asyncio binds its queue to the first."""
    stack = [runner]
    while stack:
        one = stack.pop()
        stack.extend(members(one))
        stack.extend(inner for inner in (wrapped(one), getattr(one, "_team", None)) if inner is not None)
        queue = getattr(one, "_output_message_queue", None)
        if queue is not None and queue.empty():
            queue._loop = None


def _follows(session: Session, last: Session) -> bool:
    """Tell whether a session goes on from where the runner left it."""
    same = (session.store, session.name) == (last.store, last.name)
    return same and len(session) >= len(last) and session[last.position].id == last.head


class _Watch:
    """Waits for a stream's next item, but not for ever once the token, or the task that waits, is cancelled.

    ``CancellationToken.cancel()`` while a tool runs leaves ``AssistantAgent`` waiting for a queue that nobody fills (issue 7956). The
    deadline is set when the token is cancelled, so a run that ends by itself ends as it always did.
    """

    def __init__(self, token: CancellationToken | None, grace: float) -> None:
        self._token, self._grace = token, grace
        self._task: asyncio.Task[Any] | None = None
        """Who waits, while somebody does."""
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        if token is not None:
            loop = asyncio.get_running_loop()
            token.add_callback(partial(self._cancelled, loop))

    def _cancelled(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self._limit)  # tokens are cancelled from any thread

    def _limit(self) -> None:
        if self._task is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._grace, self._expire)

    def _expire(self) -> None:
        if self._task is not None:
            self._expired = True
            self._task.cancel()

    async def next(self, stream: AsyncGenerator[Any, None]) -> Any:
        self._task = task = asyncio.current_task()
        if self._token is not None and self._token.is_cancelled():
            self._limit()
        try:
            return await _Noting(anext(stream), self._limit)
        except asyncio.CancelledError:
            if not self._expired:
                raise
            raise asyncio.CancelledError(f"cancelled; the run had not ended {self._grace:g} s later") from None
        finally:
            self._task = None
            if self._timer is not None:  # a timer for each item, as `asyncio.timeout` is, would cost more than the item
                self._timer.cancel()
                self._timer = None
            if self._expired and task is not None:
                self._expired = False
                task.uncancel()

    async def closed(self, stream: AsyncGenerator[Any, None]) -> None:
        """Close a stream that its reader has left."""
        scope = asyncio.timeout(self._grace)
        try:
            async with scope:
                await stream.aclose()
        except TimeoutError:
            if not scope.expired():
                raise


class _Noting:
    """Awaits something in the same task, and tells when that task is cancelled meanwhile: a team that is cancelled waits for its tools."""

    def __init__(self, inner: Awaitable[Any], note: Callable[[], None]) -> None:
        self._inner, self._note = inner, note

    def __await__(self) -> Generator[Any, Any, Any]:
        inner: Any = self._inner.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waits = inner.send(None) if thrown is None else inner.throw(thrown)
            except StopIteration as stop:
                return stop.value
            try:
                yield waits
                thrown = None
            except BaseException as error:  # noqa: BLE001 - passed on
                if isinstance(error, asyncio.CancelledError):
                    self._note()
                thrown = error
