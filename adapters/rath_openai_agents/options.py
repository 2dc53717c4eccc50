"""What a run was told beside its input (``max_turns``, ``context``, ``run_config`` ...): plain data is on record, and given again.

Source: ``agents.run.RunOptions``, ``agents.run_config.RunConfig``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, cast

import agents
from agents import ModelSettings, RunConfig
from pydantic import TypeAdapter

from rath_bridge.model.plain import as_given, is_plain
from rath_openai_agents.items import table

NAME: Final = "options"
"""The attribute of a run's beginning in which they stand."""
_CONFIG: Final = "run_config."
_HELD: Final = frozenset({"session", "run_config"})
"""What a session of the SDK held is on record as input; the configuration is taken apart."""
_NOT_ASKED: Final = frozenset({"model_provider", "tracing", "session_settings", "session_input_callback"})
"""Fields of a configuration that change nothing in a replay: no model is made, nothing is sent, no session of the SDK is read."""

_WITHHELD: Final = object()


def config_of(options: Mapping[str, Any]) -> RunConfig:
    """Return a run's configuration; newer releases take a map of its fields, too."""
    found = options.get("run_config") or RunConfig()
    return found if isinstance(found, RunConfig) else RunConfig(**found)


def told(options: Mapping[str, Any], config: RunConfig, redact: Callable[[Any], Any] | None) -> dict[str, Any]:
    """Return attributes of a run's beginning: what it was told that is not the SDK's default; empty where nothing was.

    Args:
        options: Of ``Runner.run``.
        config: Its configuration.
        redact: As `rath_bridge.model.plain.as_given`.
    """
    given = {name: value for name, value in options.items() if name not in _HELD and (value is not None or name == "max_turns")}
    if options.get("run_config") is not None:
        default = RunConfig()
        for name in (field.name for field in fields(config) if field.name not in _NOT_ASKED):
            value = getattr(config, name)
            if not _same(value, getattr(default, name, None)):
                given[_CONFIG + name] = _taken_apart(value)
    if not config.trace_include_sensitive_data:  # content is withheld: numbers and choices stay
        given = {name: value if type(value) in (int, float, bool, type(None)) else _WITHHELD for name, value in given.items()}
    if not given:
        return {}
    kept, missing = as_given(given, redact)
    kept = {name: value for name, value in kept.items() if name not in missing}
    return {NAME: {"given": kept, **({"missing": missing} if missing else {})}}


def again(attributes: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options of a recorded run, and the names of those that are not on record.

    Args:
        attributes: Of the run's beginning.
    """
    found = table(attributes.get(NAME))
    given = {name: value for name, value in table(found.get("given")).items() if not name.startswith(_CONFIG)}
    config = {
        name.removeprefix(_CONFIG): _built(name.removeprefix(_CONFIG), value)
        for name, value in table(found.get("given")).items()
        if name.startswith(_CONFIG)
    }
    known = {field.name for field in fields(RunConfig)}
    if config:
        given["run_config"] = RunConfig(**{name: value for name, value in config.items() if name in known})
    lost = [_CONFIG + name for name in config if name not in known]
    return given, (*map(str, cast("list[Any]", found.get("missing") or ())), *lost)


def _same(value: Any, usual: Any) -> bool:
    try:
        return value is usual or (type(value) is type(usual) and bool(value == usual))
    except Exception:  # noqa: BLE001 - what a user's own comparison raises
        return False


@cache
def _groups() -> Mapping[str, tuple[type[Any], TypeAdapter[Any]]]:
    """The fields of a configuration that are groups of plain settings themselves."""
    found: dict[str, type[Any]] = {"model_settings": ModelSettings}
    execution = getattr(agents, "ToolExecutionConfig", None)  # not before SDK 0.24
    if execution is not None:
        found["tool_execution"] = execution
    return {name: (kind, TypeAdapter[Any](kind)) for name, kind in found.items()}


def _taken_apart(value: Any) -> Any:
    """A group of settings as a map, where it can be built from that again."""
    for kind, adapter in _groups().values():
        if type(value) is kind:
            try:
                rows = adapter.dump_python(value, exclude_none=True)
                return rows if is_plain(rows) and adapter.validate_python(rows) == value else value
            except Exception:  # noqa: BLE001 - a setting that is no data
                return value
    return value


def _built(name: str, value: Any) -> Any:
    group = _groups().get(name)
    return value if group is None or not isinstance(value, dict) else group[1].validate_python(value)


__all__ = ["NAME", "again", "config_of", "told"]
