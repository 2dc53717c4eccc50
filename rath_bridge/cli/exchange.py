"""``import`` and ``export``: sessions from other tools' files, and back."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import (
    AsJson,
    Face,
    MissingStoreError,
    NameArgument,
    Telling,
    quoted,
    sqlite_path,
    table,
    without_password,
)
from rath_bridge.errors import MissingObjectError, RathError, UnsupportedError
from rath_bridge.evidence.aside import beside
from rath_bridge.handover import encode
from rath_bridge.interchange import format_named
from rath_bridge.interchange.erased import Standing, still_standing
from rath_bridge.interchange.formats import OURS
from rath_bridge.interchange.importing import Imported, import_document
from rath_bridge.interchange.reading import read
from rath_bridge.interchange.transfer import PacketOrigin, StoreOrigin, is_packet, is_store, transfer
from rath_bridge.plugins import adapters
from rath_bridge.session import Store, open_store
from rath_bridge.verbs.inert import inert

INTERRUPTED: Final = 130
_MOST: Final = 200
"""Names in one command."""
_READABLE: Final = (".json", ".jsonl", ".ndjson")


def import_(
    face: Face,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files, patterns, directories, evidence packets, store addresses; - reads stdin.",
            show_default=False,
        ),
    ],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FORMAT", help="Format of the files; found by their content otherwise.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Session to make, where there is one document.", show_default=False)
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--module", metavar="MODULE", help="Python module with classes that a database holds.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    as_json: AsJson = False,
) -> int:
    """Bring in other tools' files, packets, stores and databases; the same twice changes nothing.

    Each file is one transaction: what an interrupt leaves undone is done by the same command again. Files that cannot be read are named,
    and the others are imported all the same; the status is then that of the first of them. Nothing is erased here: what a packet or store
    says was erased there, and still stands here, is named with the command that takes it.
    """
    opens = _database(from_)
    if from_ is not None and opens is None:
        format_named(from_)
    _load(modules or [])
    files = _expanded(sources)
    store = face.made_store(dry_run)
    done: list[Imported] = []
    erased: list[Standing] = []
    faults: list[tuple[str, RathError | OSError]] = []
    stopped = False
    with face.progress("importing", len(files)) as progress:
        try:
            for number, file in enumerate(files, 1):
                try:
                    if opens is not None:
                        _bring(opens, file, store, name, dry_run, done, progress)
                        continue
                    done += _one(store, file, from_, name, dry_run, erased)
                except (RathError, OSError) as error:
                    faults.append((file, error))
                progress(number)
        except KeyboardInterrupt:
            stopped = True
    _told(face, done, faults, erased, as_json=as_json, dry_run=dry_run)
    if stopped:
        face.err.print(f"rath-bridge: interrupted after {counted(len(done), 'session')}: the same command goes on from there")
        return INTERRUPTED
    return next((error.exit_status if isinstance(error, RathError) else 2 for _, error in faults), 0)


def _database(name: str | None) -> Callable[[str], AbstractContextManager[Any]] | None:
    """How an adapter opens its framework's own databases: the optional member ``open_database(address)``.

    What it gives has ``bring(store, session=, dry_run=, progress=)``, which yields session, status and how many records are new.
    """
    adapter = adapters().get(name.replace("-", "_")) if name is not None else None
    return getattr(adapter, "open_database", None)


def _load(modules: Sequence[str]) -> None:
    for module in modules:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            import_module(module)
        except ImportError as error:
            raise typer.BadParameter(f"--module {module}: {error}") from error


def _bring(
    opens: Callable[[str], AbstractContextManager[Any]], address: str, store: Store, name: str | None, dry_run: bool,
    done: list[Imported], progress: Telling,
) -> None:  # fmt: skip
    """Import a framework's database, one session after the other; what was done before an interrupt is told."""
    label = without_password(address)
    with opens(address) as database:
        for session, status, count in database.bring(store, session=name, dry_run=dry_run, progress=progress):
            done.append(Imported(label, "database", session, status, count))


def _one(
    store: Store, file: str, from_: str | None, name: str | None, dry_run: bool, erased: list[Standing]
) -> Iterator[Imported]:
    if "://" in file or (file != "-" and from_ is None and Path(file).is_file() and is_store(Path(file))):
        address = file if "://" in file else f"sqlite:///{file}"
        with open_store(_there(address)) as other:
            origin = StoreOrigin(other.backend, without_password(file))
            yield from transfer(origin, store, dry_run=dry_run)
            erased.append(still_standing(origin, store.backend))
        return
    if file != "-" and from_ is None and is_packet(Path(file)):
        packet = PacketOrigin(Path(file))
        yield from transfer(packet, store, dry_run=dry_run)
        erased.append(still_standing(packet, store.backend))
        packet.close()
        return
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    label = "stdin" if file == "-" else os.path.basename(file)
    for document in read(data, label, from_):
        yield import_document(store, document, name=name, dry_run=dry_run)


def _there(address: str) -> str:
    """A store's address, if there is a store: opening another would make one."""
    path = sqlite_path(address)
    if path is not None and not path.exists():
        raise MissingStoreError(address)
    return address


def _expanded(sources: Sequence[str]) -> list[str]:
    """Files in the order in which they were named: patterns that no shell has expanded, and what stands in directories."""
    found: list[str] = []
    for source in sources:
        if not source:
            raise typer.BadParameter("a source without a name (an empty variable?): name a file, or . for all of this directory")
        path = Path(source)
        if "://" in source or (path.is_dir() and is_packet(path)):
            found.append(source)
        elif source != "-" and path.is_dir():
            found += sorted(_below(path))
        elif source != "-" and any(char in source for char in "*?[") and not path.exists():
            matches = sorted(glob(source, recursive=True))
            if not matches:
                raise typer.BadParameter(f"no file fits {source!r}: check the pattern")
            found += matches
        else:
            found.append(source)
    return list(dict.fromkeys(found))


def _below(folder: Path) -> Iterator[str]:
    """What can be read in a directory and those in it: a packet's directory as one, files by their names."""
    for root, folders, files in os.walk(folder):
        packets = [name for name in folders if is_packet(Path(root, name))]
        folders[:] = [name for name in folders if name not in packets]
        yield from (os.path.join(root, name) for name in packets)
        yield from (os.path.join(root, name) for name in files if name.endswith(_READABLE) and Path(root, name).is_file())


def _told(
    face: Face, done: Sequence[Imported], faults: Sequence[tuple[str, RathError | OSError]], erased: Sequence[Standing], *,
    as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    chunks, objects = (list(dict.fromkeys(x for one in erased for x in getattr(one, what))) for what in ("chunks", "objects"))
    if as_json:
        rows = [asdict(one) for one in done]
        errors = [{"source": file, "error": _problem(error)} for file, error in faults]
        hints = [f"show {quoted(one.session)}" for one in done if one.status != "empty"][:1]
        hints += [f"{_erasing(chunks, objects)} --dry-run"] if chunks or objects else []
        still = {"chunks": chunks, "objects": objects}
        face.json(
            {"imported": rows, "failed": errors, "erased_there": still, "dry_run": dry_run, "next_actions": face.next(*hints)}
        )
        return
    listing = table("SESSION", "STATUS", "CHUNKS", "FORMAT", "SOURCE", right=("CHUNKS",))
    for one in done:
        status = one.status + (f", last line cut ({one.torn} bytes)" if one.torn else "")
        listing.add_row(
            Text(inert(one.session), "ref"), status, str(one.chunks), one.format, Text(inert(one.source), "dim")
        )  # fmt: skip
    if done:
        face.show(listing)
    for file, error in faults:
        problem = _problem(error)
        where = "" if os.path.basename(file) in problem else f"{file}: "
        face.err.print(f"rath-bridge: {inert(where + problem)}", style="bad", soft_wrap=True)
    same = sum(one.status == "unchanged" for one in done)
    new = len(done) - same - sum(one.status == "empty" for one in done)
    facts = [
        f"{counted(new, 'session')} {'would be ' if dry_run else ''}imported",
        f"{sum(one.status == 'unchanged' for one in done)} unchanged",
    ]
    face.line((", ".join([*facts, *([f"{len(faults)} failed"] if faults else [])]), "dim"))
    if chunks or objects:
        what = " and ".join(counted(len(names), word) for names, word in ((chunks, "chunk"), (objects, "object")) if names)
        face.line((f"{what} that were erased there still stand here; nothing was erased. To erase them here, too:", "warn"))
        face.out.print(f"  rath-bridge {_erasing(chunks, objects)} --reason WHY", soft_wrap=True)


def _erasing(chunks: Sequence[str], objects: Sequence[str]) -> str:
    """The command that takes what was erased elsewhere; of very many, the first: the same import names the next."""
    names = [*(name[:16] for name in chunks[:_MOST]), *(f"--object {name}" for name in objects[: max(0, _MOST - len(chunks))])]
    return f"redact {' '.join(names)}"


def _problem(error: RathError | OSError) -> str:
    return str(error) if isinstance(error, RathError) else str(error.strerror or error)


def export(
    face: Face,
    name: NameArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help=f"Format to write: {', '.join(sorted(OURS))}; or an adapter that writes files, as autogen does.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="File to write; stdout otherwise.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that stands there.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Status 1 where the format could not hold everything.")] = False,
) -> int:
    """Write a session in another tool's format; what the format cannot hold is named on stderr."""
    session = face.session(name)
    one = format_named(to)
    try:
        native, report = encode(session, one.name)
    except MissingObjectError as error:
        raise MissingObjectError(error.digest, f"{session.name} cannot be written whole") from error
    data = one.dumps(native)
    if out is None:
        face.write(data)
    else:
        _write(out, data, force=force)
    for loss, times in report.told():
        where = f"{(loss.chunk or '-')[:12]} {loss.path}"
        more = f" (and {times - 1} more like it)" if times > 1 else ""
        face.err.print(Text.assemble(("lost  ", "warn"), (inert(where), "id"), f"  {inert(loss.what)}{more}"), soft_wrap=True)
    if report.losses:
        many = "1 thing was" if len(report.losses) == 1 else f"{len(report.losses)} things were"
        face.err.print(Text(f"{many} lost; all else is there", "dim"))
    return 1 if strict and report.losses else 0


def _write(out: Path, data: bytes, *, force: bool) -> None:
    """Write a file whole or not at all; what stands there stays as it was until the new one is complete."""
    if out.exists() and not force:
        raise UnsupportedError(f"{out} is there already and was left alone: pass --force, or choose another path")
    if out.exists() and not out.is_file():  # a device or a pipe cannot be replaced; a directory is an error
        out.write_bytes(data)
        return
    where = out.resolve()
    try:
        with beside(where) as part:
            part.write_bytes(data)
            if where.exists():
                shutil.copymode(where, part)
            part.replace(where)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(out)) from None
