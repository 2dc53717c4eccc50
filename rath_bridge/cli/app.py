"""The application: verbs, adapters' commands, and one line for every error that is expected."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from rath_bridge.cli.face import NoColor, StoreUrl, console, verb
from rath_bridge.cli.offered import offered_command, offered_names
from rath_bridge.errors import RathError
from rath_bridge.verbs.inert import inert

USAGE: Final = 2
FAILED: Final = 4
INTERRUPTED: Final = 128 + 2
BROKEN_PIPE: Final = 128 + 13

_UsageError: Any = typer.BadParameter.__mro__[1]
_ClickException: Any = typer.BadParameter.__mro__[2]
_NOT_WHAT_WAS_NAMED: Final = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EEXIST})


class Verbs(TyperGroup):
    """The verbs, then what adapters offer under their own names; an adapter is loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Verbs in the order in which they are registered, then adapters that have commands."""
        return [*self.commands, *(name for name in offered_names() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a verb, or an adapter's commands."""
        found = super().get_command(ctx, cmd_name)
        return found if found is not None else offered_command(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; a reader that went away ends it quietly, with the status that a shell gives for SIGPIPE."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            _silence()
            raise typer.Exit(BROKEN_PIPE) from error

    def main(self, *args: Any, **options: Any) -> Any:
        """Run, and end the process with a status of the house plan (section 5)."""
        options["standalone_mode"] = False
        sys.exit(_guarded(lambda: super(Verbs, self).main(*args, **options)))


def _guarded(run: Any) -> int:
    """Run and return the exit status; every expected error is one line on stderr."""
    try:
        status = run()
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
        return BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else FAILED
    except _ClickException as error:
        problem = error.format_message().rstrip(".")
        stop = "" if problem.endswith(("?", "!", ":")) else "."
        usage = f"{stop} See: {error.ctx.command_path} --help" if getattr(error, "ctx", None) else ""
        return _complain(f"{problem}{usage}", USAGE)
    except RathError as error:
        return _complain(str(error), error.exit_status)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        status = USAGE if error.errno in _NOT_WHAT_WAS_NAMED else FAILED
        _complain(f"{where}{error.strerror or error}: check the path, its permissions and the space left", status)
        _silence()  # a disk that is full is full at exit, too: Python would end with a status of its own
        return status
    except BaseException:  # noqa: BLE001 - a bug: shown in full, with a status that no verdict has
        from traceback import print_exc

        print_exc()
        return _complain("this is a bug in rath-bridge, please report it with the lines above", FAILED)
    return status if isinstance(status, int) else 0


def _complain(problem: str, status: int) -> int:
    message = " ".join(problem.split())
    try:
        err = console("--no-color" in sys.argv, stderr=True)
        err.print(f"rath-bridge: {inert(message)}", style=None if status == 1 else "bad", soft_wrap=True)
        err.file.flush()
    except BrokenPipeError:
        _silence()
    return status


def _silence() -> None:
    """Send what is still buffered nowhere, so that the interpreter's own flush at exit has nothing to complain about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            continue


app: Final = typer.Typer(
    cls=Verbs,
    name="rath-bridge",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from rath_bridge import __version__

        print(f"rath-bridge {__version__}")  # noqa: T201 - the face prints
        raise typer.Exit


@app.callback(invoke_without_command=True)
def rath_bridge(
    ctx: typer.Context,
    store: StoreUrl = None,
    no_color: NoColor = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """One Session value from a mixed stack of agent frameworks: look at it, fork it, merge it, prove it.

    A session is named NAME or NAME@BRANCH; a chunk by four or more digits of its digest, or as NAME:N (from the end: NAME:-1).
    Exit status: 0 holds, or no difference; 1 an honest finding; 2 usage; 3 tampered or corrupt; 4 it could not be done;
    125 cannot be compared.
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())  # noqa: T201 - the face prints


def _register() -> None:
    from rath_bridge.cli import (
        auditing,
        blaming,
        branching,
        checking,
        claiming,
        comparing,
        exchange,
        graphing,
        listing,
        looking,
        maintaining,
        packets,
        replaying,
        surroundings,
    )  # fmt: skip

    verbs = {
        "ls": listing.ls, "log": listing.log, "show": looking.show, "graph": graphing.graph, "diff": comparing.diff,
        "blame": blaming.blame, "fork": branching.fork, "detach": branching.detach, "merge": branching.merge,
        "replay": replaying.replay_,
        "fsck": checking.fsck, "packet": packets.packet, "sign": packets.sign, "verify": packets.verify, "audit": auditing.audit,
        "redact": maintaining.redact, "prune": maintaining.prune,
        "import": exchange.import_, "export": exchange.export,
        "adapters": surroundings.adapters, "doctor": surroundings.doctor,
    }  # fmt: skip
    for name, function in verbs.items():
        verb(app, name)(function)
    app.add_typer(claiming.group)


_register()
