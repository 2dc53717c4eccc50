"""A session -> an ATIF trajectory."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from rath_bridge import __version__
from rath_bridge.interchange.conversation import Shape, Turn, answer_text, paired
from rath_bridge.interchange.natives import homes, is_json, key, plain
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Inference, Merge, Run, SessionStart, Usage
from rath_bridge.model.parts import BlobPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import TranscriptMessage, transcript

VERSION: Final = "ATIF-v1.8"
_SOURCES: Final = {"assistant": "agent", "user": "user", "system": "system", "developer": "system"}
_MEDIA: Final = {
    "image": {"image/jpeg", "image/png", "image/gif", "image/webp"},
    "audio": {"audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff"},
}


@dataclass(slots=True)
class _Line:
    """One run's own chunks, or those of the top level."""

    head: dict[str, Any] | None = None
    begin: Chunk | None = None
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    below: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Out:
    """What is collected while trajectories are built."""

    session: Session
    home: Mapping[Digest, tuple[str, Any]]
    lines: dict[str | None, _Line]
    all: list[Chunk]
    losses: list[Loss] = field(default_factory=list[Loss])
    foreign: bool = False
    """Something is there that no ATIF document held."""


def trajectory(session: Session) -> tuple[Any, LossReport]:
    """Build the trajectory of a session's line; see `rath_bridge.interchange.atif`."""
    chunks = list(session.chunks())
    out = _Out(session, homes(session, chunks, "atif"), {}, chunks)
    _split(out)
    found, turns = _build(out, None)
    if out.foreign:
        _lineage(found, out)
    entries = [ManifestEntry(position, turn.chunk, key(turn.item)) for position, turn in enumerate(turns)]
    return found, LossReport(tuple(out.losses), tuple(entries))


def _split(out: _Out) -> None:
    """Sort the chunks by run: top-level runs and what stands outside of any are one line."""
    top = out.lines.setdefault(None, _Line())
    owner: dict[str, str | None] = {}
    for chunk in out.all:
        if chunk.body_bytes is None:
            out.losses.append(Loss(chunk.id, "body", "its content was erased"))
            continue
        if chunk.kind == "run" and chunk.run is not None and chunk.run not in owner:
            body = cast(Run, chunk.body)
            if body.phase == "begin":
                nested = body.parent is not None
                owner[chunk.run] = chunk.run if nested else None
                line = out.lines.setdefault(owner[chunk.run], _Line()) if nested else top
                if line.begin is None:
                    line.begin = chunk
                if line.head is None and out.home.get(chunk.id, ("", None))[0] == "head":
                    line.head = out.home[chunk.id][1]
                if nested:
                    above = owner.get(str(body.parent))
                    out.lines.setdefault(above, _Line()).below.append(chunk.run)
        place = owner.get(chunk.run) if chunk.run is not None else None
        out.lines.setdefault(place, _Line()).chunks.append(chunk)


def _build(out: _Out, run: str | None) -> tuple[dict[str, Any], list[Turn]]:
    line = out.lines[run]
    own = line.chunks if run is None or not out.all else [out.all[0], *line.chunks]
    messages = transcript(own, None if run is None else run)
    metrics = _metrics(line.chunks, {one.id for one in messages}, out)
    turns: list[Turn] = []
    for one in messages:
        native = out.home.get(one.id)
        if native is not None and native[0] in ("step", "result", "observed"):
            turns.append(_home(one.id, *native, metrics.get(one.id)))
        else:
            out.foreign = True
            turns += _translate(one, metrics.get(one.id), out)
    turns = paired(turns, line.chunks, out.losses, _SHAPE)
    steps = _steps(turns, out)
    found = dict(line.head) if line.head is not None else _head(out, line, run)
    found["steps"] = steps
    below = [_build(out, name)[0] for name in line.below if _speaks(out, name)]
    if below:
        found["subagent_trajectories"] = below
    if line.head is None:
        out.foreign = True
        found["final_metrics"] = _totals(line.chunks, len(steps))
    return found, turns


def _speaks(out: _Out, run: str) -> bool:
    """Whether a nested run, or one within it, has anything to tell."""
    stack = [run]
    while stack:
        line = out.lines[stack.pop()]
        if line.head is not None or any(chunk.kind == "message" for chunk in line.chunks):
            return True
        stack += line.below
    return False


# ------------------------------------------------------------------ steps


def _home(chunk: Digest, codec: str, item: Any, metrics: Any) -> Turn:
    if codec == "step":
        step = {**item, **({"metrics": metrics[1]} if metrics is not None and metrics[0] == "native" else {})}
        asks = tuple(call["tool_call_id"] for call in step.get("tool_calls") or ())
        return Turn(chunk, {"step": step}, asks)
    if codec == "result":
        return Turn(chunk, {"result": item}, answers=item["source_call_id"])
    return Turn(chunk, {"observed": item})


def _steps(turns: Sequence[Turn], out: _Out) -> list[Any]:
    """Fold answers into the steps that ask; number the steps."""
    steps: list[Any] = []
    asking: dict[str, int] = {}
    for turn in turns:
        if "step" in turn.item:
            step = turn.item["step"]
            number = len(steps) + 1
            if step.get("step_id", number) != number:
                out.losses.append(Loss(turn.chunk, "step_id", f"step {step['step_id']} is step {number} here"))
            asking.update(dict.fromkeys(turn.asks, len(steps)))
            steps.append({**step, "step_id": number})
            continue
        result = turn.item.get("result", turn.item.get("observed"))
        at = asking.get(turn.answers, len(steps) - 1) if turn.answers is not None else len(steps) - 1
        if at < 0:
            steps.append({"step_id": 1, "source": "system", "message": ""})
            at = 0
        observation = dict(steps[at].get("observation") or {"results": []})
        observation["results"] = [*(observation.get("results") or ()), result]
        steps[at] = {**steps[at], "observation": observation}
    return steps


def _translate(one: TranscriptMessage, metrics: Any, out: _Out) -> list[Turn]:
    """Return a foreign message as a step, or as what a step observed."""
    said: list[Any] = []
    thought: list[str] = []
    calls: list[Any] = []
    turns: list[Turn] = []
    source = "agent" if any(isinstance(part, ToolCallPart) for part in one.parts) else _SOURCES.get(one.role, "user")
    mark: dict[str, Any] = {"chunk": one.id}
    if one.role != {"agent": "assistant"}.get(source, source):
        mark["role"] = plain(one.role)
    if one.name is not None:
        mark["name"] = one.name
    for number, part in enumerate(one.parts):
        path = f"parts[{number}]"
        if isinstance(part, ToolCallResponsePart):
            turns.append(_answered(one, part, path, out))
            continue
        if isinstance(part, ToolCallPart):
            calls.append(_call(one, part, path, number, out))
        elif isinstance(part, ReasoningPart) and source == "agent":
            thought.append(part.content)
            if said or calls:
                out.losses.append(Loss(one.id, path, "reasoning stands before all else in a step"))
        else:
            item = _part(part)
            if item is None:
                out.losses.append(Loss(one.id, path, f"a part of type {part.type!r}: ATIF has no such content; left out"))
                continue
            said.append(item)
            if calls:
                out.losses.append(Loss(one.id, path, "it stood behind a tool call, and stands before it now"))
        if part.extra and not isinstance(part, ToolCallPart):
            out.losses.append(Loss(one.id, path, f"what stands beside the {part.type}: {', '.join(sorted(part.extra))}"))
    if turns and not said and not calls and not thought:
        return turns
    if one.role == "tool":
        return [Turn(one.id, {"observed": {"content": _content(said), "extra": {"rath": mark}}}), *turns]
    step: dict[str, Any] = {"timestamp": format_time(one.chunk.at), "source": source, "message": _content(said)}
    if thought:
        step["reasoning_content"] = "\n\n".join(thought)
    if calls:
        step["tool_calls"] = calls
    if source == "agent":
        _add_metrics(step, metrics)
    step["extra"] = {"rath": mark}
    return [Turn(one.id, {"step": step}, tuple(call["tool_call_id"] for call in calls)), *turns]


def _content(items: list[Any]) -> Any:
    if len(items) == 1 and items[0]["type"] == "text":
        return items[0]["text"]
    return items or ""


def _part(part: Part) -> dict[str, Any] | None:
    if isinstance(part, TextPart | ReasoningPart):
        return {"type": "text", "text": part.content}
    if isinstance(part, UriPart | BlobPart) and part.mime_type in _MEDIA.get(part.modality, ()):
        path = part.uri if isinstance(part, UriPart) else f"data:{part.mime_type};base64,{b64encode(part.content).decode()}"
        return {"type": part.modality, "source": {"media_type": part.mime_type, "path": path}}
    return None


def _call(one: TranscriptMessage, part: ToolCallPart, path: str, number: int, out: _Out) -> dict[str, Any]:
    call_id = part.id
    if not call_id:
        call_id = f"call_{one.id[:16]}_{number}"
        out.losses.append(Loss(one.id, f"{path}.id", f"a call without an id was given {call_id}"))
    arguments: Any = {} if part.arguments is None else plain(part.arguments)
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
        out.losses.append(Loss(one.id, f"{path}.arguments", "arguments that are no object stand under 'arguments'"))
    elif not is_json(part.arguments) and part.arguments is not None:
        out.losses.append(Loss(one.id, f"{path}.arguments", "what JSON cannot hold is written as text"))
    item: dict[str, Any] = {"tool_call_id": call_id, "function_name": part.name, "arguments": arguments}
    if part.extra:
        item["extra"] = {"rath": plain(part.extra)}
    return item


def _answered(one: TranscriptMessage, part: ToolCallResponsePart, path: str, out: _Out) -> Turn:
    if part.id is None:
        out.losses.append(Loss(one.id, f"{path}.id", "an answer that names no call: left out"))
    item: dict[str, Any] = {"source_call_id": part.id, "content": answer_text(part.response)}
    mark = {"chunk": one.id, **({"name": one.name} if one.name is not None else {}), **cast("dict[str, Any]", plain(part.extra))}
    item["extra"] = {"rath": mark}
    return Turn(one.id, {"result": item}, answers=part.id or "")


def _rename_call(item: Any, number: int, fresh: str) -> Any:
    step = item["step"]
    calls = [{**call, "tool_call_id": fresh} if at == number else call for at, call in enumerate(step["tool_calls"])]
    return {"step": {**step, "tool_calls": calls}}


_SHAPE: Final = Shape(
    _rename_call,
    lambda item, fresh: {"result": {**item["result"], "source_call_id": fresh}},
    lambda call_id, _, value: {"result": {"source_call_id": call_id, "content": answer_text(value)}},
)


# ------------------------------------------------------------------ model calls


def _metrics(chunks: Sequence[Chunk], shown: set[Digest], out: _Out) -> dict[Digest, tuple[str, Any]]:
    """Which model calls belong to which message: those since the assistant's last one in the same run.

    A native ``metrics`` record goes back into its own step as it was; of other calls, usage and model are handed over.
    """
    found: dict[Digest, tuple[str, Any]] = {}
    waiting: dict[str | None, list[Chunk]] = {}
    for chunk in chunks:
        if chunk.kind == "inference":
            waiting.setdefault(chunk.run, []).append(chunk)
        elif chunk.kind == "message" and chunk.id in shown and b'"assistant"' in (chunk.body_bytes or b""):
            calls = waiting.pop(chunk.run, [])
            natives = [out.home[one.id][1] for one in calls if one.id in out.home]
            if natives and out.home.get(chunk.id, ("", None))[0] == "step":
                found[chunk.id] = ("native", natives[-1])
            elif calls:
                found[chunk.id] = ("calls", [cast(Inference, one.body) for one in calls])
    for calls in waiting.values():
        out.losses += [Loss(one.id, "usage", "a model call that no message followed: only the totals have it") for one in calls]
    return found


def _add_metrics(step: dict[str, Any], metrics: tuple[str, Any] | None) -> None:
    if metrics is None or metrics[0] != "calls":
        return
    calls = cast("list[Inference]", metrics[1])
    usage = sum((one.usage for one in calls if one.usage is not None), Usage())
    model = calls[-1].response_model or calls[-1].model
    if model is not None:
        step["model_name"] = model
    found = _usage(usage, "")
    if found:
        step["metrics"] = found
    step["llm_call_count"] = len(calls)


def _usage(usage: Usage, prefix: str) -> dict[str, Any]:
    extra = {
        k: v
        for k, v in (
            ("cache_creation_tokens", usage.cache_creation_input_tokens),
            ("reasoning_tokens", usage.reasoning_output_tokens),
        )
        if v is not None
    }
    found = {
        f"{prefix}prompt_tokens": usage.input_tokens, f"{prefix}completion_tokens": usage.output_tokens,
        f"{prefix}cached_tokens": usage.cache_read_input_tokens, f"{prefix}cost_usd": usage.cost_usd, "extra": extra or None,
    }  # fmt: skip
    return {k: v for k, v in found.items() if v is not None}


def _totals(chunks: Sequence[Chunk], steps: int) -> dict[str, Any]:
    calls = [cast(Inference, chunk.body) for chunk in chunks if chunk.kind == "inference"]
    usage = sum((one.usage for one in calls if one.usage is not None), Usage())
    return {**_usage(usage, "total_"), "total_steps": steps}


# ------------------------------------------------------------------ around the steps


def _head(out: _Out, line: _Line, run: str | None) -> dict[str, Any]:
    begin = cast(Run, line.begin.body) if line.begin is not None else None
    agent: dict[str, Any] = {"name": begin.name if begin is not None else "rath_bridge", "version": __version__}
    if line.begin is not None and line.begin.origin is not None:
        agent["version"] = str(orjson.loads(line.begin.origin).get("version", "unknown"))
    tools = [plain(tool) for tool in begin.tools if isinstance(tool, Mapping)] if begin is not None else []
    if tools:
        agent["tool_definitions"] = tools
    session = out.session
    return {
        "schema_version": VERSION,
        "session_id": session.session,
        "trajectory_id": run if run is not None else f"{session.name}:{session.head[:16]}",
        "agent": agent,
        "steps": [],
    }


def _lineage(found: dict[str, Any], out: _Out) -> None:
    """Where the line comes from, under ``extra.rath``: heads, forks and merges have no field of their own."""
    lines: list[dict[str, Any]] = []
    for chunk in out.all:
        body = chunk.body if chunk.kind in ("session", "merge") and chunk.body_bytes is not None else None
        entry: dict[str, Any] = {}
        if isinstance(body, SessionStart):
            entry = {"op": body.op, "name": body.name, "branch": body.branch, "of": body.of, "source": body.source}
        elif isinstance(body, Merge):
            sides = {"base": body.base, "ours": body.ours, "theirs": body.theirs}
            entry = {"op": "merge", "strategy": body.strategy, **sides, "of": body.of}
        if entry:
            told = {k: v for k, v in entry.items() if v is not None}
            lines.append({"chunk": chunk.id, "parents": list(chunk.parents), **told})
    mark = {"session": out.session.name, "head": out.session.head, "lineage": lines}
    found["extra"] = {**(found.get("extra") or {}), "rath": mark}
