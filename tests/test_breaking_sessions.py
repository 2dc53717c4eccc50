"""Sessions under attack: drafts used twice, names that are none, values that could never be read again, odd merges, long lines."""

from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import rath_bridge as rb
from rath_bridge.errors import ConflictError, EncodeError, InvalidNameError, MissingChunkError, WrongTypeError
from rath_bridge.model.chunk import Native, draft
from rath_bridge.model.kinds import Message, Note
from rath_bridge.model.parts import GenericPart, TextPart
from rath_bridge.verbs.lineage import ancestors

ANY = cast(Any, None)


@pytest.fixture
def store(store_url: str) -> rb.Store:
    return rb.open_store(store_url)


def texts(session: rb.Session) -> list[str]:
    return [message.text for message in session.messages()]


def test_a_draft_that_is_appended_twice_stands_once(store: rb.Store) -> None:
    session = store.create("s")
    twice, more, other = (rb.message("user", text) for text in ("twice", "more", "other"))
    once = session.append(twice)
    assert session.append(twice) == once
    assert once.latest() == once
    later = once.append(more)
    assert session.append(twice) == once  # the branch went on; the chunk stands where it stood
    assert session.append(twice, more) == later
    race = session.append(twice, other)  # half of it is known: only the other half is new
    assert texts(race) == ["twice", "other"]
    assert race.branch.startswith("race-")
    assert session.append(twice, other) == race
    assert [chunk.values["parts"][0]["content"] for chunk in race[1:]] == ["twice", "other"]
    assert texts(session.latest()) == ["twice", "more"]
    assert list(store.fsck()) == []
    with pytest.raises(ConflictError):
        session.append(twice, on_conflict="raise")
    assert len(store.session("s").heads()) == 2


def test_a_late_draft_that_stands_on_no_named_line_is_a_conflict(store: rb.Store) -> None:
    session = store.create("s")
    session.append(rb.message("user", "first"))
    one, two = rb.message("user", "one"), rb.message("user", "two")
    session.append(one, two)
    with pytest.raises(ConflictError):
        session.append(one)
    assert list(store.fsck()) == []


def test_a_batch_with_what_is_no_draft_changes_nothing(store: rb.Store) -> None:
    session = store.create("s")
    for wrong in ("text", None, 5, [rb.message("user", "x")], {}):
        with pytest.raises(TypeError, match=r"rb\.message"):
            session.append(rb.message("user", "good"), cast(Any, wrong))
        with pytest.raises((TypeError, AttributeError)):
            store.backend.append("s", "main", [rb.message("user", "good"), cast(Any, wrong)], head=session.head)
    with pytest.raises(ValueError, match="serialize"):
        session.append(rb.message("user", "x"), on_conflict=cast(Any, "serialize"))
    session = session.append(rb.message("user", "after"))
    assert [chunk.position for chunk in session.chunks()] == [0, 1]
    assert list(store.fsck()) == []


@pytest.mark.parametrize(
    "name", [None, 5, b"x", ["x"], "", " ", "a b", "a@", "@b", "a@b@c", "x" * 401, "\ud800", "a\nb", "\x85", "\u2028"]
)
def test_what_is_no_name_is_refused(name: Any) -> None:
    store = rb.open_store("memory:")
    session = store.create("s")
    for attempt in (store.create, store.session, session.detach):
        with pytest.raises(InvalidNameError):
            attempt(name)
    with pytest.raises(InvalidNameError):
        session.fork(session=name) if name is None else session.fork(name)
    assert name not in store
    assert [s.name for s in store.sessions()] == ["s"]


@pytest.mark.parametrize("point", ["", "zz", "ab" * 32, "z" * 64, "é" * 64, "abcd"])
def test_a_fork_at_no_chunk_is_refused(store: rb.Store, point: Any) -> None:
    session = store.create("s")
    with pytest.raises(MissingChunkError):
        session.fork("b", at=point)
    assert session.fork("c", at=session.head.upper())[0].id == session.head


@pytest.mark.parametrize(
    ("point", "error"), [(5, IndexError), (-3, IndexError), (True, WrongTypeError), (b"x" * 64, WrongTypeError)]
)
def test_a_fork_at_what_names_no_chunk_is_refused(store: rb.Store, point: Any, error: type[Exception]) -> None:
    session = store.create("s")
    with pytest.raises(error):
        session.fork("b", at=point)
    assert session.heads() == {"main": session.head}


@pytest.mark.parametrize(
    "body",
    [
        Message(role=ANY),
        Message(role=cast(Any, 5)),
        Message(role=cast(Any, b"user")),
        Note(text=cast(Any, ["x"])),
        Message(role="user", parts=cast(Any, ("text",))),
        Message(role="user", parts=cast(Any, (5,))),
        Message(role="user", parts=(GenericPart("text"),)),
        Message(role="user", parts=(GenericPart(cast(Any, None)),)),
        Message(role="user", parts=(TextPart("x", {"content": "y"}),)),
        Message(role="user", parts=(GenericPart("odd", {"type": "text"}),)),
        Message(role="user", parts=(TextPart(cast(Any, None)),)),
        Message(role="user", parts=(TextPart(cast(Any, 5)),)),
    ],
)  # fmt: skip
def test_what_could_not_be_read_again_is_not_written(body: Any) -> None:
    with pytest.raises(EncodeError):
        draft(body)


NESTED: Any = "x"
for _ in range(150):
    NESTED = [NESTED]
STRANGE: dict[str, Any] = {
    "nul": "\0", "separators": "\u2028\u2029\x85", "halves": "\ud800 \udfff \ud83d\ude00", "bidi": "\u202eevil\u2066", "long": "é\0" * 400,
    "huge int": -(2**4000), "float": 5e-324, "zero": -0.0, "infinite": float("-inf"), "bytes": bytes(range(256)) * 4, "empty": "",
    "empties": [{}, [], "", b"", None], "keys": {"": 1, "$rath": 2, "\ud800": 3, "\0": 4}, "nested": NESTED,
    "many": {f"key {i}": i for i in range(10_000)},
}  # fmt: skip


def test_values_come_back_as_they_were(store: rb.Store) -> None:
    session = store.create("s\u202e\U0001f600").append(
        *(draft(Note(attributes={"v": value}), run=f"run {name} é\0\u2028") for name, value in STRANGE.items())
    )
    for chunk, (name, value) in zip(session[1:], STRANGE.items(), strict=True):
        found = chunk.values["attributes"]["v"]
        assert found == value
        assert type(found) is dict or repr(found) == repr(value)  # maps are sorted
        assert chunk.run == f"run {name} é\0\u2028"
    (nan,) = session.append(draft(Note(attributes={"v": float("nan")})))[-1].values["attributes"].values()
    assert nan != nan
    assert list(store.fsck()) == []


def test_what_is_changed_after_it_was_handed_over_changes_nothing(store: rb.Store) -> None:
    arguments: dict[str, Any] = {"x": [1]}
    data = bytearray(b'{"a": 1}')
    item = draft(Note(attributes=arguments), native=Native("f", "1", "json", bytes(data)))
    arguments["x"].append(2)
    session = store.create("s").append(item)
    session[-1].values["attributes"]["x"].append(3)
    assert session[-1].values["attributes"] == {"x": [1]}
    assert list(store.fsck()) == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_twenty_megabytes_are_kept(kind: str, request: pytest.FixtureRequest) -> None:
    store = rb.open_store("memory:" if kind == "memory" else request.getfixturevalue("sqlite_url"))
    text = random.Random(1).randbytes(10_000_000).hex()
    session = store.create("s").append(rb.message("user", text))
    assert session.messages()[0].text == text


def test_merges_of_merges_and_two_bases(store: rb.Store) -> None:
    main = store.create("s").append(rb.message("user", "root"))
    left, right = main.fork("left"), main.fork("right")
    left, right = left.append(rb.message("user", "L")), right.append(rb.message("user", "R"))
    crossed = (left.merge(right), right.merge(left))  # two bases from here on
    both = crossed[0].append(rb.message("user", "LR")).merge(crossed[1].append(rb.message("user", "RL")))
    whole = main.merge(both)
    assert whole.merge(both) == whole
    assert whole.merge(whole) == whole
    assert whole.merge(main) == whole
    seen = [chunk.id for chunk in ancestors(whole.head, store.backend)]
    assert len(seen) == len(set(seen))
    alone = whole.detach("alone")
    again = whole.merge(alone)  # no history in common
    assert again[-1].kind == "message"
    assert len(alone.merge(again)) > len(alone)
    assert list(store.fsck()) == []
    with pytest.raises(ValueError, match="import it there"):
        whole.merge(rb.open_store("memory:").create("s"))
    with pytest.raises(ValueError, match="import it there"):
        whole.diff(rb.open_store("memory:").create("s"))


def test_a_thousand_and_five_hundred_forks_in_a_row(sqlite_url: str) -> None:
    for url in ("memory:", sqlite_url):
        store = rb.open_store(url, **({} if url == "memory:" else {"synchronous": "OFF"}))
        session = store.create("s").append(rb.message("user", "first"))
        for i in range(1500):
            session = session.fork(f"b{i}")
        assert len(session) == 1502
        assert session[1].values["role"] == "user"
        assert texts(session) == ["first"]
        assert session[::-1][-1] == session[0]
        assert not session.diff(session)
        assert len(list(session.log())) == 1502
        assert session.fsck() == []
        assert sys.getrecursionlimit() == 1000
        deep = session.append(rb.message("user", "end")).detach("copy")
        assert texts(deep) == ["first", "end"]


def test_slices_are_those_of_a_list(store: rb.Store) -> None:
    session = store.create("s").append(*(rb.message("user", str(i)) for i in range(9)))
    session = session.fork("b", at=session[6].id).append(rb.message("user", "x"))
    line = list(session.chunks())
    chance = random.Random(3)
    ends = [None, *range(-12, 13), 10**30, -(10**30)]
    for _ in range(300):
        wanted = slice(chance.choice(ends), chance.choice(ends), chance.choice([None, 1, 2, 3, -1, -2, 10**30, -(10**30)]))
        assert session[wanted] == line[wanted]
    for i in range(-len(line), len(line)):
        assert session[i] == line[i]
    for i in (len(line), -len(line) - 1, 10**30):
        with pytest.raises(IndexError):
            session[i]


def test_sessions_are_values(sqlite_url: str) -> None:
    store = rb.open_store(sqlite_url)
    session = store.create("s").append(rb.message("user", "x"))
    same: list[Callable[[rb.Session], rb.Session]] = [
        copy.copy,
        copy.deepcopy,
        lambda s: pickle.loads(pickle.dumps(s)),
        rb.Session.latest,
    ]
    for way in same:
        other = way(session)
        assert other == session
        assert hash(other) == hash(session)
        assert texts(other) == ["x"]
    assert session != session.fork("b")
    assert session != session[0]
    memory = rb.open_store("memory:").create("s")
    with pytest.raises(TypeError, match="lives in this process only"):
        pickle.dumps(memory)
    assert memory != rb.open_store("memory:").create("s")


def test_a_store_path_is_not_the_text_of_a_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a%40b@c.db"
    assert rb.open_store(url).url == url
