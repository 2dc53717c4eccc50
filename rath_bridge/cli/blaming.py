"""``blame``: where a text, an argument, a key of a state or a file came from, and through what."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.cells import set_cell_size
from rich.text import Text

from rath_bridge.cli.face import AsJson, Face, NameArgument, quoted
from rath_bridge.cli.styles import style_of
from rath_bridge.errors import RathError
from rath_bridge.model.chunk import format_time
from rath_bridge.verbs.blame import BlameLine
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.provenance import Link
from rath_bridge.verbs.words import summary

NOT_FOUND: Final = 1
LINKS: Final = 6
"""Links that are printed for a place; the rest are counted."""


def blame(
    face: Face,
    name: NameArgument,
    wanted: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="Some text, an argument, a key of a state, a path or a digest.", show_default=False),
    ],
    number: Annotated[
        int | None, typer.Option("-n", "--number", min=0, metavar="N", help="At most so many places.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show where something came from: chunk, agent, framework, branch, and the model and tool calls behind it.

    First appearance first, back through edits, merges and hand-overs. A link is recorded where the chunks name each other, and said to
    be inferred where it was concluded. Status 1: it stands nowhere.
    """
    session = face.session(name)
    if not wanted:
        raise typer.BadParameter("TEXT is empty: give some text, a key, a path or a digest")
    found = session.blame(wanted)
    if as_json:
        hints = face.next(f"show {found[0].chunk.id[:12]}") if found else face.next(f"log {quoted(name)}")
        rows = [_row(line) for line in found[:number]]
        face.json({"session": session.name, "wanted": wanted, "found": rows, "places": len(found), "next_actions": hints})
    elif not found:
        face.line(f"Nothing in {inert(session.name)} holds {inert(wanted)!r}.")
    else:
        for line in found[:number]:
            _print(face, line)
        if number is not None and len(found) > number:
            face.line((f"{len(found) - number} more places", "dim"))
    return 0 if found else NOT_FOUND


def _row(line: BlameLine) -> dict[str, Any]:
    return {
        "id": line.chunk.id, "kind": line.chunk.kind, "at": format_time(line.chunk.at), "runs": list(line.runs), "agent": line.agent,
        "framework": line.framework, "branch": line.branch, "where": line.where, "excerpt": line.excerpt,
        "model_call": line.model_call and line.model_call.to_json(), "tool_call": line.tool_call and line.tool_call.to_json(),
        "links": [link.to_json() for link in line.links],
    }  # fmt: skip


def _print(face: Face, line: BlameLine) -> None:
    who = " / ".join(dict.fromkeys(name for name in (line.branch, line.framework, *line.runs, line.agent) if name))
    text = Text.assemble(
        (line.chunk.id[:8], "id"), "  ", (set_cell_size(inert(line.chunk.kind), 11), style_of(line.chunk)), "  ",
        (one_line(who, 100), "run"), "  ", (one_line(line.where, 60), "dim"), "  ", one_line(line.excerpt, 200),
    )  # fmt: skip
    face.print_line(text)
    for link in line.links[:LINKS]:
        face.print_line(_link(face, link))
    if len(line.links) > LINKS:
        face.line((f"and {len(line.links) - LINKS} more", "dim"), indent=12)


def _link(face: Face, link: Link) -> Text:
    try:
        chunk = face.store.backend.chunk(link.chunk)
        told = f"{chunk.kind}: {summary(chunk)}"
    except RathError as error:  # it is not in this store
        told = str(error)
    basis = ("", "") if link.basis == "recorded" else (" (inferred)", "warn")
    return Text.assemble(
        " " * 10, ("← ", "head"), (f"{link.how}", "head"), basis, "  ", (link.chunk[:8], "id"), "  ", one_line(told, 200)
    )
