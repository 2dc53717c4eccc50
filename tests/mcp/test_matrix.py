"""Servers that others wrote, driven by hosts of both SDK lines: directly, through the proxy, and from the record.

The npm package and the second environment are set up here, once for all workers, where ``RATH_CI`` is set (`.ci/run`); who has them
already names them in ``RATH_MCP_NPM`` (a directory with ``node_modules``) and ``RATH_MCP_2X`` (a directory with an ``env`` that has
mcp 2.x and mcp-server-git).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import rath_bridge as rb
from rath_mcp import session_server
from rath_mcp.listening import Listener
from tests.environments import PLACE, made, second_mcp
from tests.mcp.servers import ROOT, bodies, listening, proxy, settled, tool_calls, web

pytestmark = pytest.mark.timeout(900)

DRIVER = str(Path(__file__).parent / "driver.py")
CLI = [sys.executable, "-c", "import sys; from rath_bridge.cli import main; sys.exit(main())", "mcp"]
EVERYTHING: list[Any] = [
    ["echo", {"message": "hi"}], ["get-sum", {"a": 2, "b": 3}], ["get-tiny-image", {}], ["get-structured-content", {"location": "Chicago"}],
    ["get-resource-links", {"count": 2}], ["get-annotated-message", {"messageType": "error", "includeImage": True}],
    ["trigger-long-running-operation", {"duration": 1, "steps": 2}], ["get-sum", {"a": "no"}], ["no-such-tool", {}],
    ["echo", {"message": "hi"}],
]  # fmt: skip
TIME: list[Any] = [
    ["convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}],
    ["convert_time", {"source_timezone": "UTC", "time": "noon", "target_timezone": "Asia/Tokyo"}],
]  # fmt: skip


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed: server-everything is not driven")
    quiet = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", PLACE]
    place = made("npm", tmp_path_factory, "RATH_MCP_NPM", [*quiet, "@modelcontextprotocol/server-everything"])
    return [str(place / "node_modules" / ".bin" / "mcp-server-everything"), "stdio"]


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with the other SDK line."""
    return second_mcp(tmp_path_factory)


def drive(python: str, calls: list[Any], server: list[str], place: Path, token: str = "none") -> list[Any]:
    env = {
        **os.environ,
        "RATH_BRIDGE_SPOOL": str(place / "spool"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")]),
        "DRIVER_TOKEN": token,
    }
    done = subprocess.run([python, DRIVER, json.dumps(calls), *server], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(pythons: list[str], calls: list[Any], server: list[str], place: Path) -> None:
    """Direct, proxied and replayed runs give the same; every recording serves every host."""
    url = f"sqlite:///{place / 'runs.db'}"
    for number, python in enumerate(pythons):
        direct = drive(python, calls, server, place)
        assert drive(python, calls, [*CLI, "record", "--store", url, "--session", f"s{number}", "--", *server], place) == direct
        settled(place)
        replay = [*CLI, "replay", "--store", url, f"s{number}"]
        assert drive(python, calls, replay, place) == direct
        for other in set(pythons) - {python}:
            assert [_said(one) for one in drive(other, calls, replay, place)[2:]] == [_said(one) for one in direct[2:]]
    with rb.open_store(url) as store:
        assert [call.name for call in tool_calls(store.session("s0"))] == [name for name, _ in calls]
        assert store.session("s0").pending() == ()


def _said(answer: Any) -> Any:
    """What of an answer does not depend on the SDK that reads it."""
    if isinstance(answer, str):
        return "error"
    return {key: answer.get(key) for key in ("content", "structuredContent")} | {"isError": bool(answer.get("isError"))}


def test_server_everything(everything: list[str], second: str, tmp_path: Path) -> None:
    check([sys.executable, second], EVERYTHING, everything, tmp_path)


def test_server_time_of_the_other_sdk_line(second: str, tmp_path: Path) -> None:
    check([sys.executable, second], TIME, [second, "-m", "mcp_server_time", "--local-timezone", "UTC"], tmp_path)


def test_server_git_on_a_real_repository(second: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    identity = ["-c", "user.name=Ida", "-c", "user.email=ida@example.org"]
    for words in (
        ["init", "-q", "-b", "main", str(work)],
        ["-C", str(work), *identity, "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *words], check=True)
    (work / "file").write_text("new\n")
    calls: list[Any] = [
        ["git_status", {"repo_path": str(work)}], ["git_log", {"repo_path": str(work), "max_count": 3}],
        ["git_status", {"repo_path": "/no/such/place"}],
    ]  # fmt: skip
    check([second, sys.executable], calls, [second, "-m", "mcp_server_git", "--repository", str(work)], tmp_path)


def test_questions_within_results_are_on_record_and_asked_again_in_the_era_of_the_client(second: str, tmp_path: Path) -> None:
    """One call of the later era that asks its person twice is three requests (MRTR); to SDK 1.x the same server asks by itself."""
    check([sys.executable, second], [["greet", {}]], [second, str(Path(__file__).parent / "asking_server_2x.py")], tmp_path)
    with rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        asked = [body for body in bodies(store.session("s0"), "tool_call") if body.type == "mcp.server_request"]
        assert [body.arguments["message"] for body in asked] == ["Who are you?", "What does Who are you? like?"]
        rounds = tool_calls(store.session("s1"))
        told = [next(iter(body.attributes.get("rath.mcp.input_responses", {}).values()), {}).get("content") for body in rounds]
        assert told == [None, {"name": "Who are you?"}, {"colour": "What does Who are you? like?"}]
        results = [body.result for body in bodies(store.session("s1"), "tool_result")]
        assert [result["resultType"] for result in results] == ["input_required", "input_required", "complete"]


def check_http(pythons: list[str], calls: list[Any], upstream: str, place: Path) -> None:
    """The same over streamable HTTP; the record is served over stdio."""
    for number, python in enumerate(pythons):
        direct = drive(python, calls, [upstream], place)
        with proxy(place, upstream, f"s{number}") as port:
            assert drive(python, calls, [f"http://127.0.0.1:{port}/mcp"], place) == direct
        replay = [*CLI, "replay", "--store", f"sqlite:///{place / 'runs.db'}", f"s{number}"]
        other = pythons[number - 1]
        assert [_said(one) for one in drive(other, calls, replay, place)[2:]] == [_said(one) for one in direct[2:]]
    with rb.open_store(f"sqlite:///{place / 'runs.db'}") as store:
        for number in range(len(pythons)):
            assert [call.name for call in tool_calls(store.session(f"s{number}"))] == [name for name, _ in calls]
            assert store.session(f"s{number}").pending() == ()


WEB: list[Any] = [["add", {"a": 1, "b": 2}], ["fail", {}], ["no-such-tool", {}], ["add", {"a": 1, "b": 2}]]


def test_http_servers_of_both_sdk_lines(second: str, tmp_path: Path) -> None:
    for python in (sys.executable, second):
        place = tmp_path / ("one" if python == sys.executable else "two")
        place.mkdir()
        with web(python) as upstream:
            check_http([sys.executable, second], WEB, upstream, place)


def test_server_everything_over_http(everything: list[str], second: str, tmp_path: Path) -> None:
    with listening([everything[0], "streamableHttp"]) as port:
        check_http([sys.executable, second], EVERYTHING, f"http://127.0.0.1:{port}/mcp", tmp_path)


def test_the_session_server_shows_both_lines_the_same_over_stdio_and_http(second: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with rb.open_store(url) as store:
        store.create("ticket").append(rb.message("user", "Where is my parcel?"))
        calls: list[Any] = [["search_sessions", {"text": "parcel"}], ["read_session", {"name": "nobody"}]]
        with Listener(("127.0.0.1", 0), session_server(store), "t0ken") as listener:
            Thread(target=listener.serve_forever, daemon=True).start()
            for python, protocol in ((sys.executable, "2025-11-25"), (second, "2026-07-28")):
                found = drive(python, calls, [listener.url], tmp_path, "t0ken")
                assert found == drive(python, calls, [*CLI, "serve", "--store", url], tmp_path)
                assert (found[0], len(found[2]["structuredContent"]["chunks"])) == (protocol, 1)
            listener.shutdown()


def test_a_client_of_the_other_sdk_line_is_recorded_and_replayed(second: str, tmp_path: Path) -> None:
    """``record_client``, ``record_clients`` and ``rb.replay`` under SDK 2.x, in both eras."""
    told = tmp_path / "rath_bridge-0.dist-info"  # what an installation would tell of the adapter
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: rath-bridge\nVersion: 0\n")
    (told / "entry_points.txt").write_text("[rath_bridge.adapters]\nmcp = rath_mcp\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters"), str(tmp_path)])}
    script = str(Path(__file__).parent / "both_lines.py")
    done = subprocess.run([second, script, second], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = {"calls": [["convert_time", "ok"]], "equal": True, "same": True, "reached": 0, "live": 1, "lived": True}
    asked = {**expected, "calls": [["greet", "ok"]] * 3, "live": 3}
    assert json.loads(done.stdout) == {"by-hand": expected, "client": expected, "asked": asked}
