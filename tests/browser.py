"""A real browser looks at a page: what it complains of, what it draws, and what it asks the network for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


class Shown(NamedTuple):
    """How a page was shown."""

    said: str
    """Standard error: ``CONSOLE`` stands where the page has an error."""
    picture: Path
    network: str
    """Chromium's log of it."""


def look_at(page: Path, place: Path, size: str = "1200,1600") -> Shown:
    """Have the browser draw a page; it is started again where it ends without a picture, as it does on machines without memory to share."""
    assert CHROMIUM is not None
    for number in range(3):
        picture, net = place / f"page-{number}.png", place / f"net-{number}.json"
        command = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
            f"--user-data-dir={place / f'profile-{number}'}", "--enable-logging=stderr", f"--window-size={size}",
            f"--log-net-log={net}", f"--screenshot={picture}", page.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        if done.returncode == 0 and picture.exists() and net.exists():
            return Shown(done.stderr, picture, net.read_text())
    raise AssertionError(f"the browser ended with status {done.returncode}: {done.stderr[-2000:]}")
