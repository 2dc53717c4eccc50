"""What broke under daily use: teams whose run is cancelled, or left, while a tool works."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallRequestEvent
from autogen_agentchat.teams import RoundRobinGroupChat

import rath_bridge as rb
from rath_autogen import wrap
from rath_autogen.runner import Wrapped
from rath_bridge.errors import DecodeError
from tests.autogen.scripted import asks, client

GRACE = 0.3


LONG = 3600.0


def at_work(store: rb.Store, begun: asyncio.Event, seconds: float = LONG, grace: float = GRACE) -> Wrapped:
    async def works() -> str:
        """Work."""
        begun.set()
        await asyncio.sleep(seconds)
        return "done"

    guide = AssistantAgent("guide", client(asks("works"), "never"), tools=[works])
    return wrap(RoundRobinGroupChat([guide, AssistantAgent("critic", client("ok"))], max_turns=2), store, "s", grace=grace)


async def test_a_team_whose_task_is_cancelled_ends_in_time(store: rb.Store) -> None:
    """AutoGen waits for the tool, for ever if it takes so long."""
    begun = asyncio.Event()
    run = asyncio.ensure_future(at_work(store, begun).run(task="go"))
    await begun.wait()
    at = monotonic()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert monotonic() - at > GRACE * 0.9
    closed(store, "cancelled")


async def test_a_team_whose_stream_is_left_ends_in_time(store: rb.Store) -> None:
    """What aclose() does must not wait for a tool that never ends."""
    stream = at_work(store, asyncio.Event()).run_stream(task="go")
    async for item in stream:
        if isinstance(item, ToolCallRequestEvent):
            break
    await stream.aclose()
    closed(store, "abandoned")


async def test_a_deadline_around_a_team_is_kept(store: rb.Store) -> None:
    """What asyncio.timeout and wait_for are for."""
    begun = asyncio.Event()

    async def kept() -> None:
        async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as group:
            group.create_task(at_work(store, begun).run(task="go"))
            await begun.wait()
            deadline.reschedule(asyncio.get_running_loop().time() + 0.05)

    with pytest.raises(TimeoutError):
        await kept()
    closed(store, "cancelled")


async def test_a_tool_that_ends_within_grace_is_waited_for(store: rb.Store) -> None:
    """As with AutoGen alone."""
    begun = asyncio.Event()
    run = asyncio.ensure_future(at_work(store, begun, 0.05, grace=60).run(task="go"))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert "had not ended" not in str(caught.value)


def closed(store: rb.Store, status: str) -> None:
    s = store.session("s")
    assert s.fsck() == []
    assert s.pending() == ()
    assert [c.body.status for c in s if c.kind == "run" and c.body.phase == "end"] == [status]  # type: ignore[attr-defined]


@pytest.mark.parametrize("message", [None, 5, "hi", [], True])
async def test_a_state_with_something_else_among_its_messages_is_refused(message: object) -> None:
    state = dict(await RoundRobinGroupChat([AssistantAgent("guide", client("ok"))], max_turns=1).save_state())
    state["agent_states"]["RoundRobinGroupChatManager"]["message_thread"] = [message]
    with pytest.raises(DecodeError, match=r"message_thread\[0\]"):
        rb.decode(state)
