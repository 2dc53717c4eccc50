"""``rath-bridge show`` of a model call: LangGraph keeps prompts in its own msgpack, and people read them all the same."""

from __future__ import annotations

import json
from pathlib import Path

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import MessagesState, StateGraph

import rath_bridge as rb
from rath_langgraph import wrap
from tests.cli_store import run


def test_the_prompt_of_a_model_call_is_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/prompts.db"
    answers: list[str | AIMessage] = [AIMessage("Fine.")]
    model = GenericFakeChatModel(messages=iter(answers))

    def answer(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [model.invoke([("system", "Be kind."), *state["messages"]])]}

    built = StateGraph(MessagesState).add_node("answer", answer).add_edge("__start__", "answer").compile()
    with rb.open_store(url) as store:
        wrap(built, store, session="s").invoke({"messages": [("user", "How are you?")]})
        chunk = next(one for one in store.session("s") if one.kind == "inference")
        tree = chunk.values["input"].digest
    shown = run("show", chunk.id[:8], store=url).stdout
    assert "- system: Be kind." in shown
    assert "- user: How are you?" in shown
    assert "usage: not on record" in shown
    told = json.loads(run("show", chunk.id, "--json", store=url).stdout)
    assert [part["content"] for one in told["prompt"] for part in one["parts"]] == ["Be kind.", "How are you?"]
    found = json.loads(run("show", tree[:8], "--json", store=url).stdout)
    assert found["messages"] == told["prompt"]
    item = run("show", found["items"][0][:10], store=url).stdout
    assert "system: Be kind." in item
