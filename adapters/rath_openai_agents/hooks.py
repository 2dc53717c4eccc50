"""`RathRunHooks`: tool calls with their exact ids, which no span holds."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any, Final

from agents.lifecycle import RunHooks
from agents.tracing import get_current_span

from rath_bridge.given import check_store
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_bridge.session import Store
from rath_openai_agents.conversation import handoff_bodies
from rath_openai_agents.faults import error_text, guard
from rath_openai_agents.items import parse, plain
from rath_openai_agents.place import Place, locate


class RathRunHooks(RunHooks[Any]):
    """Records tools as they start and end (source: ``agents.lifecycle.RunHooks``).

    Hooks write where the trace's processor or the ambient recorder writes. With a processor, its function spans add what hooks do
    not see (tools that raised, tools that a guardrail kept from running); nothing is written twice.
    """

    def __init__(self, store: Store | None = None, *, session: str | None = None, also: RunHooks[Any] | None = None) -> None:
        """Record tools of the runs that get these hooks.

        Args:
            store: Only where this store is recorded to; by default wherever the run is.
            session: Only this session.
            also: Other hooks of the same run; they are called as if they were alone.
        """
        check_store(store, "RathRunHooks", session, optional=True)
        self._store, self._session, self._also = store, session, also
        self._began: dict[str, float] = {}
        self._native: dict[int, deque[str]] = {}
        """Calls of the SDK's own tools that have started, by tool: their hooks are told no call id, and they run one after the other."""

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Record that a tool is about to run."""
        place = self._place()
        with guard(place.recorder if place else None, "the start of a tool"):
            if place is not None:
                self._started(place, context, agent, tool)
        if self._also is not None:
            await self._also.on_tool_start(context, agent, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """Record how it ended."""
        place = self._place()
        with guard(place.recorder if place else None, "the end of a tool"):
            if place is not None:
                self._ended(place, context, tool, result)
        if self._also is not None:
            await self._also.on_tool_end(context, agent, tool, result)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Record a handoff, unless the processor's span of it does."""
        place = self._place()
        with guard(place.recorder if place else None, "a handoff"):
            if place is not None and (place.node is None or place.node.kind != "handoff"):
                asked = place.talk.pair_handoff(to_agent.name)
                for body in handoff_bodies(from_agent.name, to_agent.name, asked, {}):
                    place.emit(body, span=place.span())
        if self._also is not None:
            await self._also.on_handoff(context=context, from_agent=from_agent, to_agent=to_agent)

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]) -> None:
        """Passed on; `RecordingModel` records model calls."""
        if self._also is not None:
            await self._also.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Passed on."""
        if self._also is not None:
            await self._also.on_llm_end(context, agent, response)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Note that the tools of this run are seen as they start."""
        place = self._place()
        if place is not None:
            place.talk.hooked = True
        if self._also is not None:
            await self._also.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Passed on."""
        if self._also is not None:
            await self._also.on_agent_end(context, agent, output)

    # ---------------------------------------------------------------- inside

    def _place(self) -> Place | None:
        with guard(None, "a tool"):
            return locate(self._store, self._session)
        return None

    def _started(self, place: Place, context: Any, agent: Any, tool: Any) -> None:
        call_id = getattr(context, "tool_call_id", None)
        arguments, basis = parse(getattr(context, "tool_arguments", None)), None
        asked = place.talk.pair_kind(_NATIVE.get(type(tool).__name__)) if call_id is None else None
        if asked is not None:
            call_id, arguments, basis = asked.call_id, asked.arguments, "inferred"
            self._native.setdefault(id(tool), deque()).append(call_id)
        body = ToolCall(
            name=_name(context, tool), arguments=arguments, call_id=call_id, type=_kind(tool)[0], server=_kind(tool)[1],
            agent=agent.name, basis=basis,
        )  # fmt: skip
        if call_id is not None:
            place.talk.take_call(call_id)
            self._began[call_id] = monotonic()
        node = place.node if place.node is not None and place.node.kind == "function" else None
        if node is not None:
            node.started, node.call_id = True, call_id
        place.emit(body, span=node.context if node else place.span(), content=_content(context))

    def _ended(self, place: Place, context: Any, tool: Any, result: Any) -> None:
        call_id, basis = getattr(context, "tool_call_id", None), None
        started = self._native.get(id(tool))
        if call_id is None and started:
            call_id, basis = started.popleft(), "inferred"
        span = get_current_span()
        node = place.node if place.node is not None and place.node.kind == "function" else None
        # a tool's failure function turns an exception into an answer; the span is where it still shows
        error = error_text(span.error) if span is not None and node is not None else None
        began = self._began.pop(call_id, None) if call_id is not None else None
        body = ToolResult(
            name=_name(context, tool), call_id=call_id, status="error" if error else "ok", result=plain(result), error=error,
            duration=monotonic() - began if began is not None else None, basis=basis,
        )  # fmt: skip
        if node is not None:
            node.ended = True
        place.emit(body, span=node.context if node else place.span(), content=_content(context))


_NATIVE: Final = {
    "ShellTool": "shell_call", "LocalShellTool": "local_shell_call", "ApplyPatchTool": "apply_patch_call",
    "ComputerTool": "computer_call",
}  # fmt: skip


def _name(context: Any, tool: Any) -> str:
    return str(getattr(context, "tool_name", None) or getattr(tool, "name", type(tool).__name__))


def _kind(tool: Any) -> tuple[str, str | None]:
    """Type and MCP server of a tool, where the SDK knows them."""
    origin = getattr(tool, "_tool_origin", None)
    if getattr(origin, "type", None) == "mcp":
        return "mcp", getattr(origin, "mcp_server_name", None)
    return ("function" if hasattr(tool, "on_invoke_tool") else str(getattr(tool, "name", type(tool).__name__))), None


def _content(context: Any) -> bool:
    """False where the run said ``trace_include_sensitive_data=False``."""
    return bool(getattr(getattr(context, "run_config", None), "trace_include_sensitive_data", True))


__all__ = ["RathRunHooks"]
