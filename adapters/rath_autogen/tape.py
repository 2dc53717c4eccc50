"""What a session holds for a replay: model calls by what was asked, tool calls by name and arguments, people's answers in turn."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_autogen.items import History, history
from rath_autogen.natives import from_bytes, to_bytes
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Inference
from rath_bridge.model.trees import read_list
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.divergence import Divergence, ReplayDivergenceError
from rath_bridge.session import Session

NO_CODE: Final = "No code blocks found in the thread."
"""How ``CodeExecutorAgent`` says that it ran nothing."""
SHOWN: Final = 200
"""Characters of each side that an error shows."""


@dataclass(slots=True)
class ModelCall:
    """One recorded model call."""

    chunk: Chunk
    body: Inference
    prompt: tuple[bytes, ...]
    request: str
    used: bool = False


@dataclass(slots=True)
class ToolCall:
    """One recorded tool call and its result as the agent saw it."""

    call_id: str
    name: str
    arguments: str
    content: str
    is_error: bool
    chunk: Digest
    used: bool = False


@dataclass(slots=True)
class Tape:
    """A record that is being replayed; what was served is never served again."""

    models: list[ModelCall]
    tools: list[ToolCall]
    people: dict[str, deque[str]]
    """What the people behind a name said, in order."""
    code: dict[str, deque[Mapping[str, Any]]]
    """Results of code that an agent ran, in order."""
    served: int = 0
    misses: list[Divergence] = field(default_factory=list[Divergence])
    _by_key: dict[tuple[bytes, str], list[ModelCall]] = field(default_factory=dict[Any, Any])

    @classmethod
    def of(cls, session: Session) -> Tape:
        """Read a session."""
        held = history(session)
        models = _models(session, held.chunks)
        people: dict[str, deque[str]] = {}
        code: dict[str, deque[Mapping[str, Any]]] = {}
        texts: dict[str, deque[Mapping[str, Any]]] = {}
        asked = {str(data["source"]) for data in _data(held) if data.get("type") == "UserInputRequestedEvent"}
        for data in _data(held):
            source = str(data.get("source"))
            if source in asked and data.get("type") in ("TextMessage", "HandoffMessage"):
                people.setdefault(source, deque()).append(str(data["content"]))
            elif data.get("type") == "CodeExecutionEvent":
                code.setdefault(source, deque()).append(data["result"])
            elif data.get("type") == "TextMessage":
                texts.setdefault(source, deque()).append({"exit_code": 0, "output": data["content"]})
        for source, said in texts.items():  # an agent without a model shows what its code printed as a text
            code.setdefault(source, deque(one for one in said if not one["output"].startswith(NO_CODE)))
        tape = cls(models, _tools(held), people, code)
        for call in models:
            tape._by_key.setdefault(_key(call.prompt, call.request), []).append(call)
        return tape

    @property
    def divergence(self) -> Divergence | None:
        """The first place where the run left the record."""
        return self.misses[0] if self.misses else None

    @property
    def unused(self) -> tuple[Digest, ...]:
        """Chunks of recorded calls that were not asked for."""
        return tuple(
            [call.chunk.id for call in self.models if not call.used] + [call.chunk for call in self.tools if not call.used]
        )

    def miss(self, divergence: Divergence) -> ReplayDivergenceError:
        """Take note of a divergence; the error to raise names the first."""
        self.misses.append(divergence)
        return ReplayDivergenceError(self.misses[0])

    def model(self, prompt: Sequence[Any], request: Mapping[str, Any], agent: str | None) -> ModelCall:
        """Serve the next recorded call that asked for the same, that of the same agent first.

        Raises:
            ReplayDivergenceError: There is none, or the run has diverged before.
        """
        if self.misses:
            raise ReplayDivergenceError(self.misses[0])
        items, wanted = tuple(_item(message) for message in prompt), _canonical(request)
        waiting = self._by_key.get(_key(items, wanted), [])
        call = next((one for one in waiting if one.body.agent == agent), waiting[0] if waiting else None)
        if call is None:
            raise self.miss(self._missed(items, wanted, agent))
        waiting.remove(call)
        call.used = True
        self.served += 1
        return call

    def _missed(self, items: tuple[bytes, ...], request: str, agent: str | None) -> Divergence:
        left = [call for call in self.models if not call.used]
        nearest = next((call for call in left if call.body.agent == agent), left[0] if left else None)
        what = f"model call of {agent}" if agent else "model call"
        if nearest is None:
            return Divergence(what, f"one more call, {_show(items[-1] if items else b'')}", "no call left")
        for index in range(max(len(items), len(nearest.prompt))):
            ours = items[index] if index < len(items) else b""
            theirs = nearest.prompt[index] if index < len(nearest.prompt) else b""
            if ours != theirs:
                return Divergence(f"{what}, message {index}", _show(ours), _show(theirs), nearest.chunk.id)
        return Divergence(f"{what}, request", *_difference(request, nearest.request), nearest.chunk.id)

    def tool(self, name: str, arguments: Any, call_id: str | None) -> ToolCall | None:
        """Serve a recorded tool call of the same name, arguments and id; None, and a miss, where there is none."""
        wanted = _canonical(DEFAULT.apply(arguments))
        left = [call for call in self.tools if not call.used and call.name == name]
        same = [call for call in left if call.arguments == wanted]
        call = next((one for one in same if call_id is None or one.call_id == call_id), None)
        if call is None:
            near = next(iter(same or left), None)
            expected = f"{near.arguments} (call {near.call_id})" if near else "no such call left"
            self.miss(
                Divergence(f"tool call {name}", f"{wanted} (call {call_id})"[:SHOWN], expected[:SHOWN], near and near.chunk)
            )
            return None
        call.used = True
        self.served += 1
        return call

    def said(self, name: str) -> str:
        """Serve what a person answered.

        Raises:
            ReplayDivergenceError: There is no answer left.
        """
        waiting = self.people.get(name)
        if not waiting:
            raise self.miss(Divergence(f"input of {name}", "a question", "no answer left"))
        self.served += 1
        return waiting.popleft()

    def ran(self, name: str) -> Mapping[str, Any]:
        """Serve the result of code that an agent ran.

        Raises:
            ReplayDivergenceError: There is no result left.
        """
        waiting = self.code.get(name)
        if not waiting:
            raise self.miss(Divergence(f"code run by {name}", "one more execution", "no result left"))
        self.served += 1
        return waiting.popleft()

    def schemas(self, agent: str) -> list[Any] | None:
        """The tools that an agent's model was offered; None where no call of its is on record."""
        for call in self.models:
            if call.body.agent == agent and call.body.request.get("tools"):
                return list(call.body.request["tools"])
        return None


def _data(held: History) -> list[Mapping[str, Any]]:
    return [item.data for item in held.items if item.data is not None]


def _models(session: Session, chunks: Sequence[Chunk]) -> list[ModelCall]:
    found: list[ModelCall] = []
    backend = session.store.backend
    for chunk in chunks:
        if chunk.kind != "inference" or chunk.body_bytes is None:
            continue
        body = cast(Inference, chunk.body)
        if (
            not isinstance(body.input, TreeRef)
            or body.observer != "model"
            or json.loads(chunk.origin or "{}").get("adapter") != "rath_autogen"
        ):
            continue
        names = [raw.hex() for raw in read_list(body.input, backend.objects)]
        held = backend.objects(dict.fromkeys(names))
        found.append(ModelCall(chunk, body, tuple(held[name] for name in names), _canonical(body.request)))
    return found


def _tools(held: History) -> list[ToolCall]:
    found: list[ToolCall] = []
    arguments: dict[str, str] = {}
    for item in held.items:
        data = item.data or {}
        content = cast("Sequence[Mapping[str, Any]]", data.get("content") or ())
        if data.get("type") == "ToolCallRequestEvent":
            arguments |= {call["id"]: _arguments(call["arguments"]) for call in content}
        elif data.get("type") == "ToolCallExecutionEvent":
            found += [
                ToolCall(
                    result["call_id"], result["name"], arguments[result["call_id"]], result["content"],
                    bool(result.get("is_error")), item.chunk.id,
                )
                for result in content
                if result["call_id"] in arguments
            ]  # fmt: skip
    return found


def _arguments(text: str) -> str:
    try:
        return _canonical(json.loads(text))
    except ValueError:
        return text


def _item(message: Any) -> bytes:
    """A message of a prompt as `rath_autogen.prompts` writes it."""
    return DEFAULT.text(to_bytes(message.model_dump(mode="json")).decode()).encode()


def _key(prompt: Sequence[bytes], request: str) -> tuple[bytes, str]:
    return bytes.fromhex(digest(b"".join(bytes.fromhex(digest(item)) for item in prompt))), request


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _show(item: bytes) -> str:
    if not item:
        return "nothing"
    data = from_bytes(item)
    return f"{data['type']} {_canonical(data.get('content'))}"[:SHOWN]


def _difference(ours: str, theirs: str) -> tuple[str, str]:
    """The first field in which two requests differ."""
    left, right = json.loads(ours), json.loads(theirs)
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            return f"{name} {_canonical(left.get(name))}"[:SHOWN], f"{name} {_canonical(right.get(name))}"[:SHOWN]
    return ours[:SHOWN], theirs[:SHOWN]
