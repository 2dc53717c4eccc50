"""How many runs a record holds and a program made: said in words, where it is all that differs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run
from rath_bridge.verbs.words import counted


def runs(chunks: Iterable[Chunk], span: range, excused: Collection[Digest] = ()) -> int:
    """Count the runs that a person has started: those of a thread one by one, servers and threads not.

    Args:
        chunks: A line, oldest first.
        span: Positions to look at.
        excused: Chunks that are not counted.
    """
    threads: set[str | None] = {None}
    found = 0
    for chunk in chunks:
        if chunk.kind != "run" or chunk.body_bytes is None:
            continue
        body = cast(Run, chunk.body)
        if body.phase != "begin" or body.parent not in threads:
            continue
        if body.type == "thread":
            threads.add(chunk.run)
        elif body.type != "server" and chunk.position in span and chunk.id not in excused:
            found += 1
    return found


def in_words(held: int, made: int, *, ended: bool, left: bool) -> str | None:
    """Return what to say of a program that made other runs than are on record; None where that is not what differs.

    Args:
        held: Runs of the record.
        made: Runs of the program.
        ended: The program came to its end by itself, and all that it asked was on record.
        left: There are recorded calls that it did not ask for, or merges that it did not make.
    """
    choose = "to replay a part of the record, say after= and until= (--after, --until; docs/replay.md, One run of several)"
    if made > held:
        return f"the record holds {counted(held, 'run')}, the program made {made}"
    if ended and made < held:
        whole = "to replay all of it, give a program that makes them all"
        return f"the record holds {counted(held, 'run')}, the program made {made}: {choose}; {whole}"
    if ended and left:
        return f"the program ended, and the record goes on: {choose}"
    return None
