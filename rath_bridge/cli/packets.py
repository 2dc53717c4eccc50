"""``packet`` and ``verify``: evidence that leaves the store, and its check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rath_bridge.cli.checking import CORRUPT, HeadOption, counted, known_head, print_findings, verdict
from rath_bridge.cli.face import AsJson, Face, quoted, table
from rath_bridge.evidence import PacketReport, export_packet, verify_packet
from rath_bridge.verbs.inert import inert
from rath_bridge.verbs.words import size


def packet(
    face: Face,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Sessions; all their branches go in.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="OUT", help="Archive (.zip) or directory to write.", show_default=False)
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a packet that stands there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write sessions, whole, as an evidence packet."""
    sessions = [face.session(name) for name in dict.fromkeys(names)]
    with face.progress("writing") as progress:
        place = export_packet(sessions, out, overwrite=force, progress=progress)
    heads = {ref.name: ref.head for s in sessions for ref in face.store.backend.refs(s.session)}
    check = f"verify {quoted(str(place))} --head {heads[next(iter(heads))]}"
    if as_json:
        face.json({"packet": str(place), "size": _size(place), "heads": heads, "next_actions": [f"rath-bridge {check}"]})
        return
    face.line((inert(str(place)), "ref"), f"  {size(_size(place))}, {counted(len(heads), 'head')}")
    _print_heads(face, heads)
    face.line(("Keep a head apart from the packet: with it, a packet that was rebuilt whole is found too.", "dim"))


def verify(
    face: Face,
    packet_path: Annotated[str, typer.Argument(metavar="PACKET", help="Archive or directory.", show_default=False)],
    head: HeadOption = None,
    as_json: AsJson = False,
) -> int:
    """Check an evidence packet, and name every fault.

    Status 3: there are faults.
    """
    known = known_head(head)
    with face.progress("verifying") as progress:
        report = verify_packet(packet_path, head=known, progress=progress)
    if as_json:
        face.json(
            {"packet": packet_path, **report.to_json(), "next_actions": [] if known else face.next(_again(packet_path, report))}
        )
        return 0 if report.ok else CORRUPT
    facts = [counted(len(report.sessions), "session"), counted(report.chunks, "chunk"), counted(len(report.heads), "head")]
    _print_heads(face, dict(report.heads))
    for note in report.notes:
        face.show(Text.assemble(("note  ", "warn"), inert(note)))
    print_findings(face, report.findings)
    verdict(face, report.ok, ", ".join(facts), report.findings)
    return 0 if report.ok else CORRUPT


def _again(packet_path: str, report: PacketReport) -> str:
    """The same check against a known head: a packet that was rebuilt whole passes without one."""
    return f"verify {quoted(packet_path)} --head {next(iter(report.heads.values()), 'DIGEST')}"


def _print_heads(face: Face, heads: dict[str, str]) -> None:
    rows = table("HEAD", "REF")
    for name, head in heads.items():
        rows.add_row(Text(inert(head), "id"), Text(inert(name), "ref"))
    if heads:
        face.show(rows)


def _size(place: Path) -> int:
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())
