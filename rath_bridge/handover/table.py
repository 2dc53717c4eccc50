"""What becomes of each thing that a session may hold in an exact hand-over: one table, for the documentation and for the tests.

The tests hand a small session over for each row, read it back with the target's own `decode`, and compare. Whatever is not
*kept* stands in the `LossReport`, with its chunk and its path (law 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

KEPT: Final = "kept"
CHANGED: Final = "changed"
LEFT_OUT: Final = "left out"


@dataclass(frozen=True, slots=True)
class Cell:
    """What one target does with it."""

    fate: str
    """``kept``, ``changed`` or ``left out``."""
    how: str = ""
    """As what it stands there, or why not."""

    def __str__(self) -> str:
        return f"{self.fate}: {self.how}" if self.how else self.fate


@dataclass(frozen=True, slots=True)
class Row:
    """One thing, and the four targets."""

    what: str
    langgraph: Cell
    openai_agents: Cell
    autogen: Cell
    openai_messages: Cell


def _kept(how: str = "") -> Cell:
    return Cell(KEPT, how)


def _changed(how: str) -> Cell:
    return Cell(CHANGED, how)


def _out(how: str = "") -> Cell:
    return Cell(LEFT_OUT, how)


_PROMPT: Final = _out("an agent brings its own")
_FITTING: Final = _changed("`_` for them, and 8 digits of its digest")
_ID: Final = _changed("`call_` and 24 digits of its digest, in the answer too")
_CLOSED: Final = _changed("answered: no response")
_JSON: Final = _changed("as JSON text")
_OWN_ID: Final = _changed("one is made from its chunk")

MAPPING: Final = (
    Row("role: user, assistant", _kept(), _kept(), _kept(), _kept()),
    Row("role: system", _kept(), _kept(), _PROMPT, _kept()),
    Row("role: developer", _kept(), _kept(), _PROMPT, _kept()),
    Row("role: any other", _kept("`ChatMessage`"), _changed("user"), _changed("user"), _changed("user")),
    Row("a speaker's name", _kept(), _out("an item has no name"), _kept("`source`"), _kept()),
    Row("a speaker's name with other characters", _FITTING, _out("an item has no name"), _FITTING, _FITTING),
    Row("call and result", _kept(), _kept(), _kept(), _kept()),
    Row("text beside a call", _kept(), _kept("before it"), _changed("`thought`"), _kept()),
    Row("call without an id", _OWN_ID, _OWN_ID, _OWN_ID, _OWN_ID),
    Row("call id that is too long", _ID, _ID, _ID, _ID),
    Row("call id used twice", _kept(), _changed("`c1`, `c1_2`"), _kept(), _kept()),
    Row("tool name with other characters", _FITTING, _FITTING, _FITTING, _FITTING),
    Row("arguments that are no object", _kept("`invalid_tool_calls`"), _kept(), _kept(), _kept()),
    Row("result that is no text", _JSON, _JSON, _JSON, _JSON),
    Row("result that is an error", _kept(), _changed("as its text"), _kept(), _changed("as its text")),
    Row("call that is pending", _CLOSED, _CLOSED, _CLOSED, _CLOSED),
    Row("answer that nobody asked for", _out(), _out(), _out(), _out()),
    Row("image, as bytes", _kept(), _kept(), _kept("RGB PNG; others are written anew"), _kept()),
    Row("image, by address", _kept(), _kept(), _changed("its address as text"), _kept()),
    Row("image, by file id", _kept(), _kept(), _out(), _out("documents only")),
    Row("image that an assistant made", _kept(), _out(), _out(), _out()),
    Row("audio", _kept(), _out("no input of the Responses API"), _out("images only"), _kept()),
    Row("document", _kept(), _kept(), _out("images only"), _kept()),
    Row("reasoning", _kept(), _out("of another model: not accepted"), _kept("`thought`"), _out()),
    Row(
        "reasoning with a signature",
        _changed("without it"),
        _out("of another model: not accepted"),
        _changed("without it"),
        _out(),
    ),
    Row("structured output", _kept("as JSON text"), _kept("as JSON text"), _kept("as JSON text"), _kept("as JSON text")),
    Row("structured output: its schema", _out(), _out(), _out(), _out()),
    Row("refusal", _out(), _out(), _out(), _kept()),
    Row("provider's own tool call", _out(), _out(), _out(), _out()),
)
"""In the forms that are continued: ``messages``, ``items``, ``llm_messages``, and chat messages. Call ids of at most 40 characters
(openai_agents: 64) and names of letters, digits, ``_`` and ``-`` stay as they are."""


def markdown() -> Iterator[str]:
    """Yield the table's lines for the documentation."""
    yield "| | langgraph | openai_agents | autogen | openai_messages |"
    yield "|---|---|---|---|---|"
    for row in MAPPING:
        cells = (row.langgraph, row.openai_agents, row.autogen, row.openai_messages)
        yield f"| {row.what} | {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    print("\n".join(markdown()))  # noqa: T201 - for docs/hand-over.md
