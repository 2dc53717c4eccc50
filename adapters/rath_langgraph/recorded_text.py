"""The stand-in for a text model while a replay runs.

Source: ``langchain_core.language_models.llms`` (langchain-core 1.8).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models.llms import BaseLLM
from langchain_core.outputs import Generation, GenerationChunk, LLMResult
from pydantic import ConfigDict, PrivateAttr

from rath_bridge.replay import Divergence
from rath_langgraph.faults import raised_again
from rath_langgraph.observed import request_of
from rath_langgraph.recorded_model import Told
from rath_langgraph.tape import Reply

if TYPE_CHECKING:
    from rath_langgraph.replay import GraphPlayer


class RecordedText(BaseLLM):
    """Stands in for a text model: asked the same, it gives what is on record."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    _real: Any = PrivateAttr()
    _play: Any = PrivateAttr()

    @classmethod
    def of(cls, player: GraphPlayer, real: BaseLLM) -> RecordedText:
        """Stand in for a model; one that streams has a stand-in that does."""
        streams = type(real)._stream is not BaseLLM._stream or type(real)._astream is not BaseLLM._astream
        made = (RecordedStream if streams else RecordedText)(
            cache=False, callbacks=real.callbacks, tags=real.tags, metadata=real.metadata, verbose=real.verbose,
            custom_get_token_ids=real.custom_get_token_ids,
        )  # fmt: skip
        made._real, made._play = real, player
        return made

    @property
    def _llm_type(self) -> str:
        return str(self._real._llm_type)

    @property
    def _identifying_params(self) -> Any:
        return self._real._identifying_params

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self._real._get_ls_params(stop=stop, **kwargs)

    def _asked(self, prompt: str, stop: list[str] | None, run_manager: Any, more: dict[str, Any]) -> tuple[Any, Any, str]:
        """Return the recorded answer (generations, and the call they are of), or the model to ask and what to ask it."""
        player: GraphPlayer = self._play
        agent: str | None = (getattr(run_manager, "metadata", None) or Told({}).metadata).get("langgraph_node")
        params: dict[str, Any] = self._real._dict_for_compat()
        found = player.tape.text(prompt, request_of({**params, "stop": stop, **more}, {"stop": stop}), agent)
        missing = isinstance(found, Divergence)
        verdict = player.core.ask("model", agent, chunk=None if missing else found.chunk, expected=found if missing else None)
        if verdict.action == "live":
            told: Any = verdict.prompt(None) if callable(verdict.prompt) else verdict.prompt
            live = self._real if verdict.value is None else verdict.value
            return None, live, prompt if told is None else f"{told}\n\n{prompt}"
        if verdict.action == "value":
            value = verdict.value
            return ([value if isinstance(value, Generation) else Generation(text=_text(value))], None), None, prompt
        reply = cast(Reply, found)
        if reply.body.error is not None:
            raise raised_again(reply.body.error, reply.body.attributes.get("exception"))
        if not reply.texts:
            lost = Divergence("model call", "a call", "a call whose answer was not kept", reply.chunk)
            player.core.ask("model", agent, expected=lost)
        return (list(reply.texts or ()), reply), None, prompt

    def _generate(self, prompts: list[str], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any) -> LLMResult:
        rows: list[list[Any]] = []
        output: Any = None
        for prompt in prompts:
            answer, live, asked = self._asked(prompt, stop, run_manager, {})
            made = live._generate([asked], stop=stop, run_manager=run_manager, **kwargs) if live is not None else _result(*answer)
            rows += made.generations
            output = output or made.llm_output
        return LLMResult(generations=rows, llm_output=output)

    async def _agenerate(
        self, prompts: list[str], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> LLMResult:
        rows: list[list[Any]] = []
        output: Any = None
        for prompt in prompts:
            answer, live, asked = self._asked(prompt, stop, run_manager, {})
            if live is not None:
                made = await live._agenerate([asked], stop=stop, run_manager=run_manager, **kwargs)
            else:
                made = _result(*answer)
            rows += made.generations
            output = output or made.llm_output
        return LLMResult(generations=rows, llm_output=output)


class RecordedStream(RecordedText):
    """Stands in for a text model that streams: the answer comes as one piece."""

    def _stream(
        self, prompt: str, stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[GenerationChunk]:
        answer, live, asked = self._asked(prompt, stop, run_manager, kwargs)
        if live is not None:
            yield from live._stream(asked, stop=stop, run_manager=run_manager, **kwargs)
            return
        piece = _piece(answer[0][0])
        if run_manager is not None and (answer[1] is None or answer[1].body.streamed):
            run_manager.on_llm_new_token(piece.text, chunk=piece)
        yield piece

    async def _astream(
        self, prompt: str, stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[GenerationChunk]:
        answer, live, asked = self._asked(prompt, stop, run_manager, kwargs)
        if live is not None:
            async for one in live._astream(asked, stop=stop, run_manager=run_manager, **kwargs):
                yield one
            return
        piece = _piece(answer[0][0])
        if run_manager is not None and (answer[1] is None or answer[1].body.streamed):
            await run_manager.on_llm_new_token(piece.text, chunk=piece)
        yield piece


def _result(row: list[Any], reply: Reply | None) -> LLMResult:
    if reply is None:
        return LLMResult(generations=[row])
    body = reply.body
    told: dict[str, Any] = {"model_name": body.response_model, "id": body.response_id}
    if body.usage is not None:
        told["token_usage"] = {"prompt_tokens": body.usage.input_tokens, "completion_tokens": body.usage.output_tokens}
    return LLMResult(generations=[row], llm_output={key: value for key, value in told.items() if value is not None})


def _piece(answer: Any) -> GenerationChunk:
    return GenerationChunk(text=answer.text, generation_info=answer.generation_info)


def _text(value: Any) -> str:
    """The text of what a what-if puts in the place of a recorded answer: a text, or parts."""
    if isinstance(value, str):
        return value
    parts: list[Any] = list(value)
    return "".join(str(part.get("content", "")) for part in parts if part.get("type") == "text")
