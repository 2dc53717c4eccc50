"""ATIF trajectories, checked by the PyPI package ``atif``."""

from __future__ import annotations

from typing import Any

import pytest
from atif import Trajectory
from hypothesis import HealthCheck, given, settings

import rath_bridge as rb
from rath_bridge.errors import DecodeError
from rath_bridge.interchange import atif, decode, encode, format_of
from rath_bridge.model.kinds import Body, Inference, Message, Run, Usage
from rath_bridge.model.parts import BlobPart, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.plugins import Adapter
from rath_bridge.testing import AdapterContract, Sample, strategies
from rath_bridge.testing.strategies import session_of
from tests.interchange.contract import AsAdapter

SUB = {
    "schema_version": "ATIF-v1.8",
    "trajectory_id": "sub-1",
    "agent": {"name": "helper", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "count"},
        {"step_id": 2, "source": "agent", "message": "two", "metrics": {"prompt_tokens": 3, "completion_tokens": 1}},
    ],
}
FULL: dict[str, Any] = {
    "schema_version": "ATIF-v1.8",
    "session_id": "run-1",
    "trajectory_id": "t-1",
    "agent": {"name": "worker", "version": "1.0", "model_name": "m-1", "extra": {"k": None},
              "tool_definitions": [{"type": "function", "function": {"name": "shell"}}]},
    "steps": [
        {"step_id": 1, "timestamp": "2026-08-18T10:00:00Z", "source": "system", "message": "Be brief.\u2028"},
        {"step_id": 2, "timestamp": "2026-08-18T10:00:01+02:00", "source": "user", "message": [
            {"type": "text", "text": "Look " * 300},
            {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
            {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav", "duration_sec": 1.5}}]},
        {"step_id": 3, "source": "agent", "message": "copied", "is_copied_context": True, "metrics": {"prompt_tokens": 1000}},
        {"step_id": 4, "source": "agent", "model_name": "m-2", "reasoning_effort": "high", "reasoning_content": "hm",
         "message": "I look.", "llm_call_count": 2,
         "metrics": {"prompt_tokens": 120, "completion_tokens": 30, "cached_tokens": 5, "cost_usd": 0.01, "logprobs": [-0.5]},
         "tool_calls": [{"tool_call_id": "c1", "function_name": "shell", "arguments": {"command": "ls", "n": 1.0}},
                        {"tool_call_id": "c2", "function_name": "delegate", "arguments": {}, "extra": {"timeout": 5}}],
         "observation": {"results": [
             {"source_call_id": "c2", "subagent_trajectory_ref": [{"trajectory_id": "sub-1"}]},
             {"source_call_id": "c1", "content": [{"type": "text", "text": "README"}], "extra": {"score": 1}},
             {"content": "the environment says hello"}]}},
        {"step_id": 5, "source": "agent", "message": "", "llm_call_count": 0,
         "tool_calls": [{"tool_call_id": "c1", "function_name": "shell", "arguments": {}}],
         "observation": {"results": [{"source_call_id": "c1", "content": None}]}},
        {"step_id": 6, "source": "system", "message": "", "observation": {"results": []}},
    ],
    "notes": "by hand",
    "final_metrics": {"total_prompt_tokens": 120, "total_steps": 6, "extra": {"x": [1]}},
    "continued_trajectory_ref": "next.json",
    "extra": {"run": 7},
    "subagent_trajectories": [SUB],
}  # fmt: skip


def imported(document: Any) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*decode(document))


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return AsAdapter("atif")

    @pytest.fixture
    def samples(self) -> list[Sample]:
        Trajectory.model_validate(FULL)
        return [Sample(FULL), Sample({**SUB, "schema_version": "ATIF-v1.7", "steps": []})]


def test_the_neutral_form_is_read() -> None:
    assert format_of(FULL) is atif
    session = imported(FULL)
    messages = session.messages()
    assert [one.role for one in messages] == [
        "system",
        "user",
        "assistant",
        "assistant",
        *["tool"] * 3,
        "assistant",
        "tool",
        "system",
    ]
    assert messages[3].parts == (
        ReasoningPart("hm"), TextPart("I look."), ToolCallPart("c1", "shell", {"command": "ls", "n": 1.0}),
        ToolCallPart("c2", "delegate", {}, {"extra": {"timeout": 5}}),
    )  # fmt: skip
    assert messages[1].parts[1] == UriPart("image", "a.png", "image/png")
    assert session.usage() == Usage(input_tokens=123, output_tokens=31, cache_read_input_tokens=5, cost_usd=0.01)
    assert {call.status for call in session.calls()} == {"ok"}
    nested = next(c.run for c in session.chunks() if c.kind == "run" and isinstance(c.body, Run) and c.body.parent)
    assert [one.text for one in session.messages(run=nested)] == ["count", "two"]
    assert session[1].at < session[2].at or session[1].at == session[2].at


def test_a_fork_inside_a_step_leaves_out_what_came_later() -> None:
    session = imported(FULL)
    asked = next(one for one in session.messages() if len(one.parts) == 4)
    found, report = encode(session.fork("early", at=asked.id), "atif")
    Trajectory.model_validate(found)
    results = found["steps"][3]["observation"]["results"]
    assert [one["source_call_id"] for one in results] == ["c1", "c2"]
    assert all(one["content"].startswith("no response") for one in results)
    assert len(report.losses) == 2


def test_a_foreign_session_is_a_valid_trajectory_with_its_lineage() -> None:
    session = session_of([
        Run(phase="begin", name="triage", type="agent"),
        Message(role="user", name="ann", parts=(TextPart("hi"), BlobPart("image", b"x", "image/png"), BlobPart("video", b"x"))),
        Inference(model="m", usage=Usage(input_tokens=5, output_tokens=2, reasoning_output_tokens=1)),
        Message(role="assistant", parts=(ReasoningPart("hm"), TextPart("a"), ToolCallPart("c", "look", [1]))),
        Message(role="tool", parts=(ToolCallResponsePart("c", {"total": 2}),)),
    ])  # fmt: skip
    branch = session.fork("b").append(rb.message("developer", "x"))
    merged = session.append(rb.message("user", "y")).merge(branch)
    found, report = encode(merged, "atif")
    Trajectory.model_validate(found)
    assert [step["source"] for step in found["steps"]][:3] == ["user", "agent", "user"]
    assert found["steps"][1]["metrics"] == {"prompt_tokens": 5, "completion_tokens": 2, "extra": {"reasoning_tokens": 1}}
    assert found["steps"][1]["observation"]["results"][0]["content"] == '{"total":2}'
    assert found["final_metrics"]["total_prompt_tokens"] == 5
    rath = found["extra"]["rath"]
    assert rath["head"] == merged.head
    assert [one["op"] for one in rath["lineage"]] == ["create", "merge"]
    assert rath["lineage"][1]["parents"] == list(merged[rath_position(merged)].parents)
    assert {loss.path for loss in report.losses} == {"parts[2]", "parts[2].arguments"}
    again, second = encode(imported(found), "atif")
    assert again == found
    assert second.exact


def rath_position(session: rb.Session) -> int:
    return next(chunk.position for chunk in session.chunks() if chunk.kind == "merge")


@settings(deadline=None, max_examples=40, suppress_health_check=(HealthCheck.too_slow,))
@given(strategies.transcripts(odd_text=False))
def test_whatever_goes_out_is_valid(bodies: tuple[Body, ...]) -> None:
    found, _ = encode(session_of(bodies), "atif")
    Trajectory.model_validate(found)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"agent": {}}, "agent.name"),
        ({"steps": [5]}, "steps[0]"),
        ({"steps": [{"source": 5}]}, "steps[0].source"),
        ({"steps": [{"source": "agent", "tool_calls": [{"tool_call_id": 1}]}]}, "steps[0].tool_calls[0].tool_call_id"),
        ({"steps": [{"source": "user", "message": [{"type": "text"}]}]}, "steps[0].message[0].text"),
        ({"steps": [{"source": "user", "observation": {"results": 5}}]}, "steps[0].observation.results"),
        ({"subagent_trajectories": [{}]}, "subagent_trajectories[0].agent"),
    ],
)
def test_damage_is_named_by_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        atif.decode({**FULL, **change})
    assert caught.value.path == path
