"""Sign a packet that stands already: one more file beside it, or in its archive. Nothing that was signed before changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from rath_bridge.errors import PacketError, PacketExistsError
from rath_bridge.evidence import layout
from rath_bridge.evidence.aside import beside, held, put
from rath_bridge.evidence.reading import open_files
from rath_bridge.evidence.signing import KeyFile, Signature, load_signer, sign, signer_name
from rath_bridge.evidence.verify import verify_packet
from rath_bridge.evidence.writing import entry_info


def sign_packet(path: str | os.PathLike[str], keys: Sequence[KeyFile | Any]) -> tuple[Signature, ...]:
    """Add signatures to a packet; who has signed it already is passed over.

    Args:
        path: Directory or archive.
        keys: Files of private Ed25519 keys, or keys from `load_signer`.

    Returns:
        The new signatures.

    Raises:
        PacketError: The packet does not hold, so nothing was signed; or it has no room for more signatures; or somebody signs
            it at the same moment.
        KeyFileError: A file holds no key to sign with.
    """
    place = Path(path)
    signers = [load_signer(key) if isinstance(key, str | os.PathLike) else key for key in keys]  # pyright: ignore[reportUnknownArgumentType]
    with held(place) as still:
        return _sign(place, signers, still)


def _sign(place: Path, signers: Sequence[Any], still: Callable[[], bool]) -> tuple[Signature, ...]:
    report = verify_packet(place)
    if report.findings:
        first = report.findings[0]
        raise PacketError(
            f"{place.name} has {len(report.findings)} fault(s), first {first.object}: {first.problem}; it was not signed. "
            f"See them all with: rath-bridge verify {place.name}"
        )
    known = {one.key for one in report.signatures}
    fresh = {name: key for key in signers if (name := signer_name(key)) not in known}
    taken = {one.file for one in report.signatures}
    free = [name for number in range(1, layout.MAX_SIGNATURES + 1) if (name := layout.signature_file(number)) not in taken]
    if len(free) < len(fresh):
        raise PacketError(f"a packet takes {layout.MAX_SIGNATURES} signatures, {place.name} has {len(taken)}: leave some out")
    files = open_files(place)
    try:
        with files.open(layout.SUMS) as file:
            sums = file.read()
    finally:
        files.close()
    made = {file: (name, sign(sums, key)) for file, (name, key) in zip(free, fresh.items(), strict=False)}
    if made:
        _add(place, {file: data for file, (_, data) in made.items()}, still)
    return tuple(Signature(file, name) for file, (name, _) in made.items())


def _add(place: Path, files: dict[str, bytes], still: Callable[[], bool]) -> None:
    if place.is_dir():
        for name, data in files.items():
            _put(place / name, data)
        return
    with beside(place) as aside:
        shutil.copyfile(place, aside)
        shutil.copymode(place, aside)
        _check(place, still)
        with ZipFile(aside, "a", ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(entry_info(name), data, compresslevel=6)
        _check(place, still)
        aside.replace(place)


def _check(place: Path, still: Callable[[], bool]) -> None:
    if not still():
        raise PacketError(f"somebody has changed {place.name} meanwhile: it was left as it is now, sign it once more")


def _put(target: Path, data: bytes) -> None:
    """Put a file in its place when it is whole; beside the packet until then, where it is no fault of the packet's."""
    packet = target.parent.resolve()
    with beside(packet) as aside:
        with open(aside, "r+b") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            put(aside, target, replace=False)
        except PacketExistsError:
            raise PacketError(
                f"somebody has signed {packet.name} meanwhile ({target.name} is there now): sign it once more"
            ) from None
