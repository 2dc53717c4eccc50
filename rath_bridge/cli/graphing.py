"""``graph``: the branches, forks and merges of a session, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import orjson
import typer
from rich.text import Text

from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import ROOMY, AsJson, Face, NameArgument, quoted
from rath_bridge.cli.filtering import Agents, Frameworks, Grep, Kinds, Since, Tools, filter_of, matcher
from rath_bridge.cli.listing import on_branch
from rath_bridge.cli.naming import label
from rath_bridge.cli.pieces import Piece, condense
from rath_bridge.cli.rails import ASCII, UNICODE, Row, draw, order
from rath_bridge.cli.runs import RunNames
from rath_bridge.model.chunk import format_time
from rath_bridge.model.digests import Digest
from rath_bridge.session import Session
from rath_bridge.store.protocol import Reader, Ref
from rath_bridge.verbs.inert import inert
from rath_bridge.verbs.words import summary

_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")


def graph(
    face: Face,
    name: NameArgument,
    branches: Annotated[
        list[str] | None,
        typer.Option("--branch", metavar="BRANCH", help="Only this branch of NAME; several are fine.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The sessions that share its history, too.")] = False,
    kinds: Kinds = None,
    agents: Agents = None,
    tools: Tools = None,
    frameworks: Frameworks = None,
    since: Since = None,
    grep: Grep = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with plain characters.")] = False,
    as_json: AsJson = False,
) -> None:
    """Draw branches, forks and merges, newest first.

    Chunks that simply follow each other are one row, told by their last message; with a filter, by the last of those that fit, with
    how many they are. Times are UTC, of the row's newest chunk.
    """
    session = face.session(name)
    backend = face.store.backend
    refs = _refs(face, session, name, branches or [], every)
    wanted = filter_of(kinds, agents, tools, frameworks, since, grep)
    asked = matcher(wanted, backend, RunNames(backend)) if wanted else None
    with face.progress("reading") as progress:
        pieces = condense(refs, backend, progress, asked)
    if as_json:
        rows = [_row(pieces, number, backend) for number in order(pieces)]
        hints = face.next(f"log {quoted(name)} --all", *(f"diff {quoted(name)} {quoted(ref.name)}" for ref in refs[1:3]))
        face.json({"session": session.session, "pieces": rows, "next_actions": hints})
        return
    plain = ascii_only or not face.out.encoding.lower().startswith("utf")
    rows = draw(pieces, ASCII if plain else UNICODE)
    width = min(max((len(row.cells) for row in rows), default=0), 24)
    with face.pager():
        for row in rows:
            face.print_line(_line(row, pieces, backend, width, session.session, face.out.width >= ROOMY))


def _refs(face: Face, session: Session, name: str, branches: Sequence[str], every: bool) -> list[Ref]:
    """The tips to draw, those of the session first."""
    backend = face.store.backend
    if branches:
        return [_ref(face, on_branch(face, name, branch)) for branch in branches]
    refs = [ref for ref in backend.refs(session.session) if "@" not in name or ref.branch == session.branch]
    if not every:
        return refs
    roots = {_root(backend, ref) for ref in refs}
    return [*refs, *(ref for ref in backend.refs() if ref.session != session.session and _root(backend, ref) in roots)]


def _ref(face: Face, session: Session) -> Ref:
    found = face.store.backend.ref(session.session, session.branch)
    assert found is not None  # it was opened by that name
    return found


def _root(reader: Reader, ref: Ref) -> Digest:
    return next(iter(reader.line(ref.head, 0, 1))).id


def _row(pieces: Sequence[Piece], number: int, reader: Reader) -> dict[str, Any]:
    piece = pieces[number]
    return {
        "tip": piece.tip, "first": piece.first, "chunks": piece.count, "at": format_time(piece.at), "kind": reader.chunk(piece.tip).kind,
        "parents": [pieces[parent].tip for parent in piece.parents], "refs": list(piece.refs), "frameworks": _frameworks(piece),
        **({} if piece.matched is None else {"matched": piece.matched}),
        "summary": summary(reader.chunk(piece.said or piece.tip)),
    }  # fmt: skip


def _line(row: Row, pieces: Sequence[Piece], reader: Reader, width: int, session: str, roomy: bool) -> Text:
    text = Text()
    for char, lane in row.cells:
        text.append(char, _COLOURS[lane % len(_COLOURS)])
    if row.piece is None:
        return text
    text.append(" " * max(1, width + 1 - len(row.cells)))
    piece = pieces[row.piece]
    colour = _COLOURS[row.lane % len(_COLOURS)]
    text.append(piece.tip[:8], "id").append("  ")
    text.append(format_time(piece.at)[:16].replace("T", " "), "time").append("  ")
    for ref in piece.refs:
        text.append(f"[{label(ref, session)}]", f"bold {colour}").append("  ")
    if piece.matched is not None:
        text.append(f"{piece.matched} of {counted(piece.count, 'chunk')}", "" if piece.matched else "dim").append("  ")
    elif piece.count > 1:
        text.append(counted(piece.count, "chunk"), "head").append("  ")
    frameworks = _frameworks(piece) if roomy else []  # else they push out what was said last
    if frameworks:
        text.append(inert(", ".join(frameworks)), "run").append("  ")
    if piece.matched == 0:
        return text
    return text.append(summary(reader.chunk(piece.said or piece.tip)))


def _frameworks(piece: Piece) -> list[str]:
    origins = [orjson.loads(mark) for mark in piece.marks]
    return sorted({str(origin.get("framework") or origin.get("adapter")) for origin in origins})
