"""What is no store, session or program is refused where it is handed in: an observer's error would come late, or never."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agents import Agent
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient
from langgraph.graph import END, START, MessagesState, StateGraph

import rath_autogen
import rath_bridge as rb
import rath_langgraph
import rath_mcp
import rath_openai_agents
import rath_openrath
from rath_bridge.errors import InvalidNameError, RathError, UnsupportedError, WrongTypeError
from rath_bridge.evidence.audit import audit
from rath_bridge.maintenance import prune, redact
from rath_bridge.otel import SessionSpanProcessor, export_spans
from rath_bridge.recorder import recorder_for

URL = "sqlite:///z.db"


def graph() -> Any:
    made = StateGraph(MessagesState)
    made.add_node("node", lambda state: {})
    made.add_edge(START, "node")
    made.add_edge("node", END)
    return made.compile()


def model() -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(["hi"])


async def _saved(store: Any) -> Any:
    return await rath_autogen.save_team_state(AssistantAgent("a", model_client=model()), store)


STORES: dict[str, Callable[[Any], Any]] = {
    "langgraph wrap": lambda store: rath_langgraph.wrap(graph(), store),
    "RathSaver": rath_langgraph.RathSaver,
    "RathCallbackHandler": rath_langgraph.RathCallbackHandler,
    "import_thread": lambda store: rath_langgraph.import_thread(rath_langgraph.RathSaver(rb.open_store("memory:")), store, "1"),
    "merge_state": rath_langgraph.merge_state,
    "agents wrap": lambda store: rath_openai_agents.wrap(Agent(name="a"), store),
    "install": rath_openai_agents.install,
    "RathTracingProcessor": rath_openai_agents.RathTracingProcessor,
    "RecordingModel": lambda store: rath_openai_agents.RecordingModel(object(), store),  # type: ignore[arg-type]
    "RathRunHooks": rath_openai_agents.RathRunHooks,
    "RathSession": lambda store: rath_openai_agents.RathSession("1", store),
    "autogen wrap": lambda store: rath_autogen.wrap(AssistantAgent("a", model_client=model()), store),
    "RecordingChatCompletionClient": lambda store: rath_autogen.RecordingChatCompletionClient(model(), store),
    "ClientRecorder": rath_mcp.ClientRecorder,
    "record_clients": lambda store: rath_mcp.record_clients(store).__enter__(),
    "session_server": rath_mcp.session_server,
    "openrath": lambda store: rath_openrath.import_session(store, None),
    "SessionSpanProcessor": SessionSpanProcessor,
    "record": lambda store: rb.record(store, "a").__enter__(),
    "recorder_for": lambda store: recorder_for(store, "toy"),
    "prune": lambda store: prune(store, timedelta(1)),
    "redact": lambda store: redact(store, reason="none"),
}

SESSIONS: dict[str, Callable[[Any], Any]] = {
    "Recorder": rb.Recorder,
    "replay": lambda session: rb.replay(session, lambda: None),
    "encode": lambda session: rb.encode(session, "openai_messages"),
    "export_packet": lambda session: rb.export_packet([session], "p.zip"),
    "export_spans": export_spans,
    "audit": audit,
    "agents ReplayModel": rath_openai_agents.ReplayModel,
    "agents replayable": rath_openai_agents.replayable,
    "autogen replay client": rath_autogen.RathReplayChatCompletionClient,
    "replay_server": rath_mcp.replay_server,
    "replay_command": rath_mcp.replay_command,
    "openrath": rath_openrath.export_session,
    "merge": lambda session: rb.open_store("memory:").create("a").merge(session),
    "diff": lambda session: rb.open_store("memory:").create("a").diff(session),
}


@pytest.mark.parametrize("taker", STORES)
def test_a_text_is_no_store(taker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        WrongTypeError, match=r"takes a Store, not the text 'sqlite:///z.db': pass rb.open_store\('sqlite:///z.db'\)"
    ):
        STORES[taker](URL)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("taker", STORES)
def test_a_session_is_no_store(taker: str) -> None:
    with pytest.raises(WrongTypeError, match="not a rath_bridge Session: pass the session's store, and session='chat'"):
        STORES[taker](rb.open_store("memory:").create("chat"))


@pytest.mark.parametrize("taker", SESSIONS)
def test_a_name_is_no_session(taker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WrongTypeError, match=r"takes a Session, not the text 'chat': open it with store.session\("):
        SESSIONS[taker]("chat")
    assert not list(tmp_path.iterdir())


async def test_a_team_is_saved_into_a_store_or_a_session() -> None:
    with pytest.raises(WrongTypeError, match="takes a Store"):
        await _saved(URL)
    assert (await _saved(rb.open_store("memory:").create("a"))).name == "a"


def test_a_session_is_named_by_its_name() -> None:
    store = rb.open_store("memory:")
    session = store.create("chat")
    with pytest.raises(WrongTypeError, match="takes a session's name, not a rath_bridge Session: pass session='chat'"):
        rath_langgraph.wrap(graph(), store, session=session)  # type: ignore[arg-type]
    with pytest.raises(InvalidNameError):
        rath_openai_agents.install(store, session="two words")


def test_wrappers_take_what_they_wrap() -> None:
    store = rb.open_store("memory:")
    with pytest.raises(UnsupportedError, match=r"takes an agents.Agent, not a CompiledStateGraph"):
        rath_openai_agents.wrap(graph(), store)
    with pytest.raises(UnsupportedError, match="no checkpointer='sqlite': use 'rath'"):
        rath_langgraph.wrap(graph(), store, checkpointer="sqlite")  # type: ignore[arg-type]


def test_a_path_is_no_address(tmp_path: Path) -> None:
    with pytest.raises(WrongTypeError, match=r"not a pathlib \w+Path: pass rb.open_store\('sqlite:///"):
        rb.open_store(tmp_path / "z.db")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def two(first: Any, second: Any) -> None:
    raise AssertionError("it was run")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "not an int: pass the function itself, or what an adapter's wrap returned"),
        (None, "not None"),
        (two, "not a function: this one needs first, second, so pass a lambda"),
    ],
)
async def test_what_cannot_be_called_is_no_program(given: Any, told: str) -> None:
    session = rb.open_store("memory:").create("a")
    with pytest.raises(WrongTypeError, match=told):
        rb.replay(session, given)
    with pytest.raises(WrongTypeError, match=told):
        await rb.areplay(session, given)


def test_no_password_is_told() -> None:
    with pytest.raises(WrongTypeError) as caught:
        rath_langgraph.RathSaver("postgresql://me:hunter2@host/db")  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, RathError)
