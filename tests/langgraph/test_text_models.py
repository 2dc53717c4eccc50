"""Text models (`BaseLLM`) are recorded and served in a replay as chat models are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langchain_core.language_models.llms import BaseLLM
from langchain_core.outputs import Generation, GenerationChunk, LLMResult
from langgraph.graph import START, StateGraph

import rath_bridge as rb
from rath_bridge.model.kinds import Inference
from rath_bridge.session import Store
from rath_langgraph import wrap
from tests.langgraph.graphs import thread

RAN: list[str] = []


@pytest.fixture
def store() -> Iterator[Store]:
    RAN.clear()
    with rb.open_store("memory:") as opened:
        yield opened


class Text(BaseLLM):
    """A text model that tells when it is called."""

    @property
    def _llm_type(self) -> str:
        return "text"

    def _generate(self, prompts: list[str], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> LLMResult:
        RAN.extend(prompts)
        if "fail" in prompts[0]:
            raise ConnectionError("provider is down")
        rows = [[Generation(text=f"{one} is {len(one)} long", generation_info={"finish_reason": "stop"})] for one in prompts]
        usage = {"prompt_tokens": 3 * len(prompts), "completion_tokens": 4 * len(prompts)}
        return LLMResult(generations=rows, llm_output={"model_name": "text-1", "token_usage": usage})  # type: ignore[arg-type]


class Streaming(Text):
    """One that streams, and tells so."""

    def _stream(self, prompt: str, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[GenerationChunk]:
        RAN.append(prompt)
        for word in prompt.split():
            piece = GenerationChunk(text=word)
            if run_manager is not None:
                run_manager.on_llm_new_token(word, chunk=piece)
            yield piece


class Said(TypedDict):
    """What was asked and said."""

    ask: str
    said: list[str]


def _called(model: BaseLLM, way: str, ask: str) -> list[str]:
    if way == "invoke":
        return [model.invoke(ask, stop=["."])]
    if way == "stream":
        return ["".join(model.stream(ask))]
    return model.batch([ask, f"{ask} again"])


def _graph(model: BaseLLM, way: str) -> Any:
    def node(state: Said) -> dict[str, Any]:
        try:
            return {"said": _called(model, way, state["ask"])}
        except ConnectionError as error:
            return {"said": [f"sorry: {error}"]}

    async def anode(state: Said) -> dict[str, Any]:
        if way == "ainvoke":
            return {"said": [await model.ainvoke(state["ask"])]}
        return {"said": ["".join([piece async for piece in model.astream(state["ask"])])]}

    graph = StateGraph(Said)
    graph.add_node("node", anode if way in ("ainvoke", "astream") else node)
    graph.add_edge(START, "node")
    return graph.compile()


def _run(app: Any, way: str, ask: str = "a question") -> Any:
    if way in ("ainvoke", "astream"):
        return asyncio.run(app.ainvoke({"ask": ask}, thread()))
    return app.invoke({"ask": ask}, thread())


@pytest.mark.parametrize("kind", [Text, Streaming])
@pytest.mark.parametrize("way", ["invoke", "stream", "batch", "ainvoke", "astream"])
def test_a_text_model_is_served(store: Store, kind: type[Text], way: str) -> None:
    app = wrap(_graph(kind(), way), store, session="s", checkpointer="rath")
    said = _run(app, way)["said"]
    recorded = [c.body for c in store.session("s") if isinstance(c.body, Inference)]
    assert len(recorded) == len(said)
    assert RAN != []
    RAN.clear()
    report = rb.replay(store.session("s"), lambda: _run(app, way))
    assert report.divergence is None
    assert (report.equal, report.live, report.unused, report.reasons, RAN) == (True, 0, (), (), [])
    assert report.value["said"] == said
    assert (asyncio.run(rb.areplay(store.session("s"), app)) if way.startswith("a") else rb.replay(store.session("s"), app)).equal


def test_a_failing_text_model_fails_again(store: Store) -> None:
    app = wrap(_graph(Text(), "invoke"), store, session="s", checkpointer="rath")
    assert _run(app, "invoke", "fail")["said"] == ["sorry: provider is down"]
    RAN.clear()
    report = rb.replay(store.session("s"), lambda: _run(app, "invoke", "fail"))
    assert (report.equal, report.value["said"], RAN) == (True, ["sorry: provider is down"], [])


def test_another_prompt_of_a_text_model_is_named(store: Store) -> None:
    app = wrap(_graph(Text(), "invoke"), store, session="s", checkpointer="rath")
    _run(app, "invoke")
    RAN.clear()
    report = rb.replay(store.session("s"), lambda: _run(app, "invoke", "another question"))
    assert (report.equal, report.live, RAN) == (False, 0, [])
    assert report.divergence is not None
    assert (report.divergence.found, report.divergence.expected) == ("another question", "a question")


def test_a_what_if_changes_the_answer_of_a_text_model(store: Store) -> None:
    app = wrap(_graph(Text(), "invoke"), store, session="s", checkpointer="rath")
    _run(app, "invoke")
    (call,) = [c for c in store.session("s") if isinstance(c.body, Inference)]
    report = rb.replay(store.session("s"), lambda: _run(app, "invoke"), overrides={call: "something else"}, then="live")
    assert report.value["said"] == ["something else"]


def test_an_answer_that_was_not_kept_is_a_reason(store: Store) -> None:
    app = wrap(_graph(Text(), "invoke"), store, checkpointer="rath")
    with rb.record(store, "s", record_content=False):
        _run(app, "invoke")
    report = rb.replay(store.session("s"), lambda: _run(app, "invoke"))
    assert report.equal is None
    assert "answers of models were not kept" in " ".join(report.reasons)
