"""What lies beside the record: index entries, by which frameworks find their threads again, and spans for tracing tools."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

import rath_bridge as rb
from rath_bridge.evidence.beside import index_entry, index_lines
from rath_bridge.interchange import otlp
from rath_bridge.interchange.transfer import PacketOrigin, transfer
from rath_bridge.model.chunk import Key
from rath_bridge.store.memory import MemoryBackend
from rath_bridge.testing import strategies
from rath_langgraph import RathSaver
from tests.rich_session import rich_session
from tests.test_evidence_packet import contents
from tests.test_evidence_tamper import check, resummed


def graph(store: rb.Store) -> object:
    def bot(state: MessagesState) -> MessagesState:
        return {"messages": [AIMessage(f"re: {state['messages'][-1].content}")]}

    made = StateGraph(MessagesState)
    made.add_node("bot", bot)
    made.add_edge(START, "bot")
    return made.compile(checkpointer=RathSaver(store))


@pytest.mark.parametrize("taken", [False, True])
def test_an_imported_langgraph_thread_is_found_by_its_thread_id_and_goes_on(tmp_path: Path, taken: bool) -> None:
    store, config = rb.open_store("memory:"), {"configurable": {"thread_id": "1"}}
    app = graph(store)
    for text in ("one", "two"):
        app.invoke({"messages": [("user", text)]}, config)  # type: ignore[attr-defined]
    packet = rb.export_packet(store.sessions(), tmp_path / "p.zip")
    assert rb.verify_packet(packet).ok
    there = rb.open_store("memory:")
    if taken:
        there.create("langgraph/1")
    transfer(PacketOrigin(packet), there)
    other = graph(there)
    assert [m.content for m in other.get_state(config).values["messages"]] == ["one", "re: one", "two", "re: two"]  # type: ignore[attr-defined]
    assert len(list(other.get_state_history(config))) == len(list(app.get_state_history(config)))  # type: ignore[attr-defined]
    assert len(other.invoke({"messages": [("user", "three")]}, config)["messages"]) == 6  # type: ignore[attr-defined]
    assert list(there.fsck()) == []


@given(st.builds(Key, *[strategies.texts()] * 5), strategies.digests())
def test_any_index_entry_is_kept(key: Key, name: str) -> None:
    class Reader(MemoryBackend):
        def entries(self):  # type: ignore[no-untyped-def]
            yield key, name

    (line,) = index_lines([Reader()], {name})
    assert b"\n" not in line
    assert index_entry(line) == (key, name)


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"chunk":"x"}', b'{"chunk":"' + b"0" * 64 + b'","key":1}', b"\xff"])
def test_what_is_no_index_entry_is_a_finding(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        index_entry(line)
    files = contents(rb.export_packet(rich_session(rb.open_store("memory:"), turns=1), tmp_path / "p.zip"))
    report = check(resummed(files | {"index.jsonl": files["index.jsonl"] + line + b"\n"}), "zip")
    assert [found.path.partition(":")[0] for found in report.findings] == ["index.jsonl"]


def test_an_index_entry_that_leads_elsewhere_is_a_finding(tmp_path: Path) -> None:
    files = contents(rb.export_packet(rich_session(rb.open_store("memory:"), turns=1), tmp_path / "p.zip"))
    line = b'{"chunk":"' + b"0" * 64 + b'","framework":"langgraph"}\n'
    report = check(resummed(files | {"index.jsonl": line}), "directory")
    assert [found.object for found in report.findings] == ["0" * 64]


def test_the_spans_are_otlp_as_a_collector_writes_it_each_once(tmp_path: Path) -> None:
    s = rich_session(rb.open_store("memory:"))
    files = contents(rb.export_packet(s, tmp_path / "p.zip"))
    documents = [orjson.loads(line) for line in files["spans.otlp.jsonl"].splitlines()]
    spans = [one for d in documents for r in d["resourceSpans"] for scope in r["scopeSpans"] for one in scope["spans"]]
    ids = [(one["traceId"], one["spanId"]) for one in spans]
    assert len(ids) == len(set(ids))
    assert {"chat m", "execute_tool search"} <= {one["name"] for one in spans}
    assert b"found 0" not in files["spans.otlp.jsonl"]  # content stands in the record alone
    back = rb.open_store("memory:").create("back").append(*otlp.decode(documents))
    assert sum(chunk.kind == "tool_call" for chunk in back) == 3
