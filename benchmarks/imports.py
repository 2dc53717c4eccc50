"""What importing costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.table import Row

_SCRIPT = """
import resource, sys, time
start = time.perf_counter()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import {module}
{use}
took = time.perf_counter() - start
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = [m for m in ("langgraph", "langchain_core", "agents", "openai", "autogen_core", "mcp") if m in sys.modules]
print(took, memory / 1024, ",".join(found))
"""


def _measure(module: str, use: str = "", rounds: int = 5) -> tuple[float, float, str]:
    best = (float("inf"), 0.0, "")
    for _ in range(rounds):
        script = _SCRIPT.format(module=module, use=use)
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        took, memory, found = out.strip("\n").split(" ")
        best = min(best, (float(took), float(memory), found))
    return best


def rows() -> Iterator[Row]:
    """Import time, memory and what was loaded along."""
    took, memory, found = _measure("rath_bridge")
    used, used_memory, used_found = _measure("rath_bridge", "rath_bridge.open_store('memory:')")
    peer, peer_memory, _ = _measure("rath.session", rounds=1)
    yield Row(
        "import rath_bridge", f"{took:.3f} s, {memory:.0f} MB", "<= 0.15 s, <= 40 MB, no framework",
        f"openrath {peer:.1f} s, {peer_memory:.0f} MB", took <= 0.15 and memory <= 40 and not found,
    )  # fmt: skip
    yield Row(
        "import and open a store", f"{used:.3f} s, {used_memory:.0f} MB", "<= 0.15 s, <= 40 MB, no framework",
        "", used <= 0.15 and used_memory <= 40 and not used_found,
    )  # fmt: skip
