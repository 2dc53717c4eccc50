"""``rath-bridge mcp record``: whatever crosses the pipes crosses them unchanged, and is on record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_mcp import record_client
from rath_mcp.stdio import label_of
from tests.mcp.servers import CLI, EDGE, ODD, ROOT, SHOP, TIME, bodies, notes, settled, tool_calls, without_patience
from tests.waiting import until

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


_left: list[Any] = []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    yield tmp_path
    while _left:
        one = _left.pop()
        if isinstance(one, rb.Store):
            one.close()
            continue
        with suppress(BrokenPipeError):
            one.stdin.close()
        one.stdout.close()
        one.kill()
        one.wait()


def url(place: Path) -> str:
    return f"sqlite:///{place / 'runs.db'}"


def proxied(place: Path, server: list[str], *options: str) -> list[str]:
    return [sys.executable, "-c", CLI, "mcp", "record", "--store", url(place), *options, "--", *server]


def run(place: Path, server: list[str], data: bytes = b"", *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(proxied(place, server, *options), input=data, capture_output=True, timeout=60)


def start(place: Path, server: list[str], *options: str) -> subprocess.Popen[bytes]:
    _left.append(subprocess.Popen(proxied(place, server, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0))
    return _left[-1]


def parameters(place: Path, server: list[str], *options: str) -> StdioServerParameters:
    command = proxied(place, [sys.executable, *server], *options)
    return StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))


def so_far(place: Path, name: str) -> rb.Session:
    """What is on record while a proxy runs."""
    _left.append(rb.open_store(url(place)))
    return _left[-1].session(name)


def recorded(place: Path, name: str) -> rb.Session:
    """What is on record when all is."""
    settled(place)
    return so_far(place, name)


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def frames(session: rb.Session) -> list[Any]:
    return rb.encode(session, "mcp", as_="frames")[0]


def test_bytes_pass_unchanged_banner_blank_lines_and_invalid_utf8_are_kept_and_marked(place: Path) -> None:
    """python-sdk#2454 (invalid UTF-8), open-webSearch#35 (a banner on standard output)."""
    done = run(place, [*ODD, "bytes"], b"", "--session", "s")
    assert done.stdout == b"banner \xff\xfe\n\n{broken\n\r\nno newline at the end"
    assert (done.returncode, without_patience(done.stderr)) == (0, "")
    session = recorded(place, "s")
    assert notes(session) == ["unreadable"] * 5
    kept = frames(session)
    assert kept[0]["raw_base64"] == "YmFubmVyIP/+"
    assert [frame["raw"] for frame in kept[1:]] == ["", "{broken", "", "no newline at the end"]
    assert session.fsck() == []


@pytest.mark.parametrize(("how", "status", "problem"), [
    (["exit", "0"], 0, None), (["exit", "7"], 7, "status 7"), (["signal", "9"], -9, "signal 9"), (["signal", "15"], -15, "signal 15"),
])  # fmt: skip
def test_the_exit_status_is_the_servers(place: Path, how: list[str], status: int, problem: str | None) -> None:
    done = run(place, [*ODD, *how], b"", "--session", "s")
    assert done.returncode == status
    end = bodies(recorded(place, "s"), "run")[-1]
    assert (end.phase, end.attributes["rath.mcp.exit_status"]) == ("end", status)
    assert (end.error is None) if problem is None else problem in end.error


def test_a_server_that_cannot_be_started_is_on_record_and_said(place: Path) -> None:
    done = run(place, ["/no/such/server"], b"", "--session", "s")
    assert done.returncode == 127
    assert b"cannot start /no/such/server" in done.stderr
    assert "No such file" in bodies(recorded(place, "s"), "run")[-1].error


def test_a_result_of_20_mb_passes_and_stands_once(place: Path) -> None:
    """meta-ads-mcp PR#150: messages above 10 MiB exist."""
    text = "x" * 20_000_000
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}).encode() + b"\n"
    data = request(1, "tools/call", name="t", arguments={}) + line
    done = run(place, [*ODD, "echo"], data, "--session", "s")
    assert done.stdout == data + b"bye"
    session = recorded(place, "s")
    assert (place / "runs.db").stat().st_size < 5_000_000
    assert any(frame.get("msg", {}).get("result", {}).get("content") for frame in frames(session) if frame["dir"] == "s2c")


def test_a_child_that_holds_the_servers_output_does_not_hold_the_host(place: Path) -> None:
    """python-sdk#671, #817: a tool's subprocess inherits the pipes."""
    done = run(place, [*ODD, "grandchild"])
    os.kill(int(done.stdout), signal.SIGKILL)  # it lives: nobody has waited for it
    assert done.returncode == 3


def test_sigterm_reaches_the_server_and_its_status_comes_back(place: Path) -> None:
    process = start(place, [*ODD, "polite"], "--session", "s")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.wait(60) == 21
    assert bodies(recorded(place, "s"), "run")[-1].attributes["rath.mcp.exit_status"] == 21


def test_a_host_that_is_gone_takes_a_stubborn_server_with_it(place: Path) -> None:
    """python-sdk#360: a client that never exits; python-sdk#1577: the call is closed, not left hanging."""
    process = start(place, [*ODD, "stubborn"], "--session", "s")
    assert process.stdin is not None
    assert process.stdout is not None
    server = int(process.stdout.readline())
    process.stdin.write(request(1, "tools/call", name="t"))
    process.stdin.close()
    process.stdout.close()
    assert process.wait(60) == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    (result,) = bodies(recorded(place, "s"), "tool_result")
    assert (result.status, result.reason) == ("no_response", "client_closed")


def test_a_proxy_that_is_killed_loses_nothing_and_leaves_nobody_behind(place: Path) -> None:
    """openai-agents#1393: a broken teardown; law 9 for what was passed on."""
    process = start(place, [*ODD, "stubborn"], "--session", "s")
    assert process.stdin is not None
    assert process.stdout is not None
    server = int(process.stdout.readline())
    process.stdin.write(request(1, "tools/call", name="slow"))
    until(lambda: "slow" in [call.name for call in so_far(place, "s").pending()])
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    (result,) = bodies(recorded(place, "s"), "tool_result")
    assert (result.status, result.reason) == ("no_response", "proxy_killed")

    def gone() -> bool:
        try:
            return "Z" in Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1][:3]
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(gone)


@pytest.mark.parametrize("durable", [False, True])
def test_a_request_is_on_record_before_it_is_answered(place: Path, durable: bool) -> None:
    """python-sdk#1577: write the request before awaiting its answer."""
    process = start(place, [*ODD, "echo"], *(["--durable"] if durable else []))
    assert process.stdin is not None
    assert process.stdout is not None
    line = request(1, "tools/call", name="t")
    process.stdin.write(line)
    assert process.stdout.readline() == line  # it has passed
    process.stdin.close()
    assert process.stdout.read() == b"bye"
    assert process.wait(60) == 0
    assert bodies(recorded(place, f"mcp/{label_of(ODD)}"), "tool_call")[0].name == "t"


def test_a_store_that_is_down_stops_nobody_and_the_next_proxy_writes_what_was_left(place: Path) -> None:
    down = place / "runs.db"
    down.mkdir()  # nothing can be opened there
    data = request(1, "tools/call", name="t", arguments={"n": 1})
    done = run(place, [*ODD, "echo"], data, "--session", "s")
    assert (done.returncode, done.stdout) == (0, data + b"bye")
    assert b"the frames wait in" in done.stderr or b"is still being written" in done.stderr
    assert len(list((place / "spool").iterdir())) == 1
    down.rmdir()

    def written() -> bool:  # by the next, or by one after it where a keeper still held the frames
        assert run(place, [*ODD, "exit", "0"], b"", "--session", "other").returncode == 0
        return not list((place / "spool").iterdir())

    until(written)
    session = recorded(place, "s")
    call = tool_calls(session)[0]
    assert (call.name, call.arguments) == ("t", {"n": 1})
    assert session.fsck() == []


def test_without_a_place_for_the_spool_the_server_runs_all_the_same(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").write_text("")
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(place / "file" / "spool"))
    done = run(place, [*ODD, "echo"], b"x\n")
    assert (done.returncode, done.stdout) == (0, b"x\nbye")
    assert b"nothing is recorded" in done.stderr


@pytest.mark.parametrize("wrong", [["--store", "memory:"], ["--store", "ftp://x"], ["--session", "a b"]])
def test_what_cannot_be_meant_is_refused_in_one_line(place: Path, wrong: list[str]) -> None:
    done = run(place, [*ODD, "exit", "0"], b"", *wrong)
    assert done.returncode == 2
    assert done.stderr.startswith(b"rath-bridge: ")
    assert done.stderr.count(b"\n") == 1


def test_one_process_per_call_is_one_session(place: Path) -> None:
    """langchain-mcp-adapters and openrath start a server for each call."""
    for number in range(3):
        run(place, [sys.executable, *SHOP], request(number, "tools/call", name="greet", arguments={"name": str(number)}))
        settled(place)
    with rb.open_store(url(place)) as store:
        assert [session.name for session in store.sessions()] == ["mcp/mcp_server.py"]
        session = store.session("mcp/mcp_server.py")
        assert [call.arguments["name"] for call in tool_calls(session)] == ["0", "1", "2"]
        assert {call.status for call in session.calls()} == {"ok"}
        assert len([run for run in bodies(session, "run") if run.phase == "begin"]) == 3


def test_a_traceparent_joins_the_call_to_its_trace_and_the_effect_is_the_tools_own_word(place: Path) -> None:
    data = request(1, "tools/list") + request(
        2, "tools/call", name="find_order", arguments={"order": "A-1"}, _meta={"traceparent": TRACE}
    )
    process = start(place, [sys.executable, *SHOP], "--session", "s")
    assert process.stdin is not None
    assert process.stdout is not None
    for line in data.splitlines(keepends=True):
        process.stdin.write(line)
        process.stdout.readline()
    process.stdin.close()
    assert process.wait(60) == 0
    session = recorded(place, "s")
    call = next(chunk for chunk in session if chunk.kind == "tool_call")
    assert call.span is not None
    assert (call.span.trace_id, call.span.parent_id) == tuple(TRACE.split("-")[1:3])
    assert tool_calls(session)[0].effect == "reads"


async def test_a_client_that_records_itself_is_not_recorded_twice(place: Path) -> None:
    with rb.open_store(url(place)) as store:
        with rb.record(store, "ticket") as recorder, recorder.run("planner"):
            async with stdio_client(parameters(place, SHOP, "--session", "ticket")) as streams, ClientSession(*streams) as client:
                record_client(client)
                await client.initialize()
                await client.call_tool("greet", {"name": "Ida"})
        settled(place)
        session = store.session("ticket")
        (call,) = session.calls()
        assert (call.name, call.status) == ("greet", "ok")
        assert "recorded by its client, in the same store" in notes(session)


async def test_a_real_server_gives_the_same_results_and_is_on_record(place: Path) -> None:
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    answers: list[list[Any]] = []
    direct = StdioServerParameters(command=sys.executable, args=TIME)
    for server in (direct, parameters(place, TIME, "--session", "s")):
        async with stdio_client(server) as streams, ClientSession(*streams) as client:
            hello = await client.initialize()
            tools = await client.list_tools()
            good, bad = (
                await client.call_tool("convert_time", given),
                await client.call_tool("convert_time", {**given, "time": "x"}),
            )
            answers.append([one.model_dump() for one in (hello, tools, good, bad)])
    assert answers[0] == answers[1]
    session = recorded(place, "s")
    assert [call.status for call in session.calls()] == ["ok", "error"]
    assert bodies(session, "run")[0].attributes["rath.mcp.server"]["name"] == "mcp-time"


async def test_a_server_that_dies_mid_call_leaves_no_call_open(place: Path) -> None:
    async with stdio_client(parameters(place, EDGE, "--session", "s")) as streams, ClientSession(*streams) as client:
        await client.initialize()
        with pytest.raises(McpError):
            await client.call_tool("die", {})
    session = recorded(place, "s")
    (result,) = bodies(session, "tool_result")
    assert (result.status, result.reason) == ("no_response", "server_exit")
    end = bodies(session, "run")[-1]
    assert end.attributes["rath.mcp.exit_status"] == 3


@pytest.mark.parametrize(("command", "label"), [
    (["npx", "-y", "@modelcontextprotocol/server-everything"], "server-everything"), (["uvx", "mcp-server-git"], "mcp-server-git"),
    (["/usr/bin/python3.11", "-m", "mcp_server_time", "--local-timezone", "UTC"], "mcp_server_time"), (["node"], "node"),
    (["docker", "run", "-i", "ghcr.io/x/y:z"], "y-z"), (["-"], "server"),
])  # fmt: skip
def test_a_server_is_called_after_its_command(command: list[str], label: str) -> None:
    assert label_of(command) == label


def test_the_proxy_imports_neither_mcp_nor_the_command_line() -> None:
    code = (
        "import sys; from rath_mcp import wrapping, stdio, keeper\n"
        "print([n for n in ('mcp', 'typer', 'rich', 'asyncio') if n in sys.modules])"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
