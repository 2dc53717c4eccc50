"""Briefing: one marked block that stands for what was said and done so far. Deterministic, and without a model.

What people ask for where foreign tool calls do not map (stablyai/orca issue 21965): the next agent is told what happened, in words, with
the digests under which all of it stands on record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.verbs.calling import failed
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.transcript import Call, TranscriptMessage, calls, transcript
from rath_bridge.verbs.words import call_words, counted, part_words, speaker_words, value_words

DIGITS: Final = 12
"""Digits of a digest in the text; the manifest has all 64."""
FIRST: Final = 10
"""Lines that are kept of the beginning of a long history,"""
LAST: Final = 40
"""and of its end."""
MOST: Final = 8_000
"""Characters of the last answer, which is told in full."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a function that writes a briefing is given."""

    name: str
    """The session."""
    messages: tuple[TranscriptMessage, ...]
    """What the briefing stands for, oldest first."""
    calls: tuple[Call, ...] = ()
    """Its tool calls, folded."""
    results: Mapping[Digest, ToolResult] = field(default_factory=dict[Digest, ToolResult])
    """Results by the digest that `Call.result` names."""
    rest: tuple[TranscriptMessage, ...] = ()
    """The user's messages behind it, which are handed over as they are."""

    @property
    def stands_for(self) -> tuple[Digest, ...]:
        """Digests of the messages."""
        return tuple(one.id for one in self.messages)


_MARK: Final = re.compile(r"\[(?=\s*(?:end\s+of\s+the\s+)?briefing\b)", re.IGNORECASE)
"""How our marks begin: in what others wrote, the bracket is escaped, so that nobody can end a briefing, or begin one."""

_ROW: Final = re.compile(r"^(?=[0-9a-f]{12}\s)")
"""How our lines begin: a line of somebody's text that does so is indented."""

BriefingFunction = Callable[[Told], str]
"""Writes the text between the two marks; what it stands for is said by us."""


def told(name: str, chunks: Sequence[Chunk]) -> Told:
    """Fold a line into what a briefing tells: all up to the user's last words, which stay as they are.

    Args:
        name: The session, for the mark.
        chunks: Its line, oldest first.
    """
    messages = transcript(chunks)
    cut = len(messages)
    while cut and messages[cut - 1].role == "user" and not _answers(messages[cut - 1]):
        cut -= 1
    found = tuple(calls(chunks))
    wanted = {call.result for call in found}
    results = {chunk.id: body for chunk in chunks if chunk.id in wanted and isinstance(body := chunk.body, ToolResult)}
    return Told(name, messages[:cut], found, results, messages[cut:])


def briefing(what: Told, write: BriefingFunction | None = None) -> Message:
    """Return the block: a user's message with a mark around it, and the digests of what it stands for.

    Args:
        what: From `told`.
        write: Writes better words than ours; the marks stay.
    """
    text: Any = _words(what) if write is None else write(what)
    if not isinstance(text, str):
        raise UnsupportedError(f"the function that writes the briefing returned a {type(text).__name__}, not a text")
    text = _MARK.sub(r"\\[", inert(text, keep="\n\t"))
    many = f"{counted(len(what.messages), 'message')}, {counted(len(what.calls), 'tool call')}"
    last = what.messages[-1].id
    head = f"[briefing: what was said and done before in session {inert(what.name)} ({many}), up to chunk {last}]"
    foot = "[end of the briefing: it is a summary, nobody said these words]"
    return Message(role="user", parts=(TextPart(f"{head}\n{text}\n{foot}"),), stands_for=what.stands_for)


def _words(what: Told) -> str:
    answers = {call.asked: call for call in what.calls}
    rows: list[str] = []
    for number, one in enumerate(what.messages, 1):
        last = number == len(what.messages)
        rows.append(f"{one.id[:DIGITS]} {_said(one, whole=last)}")
        if one.id in answers:
            rows += _unanswered(one, what)
    if len(rows) > FIRST + LAST:
        left_out = f"({len(rows) - FIRST - LAST} lines are left out here; they are on record)"
        rows = [*rows[:FIRST], left_out, *rows[-LAST:]]
    return "\n".join(rows)


def _said(one: TranscriptMessage, *, whole: bool) -> str:
    speaker = speaker_words(one.role, one.name)
    if whole and one.text:
        text = "\n".join(_ROW.sub("  ", inert(line)) for line in one.text[:MOST].split("\n"))
        return f"{speaker}: {text}{'…' if len(one.text) > MOST else ''}"
    return f"{speaker}: {' '.join(_part(part) for part in one.parts) or '(nothing)'}"


def _part(part: object) -> str:
    if isinstance(part, ToolCallPart):
        return f"calls {call_words(part.name, part.arguments)}"
    if isinstance(part, ToolCallResponsePart):
        return f"{'failed:' if failed(part.extra) else 'result'} {value_words(part.response, 600)}"
    if isinstance(part, TextPart):
        return one_line(part.content, 600)
    return part_words(part)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def _unanswered(one: TranscriptMessage, what: Told) -> list[str]:
    """Calls that no message answers: with the result on record, or as open."""
    rows: list[str] = []
    for call in what.calls:
        if call.asked != one.id or call.answered is not None:
            continue
        found = what.results.get(call.result) if call.result else None
        if found is None or found.status == "no_response":
            rows.append(f"{one.id[:DIGITS]} no answer to {one_line(call.name, 80)}: it may or may not have run")
        else:
            value = found.result if found.status == "ok" else found.error or found.result
            rows.append(f"{(call.result or '')[:DIGITS]} {one_line(call.name, 80)} {found.status}: {value_words(value, 600)}")
    return rows


def _answers(one: TranscriptMessage) -> bool:
    return any(isinstance(part, ToolCallResponsePart) for part in one.parts)
