"""Has a server changed since it was recorded? Its tools as the record has them, beside the tools of the live one.

A record that is replayed answers as the server did then; whether the server would still understand the same calls shows here, before
anybody relies on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rath_bridge.errors import RathError
from rath_bridge.model.kinds import Run
from rath_bridge.session import Session
from rath_mcp.frames import mapping

Json = dict[str, Any]
_NOTHING: Final = object()
_SETS: Final = frozenset({"required", "enum", "type"})
"""Lists of a JSON Schema whose order says nothing."""


class NoToolsError(RathError, LookupError):
    """The record has no list of tools to compare with."""

    exit_status = 125

    def __init__(self, session: str, server: str | None, known: Sequence[str]) -> None:
        of = f" of {server}" if server else ""
        have = f"it has those of {', '.join(known)}: name one with --server" if known else "its client never asked for tools/list"
        super().__init__(f"{session} has no list of tools{of} on record: {have}")
        self.session, self.server, self.known = session, server, tuple(known)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between a recorded tool and the live one."""

    tool: str
    kind: str
    """``added``, ``removed`` or ``changed``."""
    path: str = ""
    """Where in the tool; empty where all of it came or went."""
    recorded: Any = None
    live: Any = None

    def __str__(self) -> str:
        if not self.path:
            return f"{self.tool}: {'is new' if self.kind == 'added' else 'is gone'}"
        if self.kind == "added":
            return f"{self.tool}: {self.path} is new: {_short(self.live)}"
        if self.kind == "removed":
            return f"{self.tool}: {self.path} is gone: {_short(self.recorded)}"
        return f"{self.tool}: {self.path} was {_short(self.recorded)}, is {_short(self.live)}"

    def to_json(self) -> Json:
        """Return it for a listing."""
        found: Json = {"tool": self.tool, "kind": self.kind, "path": self.path, "recorded": self.recorded, "live": self.live}
        return {key: value for key, value in found.items() if value not in (None, "")}


def recorded_tools(session: Session, server: str | None = None) -> list[Json]:
    """Return the tools that a server last listed on record.

    Args:
        session: Where the server was recorded.
        server: Its name; needed where several servers listed tools and none has the live one's name.

    Raises:
        NoToolsError: There are none, or it is not clear whose.
    """
    found: dict[str, list[Json]] = {}
    for chunk in session.chunks():
        if chunk.kind == "run" and chunk.body_bytes is not None:
            run = cast(Run, chunk.body)
            if run.type == "server" and run.tools:
                found[run.name or ""] = [dict(mapping(tool)) for tool in run.tools]
    if server in found:
        return found[str(server)]
    if len(found) == 1 and server is None:
        return next(iter(found.values()))
    raise NoToolsError(session.name, server, sorted(found))


def drift(recorded: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]) -> tuple[Change, ...]:
    """Return what changed from one list of tools to another, in the order of names; nothing where they say the same."""
    before = {str(tool.get("name")): tool for tool in recorded}
    now = {str(tool.get("name")): tool for tool in live}
    found: list[Change] = []
    for name in sorted(before.keys() | now.keys()):
        if name not in now or name not in before:
            found.append(Change(name, "removed" if name in before else "added"))
        else:
            found += _changes(name, "", before[name], now[name])
    return tuple(found)


def _changes(tool: str, path: str, before: Any, now: Any) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        old, new = mapping(before), mapping(now)
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else key
            one, other = old.get(key, _NOTHING), new.get(key, _NOTHING)
            if one is _NOTHING or other is _NOTHING:
                yield Change(
                    tool, "added" if one is _NOTHING else "removed", inner,
                    None if one is _NOTHING else one, None if other is _NOTHING else other,
                )  # fmt: skip
            else:
                yield from _changes(tool, inner, one, other)
    elif _plain(path, before) != _plain(path, now):
        yield Change(tool, "changed", path, before, now)


def _plain(path: str, value: Any) -> str:
    if isinstance(value, list) and path.rpartition(".")[2] in _SETS:
        value = sorted(cast("list[Any]", value), key=str)
    return json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 120 else f"{text[:120]}…"
