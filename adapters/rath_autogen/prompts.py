"""The messages that a model is asked with, as a tree that grows: a call costs what is new in it, not the length of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, cast

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from rath_autogen.natives import to_bytes
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import encoded
from rath_bridge.model.trees import Tree, list_tree
from rath_bridge.recorder import Recorder
from rath_bridge.redaction import Redactor

CACHED: Final = 4096
"""Messages whose bytes are remembered at most."""
_OWN: Final = frozenset({SystemMessage, UserMessage, AssistantMessage, FunctionExecutionResultMessage})
"""AutoGen's own types, whose values are texts: pydantic writes them as `to_bytes` does."""
_PLAIN: Final = frozenset({FunctionCall, FunctionExecutionResult})
"""What stands in their lists and holds texts alone."""
_Held = tuple[dict[str, Any], "list[dict[str, Any]] | None"]


class Prompts:
    """What one client has written to one recorder."""

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self.told = False
        """Whether what the model can is on record."""
        self.tools: list[Any] = []
        """Schemas of the tools that were offered last, as JSON values."""
        self._tools: Any = None
        """The same as they are written."""
        self.erasures = -1
        """`Recorder.erasures` since which all that was written is taken for stored."""
        self._tree: Tree | None = None
        self._written: set[bytes] = set()
        self._waiting: dict[bytes, bytes] = {}
        """Items that no chunk has brought to the store yet, by digest."""
        self._last: list[tuple[Any, _Held | None]] = []
        """Messages of the last call, and what they held."""
        self._names: list[bytes] = []
        """Digest of each of them."""
        self._items: list[bytes] = []
        """Bytes of each of them."""
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        """A message's JSON to the digest and bytes of its item."""

    def request(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was asked for beside the messages, as it is written: the tools are encoded once for as long as they stay the same."""
        tools = asked.get("tools")
        if tools is None:
            return asked
        if tools is not self.tools:
            self.tools, self._tools = tools, encoded(tools)
        return {**asked, "tools": self._tools}

    def grow(self, messages: Sequence[Any]) -> tuple[Tree, dict[Digest, bytes]]:
        """Return the messages of a call as a tree, with the nodes and items that are not written yet.

        Args:
            messages: ``LLMMessage`` objects; secrets are taken out before anything is hashed.
        """
        same = self._same(messages)
        fresh = [self._encode(message) for message in messages[same:]]
        self._names[same:] = [name for name, _ in fresh]
        self._items[same:] = [data for _, data in fresh]
        self._last[same:] = [(message, _held(message)) for message in messages[same:]]
        self._waiting |= {name: data for name, data in fresh if name not in self._written}
        tree, nodes = list_tree(list(self._names), self._tree)
        return tree, nodes | {name.hex(): data for name, data in self._waiting.items()}

    def written(self, tree: Tree) -> None:
        """The tree is queued for the store: the next one may share its nodes and items."""
        self._tree = tree
        self._written.update(self._waiting)
        self._waiting.clear()

    def renew(self, recorder: Recorder) -> None:
        """Where something was erased, by whomever, take nothing for written."""
        if recorder.erased_since(self.erasures):
            self.told, self._tree = False, None
            for held in (self._written, self._waiting, self._last, self._names, self._items):
                held.clear()
        self.erasures = recorder.erasures

    def whole(self) -> Callable[[], dict[Digest, bytes]]:
        """What gives all nodes and items of the messages of this call, later."""
        names, items = list(self._names), list(self._items)
        return lambda: list_tree(names)[1] | {name.hex(): data for name, data in zip(names, items, strict=True)}

    def _same(self, messages: Sequence[Any]) -> int:
        """How many messages at the front are those of the last call, unchanged: the same objects with the same texts in them."""
        count = 0
        for message, (before, held) in zip(messages, self._last, strict=False):
            if message is not before or held is None or message.__dict__ != held[0]:
                break
            if held[1] is not None and [item.__dict__ for item in message.content] != held[1]:
                break
            count += 1
        return count

    def _encode(self, message: Any) -> tuple[bytes, bytes]:
        """Digest and bytes of a message; remembered by what it holds, never by the object, which its owner may change."""
        data = _json(message)
        found = self._known.get(data)
        if found is None:
            clean = data
            if self._redactor is not None and self._redactor.suspects(data):
                clean = cast(bytes, self._redactor.data(data))  # JSON in UTF-8
            if len(self._known) >= CACHED:
                self._known.clear()
            found = self._known[data] = sha256(clean).digest(), clean
        return found


def _json(message: Any) -> bytes:
    if type(message) in _OWN:
        try:
            return message.__pydantic_serializer__.to_json(message)
        except ValueError:  # half of a surrogate pair
            pass
    return to_bytes(message.model_dump(mode="json"))


def _held(message: Any) -> _Held | None:
    """What a message holds, as far as its owner may change it in place; None where there is more than texts (an image)."""
    if type(message) not in _OWN:
        return None
    content: Any = message.content
    if isinstance(content, str):
        return dict(message.__dict__), None
    if isinstance(content, list) and all(type(item) in _PLAIN for item in cast("list[Any]", content)):
        return dict(message.__dict__), [dict(item.__dict__) for item in cast("list[Any]", content)]
    return None
