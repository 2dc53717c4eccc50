"""Which chunks a person asks for: by kind, agent, tool, framework, time and words. Each chunk is looked at by itself, in any order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import decode, parsed, references
from rath_bridge.model.kinds import RESERVED
from rath_bridge.verbs.calling import told

Fetch = Callable[[Sequence[Digest]], Mapping[Digest, bytes]]
_PLAIN: Final = re.compile(r"[a-zA-Z0-9 _,;:=@/-]+")
_AGENTS: Final = ("agent", "from_agent", "to_agent", "router")
_TOOL_KINDS: Final = frozenset({"tool_call", "tool_result", "message", "approval", "handoff"})


@lru_cache(maxsize=1024)
def _framework(origin: str) -> str | None:
    found: Mapping[str, Any] = orjson.loads(origin)
    return str(found.get("framework") or found.get("adapter") or "") or None


def framework(chunk: Chunk) -> str | None:
    """Return the framework that a chunk's origin names."""
    return None if chunk.origin is None else _framework(chunk.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What to keep; empty fields ask nothing. Names are compared without case."""

    kinds: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    """Who: an agent's or node's run, the speaker of a message, both sides of a handoff."""
    tools: frozenset[str] = frozenset()
    """Calls of these tools, their results, and the messages that hold either."""
    frameworks: frozenset[str] = frozenset()
    since: int | None = None
    """Microseconds since 1970: nothing older."""
    grep: re.Pattern[str] | None = None
    """Somewhere in the texts of the body, long ones included."""

    def __bool__(self) -> bool:
        return bool(self.kinds or self.agents or self.tools or self.frameworks or self.since is not None or self.grep)


@dataclass(slots=True)
class Matcher:
    """Looks at chunks one by one, newest first or oldest first; holds the names of runs and of calls that it has met."""

    wanted: Filter
    fetch: Fetch
    run_name: Callable[[Chunk], str | None] = lambda _: None
    """Name of the run that a chunk belongs to, where the body does not say who."""
    call_name: Callable[[Chunk, str], str | None] = lambda _, __: None
    """Tool of the call that a chunk answers by its id, where it does not say which."""
    _texts: dict[Digest, bool] = field(default_factory=dict[Digest, bool])
    _plain: bytes | None = None
    """A pattern that is plain ASCII words stands in a body's bytes as it is: most chunks need not be read for it."""
    _tools: tuple[bytes, ...] = ()
    """So do ASCII names of tools."""

    def __post_init__(self) -> None:
        """Prepare what is looked for in the bytes."""
        pattern = self.wanted.grep
        if pattern is not None and _PLAIN.fullmatch(pattern.pattern):
            self._plain = pattern.pattern.lower().encode()
        if all(_PLAIN.fullmatch(name) for name in self.wanted.tools):
            self._tools = tuple(name.encode() for name in self.wanted.tools)

    def __call__(self, chunk: Chunk) -> bool:
        """Tell whether it is asked for; what was erased can only match by its envelope."""
        wanted = self.wanted
        if wanted.kinds and chunk.kind.casefold() not in wanted.kinds:
            return False
        if wanted.since is not None and chunk.at < wanted.since:
            return False
        if wanted.frameworks and (framework(chunk) or "").casefold() not in wanted.frameworks:
            return False
        if wanted.tools and not self._names_tool(chunk):
            return False
        if wanted.agents and not self._names_agent(chunk):
            return False
        return wanted.grep is None or self._says(chunk, wanted.grep)

    def of(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield those that are asked for, as they come."""
        return (chunk for chunk in chunks if self(chunk))

    def _names_tool(self, chunk: Chunk) -> bool:
        if chunk.kind not in _TOOL_KINDS or chunk.body_bytes is None:
            return False
        if chunk.kind == "message" and b'"tool_call' not in chunk.body_bytes:
            return False
        answers = chunk.kind == "tool_result" or b'"tool_call_response"' in chunk.body_bytes  # which need not say whose they are
        if self._tools and not answers and not any(name in chunk.body_bytes.lower() for name in self._tools):
            return False
        body = _values(chunk)
        calls = list(told(chunk.kind, {**body, "replaces": None, "same_as": None}))  # an edit names its tool as well
        names = {one.name for one in calls}
        subject = body.get("subject")
        if isinstance(subject, dict):
            names.add(str(cast("dict[str, Any]", subject).get("name", "")))
        if chunk.kind == "message" and body.get("role") == "tool":
            names.add(str(body.get("name", "")))
        if any(name.casefold() in self.wanted.tools for name in names):
            return True
        nameless = [one.id for one in calls if not one.name and isinstance(one.id, str)]
        return any((self.call_name(chunk, one) or "").casefold() in self.wanted.tools for one in nameless)

    def _names_agent(self, chunk: Chunk) -> bool:
        names: set[str] = set()
        if chunk.body_bytes is not None:
            body = _values(chunk)
            names = {str(body[key]) for key in _AGENTS if body.get(key)}
            if chunk.kind in ("message", "run", "task") and body.get("name"):
                names.add(str(body["name"]))
        if not any(name.casefold() in self.wanted.agents for name in names):
            return (self.run_name(chunk) or "").casefold() in self.wanted.agents
        return True

    def _says(self, chunk: Chunk, pattern: re.Pattern[str]) -> bool:
        if chunk.body_bytes is None:
            return False
        if self._plain is not None and b'"$rath"' not in chunk.body_bytes and self._plain not in chunk.body_bytes.lower():
            return False
        body = _values(chunk)
        stack: list[Any] = [value for key, value in body.items() if key not in RESERVED]
        while stack:
            value = stack.pop()
            if isinstance(value, str):
                if pattern.search(value):
                    return True
            elif isinstance(value, dict):
                stack += cast("dict[Any, Any]", value).keys()
                stack += cast("dict[Any, Any]", value).values()
            elif isinstance(value, list):
                stack += cast("list[Any]", value)
            elif type(value) in (int, float) and pattern.search(str(value)):
                return True
        if b'"$rath"' not in chunk.body_bytes:
            return False
        return any(self._blob_says(name, pattern) for name in references(parsed(chunk.body_bytes), loadable=True))

    def _blob_says(self, name: Digest, pattern: re.Pattern[str]) -> bool:
        """Long texts are shared between chunks and are searched once."""
        found = self._texts.get(name)
        if found is None:
            try:
                found = bool(pattern.search(self.fetch([name])[name].decode("utf-8", "replace")))
            except RathError:  # erased, or a fault that fsck names
                found = False
            self._texts[name] = found
        return found


def _values(chunk: Chunk) -> dict[str, Any]:
    """The body as it stands, long texts as references; empty where it cannot be read."""
    try:
        return decode(cast(bytes, chunk.body_bytes))
    except RathError:
        return {}
