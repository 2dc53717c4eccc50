"""The messages that a model is asked with, as a tree that grows: a call costs what is new in it, not the length of the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from rath_autogen.natives import to_bytes
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.trees import Tree, list_tree
from rath_bridge.redaction import Redactor

CACHED: Final = 4096
"""Messages whose bytes are remembered at most."""


class Prompts:
    """What one client has written to one recorder."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self.told = False
        """Whether what the model can is on record."""
        self.tools: list[Any] = []
        """Schemas of the tools that were offered last, as JSON values."""
        self._tree: Tree | None = None
        self._written: set[bytes] = set()
        self._last: list[tuple[Any, str, bytes, bytes]] = []
        """Messages of the last call that are texts: a text cannot change, so the same object with the same text is not looked at again."""
        self._known: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}

    def grow(self, messages: Sequence[Any]) -> tuple[Tree, dict[Digest, bytes]]:
        """Return the messages of a call as a tree, with the nodes and items that are not written yet.

        Args:
            messages: ``LLMMessage`` objects; secrets are taken out before anything is hashed.
        """
        items = self._items(messages)
        tree, nodes = list_tree([name for name, _ in items], self._tree)
        return tree, nodes | {name.hex(): data for name, data in items if name not in self._written}

    def written(self, tree: Tree) -> None:
        """The tree is queued for the store: the next one may share its nodes and items."""
        self._tree = tree
        self._written.update(tree.items)

    def _items(self, messages: Sequence[Any]) -> list[tuple[bytes, bytes]]:
        last, found = self._last, list[tuple[bytes, bytes]]()
        count = len(last)
        for index, message in enumerate(messages):
            if index < count and (held := last[index])[0] is message and held[1] is message.content:
                found.append((held[2], held[3]))
            else:
                found.append(self._item(message))
        self._last = [
            (message, message.content if isinstance(message.content, str) else "", *item)
            for message, item in zip(messages, found, strict=True)
        ]
        return found

    def _item(self, message: Any) -> tuple[bytes, bytes]:
        """Digest and bytes of a message; remembered by its values, never by the object, which its owner may change."""
        content = message.content
        if isinstance(content, list):
            held = _values(cast("list[Any]", content))
            if held is None:
                return self._encode(message)
            content = held
        key = (message.type, content, getattr(message, "source", None), getattr(message, "thought", None))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= CACHED:
                self._known.clear()
            found = self._known[key] = self._encode(message)
        return found

    def _encode(self, message: Any) -> tuple[bytes, bytes]:
        data = to_bytes(message.model_dump(mode="json"))
        if self._redactor is not None:
            data = self._redactor.text(data.decode()).encode()
        return bytes.fromhex(digest(data)), data


def _values(content: list[Any]) -> tuple[Any, ...] | None:
    """Calls and results by their values; None where there is anything else (an image)."""
    found: list[Any] = []
    for item in content:
        if isinstance(item, FunctionCall):
            found.append((item.id, item.arguments, item.name))
        elif isinstance(item, FunctionExecutionResult):
            found.append((item.content, item.name, item.call_id, item.is_error))
        else:
            return None
    return tuple(found)
