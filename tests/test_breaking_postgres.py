"""PostgreSQL under attack: passwords in addresses, missing rights, connections that die, writers whose keys and objects cross."""

from __future__ import annotations

import pickle
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from urllib.parse import quote

import psycopg
import pytest

import rath_bridge as rb
from rath_bridge.cli.face import without_password
from rath_bridge.errors import StoreAddressError, StoreError, StoreUnavailableError
from rath_bridge.model.chunk import Key, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Note
from tests.waiting import until

PASSWORD = "p@ss/w:o?r#d%&é"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://odd:hid@den@127.0.0.1:1/x", "postgresql://odd:hid/den@127.0.0.1:1/x", "postgresql://odd:hid?den@127.0.0.1:1/x",
        "postgresql://odd:hid#den@127.0.0.1:1/x", "postgresql://odd:hid%zzden@127.0.0.1:1/x", "postgresql://odd:12/hidden@127.0.0.1:1/x",
        "postgresql://odd:hidden@127.0.0.1:port/x", "postgresql://odd:hidden@[::1/x", "postgresql://odd:hidden@127.0.0.1:1/x?nonsense=1",
        "postgresql://127.0.0.1:1/x?password=hidden&sslpassword=hidden", "postgresql://127.0.0.1:1/x?pass%77ord=hidden",
        "postgress://odd:hidden@127.0.0.1/x", "postgresql+psycopg://odd:hidden@127.0.0.1/x", "host=x password=hidden", "hidden",
    ],
)  # fmt: skip
def test_no_error_shows_a_password(address: str) -> None:
    with pytest.raises(StoreError) as raised:
        rb.open_store(address)
    if address != "hidden":
        for said in (str(raised.value), repr(vars(raised.value)), without_password(address) if "@" in address else ""):
            assert "hid" not in said
            assert "den" not in said


def test_several_hosts_and_sockets_are_addresses() -> None:
    for address in ("postgresql://a@127.0.0.1:1,127.0.0.1:2/x", "postgresql://a@%2Ftmp%2FNoSuch/x", "postgresql://a@[::1]:1/x"):
        with pytest.raises(StoreUnavailableError) as raised:
            rb.open_store(address)
        assert raised.value.url == address


def test_rights_that_are_missing_are_no_corruption(postgres_url: str) -> None:
    database = postgres_url.rpartition("/")[2]
    host = postgres_url.partition("@")[2].partition("/")[0]
    role = f"role_{database}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'".encode())
    try:
        url = f"postgresql://{role}:{quote(PASSWORD, safe='')}@{host}/{database}"
        for address in (url, f"{url}?options=-csearch_path%3Dnowhere"):
            with pytest.raises(StoreUnavailableError, match=r"permission denied|no schema"):
                rb.open_store(address)
        with pytest.raises(StoreUnavailableError, match=r"does not exist"):
            rb.open_store(url.rpartition("/")[0])  # no database: libpq takes the user's name
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"GRANT ALL ON SCHEMA public TO {role}".encode())
        with rb.open_store(url) as store:
            assert store.url == f"postgresql://{role}@{host}/{database}"
            assert len(store.create("s").append(rb.message("user", "x"))) == 2
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {role} CASCADE".encode())
            admin.execute(f"DROP ROLE {role}".encode())


def test_connections_that_die_lose_nothing_acknowledged(postgres_url: str) -> None:
    store = rb.open_store(postgres_url)
    stop = threading.Event()
    acknowledged: list[str] = []
    others: list[BaseException] = []
    failed: list[str] = []

    def write(session: rb.Session) -> None:
        while not stop.is_set():
            try:
                session = session.append(draft(Note(text="x" * 700)), on_conflict="serialise")
                acknowledged.append(session.head)
            except StoreUnavailableError as error:
                failed.append(str(error))
            except BaseException as error:  # noqa: BLE001 - looked at below
                others.append(error)

    threads = [threading.Thread(target=write, args=(store.create(f"w{i}"),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        time.sleep(0.1)
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
    written = len(acknowledged)
    until(lambda: len(acknowledged) > written or others)
    stop.set()
    for thread in threads:
        thread.join()
    assert others == []
    assert all("could not do it" in text for text in failed)  # what died in the middle; before its beginning, nobody noticed
    assert len(acknowledged) > written
    assert list(store.fsck()) == []
    assert {name for name in acknowledged if store.backend.chunk(name).id != name} == set()
    store.close()


def test_writers_with_crossing_keys_and_objects_never_wait_in_a_circle(postgres_url: str) -> None:
    store = rb.open_store(postgres_url)
    texts = [f"text {i} ".encode() * 100 for i in range(40)]
    records = [b"<" + one + two + b">" for one, two in pairwise(texts)]
    raised: list[BaseException] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        session = store.session(f"s{number % 2}", create=True)
        for i in range(25):
            found = [item + str(i).encode() for item in (*chance.sample(texts, 8), *chance.sample(records, 4))]
            objects = [(digest(item), item) for item in found]
            keys = [Key("f", str(chance.randrange(4)), "", str(chance.randrange(20))) for _ in range(6)]
            try:
                batch = [
                    draft(Note(text="n"), objects=dict(objects[n::3]), keys=tuple(keys[n::3]), run=f"run{chance.randrange(500)}")
                    for n in range(3)
                ]
                session = session.append(*batch, on_conflict="serialise")
                store.backend.drop_keys("f", str(chance.randrange(4)), keys=[str(chance.randrange(20)) for _ in range(5)])
            except BaseException as error:  # noqa: BLE001 - looked at below
                raised.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []
    assert len(store.session("s0")) + len(store.session("s1")) == 2 + 6 * 25 * 3
    assert list(store.fsck()) == []
    store.close()


def test_keys_may_be_dropped_in_any_order_beside_who_writes_them(postgres_url: str) -> None:
    with rb.open_store(postgres_url) as store:
        names = [f"{number:02}" for number in range(20)]
        keys = tuple(Key("f", "i", "", name, sub) for name in names for sub in ("b", "a"))

        def put(session: rb.Session) -> None:
            for _ in range(60):
                session = session.append(draft(Note(text="n"), keys=keys))

        def drop(given: list[str] | None) -> None:
            for _ in range(120):
                store.backend.drop_keys("f", "i", "", keys=given)

        with ThreadPoolExecutor() as pool:
            work = [pool.submit(put, store.create(name)) for name in "st"] + [
                pool.submit(drop, names[::-1]),
                pool.submit(drop, None),
            ]
            for one in work:
                one.result()
        assert len(store.session("s")) == len(store.session("t")) == 61
        assert list(store.fsck()) == []


def test_a_password_is_not_pickled(postgres_url: str) -> None:
    password = postgres_url.partition("@")[0].rpartition(":")[2]
    with rb.open_store(postgres_url) as store:
        data = pickle.dumps(store.create("s"))
    assert password.encode() not in data
    with pytest.raises((StoreUnavailableError, StoreAddressError)):
        pickle.loads(data)
