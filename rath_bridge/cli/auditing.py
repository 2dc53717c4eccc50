"""``audit``: the questions that auditors ask, answered with the chunks that show it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from rath_bridge.cli.face import AsJson, Face, quoted, table
from rath_bridge.evidence.audit import audit as ask
from rath_bridge.evidence.audit import audit_packet


def audit(
    face: Face,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Session, or session@branch; of a packet with one, none is needed.", show_default=False
        ),
    ] = None,
    packet_path: Annotated[
        str | None, typer.Option("--packet", metavar="PACKET", help="Ask an evidence packet, not a store.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer the audit questions, each with the chunks that show it.

    Which line gave the final answer, and what it rests on; who approved what; what failed and was tried again; what each agent spent;
    what compaction dropped; which effects are unconfirmed.
    """
    if packet_path is not None:
        answers = audit_packet(packet_path, name)
    elif name is not None:
        answers = ask(face.session(name))
    else:
        raise typer.BadParameter("give NAME, or --packet PACKET")
    if as_json:
        rows = [
            {
                "name": one.name, "question": one.question, "left": one.left,
                "rows": [{"text": row.text, "evidence": list(row.evidence)} for row in one.rows],
            }
            for one in answers
        ]  # fmt: skip
        first = next((row.evidence[0] for one in answers for row in one.rows if row.evidence), None)
        hints = (
            face.next(f"show {first}")
            if first and packet_path is None
            else [f"rath-bridge verify {quoted(packet_path or 'packet')}"]
        )
        face.json({"name": name, "answers": rows, "next_actions": hints})
        return
    for number, one in enumerate(answers):
        if number:
            face.out.print()
        face.line((one.question, "name"))
        if not one.rows:
            face.line(("nothing on record", "dim"), indent=2)
            continue
        rows = table("", "")
        rows.show_header = False
        for row in one.rows:
            rows.add_row(Text("  " + " ".join(name[:8] for name in row.evidence[:4]), "id"), Text(row.text))
        face.show(rows)
        if one.left:
            face.line((f"and {one.left} more", "dim"), indent=2)
