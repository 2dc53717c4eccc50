"""A store that was damaged from outside: never another answer than before, never an endless walk; an error of ours, or a finding."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.errors import CorruptStoreError, RathError
from rath_bridge.model.chunk import Key, Native, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Checkpoint, Message
from rath_bridge.model.parts import TextPart
from rath_bridge.model.reaching import Memo, Reference, reach
from rath_bridge.model.trees import list_tree, map_tree

ODD = (0, 1, -1, 2**62, -(2**63), None, "text", 1.5, b"", b"\0", b"\xff" * 8, b"\xed\xa0\x80", b"a" * 32, b"x" * 5000)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a bit of everything."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    with rb.open_store(f"sqlite:///{path}") as store:
        items = [f"item {i} ".encode() * 20 for i in range(70)]
        raw = [bytes.fromhex(digest(item)) for item in items]
        tree, nodes = list_tree(raw)
        mapping, more = map_tree({f"k{i}": name for i, name in enumerate(raw)})
        objects = {**nodes, **more, **{digest(item): item for item in items}}
        text = "word " * 300
        session = store.create("t").append(
            rb.message("user", "hello"),
            rb.message("assistant", "long " * 400),
            draft(Checkpoint(checkpoint_id="1", state=tree.ref), objects=objects, keys=(Key("f", "n", "", "k"),)),
            draft(Checkpoint(checkpoint_id="2", state=mapping), objects=objects, keys=(Key("f", "n", "", "k2"),)),
            draft(
                Message(role="user", parts=(TextPart(text),)),
                native=Native("f", "1", "json", f'{{"x":"{text}"}}'.encode()), run="r1", origin={"adapter": "x"},
            ),
        )  # fmt: skip
        branch = session.fork("b", at=session[2].id).append(rb.message("user", "b"))
        merged = session.append(rb.message("user", "c")).merge(branch)
        merged.detach("copy").append(rb.message("user", "after"))
        assert list(store.fsck()) == []
    return path


def damaged(path: Path, chance: random.Random) -> str:
    """Change a file in one of many ways; returns what was done."""
    if chance.random() < 0.35:
        data = bytearray(path.read_bytes())
        places = [chance.randrange(len(data)) for _ in range(chance.choice([1, 1, 3, 20]))]
        for place in places:
            data[place] ^= 1 << chance.randrange(8)
        cut = chance.randrange(len(data)) if chance.random() < 0.1 else len(data)
        path.write_bytes(data[:cut])
        return f"bits flipped at {places}, cut at {cut}"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rath_%'")]
        table = chance.choice(tables)
        columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
        key, column = "n" if "n" in columns else columns[0], chance.choice(columns)
        row: Any = chance.choice([found[0] for found in file.execute(f"SELECT {key} FROM {table}")] or [0])
        old = (file.execute(f"SELECT {column} FROM {table} WHERE {key} = ?", (row,)).fetchone() or (None,))[0]
        new: Any = chance.choice(ODD)
        if isinstance(old, bytes) and old and chance.random() < 0.6:
            changed = bytearray(old)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            new = bytes(changed)
        elif isinstance(old, int) and chance.random() < 0.6:
            new = old + chance.choice([1, -1, 2**24, -(2**24), 8, 5])
        try:
            if chance.random() < 0.2:
                file.execute(f"DELETE FROM {table} WHERE {key} = ?", (row,))
            else:
                file.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (new, row))
        except sqlite3.Error:
            return "nothing: the database refused it"
        return f"{table}.{column} of {row!r}: {old!r:.40} to {new!r:.40}"


def facts(store: rb.Store) -> Iterator[Any]:
    """Everything that a reader may ask; each question by itself, since an error is an answer, too."""
    yield lambda: [session.head for session in store.sessions()]
    for name in ("t", "t@b", "copy"):
        yield lambda name=name: len(store.session(name))
        yield lambda name=name: [(c.id, c.envelope, c.position) for c in store.session(name).chunks()]
        yield lambda name=name: [c.values for c in store.session(name).chunks()]
        yield lambda name=name: [(c.native, c.references) for c in store.session(name).chunks()]
        yield lambda name=name: [(m.id, m.text) for m in store.session(name).messages()]
        yield lambda name=name: [entry.chunk.id for entry in store.session(name).log(all=True)]
        yield lambda name=name: (store.session(name).usage(), store.session(name).heads(), store.session(name).pending())
        yield lambda name=name: [line.where for line in store.session(name).blame("word")]
        yield lambda name=name: store.session(name)[-1].id
        yield lambda name=name: [m.new for m in store.backend.reflog(*(name.split("@") if "@" in name else (name, "main")))]


def bookkeeping(store: rb.Store) -> Iterator[Any]:
    """What no digest vouches for: times of a reflog, the index. It must be readable or refused, no more."""
    yield lambda: store.backend.reflog("t", "main")
    yield lambda: [(key.key, chunk.id) for key, chunk in store.backend.scan("f", "n", "")]
    yield lambda: store.backend.lookup(Key("f", "n", "", "k"))
    yield lambda: store.backend.scopes("f")


def answers(path: Path) -> tuple[list[Any], list[str]]:
    """What every question brings (an error's class where it is one of ours), and what fsck finds."""
    found: list[Any] = []
    try:
        with rb.open_store(f"sqlite:///{path}") as store:
            try:
                findings = [str(finding) for finding in store.fsck()]
            except RathError as error:
                findings = [str(error)]
            for question in facts(store):
                try:
                    found.append(question())
                except RathError as error:
                    found.append(type(error))
            for question in bookkeeping(store):
                with suppress(RathError):
                    question()
    except RathError as error:
        return [type(error)], [str(error)]
    return found, findings


def too_long(_: int, __: FrameType | None) -> None:
    raise AssertionError("a walk that does not end")


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_an_error_or_a_finding(sound: Path, tmp_path: Path, seed: int) -> None:
    before, _ = answers(sound)
    chance = random.Random(seed)
    signal.signal(signal.SIGVTALRM, too_long)
    for i in range(30):
        path = tmp_path / f"{i}.db"
        shutil.copy(sound, path)
        what = damaged(path, chance)
        signal.setitimer(signal.ITIMER_VIRTUAL, 20)  # of this process's own time
        found, findings = answers(path)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        path.unlink()
        if not findings and not any(isinstance(answer, type) for answer in found):
            assert found == before, what


def test_a_line_that_follows_itself_is_named(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copy(sound, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        ((line,),) = file.execute("SELECT n FROM rath_line WHERE parent IS NOT NULL LIMIT 1").fetchall()
        file.execute("UPDATE rath_line SET parent = n << 24, start = 5 WHERE n = ?", (line,))
    with rb.open_store(f"sqlite:///{path}") as store:
        assert any("begins at 5" in str(finding) for finding in store.fsck())
        with pytest.raises(CorruptStoreError):
            list(store.session("t@b").chunks())


def test_an_origin_that_is_another_text_is_named(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copy(sound, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE rath_chunk SET origin = kind WHERE origin IS NOT NULL")
    with rb.open_store(f"sqlite:///{path}") as store:
        assert any("its origin is another text" in str(finding) for finding in store.fsck())
        with pytest.raises(CorruptStoreError, match="its origin is another text"):
            store.session("t").messages()


def test_a_digest_in_capitals_is_no_name_of_an_object(tmp_path: Path) -> None:
    with rb.open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        session = store.create("s").append(rb.message("user", "long " * 400))
        name = digest(b"long " * 400)
        assert [found.problem for found in reach([Reference(name)], store.backend.objects, Memo())] == [None]
        [found] = reach([Reference(name.upper())], store.backend.objects, Memo())
        assert found.problem
        assert session.fsck() == []
