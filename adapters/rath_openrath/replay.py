"""OpenRath's part of a replay: agents, selectors and compressors ask the record, and no tool runs (source: ``rath.session.loop``).

OpenRath keeps a conversation's rows and nothing of its requests. A model call is equal to a recorded one where the conversation that it
was handed ends with exactly the rows that stand before an assistant's row on record; what an agent's own instructions said is not known.
What selectors and compressors were told is on no record: their calls are misses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, cast

from rath_bridge.interchange.natives import from_bytes
from rath_bridge.model.chunk import Chunk, Native
from rath_bridge.model.digests import Digest
from rath_bridge.plugins import require
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay import Divergence, Tape, Verdict, current_tape, patched
from rath_openrath.records import FRAMEWORK

_SHOWN: Final = 200


@dataclass(slots=True, eq=False)
class _Row:
    """A recorded row, as it stands in a request."""

    chunk: Digest
    payload: Mapping[str, Any]
    message: Mapping[str, Any]
    used: bool = False


class OpenRathPlayer:
    """Answers for OpenRath from a record."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.rows = [
            _row(chunk.id, from_bytes(native.data)) for chunk in tape.held.chunks if (native := _native(chunk)) is not None
        ]
        self.usage = next((found for chunk in tape.held.chunks if (found := _total(chunk)) is not None), None)
        """Of the whole session; OpenRath keeps no other."""
        self._lock = RLock()

    @contextmanager
    def installed(self) -> Generator[None]:
        """Let loops, selectors and compressors ask the record."""
        feature = "replaying an OpenRath session"
        loop: Any = require("rath._async.aloop", feature, FRAMEWORK)
        select: Any = require("rath.session.select", feature, FRAMEWORK)
        compress: Any = require("rath.session.compress", feature, FRAMEWORK)
        with (
            patched(loop, "_resolve_async_executor", _asking),
            patched(loop, "_summarize_dispatch_result", _summarised),
            patched(select, "resolve_executor", _asking),
            patched(compress, "resolve_executor", _asking),
        ):
            yield

    @property
    def unused(self) -> Sequence[Digest]:
        """Answers of models and tools that were not asked for."""
        return [row.chunk for row in self.rows if not row.used and row.message["role"] in ("assistant", "tool")]

    @property
    def reasons(self) -> Sequence[str]:
        """Nothing: what is not on record is a miss when it is asked for."""
        return ()

    def reply(self, messages: Sequence[Any]) -> _Row | Divergence:
        """Return the assistant's row that answers a conversation."""
        asked = [DEFAULT.apply(_asked(one)) for one in messages]
        with self._lock:
            waiting = [(index, row) for index, row in enumerate(self.rows) if not row.used and row.message["role"] == "assistant"]
            for index, row in waiting:
                before = [one.message for one in self.rows[:index]]
                if before == asked[len(asked) - len(before) :] and len(before) <= len(asked):
                    row.used = True
                    return row
        return self._missed(asked, waiting)

    def _missed(self, asked: list[Any], waiting: Sequence[tuple[int, _Row]]) -> Divergence:
        if not waiting:
            return Divergence("model call", _shown(asked[-1:]), "no call left")
        index, row = waiting[0]
        before = [one.message for one in self.rows[:index]]
        head = max(0, len(asked) - len(before))
        for number, expected in enumerate(before):
            found = asked[head + number] if head + number < len(asked) else None
            if found != expected:
                return Divergence(f"model call: message {number}", _shown(found), _shown(expected), row.chunk)
        return Divergence("model call", _shown(asked), _shown(before), row.chunk)

    def spent(self, row: _Row) -> Any:
        """Return the session's usage with its last answer, so that the sum is the recorded one."""
        last = next(one for one in reversed(self.rows) if one.message["role"] == "assistant")
        return self.usage if row is last else None

    def answer(self, name: str, arguments: Any) -> _Row | Divergence:
        """Return the result of the next equal tool call that is on record."""
        wanted = DEFAULT.apply(dict(arguments))
        with self._lock:
            calls = [
                (one.get("id"), _parsed(function.get("arguments")))
                for row in self.rows
                for one in row.message.get("tool_calls") or ()
                if (function := _function(one)).get("name") == name
            ]
            results = {
                row.message.get("tool_call_id"): row for row in self.rows if row.message["role"] == "tool" and not row.used
            }
            left = [(results[call_id], given) for call_id, given in calls if call_id in results]
            for row, given in left:
                if given == wanted:
                    row.used = True
                    return row
        nearest = left[0] if left else None
        expected = "no such call left" if nearest is None else _shown(nearest[1])
        return Divergence(f"tool call {name}", _shown(wanted), expected, None if nearest is None else nearest[0].chunk)


def _native(chunk: Chunk, codec: str = "row") -> Native | None:
    ref = chunk.native_ref
    return chunk.native if ref is not None and (ref["framework"], ref["codec"]) == (FRAMEWORK, codec) else None


def _total(chunk: Chunk) -> Mapping[str, Any] | None:
    native = _native(chunk, "trailer")
    return None if native is None else from_bytes(native.data).get("cumulative_usage")


def _row(chunk: Digest, record: Mapping[str, Any]) -> _Row:
    payload = record["payload"]
    role = {"tool_result": "tool"}.get(record["kind"], record["kind"])
    found: dict[str, Any] = {"role": role, "content": None if payload.get("content") is None else str(payload["content"])}
    if role == "assistant" and payload.get("tool_calls"):
        calls = cast("Sequence[Any]", payload["tool_calls"])
        found["tool_calls"] = [dict(cast("Mapping[str, Any]", one)) for one in calls if isinstance(one, Mapping)]
    if role == "tool":
        found["tool_call_id"] = str(payload.get("tool_call_id"))
    return _Row(chunk, payload, DEFAULT.apply(found))


def _asked(message: Any) -> dict[str, Any]:
    found = {"role": message.role, "content": message.content, "tool_call_id": message.tool_call_id}
    if message.tool_calls:
        found["tool_calls"] = [dict(one) for one in message.tool_calls]
    return {name: value for name, value in found.items() if value is not None or name == "content"}


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a recorded call names; nothing where it is a call of another shape, which this framework never asks for."""
    found: Any = call.get("function")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# ------------------------------------------------------------------ in front of OpenRath's executors


@dataclass(frozen=True, slots=True)
class _Served:
    """A tool's answer as the model was told it."""

    content: str


def _summarised(original: Callable[..., str], tool: Any, raw: Any) -> str:
    return raw.content if isinstance(raw, _Served) else original(tool, raw)


def _asking(original: Callable[..., Any], **options: Any) -> Any:
    tape = current_tape()
    player = tape.player(FRAMEWORK) if tape is not None else None
    if player is None:
        return original(**options)
    return _Asking(player, lambda: original(**options), options.get("on_event"))


@dataclass(slots=True)
class _Asking:
    """An executor, for both of OpenRath's protocols, that asks the tape before its own."""

    player: OpenRathPlayer
    make: Callable[[], Any]
    on_event: Callable[[Any], None] | None = None
    _live: list[Any] = field(default_factory=list[Any])

    @property
    def live(self) -> Any:
        """The executor that was asked for; made with the first call that is live, since it opens a client."""
        if not self._live:
            self._live.append(self.make())
        return self._live[0]

    def tool_schemas(self) -> tuple[Any, ...]:
        return ()

    def complete(self, req: Any) -> Any:
        found, verdict = self._ask(req)
        if verdict.action == "live":
            return self.live.complete(req)
        return self._answered(found, verdict, req)

    async def acomplete(self, req: Any) -> Any:
        found, verdict = await asyncio.to_thread(self._ask, req)
        if verdict.action == "live":
            return await self.live.acomplete(req)
        return self._answered(found, verdict, req)

    def _answered(self, found: _Row | Divergence, verdict: Verdict, req: Any) -> Any:
        if verdict.action == "serve" and isinstance(found, _Row):
            made = _response(found.payload, req, self.player.spent(found))
        else:
            made = _response(verdict.value, req, None)
        if self.on_event is not None:
            llm: Any = require("rath.llm", "replaying an OpenRath session", FRAMEWORK)
            choice = made.primary_choice
            self.on_event(llm.RathLLMStreamDelta(content_delta=choice.message.content, finish_reason=choice.finish_reason))
        return made

    async def adispatch_tool(self, session: Any, tool: Any, arguments: Mapping[str, Any]) -> Any:
        found = self.player.answer(tool.name, arguments)
        missing = isinstance(found, Divergence)
        verdict = self.player.tape.ask(
            "tool",
            tool.name,
            chunk=None if missing else found.chunk,
            arguments=dict(arguments),
            expected=found if missing else None,
        )
        if verdict.action == "live":
            return await self.live.adispatch_tool(session, tool, arguments)
        if verdict.action == "serve":
            return _Served(str(cast(_Row, found).payload.get("content")))
        value: Any = verdict.error if verdict.action == "error" else verdict.value
        return _Served(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))

    def _ask(self, req: Any) -> tuple[_Row | Divergence, Verdict]:
        found = self.player.reply(req.messages)
        missing = isinstance(found, Divergence)
        return found, self.player.tape.ask(
            "model", None, chunk=None if missing else found.chunk, expected=found if missing else None
        )


def _response(answer: Any, req: Any, usage: Mapping[str, Any] | None) -> Any:
    """Return what a client would have: the recorded row, or the value that stands in for it."""
    llm: Any = require("rath.llm", "replaying an OpenRath session", FRAMEWORK)
    payload: Mapping[str, Any] = cast(Any, answer) if isinstance(answer, Mapping) else {"content": str(answer)}
    parts: list[Any] = []
    for one in payload.get("tool_calls") or ():
        text = one["function"]["arguments"]
        given = _parsed(text)
        good = isinstance(given, dict)
        function = llm.RathLLMToolCallFunction(
            name=one["function"]["name"], arguments=text, arguments_parsed=given if good else None, arguments_parse_error=not good
        )
        parts.append(llm.RathLLMToolCallPart(id=one["id"], type=one.get("type", "function"), function=function))
    message = llm.RathLLMAssistantMessage(content=payload.get("content"), tool_calls=tuple(parts) or None)
    choice = llm.RathLLMChatChoice(index=0, finish_reason="tool_calls" if parts else "stop", message=message)
    model = str(getattr(req, "model", None) or "")
    spent = None if usage is None else llm.RathLLMTokenUsage(**usage)
    return llm.RathLLMChatResponse(id="", choices=(choice,), created=0, model=model, usage=spent)
