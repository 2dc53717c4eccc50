"""``RunState`` in and out: a paused run as a ``checkpoint``, part by part, of whatever schema version (source: ``agents.run_state``).

Snapshots of one run share what did not change. A snapshot is not authenticated (the SDK says so): resume only what you trust.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, cast

from rath_bridge.errors import AdapterError, DecodeError, UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Approval, Checkpoint
from rath_bridge.model.trees import Fetch, map_tree, read_map
from rath_bridge.replay import current_tape
from rath_bridge.session import Session
from rath_openai_agents.items import FRAMEWORK, from_bytes, listed, long_texts, parse, table, to_bytes
from rath_openai_agents.who import origin

NAMESPACE: Final = "run_state"
AGAIN: Final = "was resumed again"
"""What the note says of a snapshot that is resumed although it was resumed before."""
VERSION: Final = "$schemaVersion"
_OWN: Final = frozenset({VERSION, "context"})
"""Parts that change without the run going on: an approval given, a newer SDK."""


def is_state(obj: Any) -> bool:
    """Tell a ``RunState``, or its JSON, from the rest; imports nothing."""
    if type(obj).__module__ == "agents.run_state" and type(obj).__name__ == "RunState":
        return True
    return isinstance(obj, dict) and VERSION in obj and "original_input" in obj


def state_json(state: Any) -> dict[str, Any]:
    """Return a state as the SDK's JSON.

    Raises:
        DecodeError: It is none, or names no schema version.
    """
    found: Any = cast(Any, state) if isinstance(state, dict) else state.to_json()
    if not isinstance(found, dict) or not isinstance(cast("dict[str, Any]", found).get(VERSION), str):
        raise DecodeError("RunState", f"its JSON names its schema version as a text under {VERSION!r}", VERSION)
    return cast("dict[str, Any]", found)


def checkpoint(state: Any, *, source: str = "paused", once: Key | None = None) -> tuple[Draft, ...]:
    """Return a paused run's chunks without its messages, for a session in which they stand: the state, and who was asked for what.

    Args:
        state: ``RunState``, or its JSON.
        source: Why it was kept.
        once: Keep it only if nothing stands under this key.
    """
    found = _as_then(state_json(state))
    parts = {name: to_bytes(value, f"RunState.{name}") for name, value in found.items()}
    tree, nodes = map_tree({name: sha256(data).digest() for name, data in parts.items()})
    objects: dict[Digest, bytes] = {**nodes, **{digest(data): data for data in parts.values()}, **long_texts(found)}
    body = Checkpoint(
        namespace=NAMESPACE, checkpoint_id=snapshot_id(found), step=_number(found.get("current_turn")), source=source, state=tree,
        envelope={"schema_version": found[VERSION], "order": list(found), "agent": table(found.get("current_agent")).get("name")},
    )  # fmt: skip
    told = [one for one in approvals(found) if source != "resumed" or one.phase != "asked"]
    return (draft(body, origin=origin(), objects=objects, once=once), *(draft(one, origin=origin()) for one in told))


def _as_then(state: dict[str, Any]) -> dict[str, Any]:
    """In a replay, the recorded state that this one repeats: the SDK's trace has a new id in every run."""
    tape = current_tape()
    if tape is None:
        return state
    for chunk in tape.held.chunks:
        if chunk.kind != "checkpoint" or chunk.id in tape.held.unreadable:
            continue
        if cast(Checkpoint, chunk.body).namespace == NAMESPACE:
            then = state_at(chunk, tape.session.store.backend.objects)
            if {**state, "trace": then.get("trace")} == then:
                return then
    return state


def snapshot_id(state: Mapping[str, Any]) -> str:
    """Return what stays the same of a snapshot while its approvals are given: resuming it twice does the same work twice."""
    kept = {name: value for name, value in state.items() if name not in _OWN}
    return digest(json.dumps(kept, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))[:32]


def approvals(state: Mapping[str, Any]) -> list[Approval]:
    """Return who is asked, and what has been answered."""
    step = table(table(state.get("current_step")).get("data"))
    found: list[Approval] = []
    decided = _decided(table(state.get("context")))
    for one in listed(step.get("interruptions")):
        asked = asked_for(table(one).get("raw_item"), table(one).get("tool_name"), table(table(one).get("agent")).get("name"))
        found.append(asked)
        name = table(asked.subject)["tool"]
        answer = decided.get(str(asked.call_id)) or decided.get(f"* {name}")
        if answer is not None:
            found.append(Approval(phase=answer, call_id=asked.call_id, subject={"tool": name}))
    return found


def asked_for(item: Any, tool: Any, agent: Any) -> Approval:
    """Return what a person is asked: whether a call may be carried out.

    Args:
        item: The call.
        tool: Its name, where the item says none.
        agent: Whose call, by name.
    """
    call = table(item)
    subject = {"tool": str(call.get("name") or tool or ""), "arguments": parse(call.get("arguments")), "agent": agent}
    return Approval(phase="asked", call_id=call.get("call_id") or call.get("id"), subject=subject)


def _decided(context: Mapping[str, Any]) -> dict[str, str]:
    """Call id (or ``* tool``, for an answer that holds for all) to what was decided."""
    found: dict[str, str] = {}
    entries = list(table(context.get("approvals")).items())
    newer = [table(one) for one in listed(context.get("function_tool_approvals"))]
    entries += [(str(one.get("tool_key")), one.get("decision")) for one in newer]
    for tool, entry in entries:
        for name, phase in (("approved", "granted"), ("rejected", "denied")):
            value = table(entry).get(name)
            if value is True:
                found[f"* {tool}"] = phase
            elif isinstance(value, list):
                found.update(dict.fromkeys(map(str, cast("list[Any]", value)), phase))
    return found


def saved_state(session: Session) -> dict[str, Any]:
    """Return the JSON of the last paused run of a session, for ``RunState.from_json(agent, ...)``.

    Raises:
        UnsupportedError: There is none.
    """
    chunk = _last(session)
    if chunk is None:
        raise UnsupportedError(
            f"{session.name} holds no RunState of openai_agents: append rath_openai_agents.checkpoint(state) to it"
        )
    return state_at(chunk, session.store.backend.objects)


def state_at(chunk: Chunk, fetch: Fetch) -> dict[str, Any]:
    """Return the JSON of the paused run that a checkpoint keeps."""
    body = cast(Checkpoint, chunk.body)
    raw = read_map(cast(TreeRef, body.state), fetch)
    names = {name: value.hex() for name, value in raw.items()}
    data = fetch(set(names.values()))
    order: Sequence[str] = table(body.envelope).get("order") or sorted(names)
    return {name: from_bytes(data[names[name]], f"RunState.{name}") for name in order}


def _last(session: Session) -> Chunk | None:
    found: Chunk | None = None
    for chunk in session.chunks():
        if chunk.kind == "checkpoint" and cast(Checkpoint, chunk.body).namespace == NAMESPACE:
            found = chunk
    return found


class StateResumedError(AdapterError, ValueError):
    """A snapshot was resumed once already: what was approved in it has been carried out.

    Attributes:
        session: Where that is on record.
        chunk: The checkpoint that was resumed.
    """

    def __init__(self, session: str, chunk: Digest) -> None:
        self.session, self.chunk = session, chunk
        super().__init__(
            f"this RunState was resumed before (session {session}, chunk {chunk[:12]}), and its approved calls would run a second "
            f"time: go on from the state that came out of it, or say run(state, again=True)"
        )


def resumed_key(session: str, state: Any) -> Key:
    """Return the key under which a session remembers that a snapshot was resumed."""
    return Key(FRAMEWORK, session, "resumed", snapshot_id(state_json(state)))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


__all__ = [
    "AGAIN", "StateResumedError", "approvals", "asked_for", "checkpoint", "is_state", "resumed_key", "saved_state", "snapshot_id",
    "state_at", "state_json",
]  # fmt: skip
