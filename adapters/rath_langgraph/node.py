"""`as_node`: any Session transform (a wrapped agent of another framework, a workflow, a function) as a node of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, convert_to_messages
from langchain_core.runnables import RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # pyright: ignore[reportMissingTypeStubs]

from rath_bridge.aio import in_thread
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Compaction
from rath_bridge.recorder import Recorder, current_recorder, current_run
from rath_bridge.session import Session, open_store
from rath_bridge.transform import AsyncTransform, Transform
from rath_langgraph.compare import compare_key
from rath_langgraph.decode import decode
from rath_langgraph.encode import encode
from rath_langgraph.merging import said_since

_OURS: Final = "rath-"


def as_node(
    transform: Transform | AsyncTransform, *, name: str | None = None, channel: str = "messages"
) -> RunnableLambda[Any, dict[str, list[AnyMessage]]]:
    """Return a node that runs a transform on what the graph's state says, and answers with what it said.

    In a graph that records itself, the transform works on a branch of the graph's session, ``node-…``, which is merged back as soon as it
    is done: what it did is in the session's history and counts, what it said comes through the graph's state, once. Elsewhere it works
    on a session in memory.

    Args:
        transform: Session -> Session; its ``acall`` is awaited where the graph runs asynchronously.
        name: The node's name, for the branch.
        channel: The channel of messages that it reads and writes.

    Raises:
        UnsupportedError: It can neither be called nor awaited.
    """
    if not callable(transform) and not hasattr(transform, "acall"):
        raise UnsupportedError(f"as_node takes a transform (Session -> Session), not a {type(transform).__name__}")
    title = name or getattr(transform, "name", None) or getattr(transform, "__name__", None) or type(transform).__name__

    def run(state: Any) -> dict[str, list[AnyMessage]]:
        if not callable(transform):
            raise UnsupportedError(f"{title} can only be awaited: run the graph with ainvoke or astream")
        work = _begin(state, str(title), channel)
        return work.end(transform(work.session))

    async def arun(state: Any) -> dict[str, list[AnyMessage]]:
        work = await in_thread(_begin, state, str(title), channel)
        if isinstance(transform, AsyncTransform):
            done = await transform.acall(work.session)
        else:
            done = await in_thread(transform, work.session)
        return await in_thread(work.end, done)

    return RunnableLambda(run, afunc=arun, name=str(title))


@dataclass(frozen=True, slots=True)
class _Work:
    """A transform that runs in a node."""

    session: Session
    given: list[BaseMessage]
    channel: str
    recorder: Recorder | None

    def end(self, done: Session) -> dict[str, list[AnyMessage]]:
        """Fold the branch back, and return what the state has to take in."""
        said = cast("list[BaseMessage]", encode(done)[0])
        if self.recorder is not None:
            self.recorder.session.merge(done, strategy="ours", on_conflict="serialise")
        known = {compare_key(message): message for message in self.given}
        made = [known.get(compare_key(message)) or _fresh(message) for message in said]
        update: list[Any] = said_since(self.given, made, self.given)
        gone = {one.id for one in update if isinstance(one, RemoveMessage)}
        grown = [
            *(one for one in self.given if one.id not in gone),
            *(one for one in update if not isinstance(one, RemoveMessage)),
        ]
        if [compare_key(one) for one in grown] != [compare_key(one) for one in made]:  # it changed the order, or the middle
            update = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *made]
        return {self.channel: update}


def _begin(state: Any, title: str, channel: str) -> _Work:
    held: Any = cast("Mapping[str, Any]", state).get(channel) if isinstance(state, Mapping) else getattr(state, channel, None)
    given = convert_to_messages(held or [])
    recorder = current_recorder()
    if recorder is None:
        return _Work(open_store("memory:").create(title).append(*decode(given)), given, channel, None)
    run = current_run()
    branch = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"node-{title}"[:80])
    session = recorder.session.fork(f"{branch}-{(run.id if run else new_id(8))[:8]}")
    return _Work(_shown(session, given), given, channel, recorder)


def _shown(session: Session, given: Sequence[BaseMessage]) -> Session:
    """Let a branch's transcript say what the graph's state says: checkpoints may lag behind, and states may be trimmed."""
    said, _ = cast("tuple[list[BaseMessage], Any]", encode(session))
    here, there = ([compare_key(message) for message in side] for side in (said, given))
    if there[: len(here)] == here:
        return session.append(*decode(list(given[len(here) :]))) if len(there) > len(here) else session
    dropped = tuple(message.id for message in session.messages())
    return session.append(draft(Compaction(dropped=dropped, reason="trimmed")), *(decode(list(given)) if given else ()))


def _fresh(message: BaseMessage) -> BaseMessage:
    """A message of the branch, as one that the graph has not seen."""
    return message.model_copy(update={"id": None}) if (message.id or "").startswith(_OURS) else message
