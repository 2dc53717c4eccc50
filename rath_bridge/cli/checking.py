"""``fsck``: does what is stored hold?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from rath_bridge.cli.face import AsJson, Face, quoted, table
from rath_bridge.evidence.causes import by_cause
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.session import check_name
from rath_bridge.store.protocol import Ref
from rath_bridge.verbs.fsck import Finding
from rath_bridge.verbs.fsck import fsck as check
from rath_bridge.verbs.inert import inert

CORRUPT: Final = 3
_NAMED: Final = 8
"""Branches that the last line names."""

HeadOption = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="DIGEST",
        help="A head that you know from elsewhere (64 digits): it must be in what is checked.",
        show_default=False,
    ),
]


def fsck(
    face: Face,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Session with all its branches, or one session@branch; the whole store when absent.",
            show_default=False,
        ),
    ] = None,
    head: HeadOption = None,
    as_json: AsJson = False,
) -> int:
    """Check all that is stored, and name every fault.

    Chunks, objects, refs and reflogs. The last line says which branches were checked. Status 3: there are faults.
    """
    known = known_head(head)
    refs = face.store.backend.refs() if name is None else _refs(face, name)
    heads = None if name is None else [ref.head for ref in refs]
    length = refs[0].position + 1 if len(refs) == 1 else None
    with face.progress("checking", length) as progress:
        reader = _Counted(face.store.backend, progress)
        findings = list(check(reader, heads=heads, head=known))  # type: ignore[arg-type]
    chunks = reader.count
    if as_json:
        hints = (
            face.next("ls")
            if findings
            else face.next(f"packet {quoted(refs[0].session)} -o packet.zip")
            if refs
            else face.next("ls")
        )
        checked = [{"name": ref.name, "head": ref.head} for ref in refs]
        face.json(
            {"ok": not findings, "refs": checked, "chunks": chunks, "findings": finding_rows(findings), "next_actions": hints}
        )
        return CORRUPT if findings else 0
    print_findings(face, findings)
    verdict(face, not findings, f"{_checked(face, name, refs)}, {counted(chunks, 'chunk')}", findings)
    return CORRUPT if findings else 0


def _refs(face: Face, name: str) -> list[Ref]:
    """All branches of a session, or the one that is named."""
    if "@" not in name and (found := face.store.backend.refs(check_name(name))):
        return found
    session = face.session(name)
    return [ref for ref in face.store.backend.refs(session.session) if ref.branch == session.branch]


def _checked(face: Face, name: str | None, refs: Sequence[Ref]) -> str:
    """What was checked, in words: of a branch that was named alone, also what was not."""
    if name is None:
        return f"the whole store: {counted(len({ref.session for ref in refs}), 'session')}, {counted(len(refs), 'ref')}"
    if "@" not in name:
        shown = ", ".join(inert(ref.branch) for ref in refs[:_NAMED])
        return f"{inert(name)}: {shown}" + (f" and {len(refs) - _NAMED} more" if len(refs) > _NAMED else "")
    others = len(face.store.backend.refs(refs[0].session)) - len(refs) if refs else 0
    return f"{inert(name)} alone" + (f" ({counted(others, 'other branch', 'other branches')} not checked)" if others else "")


class _Counted:
    """A reader that tells how many chunks have gone by, for the progress bar."""

    def __init__(self, reader: Any, progress: Callable[[int], None]) -> None:
        self._reader, self._progress = reader, progress
        self._seen: set[Digest] = set()

    @property
    def count(self) -> int:
        """Chunks read, each once."""
        return len(self._seen)

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        for chunk in self._reader.line(head, start, stop):
            self._seen.add(chunk.id)
            if not len(self._seen) % 256:
                self._progress(len(self._seen))
            yield chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def known_head(head: str | None) -> Digest | None:
    """Return a digest that was given by hand.

    Raises:
        BadParameter: Not 64 hexadecimal digits; a beginning would prove nothing.
    """
    if head is None:
        return None
    if not is_digest(head.lower()):
        raise typer.BadParameter(f"--head {inert(head)} is not a digest: give all 64 hexadecimal digits")
    return head.lower()


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Return findings for JSON."""
    return [{"object": found.object, "problem": found.problem, "path": found.path} for found in findings]


def print_findings(face: Face, findings: Sequence[Finding]) -> None:
    """Print a table of every finding."""
    if not findings:
        return
    rows = table("OBJECT", "WHERE", "PROBLEM")
    listed = by_cause(findings)
    causes = {found.object for found in listed if not found.because}
    for found in listed:
        name = found.object[:12] if is_digest(found.object) else found.object
        where = "" if found.path == found.object else found.path
        follows = found.because in causes
        problem = f"follows from it: {found.problem}" if follows else found.problem
        rows.add_row(
            Text(("  " if follows else "") + inert(name), "id"), Text(inert(where), "dim"), Text(inert(problem), "dim" if follows else "")
        )  # fmt: skip
    face.show(rows)
    face.out.print()


def verdict(face: Face, holds: bool, what: str, findings: Sequence[Finding]) -> None:
    """Print the last line: does it hold?"""
    if holds:
        face.line(("✓ holds", "good"), f"  {what}")
    else:
        causes = {found.object for found in findings if not found.because}
        follow = sum(found.because in causes for found in findings)
        first = len(findings) - follow
        more = (
            f", and {follow} more that follow{'s' if follow == 1 else ''} from {'it' if first == 1 else 'them'}" if follow else ""
        )
        face.line((f"✗ {counted(first, 'finding')}{more}", "bad"), f"  {what}")


def counted(number: int, what: str, many: str | None = None) -> str:
    """Return ``1 chunk``, ``12 000 chunks``; ``many`` where no s does."""
    return f"{f'{number:,}'.replace(',', ' ')} {what if number == 1 else many or f'{what}s'}"
