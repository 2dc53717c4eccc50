"""ATIF, the agent trajectory interchange format (versions 1.7 and 1.8), in and out.

Source: harbor-framework/harbor, rfcs/0001, as the models of the PyPI package ``atif`` have it. A trajectory is a run; a step is a
message, with the results that it observed as tool messages behind it; metrics stand in an ``inference``; embedded subagents are nested
runs. What ATIF has no field for (lineage, speakers, chunk ids) goes out under ``extra.rath``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError
from rath_bridge.interchange import shapes
from rath_bridge.interchange.atif_out import trajectory
from rath_bridge.interchange.natives import key, pretty, record
from rath_bridge.model.chunk import Draft, Native, draft
from rath_bridge.model.kinds import Inference, Message, Run, Usage
from rath_bridge.model.parts import Part, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart, foreign_part
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session

name: Final = "atif"
_PLACE: Final = "ATIF trajectory"
_ROLES: Final = {"agent": "assistant", "user": "user", "system": "system"}


def recognises(obj: Any, /) -> bool:
    """Tell a trajectory by its own marks."""
    if not isinstance(obj, Mapping):
        return False
    found = cast("Mapping[str, Any]", obj)
    version = found.get("schema_version")
    return isinstance(version, str) and isinstance(found.get("agent"), Mapping) and isinstance(found.get("steps"), list)


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """One trajectory is one session; its ``trajectory_id`` names it, else its ``session_id``."""
    found: Mapping[str, Any] = cast("Mapping[str, Any]", obj) if isinstance(obj, Mapping) else {}
    names = [found.get("trajectory_id"), found.get("session_id")]
    return [(next((one for one in names if isinstance(one, str) and one), None), cast(Any, obj))]


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate a trajectory.

    Raises:
        DecodeError: Something in it is not of the type that ATIF gives it; the error names the path.
    """
    try:
        return list(_trajectory(obj, None, ""))
    except RecursionError:
        raise DecodeError(_PLACE, "its subagents are nested too deeply") from None


def encode(session: Session, /) -> tuple[Any, LossReport]:
    """Translate a session into one trajectory; nested runs become embedded subagents."""
    return trajectory(session)


def dumps(native: Any, /) -> bytes:
    """Indented JSON."""
    return pretty(native)


class _Writer:
    """Makes the drafts of one trajectory."""

    def __init__(self, version: str, run: str) -> None:
        self.version, self.run = version, run
        self._origin = {"adapter": "rath_bridge.interchange", "framework": name, "version": version}
        self.at: int | None = None

    def draft(self, body: Any, codec: str | None = None, value: Any = None) -> Draft:
        native: Native | None = None if codec is None else record(name, self.version, codec, value, _PLACE)
        return draft(body, run=self.run, origin=self._origin, at=self.at, native=native)


def _trajectory(obj: Any, parent: str | None, path: str) -> Iterator[Draft]:
    found = shapes.table(obj, _PLACE, path)
    dot = f"{path}." if path else ""
    agent = shapes.table(found.get("agent"), _PLACE, f"{dot}agent")
    steps = shapes.rows(found.get("steps"), _PLACE, f"{dot}steps")
    subagents = shapes.rows(found.get("subagent_trajectories"), _PLACE, f"{dot}subagent_trajectories")
    version = shapes.text(found.get("schema_version"), _PLACE, f"{dot}schema_version").removeprefix("ATIF-v")
    version = version.encode("utf-8", "backslashreplace").decode()[:40]
    ids = [shapes.text_or_none(found.get(field), _PLACE, dot + field) for field in ("trajectory_id", "session_id")]
    head: dict[str, Any] = {**found, "steps": [], **({"subagent_trajectories": []} if subagents else {})}
    run = "atif-" + key([parent, *ids, None if any(ids) else head])[:24]
    writer = _Writer(version, run)
    agent_name = shapes.text(agent.get("name"), _PLACE, f"{dot}agent.name")
    tools = shapes.rows(agent.get("tool_definitions"), _PLACE, f"{dot}agent.tool_definitions")
    facts = {
        k: v for k, v in found.items() if k in ("notes", "final_metrics", "continued_trajectory_ref", "extra") and v is not None
    }
    begin = Run(
        phase="begin", name=agent_name, type="agent", parent=parent, native_id=next((one for one in ids if one), None),
        tools=tuple(tools), attributes={"agent": {k: v for k, v in agent.items() if k != "tool_definitions"}, **facts},
    )  # fmt: skip
    first = next((_at(step) for step in steps), None)
    writer.at = first
    yield writer.draft(begin, "head", head)
    waiting = {str(cast(Any, one).get("trajectory_id")): n for n, one in enumerate(subagents) if isinstance(one, Mapping)}
    done: set[int] = set()
    model = shapes.text_or_none(agent.get("model_name"), _PLACE, f"{dot}agent.model_name")
    for number, step in enumerate(steps):
        here = f"{dot}steps[{number}]"
        entry = shapes.table(step, _PLACE, here)
        writer.at = _at(entry)
        yield from _step(entry, writer, agent_name, model, here)
        for wanted in _referred(entry):
            if wanted in waiting and waiting[wanted] not in done:
                done.add(waiting[wanted])
                yield from _subagent(subagents, waiting[wanted], run, dot)
    for at in range(len(subagents)):
        if at not in done:
            yield from _subagent(subagents, at, run, dot)
    yield writer.draft(Run(phase="end", name=agent_name))


def _subagent(subagents: Sequence[Any], at: int, run: str, dot: str) -> Iterator[Draft]:
    """A nested run; its place in the list makes its id, where two have the same one."""
    yield from _trajectory(subagents[at], f"{run}", f"{dot}subagent_trajectories[{at}]")


def _at(step: Any) -> int | None:
    return shapes.moment(cast("Mapping[str, Any]", step).get("timestamp")) if isinstance(step, Mapping) else None


def _referred(step: Mapping[str, Any]) -> Iterator[str]:
    observation = step.get("observation")
    found = cast("Mapping[str, Any]", observation).get("results") if isinstance(observation, Mapping) else None
    for result in cast("list[Any]", found) if isinstance(found, list) else []:
        refs = cast("Mapping[str, Any]", result).get("subagent_trajectory_ref") if isinstance(result, Mapping) else None
        for ref in cast("list[Any]", refs) if isinstance(refs, list) else []:
            if isinstance(ref, Mapping):
                yield str(cast("Mapping[str, Any]", ref).get("trajectory_id"))


def _step(step: Mapping[str, Any], writer: _Writer, agent: str, model: str | None, path: str) -> Iterator[Draft]:
    source = shapes.text(step.get("source"), _PLACE, f"{path}.source")
    observation = step.get("observation")
    results: list[Any] = []
    rest = dict(step)
    if observation is not None:
        seen = shapes.table(observation, _PLACE, f"{path}.observation")
        results = shapes.rows(seen.get("results"), _PLACE, f"{path}.observation.results")
        if results:  # they come back one by one, as far as the line goes
            rest["observation"] = {**seen, "results": []}
    calls = [
        _call(one, f"{path}.tool_calls[{n}]")
        for n, one in enumerate(shapes.rows(step.get("tool_calls"), _PLACE, f"{path}.tool_calls"))
    ]
    if source == "agent" and step.get("llm_call_count") != 0 and not step.get("is_copied_context"):
        metrics = step.get("metrics")
        used = shapes.text_or_none(step.get("model_name"), _PLACE, f"{path}.model_name") or model
        if metrics is not None:
            del rest["metrics"]
            yield writer.draft(
                _inference(shapes.table(metrics, _PLACE, f"{path}.metrics"), used, agent, step), "metrics", metrics
            )
        elif used is not None:
            yield writer.draft(_inference({}, used, agent, step))
    parts: list[Part] = []
    if step.get("reasoning_content") is not None:
        parts.append(ReasoningPart(shapes.text(step["reasoning_content"], _PLACE, f"{path}.reasoning_content")))
    parts += shapes.content(step.get("message"), _PLACE, f"{path}.message", _part)
    body = Message(role=_ROLES.get(source, source), parts=(*parts, *calls), attributes=_facts(step))
    yield writer.draft(body, "step", rest)
    asked = {call.id for call in calls}
    for number, one in enumerate(results):
        here = f"{path}.observation.results[{number}]"
        result = shapes.table(one, _PLACE, here)
        call_id = shapes.text_or_none(result.get("source_call_id"), _PLACE, f"{here}.source_call_id")
        if call_id in asked and call_id is not None:
            asked.discard(call_id)
            yield writer.draft(Message(role="tool", parts=(ToolCallResponsePart(call_id, _answer(result, here)),)), "result", one)
        else:
            yield writer.draft(
                Message(role="tool", parts=tuple(shapes.content(result.get("content"), _PLACE, f"{here}.content", _part))),
                "observed",
                one,
            )


def _facts(step: Mapping[str, Any]) -> dict[str, Any]:
    names = ("reasoning_effort", "is_copied_context", "llm_call_count", "extra")
    return {k: step[k] for k in names if step.get(k) is not None}


def _inference(metrics: Mapping[str, Any], model: str | None, agent: str, step: Mapping[str, Any]) -> Inference:
    cost = metrics.get("cost_usd")
    usage = Usage(
        input_tokens=shapes.number(metrics.get("prompt_tokens")), output_tokens=shapes.number(metrics.get("completion_tokens")),
        cache_read_input_tokens=shapes.number(metrics.get("cached_tokens")),
        cost_usd=cost if isinstance(cost, float | int) and not isinstance(cost, bool) else None,
    )  # fmt: skip
    count = step.get("llm_call_count")
    return Inference(
        model=model, agent=agent, observer="callback", usage=usage if metrics else None,
        attributes={"llm_call_count": count} if isinstance(count, int) and count > 1 else {},
    )  # fmt: skip


def _call(one: Any, path: str) -> ToolCallPart:
    found = shapes.table(one, _PLACE, path)
    call_id = shapes.text(found.get("tool_call_id"), _PLACE, f"{path}.tool_call_id")
    called = shapes.text(found.get("function_name"), _PLACE, f"{path}.function_name")
    extra = {"extra": found["extra"]} if found.get("extra") is not None else {}
    return ToolCallPart(call_id, called, found.get("arguments"), extra)


def _answer(result: Mapping[str, Any], path: str) -> Any:
    content = result.get("content")
    if content is None:
        return result.get("subagent_trajectory_ref")
    shapes.content(content, _PLACE, f"{path}.content", _part)
    return content


def _part(one: Any, place: str, path: str) -> Part:
    found = shapes.table(one, place, path)
    kind = shapes.text(found.get("type"), place, f"{path}.type")
    if kind == "text":
        return TextPart(shapes.text(found.get("text"), place, f"{path}.text"))
    source = found.get("source")
    values: Mapping[str, Any] = cast("Mapping[str, Any]", source) if isinstance(source, Mapping) else {}
    if kind in ("image", "audio") and isinstance(values.get("path"), str):
        extra = {k: v for k, v in values.items() if k not in ("path", "media_type")}
        media_type = shapes.text_or_none(values.get("media_type"), _PLACE, f"{path}.source.media_type")
        return UriPart(kind, values["path"], media_type, extra)
    return foreign_part(found)
