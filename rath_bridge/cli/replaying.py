"""``replay``: run a program again on its record, or on its record with something changed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rath_bridge.cli.face import AsJson, Face, NameArgument, quoted
from rath_bridge.errors import RathError
from rath_bridge.verbs.inert import inert

if TYPE_CHECKING:
    from rath_bridge.replay import ReplayReport, ToolPolicy


class ReplayUsageError(RathError, ValueError):
    """An option that means nothing for this record; nothing was run."""

    exit_status = 2


def replay_(
    face: Face,
    name: NameArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...", help="What to run: python my_script.py ..., or python -m package ...", show_default=False
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="CHUNK", help="What stands up to this chunk is there already: replay what came behind it.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="CHUNK", help="Serve the record up to this chunk: its number, or its digest.", show_default=False),
    ] = None,
    then: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="Behind it: halt, or live. Live where something is changed, else halt.", show_default=False
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[CHUNK:]PATH=VALUE",
            help="Change a recorded answer: body.result=..., body.output=... of the chunk named, else of --until. VALUE is JSON or a text.",
            show_default=False,
        ),
    ] = None,
    on_miss: Annotated[
        list[str] | None,
        typer.Option(
            "--on-miss",
            metavar="[TOOL=]WHAT",
            help="What becomes of a call that is not on record: fail, live or error; TOOL may hold * and be model:AGENT.",
            show_default=False,
        ),
    ] = None,
    effect: Annotated[
        list[str] | None,
        typer.Option("--effect", metavar="TOOL=WHAT", help="What a tool does: pure, reads or writes.", show_default=False),
    ] = None,
    allow_effects: Annotated[
        bool, typer.Option("--allow-effects", help="Let writes that are on record be done again where the run goes on live.")
    ] = False,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="Branch on which a what-if is recorded.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run a program again on its record: models and tools are answered from it, and nothing live is called.

    Of several runs on record, --after and --until name those to replay. With --until and --set it is a what-if: the record is served
    up to a chunk, something is changed, and the run goes on, on a branch of its own.
    Status 0: equal; 1: it diverged, or came to nothing that should be changed; 125: the record cannot be replayed or compared.
    """
    from rath_bridge.replay.running import replay
    from rath_bridge.replay.script import script

    session = face.session(name)
    if not command:
        raise ReplayUsageError(f"say what to run: rath-bridge replay {name} -- python my_script.py")
    run = script(command)
    overrides: dict[Any, Any] = {}
    for one in changes or ():
        place, path, value = _change(one, until)
        overrides.setdefault(place, {})[path] = value
    with ExitStack() as undo:
        replay_environment(undo, face.store.url)
        if as_json:  # what the program prints is not the answer
            undo.enter_context(face.answer_alone())
        try:
            report = replay(
                session, run, after=_place(after), until=_place(until),
                then=then or ("live" if overrides else "halt"), overrides=overrides,
                policy=_policy(on_miss or (), effect or ()), allow_effects=allow_effects, branch=branch,
            )  # fmt: skip
        except ValueError as error:
            if isinstance(error, RathError):
                raise
            raise ReplayUsageError(str(error)) from error
    _print(face, report, as_json)
    return report.exit_status


def _print(face: Face, report: ReplayReport, as_json: bool) -> None:
    found = report.as_json()
    if as_json:
        hints = [f"show {found['divergence']['chunk'][:12]}"] if report.divergence and report.divergence.chunk else []
        if found["branch"]:
            hints.append(f"diff {quoted(report.session.name)} {quoted(found['branch'])}")
        face.json({**found, "next_actions": face.next(*hints, f"log {quoted(report.session.name)}")})
        return
    style = "warn" if report.equal is None else "good" if report.equal else "bad"
    for index, line in enumerate(report.lines()):
        face.line((inert(line), style if index == 0 else ""))


def replay_environment(undo: ExitStack, url: str) -> None:
    """A program that opens the default store must find the one that was named here, and make no other."""
    before = os.environ.get("RATH_BRIDGE_STORE")
    os.environ["RATH_BRIDGE_STORE"] = url

    def restore() -> None:
        if before is None:
            os.environ.pop("RATH_BRIDGE_STORE", None)
        else:
            os.environ["RATH_BRIDGE_STORE"] = before

    undo.callback(restore)


def _place(text: str | None) -> int | str | None:
    return None if text is None else int(text) if text.removeprefix("-").isdigit() and len(text) < 12 else text


def _change(text: str, until: str | None) -> tuple[int | str | None, str, Any]:
    target, equals, value = text.partition("=")
    chunk, colon, path = target.rpartition(":")
    where = chunk if colon else until
    if not equals or not path.startswith("body.") or where is None:
        raise ReplayUsageError(f"--set {text!r} is not [CHUNK:]body.PATH=VALUE with a chunk named there or by --until")
    try:
        return _place(where), path, json.loads(value)
    except ValueError:
        return _place(where), path, value


def _policy(on_miss: Iterable[str], effects: Iterable[str]) -> dict[str, ToolPolicy]:
    from rath_bridge.replay.effects import EFFECTS, ON_MISS, ToolPolicy

    found: dict[str, ToolPolicy] = {}
    for words, allowed, field in ((on_miss, ON_MISS, "on_miss"), (effects, EFFECTS, "effect")):
        for text in words:
            tool, _, word = text.rpartition("=")
            if word not in allowed or (field == "effect" and not tool):
                raise ReplayUsageError(f"{text!r} is not {'TOOL=' if field == 'effect' else '[TOOL=]'}{', '.join(allowed)}")
            before = found.get(tool or "*", ToolPolicy())
            known: dict[str, Any] = {"effect": before.effect, "on_miss": before.on_miss, field: word}
            found[tool or "*"] = ToolPolicy(**known)
    return {
        **{name: one for name, one in found.items() if name != "*"},
        **{name: one for name, one in found.items() if name == "*"},
    }
