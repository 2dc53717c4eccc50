"""What a session holds for a replay: model calls by what was asked, tool calls by name and arguments, people's answers in turn."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from rath_autogen.items import History, Item, history
from rath_autogen.natives import from_bytes, to_bytes
from rath_autogen.pieces import OBSERVER
from rath_bridge.given import check_session
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Inference
from rath_bridge.model.trees import read_list
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.divergence import Divergence, ReplayDivergenceError
from rath_bridge.session import Session

T = TypeVar("T")

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
    inner: tuple[Item, ...] = ()
    """What the tool showed while it ran (an agent or a team inside it); of parallel calls, with the first."""
    used: bool = False


@dataclass(slots=True)
class Tape:
    """A record that is being replayed; what was served is never served again."""

    models: list[ModelCall]
    tools: list[ToolCall]
    people: dict[str, deque[tuple[str, Digest]]]
    """What the people behind a name said, in order, with the chunk."""
    code: dict[str, deque[tuple[Mapping[str, Any], Digest]]]
    """Results of code that an agent ran, in order, with the chunk."""
    untold: tuple[str, ...] = ()
    """Agents whose model calls only their messages tell of: tokens, not requests."""
    served: int = 0
    misses: list[Divergence] = field(default_factory=list[Divergence])
    _by_key: dict[tuple[bytes, str], list[ModelCall]] = field(default_factory=dict[Any, Any])

    @classmethod
    def of(cls, session: Session) -> Tape:
        """Read a session."""
        check_session(session, "a replay of model calls")
        held = history(session)
        models = _models(session, held.chunks)
        people: dict[str, deque[tuple[str, Digest]]] = {}
        code: dict[str, deque[tuple[Mapping[str, Any], Digest]]] = {}
        texts: dict[str, deque[tuple[Mapping[str, Any], Digest]]] = {}
        told = [(item.data, item.chunk.id) for item in held.items if item.data is not None]
        asked = {str(data["source"]) for data, _ in told if data.get("type") == "UserInputRequestedEvent"}
        for data, chunk in told:
            source = str(data.get("source"))
            if source in asked and data.get("type") in ("TextMessage", "HandoffMessage"):
                people.setdefault(source, deque()).append((str(data["content"]), chunk))
            elif data.get("type") == "CodeExecutionEvent":
                code.setdefault(source, deque()).append((data["result"], chunk))
            elif data.get("type") == "TextMessage":
                texts.setdefault(source, deque()).append(({"exit_code": 0, "output": data["content"]}, chunk))
        for source, said in texts.items():  # an agent without a model shows what its code printed as a text
            code.setdefault(source, deque(one for one in said if not one[0]["output"].startswith(NO_CODE)))
        tools = _tools(held)
        inside = {str(cast("Mapping[str, Any]", item.data)["source"]) for tool in tools for item in tool.inner}
        untold = tuple(name for name in _untold(held.chunks) if name not in inside)  # a tool answers as a whole
        tape = cls(models, tools, people, code, untold)
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

    # ---------------------------------------------------------------- find: the recorded call that is equal, or how it differs

    def find_model(self, prompt: Sequence[Any], request: Mapping[str, Any], agent: str | None) -> ModelCall | Divergence:
        """Find the next recorded call that asked for the same, that of the same agent first."""
        items, wanted = tuple(_item(message) for message in prompt), _canonical(request)
        waiting = self._by_key.get(_key(items, wanted), [])
        call = next((one for one in waiting if one.body.agent == agent), waiting[0] if waiting else None)
        if call is None:
            return self._missed(items, wanted, agent)
        waiting.remove(call)
        call.used = True
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

    def find_tool(self, name: str, arguments: Any, call_id: str | None) -> ToolCall | Divergence:
        """Find a recorded tool call of the same name, arguments and id."""
        wanted = _canonical(DEFAULT.apply(arguments))
        left = [call for call in self.tools if not call.used and call.name == name]
        same = [call for call in left if call.arguments == wanted]
        call = next((one for one in same if call_id is None or one.call_id == call_id), None)
        if call is None:
            near = next(iter(same or left), None)
            expected = f"{near.arguments} (call {near.call_id})" if near else "no such call left"
            return Divergence(f"tool call {name}", f"{wanted} (call {call_id})"[:SHOWN], expected[:SHOWN], near and near.chunk)
        call.used = True
        return call

    def find_said(self, name: str) -> tuple[str, Digest] | Divergence:
        """Find what a person answered next."""
        waiting = self.people.get(name)
        return waiting.popleft() if waiting else Divergence(f"input of {name}", "a question", "no answer left")

    def find_ran(self, name: str) -> tuple[Mapping[str, Any], Digest] | Divergence:
        """Find the result of the code that an agent ran next."""
        waiting = self.code.get(name)
        return waiting.popleft() if waiting else Divergence(f"code run by {name}", "one more execution", "no result left")

    # ---------------------------------------------------------------- serve: a tape that keeps count by itself

    def model(self, prompt: Sequence[Any], request: Mapping[str, Any], agent: str | None) -> ModelCall:
        """Serve a model call.

        Raises:
            ReplayDivergenceError: There is none, or the run has diverged before.
        """
        if self.misses:
            raise ReplayDivergenceError(self.misses[0])
        return self._served(self.find_model(prompt, request, agent))

    def tool(self, name: str, arguments: Any, call_id: str | None) -> ToolCall | None:
        """Serve a tool call; None, and a miss, where there is none."""
        found = self.find_tool(name, arguments, call_id)
        if isinstance(found, Divergence):
            self.miss(found)
            return None
        return self._served(found)

    def _served(self, found: T | Divergence) -> T:
        if isinstance(found, Divergence):
            raise self.miss(found)
        self.served += 1
        return found

    def schemas(self, agent: str) -> list[Any] | None:
        """The tools that an agent's model was offered; None where no call of its is on record."""
        for call in self.models:
            if call.body.agent == agent and call.body.request.get("tools"):
                return list(call.body.request["tools"])
        return None


def _untold(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for chunk in chunks:
        if chunk.kind == "inference" and chunk.body_bytes is not None and b"rath_autogen" in (chunk.origin or "").encode():
            body = cast(Inference, chunk.body)
            if body.observer == OBSERVER:
                found.setdefault(body.agent or "an agent")
    return tuple(found)


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
    asked: dict[str, tuple[str, int]] = {}
    for place, item in enumerate(held.items):
        data = item.data or {}
        content = cast("Sequence[Mapping[str, Any]]", data.get("content") or ())
        if data.get("type") == "ToolCallRequestEvent":
            asked |= {call["id"]: (_arguments(call["arguments"]), place) for call in content}
        elif data.get("type") == "ToolCallExecutionEvent":
            known = [result for result in content if result["call_id"] in asked]
            for index, result in enumerate(known):
                arguments, start = asked[result["call_id"]]
                between = held.items[start + 1 : place] if index == 0 else ()
                found.append(
                    ToolCall(
                        result["call_id"], result["name"], arguments, result["content"], bool(result.get("is_error")),
                        item.chunk.id, tuple(one for one in between if _inner(one, data.get("source"))),
                    )
                )  # fmt: skip
    return found


def _inner(item: Item, caller: Any) -> bool:
    """Tell whether a message between a call and its result is one that the tool showed: an agent inside it spoke."""
    return item.data is not None and "created_at" in item.data and item.data.get("source") != caller


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
