"""Packets and other stores come in whole: the same chunks with the same ids."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.errors import MissingObjectError
from rath_bridge.interchange.transfer import StoreOrigin, transfer
from rath_bridge.maintenance import redact
from rath_bridge.model.chunk import Draft, Key, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Note
from rath_bridge.model.trees import list_tree
from rath_bridge.store import sqlite
from tests.cli_store import fill, run
from tests.interchange.test_cli_import import imported


def heads(url: str) -> dict[str, str]:
    with rb.open_store(url) as store:
        assert list(store.fsck()) == []
        return {ref.name: ref.head for ref in store.backend.refs()}


@pytest.fixture
def source(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'source.db'}"
    fill(url).close()
    return url


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'target.db'}"


@pytest.mark.parametrize("form", ["packet.zip", "packet"])
def test_a_packet_comes_in_and_goes_out_again_the_same(form: str, tmp_path: Path, source: str, target: str) -> None:
    with rb.open_store(source) as store:
        rb.export_packet([store.session("ticket-4711"), store.session("copy")], tmp_path / form)
    done = imported(str(tmp_path / form), url=target)
    assert set(done.values()) == {"new"}
    assert heads(target) == heads(source)
    assert set(imported(str(tmp_path / form), url=target).values()) == {"unchanged"}
    with rb.open_store(target) as there, rb.open_store(source) as here:
        s, o = there.session("ticket-4711"), here.session("ticket-4711")
        assert [m.text for m in s.messages()] == [m.text for m in o.messages()]
        assert s.usage() == o.usage()
        more = s.append(rb.message("user", "and on"))
        assert more.fsck() == []
    assert set(imported(str(tmp_path / form), url=target).values()) == {"unchanged"}  # it has only gone on here


def test_a_store_comes_in_and_what_grew_moves_forward(source: str, target: str, tmp_path: Path) -> None:
    assert run("import", source, "--dry-run", store=target).exit_code == 0
    assert not (tmp_path / "target.db").exists()
    assert set(imported(source, url=target).values()) == {"new"}
    assert heads(target) == heads(source)
    with rb.open_store(source) as store:
        store.session("ticket-4711@try-b").append(rb.message("user", "more"))
        store.session("copy").append(rb.message("user", "there"))
    with rb.open_store(target) as store:
        store.session("copy").append(rb.message("user", "here"))
    done = imported(str(tmp_path / "source.db"), url=target)
    assert done.pop("ticket-4711") == "unchanged"
    assert done.pop("ticket-4711@try-b") == "grown"
    ((name, status),) = done.items()
    assert status == "branched"
    assert name.startswith("copy@import-")
    with rb.open_store(target) as store:
        assert store.session(name).messages()[-1].text == "there"
        assert store.session("copy").messages()[-1].text == "here"
        assert store.session("ticket-4711@try-b").messages()[-1].text == "more"
    assert set(imported(source, url=target).values()) == {"unchanged"}
    assert set(heads(source)) < set(heads(target))


def test_another_session_of_the_same_name_is_another_session(source: str, target: str) -> None:
    with rb.open_store(target) as store:
        store.create("copy").append(rb.message("user", "mine"))
    done = imported(source, url=target)
    other = next(name for name in done if name.startswith("copy"))
    assert other.startswith("copy~")
    assert set(imported(source, url=target).values()) == {"unchanged"}
    with rb.open_store(target) as store:
        assert [m.text for m in store.session("copy").messages()] == ["mine"]


def test_a_packet_with_a_fault_brings_nothing(source: str, target: str, tmp_path: Path) -> None:
    with rb.open_store(source) as store:
        rb.export_packet(store.session("copy"), tmp_path / "packet")
    lines = (tmp_path / "packet" / "bodies.jsonl").read_bytes()
    (tmp_path / "packet" / "bodies.jsonl").write_bytes(lines.replace(b"invoice", b"Invoice", 1))
    result = run("import", str(tmp_path / "packet"), store=target)
    assert result.exit_code == 3
    assert "rath-bridge verify" in result.stderr
    assert heads(target) == {}


def test_a_store_that_is_not_there_is_not_made(target: str, tmp_path: Path) -> None:
    result = run("import", f"sqlite:///{tmp_path / 'none.db'}", store=target)
    assert result.exit_code == 4
    assert not (tmp_path / "none.db").exists()


LONG = "a long text that is said once more, " * 20
ITEMS = [f'{{"content": "item {number}"}}'.encode() for number in range(40)]


def state(text: str) -> Draft:
    tree, nodes = list_tree([bytes.fromhex(digest(item)) for item in ITEMS])
    return draft(Note(text=text, attributes={"state": tree.ref}), objects={**nodes, **{digest(item): item for item in ITEMS}})


@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_what_was_erased_here_does_not_come_back_and_what_is_new_comes_whole(kind: str, source: str, target: str) -> None:
    with rb.open_store(source) as there, rb.open_store(kind if kind == "memory:" else target) as here:
        s = there.create("t").append(rb.message("user", LONG), state("first"))
        transfer(StoreOrigin(there.backend, "there"), here)
        redact(here, [chunk.id for chunk in s][1:], reason="r")
        with pytest.raises(MissingObjectError):
            here.backend.objects([digest(ITEMS[0])])
        s.append(rb.message("user", "more"))
        transfer(StoreOrigin(there.backend, "there"), here)
        for name in (LONG.encode(), ITEMS[0]):  # known chunks bring no content again
            with pytest.raises(MissingObjectError):
                here.backend.objects([digest(name)])
        there.session("t").append(state("second"))  # a newer chunk stands on the same tree
        transfer(StoreOrigin(there.backend, "there"), here)
        assert list(here.fsck()) == []
        assert here.backend.objects([digest(item) for item in ITEMS])
        assert here.session(next(one.name for one in here.sessions() if one.session == "t")).fsck() == []


@pytest.mark.parametrize("form", ["packet", "store"])
def test_what_was_erased_there_and_stands_here_is_named_with_the_command_that_takes_it(
    form: str, source: str, target: str, tmp_path: Path
) -> None:
    def from_there() -> str:
        if form == "store":
            return source
        with rb.open_store(source) as store:
            return str(rb.export_packet(store.sessions(), tmp_path / "p.zip", overwrite=True))

    with rb.open_store(source) as there:
        s = there.create("t").append(rb.message("user", "my number is 0171 555"), state("a state"), rb.message("user", LONG))
        first = s[1].id
    imported(from_there(), url=target)
    with rb.open_store(source) as there:
        redact(there, [first], objects=[digest(ITEMS[3])], reason="asked for it")
    told = run("import", from_there(), store=target)
    assert told.exit_code == 0
    assert "1 chunk and 1 object that were erased there still stand here; nothing was erased" in told.output
    again = json.loads(run("import", from_there(), "--json", store=target).output)
    assert {one["status"] for one in again["imported"]} == {"unchanged"}
    assert again["erased_there"] == {"chunks": [first], "objects": [digest(ITEMS[3])]}
    with rb.open_store(target) as here:
        assert here.session("t")[1].values["parts"][0]["content"] == "my number is 0171 555"
    command = told.output.split("rath-bridge ")[-1].replace("WHY", "'as there'").strip()
    assert run(*shlex.split(command), "--yes", store=target).exit_code == 0
    last = json.loads(run("import", from_there(), "--json", store=target).output)
    assert last["erased_there"] == {"chunks": [], "objects": []}
    with rb.open_store(target) as here:
        assert here.session("t")[1].body_bytes is None
        assert list(here.fsck()) == []


def test_a_grown_line_is_asked_about_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands here already is read a page at a time: statements do not grow with every chunk and every index entry."""
    counts: dict[int, int] = {}
    for length in (200, 800):
        with rb.open_store("memory:") as here, rb.open_store(f"sqlite:///{tmp_path / f'{length}.db'}") as there:
            s = here.create("t").append(*(draft(Note(text=f"{n}"), keys=[Key("f", "1", "", f"{n}")]) for n in range(length)))
            transfer(StoreOrigin(here.backend, "here"), there)
            s = s.append(draft(Note(text="more"), keys=[Key("f", "1", "", "more")]))
            monkeypatch.setattr(sqlite._Tx, "all", counted(ran := list[str](), sqlite._Tx.all))  # type: ignore[attr-defined]
            (done,) = transfer(StoreOrigin(here.backend, "here"), there)
            monkeypatch.undo()
            assert (done.status, done.chunks) == ("grown", 1)
            assert there.session("t").head == s.head
            assert there.backend.lookup(Key("f", "1", "", "more")) is not None
            assert list(there.fsck()) == []
            counts[length] = len(ran)
    assert counts[800] - counts[200] < 60, counts


def counted(ran: list[str], real: Any) -> Any:
    def all_(self: Any, sql: str, params: Any = ()) -> Any:
        ran.append(sql)
        return real(self, sql, params)

    return all_
