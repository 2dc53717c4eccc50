"""``adapters`` and ``doctor``: what is installed around us. Reads packages' metadata; imports no framework."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Final

from rich.text import Text

from rath_bridge import __version__
from rath_bridge.cli.checking import counted
from rath_bridge.cli.face import AsJson, Face, sqlite_path, table, without_password
from rath_bridge.cli.offered import has_commands
from rath_bridge.cli.versions import satisfies
from rath_bridge.errors import RathError, pip_line
from rath_bridge.plugins import adapters as installed_adapters
from rath_bridge.plugins import broken_adapters
from rath_bridge.store import DEFAULT_URL
from rath_bridge.verbs.inert import inert, one_line

BROKEN: Final = 1

_MARKS: Final = {"ok": ("ok", "good"), "missing": ("missing", "dim"), "warning": ("warning", "warn"), "broken": ("broken", "bad")}


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of the doctor's table."""

    what: str
    status: str
    """``ok``, ``missing``, ``warning`` or ``broken``."""
    installed: str | None
    supported: str
    advice: str = ""


def adapters(face: Face, as_json: AsJson = False) -> int:
    """List installed adapters and the frameworks they speak."""
    whole, broken = installed_adapters(), broken_adapters()
    if as_json:
        rows = [
            {
                "name": name, "extra": one.extra, "commands": has_commands(one),
                "frameworks": {p: {"supported": spec, "installed": installed(p)} for p, spec in one.SUPPORTED.items()},
            }
            for name, one in whole.items()
        ]  # fmt: skip
        face.json({"adapters": rows, "broken": dict(broken), "next_actions": face.next("doctor")})
        return BROKEN if broken else 0
    found = table("ADAPTER", "COMMANDS", "FRAMEWORKS")
    for name, one in whole.items():
        versions = [(package, installed(package)) for package in one.SUPPORTED]
        words = [Text.assemble(f"{inert(package)} ", (v or "not installed", "good" if v else "dim")) for package, v in versions]
        commands = Text(f"rath-bridge {inert(name)}") if has_commands(one) else Text("·", "dim")
        found.add_row(Text(inert(name), "name"), commands, Text(", ").join(words))
    for name, reason in broken.items():
        found.add_row(Text(inert(name), "name"), Text("·", "dim"), Text(f"cannot be loaded: {one_line(reason)}", "bad"))
    face.show(found)
    return BROKEN if broken else 0


def doctor(face: Face, as_json: AsJson = False) -> int:
    """Check what is installed: frameworks, drivers, the store.

    What is missing is named with the line that installs it, and is no error. The store is opened; what it holds is for fsck to check.
    Sessions into which nothing was recorded are named. Status 1: something installed is broken.
    """
    facts = [*_ground(), *_frameworks(), _postgres(), _store(face)]
    broken = any(fact.status == "broken" for fact in facts)
    if as_json:
        hints = [fact.advice for fact in facts if fact.advice.startswith("pip ")]
        face.json({"healthy": not broken, "facts": [asdict(fact) for fact in facts], "next_actions": hints or face.next("ls")})
        return BROKEN if broken else 0
    found = table("", "INSTALLED", "SUPPORTED", "STATUS")
    for fact in facts:
        version = Text(one_line(fact.installed or "·", 40))
        found.add_row(Text(inert(fact.what), "name"), version, Text(inert(fact.supported), "dim"), Text(*_MARKS[fact.status]))
    face.show(found)
    advised = [fact for fact in facts if fact.advice]
    if advised:
        face.out.print()
    for fact in advised:  # below the table, so that a line can be copied whole
        face.show(Text.assemble((inert(fact.what), _MARKS[fact.status][1]), "  ", inert(fact.advice)))
    return BROKEN if broken else 0


def installed(package: str) -> str | None:
    """Return the version of an installed distribution."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _ground() -> Iterator[Fact]:
    yield Fact("rath-bridge", "ok", __version__, "")
    yield Fact("Python", "ok", platform.python_version(), ">=3.11")
    new_enough = satisfies(sqlite3.sqlite_version, SQLITE)
    advice = "" if new_enough else "this SQLite is older than the store needs: use a newer Python build"
    yield Fact("SQLite", "ok" if new_enough else "broken", sqlite3.sqlite_version, SQLITE, advice)


SQLITE: Final = ">=3.35"
"""RETURNING came with 3.35."""


def _frameworks() -> Iterator[Fact]:
    for name, one in installed_adapters().items():
        for package, specifier in one.SUPPORTED.items():
            version = installed(package)
            if version is None:
                yield Fact(package, "missing", None, specifier, pip_line(one.extra))
            elif not satisfies(version, specifier):
                yield Fact(package, "warning", version, specifier, f"the adapter {name} was not tried with this version")
            else:
                yield Fact(package, "ok", version, specifier)
        beside: Mapping[str, tuple[str, str]] = getattr(one, "BESIDE", {})
        for package, (specifier, advice) in beside.items():
            version = installed(package)
            if version is not None and any(map(installed, one.SUPPORTED)) and not satisfies(version, specifier):
                yield Fact(f"{package} beside {name}", "warning", version, specifier, advice)
    for name, reason in broken_adapters().items():
        yield Fact(f"adapter {name}", "broken", None, "", f"cannot be loaded: {one_line(reason)}; reinstall or remove it")


def _postgres() -> Fact:
    version = installed("psycopg")
    if version is None:
        return Fact("psycopg", "missing", None, PSYCOPG, 'pip install "rath-bridge[postgres]"')
    try:
        import psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport] - it fails where the C library is missing
    except ImportError as error:
        return Fact("psycopg", "broken", version, PSYCOPG, f"cannot be imported: {one_line(str(error), 120)}")
    if not satisfies(version, PSYCOPG):
        return Fact("psycopg", "warning", version, PSYCOPG, "this version was not tried")
    return Fact("psycopg", "ok", version, PSYCOPG)


PSYCOPG: Final = ">=3.2"


def _store(face: Face) -> Fact:
    """Open the store as a verb would; one that is not there yet is no fault."""
    address = face.url or os.environ.get("RATH_BRIDGE_STORE") or DEFAULT_URL
    shown = without_password(address)
    path = sqlite_path(address)
    if path is not None and not path.exists():
        return Fact("store", "ok", None, "", f"{shown} is made when something is recorded")
    try:
        refs = face.store.backend.refs()
    except RathError as error:
        return Fact("store", "warning", None, "", str(error))
    count = counted(len({ref.session for ref in refs}), "session")
    begun = {ref.session for ref in refs if not ref.position} - {ref.session for ref in refs if ref.position}
    if begun:
        some = ", ".join(inert(name) for name in sorted(begun)[:3]) + (" ..." if len(begun) > 3 else "")
        what = (
            f"{counted(len(begun), 'session')} in {shown} hold{'s' if len(begun) == 1 else ''} nothing but the beginning ({some})"
        )
        advice = f"{what}: a recorder records what is wrapped, or what its adapter's hooks see, and nothing by itself"
        return Fact("store", "warning", count, "", advice)
    return Fact("store", "ok", count, "", f"{shown} can be opened; rath-bridge fsck checks what it holds")
