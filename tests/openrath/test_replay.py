"""An OpenRath agent runs again on its record: no model is asked, no tool runs, and what changed is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rath.flow import Agent
from rath.flow.tool import FlowToolCall
from rath.llm import Provider, RathLLMChatRequest, RathLLMChatResponse, register_chat_client
from rath.session import Session

import rath_bridge as rb
from rath_openrath import import_session
from rath_openrath.replay import _response

RAN: list[str] = []
CALLS: list[Any] = []


class Words(FlowToolCall):
    """Counts words, and says that it ran."""

    name: Any = "word_count"
    parameters: ClassVar[Any] = {"type": "object", "properties": {"text": {"type": "string"}}}

    def __call__(self, session: Session, arguments: Mapping[str, Any]) -> Any:
        RAN.append(arguments["text"])
        return {"words": len(arguments["text"].split()), "of": "é"}


class Scripted:
    """OpenRath's own protocol for a chat client."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def complete(self, req: RathLLMChatRequest) -> RathLLMChatResponse:
        CALLS.append(req)
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if req.messages[-1].role == "tool":
            return _response({"content": "two words"}, req, usage)
        call = {"id": "c1", "type": "function", "function": {"name": "word_count", "arguments": '{"text": "a b"}'}}
        return _response({"content": None, "tool_calls": [call]}, req, usage)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    RAN.clear()
    CALLS.clear()
    monkeypatch.setenv("OPENRATH_HOME", str(tmp_path / "openrath-home"))
    register_chat_client("scripted", Scripted)


def program(store: rb.Store, said: str = "count these") -> Any:
    def run() -> str:
        agent = Agent("Be brief.", Provider(model="m", provider_kind="scripted"), tools=[Words()])  # pyright: ignore[reportArgumentType]
        out = agent(Session.from_user_message(said))
        return import_session(store, out, name="ticket").messages()[-1].text

    return run


@pytest.fixture(params=["memory:", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> rb.Store:
    return rb.open_store("memory:" if request.param == "memory:" else f"sqlite:///{tmp_path / 'runs.db'}")


def test_an_agent_is_replayed_and_nothing_runs(store: rb.Store) -> None:
    assert program(store)() == "two words"
    assert (RAN, len(CALLS)) == (["a b"], 2)
    session = store.session("ticket")
    length, head = len(session), session.head
    RAN.clear()
    CALLS.clear()
    report = rb.replay(session, program(store))
    assert (report.equal, report.served, report.live, report.unused, report.value) == (True, 3, 0, (), "two words"), str(report)
    assert (RAN, CALLS) == ([], [])
    assert (len(store.session("ticket")), store.session("ticket").head) == (length, head)
    assert store.session("ticket").usage().total_tokens == 30


def test_what_changed_is_named(store: rb.Store) -> None:
    program(store)()
    CALLS.clear()
    report = rb.replay(store.session("ticket"), program(store, "count those"))
    assert (report.equal, report.exit_status, CALLS) == (False, 1, [])
    assert report.divergence is not None
    assert report.divergence.what == "model call: message 0"
    assert "count those" in report.divergence.found
    assert "count these" in report.divergence.expected


def test_a_changed_result_goes_on_live(store: rb.Store) -> None:
    program(store)()
    session = store.session("ticket")
    RAN.clear()
    CALLS.clear()
    report = rb.replay(session, program(store), overrides={"tool:word_count": {"words": 3}}, then="live", until=len(session) - 1)
    assert RAN == []
    assert len(CALLS) == 1, str(report)
    assert CALLS[0].messages[-1].content == '{"words": 3}'


def test_outside_of_a_replay_nothing_is_changed(store: rb.Store) -> None:
    """Its loop lives in a thread that keeps contexts, so the players may stay; they answer nothing there."""
    program(store)()
    assert rb.replay(store.session("ticket"), program(store)).equal
    RAN.clear()
    CALLS.clear()
    assert program(rb.open_store("memory:"))() == "two words"
    assert (RAN, len(CALLS)) == (["a b"], 2)
