"""OpenRath itself writes the samples: its files, its lineage export, its live sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rath.llm import RathLLMToolCallFunction, RathLLMToolCallPart
from rath.llm.chat_response import RathLLMTokenUsage
from rath.session import Session
from rath.session.chunk import ChunkRow, ChunkTable, assistant_turn_chunk, system_text_chunk, tool_feedback_chunk, user_text_chunk
from rath.session.graph.export import export_jsonl
from rath.session.persistence import PersistenceError, SessionWriter, load_session

import rath_bridge as rb
from rath_bridge.errors import DecodeError, UnknownFormatError
from rath_bridge.interchange import format_of
from rath_bridge.interchange.reading import parse
from rath_bridge.model.kinds import Placement, Usage
from rath_bridge.plugins import Adapter
from rath_bridge.plugins import adapter as named
from rath_bridge.testing import AdapterContract, Sample
from rath_openrath import export_session, import_session
from tests.cli_store import run


def call(name: str, arguments: str, call_id: str) -> RathLLMToolCallPart:
    function = RathLLMToolCallFunction(name=name, arguments=arguments, arguments_parsed=None, arguments_parse_error=False)
    return RathLLMToolCallPart(id=call_id, type="function", function=function)


def live(*more: ChunkRow, usage: bool = True) -> Session:
    """A session as OpenRath's loop leaves it."""
    rows = (
        system_text_chunk("Be brief."),
        user_text_chunk("count \u2028 these: " + "word " * 200),
        assistant_turn_chunk(tool_calls=(call("word_count", '{"text": "a b"}', "c1"), call("word_count", "{torn", "c2"))),
        tool_feedback_chunk("c1", "word_count", '{"words": 2}'),
        tool_feedback_chunk("c2", "word_count", "Error"),
        assistant_turn_chunk(tool_calls=None, content="two words"),
    )
    session = Session.from_user_message("x")
    session.chunk_table = ChunkTable(rows=(*rows, *more))
    if usage:
        session.cumulative_usage = RathLLMTokenUsage(30, 12, 42, {"reasoning_tokens": 3}, {"cached_tokens": 4})
    return session


def facts(session: Any) -> Any:
    """What a live session is, apart from its resources."""
    if not isinstance(session, Session):
        return session
    return (
        session.id, session.chunk_table.rows, session.parent_session_ids, session.lineage_operator, session.lineage_kind,
        session.lineage_extras, session.lineage, session.cumulative_usage, session.sandbox_backend, session._sandbox_open_spec,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenRath makes its folder as soon as it writes anything."""
    monkeypatch.setenv("OPENRATH_HOME", str(tmp_path / "openrath-home"))


def written(session: Session, folder: Path) -> bytes:
    """The file that OpenRath writes."""
    with SessionWriter(session, path=folder / f"{session.id}.jsonl") as writer:
        for index, row in enumerate(session.chunk_table.rows):
            writer.write_chunk(index, row)
    return (folder / f"{session.id}.jsonl").read_bytes()


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return named("openrath")

    @pytest.fixture
    def samples(self, tmp_path: Path) -> list[Sample]:
        one = live()
        placed = live(usage=False).fork().to("local", spec=str(tmp_path))
        records, _ = parse(written(one, tmp_path), "file")
        export_jsonl([one, one.fork(), one.merge(one.fork())], tmp_path / "lineage.jsonl")
        rows, _ = parse((tmp_path / "lineage.jsonl").read_bytes(), "lineage")
        unknown = [records[0], {"record_type": "chunk", "index": 0, "kind": "later", "payload": {"x": 1}}, *records[1:]]
        return [
            Sample(one, "session"),
            Sample(placed, "session"),
            Sample(records),
            Sample(rows),
            Sample(unknown),
            Sample(rows, "lineage"),
        ]

    def serialised(self, native: Any) -> Any:
        return facts(native)


def test_the_neutral_form_is_read() -> None:
    session = rb.open_store("memory:").create("s").append(*rb.decode(live()))
    assert [one.role for one in session.messages()] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [(one.call_id, one.name, one.status) for one in session.calls()] == [
        ("c1", "word_count", "ok"),
        ("c2", "word_count", "ok"),
    ]
    assert session.usage() == Usage(input_tokens=30, output_tokens=12, cache_read_input_tokens=4)


def test_its_placement_is_kept(tmp_path: Path) -> None:
    session = import_session(rb.open_store("memory:"), live().to("local", spec=str(tmp_path)))
    assert session.placement == Placement(backend="local", root=str(tmp_path), spec={"working_dir": str(tmp_path)})


def test_one_call_gives_a_session_and_the_same_again_changes_nothing(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        one = live()
        session = import_session(store, one)
        assert session.name == f"openrath/{one.id}"
        assert session.fsck() == []
        assert import_session(store, one) == session
        one.chunk_table = one.chunk_table.extend(user_text_chunk("and these?"))
        grown = import_session(store, one)
        assert [m.text for m in grown.messages()][-1] == "and these?"
        assert facts(export_session(session)) == facts(live_like(one, session))
        diff = session.diff(grown)
        assert diff is not None
        with pytest.raises(UnknownFormatError):
            import_session(store, object())


def live_like(one: Session, session: rb.Session) -> Session:
    """The session as it was before it grew."""
    return Session(
        ChunkTable(rows=one.chunk_table.rows[: len(session.messages())]), id=one.id, lineage_operator=one.lineage_operator,
        lineage_kind=one.lineage_kind, cumulative_usage=one.cumulative_usage,
    )  # fmt: skip


def test_a_file_that_openrath_cannot_load_goes_in_and_comes_out_loadable(tmp_path: Path, sqlite_url: str) -> None:
    one = live()
    data = written(one, tmp_path)
    with pytest.raises(PersistenceError):
        load_session(one.id, path=tmp_path / f"{one.id}.jsonl")
    out = tmp_path / "out.jsonl"
    assert run("import", str(tmp_path), store=sqlite_url).exit_code == 0
    result = run("export", f"openrath/{one.id}", "--to", "openrath", "-o", str(out), "--strict", store=sqlite_url)
    assert result.exit_code == 0, result.stderr
    assert [json.loads(line) for line in out.read_bytes().split(b"\n") if line] == parse(data, "file")[0]
    again = load_session(one.id, path=out)
    assert again.chunk_table.rows == one.chunk_table.rows
    assert again.header.id == one.id
    assert again.closed


def test_a_crashed_file_and_a_second_header(tmp_path: Path) -> None:
    one = live()
    lines = written(one, tmp_path).split(b"\n")
    crashed = b"\n".join(lines[:3]) + b'\n{"record_type": "chu'
    records, torn = parse(crashed, "crashed")
    assert torn == 20
    assert [m.role for m in imported(records).messages()] == ["system", "user"]
    assert rb.encode(imported(records), "openrath")[0] == records
    twice, _ = parse(b"\n".join([*lines[:3], *lines]), "twice")
    session = imported(twice)
    assert len(session.messages()) == 6
    assert [chunk.kind for chunk in session.chunks()][:4] == ["session", "note", "note", "note"]
    native, report = rb.encode(session, "openrath")
    assert native == twice
    assert report.exact
    header_last, _ = parse(b"\n".join([*lines[:-2], lines[0]]), "header last")
    assert rb.encode(imported(header_last), "openrath")[0] == header_last


def imported(records: Any) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*rb.decode(records))


def test_a_foreign_session_runs_on_in_openrath() -> None:
    session = rb.open_store("memory:").create("s").append(rb.message("user", "hi"), rb.message("assistant", "hello"))
    found = export_session(session)
    assert found.text() == "hello"
    assert found.lineage_extras[0][1]["head"] == session.head
    assert facts(export_session(session)) == facts(found)
    assert facts(found.fork())[1] == facts(found)[1]
    (row,), report = rb.encode(session, "openrath", as_="lineage")
    assert row["chunk_count"] == 2
    assert len(report.losses) == 2


def test_what_came_later_gets_a_trailer_of_its_own(tmp_path: Path) -> None:
    records, _ = parse(written(live(), tmp_path), "file")
    native, report = rb.encode(imported(records).append(rb.message("user", "more")), "openrath")
    assert [one.get("index") for one in native] == [None, *range(7), None]
    assert native[-1]["final_chunk_count"] == 7
    assert native[-1]["cumulative_usage"] == {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    assert report.exact


@pytest.mark.parametrize(
    ("damaged", "path"),
    [
        ([{"record_type": "header"}, {"record_type": "chunk", "kind": 5}], "[1].kind"),
        ([{"record_type": "chunk", "kind": "user", "payload": []}], "[0].payload"),
        ([{"record_type": "chunk", "kind": "user", "payload": {"content": 5}}], "[0].payload.content"),
        ([{"record_type": "trailer", "cumulative_usage": 5}], "[0].cumulative_usage"),
        ([{"record_type": "header", "sandbox_backend": 1}], "[0].sandbox_backend"),
    ],
)
def test_damage_is_named_by_its_path(damaged: Any, path: str) -> None:
    assert format_of(damaged) is named("openrath")
    with pytest.raises(DecodeError) as caught:
        rb.decode(damaged)
    assert caught.value.path == path


def test_a_payload_that_is_no_json_is_named() -> None:
    with pytest.raises(DecodeError, match="OpenRath session"):
        rb.decode(live(ChunkRow(kind=user_text_chunk("x").kind, payload={"content": "x", "when": object()})))
