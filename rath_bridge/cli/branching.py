"""``fork``, ``detach`` and ``merge``: what makes new lines of old ones."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from rath_bridge.cli.face import AsJson, Face, NameArgument, quoted
from rath_bridge.cli.naming import find_chunk
from rath_bridge.model.chunk import Draft
from rath_bridge.model.encoding import decode
from rath_bridge.model.kinds import body_of
from rath_bridge.session import Session
from rath_bridge.verbs.inert import inert
from rath_bridge.verbs.lineage import apart
from rath_bridge.verbs.merge import plan_merge
from rath_bridge.verbs.words import body_words


def fork(
    face: Face,
    name: NameArgument,
    branch: Annotated[str | None, typer.Argument(metavar="BRANCH", help="Name of the new branch.", show_default=False)] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="CHUNK",
            help="Fork here, inclusive: a digest, NAME:N or :N; the last chunk when absent.",
            show_default=False,
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="NEW", help="Fork into a session of this name.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Begin another line at a chunk. Nothing is copied."""
    if branch is None and session is None:
        raise typer.BadParameter("give the fork a BRANCH, or --session NEW")
    old = face.session(name)
    point = old.head if at is None else find_chunk(face, at, old).id
    new = old.fork(branch, at=point, session=session)
    _told(
        face,
        as_json,
        new,
        f"forked from {inert(old.name)} at {point[:12]}",
        f"graph {quoted(new.session)}",
        f"diff {quoted(name)} {quoted(new.name)}",
    )


def detach(
    face: Face,
    name: NameArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Session to make.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Copy a line under a new root.

    It has no parent in the old line; contents are shared.
    """
    old = face.session(name)
    made = old.detach(new)
    _told(face, as_json, made, f"detached from {inert(old.name)}: {len(made)} chunks", f"log {quoted(made.name)}")


class Strategy(StrEnum):
    """How a merge treats the other line."""

    summary = "summary"
    ours = "ours"
    theirs = "theirs"


def merge(
    face: Face,
    name: NameArgument,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="Session to fold in, or a branch of NAME by its name.", show_default=False)
    ],
    strategy: Annotated[
        Strategy,
        typer.Option(
            "--strategy",
            metavar="summary|ours|theirs",
            help="summary: one marked block stands for the other line; ours, theirs: that line goes on as it is.",
        ),
    ] = Strategy.summary,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be appended, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fold another line in.

    Both parents are kept, and the base stands once. Status 1: both sides changed the same thing, nothing was written.
    """
    ours = face.session(name)
    theirs = face.beside(ours, other)
    apart_states = strategy is not Strategy.theirs and _has_state_of_its_own(ours, theirs)
    if dry_run:
        plan = plan_merge(ours.head, theirs.head, face.store.backend, name=theirs.name, strategy=strategy.value)
        _planned(face, as_json, ours, theirs, [] if plan is None else list(plan.drafts))
        if apart_states and not as_json:
            face.show(_STATES)
        return
    merged = ours.merge(theirs, strategy.value)
    same = merged == ours
    what = f"holds {inert(theirs.name)} already: nothing to merge" if same else f"merged {inert(theirs.name)} ({strategy.value})"
    _told(face, as_json, merged, what, f"graph {quoted(merged.session)}", f"show {merged.head[:12]}")
    if apart_states and not as_json:
        face.show(_STATES)


_STATES: Final = (
    "The graph's state is this line's own: only its reducers can merge two states. In Python, instead of this command:"
    ' ours.merge(theirs, strategy="state", merge_state=app.merge_state), with app = rath_langgraph.wrap(graph, store)'
)


def _has_state_of_its_own(ours: Session, theirs: Session) -> bool:
    """Whether LangGraph went on with a state on the other line, beside this one's."""
    _, _, own = apart(ours.head, theirs.head, ours.store.backend)
    return any(chunk.kind == "checkpoint" and '"langgraph"' in (chunk.origin or "") for chunk in own)


def _planned(face: Face, as_json: bool, ours: Session, theirs: Session, drafts: list[Draft]) -> None:
    rows: list[dict[str, Any]] = []
    for one in drafts:
        values = decode(one.body, lambda _, objects=one.objects: objects)
        rows.append({"kind": one.kind, "size": len(one.body), "summary": body_words(body_of(one.kind, values))})
    if as_json:
        hints = face.next(f"merge {quoted(ours.name)} {quoted(theirs.name)}", f"diff {quoted(ours.name)} {quoted(theirs.name)}")
        face.json({"session": ours.name, "head": ours.head, "would_append": rows, "next_actions": hints})
    elif not rows:
        face.line((inert(ours.name), "ref"), f" holds {inert(theirs.name)} already: nothing to merge")
    else:
        face.line("Would append to ", (inert(ours.name), "ref"), ":")
        for row in rows:
            face.line((f"{row['kind']:<11}", "kind.other"), "  ", row["summary"], indent=2)


def _told(face: Face, as_json: bool, made: Session, what: str, *following: str) -> None:
    if as_json:
        fields = {"session": made.session, "branch": made.branch, "name": made.name, "head": made.head, "chunks": len(made)}
        face.json({**fields, "next_actions": face.next(*following)})
    else:
        face.line((inert(made.name), "ref"), "  ", (made.head[:12], "id"), "  ", what)
