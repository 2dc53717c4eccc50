"""A process that OpenLLMetry instruments (it does not let go of LangChain again): ``python -m tests.otel.openllmetry_run STORE FILE``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

from agents import set_trace_processors
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.instrumentation.langchain import LangchainInstrumentor
from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rath_bridge as rb
from rath_bridge.otel import SessionSpanProcessor
from rath_langgraph import wrap
from rath_openai_agents import RathTracingProcessor
from tests.openai_agents.scripted import go, say, solo
from tests.otel.traced import provider


def graph() -> Any:
    """One model call in one node."""
    usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    model = GenericFakeChatModel(messages=iter([AIMessage("hello", usage_metadata=usage)]))
    made = StateGraph(cast(Any, MessagesState))
    made.add_node("answer", cast(Any, lambda state: {"messages": [model.invoke(state["messages"])]}))
    return made.add_edge(START, "answer").add_edge("answer", END).compile()


def main(url: str, file: str) -> None:
    """Run a graph and an agent under OpenLLMetry; their spans go to the sessions, and the graph's to a file of OTLP."""
    store = rb.open_store(url)
    made, _ = provider()
    exporter = InMemorySpanExporter()
    processor = SessionSpanProcessor(store)
    made.add_span_processor(processor)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    LangchainInstrumentor().instrument(tracer_provider=made)
    wrap(graph(), store, checkpointer="rath").invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t"}})
    Path(file).write_bytes(encode_spans(exporter.get_finished_spans()).SerializeToString())
    set_trace_processors([RathTracingProcessor(store)])
    OpenAIAgentsInstrumentor().instrument(tracer_provider=made)
    with rb.record(store, "ticket"):
        asyncio.run(go(solo([say("done")])))
    processor.force_flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
