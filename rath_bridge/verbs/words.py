"""A chunk on one line: what happened, in its first words. Every text that leaves here is inert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model import kinds, parts
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.verbs.calling import failed
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.jsonable import jsonable


def summary(chunk: Chunk) -> str:
    """Return what happened, in one line; content that is erased, missing or unreadable is said to be so."""
    if chunk.body_bytes is None:
        return f"(erased, {size(chunk.size)})"
    try:
        body = chunk.body
    except RathError as error:
        return f"(unreadable: {one_line(str(error))})"
    return body_words(body)


def body_words(body: kinds.Body) -> str:
    """Return what a body tells, in one line."""
    tell = _TELL.get(type(body))
    return tell(body) if tell is not None else _unknown(body)


def size(count: int) -> str:
    """Return a number of bytes for people: ``512 B``, ``20.1 MB``."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def counted(number: int, what: str) -> str:
    """Return ``1 chunk``, ``3 chunks``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def value_words(value: Any, limit: int = 120) -> str:
    """Return any value in a few inert words."""
    if isinstance(value, str):
        return one_line(value, limit)
    return one_line(_plain(value), limit)


def _plain(value: Any) -> str:
    if isinstance(value, BlobRef):
        return f"<{value.media_type or 'blob'}, {size(value.size)}>"
    if isinstance(value, TreeRef):
        return f"<{value.form} of {value.count}>"
    if isinstance(value, bytes):
        return f"<{size(len(value))}>"
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # integers beyond 64 bits, half surrogate pairs
        return orjson.dumps(jsonable(value)).decode()


def speaker_words(role: str, name: str | None) -> str:
    """Return who speaks: ``assistant clerk``; a name that only repeats the role (AutoGen's user is one) is told once."""
    return one_line(role, 40) + (f" {one_line(name, 60)}" if name and name != role else "")


def call_words(name: str, arguments: Any) -> str:
    """Return a call as ``search(q="x", n=3)``."""
    if isinstance(arguments, Mapping):
        found = cast("Mapping[Any, Any]", arguments)
        inside = ", ".join(
            f"{one_line(str(key), 40)}={value_words(_quoted(value), 60)}" for key, value in list(found.items())[:12]
        )
    else:
        inside = "" if arguments is None else value_words(arguments)
    return f"{one_line(name, 80)}({inside})"


def _quoted(value: Any) -> Any:
    return f'"{value}"' if isinstance(value, str) else value


def part_words(part: parts.Part) -> str:
    """Return one message part in a few words."""
    if isinstance(part, parts.TextPart):
        return one_line(part.content)
    if isinstance(part, parts.ReasoningPart):
        return f"(thinks) {one_line(part.content)}"
    if isinstance(part, parts.ToolCallPart):
        return f"→ {call_words(part.name, part.arguments)}"
    if isinstance(part, parts.ToolCallResponsePart):
        return f"← {'failed: ' if failed(part.extra) else ''}{value_words(part.response)}"
    if isinstance(part, parts.BlobPart):
        return f"[{one_line(part.mime_type or part.modality, 60)}, {size(len(part.content))}]"
    if isinstance(part, parts.FilePart):
        return f"[{one_line(part.modality, 60)} file {one_line(part.file_id, 60)}]"
    if isinstance(part, parts.UriPart):
        return f"[{one_line(part.modality, 60)} {one_line(part.uri, 100)}]"
    return f"[{one_line(part.type, 60)}]"


def _message(body: kinds.Message) -> str:
    speaker = speaker_words(body.role, body.name)
    if body.name == "merge" and body.stands_for:  # nobody said it: a merge wrote it
        speaker = "merge"
    said = " ".join(part_words(part) for part in body.parts) or "(empty)"
    return f"{speaker}: {said}{' (edit)' if body.replaces else ''}"


def _inference(body: kinds.Inference) -> str:
    found = [one_line(body.response_model or body.model or "a model", 60)]
    usage = body.usage
    if usage is not None and (usage.input_tokens or usage.output_tokens):
        cached = f" ({usage.cache_read_input_tokens} cached)" if usage.cache_read_input_tokens else ""
        found.append(f"{usage.input_tokens or 0} in{cached}, {usage.output_tokens or 0} out")
    if body.duration is not None:
        found.append(f"{body.duration:.1f} s")
    found += [one_line(reason, 40) for reason in body.finish_reasons if reason != "stop"]
    if body.error:
        found.append(f"failed: {one_line(body.error)}")
    return " · ".join(found)


def _tool_result(body: kinds.ToolResult) -> str:
    name = one_line(body.name or body.call_id or "a call", 80)
    if body.status == "no_response":
        return f"{name} gave no response{f' ({one_line(body.reason, 60)})' if body.reason else ''}"
    if body.status != "ok":
        return f"{name} failed: {value_words(body.error or body.result)}"
    return f"{name} ← {value_words(_said(body.result))}"


def _said(result: Any) -> Any:
    """What a result says in words: of a list of contents (MCP's), the texts; else the result itself."""
    found: Any = cast("Mapping[Any, Any]", result).get("content") if isinstance(result, Mapping) else None
    contents = cast("list[Any]", found) if isinstance(found, list) else []
    parts = [cast("Mapping[Any, Any]", one) for one in contents if isinstance(one, Mapping)]
    texts: list[Any] = [part.get("content", part.get("text")) for part in parts if part.get("type") == "text"]
    return " ".join(texts) if texts and all(isinstance(one, str) for one in texts) else cast(Any, result)


def _session(body: kinds.SessionStart) -> str:
    whole = inert(body.name if body.branch == "main" else f"{body.name}@{body.branch}")
    how = {"create": "created", "fork": "forked", "detach": "detached", "import": "imported", "replay": "replayed"}
    return f"{how.get(body.op, one_line(body.op, 40))} {whole}{f' from {inert(body.of)}' if body.of else ''}"


def _run(body: kinds.Run) -> str:
    name = one_line(body.name or "a run", 80)
    if body.phase == "begin":
        return f"{name} begins ({one_line(body.type or 'run', 40)})"
    how = one_line(body.status or "no status", 40)
    return f"{name} ends: {how}{f', {one_line(body.error)}' if body.error else ''}"


def _checkpoint(body: kinds.Checkpoint) -> str:
    found = [f"step {body.step}" if body.step is not None else "", one_line(body.source or "", 40)]
    found += [f"in {one_line(body.namespace, 60)}" if body.namespace else ""]
    found += [counted(body.state.count, "channel") if body.state is not None else ""]
    return ", ".join(word for word in found if word) or "state"


def _route(body: kinds.Route) -> str:
    chosen, among = (", ".join(one_line(name, 60) for name in names) for names in (body.chosen, body.candidates))
    reason = f": {one_line(body.reason)}" if body.reason else ""
    return f"{one_line(body.router or 'router', 60)} chose {chosen or 'nobody'}{f' of {among}' if among else ''}{reason}"


def _guardrail(body: kinds.Guardrail) -> str:
    verdict = {True: "triggered", False: "passed", None: "no verdict"}[body.triggered]
    return f"{one_line(body.name, 80)}{f' on {one_line(body.stage, 40)}' if body.stage else ''}: {verdict}"


def _approval(body: kinds.Approval) -> str:
    by = f" by {one_line(body.by, 60)}" if body.by else ""
    subject = f": {value_words(body.subject)}" if body.subject is not None else ""
    return f"{one_line(body.phase, 40)}{by}{subject}{f' ({one_line(body.reason)})' if body.reason else ''}"


def _memory(body: kinds.Memory) -> str:
    query = f" {value_words(body.query)}" if body.query is not None else ""
    return f"{one_line(body.op, 40)}{query}: {counted(len(body.items), 'item')}"


def _compaction(body: kinds.Compaction) -> str:
    reason = f" ({one_line(body.reason, 60)})" if body.reason else ""
    return (
        f"{counted(len(body.dropped), 'message')} dropped{reason}{f', {body.stands[:8]} stands for them' if body.stands else ''}"
    )


def _merge(body: kinds.Merge) -> str:
    return f"merged {inert(body.of or body.theirs[:12])} ({one_line(body.strategy, 40)}, state {one_line(body.state, 40)})"


def _redaction(body: kinds.Redaction) -> str:
    what = [f"{counted(len(body.targets) or body.count or 0, 'chunk')} erased"]
    what += [f"{counted(len(body.objects), 'item')} erased"] if body.objects else []
    what += [f"what is older than {body.before[:10]}"] if body.before else []
    by = f" by {one_line(body.by, 60)}" if body.by else ""
    return f"{', '.join(what)}{by}{f': {one_line(body.reason)}' if body.reason else ''}"


def _unknown(body: kinds.Body) -> str:
    fields = body.fields if isinstance(body, kinds.Unknown) else kinds.body_fields(body)
    words = [f"{one_line(key, 40)}={value_words(value, 60)}" for key, value in list(fields.items())[:6]]
    return f"unknown kind: {', '.join(words)}"


_TELL: Final[dict[type[Any], Callable[[Any], str]]] = {
    kinds.Message: _message,
    kinds.Inference: _inference,
    kinds.ToolCall: lambda body: call_words(body.name, body.arguments),
    kinds.ToolResult: _tool_result,
    kinds.SessionStart: _session,
    kinds.Run: _run,
    kinds.Checkpoint: _checkpoint,
    kinds.Task: lambda body: f"{one_line(body.name or body.path or 'task', 80)}: {counted(len(body.writes), 'write')}",
    kinds.Handoff: lambda body: f"{one_line(body.from_agent or '?', 80)} → {one_line(body.to_agent or '?', 80)}",
    kinds.Route: _route,
    kinds.Guardrail: _guardrail,
    kinds.Approval: _approval,
    kinds.Memory: _memory,
    kinds.Placement: lambda body: f"on {one_line(body.backend, 80)}{f', {one_line(body.root, 100)}' if body.root else ''}",
    kinds.Workspace: lambda body: counted(body.files.count if body.files else 0, "file"),
    kinds.Compaction: _compaction,
    kinds.Merge: _merge,
    kinds.Redaction: _redaction,
    kinds.Gap: lambda body: (
        f"{counted(body.count, 'event')} {'is' if body.count == 1 else 'are'} not on record: {one_line(body.reason)}"
    ),
    kinds.Error: lambda body: f"{one_line(body.type, 80)}: {one_line(body.message)}",
    kinds.Span: lambda body: f"{one_line(body.name, 100)}{f' · {body.duration:.3f} s' if body.duration is not None else ''}",
    kinds.Note: lambda body: f"{f'{one_line(body.author, 60)}: ' if body.author else ''}{one_line(body.text)}",
}
