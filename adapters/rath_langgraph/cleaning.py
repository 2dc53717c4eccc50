"""Secrets in what a graph loads again: kept as given, unless ``redact_state=True`` (of the saver, or of the ambient recorder)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from rath_bridge.errors import EncodeError
from rath_bridge.recorder import current_recorder
from rath_bridge.redaction import DEFAULT, Redactor
from rath_bridge.session import Store
from rath_langgraph.observed import cleaned


class StateCleaner:
    """Takes known secrets out of values before they are encoded, and refuses bytes in which one is left."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, value: object) -> object:
        """Return the value with its texts redacted; the same object where there was nothing to redact."""
        if isinstance(value, BaseMessage):
            return cleaned(value, self._redactor)
        if isinstance(value, BaseModel):
            news = {name: self(item) for name, item in value.__dict__.items()}
            changed = {name: new for name, new in news.items() if new is not value.__dict__[name]}
            return value.model_copy(update=changed) if changed else value
        kind: type[Any] = type(value)
        if kind is dict:
            pairs = [(key, self(key), item, self(item)) for key, item in cast("dict[Any, Any]", value).items()]
            if all(key is new_key and item is new for key, new_key, item, new in pairs):
                return value
            return {new_key: new for _, new_key, _, new in pairs}
        if kind in (list, tuple, set, frozenset):
            items = [(item, self(item)) for item in cast("Iterable[object]", value)]
            return value if all(item is new for item, new in items) else cast(object, kind(new for _, new in items))
        return self._redactor.apply(value)

    def check(self, data: bytes, value: object) -> None:
        """See that no secret is left.

        Raises:
            EncodeError: One is, in something that cannot be taken apart.
        """
        if self._redactor.data(data) is not data:
            raise EncodeError(
                "", f"a known secret in a {type(value).__qualname__}", "take it out of the state, or redact_state=False"
            )


def state_cleaner(store: Store, always: bool) -> StateCleaner | None:
    """What cleans the state here: asked for by the saver, or by the ambient recorder of its store."""
    recorder = current_recorder()
    if recorder is not None and recorder.store == store and recorder.redact_state:
        always = True
    if not always:
        return None
    redactor = DEFAULT if recorder is None else recorder.redactor
    return None if redactor is None else StateCleaner(redactor)
