"""``diff`` and ``blame``: where two lines part, and where a text came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.cells import set_cell_size
from rich.text import Text

from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import AsJson, Face, NameArgument, quoted, table
from rath_bridge.cli.styles import style_of
from rath_bridge.errors import DecodeError, ErasedError, MissingObjectError, RathError
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.session import Session
from rath_bridge.verbs.diff import ABSENT, Change, Diff
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.words import summary, value_words

DIFFER: Final = 1
NOT_FOUND: Final = 1
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
    theirs: Annotated[str, typer.Argument(metavar="B", help="What to compare it with.", show_default=False)],
    stat: Annotated[bool, typer.Option("--stat", help="Only count what differs.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show where two sessions or branches part.

    What a run makes anew each time (times, nonces, generated ids) does not count. Status 0: no difference; 1: they differ;
    125: what differs was erased.
    """
    one, two = face.session(ours), face.session(theirs)
    try:
        found = one.diff(two)
    except (ErasedError, MissingObjectError, DecodeError) as error:
        raise IncomparableError(one.name, two.name, str(error)) from error
    status = status_of(found)
    if as_json:
        hints = [f"show {c.id[:12]}" for change in _differing(found)[:1] for c in (change.ours, change.theirs) if c is not None]
        counts = dict(sorted(Counter(change.kind for change in found.changes).items()))
        body = {"base": found.base, "differ": bool(found), "counts": counts} if stat else found.to_json()
        names = {"a": {"name": one.name, "head": one.head}, "b": {"name": two.name, "head": two.head}}
        face.json({**names, **body, "next_actions": face.next(*hints, f"graph {quoted(one.session)}")})
        return status
    _print_sides(face, found, one, two)
    if stat:
        _print_stat(face, found)
    else:
        for change in _condensed(found.changes):
            _print_change(face, change)
    if not found:
        face.line(("No difference.", "good"))
    return status


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
    left, right = _around(change.ours_value, change.theirs_value)
    face.line(("- ", "bad"), left, indent=4)
    face.line(("+ ", "good"), right, indent=4)


def _around(ours: Any, theirs: Any) -> tuple[str, str]:
    """Return both values in a few words; of long texts, those around the first difference."""
    if not (isinstance(ours, str) and isinstance(theirs, str)):
        return tuple("(absent)" if value is ABSENT else value_words(value, 400) for value in (ours, theirs))  # type: ignore[return-value]
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    start = max(0, same - 20) if same > 40 else 0
    left, right = (f"{'…' if start else ''}{one_line(text[start:], 400)}" for text in (ours, theirs))
    return left, right


def _chunk(change: Change) -> Chunk:
    found = change.ours or change.theirs
    assert found is not None  # a change has at least one side
    return found


def blame(
    face: Face,
    name: NameArgument,
    wanted: Annotated[str, typer.Argument(metavar="TEXT", help="Some text, a path or a digest.", show_default=False)],
    as_json: AsJson = False,
) -> int:
    """Show which chunks brought a text, a path or a digest in.

    First appearance first. Status 1: none did.
    """
    session = face.session(name)
    if not wanted:
        raise typer.BadParameter("TEXT is empty: give some text, a path or a digest")
    found = session.blame(wanted)
    if as_json:
        rows = [
            {
                "id": line.chunk.id, "kind": line.chunk.kind, "at": format_time(line.chunk.at), "runs": list(line.runs),
                "where": line.where, "excerpt": line.excerpt,
            }
            for line in found
        ]  # fmt: skip
        hints = face.next(f"show {found[0].chunk.id[:12]}") if found else face.next(f"log {quoted(name)}")
        face.json({"session": session.name, "wanted": wanted, "found": rows, "next_actions": hints})
    elif not found:
        face.line(f"Nothing in {inert(session.name)} holds {inert(wanted)!r}.")
    else:
        rows = table("CHUNK", "KIND", "RUN", "WHERE", "TEXT")
        for line in found:
            rows.add_row(
                Text(line.chunk.id[:8], "id"), Text(inert(line.chunk.kind), style_of(line.chunk)),
                Text(inert(" / ".join(line.runs)), "run"), Text(one_line(line.where, 60), "dim"), Text(one_line(line.excerpt, 200)),
            )  # fmt: skip
        face.show(rows)
    return 0 if found else NOT_FOUND
