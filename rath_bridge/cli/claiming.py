"""``claim add`` and ``claim check``: what is said about a session, and how much of it holds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import AsJson, Face, MissingStoreError, NameArgument, quoted, table, verb
from rath_bridge.cli.naming import find_chunk
from rath_bridge.cli.replaying import replay_environment
from rath_bridge.evidence import Claim, ClaimVerdict, claim_draft, read_claims, replay_draft, verify_packet
from rath_bridge.evidence.claims import BASES, STATUSES
from rath_bridge.evidence.judging import check_session
from rath_bridge.evidence.layout import MANIFEST
from rath_bridge.evidence.replayed import as_replayed
from rath_bridge.session import Session
from rath_bridge.verbs.inert import inert, one_line

if TYPE_CHECKING:
    from rath_bridge.replay import ReplayReport

STYLES: Final = {"supported": "good", "partial": "warn", "conditional": "warn", "pending": "dim", "positioning": "dim"}
LOWERED: Final = 1

Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- PROGRAM...]", help="What to replay: python my_script.py ...", show_default=False),
]
Ledger = Annotated[
    Path | None, typer.Option("--claims", metavar="FILE", help="A ledger (YAML or JSON) to take in.", show_default=False)
]


def add(
    face: Face,
    name: NameArgument,
    claim_id: Annotated[
        str, typer.Argument(metavar="ID", help="Short name; an earlier claim of it is replaced.", show_default=False)
    ],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What is claimed.", show_default=False)],
    status: Annotated[str, typer.Option("--status", metavar="STATUS", help=f"One of {', '.join(STATUSES)}.")] = "pending",
    basis: Annotated[str, typer.Option("--basis", metavar="BASIS", help=f"What it rests on: {', '.join(BASES)}.")] = "record",
    evidence: Annotated[
        list[str] | None,
        typer.Option("--evidence", metavar="CHUNK", help="A chunk that supports it; several are fine.", show_default=False),
    ] = None,
    quote: Annotated[
        list[str] | None,
        typer.Option("--quote", metavar="WORDS", help="Words that must stand in the evidence.", show_default=False),
    ] = None,
    count: Annotated[
        list[str] | None,
        typer.Option(
            "--count", metavar="KIND=N", help="How many chunks there must be: gap=0, tool_call:refund=1.", show_default=False
        ),
    ] = None,
    condition: Annotated[
        str | None, typer.Option("--if", metavar="CONDITION", help="Precondition of a conditional claim.", show_default=False)
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="LINE", help="What reproduces it.", show_default=False)
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="WHO", help="Who says so.", show_default=False)] = None,
    program: Program = None,
    as_json: AsJson = False,
) -> int:
    """Record a claim in a session, as a note in its hash chain.

    With a program, the session is replayed first; that it was, and how it came out, is recorded as evidence of the claim.
    Status 1: it does not hold as it is made.
    """
    session = face.session(name)
    points = tuple(find_chunk(face, one, session).id for one in evidence or ())
    if program:
        again = f"rath-bridge replay {quoted(session.name)} -- {shlex.join(program)}"
        report = _replayed(face, session, program, quiet=as_json)
        session = session.append(replay_draft(report, command=again, by=by))
        points, basis, command = (*points, session.head), "replay", command or again
    claim = Claim(
        id=claim_id, sentence=sentence, status=status, basis=basis, quotes=tuple(quote or ()), counts=_counts(count or ()) or None,
        evidence=points, precondition=condition, command=command, by=by,
    )  # fmt: skip
    session = session.append(claim_draft(claim))
    verdicts = [one for one in check_session(session) if one.claim.id == claim.id]
    if as_json:
        hints = face.next(f"claim check {quoted(name)}", f"packet {quoted(name)} -o packet.zip")
        face.json(
            {"name": session.name, "head": session.head, "claims": [one.to_json() for one in verdicts], "next_actions": hints}
        )
    else:
        print_claims(face, verdicts)
    return 0 if all(one.holds for one in verdicts) else LOWERED


def check(
    face: Face,
    source: Annotated[str, typer.Argument(metavar="NAME|PACKET", help="Session, or a packet's file.", show_default=False)],
    claims: Ledger = None,
    program: Program = None,
    as_json: AsJson = False,
) -> int:
    """Look at every claim again; what does not hold is lowered. No command of a packet or a ledger is run.

    With a program, the session is replayed, and claims that rest on a replay hold only where it comes out equal.
    Status 1: a claim was lowered. Status 3: the packet does not hold.
    """
    faults = 0
    if not _is_packet(face, source):
        session = face.session(source)
        replay = _replayed(face, session, program, quiet=as_json) if program else None
        ledger = () if claims is None else read_claims(claims)
        verdicts: Sequence[ClaimVerdict] = check_session(session, ledger, replay=replay)
    elif program:
        raise typer.BadParameter("a packet cannot be replayed where it lies: rath-bridge import it, and check the session")
    else:
        report = verify_packet(source)
        verdicts, faults = report.claims, len(report.findings)
    if as_json:
        face.json({"source": source, "claims": [one.to_json() for one in verdicts], "findings": faults, "next_actions": []})
    else:
        print_claims(face, verdicts)
        lowered = sum(not one.holds for one in verdicts)
        words = (
            f"{lowered} of {counted(len(verdicts), 'claim')} lowered" if lowered else f"{counted(len(verdicts), 'claim')} as made"
        )
        face.line((words, "bad" if lowered else "good"))
        if faults:
            face.line((f"✗ {counted(faults, 'finding')} in the packet itself: rath-bridge verify {inert(source)}", "bad"))
    return 3 if faults else 0 if all(one.holds for one in verdicts) else LOWERED


def _is_packet(face: Face, source: str) -> bool:
    """Tell a packet from a session by its name; a directory of a bare name is one where no session is called so."""
    place = Path(source)
    if "/" in source or source.lower().endswith(".zip"):
        return place.exists() or source not in face.store
    if not (place / MANIFEST).is_file():
        return False
    try:
        return source not in face.store
    except MissingStoreError:
        return True


def _replayed(face: Face, session: Session, program: Sequence[str], *, quiet: bool) -> ReplayReport:
    """Replay a session as it stood when it was replayed before, or as it stands."""
    from rath_bridge.replay.running import replay
    from rath_bridge.replay.script import script

    with ExitStack() as undo:
        replay_environment(undo, face.store.url)
        if quiet:  # what the program prints is not the answer
            undo.enter_context(face.answer_alone())
        return replay(as_replayed(session), script(list(program)))


def print_claims(face: Face, verdicts: Sequence[ClaimVerdict]) -> None:
    """Print a table of claims: what holds, what is claimed where that is more, on what it rests."""
    if not verdicts:
        return
    rows = table("CLAIM", "HOLDS", "RESTS ON", "SENTENCE")
    for one in verdicts:
        found = Text(one.found, STYLES[one.found])
        if not one.holds:
            found.append(f" (not {one.claim.status})", "bad")
        chunks = " ".join(name[:8] for name in one.claim.evidence[:4])
        rests = f"{one.claim.basis} {chunks}".rstrip()
        sentence = Text(one_line(one.claim.sentence, 400))
        for reason in one.reasons:
            sentence.append(f"\n{one_line(reason)}", "warn")
        if one.claim.precondition:
            sentence.append(f"\nif {one_line(one.claim.precondition)}", "dim")
        rows.add_row(Text(inert(one.claim.id), "name"), found, Text(rests, "id"), sentence)
    face.show(rows)


def _counts(given: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        kind, _, number = text.rpartition("=")
        if not kind or not number.isdecimal():
            raise typer.BadParameter(f"--count {inert(text)} is not of the form tool_call:refund=1")
        found[kind] = int(number)
    return found


group: Final = typer.Typer(name="claim", no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@group.callback()
def claim() -> None:
    """Say something about a session, and look at it again."""


verb(group, "add")(add)
verb(group, "check")(check)
