"""Children of a test's own process that always end: never on into pytest, never later than a minute."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child and return its process id; the child's status is 0 when `work` returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's handler would raise into pytest
        signal.alarm(60)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - shown; the child must end here
        traceback.print_exc()
    finally:
        os._exit(status)
