"""The classic ``ChatResult`` of AG2 (``autogen`` before 0.4, ``ag2`` before 1.0), by its shape: object or JSON, with no import of ag2.

Its roles are relative to one side: the lines of whoever began the chat say ``assistant``. So who began it is the user here, everybody
else an assistant, and the run says that this was inferred; the message's own bytes keep the role as it was (facts, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rath_autogen.natives import origin, to_bytes
from rath_autogen.pieces import parsed
from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Draft, Native, draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Inference, Message, Run, Usage
from rath_bridge.model.parts import Part, TextPart, ToolCallPart, ToolCallResponsePart, UriPart, foreign_part

FIELDS: Final = ("chat_id", "chat_history", "summary", "cost", "human_input")
"""Of ``autogen.agentchat.chat.ChatResult``, 0.14."""
FRAMEWORK: Final = "ag2"
OBSERVER: Final = "chat_result"
"""Observer of an ``inference`` that adds up what a model cost in a whole chat."""
PLACE: Final = "AG2 ChatResult"


def is_classic(obj: Any) -> bool:
    """Tell whether this is a ``ChatResult``, or its JSON."""
    if isinstance(obj, Mapping):
        keys = cast("Mapping[str, Any]", obj).keys()
        return "chat_history" in keys and bool(keys & {"summary", "cost", "human_input"}) and keys <= set(FIELDS)
    return type(obj).__name__ == "ChatResult" and all(hasattr(obj, name) for name in FIELDS[1:])


def decode_classic(obj: Any) -> list[Draft]:
    """Translate a chat into a run: its messages in order, what each model cost, summary and human input at its end.

    Raises:
        DecodeError: A field is of another shape; the error names it.
    """
    held = isinstance(obj, Mapping)
    data = cast("Mapping[str, Any]", obj) if held else {name: getattr(obj, name, None) for name in FIELDS}
    lines = data["chat_history"]
    if not isinstance(lines, (list, tuple)):
        raise DecodeError(PLACE, f"a list of messages was expected, not {type(lines).__name__}", "chat_history")
    history = [_line(line, index) for index, line in enumerate(cast("Sequence[Any]", lines))]
    speakers = list(dict.fromkeys(name for line in history if (name := _speaker(line)) is not None))
    run, ours = new_id(8), origin() | {"framework": FRAMEWORK, "version": "classic"}
    chat_id = data.get("chat_id")
    begin = Run(
        phase="begin", name="chat", type="team", native_id=None if chat_id is None else str(chat_id),
        attributes={"participants": speakers, "basis": "inferred"},
    )  # fmt: skip
    found = [draft(begin, run=run, origin=ours)]
    names: dict[str, str] = {}
    waiting: list[str] = []
    for index, line in enumerate(history):
        try:
            body = _message(line, speakers[0] if speakers else None, names, waiting, index)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            field = f".{error.args[0]}" if isinstance(error, KeyError) else ""
            raise DecodeError(
                PLACE, f"not a message of AG2 ({type(error).__name__}: {error})", f"chat_history[{index}]{field}"
            ) from error
        found.append(draft(body, run=run, origin=ours, native=Native(FRAMEWORK, "classic", "json", to_bytes(line))))
    found += [draft(body, run=run, origin=ours) for body in _spent(data.get("cost"))]
    facts = {name: data[name] for name in ("summary", "cost", "human_input") if data.get(name) not in (None, [], {})}
    return [*found, draft(Run(phase="end", name="chat", type="team", status="ok", attributes=facts), run=run, origin=ours)]


def _line(line: Any, index: int) -> Mapping[str, Any]:
    if not isinstance(line, Mapping) or "content" not in line:
        what = "an object was expected" if not isinstance(line, Mapping) else "the field is missing"
        raise DecodeError(PLACE, what, f"chat_history[{index}]" + (".content" if isinstance(line, Mapping) else ""))
    return cast("Mapping[str, Any]", line)


def _speaker(line: Mapping[str, Any]) -> str | None:
    """Who speaks: the name, else the relative role, which tells two sides apart just as well."""
    return None if line.get("role") in ("tool", "function") else line.get("name") or line.get("role")


def _message(line: Mapping[str, Any], first: str | None, names: dict[str, str], waiting: list[str], index: int) -> Message:
    parts: list[Part] = []
    if line.get("role") == "tool" and line.get("tool_responses"):
        for answer in line["tool_responses"]:
            call_id = str(answer["tool_call_id"])
            parts.append(ToolCallResponsePart(call_id, answer["content"], {"name": names.get(call_id, "unknown")}))
        return Message(role="tool", parts=tuple(parts), name=line.get("name"))
    if line.get("role") in ("tool", "function"):
        given = line.get("tool_call_id")
        call_id = str(given) if given else waiting.pop(0) if waiting else f"call_{index}"
        name = names.get(call_id) or line.get("name") or "unknown"
        answered = ToolCallResponsePart(call_id, line["content"], {"name": name} | ({} if given else {"basis": "inferred"}))
        return Message(role="tool", parts=(answered,))
    parts += _content(line["content"])
    for call in line.get("tool_calls") or ():
        names[call["id"]] = call["function"]["name"]
        parts.append(ToolCallPart(call["id"], call["function"]["name"], parsed(call["function"]["arguments"])))
    asked = line.get("function_call")
    if asked:  # the form before tool calls: no ids, paired by order
        call_id = f"function_call_{index}"
        names[call_id] = asked["name"]
        waiting.append(call_id)
        parts.append(ToolCallPart(call_id, asked["name"], parsed(asked["arguments"]), {"basis": "inferred"}))
    asks = bool(line.get("tool_calls") or asked)
    role = "system" if line.get("role") == "system" else "user" if _speaker(line) == first and not asks else "assistant"
    return Message(role=role, parts=tuple(parts), name=line.get("name"))


def _content(content: Any) -> list[Part]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [TextPart(content)]
    found: list[Part] = []
    for item in cast("Sequence[Any]", content):
        if isinstance(item, str):
            found.append(TextPart(item))
        elif item["type"] == "text":
            found.append(TextPart(item["text"]))
        elif item["type"] == "image_url":
            given = item["image_url"]
            found.append(UriPart("image", given if isinstance(given, str) else given["url"]))
        else:
            found.append(foreign_part(item))
    return found


def _spent(cost: Any) -> list[Inference]:
    """What each model cost; answers that came from AG2's cache cost nothing."""
    if not isinstance(cost, Mapping):
        return []
    spent = cast("Mapping[str, Any]", cost).get("usage_excluding_cached_inference")
    if not isinstance(spent, Mapping):
        return []
    found: list[Inference] = []
    for model, one in cast("Mapping[str, Any]", spent).items():
        if isinstance(one, Mapping):
            told = cast("Mapping[str, Any]", one)
            usage = Usage(input_tokens=int(told.get("prompt_tokens", 0)), output_tokens=int(told.get("completion_tokens", 0)))
            facts: dict[str, Any] = {"aggregate": True, "cost": told.get("cost")}
            found.append(Inference(model=model, observer=OBSERVER, usage=usage, attributes=facts))
    return found
