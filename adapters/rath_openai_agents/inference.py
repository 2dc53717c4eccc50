"""One model call as an ``inference`` chunk, whoever saw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import sha256
from typing import Any, cast

from rath_bridge.model.chunk import Native
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Inference, Usage
from rath_bridge.model.trees import list_tree
from rath_openai_agents.conversation import Input
from rath_openai_agents.decode import origin
from rath_openai_agents.items import FRAMEWORK, dump, long_texts, plain, table, to_bytes


@dataclass(slots=True, kw_only=True)
class Call:
    """What is known of a model call."""

    observer: str
    agent: str | None = None
    provider: str | None = None
    model: str | None = None
    request: dict[str, Any] = field(default_factory=dict[str, Any])
    request_objects: dict[Digest, bytes] = field(default_factory=dict[Digest, bytes])
    given: Input | None = None
    output: Sequence[Any] = ()
    """Output items as JSON."""
    streamed: bool | None = None
    response_id: str | None = None
    response_model: str | None = None
    usage: Usage | None = None
    native: Any = None
    """The whole response as JSON, where it was recorded exactly."""
    finish: str | None = None
    first_chunk: float | None = None
    duration: float | None = None
    error: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def chunk(self) -> tuple[Inference, Native | None, dict[Digest, bytes]]:
        """Return body, native record and objects."""
        body = Inference(
            provider=self.provider, model=self.model, response_model=self.response_model, observer=self.observer, agent=self.agent,
            request=self.request, input=self.given.ref if self.given else None, output=tuple(self.output), streamed=self.streamed,
            response_id=self.response_id, finish_reasons=(self.finish,) if self.finish else (), usage=self.usage,
            time_to_first_chunk=self.first_chunk, duration=self.duration, error=self.error, attributes=self.attributes,
        )  # fmt: skip
        native = None
        if self.native is not None:
            native = Native(FRAMEWORK, origin()["version"], "json", to_bytes(self.native, "response"))
        objects = {**(self.given.objects if self.given else {}), **self.request_objects}
        return body, native, {**objects, **long_texts(self.native)}


def finish_reason(items: Sequence[Any]) -> str:
    """Conclude why a model stopped, which a Responses-API reply does not say in a word."""
    return "tool_calls" if any(str(table(item).get("type")).endswith("_call") for item in items) else "stop"


# ------------------------------------------------------------------ requests


def tool_definition(tool: Any) -> dict[str, Any]:
    """Return what a model is told of a tool: name, description, parameters; for hosted tools their settings."""
    found: dict[str, Any] = {"type": "function" if hasattr(tool, "params_json_schema") else type(tool).__name__}
    for name, attribute in (
        ("name", "name"), ("description", "description"), ("parameters", "params_json_schema"), ("strict", "strict_json_schema"),
        ("config", "tool_config"), ("vector_store_ids", "vector_store_ids"), ("filters", "filters"),
    ):  # fmt: skip
        value = getattr(tool, attribute, None)
        if value is not None and not callable(value):
            found[name] = plain(value)
    return found


def handoff_definition(handoff: Any) -> dict[str, Any]:
    """Return what a model is told of a handoff, and where it leads."""
    return {
        "type": "handoff", "name": handoff.tool_name, "description": handoff.tool_description, "agent": handoff.agent_name,
        "parameters": plain(handoff.input_json_schema),
    }  # fmt: skip


def settings(value: Any) -> dict[str, Any]:
    """Return the model settings that are set; headers by name only, since they carry keys."""
    found: dict[str, Any] = {}
    for one in fields(value) if is_dataclass(value) else ():
        setting = getattr(value, one.name, None)
        if setting is not None:
            found[one.name] = sorted(setting) if one.name == "extra_headers" else plain(setting)
    return found


def definitions(values: Sequence[Any], objects: dict[Digest, bytes]) -> Any:
    """Keep definitions as a list tree, so that the same tools in every call are kept once."""
    data = [to_bytes(value) for value in values]
    raw = [sha256(one).digest() for one in data]
    tree, nodes = list_tree(raw)
    objects.update(nodes)
    objects.update({name.hex(): one for name, one in zip(raw, data, strict=True)})
    return tree.ref


def request_of(asked: Mapping[str, Any], objects: dict[Digest, bytes]) -> dict[str, Any]:
    """Return what a model is asked beside its input.

    Args:
        asked: Arguments of ``Model.get_response`` by name.
        objects: Definitions of tools and handoffs are added here.
    """
    found: dict[str, Any] = {"system": asked.get("system_instructions"), "params": settings(asked.get("model_settings"))}
    schema = asked.get("output_schema")
    if schema is not None and not schema.is_plain_text():
        found["output_schema"] = {"name": schema.name(), "strict": schema.is_strict_json_schema(), "schema": schema.json_schema()}
    for name, make in (("tools", tool_definition), ("handoffs", handoff_definition)):
        values = asked.get(name)
        if values:
            found[name] = definitions([make(one) for one in values], objects)
    for name in ("previous_response_id", "conversation_id", "prompt"):
        if asked.get(name) is not None:
            found[name] = plain(asked[name])
    return {name: value for name, value in found.items() if value is not None}


# ------------------------------------------------------------------ usage


def usage_of(value: Any) -> Usage | None:
    """Read usage from the SDK's ``Usage``, the provider's ``ResponseUsage``, or a span's map of either form."""
    if value is None:
        return None
    found = table(value) or (dump(value) if hasattr(value, "model_dump") else _attributes(value))
    into = _details(found, "input_tokens_details")
    out = _details(found, "output_tokens_details")
    return Usage(
        input_tokens=_number(found, "input_tokens"), output_tokens=_number(found, "output_tokens"),
        cache_read_input_tokens=_first(_number(into, "cached_tokens"), _number(found, "cached_input_tokens")),
        cache_creation_input_tokens=_first(_number(into, "cache_write_tokens"), _number(found, "cache_write_input_tokens")),
        reasoning_output_tokens=_number(out, "reasoning_tokens"),
    )  # fmt: skip


def less(usage: Usage, part: Usage) -> Usage:
    """Return usage without a part of it."""
    names = [one.name for one in fields(Usage)]
    left = {name: (getattr(usage, name), getattr(part, name)) for name in names}
    return Usage(**{name: whole if taken is None or whole is None else whole - taken for name, (whole, taken) in left.items()})


def _attributes(value: Any) -> dict[str, Any]:
    names = ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
    return {name: getattr(value, name, None) for name in names}


def _details(found: Any, name: str) -> Any:
    value: Any = found.get(name)
    if isinstance(value, list):  # some gateways send a list of one
        value = next(iter(cast("list[Any]", value)), None)
    return dump(value) if hasattr(value, "model_dump") else table(value)


def _number(found: Any, name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) else None


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one
