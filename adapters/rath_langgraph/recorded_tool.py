"""The stand-in for a tool while a replay runs.

Source: ``langchain_core.tools.base`` (langchain-core 1.8).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.types import interrupt
from pydantic import PrivateAttr

from rath_bridge.replay import Divergence, Verdict
from rath_bridge.verbs.raised import stand_in
from rath_langgraph.faults import RecordedError, raised_again
from rath_langgraph.neutral import plain
from rath_langgraph.tape import Answer

if TYPE_CHECKING:
    from rath_langgraph.replay import GraphPlayer


class RecordedTool(BaseTool):
    """Stands in for a tool: called the same, it returns what is on record."""

    _real: Any = PrivateAttr()
    _play: Any = PrivateAttr()
    _given: Any = PrivateAttr(default=None)
    _call_id: str | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, player: GraphPlayer, real: BaseTool) -> RecordedTool:
        """Stand in for a tool."""
        made = cls(
            name=real.name, description=real.description, args_schema=real.args_schema, return_direct=real.return_direct,
            verbose=real.verbose, callbacks=real.callbacks, tags=real.tags, metadata=real.metadata,
        )  # fmt: skip
        made._real, made._play = real, player
        return made

    def _filter_injected_args(self, tool_input: dict[str, Any]) -> dict[str, Any]:
        return self._real._filter_injected_args(tool_input)

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._given, self._call_id = tool_input, tool_call_id
        return (), {}

    def _run(self, *, config: RunnableConfig, run_manager: Any = None) -> Any:
        found, verdict = self._asked()
        if verdict.action == "live":
            args, kwargs = self._live(self._real._run, config, run_manager)
            return self._formed(self._real._run(*args, **kwargs))
        return self._served(found, verdict)

    async def _arun(self, *, config: RunnableConfig, run_manager: Any = None) -> Any:
        found, verdict = self._asked()
        if verdict.action == "live":
            args, kwargs = self._live(self._real._arun, config, run_manager)
            return self._formed(await self._real._arun(*args, **kwargs))
        return self._served(found, verdict)

    def _asked(self) -> tuple[Answer | Divergence, Verdict]:
        player: GraphPlayer = self._play
        given: Any = self._given
        if isinstance(given, dict):
            given = self._filter_injected_args(cast("dict[str, Any]", given))
        arguments = plain(given)
        found = player.tape.answer(self.name, self._call_id, arguments)
        missing = isinstance(found, Divergence)
        return found, player.core.ask(
            "tool", self.name, chunk=None if missing else found.chunk, arguments=arguments, expected=found if missing else None
        )

    def _served(self, found: Answer | Divergence, verdict: Verdict) -> Any:
        if verdict.action == "error":
            raise stand_in({"name": "ToolException", "text": verdict.error}, RecordedError)
        if verdict.action == "value":
            return verdict.value
        answer = cast(Answer, found)
        asked = self._play.asked.setdefault(self._call_id or "", [])
        for question in asked:  # the tool asked this before, and was answered
            interrupt(question)
        if answer.body.status == "no_response":
            for question in answer.values or [None]:
                asked.append(question)
                interrupt(question)
        if answer.body.status == "error" and answer.values is None:
            raise raised_again(answer.body.error or "", answer.body.attributes.get("exception"))
        return answer.values[0] if answer.values else answer.body.result

    def _live(self, run: Callable[..., Any], config: RunnableConfig, run_manager: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the tool's own function is called with (source: ``BaseTool.run``)."""
        args, kwargs = self._real._to_args_and_kwargs(self._given, self._call_id)
        parameters = signature(run).parameters
        if "run_manager" in parameters:
            kwargs["run_manager"] = run_manager
        for name, parameter in parameters.items():
            if parameter.annotation is RunnableConfig or parameter.annotation == "RunnableConfig":
                kwargs[name] = config
        return args, kwargs

    def _formed(self, response: Any) -> Any:
        if self._real.response_format != "content_and_artifact" or self._call_id is None:
            return response
        from langchain_core.messages import ToolMessage

        content, artifact = response
        return ToolMessage(content, artifact=artifact, tool_call_id=self._call_id, name=self.name)
