"""MCP servers that a what-if asks live: connected at the first such call, each in a task of its own, and let go with the replay."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from typing import Any

from agents import Agent, FunctionTool
from agents.mcp import MCPServer
from agents.mcp.server import _MCPServerWithClientSession  # pyright: ignore[reportPrivateUsage]
from agents.tracing import custom_span

from rath_bridge.errors import UnsupportedError
from rath_bridge.replay import outside


class _Held:
    """A server that is connected, in one task from beginning to end: what it is connected with may not be left from another one."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.over = asyncio.Event()
        self.task = self.loop.create_task(self._hold())

    async def _hold(self) -> None:
        try:
            await self.server.connect()
        except Exception as error:  # noqa: BLE001 - told to whoever waits
            if not self.ready.done():
                self.ready.set_exception(error)
            return
        except BaseException:
            self.ready.cancel()
            raise
        try:
            if not self.ready.done():
                self.ready.set_result(None)
            await self.over.wait()
        finally:
            await self.server.cleanup()


class LateServers:
    """The servers of one replay."""

    def __init__(self) -> None:
        """None is connected yet."""
        self._held: dict[int, _Held] = {}

    async def call(self, agent: Agent[Any], server: str | None, context: Any, arguments: str) -> Any:
        """Call a tool of an MCP server as the SDK would have.

        Args:
            agent: As the program made it.
            server: Whose tool it is; None: any of the agent's.
            context: The tool's context.
            arguments: JSON.

        Raises:
            UnsupportedError: No server of the agent has it any more.
        """
        with outside():
            asked = [one for one in agent.mcp_servers if one.name == server] or list(agent.mcp_servers)
            for one in asked:
                await self._connect(one)
            some = copy.copy(agent)
            some.mcp_servers = asked
            with custom_span("listing", disabled=True):  # the listing is ours, not the program's
                tools = await some.get_mcp_tools(context)
            for tool in tools:
                if tool.name == context.tool_name and isinstance(tool, FunctionTool):
                    return await tool.on_invoke_tool(context, arguments)
        raise UnsupportedError(
            f"the MCP tool {context.tool_name!r} was to be called live, and {', '.join(one.name for one in asked) or 'no server'} "
            f"offers none of that name now: serve it from the record, or let the server offer it again"
        )

    async def let_go(self, server: MCPServer) -> None:
        """Disconnect a server, where it was connected here."""
        held = self._held.pop(id(server), None)
        if held is not None:
            held.over.set()
            await asyncio.wait([held.task])

    def close(self) -> None:
        """Let go of what the program did not disconnect itself; its loop does the rest."""
        while self._held:
            _, held = self._held.popitem()
            with suppress(RuntimeError):  # the loop is closed, and has ended the task
                held.loop.call_soon_threadsafe(held.over.set)
                if not held.loop.is_running():
                    held.loop.run_until_complete(held.task)

    async def _connect(self, server: MCPServer) -> None:
        if not isinstance(server, _MCPServerWithClientSession):
            return  # nobody kept it from being connected
        held = self._held.get(id(server))
        if held is None or held.task.done():
            if server.session is not None:  # from before the replay
                return
            held = self._held[id(server)] = _Held(server)
        await asyncio.shield(held.ready)
