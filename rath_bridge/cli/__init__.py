"""The command line, ``rath-bridge``: porcelain over the verbs. One file for each group of verbs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable


def main() -> None:
    """Run ``rath-bridge`` with the process's arguments; ends the process with the status of the house plan, section 5."""
    try:
        _main()
    except KeyboardInterrupt:  # before a verb has begun, which has its own word for it
        sys.exit(130)


def _main() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started us: nobody is there, and no file may take its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
    logging.getLogger("rath_bridge").addHandler(logging.NullHandler())  # verbs tell what matters themselves, on one line
    wrapped = _wrapped(sys.argv[1:])
    if wrapped is not None:
        sys.exit(wrapped)
    from rath_bridge.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that cannot show a character gets an escape, not a traceback
            reconfigure(errors="backslashreplace")
    app(prog_name="rath-bridge")


def _wrapped(arguments: list[str]) -> int | None:
    """Let an adapter run the program behind ``--`` at once (its optional member ``quick``): somebody waits for it to start."""
    if "--" not in arguments or arguments[0].startswith("-"):
        return None
    from importlib import metadata

    from rath_bridge.errors import RathError
    from rath_bridge.plugins import GROUP

    try:
        for point in metadata.entry_points(group=GROUP, name=arguments[0]):
            quick: Callable[[list[str]], int | None] | None = getattr(point.load(), "quick", None)
            return None if quick is None else quick(arguments[1:])
    except RathError as error:
        sys.stderr.write(f"rath-bridge: {error}\n")
        return error.exit_status
    return None
