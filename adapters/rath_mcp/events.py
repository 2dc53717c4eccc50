"""Event streams, piece by piece: what `text/event-stream` carries, as soon as it is whole (WHATWG HTML, server-sent events)."""

from __future__ import annotations


class Events:
    """Takes the pieces of a stream as they come, at a cost that follows their length."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """Of the event that is not whole yet; its line ends are LF."""
        self._carry = b""
        """A CR at the end of a piece: the LF that belongs to it may come with the next."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes; events without data are none."""
        piece = self._carry + piece
        self._carry = b"\r" if piece.endswith(b"\r") else b""
        text = piece.removesuffix(b"\r") if self._carry else piece
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        found: list[bytes] = []
        if text.startswith(b"\n") and self._parts and self._parts[-1].endswith(b"\n"):  # a blank line, cut in the middle
            found.append(self._whole(b""))
            text = text[1:]
        *events, rest = text.split(b"\n\n")
        found += [self._whole(event) for event in events]
        if rest:
            self._parts.append(rest)
        return [data for data in map(_data, found) if data.strip()]

    def rest(self) -> bytes:
        """What stands in no whole event."""
        return b"".join(self._parts) + self._carry

    def _whole(self, end: bytes) -> bytes:
        found = b"".join([*self._parts, end])
        self._parts.clear()
        return found


def _data(event: bytes) -> bytes:
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
