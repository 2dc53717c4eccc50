"""An observer never breaks the user's run, and never fails in silence."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from rath_autogen.natives import origin
from rath_bridge.errors import RecorderError
from rath_bridge.model.kinds import Gap
from rath_bridge.recorder import Recorder

_log: Final = logging.getLogger("rath_bridge")


@contextmanager
def guarded(recorder: Recorder, what: str) -> Generator[None]:
    """Turn a failure to record into a counted ``gap`` and a warning; raise it where the recorder is strict.

    Raises:
        RecorderError: It failed, and the recorder is strict.
    """
    try:
        yield
    except Exception as error:
        problem = f"cannot record {what} of AutoGen ({type(error).__name__}: {error})"
        if recorder.strict:
            raise RecorderError(problem) from error
        _log.warning("rath_bridge: %s", problem)
        recorder.emit(Gap(count=1, reason=problem[:400]), origin=origin())
