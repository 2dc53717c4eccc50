"""Spans while recording: each span is written as soon as what ends it is durable."""

from __future__ import annotations

import logging
import os
from threading import Condition, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from rath_bridge import recorder as recording
from rath_bridge.otel import switches
from rath_bridge.otel.export import OtherLines, SpanWriter
from rath_bridge.otel.fold import SpanFold
from rath_bridge.otel.metrics import Instruments
from rath_bridge.session import Session

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_log: Final = logging.getLogger("rath_bridge")
_all: Final[WeakSet[LiveSpans]] = WeakSet()


class LiveSpans:
    """Writes what every recorder of this process records to a provider, on a thread of its own.

    ``with LiveSpans(tracer_provider): ...``, or keep it and `close` it at the end. Ids are those of the envelopes, so a later
    `export_spans` of the same session tells nothing new.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool | None = None,
    ) -> None:
        """Begin.

        Args:
            tracer_provider: An OpenTelemetry SDK provider; the process's own by default.
            meter_provider: For token and duration metrics; the process's own by default.
            content: As in `export_spans`.

        Raises:
            MissingExtraError: OpenTelemetry is not installed.
            UnsupportedError: The provider is not the SDK's.
        """
        self._writer, self._meters = SpanWriter(tracer_provider), Instruments(meter_provider)
        self._content = switches.content_on_spans() if content is None else content
        self._lines: dict[tuple[str, str], tuple[SpanFold, int]] = {}
        self._waiting: dict[tuple[str, str], tuple[Session, int]] = {}
        self._wake = Condition()
        self._busy = False
        self._closed = False
        self._thread: Thread | None = None
        self._stop = recording.watch(self._written)
        _all.add(self)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all that is durable has been handed to the provider; False when that took too long."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self) -> None:
        """Hand over what is durable and stop. Runs that are still going on are left to `export_spans`."""
        self._stop()
        self.flush()
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(5)

    def after_fork(self) -> None:
        """In a forked child: what waits here is the parent's to write, and its thread does not run; the next write starts another."""
        self._lines, self._waiting = {}, {}
        self._wake, self._busy, self._thread = Condition(), False, None

    def __enter__(self) -> LiveSpans:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---------------------------------------------------------------- inside

    def _written(self, session: Session, written: int) -> None:
        key = (session.store.url, session.name)
        with self._wake:
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._work, name="rath_bridge-spans", daemon=True)
                self._thread.start()
            first = self._waiting.get(key)
            self._waiting[key] = (session, session.position - written if first is None else first[1])
            self._wake.notify_all()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                waiting, self._waiting, self._busy = self._waiting, {}, True
            for key, (session, after) in waiting.items():
                try:
                    self._follow(key, session, after)
                except Exception:  # noqa: BLE001 - an observer goes on
                    _log.warning("rath_bridge: spans of %s could not be written", session.name, exc_info=True)

    def _follow(self, key: tuple[str, str], session: Session, after: int) -> None:
        """Feed what is new on a line; of a line that is met in the middle, what stood before only sets the scene."""
        fold, position = self._lines.get(key) or (SpanFold(content=self._content, linked=OtherLines(session).find), -1)
        told = max(after, position)
        for chunk in session.store.backend.line(session.head, position + 1):
            for record in fold.feed(chunk):
                if record.position > told:
                    self._writer.write(record)
                    self._meters.record(record)
        self._lines[key] = (fold, session.position)


def _after_fork() -> None:
    for one in list(_all):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
