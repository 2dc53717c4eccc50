"""``ls`` and ``log``: what there is, and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import dropwhile, islice
from typing import Annotated, Any, Final, cast

import typer
from rich.cells import set_cell_size
from rich.text import Text

from rath_bridge.cli.face import ROOMY, AsJson, Face, NameArgument, quoted, table
from rath_bridge.cli.filtering import Agents, Frameworks, Grep, Kinds, Since, Tools, at_most, filter_of, matcher
from rath_bridge.cli.naming import find_chunk, label
from rath_bridge.cli.runs import RunNames, runs_named
from rath_bridge.cli.styles import style_of
from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.session import Session
from rath_bridge.store.protocol import Ref
from rath_bridge.verbs.branches import count
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.jsonable import jsonable
from rath_bridge.verbs.log import LogEntry
from rath_bridge.verbs.log import log as log_of
from rath_bridge.verbs.matching import framework
from rath_bridge.verbs.transcript import pending
from rath_bridge.verbs.words import summary

_BUDGET: Final = 20_000
"""Chunks that ``ls`` reads in all, to tell frameworks and pending calls."""


def ls(
    face: Face,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this session, with its branches.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, their branches, and what was seen in them.

    CHUNKS are those of all branches, each counted once (of the main branch alone where there are more than 24). LAST is in UTC. Of
    long sessions, frameworks are those of the newest chunks, and pending calls, which are those of the main branch, are left out.
    """
    every = face.store.sessions()
    if name is not None:
        one = face.session(name)
        every = [s for s in every if s.session == one.session]
    limit = max(20, min(1000, _BUDGET // max(1, len(every))))
    rows = [_session_row(session, limit) for session in every]
    first = quoted(rows[0]["name"]) if rows else ""
    if as_json:
        hints = face.next(f"log {first}", f"graph {first}", f"fsck {first}") if rows else face.next("doctor")
        face.json({"store": face.store.url, "sessions": rows, "next_actions": hints})
        return
    if not rows:
        face.line(f"No sessions in {inert(face.store.url)}. rath-bridge doctor tells what is installed.")
        return
    found = table("SESSION", "BRANCHES", "CHUNKS", "LAST", "PENDING", "FRAMEWORKS", right=("BRANCHES", "CHUNKS", "PENDING"))
    for row in rows:
        calls = "" if row["pending"] is None else str(row["pending"] or "·")
        found.add_row(
            Text(inert(row["name"]), "name"), Text(str(len(row["branches"]))), Text(_counted(row)),
            Text(_when(row["last"]), "time"), Text(calls, "warn" if row["pending"] else "dim"),
            Text(inert(", ".join(row["frameworks"])), "run"),
        )  # fmt: skip
    face.show(found)
    if name is not None:
        _branches(face, rows[0])


def _branches(face: Face, row: dict[str, Any]) -> None:
    found = table("BRANCH", "CHUNKS", "HEAD", right=("CHUNKS",))
    for branch in row["branches"]:
        found.add_row(
            Text(inert(branch["name"]), "ref"), Text(f"{branch['chunks']:,}".replace(",", " ")), Text(branch["head"][:12], "id")
        )
    face.out.print()
    face.show(found)


def _session_row(session: Session, limit: int) -> dict[str, Any]:
    backend = session.store.backend
    refs = backend.refs(session.session)
    line = list(backend.line(session.head, max(0, len(session) - limit)))
    whole = len(line) == len(session)
    every = count(refs, backend)
    try:
        waiting = len(pending(line)) if whole else None
    except RathError:  # content that cannot be read; fsck names it
        waiting = None
    return {
        "name": session.session,
        "head": session.head,
        "chunks": len(session) if every is None else every,
        "counted": "main" if every is None else "all",
        "last": format_time(max(backend.chunk(ref.head).at for ref in refs)),
        "frameworks": sorted({found for entry in islice(session.log(all=True), limit) if (found := framework(entry.chunk))}),
        "pending": waiting,
        "branches": [{"name": ref.branch, "head": ref.head, "chunks": ref.position + 1} for ref in refs],
    }


def _counted(row: dict[str, Any]) -> str:
    return f"{row['chunks']:,}".replace(",", " ") + (" on main" if row["counted"] == "main" else "")


def _when(stamp: str) -> str:
    return stamp[:16].replace("T", " ")


def log(
    face: Face,
    name: NameArgument,
    every: Annotated[bool, typer.Option("--all", help="All branches, and all that was merged in.")] = False,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="This branch of NAME.", show_default=False)
    ] = None,
    number: Annotated[
        int | None, typer.Option("-n", "--number", min=0, metavar="N", help="At most so many.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="CHUNK", help="Only what stands before it: where the last page ended.", show_default=False
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Only this run, by name or id, and what nests in it.", show_default=False),
    ] = None,
    kinds: Kinds = None,
    agents: Agents = None,
    tools: Tools = None,
    frameworks: Frameworks = None,
    since: Since = None,
    grep: Grep = None,
    oneline: Annotated[bool, typer.Option("--oneline", help="Without times and runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened, newest first, with digest and number: NAME:N. Times are UTC.

    History is read a page at a time, and never held whole; on a terminal it goes through $PAGER.
    """
    session = on_branch(face, name, branch)
    names = RunNames(face.store.backend)
    wanted = filter_of(kinds, agents, tools, frameworks, since, grep)
    lines = Lines(session) if every else None
    chosen = _entries(face, session, every, run, before, lines)
    if wanted:
        asked = matcher(wanted, face.store.backend, names)
        chosen = (entry for entry in chosen if asked(entry.chunk))
    entries = at_most(chosen, number)
    if as_json:
        _log_json(face, session, entries, names, name, number, lines)
        return
    with face.pager():
        _print_log(face, entries, names, session.session, oneline, lines)


class Lines:
    """Tells on which branch each chunk of a log is, while it goes by: children come before their parents."""

    def __init__(self, session: Session) -> None:
        self._refs = session.store.backend.refs(session.session)
        self._session = session.session
        self._ranks = {label(ref.name, self._session): rank for rank, ref in enumerate(self._ranked())}
        self._tips: dict[str, str] = {}
        for ref in self._ranked():
            self._tips.setdefault(ref.head, label(ref.name, self._session))
        self._over: dict[str, str] = {}
        self.many = len(self._tips) > 1
        self.now = ""
        """The branch of the chunk that was given last; history that several share is main's, else the first one's by name."""

    def follow(self, entries: Iterator[LogEntry]) -> Iterator[LogEntry]:
        """Pass a log on, unfiltered, newest first."""
        for entry in entries:
            above = self._over.pop(entry.chunk.id, None)
            names = [name for name in (above, self._tips.get(entry.chunk.id)) if name]
            self.now = min(names, key=self._rank, default="")
            for parent in entry.chunk.parents[:1]:
                self._over[parent] = min(self._over.get(parent, self.now), self.now, key=self._rank)
            for merged in entry.chunk.parents[1:]:
                self._over.setdefault(merged, "(merged)")
            yield entry

    def _ranked(self) -> list[Ref]:
        return sorted(self._refs, key=lambda ref: (ref.branch != "main", ref.branch))

    def _rank(self, name: str) -> int:
        return self._ranks.get(name, len(self._ranks))


def on_branch(face: Face, name: str, branch: str | None) -> Session:
    """Open NAME, or the branch of it that ``--branch`` names."""
    if branch is None:
        return face.session(name)
    if "@" in name:
        raise typer.BadParameter(f"{name!r} names a branch already: leave out --branch")
    return face.session(f"{name}@{branch}")


def _entries(
    face: Face, session: Session, every: bool, run: str | None, before: str | None, lines: Lines | None
) -> Iterator[LogEntry]:
    entries = _from(face, session, every, before, lines)
    if run is None:
        return entries
    wanted = runs_named((entry.chunk for entry in session.log(all=every)), run)
    return (entry for entry in entries if entry.chunk.run in wanted)


def _from(face: Face, session: Session, every: bool, before: str | None, lines: Lines | None) -> Iterator[LogEntry]:
    whole = session.log(all=every) if lines is None else lines.follow(session.log(all=True))
    if before is None:
        return whole
    last = find_chunk(face, before, session)
    if every:
        rest = dropwhile(lambda entry: entry.chunk.id != last.id, whole)
        return islice(rest, 1, None)
    return log_of(list(last.parents[:1]), face.store.backend) if last.parents else iter(())


def _log_json(
    face: Face, session: Session, entries: Iterator[LogEntry], names: RunNames, name: str, number: int | None, lines: Lines | None
) -> None:  # fmt: skip
    """One object, written as it is read."""
    first: str | None = None
    last: str | None = None
    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal first, last, count
        for entry in entries:
            first, last, count = first or entry.chunk.id, entry.chunk.id, count + 1
            yield _entry_row(entry, names) | ({} if lines is None else {"branch": lines.now or None})

    def hints() -> dict[str, Any]:
        if first is None:
            return {"next_actions": face.next(f"log {quoted(name)}")}
        more = (
            [f"log {quoted(name)} -n {number} --before {cast(str, last)[:12]}"] if number is not None and count == number else []
        )
        return {"next_actions": face.next(f"show {first[:12]}", f"graph {quoted(session.session)}", *more)}

    face.json_rows({"session": session.name, "head": session.head}, "chunks", rows(), hints)


def _entry_row(entry: LogEntry, names: RunNames) -> dict[str, Any]:
    chunk = entry.chunk
    return {
        "id": chunk.id, "kind": chunk.kind, "at": format_time(chunk.at), "number": chunk.position, "run": chunk.run,
        "run_name": names.of(chunk), "framework": framework(chunk), "parents": list(chunk.parents), "refs": list(entry.refs),
        "size": chunk.size, "erased": chunk.body_bytes is None, "summary": summary(chunk), "body": _body(chunk),
    }  # fmt: skip


def _body(chunk: Chunk) -> Any:
    """The body's values for scripts; None where it was erased or cannot be read (``summary`` tells which)."""
    try:
        return None if chunk.body_bytes is None else jsonable(chunk.values)
    except RathError:
        return None


def _print_log(
    face: Face, entries: Iterator[LogEntry], names: RunNames, session: str, oneline: bool, lines: Lines | None
) -> None:
    day = ""
    roomy = face.out.width >= ROOMY
    for entry in entries:
        chunk = entry.chunk
        kind = style_of(chunk)
        text = Text(no_wrap=True)
        text.append(chunk.id[:8], "id")
        text.append(f" {chunk.position:>4}", "dim")
        if not oneline:
            moment = datetime.fromtimestamp(chunk.at // 1_000_000, UTC)
            if not face.out.is_terminal:
                text.append(f"  {moment:%Y-%m-%d %H:%M:%S}", "time")
            else:
                if f"{moment:%Y-%m-%d}" != day:
                    day = f"{moment:%Y-%m-%d}"
                    face.line((f"── {moment:%A} {day} UTC", "head"))
                text.append(f"  {moment:%H:%M:%S}", "time")
        text.append(f"  {set_cell_size(inert(chunk.kind), 11)}", kind)
        if not oneline:
            width = 16 if roomy else 10
            text.append(f"  {set_cell_size(one_line(names.of(chunk) or '', width), width)}", "run")
        if lines is not None and lines.many:
            text.append(f"  {set_cell_size(one_line(lines.now, 12), 12)}", "ref")
        text.append("  ")
        for ref in entry.refs:
            text.append(f"[{label(ref, session)}] ", "ref")
        text.append(summary(chunk), _summary_style(chunk))
        face.print_line(text)


def _summary_style(chunk: Chunk) -> str:
    return "bad" if chunk.kind in ("error", "gap") else "dim" if chunk.kind in ("checkpoint", "task", "span", "run") else ""
