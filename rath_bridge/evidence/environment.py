"""``environment.json``: where a packet was written. The record's own software stands in the chunks' origins."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

from rath_bridge.redaction import DEFAULT

VARIABLES: Final = ("CI", "LANG", "LC_ALL", "PYTHONHASHSEED", "RATH_BRIDGE_STORE", "SOURCE_DATE_EPOCH", "TZ")
"""Environment variables that are written; no others are."""


def environment(variables: tuple[str, ...] = VARIABLES) -> dict[str, Any]:
    """Describe this machine and process; known secrets and passwords in addresses are masked.

    Args:
        variables: Names of the environment variables to write.
    """
    found = {
        "platform": {"system": platform.system(), "release": platform.release(), "machine": platform.machine()},
        "python": {"implementation": platform.python_implementation(), "version": platform.python_version()},
        "packages": packages(),
        "git": git(Path.cwd()),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else [],
        "variables": {name: os.environ[name] for name in variables if name in os.environ},
    }
    return DEFAULT.apply(_text(found))


@lru_cache(maxsize=1)
def packages() -> dict[str, str]:
    """Return every installed distribution with its version."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        facts = cast("Mapping[str, str]", one.metadata)
        if facts and "Name" in facts:
            found.setdefault(facts["Name"], one.version)  # the first on the path is the one that is imported
    return dict(sorted(found.items()))


def git(place: Path) -> dict[str, Any] | None:
    """Return commit and dirty flag of the checkout that the process works in; None where there is none."""
    commit = _git(place, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(place, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "dirty": None if status is None else bool(status.strip())}


def _git(place: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(value: Any) -> Any:
    """Surrogates of undecodable arguments are written as escapes: JSON holds no others."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_text(key): _text(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return [_text(item) for item in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]
