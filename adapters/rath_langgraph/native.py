"""A transcript -> LangChain messages, with what they could not hold and a manifest of what was handed over.

Messages that came from LangGraph go home exactly, by their own bytes. Others are built from their parts; their ids are taken from
their chunk, so that ``add_messages`` replaces them instead of doubling them when they are handed over again.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.fitting import fitting_id, fitting_name
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.model.parts import (
    BlobPart,
    FilePart,
    GenericPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.verbs.transcript import TranscriptMessage, transcript
from rath_langgraph.compare import compare_key
from rath_langgraph.items import join_list
from rath_langgraph.serde import RathSerializer

_BLOCKS: Final = {"image": "image", "audio": "audio", "video": "video"}


def encode_chunks(chunks: Sequence[Chunk], run: str | None = None) -> tuple[list[BaseMessage], LossReport]:
    """Translate the transcript of a line (or of one run of it).

    Returns:
        The messages, and the report; its manifest names the chunk of every message.
    """
    writer = _Writer(_results(chunks))
    for entry in transcript(chunks, run):
        writer.add(entry)
    writer.close()
    entries = tuple(
        ManifestEntry(index, chunk, compare_key(message))
        for index, (message, chunk) in enumerate(writer.made)
        if chunk is not None
    )
    return [message for message, _ in writer.made], LossReport(tuple(writer.losses), entries)


def _results(chunks: Sequence[Chunk]) -> dict[str, list[ToolResult]]:
    found: dict[str, list[ToolResult]] = {}
    for chunk in chunks:
        if chunk.kind == "tool_result" and chunk.body_bytes is not None:
            body = cast(ToolResult, chunk.body)
            if body.call_id is not None:
                found.setdefault(body.call_id, []).append(body)
    return found


def built_alone(entry: TranscriptMessage) -> list[BaseMessage]:
    """Return what a message of another framework is built into, whatever stands around it."""
    return _Writer({}).built(entry)


def native_message(entry: TranscriptMessage) -> BaseMessage | None:
    """Return the LangChain message that a chunk was made from, or None where another framework spoke."""
    ref = entry.chunk.native_ref
    if ref is None or ref["framework"] != "langgraph" or ref["codec"] != "msgpack":
        return None
    native = entry.chunk.native
    if native is None:
        return None
    found: list[Any] = RathSerializer().loads_typed(("msgpack", join_list([native.data])))
    return found[0] if isinstance(found[0], BaseMessage) else None


@dataclass(slots=True)
class _Writer:
    results: dict[str, list[ToolResult]]
    made: list[tuple[BaseMessage, Digest | None]] = field(default_factory=list[tuple[BaseMessage, Digest | None]])
    """Messages with the chunk that each came from; None for an answer that was put in to close a call."""
    losses: list[Loss] = field(default_factory=list[Loss])
    asked_as: dict[str, str] = field(default_factory=dict[str, str])
    """Call ids on record, where they are handed over under another one."""
    waiting: dict[str, tuple[int, str, Digest]] = field(default_factory=dict[str, tuple[int, str, Digest]])
    """Open calls by id: where the asking message stands, the tool's name, and the asking chunk."""

    def add(self, entry: TranscriptMessage) -> None:
        message = native_message(entry)
        for one in [message] if message is not None else self.built(entry):
            if isinstance(one, ToolMessage):
                if self.waiting.pop(one.tool_call_id, None) is None:
                    self._lose(
                        entry.id, "parts", f"an answer to the call {one.tool_call_id!r}, which is not in the transcript: left out"
                    )
                    continue
            elif isinstance(one, AIMessage):
                for call in [*one.tool_calls, *one.invalid_tool_calls]:
                    if call["id"] is not None:
                        self.waiting[call["id"]] = (len(self.made), call["name"] or "", entry.id)
            self.made.append((one, entry.id))

    def close(self) -> None:
        """Answer every call that is still open, right behind the answers that its message has."""
        for call_id, (at, name, chunk) in sorted(self.waiting.items(), key=lambda one: -one[1][0]):  # later places move
            place = at + 1
            while place < len(self.made) and isinstance(self.made[place][0], ToolMessage):
                place += 1
            known = self.results.get(self.asked_as.get(call_id, call_id))
            if known and known[-1].status != "no_response":
                content = _text(known[-1].result if known[-1].result is not None else known[-1].error)
                status = "error" if known[-1].status == "error" else "success"
                answer = ToolMessage(content, tool_call_id=call_id, name=name, status=status, id=f"rath-{chunk[:24]}-{call_id}")
            else:
                self._lose(chunk, "parts", f"the call {call_id!r} of {name} has no answer: closed as no_response")
                answer = ToolMessage(
                    "no_response", tool_call_id=call_id, name=name, status="error", id=f"rath-{chunk[:24]}-{call_id}"
                )
            self.made.insert(place, (answer, None))
        self.waiting.clear()

    def _lose(self, chunk: Digest, path: str, what: str) -> None:
        self.losses.append(Loss(chunk, path, what))

    # ------------------------------------------------------------------ from parts

    def built(self, entry: TranscriptMessage) -> list[BaseMessage]:
        body = entry.body
        answers = [(i, part) for i, part in enumerate(body.parts) if isinstance(part, ToolCallResponsePart)]
        rest = [(i, part) for i, part in enumerate(body.parts) if not isinstance(part, ToolCallResponsePart)]
        found: list[BaseMessage] = [self._answer(entry, i, part) for i, part in answers]
        if answers and rest and body.role == "tool":
            for i, part in rest:
                self._lose(entry.id, f"parts[{i}]", f"a {part.type} part in a tool's message: left out")
        elif rest or not answers:
            found.append(self._said(entry, body, rest))
        return found

    def _answer(self, entry: TranscriptMessage, index: int, part: ToolCallResponsePart) -> ToolMessage:
        call_id = part.id
        if call_id is None:
            call_id = next((name for name in self.waiting if name.startswith("rath-call-")), f"rath-call-{entry.id[:16]}-{index}")
        elif call_id not in self.waiting:
            call_id = fitting_id(call_id)
        status = "error" if part.extra.get("status") == "error" or part.extra.get("is_error") else "success"
        name = part.extra.get("name") or (self.waiting[call_id][1] if call_id in self.waiting else None)
        if not isinstance(part.response, str):
            self._lose(entry.id, f"parts[{index}].response", "a result that is no text: it stands as JSON")
        return ToolMessage(
            _text(part.response), tool_call_id=call_id, status=status, name=name, id=f"rath-{entry.id[:24]}-{index}",
            artifact=part.extra.get("artifact"),
        )  # fmt: skip

    def _said(self, entry: TranscriptMessage, body: Message, parts: Sequence[tuple[int, Part]]) -> BaseMessage:
        blocks: list[dict[str, Any]] = []
        calls: list[ToolCall] = []
        invalid: list[InvalidToolCall] = []
        for index, part in parts:
            if isinstance(part, ToolCallPart):
                self._call(entry, index, part, calls, invalid)
            else:
                block = self._block(entry, index, part)
                if block is not None:
                    blocks.append(block)
        plain = all(block.keys() == {"type", "text"} for block in blocks)
        content: Any = "\n".join(block["text"] for block in blocks) if plain and len(blocks) <= 1 else blocks
        name = body.name and fitting_name(body.name)
        if name != body.name:
            self._lose(entry.id, "name", f"the name {body.name!r} has other characters than providers take: {name!r}")
        options: dict[str, Any] = {"id": f"rath-{entry.id[:32]}", "name": name}
        if body.role == "assistant":
            if body.finish_reason:
                options["response_metadata"] = {"finish_reason": body.finish_reason}
            return AIMessage(content, tool_calls=calls, invalid_tool_calls=invalid, **options)
        for call in [*calls, *invalid]:
            self._lose(entry.id, "parts", f"a call of {call['name']} in a message of role {body.role}: left out")
        if body.role == "user":
            return HumanMessage(content, **options)
        if body.role == "system":
            return SystemMessage(content, **options)
        if body.role == "developer":
            return SystemMessage(content, additional_kwargs={"__openai_role__": "developer"}, **options)
        return ChatMessage(content=content, role=body.role, **options)

    def _call(
        self, entry: TranscriptMessage, index: int, part: ToolCallPart, calls: list[ToolCall], invalid: list[InvalidToolCall]
    ) -> None:
        call_id = part.id
        if call_id is None:
            call_id = f"rath-call-{entry.id[:16]}-{index}"
            self._lose(entry.id, f"parts[{index}].id", f"the call has no id: {call_id} stands in its place")
        elif (fit := fitting_id(call_id)) != call_id:
            self._lose(entry.id, f"parts[{index}].id", f"no provider takes the call id {call_id!r}: it is handed over as {fit!r}")
            self.asked_as[fit], call_id = call_id, fit
        name = fitting_name(part.name)
        if name != part.name:
            self._lose(entry.id, f"parts[{index}].name", f"the tool {part.name!r} has a name that no provider takes: {name!r}")
        arguments = part.arguments
        if isinstance(arguments, dict):
            calls.append(ToolCall(name=name, args=cast("dict[str, Any]", arguments), id=call_id, type="tool_call"))
        elif arguments is None or arguments == "":
            calls.append(ToolCall(name=name, args={}, id=call_id, type="tool_call"))
        else:
            invalid.append(
                InvalidToolCall(
                    name=name, args=_text(arguments), id=call_id, error="arguments are no object", type="invalid_tool_call"
                )
            )

    def _block(self, entry: TranscriptMessage, index: int, part: Part) -> dict[str, Any] | None:
        if isinstance(part, TextPart):
            extra = {key: value for key, value in part.extra.items() if key != "type"}
            if extra:
                self._lose(entry.id, f"parts[{index}]", f"facts about a text ({', '.join(sorted(extra))}): left out")
            return {"type": "text", "text": part.content}
        if isinstance(part, ReasoningPart):
            if part.extra:
                self._lose(entry.id, f"parts[{index}]", f"facts about reasoning ({', '.join(sorted(part.extra))}): left out")
            return {"type": "reasoning", "reasoning": part.content}
        if isinstance(part, (BlobPart, UriPart, FilePart)):
            block: dict[str, Any] = {"type": _BLOCKS.get(part.modality, "file")}
            if isinstance(part, BlobPart):
                block["base64"] = b64encode(part.content).decode()
            elif isinstance(part, UriPart):
                block["url"] = part.uri
            else:
                block["file_id"] = part.file_id
            if part.mime_type:
                block["mime_type"] = part.mime_type
            return block
        assert isinstance(part, GenericPart)
        self._lose(entry.id, f"parts[{index}]", f"a {part.type!r} part, which LangChain does not know: left out")
        return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=repr).decode()
    except (TypeError, ValueError, OverflowError):
        return repr(value)
