"""The chunks of a packet as they lie there, envelope and body side by side, without a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import orjson

from rath_bridge.errors import MissingObjectError
from rath_bridge.evidence import layout
from rath_bridge.evidence.reading import BUFFER, PacketFiles, read_lines
from rath_bridge.model.chunk import Chunk, parse_time
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import dumps


def packet_chunks(files: PacketFiles, *, bodies: bool = True) -> Iterator[Chunk]:
    """Yield every chunk in the packet's order; bodies stand in the order of their envelopes, erased ones are absent.

    For packets whose integrity holds, or nearly: a body that is out of order counts as absent, and envelopes are not checked again.

    Args:
        files: The packet.
        bodies: False reads envelopes only.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: A line is no envelope.
    """
    load = blobs(files)
    positions: dict[Digest, int] = {}
    with files.open(layout.CHUNKS) as envelopes, files.open(layout.BODIES) as file:
        waiting = _lines(file) if bodies else iter(())
        body = next(waiting, None)
        name = None if body is None else digest(body)
        for line in _lines(envelopes):
            fields: dict[str, Any] = orjson.loads(line)
            parents: tuple[Digest, ...] = tuple(fields.get("parents", ()))
            position = positions.get(parents[0], -1) + 1 if parents else 0
            there = body is not None and name == fields["body"]
            chunk = Chunk(
                id=digest(line), kind=fields["kind"], parents=parents, at=parse_time(fields["at"]), run=fields.get("run"),
                origin=dumps(fields["origin"]).decode() if "origin" in fields else None, span=None, size=fields["size"],
                body_bytes=body if there else None, position=position, generation=position, raw=line,
                erased_digest=None if there else fields["body"], load=load,
            )  # fmt: skip
            positions[chunk.id] = position
            if there:
                body = next(waiting, None)
                name = None if body is None else digest(body)
            yield chunk


def blobs(files: PacketFiles) -> Loader:
    """Return a function that reads blobs of the packet by digest; for `Chunk.load`."""
    return Loader(files)


class Loader:
    """Reads blobs of a packet; what does not hash to its name is not there."""

    def __init__(self, files: PacketFiles) -> None:
        self._files = files

    def __call__(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        """Read some.

        Raises:
            MissingObjectError: One is not there, or too large to be read whole.
        """
        found: dict[Digest, bytes] = {}
        for name in names:
            file = f"blobs/{name}"
            if not layout.OBJECT.match(file) or self._files.sizes.get(file, layout.MAX_LINE + 1) > layout.MAX_LINE:
                raise MissingObjectError(name, "in the packet")
            with self._files.open(file) as source:
                data = b"".join(iter(lambda: source.read(BUFFER), b""))
            if digest(data) != name:
                raise MissingObjectError(name, "in the packet")
            found[name] = data
        return found


def _lines(file: BinaryIO) -> Iterator[bytes]:
    for _, line in read_lines(file, lambda _: None, layout.MAX_LINE):
        if line is not None:
            yield line.removesuffix(b"\n")
