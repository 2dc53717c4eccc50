"""``packet`` and ``verify``: evidence that leaves the store, and its check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from rath_bridge.cli.checking import CORRUPT, HeadOption, counted, known_head, print_findings, verdict
from rath_bridge.cli.claiming import LOWERED, print_claims
from rath_bridge.cli.face import AsJson, Face, quoted, table
from rath_bridge.errors import WITH_OVERWRITE, PacketExistsError
from rath_bridge.evidence import PacketReport, export_packet, load_signer, read_claims, sign_packet, verify_packet
from rath_bridge.evidence.signing import UNSIGNED, KeyFileError, signer_name
from rath_bridge.verbs.inert import inert
from rath_bridge.verbs.words import size

_ARCHIVES: Final = frozenset({".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tbz", ".txz", ".lz4"})


def packet(
    face: Face,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Sessions; all their branches go in.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="OUT", help="Archive (.zip) or directory to write.", show_default=False)
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a packet that stands there.")] = False,
    sign: Annotated[
        list[Path] | None,
        typer.Option(
            "--sign",
            metavar="KEY",
            help="Sign with this private Ed25519 key (OpenSSH or PEM); several are fine.",
            show_default=False,
        ),
    ] = None,
    claims: Annotated[
        Path | None,
        typer.Option(
            "--claims", metavar="FILE", help="Claims to put in beside those on record (YAML or JSON).", show_default=False
        ),
    ] = None,
    environment: Annotated[bool, typer.Option("--no-environment", help="Leave out the description of this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write sessions, whole, as an evidence packet."""
    sessions = [face.session(name) for name in dict.fromkeys(names)]
    ledger = [] if claims is None else read_claims(claims)
    keys = [signer(face, path) for path in sign or ()]
    if out.suffix.lower() in _ARCHIVES and not out.is_dir():
        raise typer.BadParameter(f"{out.name!r} is no packet's name: archives end in .zip, any other name is a directory")
    with face.progress("writing") as progress:
        try:
            place = export_packet(
                sessions, out, overwrite=force, claims=ledger, sign_with=keys, environment=not environment, progress=progress
            )
        except PacketExistsError as error:
            raise PacketExistsError(error.path, error.why.replace(WITH_OVERWRITE, "pass --force")) from None
    heads = {ref.name: ref.head for s in sessions for ref in face.store.backend.refs(s.session)}
    check = f"verify {quoted(str(place))} --head {heads[next(iter(heads))]}"
    if as_json:
        face.json({"packet": str(place), "size": _size(place), "heads": heads, "next_actions": [f"rath-bridge {check}"]})
        return
    face.line((inert(str(place)), "ref"), f"  {size(_size(place))}, {counted(len(heads), 'head')}")
    _print_heads(face, heads)
    for key in keys:
        face.line(("signed  ", "dim"), signer_name(key))
    face.line(("Keep a head apart from the packet: with it, a packet that was rebuilt whole is found too.", "dim"))


def sign(
    face: Face,
    packet_path: Annotated[Path, typer.Argument(metavar="PACKET", help="Archive or directory.", show_default=False)],
    key: Annotated[
        list[Path],
        typer.Option(
            "--key", metavar="KEY", help="A private Ed25519 key (OpenSSH or PEM); several are fine.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Sign a packet that stands already, beside those who signed it before.

    It is checked first: a packet that does not hold is not signed (status 3).
    """
    keys = [signer(face, path) for path in key]
    made = sign_packet(packet_path, keys)
    if as_json:
        rows = [{"file": one.file, "key": one.key} for one in made]
        face.json(
            {"packet": str(packet_path), "signed": rows, "next_actions": [f"rath-bridge verify {quoted(str(packet_path))}"]}
        )
        return
    for one in made:
        face.line(("signed  ", "dim"), f"{one.key}  ", (one.file, "dim"))
    if not made:
        face.line(("nothing was added: each of these keys has signed it already", "dim"))


def signer(face: Face, path: Path) -> Any:
    """Read a private key; where it is locked and somebody sits there, ask for its password."""
    try:
        return load_signer(path)
    except KeyFileError as error:
        if (
            not face.err.is_terminal
            or not isinstance(error.__cause__, TypeError | ValueError)
            or "password" not in str(error).lower()
        ):
            raise
    return load_signer(path, typer.prompt(f"Password of {inert(str(path))}", hide_input=True, err=True))


def verify(
    face: Face,
    packet_path: Annotated[str, typer.Argument(metavar="PACKET", help="Archive or directory.", show_default=False)],
    key: Annotated[
        list[Path] | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="A public key that you know from elsewhere (.pub, allowed_signers, PEM): it must have signed.",
            show_default=False,
        ),
    ] = None,
    head: HeadOption = None,
    as_json: AsJson = False,
) -> int:
    """Check an evidence packet, and name every fault.

    Three verdicts: integrity (was anything changed), coverage (what is known to be missing), claims (does what is said hold).
    Status 3: its integrity does not hold. Status 1: it holds, but a claim was lowered, or coverage.json tells other than the chunks.
    """
    known = known_head(head)
    with face.progress("verifying") as progress:
        report = verify_packet(packet_path, head=known, keys=key or (), progress=progress)
    status = _status(report)
    if as_json:
        face.json(
            {"packet": packet_path, **report.to_json(), "next_actions": [] if known else face.next(_again(packet_path, report))}
        )
        return status
    facts = [counted(len(report.sessions), "session"), counted(report.chunks, "chunk"), counted(len(report.heads), "head")]
    _print_heads(face, dict(report.heads))
    for note in report.notes:
        face.show(Text.assemble(("note  ", "warn"), inert(note)))
    for signature in report.signatures:
        face.line(("signed  ", "dim"), f"{signature.key or 'by nobody that can be read'}  ", (signature.file, "dim"))
    print_findings(face, report.findings)
    print_claims(face, report.claims)
    if report.claims:
        face.out.print()
    for name in ("coverage", "claims"):
        if report.verdicts[name] != "none":
            style = "bad" if name == "claims" and status == LOWERED else "warn" if name == "coverage" else "good"
            face.line((f"{name}  ", "dim"), (report.verdicts[name], style))
    if report.findings and all(UNSIGNED in finding.problem for finding in report.findings):
        face.line(("Nothing shows that the packet was changed: it is the key that is not one of those that signed.", "warn"))
    verdict(face, report.ok, ", ".join(facts), report.findings)
    _print_coverage(face, report)
    return status


def _status(report: PacketReport) -> int:
    if not report.ok:
        return CORRUPT
    contradicted = report.coverage is not None and report.coverage.contradictions
    return LOWERED if contradicted or not all(one.holds for one in report.claims) else 0


def _print_coverage(face: Face, report: PacketReport) -> None:
    """What the record covers, and what it does not: integrity is not completeness."""
    if report.coverage is None:
        return
    face.out.print()
    rows = table("COVERAGE", "")
    for text in report.coverage.adapters():
        rows.add_row(Text("recorded", "dim"), Text(inert(text)))
    for text in report.coverage.contradictions:
        rows.add_row(Text("wrong", "bad"), Text(inert(text)))
    for text in report.coverage.holes():
        rows.add_row(Text("hole", "warn"), Text(inert(text)))
    for name, spots in report.coverage.blind_spots.items():
        for spot in spots:
            rows.add_row(Text("blind", "dim"), Text(inert(f"{name}: {spot}")))
    for text in report.coverage.not_in_packet:
        rows.add_row(Text("not here", "dim"), Text(inert(text)))
    face.show(rows)


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
