"""``diff``: where two lines part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.cells import set_cell_size
from rich.text import Text

from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import AsJson, Face, quoted, table
from rath_bridge.cli.styles import style_of
from rath_bridge.errors import DecodeError, ErasedError, MissingObjectError, RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.session import Session
from rath_bridge.verbs.changes import ABSENT, path_text
from rath_bridge.verbs.diff import Change, Diff
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.sections import Section
from rath_bridge.verbs.wording import Piece
from rath_bridge.verbs.words import call_words, summary, value_words

DIFFER: Final = 1
INCOMPARABLE: Final = 125

_STYLES: Final = (("same", "dim"), ("changed", "warn"), ("removed", "bad"), ("added", "good"))
_SIGNS: Final = {"changed": ("~", "warn"), "removed": ("-", "bad"), "added": ("+", "good")}


class IncomparableError(RathError):
    """Content that a comparison needs is gone."""

    exit_status = INCOMPARABLE

    def __init__(self, ours: str, theirs: str, why: str) -> None:
        self.ours, self.theirs, self.why = ours, theirs, why
        super().__init__(f"{ours} and {theirs} cannot be compared: {why}")


def diff(
    face: Face,
    ours: Annotated[str, typer.Argument(metavar="A", help="Session, or session@branch.", show_default=False)],
    theirs: Annotated[
        str,
        typer.Argument(
            metavar="B", help="What to compare it with; a branch of the same session by its name.", show_default=False
        ),
    ],
    stat: Annotated[bool, typer.Option("--stat", help="Only count what differs, and what each side took.")] = False,
    chunks: Annotated[bool, typer.Option("--chunks", help="Chunk by chunk, with the place inside that differs.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show where two sessions or branches part: transcript, tool calls, state, and what it took; word by word.

    Frameworks do not matter: what was said is compared, whoever recorded it. What a run makes anew each time (times, nonces, generated
    ids) does not count. Status 0: no difference; 1: they differ; 125: what differs was erased.
    """
    one = face.session(ours)
    two = face.beside(one, theirs)
    try:
        found = one.diff(two)
        status = status_of(found)
        if as_json:
            hints = [
                f"show {c.id[:12]}" for change in _differing(found)[:1] for c in (change.ours, change.theirs) if c is not None
            ]
            counts = dict(sorted(Counter(change.kind for change in found.changes).items()))
            head = {"base": found.base, "differ": bool(found), "counts": counts}
            body = {**head, **found.stat_json()} if stat else found.to_json()
            names = {"a": {"name": one.name, "head": one.head}, "b": {"name": two.name, "head": two.head}}
            face.json({**names, **body, "next_actions": face.next(*hints, f"graph {quoted(one.session)}")})
            return status
        _print(face, found, one, two, stat=stat, chunks=chunks)
    except (ErasedError, MissingObjectError, DecodeError) as error:
        raise IncomparableError(one.name, two.name, str(error)) from error
    return status


def _print(face: Face, found: Diff, one: Session, two: Session, *, stat: bool, chunks: bool) -> None:
    _print_sides(face, found, one, two)
    if found:
        _print_spent(face, found)
    if stat:
        _print_stat(face, found)
    elif chunks:
        for change in _condensed(found.changes):
            _print_change(face, change)
    elif found:
        _print_sections(face, found)
    if not found:
        face.line(("No difference.", "good"))


def _print_spent(face: Face, found: Diff) -> None:
    """What each side took by itself."""
    sides = found.spent()
    rows: list[tuple[str, list[str]]] = [
        ("messages", [str(side.messages) for side in sides]),
        ("model calls", [str(side.model_calls) for side in sides]),
        ("tool calls", [str(side.tool_calls) for side in sides]),
        ("tokens", [f"{side.usage.input_tokens or 0} in, {side.usage.output_tokens or 0} out" for side in sides]),
        ("cost", ["·" if side.usage.cost_usd is None else f"$ {side.usage.cost_usd:.4f}" for side in sides]),
        ("time", [f"{side.seconds:.2f} s (models {side.model_seconds:.2f}, tools {side.tool_seconds:.2f})" for side in sides]),
        ("frameworks", [inert(", ".join(side.frameworks)) or "·" for side in sides]),
    ]
    shown = table("", "A", "B")
    for name, (left, right) in rows:
        style = "dim" if left == right else ""
        shown.add_row(Text(name, "head"), Text(left, style), Text(right, style))
    face.show(shown)
    face.out.print()


def _print_sections(face: Face, found: Diff) -> None:
    for change in _differing(found):
        if _erased(change):
            _print_change(face, change)
    rest = Counter(_chunk(change).kind for change in _differing(found) if not _erased(change))
    for title, rows, kinds in (
        ("transcript", found.transcript(), ("message",)),
        ("tool calls", found.calls(), ("tool_call", "tool_result")),
        ("state", found.state(), ("checkpoint", "task")),
    ):
        for kind in kinds:
            rest.pop(kind, None)
        if all(row.kind == "same" for row in rows):
            continue
        face.line((title, "head"))
        for same, group in groupby(rows, key=lambda row: row.kind == "same"):
            members = list(group)
            if same:
                face.line((f"  {len(members)} the same", "dim"))
                continue
            for row in members:
                _print_row(face, row)
    if rest:
        others = ", ".join(f"{count} {inert(kind)}" for kind, count in sorted(rest.items()))
        face.line((f"other chunks that differ: {others} (see --chunks)", "dim"))


def _print_row(face: Face, row: Section) -> None:
    sign, style = _SIGNS[row.kind]
    ids = "  ".join(fact.chunk.id[:8] for fact in (row.ours, row.theirs) if fact is not None and fact.chunk is not None)
    what = one_line(row.what, 40)
    place = path_text(row.path).removeprefix("body").removeprefix(".")
    text = Text.assemble((f"{sign} ", style), (f"{ids:<18}", "id"), "  ", (f"{what:<10}", "name"), "  ")
    if row.kind != "changed":
        fact = row.ours or row.theirs
        face.print_line(text.append(_fact_words(fact.values if fact is not None else {}), style))
        return
    if pieces := row.words:
        face.show(text.append(_word_text(pieces)))
        return
    face.print_line(text.append(inert(place), "dim"))
    _print_values(face, row.ours_value, row.theirs_value)


def _fact_words(values: Mapping[str, Any]) -> str:
    """A message, a call or a state's value, in a few words."""
    if "parts" in values:
        return one_line(" ".join(value_words(part, 400) for part in values["parts"]) or "(empty)", 400)
    if "name" in values:
        return f"{call_words(values['name'], values.get('arguments'))} {one_line(str(values.get('status')), 40)}"
    return value_words(values.get("value", f"{values['items']} items" if "items" in values else values.get("digest")), 400)


def _word_text(pieces: Sequence[Piece]) -> Text:
    """As ``git diff --word-diff``: what is gone in ``[-…-]``, what is new in ``{+…+}``; long stretches that are the same are cut."""
    text = Text()
    for number, (tag, words) in enumerate(pieces):
        if tag == "same":
            text.append(_cut(words, first=number == 0, last=number == len(pieces) - 1))
        elif tag == "removed":
            text.append(f"[-{_line(words)}-]", "bad")
        else:
            text.append(f"{{+{_line(words)}+}}", "good")
    return text


def _cut(words: str, *, first: bool, last: bool) -> str:
    if len(words) <= 80:
        return _line(words)
    head, tail = "" if first else words[:30], "" if last else words[-30:]
    return f"{_line(head)}…{_line(tail)}"


def _line(words: str) -> str:
    """Inert, on one line; spaces at the ends stay, as they are part of what differs."""
    return inert(words.replace("\n", "⏎ "))


def _differing(found: Diff) -> list[Change]:
    return [change for change in found.changes if change.kind != "same"]


def status_of(found: Diff) -> int:
    """Return the exit status of a comparison: what differs only in erased content cannot be compared."""
    differing = _differing(found)
    if differing and all(_erased(change) for change in differing):
        return INCOMPARABLE
    return DIFFER if differing else 0


def _erased(change: Change) -> bool:
    return change.kind == "changed" and any(c is not None and c.body_bytes is None for c in (change.ours, change.theirs))


def _print_sides(face: Face, found: Diff, one: Session, two: Session) -> None:
    sides = table("", "", "")
    sides.show_header = False
    base = Text("no shared history: compared whole", "warn")
    if found.base is not None:
        chunk = face.store.backend.chunk(found.base)
        base = Text.assemble((chunk.id[:8], "id"), "  ", summary(chunk))
    for name, session, chunks in (("a", one, found.ours), ("b", two, found.theirs)):
        count = f"{counted(len(chunks), 'chunk')} of its own"
        sides.add_row(Text(name, "head"), Text(inert(session.name), "ref"), Text(count))
    face.print_line(Text.assemble(("base  ", "head"), base))
    face.show(sides)
    face.out.print()


def _print_stat(face: Face, found: Diff) -> None:
    counts: Counter[tuple[str, str]] = Counter((_chunk(change).kind, change.kind) for change in found.changes)
    rows = table("KIND", "SAME", "CHANGED", "ONLY A", "ONLY B", right=("SAME", "CHANGED", "ONLY A", "ONLY B"))
    for kind in sorted({kind for kind, _ in counts}):
        numbers = [
            (counts[kind, how], style)
            for how, style in (("same", "dim"), ("changed", "warn"), ("removed", "bad"), ("added", "good"))
        ]
        rows.add_row(Text(inert(kind)), *(Text(str(n) if n else "·", style if n else "dim") for n, style in numbers))
    face.show(rows)


def _condensed(changes: Sequence[Change]) -> list[Change | int]:
    """Replace stretches that are the same by how many there are."""
    found: list[Change | int] = []
    for same, group in groupby(changes, key=lambda change: change.kind == "same"):
        members = list(group)
        found += [len(members)] if same else members
    return found


def _print_change(face: Face, change: Change | int) -> None:
    if isinstance(change, int):
        face.line((f"  {change} the same", "dim"))
        return
    sign, style = _SIGNS[change.kind]
    chunk = _chunk(change)
    ids = "  ".join(c.id[:8] for c in (change.ours, change.theirs) if c is not None)
    kind = set_cell_size(inert(chunk.kind), 11)
    text = Text.assemble((f"{sign} ", style), (f"{ids:<18}", "id"), "  ", (kind, style_of(chunk)), "  ")
    if change.kind != "changed":
        face.print_line(text.append(summary(chunk)))
        return
    if _erased(change):
        face.print_line(text.append("the content was erased on one side: cannot be compared", "warn"))
        return
    face.print_line(text.append(inert(change.path)))
    if pieces := change.words:
        face.show(Text("    ").append(_word_text(pieces)))
    else:
        _print_values(face, change.ours_value, change.theirs_value)


def _print_values(face: Face, ours: Any, theirs: Any) -> None:
    for sign, style, value in (("- ", "bad", ours), ("+ ", "good", theirs)):
        face.line((sign, style), "(absent)" if value is ABSENT else value_words(value, 400), indent=4)


def _chunk(change: Change) -> Chunk:
    found = change.ours or change.theirs
    assert found is not None  # a change has at least one side
    return found
