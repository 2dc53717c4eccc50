"""The oldest releases that ``SUPPORTED`` names, in an environment of their own; and what is said beside older ones."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import rath_langgraph
from tests.environments import PLACE, PYTHON, made

ROOT = Path(__file__).parents[2]
CORE = ("saver", "record", "values", "as_before", "core_replay", "order", "unsaved", "merging", "time_travel", "text_models")
NAMES = ("langgraph", "langgraph-checkpoint", "langchain-core")
OLDEST = {name: rath_langgraph.SUPPORTED[name].removeprefix(">=") for name in NAMES}
# everything as it is pinned here, but for what goes with LangGraph
CONSTRAINTS = """
import pathlib, sys
lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
kept = [line for line in lines if not line.startswith(("lang", "pydantic", "orjson", "ormsgpack"))]
pathlib.Path(sys.argv[2]).write_text("\\n".join(kept))
"""
OLDER = """
import sys
sys.modules["langgraph.callbacks"] = None  # as in langgraph 1.0
import rath_langgraph
from rath_bridge.errors import UnsupportedError
try:
    rath_langgraph.wrap
except UnsupportedError as error:
    print(error)
"""


@pytest.mark.timeout(900)
def test_the_core_of_these_tests_holds_on_the_oldest_releases(tmp_path_factory: pytest.TempPathFactory) -> None:
    needs = ["pytest", "pytest-asyncio", "pytest-timeout", "pytest-randomly", "hypothesis", "pycryptodome", "psycopg[binary]"]
    theirs = [f"{name}=={version}" for name, version in OLDEST.items()]
    place = made(
        f"langgraph-{OLDEST['langgraph']}", tmp_path_factory, "RATH_LANGGRAPH_OLDEST",
        [sys.executable, "-m", "venv", f"{PLACE}/env"],
        [sys.executable, "-c", CONSTRAINTS, str(ROOT / "constraints.txt"), f"{PLACE}/constraints.txt"],
        [PYTHON, "-m", "pip", "install", "-q", "-c", f"{PLACE}/constraints.txt", *theirs, "-e", str(ROOT), *needs],
    )  # fmt: skip
    files = [str(Path(__file__).parent / f"test_{name}.py") for name in CORE]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [str(place / "env" / "bin" / "python"), "-m", "pytest", *files, "-q", "-k", "not postgres and not delta"]
    done = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_the_newest_releases_are_those_that_are_installed_here() -> None:
    for name in NAMES:
        assert tuple(map(int, metadata.version(name).split(".")[:2])) >= tuple(map(int, OLDEST[name].split(".")[:2]))


def test_an_older_release_is_named_with_what_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", OLDER], capture_output=True, text=True, timeout=60, check=True)
    assert f"beside langgraph {metadata.version('langgraph')}, langgraph-checkpoint " in done.stdout
    assert f"it needs langgraph{rath_langgraph.SUPPORTED['langgraph']}, " in done.stdout
    assert 'pip install -U "rath-bridge[langgraph]"' in done.stdout
