"""A server that is no MCP server at all: what a stdio proxy must pass on all the same. The first argument says what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

kind = sys.argv[1]
out = sys.stdout.buffer


def say(data: bytes) -> None:
    out.write(data)
    out.flush()


if kind == "exit":
    sys.exit(int(sys.argv[2]))
if kind == "signal":
    os.kill(os.getpid(), int(sys.argv[2]))
if kind == "grandchild":  # holds our output open when we are gone
    code = "import time; time.sleep(100)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    say(str(child.pid).encode() + b"\n")
    os._exit(3)
if kind == "bytes":
    say(b"banner \xff\xfe\n\n{broken\n\r\nno newline at the end")
    sys.exit(0)
if kind == "echo":
    for line in sys.stdin.buffer:
        say(line)
    say(b"bye")
if kind == "stubborn":  # reads nothing, ends of nothing but SIGKILL
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(str(os.getpid()).encode() + b"\n")
    time.sleep(60)
if kind == "polite":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(21))
    say(b"ready\n")
    time.sleep(60)
