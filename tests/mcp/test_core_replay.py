"""``rb.replay`` of programs that call MCP servers: no server is started, no socket opened, and the wire is the record's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client

import rath_bridge as rb
from rath_bridge.store.protocol import Ref
from rath_mcp import record_client, record_clients
from tests.mcp.servers import CLI, ROOT, settled, web
from tests.ports import free_port
from tests.waiting import soon

SHOP = ROOT / "examples" / "mcp_server.py"
ASKS = ROOT / "tests" / "mcp" / "asking_server.py"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[rb.Store]:
    with rb.open_store("memory:" if request.param == "memory" else sqlite_url) as opened:
        yield opened


class Shop:
    """A server that leaves a trace where it is started."""

    def __init__(self, place: Path, script: Path = SHOP) -> None:
        self._trace, self._script = place / "started", script

    @property
    def started(self) -> int:
        return len(self._trace.read_text()) if self._trace.exists() else 0

    @property
    def args(self) -> list[str]:
        code = (
            f"import runpy, sys; open({str(self._trace)!r}, 'a').write('x'); sys.argv[1:] = []; "
            f"runpy.run_path({str(self._script)!r}, run_name='__main__')"
        )
        return ["-c", code]

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Any]:
        server = StdioServerParameters(command=sys.executable, args=self.args)
        async with stdio_client(server) as streams, ClientSession(*streams, **options) as client:
            record_client(client)
            await client.initialize()
            yield client


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def state(store: rb.Store) -> tuple[list[Ref], int]:
    return store.backend.refs(), sum(len(s) for s in store.sessions())


def program(store: rb.Store, shop: Shop, *orders: str, more: Any = None) -> Any:
    """What a user has: an agent of two steps, which asks a server."""

    async def run() -> Any:
        told: list[Any] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, message))

        with rb.record(store, "ticket") as recorder:
            async with shop.client() as client:
                await client.list_tools()
                with recorder.run("planner"):
                    asked = [await client.call_tool("find_order", {"order": order}) for order in orders or ("A-1", "A-1", "none")]
                    told += [one.model_dump() for one in asked]
                with recorder.run("clerk"):
                    told.append((await client.call_tool("export", {"steps": 2}, progress_callback=progress)).model_dump())
                    told.append((await client.read_resource("shop://orders")).model_dump(mode="json"))
                    with pytest.raises(McpError):
                        await client.call_tool("nothing", {})
                    if more is not None:
                        told.append((await client.call_tool(*more)).model_dump())
        return told

    return run


async def test_a_program_is_replayed_and_no_server_is_started(store: rb.Store, shop: Shop) -> None:
    first = await program(store, shop)()
    assert shop.started == 1
    before = state(store)
    report = await rb.areplay(store.session("ticket"), program(store, shop))
    assert (report.equal, report.live, report.unused, report.value) == (True, 0, (), first), str(report)
    assert report.served == 6
    assert (state(store), shop.started) == (before, 1)


async def test_another_argument_an_extra_call_and_a_call_less_are_named(store: rb.Store, shop: Shop) -> None:
    await program(store, shop)()
    session = store.session("ticket")
    report = await rb.areplay(session, program(store, shop, "A-1", "B-2", "none"))
    assert report.equal is False
    assert report.divergence is not None
    assert (report.divergence.what, report.divergence.path) == ("tool call find_order", "arguments")
    assert (report.divergence.found, report.divergence.expected) == ("{'order': 'B-2'}", "{'order': 'A-1'}")
    report = await rb.areplay(session, program(store, shop, more=("greet", {"name": "Ann"})))
    assert (report.equal, str(report.divergence)) == (
        False, "tool call greet: the run has tools/call greet, the record has no call",
    )  # fmt: skip
    report = await rb.areplay(session, program(store, shop, "A-1", "A-1"))
    assert (report.equal, len(report.unused)) == (False, 1)
    assert shop.started == 1


async def test_what_if_a_call_had_given_something_else(store: rb.Store, shop: Shop) -> None:
    await program(store, shop)()
    session = store.session("ticket")
    lost = {"order": "A-1", "state": "lost", "items": 0}
    report = await rb.areplay(session, program(store, shop), overrides={"tool:find_order": lost})
    assert report.value[0]["structuredContent"] == lost
    assert report.live == 0
    assert shop.started == 1


async def test_from_some_point_on_the_server_is_started_and_asked(store: rb.Store, shop: Shop) -> None:
    await program(store, shop)()
    session = store.session("ticket")
    results = [chunk for chunk in session if chunk.kind == "tool_result"]
    report = await rb.areplay(session, program(store, shop), until=results[0], then="live", allow_effects=True)
    assert report.made[0] == "tool find_order"
    assert report.live == 5, report.made
    assert report.value is not None
    assert shop.started == 2
    assert report.value[1]["structuredContent"]["state"] == "shipped"


@pytest.fixture
def counts(tmp_path: Path) -> Shop:
    script = tmp_path / "counter.py"
    script.write_text(
        "from itertools import count\nfrom mcp.server.fastmcp import FastMCP\n"
        "server, numbers = FastMCP('counts', log_level='ERROR'), count()\n"
        "@server.tool()\ndef next_number() -> int:\n    return next(numbers)\nserver.run('stdio')\n"
    )
    return Shop(tmp_path, script)


@pytest.mark.parametrize("recording", [True, False])
async def test_a_session_that_was_opened_before_the_replay_is_answered_from_the_record(
    store: rb.Store, counts: Shop, recording: bool
) -> None:
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=counts.args)) as streams,
        ClientSession(*streams) as client,
    ):
        if recording:
            record_client(client, store, "ticket")
        await client.initialize()

        async def run() -> list[Any]:
            return [(await client.call_tool("next_number", {})).structuredContent for _ in range(2)]

        first = await run()
        assert first == [{"result": 0}, {"result": 1}]
        if not recording:
            report = await rb.areplay(store.create("ticket"), run)
            assert (report.equal, report.live, len(report.misses)) == (False, 0, 1), str(report)
        else:
            await soon(lambda: sum(chunk.kind == "tool_result" for chunk in store.session("ticket")) == 2)
            for _ in range(2):  # each replay has a tape of its own
                report = await rb.areplay(store.session("ticket"), run)
                assert (report.value, report.live, report.misses, report.unused) == (first, 0, (), ()), str(report)
        assert await run() == [{"result": 2}, {"result": 3}]  # the real server was asked for nothing meanwhile


async def test_callers_that_ask_the_same_at_once_get_what_they_got(store: rb.Store, counts: Shop) -> None:
    def run(names: list[str]) -> Any:
        async def running() -> dict[str, Any]:
            found: dict[str, Any] = {}
            with rb.record(store, "ticket") as recorder:
                async with counts.client() as client:

                    async def work(name: str) -> None:
                        with recorder.run(name):
                            found[name] = (await client.call_tool("next_number", {})).structuredContent

                    await asyncio.gather(*map(work, names))
            return found

        return running

    first = await run(["anna", "bert"])()
    report = await rb.areplay(store.session("ticket"), run(["bert", "anna"]))
    assert report.value == first
    assert (report.live, report.unused) == (0, ())


async def test_two_servers_are_told_apart_by_the_order_of_their_greetings(store: rb.Store, shop: Shop, tmp_path: Path) -> None:
    other = Shop(tmp_path, ASKS)

    async def run() -> Any:
        with rb.record(store, "ticket"):
            async with shop.client() as one, other.client() as two:
                return [[tool.name for tool in (await client.list_tools()).tools] for client in (one, two)]

    first = await run()
    report = await rb.areplay(store.session("ticket"), run)
    assert first[1] == ["greet"]
    assert (report.value, report.equal) == (first, True), str(report)


async def test_a_person_is_asked_again(store: rb.Store, tmp_path: Path) -> None:
    shop = Shop(tmp_path, ASKS)

    def run(name: str) -> Any:
        async def person(context: object, params: Any) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={"name": name})

        async def running() -> str:
            with rb.record(store, "ticket"):
                async with shop.client(elicitation_callback=person) as client:
                    return (await client.call_tool("greet", {})).content[0].text

        return running

    assert await run("Ida")() == "hello Ida"
    report = await rb.areplay(store.session("ticket"), run("Ida"))
    assert (report.equal, report.value) == (True, "hello Ida"), str(report)
    report = await rb.areplay(store.session("ticket"), run("Ola"))
    assert (report.equal, report.divergence is not None) == (False, True)
    assert shop.started == 1


async def test_a_server_over_http_is_not_reached(store: rb.Store) -> None:
    def run(url: str) -> Any:
        async def running() -> Any:
            with rb.record(store, "ticket"), record_clients():
                async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as client:
                    await client.initialize()
                    return (await client.call_tool("add", {"a": 1, "b": 2})).structuredContent

        return running

    with web() as url:
        assert await run(url)() == {"result": 3}
    report = await rb.areplay(store.session("ticket"), run(f"http://127.0.0.1:{free_port()}/mcp"))
    assert (report.equal, report.value, report.live) == (True, {"result": 3}, 0), str(report)


async def test_what_a_proxy_recorded_is_replayed_too(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    shop = Shop(tmp_path)
    args = ["-c", CLI, "mcp", "record", "--store", sqlite_url, "--session", "ticket", "--", sys.executable, *shop.args]

    async def run() -> Any:
        server = StdioServerParameters(command=sys.executable, args=args, env={**os.environ, "PYTHONPATH": path})
        async with stdio_client(server) as streams, ClientSession(*streams) as client:
            await client.initialize()
            return (await client.call_tool("find_order", {"order": "A-1"})).structuredContent

    first = await run()
    settled(tmp_path)
    with rb.open_store(sqlite_url) as store:
        report = await rb.areplay(store.session("ticket"), run)
        assert (report.equal, report.value, report.live, report.unused) == (True, first, 0, ()), str(report)
    assert shop.started == 1


async def test_a_timeout_and_a_server_that_died_end_as_they_did(store: rb.Store, tmp_path: Path) -> None:
    from datetime import timedelta

    shop = Shop(tmp_path, ROOT / "tests" / "mcp" / "edge_server.py")

    async def run() -> list[str]:
        told: list[str] = []
        with rb.record(store, "ticket"):
            async with shop.client() as client:
                for tool, seconds in (("silent", 0.3), ("count", 60), ("die", 60)):
                    try:
                        await client.call_tool(tool, {}, read_timeout_seconds=timedelta(seconds=seconds))
                        told.append("ok")
                    except McpError as error:
                        told.append(error.error.message.partition(".")[0])
        return told

    first = await run()
    assert (first[1], first[2]) == ("ok", "Connection closed")
    report = await rb.areplay(store.session("ticket"), run)
    assert (report.equal, report.value) == (True, first), str(report)
    assert shop.started == 1
