"""Neutral parts -> AutoGen's values: text, images, calls, results; what does not fit is named."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final, cast

from rath_autogen.items import NO_RESPONSE, Item
from rath_autogen.natives import FRAMEWORK
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.fitting import fitting_id, fitting_name
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.model.parts import BlobPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.model.report import Loss
from rath_bridge.plugins import require

ROLES: Final = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "developer": "system"}


class Converter:
    """Builds AutoGen's values and collects what they cannot hold."""

    def __init__(self) -> None:
        self.core = require("autogen_core", "encoding for AutoGen", FRAMEWORK)
        self.models = require("autogen_core.models", "encoding for AutoGen", FRAMEWORK)
        self.losses: list[Loss] = []
        self.asked_as: dict[str, str] = {}
        """Call ids on record, where they are handed over under another one."""

    def lose(self, chunk: Chunk, path: str, what: str) -> None:
        """Name something that does not come along."""
        self.losses.append(Loss(chunk.id, path, what))

    def role(self, item: Item) -> str:
        """The role of a message among AutoGen's four."""
        message = cast(Message, item.message)
        found = ROLES.get(message.role)
        if found is None:
            self.lose(item.chunk, "role", f"AutoGen has no role {message.role!r}: it stands as a user's")
        return found or "user"

    def source(self, item: Item) -> str:
        """Who speaks; AutoGen wants a name for everybody."""
        message = cast(Message, item.message)
        name = message.name or ROLES.get(message.role, "user")
        if item.data is not None:
            return name
        fit = fitting_name(name)  # AutoGen's model clients raise on others (``assert_valid_name``)
        loss = Loss(item.chunk.id, "name", f"the name {name!r} has other characters than are allowed: {fit!r}")
        if fit != name and loss not in self.losses:
            self.losses.append(loss)
        return fit

    def beside(self, item: Item, index: int, part: TextPart | ReasoningPart) -> None:
        """Name what stands beside a foreign text: a signature, a schema."""
        if part.extra and item.data is None:
            self.lose(item.chunk, f"parts[{index}]", f"what stands beside the {part.type}: {', '.join(sorted(part.extra))}")

    def media(self, item: Item, parts: Sequence[tuple[int, Part]]) -> str | list[Any]:
        """Text and images as AutoGen's content: a str where it is one text, else a list."""
        found: list[Any] = []
        for index, part in parts:
            path = f"parts[{index}]"
            if isinstance(part, TextPart):
                found.append(part.content)
                self.beside(item, index, part)
            elif isinstance(part, BlobPart) and (image := self._image(item.chunk, path, part)) is not None:
                found.append(image)
            elif isinstance(part, UriPart):
                image = self._data_uri(item.chunk, path, part)
                found.append(part.uri if image is None else image)
            elif not isinstance(part, BlobPart):
                self.lose(item.chunk, path, f"AutoGen has no {part.type!r} part here: left out")
        if not found:
            return ""
        return found[0] if len(found) == 1 and isinstance(found[0], str) else found

    def _image(self, chunk: Chunk, path: str, part: BlobPart) -> Any:
        if part.modality != "image":
            self.lose(chunk, path, f"AutoGen holds images only: {part.modality} of {len(part.content)} bytes left out")
            return None
        return self._open(chunk, path, part.content)

    def _open(self, chunk: Chunk, path: str, data: bytes) -> Any:
        pil = require("PIL.Image", "images for AutoGen", FRAMEWORK)
        try:
            image = self.core.Image.from_pil(pil.open(BytesIO(data)))
        except (OSError, ValueError, SyntaxError) as error:
            self.lose(chunk, path, f"not an image that AutoGen can open ({type(error).__name__}): left out")
            return None
        if b64decode(image.to_base64()) != data:
            self.lose(chunk, path, "AutoGen re-encodes images as RGB PNG: the bytes differ")
        return image

    def _data_uri(self, chunk: Chunk, path: str, part: UriPart) -> Any:
        head, comma, data = part.uri.partition(",")
        if part.modality == "image" and comma and head.startswith("data:image/") and head.endswith(";base64"):
            try:
                return self._open(chunk, path, b64decode(data))
            except ValueError:
                pass
        self.lose(chunk, path, f"AutoGen holds no {part.modality} by address: its address stands as text")
        return None

    def calls(self, item: Item) -> list[Any]:
        """The calls that a message asks for, arguments as the JSON text that AutoGen wants."""
        given = item.data.get("content") if item.data else None
        if isinstance(given, list) and item.data and item.data.get("type") in ("ToolCallRequestEvent", "AssistantMessage"):
            return [self.core.FunctionCall(**call) for call in cast("list[Mapping[str, Any]]", given)]
        found: list[Any] = []
        for index, part in enumerate(cast(Message, item.message).parts):
            if isinstance(part, ToolCallPart):
                if part.id is None:
                    self.lose(item.chunk, f"parts[{index}].id", "a call without an id: one was made up")
                call_id = part.id or f"call_{item.chunk.id[:8]}_{index}"
                fit, name = fitting_id(call_id), fitting_name(part.name)
                if fit != call_id:
                    self.lose(item.chunk, f"parts[{index}].id", f"no model takes the call id {call_id!r}: handed over as {fit!r}")
                    self.asked_as[fit] = call_id
                if name != part.name:
                    self.lose(item.chunk, f"parts[{index}].name", f"no model takes the tool name {part.name!r}: {name!r}")
                found.append(self.core.FunctionCall(id=fit, name=name, arguments=self._arguments(item.chunk, index, part)))
        return found

    def _arguments(self, chunk: Chunk, index: int, part: ToolCallPart) -> str:
        if isinstance(part.arguments, str):
            return part.arguments
        return self._text(chunk, f"parts[{index}].arguments", {} if part.arguments is None else part.arguments)

    def _text(self, chunk: Chunk, path: str, value: Any) -> str:
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError):
            self.lose(chunk, path, "holds what JSON cannot: written as text")
            return json.dumps(value, ensure_ascii=False, default=str)

    def results(self, item: Item, names: Mapping[str, str]) -> list[Any]:
        """The answers that a message holds.

        Args:
            item: The message.
            names: Tool names by call id: many frameworks leave them out beside a result, AutoGen wants them.
        """
        given = item.data.get("content") if item.data else None
        own = ("ToolCallExecutionEvent", "FunctionExecutionResultMessage")
        if isinstance(given, list) and item.data and item.data.get("type") in own:
            return [self.models.FunctionExecutionResult(**result) for result in cast("list[Mapping[str, Any]]", given)]
        found: list[Any] = []
        for index, part in enumerate(cast(Message, item.message).parts):
            if not isinstance(part, ToolCallResponsePart):
                continue
            path = f"parts[{index}].response"
            content = part.response
            if not isinstance(content, str):
                self.lose(item.chunk, path, "AutoGen's results are text: a structured one stands as JSON")
                content = self._text(item.chunk, path, content)
            call_id = part.id or ""
            if call_id and call_id not in names:
                call_id = fitting_id(call_id)
            failed = part.extra.get("is_error")
            failed = part.extra.get("status") == "error" or None if failed is None else bool(failed)
            name = names.get(call_id) or part.extra.get("name") or cast(Message, item.message).name or "unknown"
            found.append(self.models.FunctionExecutionResult(content=content, name=str(name), call_id=call_id, is_error=failed))
        return found

    def closing(self, chunk: Chunk, call: Any, closed: ToolResult | None) -> Any:
        """The result that closes a call which no message answers: what its ``tool_result`` says, else that there was none."""
        if closed is not None and closed.status != "no_response":
            answer = closed.result if closed.status == "ok" else closed.error or closed.result
            text = answer if isinstance(answer, str) else self._text(chunk, f"call {call.id}", answer)
            return self.models.FunctionExecutionResult(
                content=text, name=call.name, call_id=call.id, is_error=closed.status == "error"
            )
        why = f"[no response: {closed.reason}]" if closed is not None and closed.reason else NO_RESPONSE
        self.lose(chunk, f"call {call.id}", f"{call.name} was never answered: closed with {why!r}")
        return self.models.FunctionExecutionResult(content=why, name=call.name, call_id=call.id, is_error=True)
