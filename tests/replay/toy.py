"""A framework of two functions, with its recorder and its player: what an adapter must do for replay, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Inference, ToolCall, ToolResult
from rath_bridge.recorder import current_recorder, current_run
from rath_bridge.replay import Divergence, Tape, current_tape, patched

MADE: list[str] = []
"""What was really done."""
_answers = count()
_calls = count()


def model(agent: str, prompt: str) -> str:
    """Answer a prompt; never twice the same."""
    MADE.append(f"{agent}: {prompt}")
    return f"answer {next(_answers)}"


def tool(name: str, argument: int) -> str:
    """Do something; never twice the same."""
    MADE.append(f"{name}({argument})")
    return f"result {next(_answers)}"


def ask(agent: str, prompt: str) -> str:
    """Ask a model, on record."""
    answer = answering(agent, prompt)
    recorder = current_recorder()
    assert recorder is not None
    output = ({"type": "text", "content": answer},)
    recorder.emit(Inference(agent=agent, request={"prompt": prompt}, output=output, usage=None))
    return answer


def use(name: str, argument: int) -> str:
    """Use a tool, on record."""
    recorder = current_recorder()
    assert recorder is not None
    call_id = f"call-{next(_calls)}"
    recorder.emit(ToolCall(name=name, arguments={"x": argument}, call_id=call_id))
    result = doing(name, argument)
    recorder.emit(ToolResult(name=name, call_id=call_id, result=result))
    return result


def answering(agent: str, prompt: str) -> str:
    """The entry point that a player stands in front of."""
    return model(agent, prompt)


def doing(name: str, argument: int) -> str:
    """The entry point that a player stands in front of."""
    return tool(name, argument)


class Player:
    """Matches by actor, kind, name and arguments, in order within an actor."""

    reasons: Sequence[str] = ()

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        names = {
            c.run: cast(Any, c.body).name for c in tape.held.chunks if c.kind == "run" and cast(Any, c.body).phase == "begin"
        }
        self.left: list[tuple[tuple[Any, ...], Digest, Any]] = []
        for chunk in tape.held.chunks:
            if chunk.kind == "inference":
                body = cast(Inference, chunk.body)
                self.left.append(
                    (("model", names.get(chunk.run), body.agent, body.request["prompt"]), chunk.id, body.output[0]["content"])
                )
        for call in tape.held.calls:
            asked = cast(ToolCall, tape.held.by_id[call.chunks[0]].body)
            if call.end is not None:
                self.left.append((("tool", names.get(call.run), call.name, asked.arguments["x"]), call.end, call.value))

    @property
    def unused(self) -> Sequence[Digest]:
        return [chunk for _, chunk, _ in self.left]

    @contextmanager
    def installed(self) -> Generator[None]:
        with patched(sys.modules[__name__], "answering", _answering), patched(sys.modules[__name__], "doing", _doing):
            yield

    def serve(self, kind: Any, name: str, argument: Any, live: Callable[[], Any]) -> Any:
        run = current_run()
        key = (kind, run.name if run else None, name, argument)
        found = next((one for one in self.left if one[0] == key), None)
        if found is not None:
            self.left.remove(found)
        nearest = next((one for one in self.left if one[0][:2] == key[:2]), None)
        expected = Divergence(f"{kind} {name}", str(argument), str(nearest and nearest[0][3]), nearest and nearest[1])
        arguments = {"x": argument} if kind == "tool" else None
        verdict = self.tape.ask(kind, name, chunk=found and found[1], arguments=arguments, expected=expected)
        return live() if verdict.action == "live" else found[2] if verdict.action == "serve" and found else verdict.value


def _answering(original: Any, agent: str, prompt: str) -> Any:
    return cast(Any, current_tape()).player("toy").serve("model", agent, prompt, lambda: original(agent, prompt))


def _doing(original: Any, name: str, argument: int) -> Any:
    return cast(Any, current_tape()).player("toy").serve("tool", name, argument, lambda: original(name, argument))


def player(tape: Tape) -> Player:
    """The hook."""
    return Player(tape)
