"""Print the figures: ``make bench``, or ``make bench ARGS="core langgraph"`` for some of them."""

from __future__ import annotations

import sys
from importlib import import_module

from rich.console import Console
from rich.table import Table

PARTS = (
    "imports",
    "core",
    "verbs_100k",
    "packets",
    "postgres",
    "langgraph",
    "langgraph_wrap",
    "autogen",
    "mcp",
    "openai_agents",
    "otel",
)
LONG = ("langgraph_1000",)
"""Only where they are named: minutes, and gigabytes of what they are compared with."""


def main(wanted: list[str]) -> int:
    """Run the parts and print one table."""
    unknown = [part for part in wanted if part not in (*PARTS, *LONG)]
    if unknown:
        print(f"there is no {unknown[0]!r}: choose from {', '.join((*PARTS, *LONG))}", file=sys.stderr)
        return 2
    console = Console()
    table = Table(title="rath_bridge figures (best of several rounds; the peer in the same run)", title_justify="left")
    for name in ("work", "ours", "reach", "peer"):
        table.add_column(name, overflow="fold")
    for part in wanted or PARTS:
        with console.status(f"measuring {part} ..."):
            for row in import_module(f"benchmarks.{part}").rows():
                mark = "" if row.holds is None else "[green]reached[/] " if row.holds else "[red]missed[/] "
                table.add_row(row.work, row.ours, mark + row.reach, row.peer)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
