"""AutoGen's part of a replay (`rath_bridge.replay`): model clients, workbenches, tools, people and code answer as the tape says.

Nothing in the user's code is exchanged: the classes that AutoGen calls are patched, for contexts in which a replay runs. What is loaded
while it runs is patched as it is loaded. A tool cannot raise: an exception inside of a tool call makes ``AssistantAgent`` wait for ever
(issue 7956). It answers with an error, and the next model call raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from autogen_agentchat.agents import CodeExecutorAgent, UserProxyAgent
from autogen_core.memory import ListMemory, Memory
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, StaticWorkbench, Workbench

from rath_autogen.answering import METHODS, OF, execute_code_block, get_input, playing
from rath_autogen.record import RecordingChatCompletionClient
from rath_autogen.replay import RathReplayChatCompletionClient, RathReplayWorkbench
from rath_autogen.tape import ModelCall, Tape
from rath_bridge.errors import RathError
from rath_bridge.model.digests import Digest
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay import Divergence, Verdict, patched
from rath_bridge.replay import Tape as CoreTape

_PASSES: Final = (RecordingChatCompletionClient, RathReplayChatCompletionClient)
"""Clients that ask another one, which is answered for; so does ``ChatCompletionCache``."""
PATIENCE: Final = 250
"""How often a call that came early looks whether those before it have come; the last 50 times a millisecond apart."""
SETTLE: Final = 20
"""Turns of the event loop that it leaves them to be heard."""
_SERVER: Final = ("list_tools", "start", "stop")
"""Methods by which a workbench asks a server what it offers."""


@contextmanager
def _quiet() -> Generator[None]:
    """Keep AutoGen's runtime from printing what follows from a divergence or a halt: it is told by the report, or raised, already."""

    def is_news(record: logging.LogRecord) -> bool:
        """In the contexts of a replay that has left the record, no error is: members are told of it, and queues are shut."""
        player = playing() if record.levelno >= logging.ERROR and record.exc_info else None
        return player is None or not (player.core.misses or player.core.halted)

    logger = logging.getLogger("autogen_core")
    logger.addFilter(is_news)  # one of its own: a replay that ends takes no other one's away
    try:
        yield
    finally:
        logger.removeFilter(is_news)


class AutoGenPlayer:
    """Answers for AutoGen from a record."""

    def __init__(self, core: CoreTape) -> None:
        self.core = core
        self.tape = Tape.of(core.session)
        self._failed: RathError | None = None
        """What a tool call could not raise."""
        self._next = 0
        """The first recorded model call that was not asked for yet."""
        self._patches = ExitStack()
        self._seen: set[type[Any]] = set()

    @contextmanager
    def installed(self) -> Generator[None]:
        """Let AutoGen's clients, workbenches, tools, people and code executors answer from the record."""
        with self._patches, _quiet():
            for base in (ChatCompletionClient, Workbench, BaseTool, Memory):
                self._patch(base, "__init_subclass__", _loaded)
                self._cover(base)
            self._patch(CodeExecutorAgent, "execute_code_block", execute_code_block)
            self._patch(UserProxyAgent, "_get_input", get_input)
            yield

    @property
    def unused(self) -> Sequence[Digest]:
        """Model and tool calls that were not asked for."""
        return self.tape.unused

    @property
    def reasons(self) -> Sequence[str]:
        """Why AutoGen's part of the record cannot be replayed whole."""
        names = ", ".join(self.tape.untold)
        told = f"the model calls of {names} are not on record: put RecordingChatCompletionClient around their clients"
        return [told] if names else []

    def _patch(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        self._patches.enter_context(patched(owner, name, wrapper))

    def _cover(self, base: type[Any]) -> None:
        """Patch a class and all that are made from it, where they bring methods of their own."""
        stack = [base]
        while stack:
            cls = stack.pop()
            stack.extend(cls.__subclasses__())
            self.cover(cls)

    def cover(self, cls: type[Any]) -> None:
        """Patch the methods of one class by which AutoGen calls it."""
        if cls in self._seen or issubclass(cls, (*_PASSES, RathReplayWorkbench, ListMemory)):
            return
        if cls.__name__ == "ChatCompletionCache":
            return
        self._seen.add(cls)
        for name, wrapper in METHODS.items():
            method = vars(cls).get(name)
            if method is None or getattr(method, "__isabstractmethod__", False) or not issubclass(cls, OF[name]):
                continue
            if name in _SERVER and issubclass(cls, StaticWorkbench):  # its tools are at hand
                continue
            self._patch(cls, name, wrapper)

    # ---------------------------------------------------------------- what is asked

    def model(self, messages: Sequence[Any], request: Mapping[str, Any], agent: str | None) -> tuple[Any, Verdict]:
        """Find a model call, and ask what becomes of it."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        found = self.tape.find_model(messages, DEFAULT.apply(dict(request)), agent)
        missing = isinstance(found, Divergence)
        verdict = self.core.ask(
            "model", agent, chunk=None if missing else found.chunk.id, expected=found if missing else None
        )  # fmt: skip
        return found, verdict

    async def turn(self, call: ModelCall) -> None:
        """Let those end first that ended first then: members that work side by side are heard in the same order."""
        if not self._early(call):
            return
        for attempt in range(PATIENCE):
            await asyncio.sleep(0 if attempt < PATIENCE - 50 else 0.001)
            if not self._early(call):
                break
        for _ in range(SETTLE):  # what the other one says is on its way
            await asyncio.sleep(0)

    def _early(self, call: ModelCall) -> bool:
        models = self.tape.models
        while self._next < len(models) and models[self._next].used:
            self._next += 1
        if self._next == len(models) or self.core.misses or self.core.parted:
            return False
        return any(
            not other.used and other.chunk.run == call.chunk.run and other.body.agent != call.body.agent
            for other in models[self._next :]
            if other.chunk.position < call.chunk.position
        )

    def tool(self, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> tuple[Any, Verdict]:
        """Find a tool call, and ask what becomes of it; what it should raise is raised by the next model call."""
        given = dict(arguments or {})
        found = self.tape.find_tool(name, given, call_id)
        missing = isinstance(found, Divergence)
        try:
            verdict = self.core.ask(
                "tool", name, chunk=None if missing else found.chunk, arguments=given, expected=found if missing else None
            )  # fmt: skip
        except RathError as error:
            self._failed = error
            verdict = Verdict("error", error=str(error))
        return found, verdict

    def other(self, kind: Any, name: str, found: Any) -> Verdict:
        """Ask what becomes of a person's answer or of code that is to run."""
        missing = isinstance(found, Divergence)
        return self.core.ask(kind, name, chunk=None if missing else found[1], expected=found if missing else None)


def _loaded(original: Callable[..., Any], cls: type[Any], **options: Any) -> None:
    original(cls, **options)
    player = playing()
    if player is not None:
        player.cover(cls)
