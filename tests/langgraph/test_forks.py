"""A fork at any chunk goes on: each message stands once, calls are answered where chat APIs want it, and models see the transcript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from agents import Agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

import rath_bridge as rb
import rath_openai_agents
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.kinds import ToolResult
from rath_bridge.session import Session, Store
from rath_langgraph import wrap
from rath_langgraph.compare import compare_key
from tests.langgraph.graphs import react, thread
from tests.openai_agents.conftest import no_processors
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import say

__all__ = ["no_processors"]

MODES = ["rath", "own", "none"]
Seen = list[list[BaseMessage]]


class Watched(GenericFakeChatModel):
    """Notes what it is asked."""

    seen: Any

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


Make = Callable[..., tuple[Any, Seen]]


def maker(store: Store, mode: str) -> Make:
    """Make wrapped graphs that share a checkpointer, and the prompts of each."""
    own = InMemorySaver()

    def make(*answers: str | AIMessage) -> tuple[Any, Seen]:
        seen: Seen = []
        said = iter([AIMessage(a) if isinstance(a, str) else a for a in answers])
        model = Watched(messages=said, seen=seen)
        if mode == "own":
            return wrap(react(model, checkpointer=own), store), seen
        return wrap(react(model), store, checkpointer="rath" if mode == "rath" else None), seen

    return make


def asks(*calls: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": name} for name in calls])


def recorded(store: Store, make: Make) -> Session:
    """Two turns: two calls at once, an answer; then one more answer."""
    app, _ = make(asks("c1", "c2"), "it is 3", "you are welcome")
    line = app(store.create("t").append(rb.message("user", "how many?")))
    return app(line.append(rb.message("user", "thanks")))


def keys(messages: Sequence[BaseMessage]) -> list[str]:
    return [compare_key(message) for message in messages]


def whole(line: Session, answer: str, before: Session, seen: Seen, app: Any, mode: str) -> None:
    """What holds of a line on which a graph has given one answer."""
    said = line.messages()
    names = [message.id for message in said]
    assert len(set(names)) == len(names)
    kept = [name for name in names if name in {message.id for message in before.messages()}]
    assert kept == [message.id for message in before.messages()]
    assert [m.role for m in said if m.id not in kept] == ["tool"] * (len(said) - len(kept) - 1) + ["assistant"]
    assert said[-1].text == answer
    handed, report = cast("tuple[list[BaseMessage], Any]", rb.encode(line, "langgraph"))
    assert keys(handed[:-1]) == keys(seen[-1])
    assert len(handed) == len(said) == len(report.manifest)  # what closes a call is in the transcript, since the graph has it
    if mode != "none":
        assert keys(app.get_state(thread(line.name)).values["messages"]) == keys(handed)
    in_order(cast("list[dict[str, Any]]", rb.encode(line, "openai_messages")[0]))
    assert line.fsck() == []


def in_order(items: list[dict[str, Any]]) -> None:
    """Every call is answered right behind the message that asks, once, as chat APIs want it."""
    waiting: list[str] = []
    for item in items:
        if item["role"] == "tool":
            waiting.remove(item["tool_call_id"])
        else:
            assert not waiting
            waiting = [call["id"] for call in item.get("tool_calls") or ()]
    assert not waiting


def at_turns(line: Session) -> list[Chunk]:
    """Where something that a graph's state is made of is written."""
    return [chunk for chunk in line.chunks() if chunk.kind in ("message", "checkpoint", "task", "tool_result")]


async def other(store: Store, line: Session) -> Session:
    """A turn by another framework."""
    agent = Agent(name="o", model=ScriptedModel([say("the other says")]))
    return await rath_openai_agents.wrap(agent, store).acall(line.append(rb.message("user", "and you?")))


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_at_any_chunk_goes_on(mode: str) -> None:
    store = rb.open_store("memory:")
    make = maker(store, mode)
    for i, chunk in enumerate(list(recorded(store, make).chunks())):
        fork = store.session("t").fork(f"f{i}", at=chunk.id).append(rb.message("user", "Bye?"))
        app, seen = make("Bye.", "Again.")
        once = app(fork)
        whole(once, "Bye.", fork, seen, app, mode)
        again = once.append(rb.message("user", "Bye?"))
        twice = app(again)
        whole(twice, "Again.", again, seen, app, mode)


@pytest.mark.parametrize("mode", MODES)
async def test_another_framework_goes_on_first(mode: str) -> None:
    store = rb.open_store("memory:")
    make = maker(store, mode)
    for i, chunk in enumerate(list(recorded(store, make).chunks())):
        fork = (await other(store, store.session("t").fork(f"f{i}", at=chunk.id))).append(rb.message("user", "Bye?"))
        app, seen = make("Bye.")
        whole(app(fork), "Bye.", fork, seen, app, mode)


@pytest.mark.parametrize("mode", ["rath", "own"])
def test_a_fork_that_went_on_is_merged(mode: str) -> None:
    store = rb.open_store("memory:")
    make = maker(store, mode)
    for i, chunk in enumerate(at_turns(recorded(store, make))):
        base = store.session("t").fork(f"base{i}", at=chunk.id)
        side = base.fork(f"side{i}").append(rb.message("user", "Bye?"))
        app, _ = make("Bye.")
        side = app(side)
        merged = base.merge(side, strategy="state", merge_state=app.merge_state)
        assert [(m.role, m.text) for m in merged.messages()] == [(m.role, m.text) for m in side.messages()]
        fresh = merged.append(rb.message("user", "And now?"))
        app, seen = make("Now.")
        whole(app(fresh), "Now.", fresh, seen, app, mode)


@pytest.mark.parametrize("mode", ["rath", "own"])
async def test_async(mode: str) -> None:
    store = rb.open_store("memory:")
    make = maker(store, mode)
    for i, chunk in enumerate(at_turns(recorded(store, make))):
        fork = store.session("t").fork(f"f{i}", at=chunk.id).append(rb.message("user", "Bye?"))
        app, seen = make("Bye.")
        whole(await app.acall(fork), "Bye.", fork, seen, app, mode)


def test_another_process_goes_on_where_an_input_was_put() -> None:
    """It has died then: the graph takes its input in from the store, and says nothing of it again."""
    store = rb.open_store("memory:")
    make = maker(store, "rath")
    line = recorded(store, make)
    said = [chunk for chunk in line.chunks() if chunk.kind == "message"][-1]
    fork = line.fork("f", at=said.id).append(rb.message("user", "Bye?"))
    app, _ = make("Bye.")
    put = app.checkpointer.put

    def once(config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if metadata["source"] != "input":
            raise KeyboardInterrupt
        return put(config, checkpoint, metadata, versions)

    app.checkpointer.put = once
    with pytest.raises(KeyboardInterrupt):
        app(fork)
    app, seen = make("Bye.")
    app.invoke(None, thread(fork.name))
    whole(fork.latest(), "Bye.", fork, seen, app, "rath")


def test_the_same_words_again_are_said_again() -> None:
    """What was handed over once is not what an input of a later run says."""
    store = rb.open_store("memory:")
    make = maker(store, "rath")
    app, _ = make("a", "b", "c")
    line = app(store.create("t").append(rb.message("user", "yes")))
    fork = line.fork("f", at=next(c.id for c in reversed(list(line.chunks())) if c.kind == "message"))
    fork = app(fork.append(rb.message("user", "yes")))
    app.invoke({"messages": [("user", "yes")]}, thread(fork.name))
    assert [m.text for m in fork.latest().messages()] == ["yes", "a", "yes", "b", "yes", "c"]


def test_a_result_on_record_answers_its_call() -> None:
    store = rb.open_store("memory:")
    make = maker(store, "rath")
    line = recorded(store, make)
    result = next(chunk for chunk in line.chunks() if chunk.kind == "tool_result")
    app, seen = make("Bye.")
    fork = app(line.fork("f", at=result.id).append(rb.message("user", "Bye?")))
    name = cast(ToolResult, result.body).call_id
    answers = {m.tool_call_id: (m.content, m.status) for m in seen[-1] if isinstance(m, ToolMessage)}
    assert list(answers) == ["c1", "c2"]
    assert answers[name or ""] == ("3", "success")
    assert [m.role for m in fork.messages()] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert fork.pending() == ()
