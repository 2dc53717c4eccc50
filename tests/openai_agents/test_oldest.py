"""The oldest release that ``SUPPORTED`` names, in an environment of its own: the core of these tests runs there as it does here."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import rath_openai_agents
from tests.environments import PLACE, PYTHON, made

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
CORE = ("matrix", "runs", "law12", "replay", "session", "state", "processor", "late", "prefork")
OLDEST = rath_openai_agents.SUPPORTED["openai-agents"].removeprefix(">=")
# everything as it is pinned here, but for what the SDK brings with it
CONSTRAINTS = """
import pathlib, sys
names = ("openai", "mcp", "httpx")
lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
pathlib.Path(sys.argv[2]).write_text("\\n".join(line for line in lines if not line.startswith(names)))
"""


def test_the_core_of_these_tests_holds_on_the_oldest_release(tmp_path_factory: pytest.TempPathFactory) -> None:
    needs = ["pytest", "pytest-asyncio", "pytest-timeout", "pytest-randomly", "hypothesis"]
    sdk = [f"openai-agents=={OLDEST}.*", "mcp<2", "-e", str(ROOT)]
    place = made(
        f"openai-agents-{OLDEST}", tmp_path_factory, "RATH_AGENTS_OLDEST",
        [sys.executable, "-m", "venv", f"{PLACE}/env"],
        [sys.executable, "-c", CONSTRAINTS, str(ROOT / "constraints.txt"), f"{PLACE}/constraints.txt"],
        [PYTHON, "-m", "pip", "install", "-q", "-c", f"{PLACE}/constraints.txt", *sdk, *needs],
    )  # fmt: skip
    python = str(place / "env" / "bin" / "python")
    files = [str(path) for name in CORE if (path := Path(__file__).parent / f"test_{name}.py").exists()]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [python, "-m", "pytest", *files, "-q", "-k", "not postgres", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_the_newest_release_is_the_one_that_is_installed_here() -> None:
    """The other row: what is pinned for development is what users get."""
    installed = tuple(map(int, metadata.version("openai-agents").split(".")[:2]))
    assert installed >= (0, 24)
    assert tuple(map(int, OLDEST.split("."))) == (0, 20)
