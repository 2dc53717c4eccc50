"""`wrap`: an agent that continues a Session, with everything on record."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from agents import Agent, Handoff, RunConfig, Runner, RunState
from agents.models.interface import Model, ModelProvider

from rath_bridge.aio import in_thread
from rath_bridge.errors import UnsupportedError
from rath_bridge.given import check_store
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Note
from rath_bridge.model.report import LossReport
from rath_bridge.recorder import Recorder, RunHandle, recorder_for
from rath_bridge.session import Session, Store
from rath_openai_agents.book import Adopted, adopted, write
from rath_openai_agents.conversation import Conversation
from rath_openai_agents.decode import origin
from rath_openai_agents.encode import encode
from rath_openai_agents.faults import describe, guard
from rath_openai_agents.guardrails import telling
from rath_openai_agents.hooks import RathRunHooks
from rath_openai_agents.items import FRAMEWORK, item_list, key
from rath_openai_agents.options import config_of, told
from rath_openai_agents.processor import watch_wrapped
from rath_openai_agents.record import RecordingModel
from rath_openai_agents.state import AGAIN, StateResumedError, checkpoint, resumed_key
from rath_openai_agents.turns import recorded_turns


def wrap(agent: Agent[Any], store: Store, session: str | None = None, *, continues: LossReport | None = None) -> WrappedAgent:
    """Return an agent that continues a session and records what it does.

    The agent itself is left as it is: a run works on clones whose models record (those it hands off to as well). An agent used as a
    tool runs as it is, and is recorded by its spans.

    Args:
        agent: Where runs start.
        store: From ``rath_bridge.open_store``.
        session: The session to continue; by default the ambient recorder's, else one named by the run's group id.
        continues: The report of an ``encode`` whose items you pass to `WrappedAgent.run` yourself, so that they are known.

    Raises:
        UnsupportedError: Not an agent of this SDK.
        WrongTypeError: The store is no Store.
    """
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnsupportedError(f"wrap takes an agents.Agent, not a {type(agent).__name__}: use the adapter of its framework")
    check_store(store, "wrap", session)
    return WrappedAgent(agent, store, session, continues)


@dataclass(frozen=True, slots=True)
class WrappedAgent:
    """Runs an agent on a session; a ``Transform`` (source: ``agents.Runner``)."""

    agent: Agent[Any]
    store: Store
    session: str | None = None
    continues: LossReport | None = None

    async def run(self, input: Any = None, *, again: bool = False, **options: Any) -> Any:  # noqa: A002 - the SDK's name
        """As ``Runner.run``, behind what the session holds. A ``RunState`` goes on once.

        Args:
            input: A text or items to say next; None goes on from what stands. With ``continues``, the whole list. Or a paused run.
            again: Resume a snapshot that was resumed before, although its approved calls run a second time; the record says so.
            **options: Of ``Runner.run`` (``context``, ``max_turns``, ``hooks``, ``run_config``, ``session`` ...).

        Returns:
            The SDK's ``RunResult``.

        Raises:
            StateResumedError: The snapshot was resumed before; nothing was run.
        """
        with self._recorded(input, options, again) as going:
            result = await Runner.run(going.agent, going.items, **going.settings)
            going.finish(result)
            return result

    def run_sync(self, input: Any = None, *, again: bool = False, **options: Any) -> Any:  # noqa: A002 - the SDK's name
        """As ``Runner.run_sync``; see `run`."""
        with self._recorded(input, options, again) as going:
            result = Runner.run_sync(going.agent, going.items, **going.settings)
            going.finish(result)
            return result

    def run_streamed(self, input: Any = None, *, again: bool = False, **options: Any) -> Any:  # noqa: A002 - the SDK's name
        """As ``Runner.run_streamed``; see `run`. Returns the SDK's ``RunResultStreaming``; the record ends when the run does."""
        going = self._begun(input, options, again)
        with going.ambient():
            result = Runner.run_streamed(going.agent, going.items, **going.settings)
        going.watch(result)
        return result

    def __call__(self, session: Session, /) -> Session:
        """Go on from a session; returns it as it stands afterwards. As what a replay runs: make every run of the record again."""
        turns = recorded_turns(self, session)
        if turns is None:
            self._on(session).run_sync()
        else:
            turns.again(self._on(session))
        return session.latest()

    async def acall(self, session: Session, /) -> Session:
        """Async twin of calling it."""
        turns = await in_thread(recorded_turns, self, session)
        if turns is None:
            await self._on(session).run()
        else:
            await turns.aagain(self._on(session))
        return session.latest()

    # ---------------------------------------------------------------- inside

    def _on(self, session: Session) -> WrappedAgent:
        return WrappedAgent(self.agent, session.store, session.name)

    @contextmanager
    def _recorded(self, given: Any, options: dict[str, Any], again: bool) -> Generator[_Going]:
        going = self._begun(given, options, again)
        with going.ambient():
            yield going
        going.end(None)

    def _begun(self, given: Any, options: dict[str, Any], again: bool) -> _Going:
        config = config_of(options)
        recorder, owned = recorder_for(self.store, FRAMEWORK, config.group_id, self.session)
        try:
            if type(given) is RunState:
                _resume(recorder, given, again)
            items, report = self._input(recorder, given, options)
            rows = report.rows() if report is not None else ()
            kept: dict[str, Any] = {}
            with guard(recorder, "the options of a run"):
                kept = told(options, config, None if recorder.redactor is None else recorder.redactor.apply)
            run = recorder.begin(
                self.agent.name, "agent", native_id=config.group_id, manifest=rows, origin=origin(), attributes=kept
            )  # fmt: skip
            talk = Conversation(recorder, run, report.manifest if report is not None else (), bounded=True)
            settings = self._settings(config, options, recorder)
            clones = _Clones(recorder, self.agent)
            if type(given) is RunState:
                items = clones.of_state(given)
            return _Going(recorder, owned, run, talk, clones.start, items, settings)
        except BaseException:
            if owned:
                recorder.close()
            raise

    def _input(self, recorder: Recorder, given: Any, options: dict[str, Any]) -> tuple[Any, LossReport | None]:
        """Return what to run on, and the report of what of it is known."""
        if self.continues is not None:
            return given, self.continues
        if options.get("session") is not None or type(given) is RunState:  # the SDK's own session or state holds the history
            return given, None
        history, report = encode(recorder.session)
        new = [] if given is None else item_list(given)
        keys = [entry.digest for entry in report.manifest]
        if len(new) > len(keys) and [key(item) for item in new[: len(keys)]] == keys:
            return new, report  # the list holds the history already
        return [*history, *new], report

    def _settings(self, config: RunConfig, options: dict[str, Any], recorder: Recorder) -> dict[str, Any]:
        model = RecordingModel(config.model, recorder) if isinstance(config.model, Model) else config.model
        provider = _Recording(config.model_provider, recorder)
        hooks = RathRunHooks(recorder.store, session=recorder.name, also=options.get("hooks"))
        config = replace(
            config, model=model, model_provider=provider,
            input_guardrails=[telling(one) for one in config.input_guardrails or ()],
            output_guardrails=[telling(one) for one in config.output_guardrails or ()],
        )  # fmt: skip
        return {**options, "hooks": hooks, "run_config": config}


@dataclass(slots=True)
class _Going:
    """A run under way: what it works on, and its record, which is closed once."""

    recorder: Recorder
    owned: bool
    run: RunHandle
    talk: Conversation
    agent: Agent[Any]
    items: Any
    settings: dict[str, Any]

    @contextmanager
    def ambient(self) -> Generator[None]:
        """Let what the block begins be recorded into this run; a block that fails ends it."""
        token = adopted.set(Adopted(self.recorder, self.talk, self.run))
        watch_wrapped()
        try:
            with self.recorder.inside(self.run):
                yield
        except BaseException as error:
            self.end(error)
            raise
        finally:
            adopted.reset(token)

    def finish(self, result: Any) -> None:
        """Put on record what stands at the end."""
        if result.interruptions:
            with guard(self.recorder, "the state of a paused run"):
                self.recorder.append(*checkpoint(result.to_state()))
        with guard(self.recorder, "the end of a run"):
            self.talk.take_rest(
                result.to_input_list(), lambda body, native, objects: _write(self.recorder, self.run, body, native, objects)
            )

    def watch(self, result: Any) -> None:
        """End the record with the task that a streamed run is, whoever reads its events."""

        def over(done: asyncio.Task[Any]) -> None:
            error: BaseException | None = (
                asyncio.CancelledError("the run was cancelled") if done.cancelled() else done.exception()
            )
            error = error or getattr(result, "_stored_exception", None)
            if error is None:
                self.finish(result)
            self.end(error)

        result.run_loop_task.add_done_callback(over)

    def end(self, error: BaseException | None) -> None:
        """Close the record."""
        status = "ok" if error is None else "error" if isinstance(error, Exception) else "cancelled"
        with guard(self.recorder, "the end of a run"):
            self.recorder.end(self.run, status, error=None if error is None else describe(error), origin=origin())
        if self.owned:
            self.recorder.close()


def _resume(recorder: Recorder, state: Any, again: bool) -> None:
    """Put on record that a snapshot goes on, durable before anything runs: two who resume it at once are told apart, too."""
    key = resumed_key(recorder.session.session, state)
    resumed, *decided = checkpoint(state, source="resumed", once=key)
    (first,) = recorder.append(resumed)
    if first.body_digest == resumed.body_digest:
        if decided:
            recorder.append(*decided)
        return
    if not again:
        raise StateResumedError(recorder.name, first.id)
    recorder.append(draft(Note(text=f"the RunState of chunk {first.id} {AGAIN}", author="rath_openai_agents")))


def _write(recorder: Recorder, run: Any, body: Any, native: Any, objects: Any) -> None:
    write(recorder, body, run=run, span=run.span, native=native, objects=objects)


class _Recording(ModelProvider):
    """Records the models that are asked for by name."""

    def __init__(self, inner: ModelProvider, recorder: Recorder) -> None:
        self.inner, self._recorder = inner, recorder

    def get_model(self, model_name: str | None) -> Model:
        model = self.inner.get_model(model_name)
        return model if isinstance(model, RecordingModel) else RecordingModel(model, self._recorder)

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Clones:
    """Clones of an agent graph; handoffs may lead in circles."""

    def __init__(self, recorder: Recorder, start: Agent[Any]) -> None:
        self._recorder = recorder
        self._made: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        self.start = self.of(start)

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        known = self._made.get(id(agent))
        if known is not None:
            return known[1]
        model = agent.model
        if isinstance(model, Model) and not isinstance(model, RecordingModel):
            model = RecordingModel(model, self._recorder)
        clone = agent.clone(
            model=model, model_settings=agent.model_settings, input_guardrails=[telling(one) for one in agent.input_guardrails],
            output_guardrails=[telling(one) for one in agent.output_guardrails],
        )  # fmt: skip
        self._made[id(agent)] = (agent, clone)
        clone.handoffs = [self._handoff(one) for one in cast("Sequence[Any]", agent.handoffs)]
        return clone

    def of_state(self, state: Any) -> Any:
        """A paused run on agents that record: a state holds those that it was made with."""
        agent: Agent[Any] | None = state._current_agent
        if agent is None or not isinstance(agent.model, Model) or isinstance(agent.model, RecordingModel):
            return state
        own = None if state._context is None else state._context.context
        found = RunState.from_json(self.start, state.to_json(), context_override=own)
        with ThreadPoolExecutor(1) as thread:  # a stream is begun without waiting
            return thread.submit(asyncio.run, found).result()

    def _handoff(self, one: Any) -> Any:
        if isinstance(one, Agent):
            return self.of(cast("Agent[Any]", one))
        if not isinstance(one, Handoff):
            return one
        again = copy.copy(cast("Any", one))
        invoke: Callable[..., Any] = again.on_invoke_handoff

        async def led(context: Any, arguments: Any) -> Any:
            return self.of(await invoke(context, arguments))

        again.on_invoke_handoff = led
        return again


__all__ = ["WrappedAgent", "wrap"]
