"""What an installer, an importer and a stranger reading the repository see."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ADAPTERS = {"langgraph": "rath_langgraph", "openai_agents": "rath_openai_agents", "autogen": "rath_autogen", "mcp": "rath_mcp"}
PACKAGES = ["rath_bridge", *ADAPTERS.values()]
FRAMEWORKS = ["langgraph", "langchain_core", "agents", "openai", "autogen_core", "autogen_agentchat", "mcp"]

# Written in pieces, since this file is searched too.
INDEX_HOST = re.compile(r"(?:pypi|pythonhosted|npmjs)" + r"\.(?:org|com)|deb" + r"\.debian\.org")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:wor" + r"k|roo" + r"t)/")


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_every_adapter_is_found_by_its_entry_point() -> None:
    found = {point.name: point for point in entry_points(group="rath_bridge.adapters")}
    assert {name: point.value for name, point in found.items() if name in ADAPTERS} == ADAPTERS
    for name, package in ADAPTERS.items():
        assert found[name].load() is import_module(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_our_types(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").exists()


def test_importing_the_core_loads_no_framework() -> None:
    assert modules_after("import rath_bridge").isdisjoint(FRAMEWORKS)


def test_no_public_name_of_the_core_loads_a_framework() -> None:
    code = "import rath_bridge\nfor name in getattr(rath_bridge, '__all__', ()): getattr(rath_bridge, name)"
    assert modules_after(code).isdisjoint(FRAMEWORKS)


@pytest.mark.parametrize("package", ADAPTERS.values())
def test_an_adapter_imports_without_its_framework(package: str) -> None:
    missing = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in FRAMEWORKS)
    modules_after(f"{missing}import {package}")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_committed_files_name_no_index_and_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[str] = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            found += [f"{name}:{number}: {hit[0]}" for hit in (INDEX_HOST.search(line), MACHINE_PATH.search(line)) if hit]
    assert found == []
