"""What a session holds for a replay of LangChain models and tools: calls of models by what they were asked, calls of tools by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langchain_core.outputs import Generation
from langchain_core.runnables.config import ensure_config

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import TreeRef, dumps, encode, escape
from rath_bridge.model.kinds import Inference, Run, ToolCall, ToolResult
from rath_bridge.model.trees import read_list
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay import Divergence
from rath_bridge.replay import Tape as CoreTape
from rath_bridge.session import Session
from rath_langgraph.compare import compare_key
from rath_langgraph.items import join_list
from rath_langgraph.neutral import plain
from rath_langgraph.observed import cleaned, place_of
from rath_langgraph.serde import RathSerializer
from rath_langgraph.threads import FRAMEWORK

_SHOWN: Final = 200


@dataclass(slots=True, eq=False)
class Reply:
    """One recorded model call."""

    chunk: Digest
    body: Inference
    keys: tuple[Digest, ...]
    """Comparison keys of the prompt."""
    shown: tuple[str, ...]
    """The prompt in words."""
    message: BaseMessage | None
    """What the chat model gave; None where it failed, or it was not kept."""
    texts: tuple[Generation, ...] | None = None
    """What the text model gave; None of a chat model, empty where it was not kept."""
    used: bool = False

    @property
    def lost(self) -> bool:
        """There was an answer, and it was not kept."""
        return self.message is None and not self.texts and self.body.error is None


@dataclass(slots=True, eq=False)
class Answer:
    """How one recorded tool call ended."""

    chunk: Digest
    """The ``tool_result``."""
    call: ToolCall
    body: ToolResult
    key: bytes
    """The arguments in canonical form."""
    values: list[Any] | None
    """What the tool returned, exactly (one value), or what it asked when it was interrupted; None where it could not be kept."""
    place: str | None = None
    """Where the task that called stands among its equals."""
    used: bool = False


@dataclass(slots=True)
class Tape:
    """The calls of a record, each to be found once. Safe from any thread."""

    replies: list[Reply] = field(default_factory=list[Reply])
    answers: list[Answer] = field(default_factory=list[Answer])
    reasons: list[str] = field(default_factory=list[str])
    """Why they cannot be replayed whole."""
    bare: bool = False
    """Checkpoints are on record, and no graph run: nobody watched models and tools."""
    _lock: RLock = field(default_factory=RLock)

    @classmethod
    def of(cls, core: CoreTape) -> Tape:
        """Read a record."""
        made = cls()
        calls: dict[tuple[str | None, str], ToolCall] = {}
        places: dict[str | None, str] = {}
        serde, seen = RathSerializer(), dict[bytes, tuple[Digest, str]]()
        states = graphs = False
        for chunk in core.held.chunks:
            if chunk.position <= core.after or '"langgraph"' not in (chunk.origin or ""):
                continue
            if chunk.kind == "inference":
                body = cast(Inference, chunk.body)
                values = values_of(chunk, serde)
                if isinstance(body.input, tuple):
                    prompts = [one if isinstance(one, str) else "" for one in body.input]
                    texts, keys = _texts(body, values), tuple(map(_text_key, prompts))
                    made.replies.append(Reply(chunk.id, body, keys, tuple(map(_short, prompts)), None, texts))
                    continue
                keys, shown = _prompt(body, core.session, serde, seen)
                message = values[0] if values and isinstance(values[0], BaseMessage) else None
                made.replies.append(Reply(chunk.id, body, keys, shown, message))
            elif chunk.kind == "run":
                began = cast(Run, chunk.body)
                graphs = graphs or began.type in ("graph", "node")
                place = began.attributes.get("place") or places.get(began.parent)
                if began.phase == "begin" and isinstance(place, str):
                    places[chunk.run] = place
            elif chunk.kind == "checkpoint":
                states = True
            elif chunk.kind == "tool_call":
                call = cast(ToolCall, chunk.body)
                calls[chunk.run, call.call_id or ""] = call
            elif chunk.kind == "tool_result":
                result = cast(ToolResult, chunk.body)
                call = calls.get((chunk.run, result.call_id or "")) or ToolCall(name=result.name or "", call_id=result.call_id)
                key = canonical(call.arguments)
                made.answers.append(Answer(chunk.id, call, result, key, values_of(chunk, serde), places.get(chunk.run)))
        made.bare = states and not graphs
        lost = sum(one.lost for one in made.replies)
        if lost:
            made.reasons.append(f"{lost} answers of models were not kept (recorded without content, or not writable)")
        lost = sum(one.values is None and one.body.status == "ok" for one in made.answers)
        if lost:
            made.reasons.append(f"{lost} results of tools could not be written exactly: what can be read of them is served")
        return made

    @property
    def unused(self) -> list[Digest]:
        """Calls that nobody has asked for."""
        return [one.chunk for one in [*self.replies, *self.answers] if not one.used]

    def reply(self, messages: Sequence[BaseMessage], request: Mapping[str, Any], agent: str | None) -> Reply | Divergence:
        """Find the recorded call that a chat model's call is equal to, or where it differs from the next one on record."""
        keys = tuple(compare_key(cast(BaseMessage, cleaned(message, DEFAULT))) for message in messages)
        return self._reply(keys, lambda index: _words(messages[index]), request, agent, text=False)

    def text(self, prompt: str, request: Mapping[str, Any], agent: str | None) -> Reply | Divergence:
        """The same for one prompt of a text model."""
        return self._reply((_text_key(DEFAULT.apply(prompt)),), lambda _: _short(prompt), request, agent, text=True)

    def _reply(
        self, keys: tuple[Digest, ...], words: Callable[[int], str], request: Mapping[str, Any], agent: str | None, *, text: bool
    ) -> Reply | Divergence:
        asked = canonical(DEFAULT.apply(dict(request)))
        with self._lock:
            left = [one for one in self.replies if not one.used and (one.texts is not None) == text]
            left.sort(key=lambda one: one.body.agent != agent)
            for one in left:
                if one.keys == keys and canonical(one.body.request) == asked:
                    one.used = True
                    return one
        title = "model call" if agent is None else f"model call of {agent}"
        if not left:
            return Divergence(title, words(-1) if keys else "no message", "nothing left")
        return _difference(title, words, keys, request, left[0])

    def answer(self, name: str, call_id: str | None, arguments: Any) -> Answer | Divergence:
        """Find the recorded call that a tool's call is equal to."""
        key = canonical(DEFAULT.apply(arguments))
        with self._lock:
            left = [one for one in self.answers if not one.used and one.call.name == name]
            place = place_of(ensure_config().get("metadata") or {})
            left.sort(key=lambda one: (one.call.call_id != call_id, one.place != place))
            for one in left:
                if one.key == key:
                    one.used = True
                    return one
        if not left:
            return Divergence(f"tool call {name}", f"a call with {_short(arguments)}", "nothing left of it")
        return Divergence(f"tool call {name}", _short(arguments), _short(left[0].call.arguments), left[0].chunk, "arguments")


def canonical(value: Any) -> bytes:
    """Bytes that are equal where two neutral values are."""
    return dumps(escape(plain(value), {}))


def _prompt(
    body: Inference, session: Session, serde: RathSerializer, seen: dict[bytes, tuple[Digest, str]]
) -> tuple[tuple[Digest, ...], tuple[str, ...]]:
    if not isinstance(body.input, TreeRef):
        return (), ()
    backend = session.store.backend
    names = read_list(body.input, backend.objects)
    fresh = [name for name in dict.fromkeys(names) if name not in seen]
    if fresh:
        found = backend.objects([name.hex() for name in fresh])
        messages: list[BaseMessage] = serde.loads_typed(("msgpack", join_list([found[name.hex()] for name in fresh])))
        seen.update({name: (compare_key(message), _words(message)) for name, message in zip(fresh, messages, strict=True)})
    return tuple(seen[name][0] for name in names), tuple(seen[name][1] for name in names)


def values_of(chunk: Chunk, serde: RathSerializer) -> list[Any] | None:
    """The values of a native record: the items of a list, without its header."""
    ref = chunk.native_ref
    if ref is None or ref["framework"] != FRAMEWORK:
        return None
    native = chunk.native
    if native is None:
        return None
    many = int(cast(Any, chunk.body).attributes.get("questions", 1)) if chunk.kind == "tool_result" else 1
    try:
        return serde.loads_typed(("msgpack", bytes((0x90 | many,)) + native.data))
    except RathError:  # a class that is not imported here
        return None


def _text_key(prompt: str) -> Digest:
    return digest(encode(["text", prompt])[0])


def _texts(body: Inference, values: list[Any] | None) -> tuple[Generation, ...]:
    """What a text model gave: its own objects, else the texts that can be read."""
    if values and isinstance(values[0], list):
        return tuple(cast("list[Generation]", values[0]))
    reasons = [*body.finish_reasons, *[None] * len(body.output)]
    return tuple(
        Generation(text=str(part.get("content", "")), generation_info={"finish_reason": reason} if reason else None)
        for part, reason in zip(cast("Sequence[Mapping[str, Any]]", body.output), reasons, strict=False)
    )


def _difference(
    title: str, words: Callable[[int], str], keys: Sequence[Digest], request: Mapping[str, Any], wanted: Reply
) -> Divergence:
    for i, (one, other) in enumerate(zip(keys, wanted.keys, strict=False)):
        if one != other:
            return Divergence(title, words(i), wanted.shown[i], wanted.chunk, f"input[{i}]")
    if len(keys) != len(wanted.keys):
        more = words(len(wanted.keys)) if len(keys) > len(wanted.keys) else wanted.shown[len(keys)]
        what = f"{title}: one side has more: {more}"
        return Divergence(what, f"{len(keys)} messages", f"{len(wanted.keys)} messages", wanted.chunk, "input")
    ours: Any = plain(DEFAULT.apply(dict(request)))
    theirs: Any = plain(wanted.body.request)
    for part in ("tools", "params"):
        if canonical(ours.get(part)) != canonical(theirs.get(part)):
            return Divergence(title, _short(ours.get(part)), _short(theirs.get(part)), wanted.chunk, f"request.{part}")
    return Divergence(title, _short(ours), _short(theirs), wanted.chunk, "request")


def _words(message: BaseMessage) -> str:
    calls: Any = getattr(message, "tool_calls", None)
    told = f"{message.type}: {message.content}" + (f" {calls}" if calls else "")
    return _short(told)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(plain(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
