"""What a verb is given: where to print, which store to open; and how a function becomes a verb.

A verb is a function whose first argument is a `Face`; `verb` adds ``--store`` and ``--no-color`` to it, closes the store
afterwards, and turns what it returns into the exit status. Adapters use the same door in their ``commands()``.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import IO, Annotated, Any, Final, Protocol, cast, get_type_hints

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from rich.theme import Theme
from typer.core import TyperCommand

from rath_bridge.errors import MissingSessionError, StoreUnavailableError
from rath_bridge.session import Session, Store, open_store
from rath_bridge.store import DEFAULT_URL

ROOMY: Final = 100
"""Columns from which on a row has room for more than what happened."""
PIPE_WIDTH: Final = 1000
"""Columns when nobody looks: what reads a pipe wants whole lines."""

THEME: Final = Theme(
    {
        "id": "yellow", "time": "bright_black", "dim": "bright_black", "name": "bold", "ref": "bold cyan", "run": "magenta",
        "head": "bright_black", "good": "green", "bad": "red", "warn": "yellow", "escape": "red",
        "kind.message": "default", "kind.inference": "blue", "kind.tool_call": "yellow", "kind.tool_result": "yellow",
        "kind.session": "cyan", "kind.merge": "cyan", "kind.run": "magenta", "kind.handoff": "magenta", "kind.route": "magenta",
        "kind.note": "green", "kind.approval": "green", "kind.error": "red", "kind.gap": "red", "kind.redaction": "red",
        "kind.other": "bright_black",
        "bar.complete": "cyan", "bar.finished": "green", "bar.pulse": "cyan", "progress.elapsed": "bright_black",
    }
)  # fmt: skip

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Store to use; default $RATH_BRIDGE_STORE, else sqlite:///.rath/store.db.",
        show_default=False,
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Session, or session@branch.", show_default=False)]


class MissingStoreError(StoreUnavailableError):
    """There is no store at this address yet.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, "no such file")
        self.args = (f"there is no store at {url}: record something there first, or name another with --store",)


@dataclass(slots=True)
class Face:
    """Where a verb prints, and which store it works on."""

    url: str | None = None
    """The address that was given on the command line."""
    plain: bool = False
    out: Console = field(init=False)
    err: Console = field(init=False)
    _store: Store | None = None
    _answers: IO[bytes] | None = None
    """What standard output was, once it is standard error's."""

    def __post_init__(self) -> None:
        self.out, self.err = console(self.plain), console(self.plain, stderr=True)

    # ---------------------------------------------------------------- store

    @property
    def store(self) -> Store:
        """The store, opened on first use; the command line reads stores and does not make them.

        Raises:
            MissingStoreError: There is none at this address.
        """
        if self._store is None:
            address = self.url or os.environ.get("RATH_BRIDGE_STORE") or DEFAULT_URL
            path = sqlite_path(address)
            if path is not None and not path.exists():
                raise MissingStoreError(address)
            self._store = open_store(address)
        return self._store

    def made_store(self, dry_run: bool = False) -> Store:
        """The store, made where there is none yet: for verbs that bring sessions in.

        Args:
            dry_run: Nothing will be written: a store that is not there stays so, and an empty one in memory is its stand-in.
        """
        if self._store is None:
            address = self.url or os.environ.get("RATH_BRIDGE_STORE") or DEFAULT_URL
            path = sqlite_path(address)
            self._store = open_store("memory:" if dry_run and path is not None and not path.exists() else address)
        return self._store

    def session(self, name: str) -> Session:
        """Open ``session`` or ``session@branch``; a miss names what comes nearest.

        Raises:
            MissingSessionError: There is none of that name.
        """
        try:
            return self.store.session(name)
        except MissingSessionError as error:
            from difflib import get_close_matches

            known = list(error.known)
            raise MissingSessionError(name, get_close_matches(name, known, 5, 0.5) or known) from None

    def beside(self, session: Session, name: str) -> Session:
        """Open another session, or a branch of this one by its bare name; a session of that name comes first.

        Raises:
            MissingSessionError: There is neither.
        """
        branch = f"{session.session}@{name}"
        return self.store.session(branch) if name not in self.store and branch in self.store else self.session(name)

    def close(self) -> None:
        """Release the store."""
        if self._store is not None:
            self._store.close()

    # ---------------------------------------------------------------- print

    def line(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """Print one line of (text, style) parts, cut at the terminal's edge. Texts must be inert."""
        self.print_line(Text.assemble(" " * indent, *parts))

    def print_line(self, text: Text) -> None:
        """Print one line, cut at the terminal's edge."""
        text.rstrip()
        self.out.print(text, no_wrap=True, overflow="ellipsis", crop=True)

    def show(self, renderable: RenderableType) -> None:
        """Print a table, or text that may wrap; what goes into a pipe has no blanks at the ends of its lines."""
        if self.out.is_terminal or self.out.color_system:
            self.out.print(renderable)
            return
        with self.out.capture() as told:
            self.out.print(renderable)
        self.out.out("\n".join(line.rstrip(" ") for line in told.get().split("\n")), end="", highlight=False)

    def json(self, value: Mapping[str, Any]) -> None:
        """Print one JSON object in ASCII: no byte of a text can reach the terminal raw."""
        indent = 2 if self.out.is_terminal else None
        text = json.dumps(value, indent=indent, ensure_ascii=True).replace("\x7f", "\\u007f")
        self.write(f"{text}\n".encode())

    def json_rows(
        self, head: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any]], tail: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Print one JSON object with a long list in it, a row as it comes; ``tail`` is asked when the list has ended."""
        indent = 2 if self.out.is_terminal else None

        def text(value: Any) -> str:
            return json.dumps(value, indent=indent, ensure_ascii=True).replace("\x7f", "\\u007f")

        self.write(f"{text(dict(head))[:-1].rstrip()}, {text(name)}: [".encode())
        for number, row in enumerate(rows):
            self.write(f"{', ' if number else ''}{text(dict(row))}".encode())
        self.write(f"], {text(dict(tail()))[1:].lstrip()}\n".encode())

    def write(self, data: bytes) -> None:
        """Write bytes as they are, all of them (an unbuffered stdout may take a part only, and not say so)."""
        out, rest = self._answers or sys.stdout.buffer, memoryview(data)
        while rest:
            rest = rest[out.write(rest) :]
        out.flush()

    @contextmanager
    def answer_alone(self) -> Generator[None]:
        """Let all that is printed in the block (by a program, its children, its exit handlers, these to the end of the process) go to
        standard error: standard output is for what `write` is given.
        """
        try:
            kept = os.dup(sys.stdout.fileno())
            sys.stdout.flush()
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        except (OSError, ValueError):  # a capture: there is no file
            with redirect_stdout(sys.stderr):
                yield
        else:
            self._answers = os.fdopen(kept, "wb", buffering=0)
            yield

    @contextmanager
    def pager(self) -> Generator[None]:
        """Show what the block prints in ``$PAGER`` where a person looks at a terminal; lines go there as they come."""
        command = os.environ.get("RATH_BRIDGE_PAGER", os.environ.get("PAGER", "less"))
        words = shlex.split(command)
        if not words or not sys.stdout.isatty() or shutil.which(words[0]) is None:
            yield
            return
        environment = {"LESS": "FRX", "LV": "-c", **os.environ}
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, text=True) as process:
            before = self.out
            self.out = console(self.plain, file=process.stdin, width=before.width)
            try:
                yield
                cast("IO[str]", process.stdin).flush()
            except BrokenPipeError:  # the reader has seen enough
                pass
            finally:
                self.out = before
                with suppress(BrokenPipeError):
                    cast("IO[str]", process.stdin).close()

    def next(self, *commands: str) -> list[str]:
        """Return commands that make sense next, with the store that was named."""
        store = f" --store {shlex.quote(without_password(self.url))}" if self.url is not None else ""
        return [f"rath-bridge {command}{store}" for command in commands]

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Generator[Telling]:
        """Show a bar on a terminal's stderr while the block runs; yields a function that is told how many are done, and of how many."""
        if not self.err.is_terminal:
            yield _untold
            return
        columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.err, transient=True) as bar:
            task = bar.add_task(what, total=total)

            def tell(done: int, of: int | None = None, /) -> None:
                bar.update(task, completed=done, total=total if of is None else of)

            yield tell


class Telling(Protocol):
    """Is told how many are done, and of how many, where that was not known before."""

    def __call__(self, done: int, of: int | None = None, /) -> None: ...


def _untold(done: int, of: int | None = None, /) -> None:
    """Where nobody watches."""


def without_password(url: str) -> str:
    """Return a store's address as it may be shown."""
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1", re.sub(r"(://[^/@:]*):.*@", r"\1@", url))


def sqlite_path(url: str) -> Path | None:
    """Return the file of a ``sqlite:///`` address, None for other kinds."""
    path = url.removeprefix("sqlite:///")
    return None if path == url or not path or path == ":memory:" else Path(path)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "nobody reads any more")  # rich would end the process with status 1, a finding


def console(plain: bool, *, stderr: bool = False, file: Any = None, width: int | None = None) -> Console:
    """Return a console that reads no markup, marks up no numbers, and does not cut what goes into a pipe.

    Args:
        plain: No colours.
        stderr: Not stdout.
        file: A pager's input, which is a terminal for all that is shown.
        width: Its columns.
    """
    terminal = True if file is not None else None
    file = file if file is not None else sys.stderr if stderr else sys.stdout
    piped = not (terminal or file.isatty() or os.environ.get("FORCE_COLOR"))
    width = PIPE_WIDTH if piped else width
    colours = None if plain or os.environ.get("NO_COLOR") else "auto"
    return _Console(
        file=file, color_system=colours, markup=False, highlight=False, emoji=False, theme=THEME, width=width, legacy_windows=False,
        force_terminal=terminal,
    )  # fmt: skip


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return a borderless table; the last column wraps, the others keep their width."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="head", show_edge=False)
    for name in columns:
        last = name == columns[-1]
        found.add_column(
            name, justify="right" if name in right else "left", no_wrap=not last, overflow="fold" if last else "ellipsis"
        )
    return found


_RANGE: Final = re.compile(r"  \[x>=\d+\]$")


class _Verb(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments as they are named, without the brackets that typer puts around names of our own."""
        return ["[OPTIONS]", *(name for name, _ in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options by one name each: typer adds types and ranges to what we say of them, in some releases."""
        found = [one.get_help_record(ctx) for one in self.get_params(ctx) if one.param_type_name == "option"]
        options = [(row[0], _RANGE.sub("", row[1])) for row in found if row]
        for title, rows in (("Arguments", self._arguments()), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self) -> list[tuple[str, str]]:
        found: list[Any] = [one for one in self.params if one.param_type_name == "argument"]
        return [(str(one.metavar or one.name.upper()), str(one.help or "")) for one in found]


def _short(doc: str) -> str:
    """The first sentence of a verb, as far as the list of verbs shows it whole."""
    first = doc.strip().partition("\n\n")[0].partition(". ")[0].replace("\n", " ").rstrip(".")
    for mark in (":", ";", ","):
        first = first if len(first) <= _SHORT else first.partition(f"{mark} ")[0]
    return f"{first}."


_SHORT: Final = 60


def verb(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Register a function ``(face, ...)`` as a verb of ``app``; what it returns is the exit status.

    Args:
        app: Where to register it.
        name: The verb, where it is not the function's name.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        hints = get_type_hints(function, include_extras=True)
        given = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(function).parameters.values())[1:]]
        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter("ctx", keyword, annotation=typer.Context),
            inspect.Parameter("store", keyword, default=None, annotation=StoreUrl),
            inspect.Parameter("no_color", keyword, default=False, annotation=NoColor),
        ]

        @wraps(function)
        def run(**values: Any) -> None:
            ctx: typer.Context = values.pop("ctx")
            above: Mapping[str, Any] = ctx.find_root().params
            url = values.pop("store") or above.get("store")
            face = Face(url, bool(values.pop("no_color") or above.get("no_color")))
            try:
                status = function(face, **values)
            finally:
                face.close()
            face.out.file.flush()
            if status:
                raise typer.Exit(status)

        parameters = [p.replace(kind=keyword) for p in given] + added
        run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__
        app.command(name or function.__name__, cls=_Verb, short_help=_short(function.__doc__ or ""))(run)
        return function

    return register


def quoted(name: str) -> str:
    """Return a name as a shell takes it; for hints, which are printed as JSON only."""
    return shlex.quote(name)
