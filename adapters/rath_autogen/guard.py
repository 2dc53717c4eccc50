"""An observer never breaks the user's run, and never fails in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from rath_autogen.natives import origin
from rath_bridge.errors import RecorderError, StoreUnavailableError
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Gap
from rath_bridge.recorder import Recorder

_log: Final = logging.getLogger("rath_bridge")
_NOTHING: Final[Mapping[Digest, bytes]] = MappingProxyType({})


@contextmanager
def guarded(recorder: Recorder, what: str) -> Generator[None]:
    """Turn a failure to record into a counted ``gap`` and a warning; raise it where the recorder is strict.

    Raises:
        RecorderError: It failed, and the recorder is strict.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an observer never breaks the user's run
        recorder.emit(_gap(recorder, what, error), origin=origin())


def later(recorder: Recorder, what: str, make: Callable[[], Draft], objects: Mapping[Digest, bytes] = _NOTHING) -> bool:
    """Let the recorder's writer build a chunk, off the run's thread; a failure is a counted ``gap``, as in `guarded`.

    Args:
        recorder: Where to.
        what: What it is, for the reason.
        make: Builds the chunk from what cannot change any more.
        objects: What later chunks rely on: kept with the gap, too.

    Returns:
        False where the spool is full: nothing was kept.
    """

    def made() -> Draft:
        try:
            return make()
        except StoreUnavailableError:  # it is built again when the store is back
            raise
        except Exception as error:  # noqa: BLE001 - an observer never breaks the user's run
            return draft(_gap(recorder, what, error), origin=origin(), objects=objects)

    return recorder.defer(made)


def _gap(recorder: Recorder, what: str, error: Exception) -> Gap:
    problem = f"cannot record {what} of AutoGen ({type(error).__name__}: {error})"
    if recorder.strict:
        raise RecorderError(problem) from error
    _log.warning("rath_bridge: %s", problem)
    return Gap(count=1, reason=problem.encode("utf-8", "replace").decode()[:400])
