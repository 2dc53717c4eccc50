"""Replay: for the time of a replay, chat models and tools of LangChain answer from the record (law 5).

A node is code: it runs. What it calls through the public entry points of ``BaseChatModel`` and ``BaseTool`` (invoke, stream, batch and
their async twins) is answered by a stand-in, on which LangChain's own machinery runs, so callbacks, streams and ids are what they were.
Other threads and contexts, in which no replay runs, are not affected.

Sources: ``langchain_core.language_models.chat_models``, ``langchain_core.tools.base`` (langchain-core 1.8).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from inspect import signature
from threading import Lock
from typing import Any, Final, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.llms import BaseLLM
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt
from pydantic import ConfigDict, PrivateAttr

from rath_bridge.model.digests import Digest
from rath_bridge.replay import Divergence, Verdict, current_tape, patched
from rath_bridge.replay import Tape as CoreTape
from rath_langgraph.faults import raised_again
from rath_langgraph.followed import FollowedSaver
from rath_langgraph.neutral import plain
from rath_langgraph.observed import request_of
from rath_langgraph.saver import RathSaver
from rath_langgraph.tape import Answer, Reply, Tape
from rath_langgraph.threads import FRAMEWORK

_MODEL: Final = ("invoke", "ainvoke", "stream", "astream", "generate", "agenerate", "generate_prompt", "agenerate_prompt",
                 "stream_events", "astream_events")  # fmt: skip
_GRAPH: Final = ("stream", "astream", "get_state", "aget_state", "get_state_history", "aget_state_history", "update_state",
                 "aupdate_state", "bulk_update_state", "abulk_update_state")  # fmt: skip
_TOOL: Final = ("invoke", "ainvoke", "run", "arun")
_TEXT: Final[tuple[str, ...]] = (
    "invoke", "ainvoke", "stream", "astream", "generate", "agenerate", "generate_prompt", "agenerate_prompt", "batch", "abatch",
)  # fmt: skip


class GraphPlayer:
    """Answers for LangChain's models and tools from a record."""

    def __init__(self, core: CoreTape) -> None:
        self.core = core
        self.tape = Tape.of(core)
        self.asked: dict[str, list[Any]] = {}
        """Tool call id to what the tool has asked a person so far."""
        self._savers: dict[int, tuple[BaseCheckpointSaver[Any], BaseCheckpointSaver[Any]]] = {}
        self._lock = Lock()

    @contextmanager
    def installed(self) -> Generator[None]:
        """Put stand-ins in front of every class of models and tools that has an entry point of its own."""
        with ExitStack() as undo:
            for name in _GRAPH:
                undo.enter_context(patched(Pregel, name, _graphs[name]))
            parts: tuple[tuple[type[Any], Mapping[str, Callable[..., Any]]], ...] = (
                (BaseChatModel, _models), (BaseTool, _tools), (BaseLLM, _texts),
            )  # fmt: skip
            for base, made in parts:
                for cls in _classes(base):
                    for name in made.keys() & vars(cls).keys():
                        if cls not in (RecordedModel, RecordedTool):
                            undo.enter_context(patched(cls, name, made[name]))
            yield

    def saver(self, own: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
        """The checkpointer that a graph has in this replay: its threads are those of the scratch, the user's own are left alone."""
        with self._lock:
            if id(own) not in self._savers:
                kept = own.followers if isinstance(own, FollowedSaver) else own
                made = kept.bound() if isinstance(kept, RathSaver) else InMemorySaver()
                self._savers[id(own)] = own, made
            return self._savers[id(own)][1]

    @property
    def unused(self) -> Sequence[Digest]:
        """Calls of the record that were not asked for."""
        return self.tape.unused

    @property
    def reasons(self) -> Sequence[str]:
        """Why LangGraph's part of the record cannot be replayed whole."""
        if self.tape.bare and self.core.misses:
            return [
                *self.tape.reasons,
                "checkpoints alone are on record, not what models and tools said: record with wrap(graph, store)",
            ]
        return self.tape.reasons


def _player() -> GraphPlayer | None:
    tape = current_tape()
    return tape.player(FRAMEWORK) if tape is not None else None


def _classes(base: type[Any]) -> list[type[Any]]:
    found: dict[type[Any], None] = {base: None}
    waiting = [base]
    while waiting:
        for one in waiting.pop().__subclasses__():
            if one not in found:
                found[one] = None
                waiting.append(one)
    return list(found)


def _on_stand_in(name: str, made: Callable[[GraphPlayer, Any], Any], kind: type[Any]) -> Callable[..., Any]:
    def call(original: Callable[..., Any], real: Any, *args: Any, **kwargs: Any) -> Any:
        player = _player()
        if player is None or isinstance(real, kind):
            return original(real, *args, **kwargs)
        return getattr(made(player, real), name)(*args, **kwargs)

    return call


def _on_scratch(name: str) -> Callable[..., Any]:
    def call(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
        player, own = _player(), graph.checkpointer
        if player is not None and isinstance(own, BaseCheckpointSaver):
            graph = copy(graph)
            graph.checkpointer = player.saver(cast("BaseCheckpointSaver[Any]", own))
        return original(graph, *args, **kwargs)

    return call


def _no_text_model(original: Callable[..., Any], real: Any, *args: Any, **kwargs: Any) -> Any:
    player = _player()
    if player is None:
        return original(real, *args, **kwargs)
    expected = Divergence("call of a text model", type(real).__name__, "chat models and tools alone can be served")
    player.core.ask("model", None, expected=expected)
    return original(real, *args, **kwargs)


# ------------------------------------------------------------------ models


class RecordedModel(BaseChatModel):
    """Stands in for a chat model: asked the same, it gives what is on record."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    _real: Any = PrivateAttr()
    _play: Any = PrivateAttr()

    @classmethod
    def of(cls, player: GraphPlayer, real: BaseChatModel) -> RecordedModel:
        """Stand in for a model."""
        made = cls(
            cache=False, callbacks=real.callbacks, tags=real.tags, metadata=real.metadata, verbose=real.verbose,
            output_version=real.output_version, custom_get_token_ids=real.custom_get_token_ids,
        )  # fmt: skip
        made._real, made._play = real, player
        return made

    @property
    def _llm_type(self) -> str:
        return str(self._real._llm_type)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return self._real._identifying_params

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return self._real._get_invocation_params(stop=stop, **kwargs)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self._real._get_ls_params(stop=stop, **kwargs)

    def _should_stream(self, **kwargs: Any) -> bool:
        return bool(self._real._should_stream(**kwargs))

    def _should_use_protocol_streaming(self, **kwargs: Any) -> bool:
        return bool(self._real._should_use_protocol_streaming(**kwargs))

    def _asked(
        self, messages: list[BaseMessage], stop: list[str] | None, run_manager: Any, kwargs: dict[str, Any]
    ) -> tuple[BaseMessage | None, Any, list[BaseMessage]]:
        """Return the recorded answer, or the model that is to be asked and what it is to be asked."""
        player: GraphPlayer = self._play
        facts: Mapping[str, Any] = getattr(run_manager, "metadata", None) or {}
        agent: str | None = facts.get("langgraph_node")
        params = self._real._get_invocation_params(stop=stop, **kwargs)
        request = request_of(params, {"stop": stop, **{key: params[key] for key in kwargs if key in params}})
        found = player.tape.reply(messages, request, agent)
        missing = isinstance(found, Divergence)
        verdict = player.core.ask(
            "model", agent, chunk=None if missing else found.chunk, expected=found if missing else None
        )  # fmt: skip
        if verdict.action == "live":
            live = verdict.value if verdict.value is not None else self._real
            return None, live, _prompted(messages, verdict)
        if verdict.action == "value":
            return _changed(verdict.value, found if isinstance(found, Reply) else None), None, messages
        reply = cast(Reply, found)
        if reply.body.error is not None:
            raise raised_again(reply.body.error, reply.body.attributes.get("exception"))
        if reply.message is None:
            lost = Divergence("model call", "a call", "a call whose answer was not kept", reply.chunk)
            player.core.ask("model", agent, expected=lost)
        return cast(BaseMessage, reply.message).model_copy(deep=True), None, messages

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        answer, live, asked = self._asked(messages, stop, run_manager, kwargs)
        if live is not None:
            return live._generate(asked, stop=stop, run_manager=run_manager, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=_whole(cast(BaseMessage, answer)))])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        answer, live, asked = self._asked(messages, stop, run_manager, kwargs)
        if live is not None:
            return await live._agenerate(asked, stop=stop, run_manager=run_manager, **kwargs)
        return ChatResult(generations=[ChatGeneration(message=_whole(cast(BaseMessage, answer)))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer, live, asked = self._asked(messages, stop, run_manager or _Told(kwargs), kwargs)
        if live is not None:
            yield from live._stream(asked, stop=stop, run_manager=run_manager, **kwargs)
        else:
            yield ChatGenerationChunk(message=_piece(cast(BaseMessage, answer)))

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer, live, asked = self._asked(messages, stop, run_manager or _Told(kwargs), kwargs)
        if live is not None:
            async for one in live._astream(asked, stop=stop, run_manager=run_manager, **kwargs):
                yield one
        else:
            yield ChatGenerationChunk(message=_piece(cast(BaseMessage, answer)))


class _Told:
    """``stream`` calls ``_stream`` without a run manager: the node is told by the ambient config."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        from langchain_core.runnables.config import ensure_config

        self.metadata = ensure_config().get("metadata") or {}


def _prompted(messages: list[BaseMessage], verdict: Verdict) -> list[BaseMessage]:
    """The prompt with other instructions, where a what-if gives them."""
    if verdict.prompt is None:
        return messages
    at = next((i for i, one in enumerate(messages) if isinstance(one, SystemMessage)), None)
    old = messages[at].text if at is not None else None
    told: Any = verdict.prompt(old) if callable(verdict.prompt) else verdict.prompt
    new = SystemMessage(told)
    return [new, *messages] if at is None else [*messages[:at], new, *messages[at + 1 :]]


def _changed(value: Any, reply: Reply | None) -> BaseMessage:
    """An answer that a what-if puts in the place of the recorded one: a text, a message, or parts."""
    name = reply.message.id if reply is not None and reply.message is not None else None
    if isinstance(value, BaseMessage):
        return value
    if isinstance(value, str):
        return AIMessage(value, id=name)
    parts = cast("list[dict[str, Any]]", value)
    text = "".join(str(part.get("content", "")) for part in parts if part.get("type") == "text")
    calls: list[dict[str, Any]] = [
        {"name": part["name"], "args": part.get("arguments") or {}, "id": part.get("id"), "type": "tool_call"}
        for part in parts
        if part.get("type") == "tool_call"
    ]
    return AIMessage(text, tool_calls=cast(Any, calls), id=name)


def _whole(answer: BaseMessage) -> BaseMessage:
    return message_chunk_to_message(cast(Any, answer)) if isinstance(answer, AIMessageChunk) else answer


def _piece(answer: BaseMessage) -> AIMessageChunk:
    """An answer as the one piece of a stream."""
    if isinstance(answer, AIMessageChunk):
        return answer
    known = AIMessageChunk.model_fields.keys() - {"type"}
    fields: dict[str, Any] = {name: value for name, value in answer.__dict__.items() if name in known}
    return AIMessageChunk(**fields)


# ------------------------------------------------------------------ tools


class RecordedTool(BaseTool):
    """Stands in for a tool: called the same, it returns what is on record."""

    _real: Any = PrivateAttr()
    _play: Any = PrivateAttr()
    _given: Any = PrivateAttr(default=None)
    _call_id: str | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, player: GraphPlayer, real: BaseTool) -> RecordedTool:
        """Stand in for a tool."""
        made = cls(
            name=real.name, description=real.description, args_schema=real.args_schema, return_direct=real.return_direct,
            verbose=real.verbose, callbacks=real.callbacks, tags=real.tags, metadata=real.metadata,
        )  # fmt: skip
        made._real, made._play = real, player
        return made

    def _filter_injected_args(self, tool_input: dict[str, Any]) -> dict[str, Any]:
        return self._real._filter_injected_args(tool_input)

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._given, self._call_id = tool_input, tool_call_id
        return (), {}

    def _run(self, *, config: RunnableConfig, run_manager: Any = None) -> Any:
        found, verdict = self._asked()
        if verdict.action == "live":
            args, kwargs = self._live(self._real._run, config, run_manager)
            return self._formed(self._real._run(*args, **kwargs))
        return self._served(found, verdict)

    async def _arun(self, *, config: RunnableConfig, run_manager: Any = None) -> Any:
        found, verdict = self._asked()
        if verdict.action == "live":
            args, kwargs = self._live(self._real._arun, config, run_manager)
            return self._formed(await self._real._arun(*args, **kwargs))
        return self._served(found, verdict)

    def _asked(self) -> tuple[Answer | Divergence, Verdict]:
        player: GraphPlayer = self._play
        given: Any = self._given
        if isinstance(given, dict):
            given = self._filter_injected_args(cast("dict[str, Any]", given))
        arguments = plain(given)
        found = player.tape.answer(self.name, self._call_id, arguments)
        missing = isinstance(found, Divergence)
        return found, player.core.ask(
            "tool", self.name, chunk=None if missing else found.chunk, arguments=arguments, expected=found if missing else None
        )

    def _served(self, found: Answer | Divergence, verdict: Verdict) -> Any:
        if verdict.action == "error":
            raise raised_again(f"ToolException: {verdict.error}", None)
        if verdict.action == "value":
            return verdict.value
        answer = cast(Answer, found)
        asked = self._play.asked.setdefault(self._call_id or "", [])
        for question in asked:  # the tool asked this before, and was answered
            interrupt(question)
        if answer.body.status == "no_response":
            for question in answer.values or [None]:
                asked.append(question)
                interrupt(question)
        if answer.body.status == "error" and answer.values is None:
            raise raised_again(answer.body.error or "", answer.body.attributes.get("exception"))
        return answer.values[0] if answer.values else answer.body.result

    def _live(self, run: Callable[..., Any], config: RunnableConfig, run_manager: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the tool's own function is called with (source: ``BaseTool.run``)."""
        args, kwargs = self._real._to_args_and_kwargs(self._given, self._call_id)
        parameters = signature(run).parameters
        if "run_manager" in parameters:
            kwargs["run_manager"] = run_manager
        for name, parameter in parameters.items():
            if parameter.annotation is RunnableConfig or parameter.annotation == "RunnableConfig":
                kwargs[name] = config
        return args, kwargs

    def _formed(self, response: Any) -> Any:
        if self._real.response_format != "content_and_artifact" or self._call_id is None:
            return response
        from langchain_core.messages import ToolMessage

        content, artifact = response
        return ToolMessage(content, artifact=artifact, tool_call_id=self._call_id, name=self.name)


_graphs: Final = {name: _on_scratch(name) for name in _GRAPH}
_models: Final = {name: _on_stand_in(name, RecordedModel.of, RecordedModel) for name in _MODEL}
_tools: Final = {name: _on_stand_in(name, RecordedTool.of, RecordedTool) for name in _TOOL}
_texts: Final[Mapping[str, Callable[..., Any]]] = dict.fromkeys(_TEXT, _no_text_model)
