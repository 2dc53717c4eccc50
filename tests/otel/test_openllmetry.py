"""OpenLLMetry, live: what its instrumentations make hangs on the runs that our recorders know, and counts nothing twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import rath_bridge as rb
from rath_bridge.interchange.importing import import_document
from rath_bridge.interchange.reading import read
from rath_bridge.model.kinds import Run
from tests.mcp.servers import ROOT
from tests.otel.test_spans_in import spans_in
from tests.otel.traced import exported


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[rb.Store, bytes]]:
    place = tmp_path_factory.mktemp("openllmetry")
    url, file = f"sqlite:///{place / 'runs.db'}", place / "spans.bin"
    command = [sys.executable, "-m", "tests.otel.openllmetry_run", url, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_env(), timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    with rb.open_store(url) as store:
        yield store, file.read_bytes()


def _env() -> dict[str, str]:
    import os

    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(ROOT) / "adapters")]),
        "TRACELOOP_TRACE_CONTENT": "true",
    }


def _runs(session: rb.Session) -> dict[str, str | None]:
    return {cast(Run, chunk.body).name: chunk.run for chunk in session if chunk.kind == "run"}


def test_openllmetry_beside_a_wrapped_graph(made: tuple[rb.Store, bytes]) -> None:
    session = made[0].session("langgraph/t")
    found = {body.attributes.get("gen_ai.operation.name"): chunk.run for chunk, body in spans_in(session)}
    assert found["chat"] == found["execute_task"] == _runs(session)["answer"]
    assert [chunk.kind for chunk in session].count("inference") == 1
    assert session.usage().total_tokens == 5
    assert not [span for span in exported(session) if span.name.startswith("GenericFakeChatModel")]


def test_openllmetry_beside_the_tracing_processor(made: tuple[rb.Store, bytes]) -> None:
    session = made[0].session("ticket")
    found = {body.name: chunk.run for chunk, body in spans_in(session)}
    assert found["openai.response"] == _runs(session)["Solo"]
    assert {"Solo.agent", "Agent Workflow"} <= set(found)
    assert [chunk.kind for chunk in session].count("inference") == 1
    assert session.usage().total_tokens == 15


def test_a_file_of_openllmetrys_spans_becomes_a_session(made: tuple[rb.Store, bytes]) -> None:
    """Its own words are understood."""
    store = rb.open_store("memory:")
    (done,) = [import_document(store, document) for document in read(made[1], "spans.bin")]
    session = store.session(done.session)
    assert [(one.role, one.text) for one in session.messages()] == [("user", "hi"), ("assistant", "hello")]
    assert session.usage().total_tokens == 5
