"""``redact`` and ``prune``: content that has to go, and the record that it went."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from getpass import getuser
from typing import Annotated, Final, cast

import typer
from rich.text import Text

from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import AsJson, Face, table
from rath_bridge.cli.naming import find_chunk
from rath_bridge.errors import MissingObjectError, RathError
from rath_bridge.maintenance import Needed, Redacted, Use, Uses, find_text
from rath_bridge.maintenance import prune as prune_store
from rath_bridge.maintenance import redact as redact_store
from rath_bridge.model.chunk import format_time
from rath_bridge.model.digests import is_digest
from rath_bridge.plugins import adapters
from rath_bridge.verbs.inert import inert, one_line

_KEEP: Final = re.compile(r"(\d{1,6})([dhwmy])\Z")
_UNITS: Final = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}
_MOST: Final = timedelta(days=730_000)
_SHOWN: Final = 100
"""Rows that a listing prints; ``--json`` has all."""
_FEW: Final = 10
"""Rows of what says the same elsewhere."""

By = Annotated[str | None, typer.Option("--by", metavar="WHO", help="Who asks for it; you, when absent.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would go, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def redact(
    face: Face,
    chunks: Annotated[
        list[str] | None, typer.Argument(metavar="[CHUNK...]", help="A digest, or NAME:N; several are fine.", show_default=False)
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="For the record; do not repeat the content.", show_default=False)
    ] = "",
    by: By = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="WORDS", help="Whatever says this, in the whole store.", show_default=False),
    ] = None,
    objects: Annotated[
        list[str] | None,
        typer.Option("--object", metavar="DIGEST", help="A text, record or item, whoever stands on it.", show_default=False),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Let frameworks not find what cannot be read any more.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Erase content wherever it stands, and leave a chunk that tells why and by whom.

    Bodies, nonces, and the texts, native records and items that nothing else stands on, in every session; then the store's files are
    written anew, so that the bytes are gone. Every chain still verifies. What else says the same words (prompts, states, quotes) stays
    and is listed: --text takes it. Status 1: an object that was named is not in the store.
    """
    for words in text or ():
        if not words:
            raise typer.BadParameter("--text is empty: give the words to erase")
        if words in reason or words in (by or ""):
            raise typer.BadParameter(
                "--reason and --by stay on record and must not say what --text erases: put it in other words"
            )
    named = {find_chunk(face, name).id for name in chunks or ()}
    wanted = set(named)
    items = {_object(name) for name in objects or ()}
    absent = sorted(name for name in items if not _is_there(face, name))
    items.difference_update(absent)
    for words in text or ():
        hits = find_text(face.store.backend, words)
        wanted.update(hits.chunks)
        items.update(hits.objects)
    if not wanted and not objects and not text:
        raise typer.BadParameter("name chunks, or give --text or --object")
    if not reason.strip() and not dry_run:
        raise typer.BadParameter("--reason is needed: it stays on record in place of the content")
    who = by or getuser()
    told = redact_store(face.store, wanted, objects=items, reason=reason, by=who, look_around=named, dry_run=True)
    if not as_json:
        _print_uses(face, told.uses)
        if dry_run or not yes:
            face.line(_what(told, "to erase"))
        _print_echoes(face, told, dry_run=True)
        _print_blocked(face, told, forget=forget, done=False)
    if not dry_run:
        if (
            told.erasure.chunks or told.erasure.objects
        ):  # else the files are written anew: an earlier time may have been cut short
            _sure(face, yes)
        told = redact_store(
            face.store, wanted, objects=items, reason=reason, by=who, forget=forget, look_around=named if told.echoes else ()
        )
    if as_json:
        face.json({**_json(face, told, dry_run), "absent": absent})
    elif dry_run:
        face.line(("nothing was changed", "dim"))
    else:
        face.line(_what(told, "erased"))
        _print_notices(face, told.notices)
        _print_echoes(face, told, dry_run=False)
        _print_blocked(face, told, forget=forget, done=True)
    for name in absent:
        problem = f"no such object in the store: {name}. It is erased already, or it never was here"
        face.err.print(f"rath-bridge: {problem}", style="bad", soft_wrap=True)
    return 1 if absent else 0


def prune(
    face: Face,
    keep: Annotated[str, typer.Option("--keep", metavar="TIME", help="180d, 26w, 12h: what is older goes.", show_default=False)],
    reason: Annotated[str | None, typer.Option("--reason", metavar="WHY", help="For the record.", show_default=False)] = None,
    by: By = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase what is older than a time, and leave the boundary on record.

    Envelopes stay, and the frame: where sessions begin, runs still at work, placements, what newer checkpoints stand on.
    """
    match = _KEEP.match(keep)
    if match is None:
        raise typer.BadParameter(f"--keep {inert(keep)} is not of the form 180d (h, d, w, m or y)")
    time = int(match[1]) * _UNITS[match[2]]
    needed = [cast(Needed, one) for adapter in adapters().values() if callable(one := getattr(adapter, "needed", None))]
    if time > _MOST:
        raise typer.BadParameter(f"--keep {inert(keep)} reaches back before the year 1: give {_MOST.days}d or less")
    told = prune_store(face.store, time, by=by or getuser(), needed=needed, dry_run=True)
    before = format_time(told.before)
    if not as_json:
        rows = table("SESSION", "CHUNKS")
        for name, count in told.sessions.items():
            rows.add_row(Text(inert(name), "ref"), str(count))
        if told.sessions:
            face.show(rows)
        what = f"{counted(len(told.erasure.chunks), 'chunk')}, {counted(len(told.erasure.objects), 'object')}"
        face.line(f"older than {before}: {what}{'' if dry_run or not yes else ' erased'}")
    if not dry_run:
        if told.sessions:
            _sure(face, yes)
        told = prune_store(face.store, time, reason=reason, by=by or getuser(), needed=needed)
    if as_json:
        face.json({
            "before": before, "sessions": dict(told.sessions), "chunks": len(told.erasure.chunks), "objects": len(told.erasure.objects),
            "entries": told.entries, "notices": dict(told.notices), "dry_run": dry_run, "next_actions": face.next("fsck"),
        })  # fmt: skip
    elif dry_run:
        face.line(("nothing was changed", "dim"))
    else:
        _print_notices(face, told.notices)


def _object(name: str) -> str:
    if not is_digest(name.lower()):
        raise typer.BadParameter(f"--object {inert(name)} is not a digest: give all 64 hexadecimal digits")
    return name.lower()


def _is_there(face: Face, name: str) -> bool:
    try:
        face.store.backend.objects([name])
    except MissingObjectError:
        return False
    except RathError:  # erased or damaged: there is something
        return True
    return True


def _sure(face: Face, yes: bool) -> None:
    if yes:
        return
    if not face.err.is_terminal:
        raise typer.BadParameter("it cannot be undone: pass --yes, or look first with --dry-run")
    typer.confirm("It cannot be undone. Erase?", abort=True, err=True)


def _what(told: Redacted, verb: str) -> str:
    done = told.erasure
    many = len(done.shared) != 1
    stay = "stay, other chunks stand on them" if many else "stays, other chunks stand on it"
    kept = f"; {counted(len(done.shared), 'object')} {stay}" if done.shared else ""
    named = f"; {len(done.named)} of them in trees of chunks that stay" if done.named else ""
    return f"{counted(len(done.chunks), 'chunk')} and {counted(len(done.objects), 'object')} {verb}{named}{kept}"


def _print_echoes(face: Face, told: Redacted, *, dry_run: bool) -> None:
    """What else says the same: where before the question, how many once it is done."""
    if not told.echoes:
        return
    chunks, sessions = (len({getattr(one, name) for one in told.echoes}) for name in ("chunk", "session"))
    where = f"{counted(chunks, 'other chunk')} in {counted(sessions, 'session')}"
    say = f"say{'s' if chunks == 1 else ''} the same words and stay{'s' if chunks == 1 else ''}"
    if dry_run:
        face.line((f"{where} {say}:", "warn"))
        _print_places(face, told.echoes[:_FEW])
        if len(told.echoes) > _FEW:
            face.line((f"… and {len(told.echoes) - _FEW} more: --json lists all", "dim"))
        face.line("rath-bridge redact --text WORDS takes whatever says WORDS, these too")
    else:
        face.line((f"{where} {say}: rath-bridge redact --text WORDS takes whatever says WORDS", "warn"))


def _print_blocked(face: Face, told: Redacted, *, forget: bool, done: bool) -> None:
    """Which threads their framework will not load any more, and what helps."""
    if not told.blocked:
        return
    threads = list(dict.fromkeys((key.framework, key.native_id) for key, _ in told.blocked))
    names = ", ".join(f"{framework} {one_line(name, 60)}" for framework, name in threads[:_FEW])
    more = f" and {len(threads) - _FEW} more" if len(threads) > _FEW else ""
    one = len(threads) == 1
    if forget:
        face.line(f"{'this thread goes' if one else 'these threads go'} on from the newest state that can be read: {names}{more}")
        return
    when = "cannot be loaded any more" if done else "could not be loaded any more"
    face.line((f"{'this thread' if one else 'these threads'} {when}: {names}{more}", "warn"))
    say = "lets go of those states: the framework goes on from the newest that can be read"
    if not done:
        face.line(f"--forget {say}")
    elif told.erasure.named:
        items = " ".join(f"--object {name}" for name in told.erasure.named[:_FEW])
        rest = f" (and the other {len(told.erasure.named) - _FEW} objects)" if len(told.erasure.named) > _FEW else ""
        face.line(f"rath-bridge redact {items} --forget --reason WHY{rest} {say}")


def _print_uses(face: Face, uses: Uses) -> None:
    _print_places(face, uses.places[:_SHOWN])
    if len(uses.places) > _SHOWN:
        face.line((f"… and {len(uses.places) - _SHOWN} more: --json lists all", "dim"))
    for key, name in uses.entries[:_SHOWN]:
        words = " ".join(one_line(part, 60) for part in (key.framework, key.native_id, key.namespace, key.key, key.sub) if part)
        face.line(("index  ", "dim"), words, ("  leads to ", "dim"), (name[:12], "id"))


def _print_places(face: Face, places: Sequence[Use]) -> None:
    rows = table("SESSION", "AT", "CHUNK", "KIND", "")
    for place in places:
        why = f"stands on {', '.join(one[:8] for one in place.objects[:4])}" if place.objects else ""
        rows.add_row(
            Text(inert(place.ref), "ref"), str(place.position), Text(place.chunk[:12], "id"), place.kind, Text(why, "dim")
        )
    if places:
        face.show(rows)


def _print_notices(face: Face, notices: Mapping[str, str]) -> None:
    for name, chunk in notices.items():
        face.line((inert(name), "ref"), ("  told in ", "dim"), (chunk[:12], "id"))


def _json(face: Face, told: Redacted, dry_run: bool) -> dict[str, object]:
    entries = [
        {
            "framework": key.framework, "native_id": key.native_id, "namespace": key.namespace, "key": key.key, "sub": key.sub,
            "chunk": name,
        }
        for key, name in told.uses.entries
    ]  # fmt: skip
    hints = ["fsck", *(["redact --text WORDS --dry-run"] if told.echoes else [])]
    return {
        "uses": _rows(told.uses.places), "entries": entries, "chunks": list(told.erasure.chunks), "objects": list(told.erasure.objects),
        "shared": list(told.erasure.shared), "named": list(told.erasure.named), "notices": dict(told.notices),
        "blocked": [{"framework": key.framework, "native_id": key.native_id, "chunk": name} for key, name in told.blocked],
        "forgotten": told.forgotten, "echoes": _rows(told.echoes), "dry_run": dry_run, "next_actions": face.next(*hints),
    }  # fmt: skip


def _rows(places: Sequence[Use]) -> list[dict[str, object]]:
    return [
        {
            "session": one.session, "ref": one.ref, "position": one.position, "chunk": one.chunk, "kind": one.kind,
            "objects": list(one.objects),
        }
        for one in places
    ]  # fmt: skip
