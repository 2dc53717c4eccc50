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
        self._waiting: dict[bytes, bytes] = {}
        """Items that no chunk has brought to the store yet, by digest."""
        self._last: list[tuple[Any, Any, tuple[Any, ...] | None]] = []
        """Messages of the last call: object, content, and the texts in a list of calls or results."""
        self._names: list[bytes] = []
        """Digest of each of them."""
        self._known: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}

    def grow(self, messages: Sequence[Any]) -> tuple[Tree, dict[Digest, bytes]]:
        """Return the messages of a call as a tree, with the nodes and items that are not written yet.

        Args:
            messages: ``LLMMessage`` objects; secrets are taken out before anything is hashed.
        """
        same = self._same(messages)
        fresh = [self._item(message) for message in messages[same:]]
        self._names[same:] = [name for name, _ in fresh]
        self._last[same:] = [(message, message.content, _texts(message.content)) for message in messages[same:]]
        self._waiting |= {name: data for name, data in fresh if name not in self._written}
        tree, nodes = list_tree(list(self._names), self._tree)
        return tree, nodes | {name.hex(): data for name, data in self._waiting.items()}

    def written(self, tree: Tree) -> None:
        """The tree is queued for the store: the next one may share its nodes and items."""
        self._tree = tree
        self._written.update(self._waiting)
        self._waiting.clear()

    def _same(self, messages: Sequence[Any]) -> int:
        """How many messages at the front are those of the last call, unchanged: the same objects with the same texts in them."""
        count = 0
        for message, (held, content, texts) in zip(messages, self._last, strict=False):
            if message is not held or message.content is not content:
                break
            if type(content) is not str and (texts is None or _texts(content) != texts):
                break
            count += 1
        return count

    def _item(self, message: Any) -> tuple[bytes, bytes]:
        """Digest and bytes of a message; remembered by its values, never by the object, which its owner may change."""
        content = message.content
        if not isinstance(content, str):
            content = _texts(content)
            if content is None:
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


def _texts(content: Any) -> tuple[Any, ...] | None:
    """The values in a list of calls or results, which their owner may change in place; None where there is anything else (an image)."""
    found: list[Any] = []
    for item in cast("Sequence[Any]", content) if isinstance(content, list) else ():
        if isinstance(item, FunctionCall):
            found.append((item.id, item.arguments, item.name))
        elif isinstance(item, FunctionExecutionResult):
            found.append((item.content, item.name, item.call_id, item.is_error))
        else:
            return None
    return tuple(found)
