"""What a session holds for a replay: model calls by what was asked, answers of tools by call id, decisions of guardrails in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, cast

from rath_bridge.errors import MissingObjectError
from rath_bridge.given import check_session
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Guardrail, ToolCall
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.divergence import Divergence
from rath_bridge.session import Session
from rath_openai_agents.differing import difference, plain_request, short, title_of
from rath_openai_agents.items import key, parse
from rath_openai_agents.reading import (
    Answer,
    Reply,
    Step,
    Stepped,
    answers_of,
    asked_in,
    definitions_at,
    listed_in,
    nested_runs,
    reasons_of,
    rejected_in,
    reply_of,
    stepped_of,
)


@dataclass(slots=True)
class Tape:
    """A record that is being replayed; what was served is not served again. Safe from any thread."""

    replies: list[Reply]
    answers: dict[str, deque[Answer]]
    guardrails: dict[tuple[str, str], deque[tuple[Digest, bool, Any]]]
    """Stage and name to what was decided: chunk, whether it tripped, what it told."""
    tools: dict[str | None, list[Mapping[str, Any]]]
    """Agent to the definitions of its tools, as its first call had them."""
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Call id to the last item that asked for it."""
    stepped: dict[str, list[Stepped]] = field(default_factory=dict[str, list[Stepped]])
    """Tool to its calls that are carried out in steps."""
    listed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """MCP server to the names of its tools, as it listed them."""
    rejected: frozenset[str] = frozenset()
    """Calls that a tool's own guardrail kept from running: hooks saw others start, and not these."""
    reasons: tuple[str, ...] = ()
    """Why the record cannot be replayed whole; empty where it can."""
    servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """MCP tool to its server's name."""
    served: int = 0
    misses: list[Divergence] = field(default_factory=list[Divergence])
    _lock: RLock = field(default_factory=RLock)

    @classmethod
    def of(cls, session: Session) -> Tape:
        """Read a session."""
        check_session(session, "a replay of model calls")
        chunks = list(session.chunks())
        nested = nested_runs(chunks)
        seen: dict[Digest, tuple[Mapping[str, Any], Digest]] = {}
        chunks = [chunk for chunk in chunks if chunk.kind == "gap" or "rath_openai_agents" in (chunk.origin or "")]
        replies = [reply_of(chunk, session, seen, chunk.run in nested) for chunk in chunks if chunk.kind == "inference"]
        guardrails: dict[tuple[str, str], deque[tuple[Digest, bool, Any]]] = {}
        for chunk in chunks:
            if chunk.kind == "guardrail" and chunk.run not in nested:
                check = cast(Guardrail, chunk.body)
                guardrails.setdefault((check.stage or "", check.name), deque()).append(
                    (chunk.id, bool(check.triggered), check.output)
                )
        tools: dict[str | None, list[Mapping[str, Any]]] = {}
        for one in replies:
            tools.setdefault(one.body.agent, definitions_at(one.body.request.get("tools"), session))
        answers = answers_of(chunks, nested)
        asked = list(asked_in(chunks, nested))
        reasons = reasons_of(replies, answers, [c for c in chunks if c.run not in nested])
        by_id = {str(item.get("call_id")): item for item in asked}
        calls = [cast(ToolCall, chunk.body) for chunk in chunks if chunk.kind == "tool_call"]
        servers = {call.name: call.server for call in calls if call.server is not None}
        return cls(
            replies,
            answers,
            guardrails,
            tools,
            by_id,
            stepped_of(asked),
            listed_in(chunks),
            rejected_in(chunks),
            reasons,
            servers=servers,
        )

    @property
    def divergence(self) -> Divergence | None:
        """The first place where the run left the record."""
        return self.misses[0] if self.misses else None

    @property
    def unused(self) -> tuple[str, ...]:
        """Model calls of the record that the run did not ask for."""
        return tuple(title_of(one) for one in self.replies if not one.used and not one.nested)

    @property
    def left(self) -> tuple[Digest, ...]:
        """Chunks of those calls."""
        return tuple(one.chunk for one in self.replies if not one.used and not one.nested)

    def miss(self, divergence: Divergence) -> Divergence:
        """Note a divergence and return it."""
        with self._lock:
            self.misses.append(divergence)
            return divergence

    def reply(
        self, items: Sequence[Mapping[str, Any]], request: Mapping[str, Any], agent: str | None = None
    ) -> Reply | Divergence:
        """Return the recorded answer to a model call, or where it differs from the next one on record (which is a miss)."""
        found = self.find_reply(items, request, agent)
        return self.miss(found) if isinstance(found, Divergence) else found

    def find_reply(
        self, items: Sequence[Mapping[str, Any]], request: Mapping[str, Any], agent: str | None = None
    ) -> Reply | Divergence:
        """As `reply`; a difference is only told."""
        items, request = DEFAULT.apply(list(items)), DEFAULT.apply(dict(request))
        keys = tuple(key(item) for item in items)
        asked = plain_request(request)
        with self._lock:
            left = [one for one in self.replies if not one.used]
            for one in left:
                if one.keys == keys and plain_request(one.body.request) == asked:
                    one.used = True
                    self.served += 1
                    return one
            wanted = next((one for one in left if not one.nested), None)
        title = "model call" if agent is None else f"model call of {agent}"
        if wanted is None:
            return Divergence(title, short(items[-1:]), "nothing left")
        return difference(title, items, keys, request, wanted)

    def answer(self, name: str, call_id: str, arguments: Any) -> Answer | Divergence:
        """Return how a recorded call ended; a call that is not on record is a miss."""
        found = self.find_answer(name, call_id, arguments)
        return self.miss(found) if isinstance(found, Divergence) else found

    def find_answer(self, name: str, call_id: str, arguments: Any) -> Answer | Divergence:
        """As `answer`; a difference is only told."""
        with self._lock:
            waiting = self.answers.get(call_id)
            asked = self.asked.get(call_id)
            if waiting and asked is not None and "arguments" in asked and parse(asked["arguments"]) != DEFAULT.apply(arguments):
                held = f"{call_id} with {short(asked['arguments'])}"
                return Divergence(f"tool call {name}", f"{call_id} with {short(arguments)}", held, waiting[0].chunk, "arguments")
            if waiting:
                self.served += 1
                return waiting.popleft()
        return Divergence(f"tool call {name}", f"{call_id} with {short(arguments)}", "no answer to it")

    def find_step(self, name: str, step: Any) -> Step | Divergence:
        """Find the call of which one step is carried out; a difference is only told."""
        step = DEFAULT.apply(step)
        with self._lock:
            calls = self.stepped.get(name, [])
            found = next((one for one in calls if one.left[0] == step), None)
            waiting = self.answers.get((found or calls[0]).call_id) if calls else None
            if found is None or (not waiting and not found.begun):
                held = short(calls[0].left[0]) if calls and found is None else "no answer to it" if calls else "no call left"
                return Divergence(f"tool call {name}", short(step), held, waiting[0].chunk if waiting else None)
            begins = waiting[0].chunk if waiting and not found.begun else None
            found.left.popleft()
            gives = not found.begun if found.first else not found.left
            found.begun = True
            if not found.left:
                calls.remove(found)
            if not gives or not waiting:
                return Step(found, begins, None)
            self.served += 1
            return Step(found, begins, waiting.popleft())

    def decision(self, stage: str, name: str) -> tuple[Digest, bool, Any] | Divergence:
        """Return what a guardrail decided and told; a check that is not on record is a miss."""
        found = self.find_decision(stage, name)
        return self.miss(found) if isinstance(found, Divergence) else found

    def find_decision(self, stage: str, name: str) -> tuple[Digest, bool, Any] | Divergence:
        """As `decision`; a difference is only told."""
        with self._lock:
            waiting = self.guardrails.get((stage, name))
            if waiting:
                self.served += 1
                return waiting.popleft()
        return Divergence(f"{stage} guardrail {name}", "a check", "none left")


def replayable(session: Session) -> tuple[str, ...]:
    """Return why a session cannot be replayed; empty where it can be."""
    try:
        return Tape.of(session).reasons
    except MissingObjectError as error:
        return (f"what it stands on is gone: {error}",)
