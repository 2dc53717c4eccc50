"""`RecordingChatCompletionClient`: each call once, whole, however it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from hypothesis import given
from pydantic import BaseModel

import rath_bridge as rb
from rath_autogen import RecordingChatCompletionClient
from rath_autogen.natives import to_bytes
from rath_autogen.prompts import Prompts
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Inference
from rath_bridge.model.trees import read_list
from rath_bridge.redaction import Redactor
from tests.autogen.scripted import INFO, asks, client, says
from tests.autogen.strategies import images, texts

HELLO = [UserMessage(content="hello", source="user")]


class Answer(BaseModel):
    text: str


async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def calls(session: rb.Session) -> list[Inference]:
    return [c.body for c in session if isinstance(c.body, Inference)]


def items(session: rb.Session, call: Inference) -> list[bytes]:
    assert isinstance(call.input, TreeRef)
    backend = session.store.backend
    names = [raw.hex() for raw in read_list(call.input, backend.objects)]
    return [backend.objects([name])[name] for name in names]


async def test_11505_a_call_is_recorded_whole_under_the_run_that_made_it(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client(asks("pay", '{"n": 3}', thought="hm")))
    with rb.record(store, "s") as recorder, recorder.run("graph", "graph") as run:
        tool = FunctionTool(pay, description="pay")
        result = await model.create(
            HELLO,
            tools=[tool],
            tool_choice="required",
            json_output=Answer,
            extra_create_args={"temperature": 0.5, "type": Answer},
        )
    session = store.session("s")
    (call,) = calls(session)
    assert items(session, call) == [b'{"content":"hello","source":"user","type":"UserMessage"}']
    assert call.request["tools"][0]["name"] == "pay"
    assert call.request["tool_choice"] == "required"
    assert call.request["params"]["temperature"] == 0.5
    assert call.request["output_schema"]["title"] == "Answer"
    assert [part["type"] for part in call.output] == ["reasoning", "tool_call"]
    assert (call.provider, call.observer, call.streamed, call.agent) == ("replay", "model", False, "graph")
    assert call.finish_reasons == ("function_calls",)
    assert (session.usage().input_tokens, session.usage().output_tokens) == (5, 6)
    chunk = next(c for c in session if c.kind == "inference")
    assert chunk.run == run.id
    assert chunk.native is not None
    assert CreateResult.model_validate_json(chunk.native.data) == result


async def test_a_stream_passes_through_and_is_recorded(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client("one two three"))
    with rb.record(store, "s"):
        came = [item async for item in model.create_stream(HELLO)]
    assert came[:3] == ["one ", "two ", "three"]
    (call,) = calls(store.session("s"))
    assert call.streamed
    assert call.time_to_first_chunk is not None
    assert call.output == ({"type": "text", "content": "one two three"},)
    assert call.error is None


async def test_a_stream_that_is_closed_early_leaves_what_had_come(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client("one two three"))
    with rb.record(store, "s"):
        stream = model.create_stream(HELLO)
        assert await anext(stream) == "one "
        await stream.aclose()
    (call,) = calls(store.session("s"))
    assert call.output == ({"type": "text", "content": "one "},)
    assert call.error == "the stream was closed before its end"
    assert call.usage is None


class Slow(ReplayChatCompletionClient):
    """A model that never comes to its answer."""

    async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
        await asyncio.sleep(300)
        return await super().create(*args, **kwargs)

    async def create_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        yield "half an ans"
        await asyncio.sleep(300)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_call_is_recorded(store: rb.Store, streamed: bool) -> None:
    model = RecordingChatCompletionClient(Slow(["x"], INFO))

    async def ask() -> None:
        if streamed:
            async for _ in model.create_stream(HELLO):
                pass
        else:
            await model.create(HELLO)

    with rb.record(store, "s"), pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(), 0.05)
    (call,) = calls(store.session("s"))
    assert call.error is not None
    assert call.error.startswith("CancelledError")
    assert call.output == (({"type": "text", "content": "half an ans"},) if streamed else ())


async def test_a_failed_call_is_recorded_and_raises_as_before(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client())
    with rb.record(store, "s"), pytest.raises(ValueError, match="No more mock responses"):
        await model.create(HELLO)
    (call,) = calls(store.session("s"))
    assert call.error == "ValueError: No more mock responses available"


async def test_a_repeated_prompt_shares_its_items(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client(*["ok"] * 30))
    said = [UserMessage(content=f"message {n}", source="user") for n in range(30)]
    with rb.record(store, "s"):
        for n in range(1, 31):
            await model.create(said[:n])
    session = store.session("s")
    for n, call in enumerate(calls(session), 1):
        assert len(items(session, call)) == n


async def test_each_message_is_encoded_once(store: rb.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that repeats the whole history costs what is new in it."""
    encoded: list[Any] = []
    encode = Prompts._encode
    monkeypatch.setattr(Prompts, "_encode", lambda self, message: encoded.append(message) or encode(self, message))
    model, tool = RecordingChatCompletionClient(client(*["ok"] * 30)), FunctionTool(pay, description="Pay.")
    said: list[Any] = []
    with rb.record(store, "s"):
        for n in range(10):
            called = FunctionCall(id=f"c{n}", name="pay", arguments="{}")
            said += [UserMessage(content=f"message {n}", source="user"), AssistantMessage(content=[called], source="a")]
            said += [FunctionExecutionResultMessage(content=[result(f"c{n}", f"paid {n}")])]
            await model.create(list(said), tools=[tool])
    assert len(encoded) == 30
    assert [len(items(store.session("s"), call)) for call in calls(store.session("s"))] == list(range(3, 31, 3))
    assert calls(store.session("s"))[-1].request["tools"][0]["name"] == "pay"


def result(call_id: str, content: str) -> FunctionExecutionResult:
    return FunctionExecutionResult(content=content, name="pay", call_id=call_id, is_error=False)


async def test_what_its_owner_changed_in_place_is_seen(store: rb.Store) -> None:
    """Whoever trims a context changes messages that were sent before."""
    model = RecordingChatCompletionClient(client(*["ok"] * 5))
    answer = result("c1", "a long answer")
    said: list[Any] = [UserMessage(content="hello", source="user"), FunctionExecutionResultMessage(content=[answer])]
    with rb.record(store, "s"):
        await model.create(said)
        answer.content = "[trimmed]"
        await model.create(said)
        said[0].content = "goodbye"
        await model.create(said)
        await model.create(said[1:])
    texts = [[json.loads(item)["content"] for item in items(store.session("s"), call)] for call in calls(store.session("s"))]
    results = [content if isinstance(content, str) else content[0]["content"] for prompt in texts for content in prompt]
    assert results == ["hello", "a long answer", "hello", "[trimmed]", "goodbye", "[trimmed]", "[trimmed]"]
    assert not store.session("s").fsck()


async def test_a_thought_that_its_owner_took_out_in_place_is_seen(store: rb.Store) -> None:
    model, said = RecordingChatCompletionClient(client(*["ok"] * 2)), AssistantMessage(content="x", thought="hm", source="a")
    with rb.record(store, "s"):
        await model.create([said])
        said.thought = None
        await model.create([said])
    thoughts = [json.loads(items(store.session("s"), call)[0])["thought"] for call in calls(store.session("s"))]
    assert thoughts == ["hm", None]


@given(texts, images())
def test_a_message_is_written_as_its_dump(text: str, image: Image) -> None:
    """Pydantic's own writer is quicker, and writes the same bytes: items that were recorded before are the same items."""
    said: list[Any] = [
        SystemMessage(content=text),
        UserMessage(content=text, source=text),
        AssistantMessage(content=text, source="a"),
    ]
    said += [AssistantMessage(content=[FunctionCall(id=text, name="pay", arguments=text)], source="a", thought=text)]
    said += [FunctionExecutionResultMessage(content=[result("c1", text)]), UserMessage(content=[text, image], source="user")]
    tree, objects = Prompts(None).grow(said)
    for name, message in zip(tree.items, said, strict=True):
        assert objects[name.hex()] == to_bytes(message.model_dump(mode="json"))


async def test_secrets_are_out_of_the_prompt_before_it_is_hashed(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client("ok"))
    with rb.record(store, "s"):
        await model.create([UserMessage(content="the key is sk-proj-abcdefghijklmnopqrstuvwxyz", source="user")])
    session = store.session("s")
    (call,) = calls(session)
    assert b"[redacted:openai-key]" in items(session, call)[0]


async def test_tools_that_are_equal_and_not_the_same_are_recorded_as_they_were_offered(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client("ok", "ok", "ok"))
    limits: dict[str, Any] = {"type": "object", "properties": {}, "default": 1}
    with rb.record(store, "s"):
        for default in (1, True, 1.0):
            limits["default"] = default
            await model.create(HELLO, tools=[{"name": "pay", "parameters": cast(Any, limits)}])
    offered = [call.request["tools"][0]["parameters"]["default"] for call in calls(store.session("s"))]
    assert [repr(default) for default in offered] == ["1", "True", "1.0"]


async def test_a_prompt_from_which_a_rule_of_ones_own_takes_much_stays_json(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client("ok"))
    with rb.record(store, "s", redactor=Redactor.of({"token": "token: .*", "lines": "a\nsecret"})):
        await model.create([UserMessage(content="a\nsecret, token: abc", source="user")])
    session = store.session("s")
    (call,) = calls(session)
    assert json.loads(items(session, call)[0])["content"] == "[redacted:lines], [redacted:token]"


async def test_secrets_are_out_of_the_tools_and_the_answer(store: rb.Store) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz"
    model = RecordingChatCompletionClient(client("ok", f"use {secret}"))
    with rb.record(store, "s"):
        await model.create(HELLO, tools=[FunctionTool(pay, description=f"Pay with {secret}.")])
        await model.create(HELLO, tools=[FunctionTool(pay, description="Pay.")])
    first, second = calls(store.session("s"))
    assert first.request["tools"][0]["description"] == "Pay with [redacted:openai-key]."
    assert second.output == ({"type": "text", "content": "use [redacted:openai-key]"},)
    assert second.request["tools"][0]["description"] == "Pay."
    assert not any(secret.encode() in data for data in everything(store.session("s")))


def everything(session: rb.Session) -> list[bytes]:
    names = [ref["digest"] for chunk in session if (ref := chunk.native_ref) is not None]
    return [*(chunk.body_bytes or b"" for chunk in session), *session.store.backend.objects(names).values()]


async def test_its_own_store_and_session(store: rb.Store) -> None:
    model = RecordingChatCompletionClient(client("a", "b", "c"), store, "mine")
    await model.create(HELLO)
    with rb.record(store, "other"):
        await model.create(HELLO)
    with rb.record(store, "mine"):
        await model.create(HELLO)
    await model.close()
    assert len(calls(store.session("mine"))) == 3
    assert not calls(store.session("other"))
    with pytest.raises(ValueError, match="without a store"):
        RecordingChatCompletionClient(client(), session="mine")


async def test_without_any_recorder_it_says_once_that_it_does_not_record(caplog: pytest.LogCaptureFixture) -> None:
    model = RecordingChatCompletionClient(client("a", "b"))
    with caplog.at_level(logging.WARNING, "rath_bridge"):
        await model.create(HELLO)
        await model.create(HELLO)
    assert [r.message for r in caplog.records if "not recorded" in r.message] == [caplog.records[0].message]


async def test_everything_else_is_the_clients_own() -> None:
    inner = client(says("hello"))
    model = RecordingChatCompletionClient(inner)
    assert model.model_info == INFO
    assert model.count_tokens(HELLO) == 1
    assert model.remaining_tokens(HELLO) == 10000
    assert model.total_usage() == RequestUsage(0, 0)
    assert model.actual_usage() == RequestUsage(0, 0)
    assert model.dump_component() == inner.dump_component()
    assert model.create_calls == []
    with pytest.warns(DeprecationWarning, match="use model_info"):
        assert model.capabilities == INFO
    with pytest.raises(AttributeError):
        _ = model.nothing_of_that_name


async def test_what_cannot_be_recorded_never_breaks_the_call(store: rb.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    model = RecordingChatCompletionClient(client("fine"))
    monkeypatch.setattr(model, "prompts", lambda _: 1 / 0)
    with rb.record(store, "s"):
        assert (await model.create(HELLO)).content == "fine"
    assert [c.values["reason"] for c in store.session("s") if c.kind == "gap"] == [
        "cannot record a model call of AutoGen (ZeroDivisionError: division by zero)"
    ]
