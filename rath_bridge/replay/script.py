"""A program as it would be started from a shell, run in this process: ``python my_script.py --flag``."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from rath_bridge.errors import RathError
from rath_bridge.replay.process import whole_process


class NoScriptError(RathError, ValueError):
    """What should be replayed is no Python program.

    Attributes:
        command: As it was given.
    """

    exit_status = 2

    def __init__(self, command: Sequence[str], why: str) -> None:
        self.command = tuple(command)
        super().__init__(f"cannot replay {' '.join(command)!r}: {why}; give python my_script.py, or python -m package")


def script(command: Sequence[str]) -> Callable[[], Any]:
    """Return a function that runs a Python program in this process, as ``python`` would: its name, arguments and path.

    The program must run here, since its models and tools are answered here.

    Args:
        command: ``python my_script.py ...``, ``python -m package ...`` or ``my_script.py ...``.

    Raises:
        NoScriptError: Another program, or a file that is not there.
    """
    words = list(command)
    if words and (Path(words[0]).name.startswith("python") or words[0] == sys.executable):
        words = words[1:]
    if not words:
        raise NoScriptError(command, "it names no program")
    if words[0] == "-m":
        if len(words) < 2:
            raise NoScriptError(command, "-m names no module")
        module = words[1]
        return lambda: _run(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True), words[1:], str(Path.cwd()))
    path = Path(words[0])
    if words[0].startswith("-") or path.suffix != ".py":
        raise NoScriptError(command, f"{words[0]!r} is no .py file")
    if not path.is_file():
        raise NoScriptError(command, f"there is no file {words[0]!r}")
    return lambda: _run(lambda: runpy.run_path(str(path), run_name="__main__"), words, str(path.resolve().parent))


@contextmanager
def own_streams() -> Generator[None]:
    """Give a program streams of its own over the same files: what it closes, or puts in their place, are not ours."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_own, before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # it was closed, or is no file
                stream.flush()
        sys.stdout, sys.stderr = before


def _own(stream: Any) -> Any:
    """A second stream over the same file; where there is no file (a test's capture, a notebook), the same one."""
    try:
        stream.flush()
        number: int = os.dup(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return stream
    named: Any = {name: getattr(stream, name) for name in ("encoding", "errors")}
    own = os.fdopen(number, "w", buffering=1 if stream.line_buffering else -1, **named)
    atexit.register(own.close)  # not before: a program's log handlers and exit handlers may write there beyond its end
    return own


def _run(run: Callable[[], Any], arguments: list[str], folder: str) -> None:
    argv, path = sys.argv, list(sys.path)
    sys.argv = list(arguments)
    sys.path.insert(0, folder)
    process, ended = os.getpid(), None
    try:
        with own_streams(), whole_process():
            run()
    except BaseException as error:
        ended = error
        raise
    finally:
        if os.getpid() != process:
            _end_child(ended)
        sys.argv = argv
        sys.path[:] = path


def _end_child(error: BaseException | None) -> NoReturn:
    """End a child that the program has forked, as Python would: what came of the replay is for its parent to tell."""
    status: Any = 0
    if isinstance(error, SystemExit):
        status = error.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)  # noqa: T201 - as `sys.exit` with a text does
            status = 1
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)
