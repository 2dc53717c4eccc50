"""Run by `make wheel-check` in an environment that holds our wheel and no framework."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path

PACKAGES = ["rath_bridge", "rath_langgraph", "rath_openai_agents", "rath_autogen", "rath_mcp"]
FRAMEWORKS = ["langgraph", "langchain_core", "agents", "openai", "autogen_core", "mcp"]

for name in FRAMEWORKS:
    if importlib.util.find_spec(name):
        sys.exit(f"{name} is installed here: this check needs an environment without frameworks")
for name in PACKAGES:
    where = Path(importlib.import_module(name).__file__ or "")
    if not where.is_relative_to(sys.prefix):
        sys.exit(f"{name} comes from {where}, not from the wheel")
    if not (where.parent / "py.typed").exists():
        sys.exit(f"{name} has no py.typed in the wheel")
for point in entry_points(group="rath_bridge.adapters"):
    point.load()
