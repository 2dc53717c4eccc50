"""How people name chunks: by the beginning of a digest, or by session and number."""

from __future__ import annotations

import re
from typing import Final

from rath_bridge.cli.face import Face
from rath_bridge.errors import MissingChunkError, NotFoundError
from rath_bridge.model.chunk import Chunk
from rath_bridge.session import Session, resolve
from rath_bridge.verbs.inert import inert

_NUMBERED: Final = re.compile(r"(.*):(-?[0-9]+)\Z", re.DOTALL)
_HEX: Final = re.compile(r"[0-9a-fA-F]{4,64}\Z")


class MissingNumberError(NotFoundError):
    """A session has no chunk of that number.

    Attributes:
        session: Its name.
        number: What was asked for.
        length: How many chunks it has.
    """

    def __init__(self, session: str, number: int, length: int) -> None:
        self.session, self.number, self.length = session, number, length
        super().__init__(f"{session!r} has no chunk {number}: its chunks are 0 to {length - 1}, or -1 to -{length} from the end")


def find_chunk(face: Face, name: str, within: Session | None = None) -> Chunk:
    """Return the chunk that ``name`` means.

    Args:
        face: Gives the store.
        name: Four or more hexadecimal digits, ``session:3``, ``session@branch:-1``, or a session alone: its last chunk.
        within: The session that ``:3`` counts in.

    Raises:
        MissingChunkError, AmbiguousDigestError, MissingSessionError, MissingNumberError: There is none, or there are several.
    """
    numbered = _NUMBERED.match(name)
    if numbered is not None and name not in face.store:
        session = within if within is not None and not numbered[1] else face.session(numbered[1])
        return _number(session, int(numbered[2]))
    if _HEX.match(name):
        try:
            return face.store.backend.chunk(resolve(face.store.backend, name))
        except MissingChunkError:
            if name not in face.store:
                raise
    return face.store.backend.chunk(face.session(name).head)


def _number(session: Session, number: int) -> Chunk:
    try:
        return session[number]
    except IndexError:
        raise MissingNumberError(session.name, number, len(session)) from None


def label(ref: str, session: str) -> str:
    """Return how a ref is called beside its session: the branch alone for its own, the whole name for another's."""
    if ref == session:
        return "main"
    return inert(ref.removeprefix(f"{session}@"))
