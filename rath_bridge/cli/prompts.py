"""What a model was told: the prompt of an ``inference`` chunk, message by message, whatever the framework keeps it as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Inference
from rath_bridge.model.parts import part_from_json
from rath_bridge.model.trees import read_list
from rath_bridge.otel import content
from rath_bridge.plugins import adapters
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.words import call_words, part_words, size, value_words

CUT = 300
"""Characters of a message that are shown unless all are asked for."""


def prompt(chunk: Chunk) -> list[dict[str, Any]] | None:
    """Return what a model was told, as messages of the GenAI conventions.

    Args:
        chunk: An ``inference`` chunk whose body can be read.

    Returns:
        Messages with ``role`` and ``parts``; None where the chunk holds none. Items that only a framework that is not installed could
        read are told by their size.

    Raises:
        RathError: Something of it is gone, or is not what it seems.
    """
    body = chunk.body
    if not isinstance(body, Inference) or not body.input:
        return None
    if not isinstance(body.input, TreeRef):
        return content.messages(body.input)
    assert chunk.load is not None
    names = [raw.hex() for raw in read_list(body.input, chunk.load)]
    held = chunk.load(dict.fromkeys(names))
    return read_items([held[name] for name in names], chunk.origin)


def read_items(items: Sequence[bytes], origin: str | None = None) -> list[dict[str, Any]]:
    """Read the items of a prompt: JSON, or what the adapter that recorded them reads (``prompt`` of `rath_bridge.plugins.Adapter`)."""
    try:
        return content.messages(orjson.loads(one) for one in items)
    except orjson.JSONDecodeError:
        pass
    framework = str(cast("dict[str, Any]", orjson.loads(origin)).get("framework")) if origin else ""
    for name, one in adapters().items():
        read = getattr(one, "prompt", None)
        if read is not None and (name == framework or not framework):
            try:
                return [content.message(message) for message in read(items)]
            except Exception:  # noqa: BLE001 - what one plugin cannot read is told by its size
                break
    return [{"role": "unknown", "parts": [{"type": "unknown", "content": f"<{size(len(one))}>"}]} for one in items]


def lines(messages: Sequence[Mapping[str, Any]], full: bool) -> Iterator[tuple[str, str]]:
    """Yield each message as who, and what is said; both inert."""
    for one in messages:
        said = [_words(part, full) for part in one.get("parts", ())]
        name = one.get("name")
        who = one_line(str(one.get("role", "unknown")), 40) + (f" {one_line(str(name), 60)}" if name else "")
        yield who, ("\n" if full else " ").join(said) or "(empty)"


def _words(part: Any, full: bool) -> str:
    value = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {"type": "text", "content": part}
    text = value.get("content")
    if value.get("type") in ("text", "reasoning", "unknown") and isinstance(text, str):
        shown = inert(text, keep="\n\t") if full else one_line(text, CUT)
        return f"(thinks) {shown}" if value["type"] == "reasoning" else shown
    if value.get("type") == "tool_call":
        return f"→ {call_words(str(value.get('name')), value.get('arguments'))}"
    if value.get("type") == "tool_call_response":
        answer = value.get("response")
        whole = answer if isinstance(answer, str) else content.json_text(answer)
        return f"← {inert(whole, keep=chr(10)) if full else one_line(whole, CUT)}"
    try:
        return part_words(part_from_json(value))
    except RathError:
        return value_words(value, CUT)
