"""What every test has: a closed network, Hypothesis profiles, and an address for each kind of store."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.offline import refuse_other_hosts

IN_CI = os.environ.get("RATH_CI") == "1"
LINUX = sys.platform == "linux"

settings.register_profile("fast", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Elsewhere each run looks for new examples; here it says whether this code is sound, and the same each time.
settings.register_profile("ci", settings.get_profile("fast"), max_examples=80, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "fast"))


def pytest_configure() -> None:
    """Take a developer's own keys, tracing and store out of reach before anything is imported."""
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name.startswith(("LANGSMITH_", "LANGCHAIN_", "RATH_BRIDGE_")):
            del os.environ[name]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what a test that failed has left behind: a process that lives on may hold a pipe, a port or a disk."""
    if os.environ.get("PYTEST_XDIST_WORKER") or not session.config.getoption("numprocesses", None):  # else ours are the workers
        for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split() if LINUX else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture(scope="session", autouse=True)
def closed_network() -> None:
    """Refuse every address that is not this machine's."""
    refuse_other_hosts()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server on which databases may be created: one for each xdist worker."""
    given = os.environ.get("RATH_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    from tests.postgres_server import find_binaries, run_server

    binaries = find_binaries()
    if binaries is None:
        reason = "no PostgreSQL: install Debian's `postgresql`, or set RATH_TEST_POSTGRES_URL"
        pytest.fail(reason) if IN_CI else pytest.skip(reason)
    with run_server(binaries) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A database of this test's own."""
    from tests.postgres_server import fresh_database

    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn."""
    return "memory:" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")
