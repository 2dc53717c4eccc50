"""Files of every format that was ever written stay readable, and can be written on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.model.chunk import Key
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import ToolCall, Unknown
from rath_bridge.model.trees import read_list, read_map
from rath_bridge.session import Store
from tests.formats import make

FORMATS = sorted(path for path in (Path(__file__).parent / "formats").iterdir() if (path / "facts.json").exists())


@pytest.fixture(params=FORMATS, ids=lambda path: path.name)
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(folder / "store.db", tmp_path / "store.db")
    with rb.open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def test_the_store_says_what_it_said(folder: Path, store: Store) -> None:
    assert make.facts(store) == json.loads((folder / "facts.json").read_text())
    assert list(store.fsck()) == []


def test_everything_in_it_can_be_read(store: Store) -> None:
    session = store.session("ticket-4711")
    by_kind = {chunk.kind: chunk for chunk in session.chunks()}
    message = session.messages()[1]
    assert message.text == make.LONG
    assert message.chunk.native is not None
    assert message.chunk.native.data == make.NATIVE
    assert by_kind["later.kind"].body == Unknown(name="later.kind", fields={"x": {"$rath": 1}})
    call = by_kind["tool_call"].body
    assert isinstance(call, ToolCall)
    assert call.arguments == {1: "odd key"}
    state = read_map(by_kind["checkpoint"].values["state"], store.backend.objects)
    assert set(state) == {"messages", "odd \ud800 key"}
    items = read_list(TreeRef(state["messages"].hex(), 100), store.backend.objects)
    held = store.backend.objects([name.hex() for name in items])
    assert [held[name.hex()] for name in items] == [b"item %d" % i for i in range(100)]
    assert store.backend.objects([digest(b"\x89PNG")]) == {digest(b"\x89PNG"): b"\x89PNG"}
    for key in ("k", "c1"):
        found = store.backend.lookup(Key("made", "t\0", "", key))
        assert found is not None
        assert found.id in {chunk.id for chunk in session.chunks()}


def test_it_can_be_written_on(store: Store) -> None:
    session = store.session("ticket-4711").append(rb.message("user", "more"))
    merged = session.merge(store.session("copy").append(rb.message("user", "apart")))
    assert merged.fork("later").fsck() == []


def test_the_packet_verifies(folder: Path) -> None:
    report = rb.verify_packet(folder / "packet.zip")
    assert report.ok, report
    facts = json.loads((folder / "facts.json").read_text())
    assert rb.verify_packet(folder / "packet.zip", head=facts["ticket-4711"]["head"]).ok


def test_todays_format_is_among_them(tmp_path: Path) -> None:
    """What is written today has the newest folder's shape: a new format needs a folder of its own."""
    from rath_bridge.store.schema import FORMAT

    assert FORMATS[-1].name == f"v{FORMAT}"
    make.main(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {path.name for path in FORMATS[-1].iterdir()}
    assert sum(path.stat().st_size for path in FORMATS[-1].iterdir()) < 200_000
