"""OpenRath 1.3: the same tests, with the older package in front of the newer one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import PIP, PLACE, made

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)  # who comes second waits for the one who sets it up
def test_the_same_with_1_3(tmp_path_factory: pytest.TempPathFactory) -> None:
    install = [*PIP, "--no-deps", "--target", f"{PLACE}/site", "openrath==1.3.0"]
    site = made("openrath-1.3", tmp_path_factory, "RATH_OPENRATH_13", install) / "site"
    env = {**os.environ, "PYTHONPATH": str(site)}
    code = "from importlib.metadata import version; import rath; print(version('openrath'), rath.__file__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert told.stdout.split() == ["1.3.0", str(site / "rath" / "__init__.py")], told.stderr[-600:]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "tests/openrath/test_openrath.py",
        "tests/openrath/test_replay.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
