"""The value in the middle: names, equality, reading, pickling, the async twins."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import (
    AmbiguousDigestError,
    ConflictError,
    EncodeError,
    InvalidNameError,
    MissingChunkError,
    MissingSessionError,
    NameInUseError,
    RathError,
    StoreAddressError,
    StoreUnavailableError,
)
from rath_bridge.model import kinds
from rath_bridge.model.kinds import Usage
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.session import Session, Store, native_name, resolve, split_name
from rath_bridge.testing import StoreContract, strategies
from rath_bridge.transform import AsyncTransform, Transform


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def test_open_create_and_list(store: Store) -> None:
    assert store.sessions() == []
    s = store.create("ticket-4711")
    assert (s.name, s.branch, len(s), s[0].kind) == ("ticket-4711", "main", 1, "session")
    assert store.session("ticket-4711") == s
    assert "ticket-4711" in store
    assert "nobody" not in store
    assert "not a name" not in store
    with pytest.raises(NameInUseError, match="ticket-4711"):
        store.create("ticket-4711")
    with pytest.raises(MissingSessionError, match="'ticket-4711'"):
        store.session("nobody")
    other = store.session("other", create=True)
    assert store.session("other", create=True) == other
    assert [one.name for one in store.sessions()] == ["other", "ticket-4711"]


def test_values_do_not_change(store: Store) -> None:
    s = store.create("s")
    t = s.append(rb.message("user", "hello"))
    assert (len(s), len(t)) == (1, 2)
    assert s != t
    assert s.latest() == t
    assert {s: 1, t: 2}[store.session("s")] == 2
    assert t.append() is t
    assert repr(t).startswith(f"<Session s {t.head[:12]} 2 chunks in ")


def test_reading(store: Store) -> None:
    s = store.create("s").append(*(rb.message("user", str(i)) for i in range(9)))
    chunks = list(s.chunks())
    assert list(s) == chunks
    assert [s[i] for i in range(10)] == chunks
    assert [s[-1], s[-10]] == [chunks[9], chunks[0]]
    for cut in (slice(2, 5), slice(None), slice(-3, None), slice(None, None, 2), slice(7, 2, -2), slice(5, 5), slice(20, 30)):
        assert s[cut] == chunks[cut]
    for index in (10, -11):
        with pytest.raises(IndexError, match="10 chunks"):
            s[index]


@pytest.mark.parametrize("name", ["", " ", "a b", "a\0", "a\n", "a@", "@b", "a@b@c", "\ud800", "x" * 401, "a\u007f"])
def test_names_that_cannot_be(name: str) -> None:
    store = rb.open_store("memory:")
    with pytest.raises(InvalidNameError):
        store.create(name)
    with pytest.raises(InvalidNameError):
        store.create("ok").fork("b" if "@" in name else name, session=name)
    assert [ref.name for ref in store.backend.refs()] == ["ok"]


@given(strategies.texts())
def test_any_native_id_names_a_session(native_id: str) -> None:
    name = native_name("langgraph", native_id)
    assert split_name(name) == (name, "main")
    assert len(name) <= 400


@given(strategies.texts(), strategies.texts())
def test_different_native_ids_name_different_sessions(one: str, two: str) -> None:
    assert (native_name("f", one) == native_name("f", two)) == (one == two)


def test_forks_have_names(store: Store) -> None:
    s = store.create("s").append(rb.message("user", "x"))
    b = s.fork("try-b")
    assert (b.name, b.session, b.branch) == ("s@try-b", "s", "try-b")
    assert store.session("s@try-b") == b
    assert "s@try-b" in store
    assert s.fork(session="y").name == "y"
    assert s.fork("z", session="y").name == "y@z"
    assert s.heads() == {"main": s.head, "try-b": b.head}
    with pytest.raises(NameInUseError):
        s.fork("try-b")
    with pytest.raises(InvalidNameError, match="branch name"):
        s.fork()
    assert store.sessions()[0] == s  # at main, not at a branch


def test_a_name_that_is_a_member_of_an_enum_is_refused(store: Store) -> None:
    class Name(StrEnum):
        A = "a"

    s = store.create("s")
    verbs: list[Callable[[str], object]] = [store.create, s.fork, lambda name: s.fork(session=name), s.detach]
    for verb in verbs:
        with pytest.raises(EncodeError):
            verb(Name.A)
    assert store.sessions() == [s]
    assert s.heads() == {"main": s.head}


def test_a_fork_takes_a_chunk_as_people_have_it(store: Store) -> None:
    s = store.create("s").append(rb.message("user", "one"), rb.message("user", "two"))
    first = s.messages()[0]
    for name, at in {"digest": first.id, "number": 1, "from the end": -2, "chunk": s[1], "message": first}.items():
        fork = s.fork(name.replace(" ", "-"), at=at)
        assert [message.text for message in fork.messages()] == ["one"], name


def test_a_printed_message_tells_calls_and_results_too() -> None:
    asked = kinds.Message(role="assistant", parts=(ToolCallPart("c1", "pay", {"n": 3}),))
    answer = kinds.Message(role="tool", name="pay", parts=(ToolCallResponsePart("c1", "paid"),))
    s = rb.open_store("memory:").create("s").append(rb.message("user", "pay 3"), rb.draft(asked), rb.draft(answer))
    assert [str(message) for message in s.messages()] == ["user: pay 3", "assistant: → pay(n=3)", "tool pay: ← paid"]


def test_a_chunk_may_be_named_by_its_beginning(store: Store) -> None:
    s = store.create("s").append(*(rb.message("user", str(i)) for i in range(40)))
    point = s[3].id
    assert s.fork("b", at=point[:16])[-1].parents == (point,)
    assert resolve(store.backend, point.upper()[:20]) == point
    for wrong in ("f" * 64, "zzzz", "abc", "", "0x12"):
        with pytest.raises(MissingChunkError):
            s.fork("c", at=wrong)
    many = rb.open_store("memory:").create("s")
    seen: dict[str, str] = {}
    while True:
        many = many.append(*(rb.message("user", "x") for _ in range(200)))
        seen = {}
        for chunk in many.chunks():
            if seen.setdefault(chunk.id[:4], chunk.id) != chunk.id:
                with pytest.raises(AmbiguousDigestError, match=chunk.id[:12]):
                    many.fork("b", at=chunk.id[:4])
                return


def test_pickling(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("s").append(rb.message("user", "x"))
        again = pickle.loads(pickle.dumps(s))
        assert again == s
        assert again.messages()[0].text == "x"
        again.store.close()
    with pytest.raises(TypeError, match="memory"):
        pickle.dumps(rb.open_store("memory:").create("s"))


def test_errors_pickle_and_are_what_a_user_would_catch() -> None:
    with pytest.raises(LookupError) as caught:
        rb.open_store("memory:").session("nobody")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.name) == (MissingSessionError, str(caught.value), "nobody")
    assert issubclass(StoreUnavailableError, ConnectionError)
    assert issubclass(NameInUseError, ValueError)
    assert all(issubclass(kind, RathError) for kind in (ConflictError, InvalidNameError, StoreAddressError))


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://x", "sqlite://", "sqlite:///", "http://x/y"])
def test_addresses_that_name_no_store(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.chdir(str(tmp_path))
    if not url:
        rb.open_store(url).close()  # the default: .rath/store.db here
        return
    with pytest.raises(StoreAddressError, match="sqlite:///"):
        rb.open_store(url)


def test_the_address_from_the_environment(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    monkeypatch.setenv("RATH_BRIDGE_STORE", sqlite_url)
    with rb.open_store() as store:
        assert store.url == sqlite_url


def test_placement_and_usage(store: Store) -> None:
    s = store.create("s")
    assert s.placement is None
    assert s.usage() == Usage()
    placed = s.place("local", root="./ws", image="x").to("docker")
    assert placed.placement is not None
    assert (placed.placement.backend, placed.placement.root) == ("docker", None)
    assert placed[1].values == {"backend": "local", "root": "./ws", "spec": {"image": "x"}}


async def test_the_async_twins(store: Store) -> None:
    s = await store.create("s").aappend(rb.message("user", "x"))
    b, other = await asyncio.gather(s.afork("b"), s.afork("c"))
    b = await b.aappend(rb.message("assistant", "y"))
    merged = await s.amerge(b)
    assert merged.name == "s"
    assert (await merged.amessages())[0].text == "x"
    assert await merged.achunks() == list(merged.chunks())
    assert await merged.afsck() == []
    assert await merged.ausage() == merged.usage()
    assert (await merged.adetach("copy")).name == "copy"
    assert await merged.adiff(other) == merged.diff(other)


async def test_cancelling_loses_nothing() -> None:
    s = rb.open_store("memory:").create("s")
    task = asyncio.create_task(s.aappend(rb.message("user", "x")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(200):
        if len(s.latest()) == 2:
            break
        await asyncio.sleep(0.01)
    assert len(s.latest()) in (1, 2)  # whole or not at all
    assert s.latest().fsck() == []


def test_transforms() -> None:
    def shout(session: Session) -> Session:
        return session.append(rb.message("user", "!"))

    class Both:
        def __call__(self, session: Session, /) -> Session:
            return shout(session)

        async def acall(self, session: Session, /) -> Session:
            return await session.aappend(rb.message("user", "!"))

    assert isinstance(shout, Transform)
    assert isinstance(Both(), AsyncTransform)


def test_the_kit_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    from rath_bridge import testing

    kept = {name: module for name, module in sys.modules.items() if name.startswith("rath_bridge.testing")}
    try:
        for name in kept:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "hypothesis", None)
        fresh = importlib.import_module("rath_bridge.testing")
        with pytest.raises(ImportError, match="pip install pytest hypothesis"):
            _ = fresh.strategies
        with pytest.raises(AttributeError):
            _ = fresh.nothing
    finally:
        sys.modules.update(kept)
    assert testing.StoreContract is StoreContract
    assert {"StoreContract", "AdapterContract", "NaiveModel", "strategies"} <= set(dir(testing))


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_merge_of_what_two_values_say_is_in_order(one: int, two: int) -> None:
    s = rb.open_store("memory:").create("s")
    left = s.append(*(rb.message("user", f"l{i}") for i in range(one)))
    right = s.fork("x").append(*(rb.message("user", f"r{i}") for i in range(two)))
    merged = left.merge(right)
    assert [m.text for m in merged.messages()][:one] == [f"l{i}" for i in range(one)]
    assert len(merged.messages()) == one + bool(two)
