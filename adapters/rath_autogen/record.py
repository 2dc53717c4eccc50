"""`RecordingChatCompletionClient`: AutoGen traces no model calls, so a client around the client records them.

Source: ``autogen_core.models.ChatCompletionClient`` (0.7); issues 5895 and 11505 of the facts file.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import orjson
from autogen_core import CancellationToken, ComponentModel, MessageHandlerContext
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import BaseTool, Tool, ToolSchema
from pydantic import BaseModel

from rath_autogen.guard import guarded, later
from rath_autogen.ledger import current_ledger
from rath_autogen.natives import FRAMEWORK, origin_text, to_bytes, version
from rath_autogen.pieces import parsed
from rath_autogen.prompts import Prompts
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Draft, Native, now
from rath_bridge.model.parts import ToolCallPart, part_to_json
from rath_bridge.recorder import Recorder, current_recorder, current_run, recorder_for
from rath_bridge.replay import Tape, current_tape
from rath_bridge.session import Store
from rath_bridge.verbs.raised import described

_log: Final = logging.getLogger("rath_bridge")
ToolChoice = Tool | Literal["auto", "required", "none"]
_schemas: Final[WeakKeyDictionary[Tool, tuple[tuple[str, str], ToolSchema]]] = WeakKeyDictionary()


class RecordingChatCompletionClient(ChatCompletionClient):
    """Passes everything on to another client and records each call as an ``inference``: request, response, tokens, streamed or not.

    Calls go to the ambient recorder (inside ``rb.record(...)`` or a wrapped run), under the current run; else to ``store`` and ``session``.
    A call that fails, is cancelled, or whose stream is closed early leaves its chunk too, with what had come so far.
    """

    component_type = "model"

    def __init__(self, client: ChatCompletionClient, store: Store | None = None, session: str | None = None) -> None:
        """Wrap a client.

        Args:
            client: What really answers.
            store: Where to record outside of an ambient recorder.
            session: Session to record to, also against an ambient recorder of another; needs ``store``.
        """
        check_store(store, "RecordingChatCompletionClient", session, optional=True)
        if session is not None and store is None:
            raise ValueError(f"session {session!r} was named without a store: pass store=rb.open_store(...) too")
        self._client = client
        self._store, self._session = store, session
        self._own: Recorder | None = None
        self._prompts: WeakKeyDictionary[Recorder, Prompts] = WeakKeyDictionary()
        self._replayed: tuple[Tape, Prompts] | None = None
        self._warned = False

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Call the model, and record the call."""
        call = _Call(self, messages, tools, tool_choice, json_output, extra_create_args, streamed=False)
        try:
            result = await self._client.create(
                messages, tools=tools or [], tool_choice=tool_choice, json_output=json_output,
                extra_create_args=extra_create_args or {}, cancellation_token=cancellation_token,
            )  # fmt: skip
        except BaseException as error:
            call.end(None, error)
            raise
        call.end(result, None)
        return result

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Call the model, pass its stream on, and record the call when the stream ends, however it ends."""
        call = _Call(self, messages, tools, tool_choice, json_output, extra_create_args, streamed=True)
        stream = self._client.create_stream(
            messages, tools=tools or [], tool_choice=tool_choice, json_output=json_output,
            extra_create_args=extra_create_args or {}, cancellation_token=cancellation_token,
        )  # fmt: skip
        result: CreateResult | None = None
        problem: BaseException | None = None
        try:
            async for item in stream:
                call.came(item)
                if not isinstance(item, str):
                    result = item
                yield item
        except BaseException as error:
            problem = error
            raise
        finally:
            call.end(result, None if result is not None and isinstance(problem, GeneratorExit) else problem)
            await stream.aclose()

    async def close(self) -> None:
        """Close the client, and write what is queued."""
        await self._client.close()
        if self._own is not None:
            self._own.close()
            self._own = None

    def actual_usage(self) -> RequestUsage:
        return self._client.actual_usage()

    def total_usage(self) -> RequestUsage:
        return self._client.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        return self._client.count_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        return self._client.remaining_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> Any:  # the base declares it so; deprecated there
        return self._client.capabilities  # pyright: ignore[reportDeprecated]

    @property
    def model_info(self) -> ModelInfo:
        return self._client.model_info

    def dump_component(self) -> ComponentModel:
        """Return the configuration of the client itself: a saved team is one without a recorder."""
        return self._client.dump_component()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_client":
            raise AttributeError(name)
        return getattr(self._client, name)

    # ---------------------------------------------------------------- inside

    def recorder(self) -> Recorder | None:
        """Where calls made here and now are recorded."""
        ambient = current_recorder()
        named = self._session is not None and self._store is not None
        if ambient is not None and not (named and (ambient.name, ambient.store) != (self._session, self._store)):
            return ambient
        if self._store is None:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "rath_bridge: model calls outside of a recorder are not recorded: pass RecordingChatCompletionClient a store"
                )
            return None
        if self._own is None:
            self._own, _ = recorder_for(self._store, FRAMEWORK, session=self._session or f"{FRAMEWORK}/calls")
        return self._own

    def prompts(self, recorder: Recorder) -> Prompts:
        """What this client has written to a recorder; a replay's scratch holds nothing that stays."""
        tape = current_tape()
        if tape is not None:
            if self._replayed is None or self._replayed[0] is not tape:
                self._replayed = tape, Prompts(recorder.redactor)
            return self._replayed[1]
        found = self._prompts.get(recorder)
        if found is None:
            found = self._prompts[recorder] = Prompts(recorder.redactor)
        return found


class _Call:
    """One model call, from its request to its end."""

    def __init__(
        self,
        client: RecordingChatCompletionClient,
        messages: Sequence[LLMMessage],
        tools: Sequence[Tool | ToolSchema],
        tool_choice: ToolChoice,
        json_output: bool | type[BaseModel] | None,
        extra: Mapping[str, Any] | None,
        *,
        streamed: bool,
    ) -> None:
        self._client, self._streamed = client, streamed
        self._recorder, self._run, self._ledger = client.recorder(), current_run(), current_ledger()
        self._ambient = self._recorder is not None and self._recorder is current_recorder()
        self._messages = tuple(messages)
        self._asked = (tools, tool_choice, json_output, extra)
        self._started = monotonic()
        self._first: float | None = None
        self._said: list[str] = []
        self._ended = False

    def came(self, item: str | CreateResult) -> None:
        """Something came from the stream."""
        if self._first is None:
            self._first = monotonic() - self._started
        if isinstance(item, str):
            self._said.append(item)

    def end(self, result: CreateResult | None, error: BaseException | None) -> None:
        """Record the call."""
        recorder = self._recorder
        if self._ended or recorder is None:
            return
        self._ended = True
        with guarded(recorder, "a model call"):
            self._write(recorder, result, error)

    def _write(self, recorder: Recorder, result: CreateResult | None, error: BaseException | None) -> None:
        """Take what may change from here on, and let the recorder's writer do the rest."""
        inner = cast(Any, self._client)._client
        prompts = self._client.prompts(recorder)
        prompts.renew(recorder)
        (tree, objects), erasures, whole = prompts.grow(self._messages), prompts.erasures, prompts.whole()
        raised: dict[str, Any] = {}
        problem = "the stream was closed before its end" if isinstance(error, GeneratorExit) else None
        if error is not None and problem is None:
            problem = f"{type(error).__name__}: {error}"[:2000]
            raised = {"exception": described(error)} if isinstance(error, Exception) else {}
        elif error is None and result is None:
            problem = "the stream ended without a result"
        request = prompts.request(asking(*self._asked, known=prompts.tools))
        answer, spoken, at = _answer(result), _spoken(result), now()
        run = self._run if self._ambient else None
        told: dict[str, Any] = {
            "provider": _provider(inner), "model": _model(inner), "agent": asker(self._run and self._run.name), "observer": "model",
            "request": request, "input": tree.ref, "streamed": self._streamed, "time_to_first_chunk": self._first,
            "duration": monotonic() - self._started, "error": problem, "attributes": {**self._facts(prompts, result), **raised},
        }  # fmt: skip

        def make() -> Draft:
            values = {key: value for key, value in told.items() if value is not None and value != {}}
            values |= _said(spoken, self._said)
            record = None if answer is None else Native(FRAMEWORK, version(), "json", answer)
            chunk = recorder.draft_of("inference", values, run=run, origin=origin_text(), at=at, native=record)
            if not recorder.record_content:
                return chunk
            # no secret stands in those: see Prompts
            return chunk._replace(objects={**chunk.objects, **(whole() if recorder.erased_since(erasures) else objects)})

        if not later(recorder, "a model call", make, objects):
            return
        prompts.written(tree)
        if result is not None and self._ledger is not None and self._ambient:
            self._ledger.add(result.usage)

    def _facts(self, prompts: Prompts, result: CreateResult | None) -> dict[str, Any]:
        """What a replay needs beside the answer: what the model can (once), and the pieces in which it came."""
        found: dict[str, Any] = {} if prompts.told else {"model_info": _plain(self._client.model_info)}
        prompts.told = True
        if result is not None and result.cached:
            found["cached"] = True
        if self._said and result is not None:
            whole = isinstance(result.content, str) and "".join(self._said) == result.content
            found |= {"pieces": [len(said) for said in self._said]} if whole else {"said": self._said}
        elif self._said:
            found["pieces"] = [len(said) for said in self._said]
        return found


def asking(
    tools: Sequence[Tool | ToolSchema],
    tool_choice: ToolChoice,
    json_output: bool | type[BaseModel] | None,
    extra: Mapping[str, Any] | None,
    known: Sequence[Any] = (),
) -> dict[str, Any]:
    """What was asked for beside the messages, as JSON values.

    Args:
        tools: What the model may call.
        tool_choice: Whether it must.
        json_output: The form of its answer.
        extra: Arguments for the provider.
        known: Schemas that were made JSON values before: the same ones are not looked at again.
    """
    schemas = [tool if isinstance(tool, dict) else _schema(tool) for tool in tools]
    found: dict[str, Any] = {
        "tool_choice": tool_choice if isinstance(tool_choice, str) else tool_choice.name,
        "params": {key: _plain(value) for key, value in (extra or {}).items()},
    }
    if isinstance(json_output, type):
        found["output_schema"] = json_output.model_json_schema()
    elif json_output is not None:
        found["json_output"] = json_output
    kept = {"tools": known if _are(schemas, known) else _plain(schemas)} if schemas else {}
    return kept | {key: _plain(value) for key, value in found.items() if value not in ([], {})}


def _are(schemas: Sequence[Any], known: Sequence[Any]) -> bool:
    """Tell whether they would be written as the same: 1, 1.0 and True are equal, and are not."""
    try:
        return schemas == known and orjson.dumps(schemas) == orjson.dumps(known)
    except TypeError:
        return False


def _schema(tool: Tool) -> ToolSchema:
    """A tool's schema; AutoGen's own tools work it out each time anew from what does not change but for name and description."""
    if getattr(type(tool), "schema", None) is not BaseTool.schema:
        return tool.schema
    facts = tool.name, tool.description
    found = _schemas.get(tool)
    if found is None or found[0] != facts:
        found = _schemas[tool] = facts, tool.schema
    return found[1]


def _plain(value: Any) -> Any:
    """Values as JSON holds them; what it cannot hold (a response format's class, say) by its name."""
    if value is None or isinstance(value, (str, int, float, bool, bytes)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return repr(value)


def _answer(result: CreateResult | None) -> bytes | None:
    """The JSON of a result as it is now (its owner may change it)."""
    if result is None:
        return None
    if type(result) is CreateResult and result.logprobs is None:  # no float stands in it: pydantic writes NaN as null
        try:
            return result.__pydantic_serializer__.to_json(result)
        except ValueError:
            pass
    return to_bytes(result.model_dump(mode="json"))


class _Spoken(NamedTuple):
    """What a result holds, as it is now: its owner may change it."""

    finish_reason: str
    content: str | tuple[tuple[str, str, str], ...]
    thought: str | None
    usage: tuple[int, int]


def _spoken(result: CreateResult | None) -> _Spoken | None:
    if result is None:
        return None
    content = result.content
    held = content if isinstance(content, str) else tuple((call.id, call.name, call.arguments) for call in content)
    return _Spoken(result.finish_reason, held, result.thought, (result.usage.prompt_tokens, result.usage.completion_tokens))


def _said(spoken: _Spoken | None, pieces: Sequence[str]) -> dict[str, Any]:
    """The fields of an inference that tell what the model said; where there is no result, what had come of it."""
    if spoken is None:
        return {"output": [{"type": "text", "content": "".join(pieces)}]} if pieces else {}
    output: list[dict[str, Any]] = [{"type": "reasoning", "content": spoken.thought}] if spoken.thought else []
    if isinstance(spoken.content, str):
        output.append({"type": "text", "content": spoken.content})
    else:
        output += [part_to_json(ToolCallPart(name, tool, parsed(arguments))) for name, tool, arguments in spoken.content]
    asked, given = spoken.usage
    usage = {"input_tokens": asked, "output_tokens": given}
    return {"finish_reasons": [spoken.finish_reason], "usage": usage} | ({"output": output} if output else {})


def _provider(client: Any) -> str:
    """``openai`` for ``autogen_ext.models.openai...``; the top package of a client from elsewhere."""
    names = type(client).__module__.split(".")
    return names[2] if names[:2] == ["autogen_ext", "models"] and len(names) > 2 else names[0]


def _model(client: Any) -> str | None:
    """The model's name, where the client's create arguments say it (no public attribute does)."""
    given = getattr(client, "_create_args", None)
    name = cast("Mapping[str, Any]", given).get("model") if isinstance(given, Mapping) else None
    return name if isinstance(name, str) else None


def asker(run: str | None) -> str | None:
    """Who asks: inside a team, the agent whose turn it is; else the run's name."""
    try:
        return MessageHandlerContext.agent_id().type.rpartition("_")[0] or run
    except RuntimeError:
        return run
