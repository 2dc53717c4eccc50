"""Which recorder and which run the calling code works under."""

from __future__ import annotations

import sys
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rath_bridge.model.chunk import SpanContext

if TYPE_CHECKING:
    from rath_bridge.recorder import Recorder


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A run that has begun."""

    id: str
    name: str
    span: SpanContext
    parent: RunHandle | None = None
    over: bool = field(default=False, compare=False)
    """Set by `Recorder.end`: async hooks cannot always undo `enter`, and an ended run must not stay ambient."""

    @property
    def top(self) -> RunHandle:
        """The top-level run that it nests in."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found


_recorder: ContextVar[Recorder | None] = ContextVar("rath_bridge_recorder", default=None)
_run: ContextVar[RunHandle | None] = ContextVar("rath_bridge_run", default=None)


def current_recorder() -> Recorder | None:
    """Return the ambient recorder, if there is one that is not closed."""
    found = _recorder.get()
    return None if found is None or found.closed else found


def current_run() -> RunHandle | None:
    """Return the run that the calling code works in, if it is known: the innermost that has not ended."""
    found = _run.get()
    while found is not None and found.over:
        found = found.parent
    return found


def calling_span() -> SpanContext | None:
    """The span that the calling program works in, if it uses OpenTelemetry: a top-level run continues its trace."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    found = api.get_current_span().get_span_context()
    return SpanContext(f"{found.trace_id:032x}", f"{found.span_id:016x}") if found.is_valid else None


class Auto:
    """Marks "take it from the context"."""


AUTO: Final = Auto()


def enter(recorder: Recorder, run: RunHandle | None) -> tuple[Token[Recorder | None], Token[RunHandle | None]]:
    """Make a recorder and a run ambient from here on; undo it with `leave` (hooks that come in pairs need this form)."""
    return _recorder.set(recorder), _run.set(run)


def leave(tokens: tuple[Token[Recorder | None], Token[RunHandle | None]]) -> None:
    """Undo `enter`; a token of another context, or used before, is ignored (generators are closed wherever they are)."""
    for variable, token in ((_recorder, tokens[0]), (_run, tokens[1])):
        try:
            variable.reset(token)  # pyright: ignore[reportArgumentType]
        except (ValueError, RuntimeError):
            continue
