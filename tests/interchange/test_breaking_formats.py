"""Files and places that nobody should use: what comes in goes home as it stood, and nothing is half-written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.cli import exchange
from rath_bridge.errors import DecodeError
from rath_bridge.interchange import format_named, otlp
from rath_bridge.interchange.importing import import_document
from rath_bridge.interchange.reading import read
from tests.cli_store import run

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def span(number: int, parent: int | None = None, operation: str | None = "chat", **more: Any) -> dict[str, Any]:
    asked = [] if operation is None else [{"key": "gen_ai.operation.name", "value": {"stringValue": operation}}]
    above = {} if parent is None else {"parentSpanId": f"{parent:016x}"}
    return {
        "traceId": "a" * 32, "spanId": f"{number:016x}", **above, "name": f"s{number}", "kind": 1,
        "startTimeUnixNano": str(1_790_000_000_000_000_000 + number), "endTimeUnixNano": str(1_790_000_000_000_000_100 + number),
        "attributes": asked, **more,
    }  # fmt: skip


def trace(*spans: dict[str, Any], **scope: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{**scope, "spans": [*spans]}]}]}


def taken(store: rb.Store, obj: Any) -> list[rb.Session]:
    found = [import_document(store, one) for one in read(json.dumps(obj).encode(), "file.json")]
    return [store.session(one.session) for one in found]


@pytest.mark.parametrize(
    "document",
    [
        trace(span(1, None, "invoke_agent"), span(2, 1)),
        trace(span(1, 2, "invoke_agent"), span(2, 1, "invoke_agent"), span(3, 2)),  # a circle
        trace(span(1, 1), span(2, 99, links=[{"traceId": "b" * 32, "spanId": "c" * 16}])),  # itself, and nowhere
        trace(span(1, None, "invoke_agent"), span(1, None, "invoke_agent"), span(2, 1), span(2, 1), span(2, 1, None)),  # twice
        trace(span(1, None, None), span(1, None, None, name="another of the same id")),
        trace(span(1, endTimeUnixNano="5"), span(2, 1, startTimeUnixNano=str(2**64 - 1))),
        trace(span(1), scope={"name": "\ud800", "version": "\udcff"}),
    ],
)
def test_spans_of_an_imported_file_go_home_exactly(document: Any) -> None:
    store = rb.open_store("memory:")
    (session,) = taken(store, document)
    assert otlp.encode(session)[0] == document
    assert session.fsck() == []
    assert [one.name for one in taken(store, document)] == [session.name]


def test_the_same_span_in_two_places_goes_home_to_both() -> None:
    document = trace(span(1))
    document["resourceSpans"].append(
        {"resource": {"attributes": [], "x": 1}, "scopeSpans": [{"scope": {"name": "b"}, "spans": [span(1)]}]}
    )
    (session,) = taken(rb.open_store("memory:"), document)
    assert otlp.encode(session)[0] == document
    assert session.usage().input_tokens is None or session.usage().input_tokens == 0


def test_a_file_that_changed_in_the_middle_goes_home_from_its_branch() -> None:
    store = rb.open_store("memory:")
    taken(store, trace(span(1), span(2)))
    (branch,) = taken(store, trace(span(1), span(3)))
    assert otlp.encode(branch)[0] == trace(span(1), span(3))


def test_what_is_said_after_an_import_still_goes_out() -> None:
    (session,) = taken(rb.open_store("memory:"), trace(span(1)))
    session = session.append(rb.message("user", "more"))
    assert len(otlp.encode(session)[1].losses) == 1


def test_a_chain_of_many_spans_takes_steps_in_its_length() -> None:
    def steps(count: int) -> int:
        chain = trace(*(span(n, n - 1 if n > 1 else None, "chat" if n == count else None) for n in range(1, count + 1)))
        lines = 0

        def trace_lines(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return trace_lines

        sys.settrace(trace_lines)
        try:
            otlp.decode(chain)
        finally:
            sys.settrace(None)
        return lines

    assert steps(800) < 5 * steps(200)


@pytest.mark.parametrize("name", ["otlp", "openrath"])
@pytest.mark.parametrize("obj", [TALK, [{"a": 1}]])
def test_a_file_that_is_not_of_the_named_format_is_refused(name: str, obj: Any) -> None:
    with pytest.raises(DecodeError, match=r"file\.json:1 at \[0\]"):
        [one.decode() for one in read(json.dumps(obj).encode(), "file.json", name)]


@pytest.mark.parametrize("obj", [[], {}, {"resourceSpans": []}, [{"resourceLogs": []}]])
def test_a_file_with_nothing_in_it_makes_no_session_however_often(obj: Any) -> None:
    store = rb.open_store("memory:")
    for _ in range(2):
        for one in read(json.dumps(obj).encode(), "file.json", "otlp"):
            done = import_document(store, one)
            assert (done.status, done.chunks) == ("empty", 0)
    assert list(store.sessions()) == []


@pytest.mark.parametrize("order", ["lt", "mlt", "tl", "ltmt"])
def test_a_collectors_file_may_hold_logs_and_metrics_before_and_between_traces(order: str) -> None:
    """One file exporter for all three signals writes them as they come."""
    rows = {"l": {"resourceLogs": [{"scopeLogs": []}]}, "m": {"resourceMetrics": []}, "t": trace(span(1))}
    data = b"".join(json.dumps(rows[one]).encode() + b"\n" for one in order)
    (done,) = read(data, "signals.jsonl")
    assert done.format.name == "otlp"
    assert len(done.decode()) == 1


def test_lines_of_spans_that_grow_are_gone_on_with() -> None:
    documents = [trace(span(1)), trace(span(2000)), trace(span(4000))]
    store = rb.open_store("memory:")
    for count, status in ((1, "new"), (2, "grown"), (3, "grown"), (3, "unchanged")):
        data = b"".join(json.dumps(one).encode() + b"\n" for one in documents[:count])
        (done,) = (import_document(store, one) for one in read(data, "spans.jsonl"))
        assert done.status == status
        assert otlp.encode(store.session(done.session))[0] == (documents[:count] if count > 1 else documents[0])


def test_another_file_of_the_same_name_is_found_again_when_it_has_grown() -> None:
    store = rb.open_store("memory:")
    other = [{"role": "user", "content": "another"}, *TALK]
    names: list[tuple[str, str]] = []
    for talk in (TALK, other[:1], other[:2], other, TALK):
        (done,) = (import_document(store, one) for one in read(json.dumps(talk).encode(), "talk.json"))
        names.append((done.session.partition("~")[0], done.status))
    assert names == [("import/talk", status) for status in ("new", "new", "grown", "grown", "unchanged")]
    assert len(list(store.sessions())) == 2


def test_lines_of_spans_that_were_cut_go_home_without_a_span_of_ours() -> None:
    documents = [trace(span(1)), trace(span(2))]
    data = b"".join(json.dumps(one).encode() + b"\n" for one in documents) + b'{"resourceSpans": [{'
    store = rb.open_store("memory:")
    (done,) = (import_document(store, one) for one in read(data, "spans.jsonl"))
    assert done.torn == 20
    assert otlp.encode(store.session(done.session))[0] == documents


def test_protobuf_that_was_cut_is_named_as_such() -> None:
    data = otlp.dumps_protobuf(trace(span(1), span(2)))
    assert len(list(read(data, "spans.pb", "otlp"))) == 1
    with pytest.raises(DecodeError, match=r"spans\.pb:\d+.*not what otlp reads, cut"):
        list(read(data[:-3], "spans.pb", "otlp"))


def test_an_empty_name_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    monkeypatch.chdir(tmp_path)
    result = run("import", "", store="sqlite:///runs.db")
    assert result.exit_code == 2
    assert "without a name" in result.stderr
    assert not (tmp_path / "runs.db").exists()


def test_an_export_that_fails_leaves_what_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with rb.open_store(url) as store:
        taken(store, TALK)
    out = tmp_path / "out.json"
    link = tmp_path / "link.json"
    link.symlink_to(out)
    assert run("export", "import/file", "--to", "openai_messages", "-o", str(out), store=url).exit_code == 0
    stood = out.read_bytes()
    assert json.loads(stood) == TALK
    assert run("export", "import/file", "--to", "atif", "-o", str(out), store=url).exit_code == 2
    assert out.read_bytes() == stood

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(exchange.os, "replace", full)
        for path in (out, tmp_path / "other.json"):
            result = run("export", "import/file", "--to", "atif", "-o", str(path), "--force", store=url)
            assert result.exit_code != 0
            assert path.name in result.stderr
    assert out.read_bytes() == stood
    assert {path.name for path in tmp_path.glob("*.json*")} == {"out.json", "link.json"}
    assert not list(tmp_path.glob(".*.part"))
    assert run("export", "import/file", "--to", "atif", "-o", str(link), "--force", store=url).exit_code == 0
    assert link.is_symlink()
    assert format_named("atif").recognises(json.loads(out.read_bytes()))
