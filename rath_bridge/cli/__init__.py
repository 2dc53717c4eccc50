"""The command line, ``rath-bridge``: porcelain over the verbs. One file for each group of verbs."""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Run ``rath-bridge`` with the process's arguments; ends the process with the status of the house plan, section 5."""
    from rath_bridge.cli.app import app

    logging.getLogger("rath_bridge").addHandler(logging.NullHandler())  # verbs tell what matters themselves, on one line
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that cannot show a character gets an escape, not a traceback
            reconfigure(errors="backslashreplace")
    app(prog_name="rath-bridge")
