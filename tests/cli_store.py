"""A store with a mixed session, for the tests of the command line."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

import rath_bridge as rb
from rath_bridge.cli.app import app
from rath_bridge.model.kinds import Handoff, Inference, Message, Note, Run, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import TextPart, ToolCallPart

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold red]markup[/] \u202egpj.exe\u2066 \x9b31m a\x00b \ud800 \U000e0041 \r\n\ttail"
TRIAGE = "a1b2c3d4e5f60718"


def origin(framework: str) -> dict[str, str]:
    return {"adapter": f"rath_{framework}", "framework": framework, "version": "1.0"}


def fill(url: str) -> rb.Store:
    """Make ``ticket-4711``: a LangGraph run, a branch ``try-b`` by OpenAI Agents, merged back, and a detached ``copy``."""
    store = rb.open_store(url)
    lang, openai = origin("langgraph"), origin("openai_agents")
    s = store.create("ticket-4711").append(
        rb.message("user", "My invoice 4711 is wrong"),
        rb.draft(Run(phase="begin", name="triage", type="graph"), run=TRIAGE, origin=lang),
        rb.draft(Inference(model="m-1", usage=Usage(input_tokens=120, output_tokens=30), duration=1.25), run=TRIAGE, origin=lang),
        rb.draft(Message(role="assistant", parts=(ToolCallPart("c1", "look_up", {"number": 4711}),)), run=TRIAGE, origin=lang),
        rb.draft(ToolCall(name="look_up", arguments={"number": 4711}, call_id="c1"), run=TRIAGE, origin=lang),
        rb.draft(ToolResult(name="look_up", call_id="c1", result={"total": 12.5}), run=TRIAGE, origin=lang),
        rb.draft(Message(role="assistant", parts=(TextPart("It is 12.50.\n" + "long " * 200),)), run=TRIAGE, origin=lang),
        rb.draft(Run(phase="end", name="triage", type="graph", status="ok"), run=TRIAGE, origin=lang),
    )
    b = s.fork("try-b", at=s[7].id).append(
        rb.draft(Handoff(from_agent="triage", to_agent="billing"), origin=openai),
        rb.draft(Message(role="assistant", parts=(TextPart("I write a credit note"),)), origin=openai),
    )
    s.append(rb.message("user", "Any news?")).merge(b).append(rb.draft(Note(text="looks good", author="ann")))
    s.detach("copy")
    return store


def run(*args: str, store: str | None = None, **options: Any) -> Result:
    """Run ``rath-bridge`` in this process."""
    return CliRunner().invoke(app, [*(["--store", store] if store else []), *args], prog_name="rath-bridge", **options)
