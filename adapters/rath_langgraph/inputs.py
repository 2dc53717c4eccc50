"""What an invocation of a graph was given: its context, which is noted, and its input, which is read back for a replay.

Sources: ``langgraph.runtime.Runtime.context``, ``langgraph.pregel.main._coerce_context``, ``langgraph.graph.message.add_messages``.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph.types import Command
from pydantic import BaseModel

from rath_bridge.errors import RathError, UnsupportedError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Approval, Checkpoint, Message, Note, Run
from rath_bridge.model.plain import as_given
from rath_bridge.redaction import Redactor
from rath_bridge.replay import Tape
from rath_langgraph.compare import compare_key
from rath_langgraph.serde import RathSerializer
from rath_langgraph.state import load_values, read_state
from rath_langgraph.tape import values_of

_NOTHING: Final = object()
_CONTEXT: Final = "context"
_DEPTH: Final = 16
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
INSTEAD: Final = "give rb.replay a function that invokes the graph"


# ------------------------------------------------------------------------------------------- context


def context_note(context: Any, redactor: Redactor | None, author: str) -> Note:
    """Tell what ``invoke(..., context=...)`` was given: its fields that are plain data, and the names of the others.

    Args:
        context: A map, dataclass or pydantic model.
        redactor: Fields in which it finds a secret are kept redacted, and named.
        author: The graph's name.
    """
    fields = fields_of(context)
    if fields is None:
        return Note(text=_CONTEXT, author=author, attributes={"missing": [type(context).__qualname__]})
    clean, missing = as_given(fields, None if redactor is None else redactor.apply)
    return Note(text=_CONTEXT, author=author, attributes={_CONTEXT: clean, **({"missing": missing} if missing else {})})


def recorded_context(begin: Chunk, inside: Sequence[Chunk]) -> dict[str, Any] | None:
    """The context of an invocation, as its schema's fields; None where it had none.

    Raises:
        UnsupportedError: A part of it was not kept.
    """
    for chunk in inside:
        if chunk.kind != "note" or chunk.run != begin.run or cast(Note, chunk.body).text != _CONTEXT:
            continue
        told = cast(Note, chunk.body).attributes
        if told.get("missing"):
            names = ", ".join(map(str, told["missing"]))
            raise UnsupportedError(f"the context of a run is not whole on record ({names} could not be kept): {INSTEAD}")
        if _CONTEXT in told:
            return dict(told[_CONTEXT])
    return None


def fields_of(context: Any) -> Mapping[Any, Any] | None:
    """The fields of a map, dataclass or pydantic model; None of anything else."""
    if isinstance(context, Mapping):
        return cast("Mapping[Any, Any]", context)
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
    return cast("Mapping[Any, Any]", context.__dict__) if isinstance(context, BaseModel) else None


# ------------------------------------------------------------------------------------------- input


def recorded_input(tape: Tape, begin: Chunk, inside: Sequence[Chunk]) -> Any:
    """What a graph was invoked with: an answer to what it asked, the input of its first checkpoint, or nothing (it goes on).

    Raises:
        UnsupportedError: It is not on record, or cannot be read here.
    """
    answers = [cast(Approval, c.body) for c in inside if c.kind == "approval" and c.run == begin.run]
    told = [one for one in answers if one.phase in ("granted", "denied") and isinstance(one.subject, Mapping)]
    values = [(one.call_id, one.subject["answer"]) for one in told if "answer" in one.subject]
    if values:
        return Command(resume=values[0][1] if len(values) == 1 else dict(values))
    states = [c for c in inside if c.kind == "checkpoint" and not cast(Checkpoint, c.body).namespace]
    first = next((c for c in states if c.run == cast(Run, begin.body).parent), states[0] if states else None)
    if first is None:
        return None
    body, backend = cast(Checkpoint, first.body), tape.session.store.backend
    if body.source != "input":
        if not _follows(tape, first):
            raise UnsupportedError(f'the input of a run is not on record (durability="exit" keeps the end alone): {INSTEAD}')
        return None
    try:
        state = read_state(body, backend.objects)
        held = load_values(state, RathSerializer(), backend.objects, f"checkpoint {body.checkpoint_id}")
    except RathError as error:
        raise UnsupportedError(f"the input of a run cannot be read ({error}): {INSTEAD}") from error
    value = held.get("__start__", _NOTHING)
    if value is _NOTHING:
        raise UnsupportedError(f"the input of a run is not on record: {INSTEAD}")
    _give_ids(value, [chunk for chunk in inside if chunk.kind == "message" and chunk.run == first.run])
    return value


def _follows(tape: Tape, chunk: Chunk) -> bool:
    """Whether a checkpoint is one step behind its parent: a run that went on there had no input, which would be a step of its own."""
    body = cast(Checkpoint, chunk.body)
    if body.parent_checkpoint_id is None or body.step is None:
        return False
    for one in tape.held.chunks:
        if one.kind == "checkpoint" and one.run == chunk.run and one.body_bytes is not None:
            parent = cast(Checkpoint, one.body)
            if parent.checkpoint_id == body.parent_checkpoint_id:
                return parent.step is None or body.step <= parent.step + 1
    return True  # it stands elsewhere


def _give_ids(value: Any, said: Sequence[Chunk]) -> None:
    """Give the messages of an input the ids that LangGraph made for them then: a later input may name them.

    Whoever sends one message object twice sends it with the id of its first time; and in one list it is one message.
    """
    messages = list(_messages(value))
    theirs = {message.id for message in messages}
    made: dict[Digest, deque[str]] = defaultdict(deque)
    for chunk in said:
        name = cast(Message, chunk.body).id
        found = values_of(chunk, RathSerializer()) if name is not None and name not in theirs else None
        if name is not None and found and isinstance(found[0], BaseMessage):
            made[compare_key(found[0])].append(name)
    for message in messages:
        waiting = made.get(compare_key(message)) if message.id is None else None
        if waiting:
            message.id = waiting[0]
            if len(waiting) > 1:  # the last one stands for all that are left: it was one object
                waiting.popleft()


def _messages(value: Any, depth: int = 0) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif depth > _DEPTH or type(value) in _ATOMS:
        return
    elif isinstance(value, Mapping):
        for item in cast("Mapping[Any, Any]", value).values():
            yield from _messages(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[Any]", value):
            yield from _messages(item, depth + 1)
    else:
        yield from _messages(fields_of(value), depth + 1)
