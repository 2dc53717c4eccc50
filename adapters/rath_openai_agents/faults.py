"""Errors and times of spans, and the guard that keeps an observer's own failure out of the user's run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from rath_bridge.model.kinds import Gap
from rath_bridge.recorder import Recorder
from rath_openai_agents.decode import origin
from rath_openai_agents.items import plain

_log: Final = logging.getLogger("rath_bridge")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(text: str | None) -> int | None:
    """Read a span's ISO time as microseconds since 1970."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    except ValueError:
        return None


def in_flight(before: BaseException | None) -> BaseException | None:
    """Return the exception that is ending a span, if one is; ``before`` is what was being handled when it began.

    Plain and streamed runs attach errors to different spans (openai-agents-python issue 4070); what is being raised is the same.
    """
    error = sys.exc_info()[1]
    return None if error is before else error


def describe(error: BaseException) -> str:
    """Return type and text of an error."""
    try:
        return f"{type(error).__name__}: {error}"[:2000]
    except Exception:  # noqa: BLE001 - a user's error whose own text cannot be made
        return type(error).__name__


def error_text(error: Mapping[str, Any] | None) -> str | None:
    """Return a span's error as one text."""
    if not error:
        return None
    data = error.get("data")
    return str(error.get("message", "")) + (f": {plain(data)}" if data else "")


@contextmanager
def guard(recorder: Recorder | None, what: str, *, strict: bool = False) -> Generator[None]:
    """Keep an observer's own failure out of the user's run: logged, and a ``gap`` on record."""
    try:
        yield
    except Exception as error:
        if strict or (recorder is not None and recorder.strict):
            raise
        _log.warning("rath_bridge: %s could not be recorded: %s", what, describe(error))
        if recorder is not None:
            recorder.emit(Gap(count=1, reason=f"{what} could not be recorded: {type(error).__name__}"), run=None, origin=origin())
