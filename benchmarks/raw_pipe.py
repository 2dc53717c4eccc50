"""The peer of the MCP stdio proxy, ``python raw_pipe.py SERVER ARGS…``: the same pipes, nothing recorded."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading


def pump(source: int, target: int) -> None:
    """Pass bytes on until there are no more."""
    while data := os.read(source, 1 << 20):
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(target, rest) :]


def main() -> int:
    """Run the server behind our own streams."""
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert server.stdin is not None
    assert server.stdout is not None
    into, out = server.stdin, server.stdout
    for pipe in (into, out):  # as the proxy has them
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)

    def up() -> None:
        pump(0, into.fileno())
        into.close()

    threading.Thread(target=up, daemon=True).start()
    pump(out.fileno(), 1)
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
