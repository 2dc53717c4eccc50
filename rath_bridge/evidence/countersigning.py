"""Sign a packet that stands already: one more file beside it, or in its archive. Nothing that was signed before changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from rath_bridge.errors import PacketError
from rath_bridge.evidence import layout
from rath_bridge.evidence.reading import open_files
from rath_bridge.evidence.signing import KeyFile, Signature, load_signer, sign, signer_name
from rath_bridge.evidence.verify import verify_packet
from rath_bridge.evidence.writing import entry_info
from rath_bridge.model.digests import new_id


def sign_packet(path: str | os.PathLike[str], keys: Sequence[KeyFile | Any]) -> tuple[Signature, ...]:
    """Add signatures to a packet; who has signed it already is passed over.

    Args:
        path: Directory or archive.
        keys: Files of private Ed25519 keys, or keys from `load_signer`.

    Returns:
        The new signatures.

    Raises:
        PacketError: The packet does not hold, so nothing was signed; or it has no room for more signatures.
        KeyFileError: A file holds no key to sign with.
    """
    place = Path(path)
    signers = [load_signer(key) if isinstance(key, str | os.PathLike) else key for key in keys]  # pyright: ignore[reportUnknownArgumentType]
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
        _add(place, {file: data for file, (_, data) in made.items()})
    return tuple(Signature(file, name) for file, (name, _) in made.items())


def _add(place: Path, files: dict[str, bytes]) -> None:
    if place.is_dir():
        for name, data in files.items():
            _put(place / name, data)
        return
    aside = place.with_name(f".{place.name}.{new_id(4)}.part")
    try:
        shutil.copyfile(place, aside)
        with ZipFile(aside, "a", ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(entry_info(name), data, compresslevel=6)
        aside.replace(place)
    finally:
        aside.unlink(missing_ok=True)


def _put(target: Path, data: bytes) -> None:
    """Put a file in its place when it is whole; beside the packet until then, where it is no fault of the packet's."""
    packet = target.parent.resolve()
    aside = packet.with_name(f".{packet.name}.{new_id(4)}.part")
    try:
        with open(aside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, target)
        except FileExistsError:
            raise PacketError(
                f"somebody has signed {packet.name} meanwhile ({target.name} is there now): sign it once more"
            ) from None
        except OSError:  # a file system without hard links
            aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
