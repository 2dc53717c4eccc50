"""The messages that a model is asked with, as a tree that grows: a call costs what is new in it, not the length of the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
        self._tree: Tree | None = None
        self._written: set[bytes] = set()
        self._known: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}

    def grow(self, messages: Sequence[Any]) -> tuple[Tree, dict[Digest, bytes]]:
        """Return the messages of a call as a tree, with the nodes and items that are not written yet.

        Args:
            messages: ``LLMMessage`` objects; secrets are taken out before anything is hashed.
        """
        items = [self._item(message) for message in messages]
        tree, nodes = list_tree([name for name, _ in items], self._tree)
        return tree, nodes | {name.hex(): data for name, data in items if name not in self._written}

    def written(self, tree: Tree) -> None:
        """The tree is queued for the store: the next one may share its nodes and items."""
        self._tree = tree
        self._written.update(tree.items)

    def _item(self, message: Any) -> tuple[bytes, bytes]:
        """Digest and bytes of a message; remembered by its values, never by the object, which its owner may change."""
        content = message.content
        if not isinstance(content, str):
            return self._encode(message)
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
