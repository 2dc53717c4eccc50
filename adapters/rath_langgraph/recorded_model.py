"""The stand-in for a chat model while a replay runs.

Source: ``langchain_core.language_models.chat_models`` (langchain-core 1.8).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, PrivateAttr

from rath_bridge.replay import Divergence, Verdict
from rath_langgraph.faults import raised_again
from rath_langgraph.observed import request_of
from rath_langgraph.tape import Reply

if TYPE_CHECKING:
    from rath_langgraph.replay import GraphPlayer


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
        answer, live, asked = self._asked(messages, stop, run_manager or Told(kwargs), kwargs)
        if live is not None:
            yield from live._stream(asked, stop=stop, run_manager=run_manager, **kwargs)
        else:
            yield ChatGenerationChunk(message=_piece(cast(BaseMessage, answer)))

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer, live, asked = self._asked(messages, stop, run_manager or Told(kwargs), kwargs)
        if live is not None:
            async for one in live._astream(asked, stop=stop, run_manager=run_manager, **kwargs):
                yield one
        else:
            yield ChatGenerationChunk(message=_piece(cast(BaseMessage, answer)))


class Told:
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
