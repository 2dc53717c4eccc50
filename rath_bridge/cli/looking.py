"""``show``: one chunk, its envelope and its body in full; the prompt of a model call; a blob or a tree by its digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, cast

import orjson
import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rath_bridge.cli.face import AsJson, Face, quoted
from rath_bridge.cli.filtering import Agents, Frameworks, Grep, Kinds, Since, Tools, at_most, filter_of, matcher
from rath_bridge.cli.listing import on_branch
from rath_bridge.cli.naming import find_chunk
from rath_bridge.cli.objects import find_object, show_object
from rath_bridge.cli.prompts import lines, prompt
from rath_bridge.cli.runs import RunNames
from rath_bridge.cli.styles import style_of
from rath_bridge.errors import ErasedError, MissingChunkError, RathError
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.encoding import BlobRef, TreeRef, dumps, escape
from rath_bridge.model.kinds import Inference, Usage
from rath_bridge.session import Session
from rath_bridge.verbs.inert import inert
from rath_bridge.verbs.jsonable import jsonable
from rath_bridge.verbs.matching import Filter
from rath_bridge.verbs.words import size, value_words


def show(
    face: Face,
    chunk: Annotated[
        str,
        typer.Argument(
            metavar="CHUNK",
            help="Digest (4 or more digits; 8 for blobs and trees), or NAME:N; NAME alone is its last chunk.",
            show_default=False,
        ),
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="The exact bytes of the envelope (or blob): their sha256 is the id.")
    ] = False,
    body: Annotated[bool, typer.Option("--body", help="The exact bytes of the body.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Prompts, blobs and trees whole, nothing cut.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="With a filter: all branches of NAME, and all that was merged in.")
    ] = False,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="This branch of NAME.", show_default=False)
    ] = None,
    number: Annotated[
        int | None, typer.Option("-n", "--number", min=0, metavar="N", help="With a filter: at most so many.", show_default=False)
    ] = None,
    kinds: Kinds = None,
    agents: Agents = None,
    tools: Tools = None,
    frameworks: Frameworks = None,
    since: Since = None,
    grep: Grep = None,
    as_json: AsJson = False,
) -> None:
    """Show one chunk: envelope, body and native record; of a model call its prompt. Or a blob or a tree, by its digest.

    With a filter, every chunk of a session that fits is shown, newest first.
    """
    if raw + body + as_json > 1:
        raise typer.BadParameter("give one of --raw, --body and --json")
    wanted = filter_of(kinds, agents, tools, frameworks, since, grep)
    if wanted or every or number is not None:
        if raw or body:
            raise typer.BadParameter("--raw and --body are of one chunk: leave out the filter")
        _show_all(face, on_branch(face, chunk, branch), wanted, every, number, as_json=as_json, full=full)
        return
    if branch is not None:
        chunk = on_branch(face, chunk, branch).name
    try:
        found = find_chunk(face, chunk)
    except MissingChunkError:
        name, data = find_object(face.store.backend, chunk)
        if raw or body:
            face.write(data)
        else:
            show_object(face, name, data, full=full, as_json=as_json)
        return
    if raw or body:
        if body and found.body_bytes is None:
            raise ErasedError(found.id)
        face.write(found.envelope if raw else found.body_bytes or b"")
    elif as_json:
        face.json(_row(face, found))
    else:
        _print(face, found, full)


def _show_all(
    face: Face, session: Session, wanted: Filter, every: bool, number: int | None, *, as_json: bool, full: bool
) -> None:
    asked = matcher(wanted, face.store.backend, RunNames(face.store.backend))
    found = at_most(asked.of(entry.chunk for entry in session.log(all=every)), number)
    if as_json:
        rows = ({key: value for key, value in _row(face, chunk).items() if key != "next_actions"} for chunk in found)
        hints = {"next_actions": face.next(f"log {quoted(session.name)}")}
        face.json_rows({"session": session.name, "head": session.head}, "chunks", rows, lambda: hints)
        return
    with face.pager():
        for at, chunk in enumerate(found):
            if at:
                face.out.print()
            _print(face, chunk, full)


def _row(face: Face, chunk: Chunk) -> dict[str, Any]:
    short = chunk.id[:12]
    ways = [f"show {parent[:12]}" for parent in chunk.parents]
    return {
        "id": chunk.id, "number": chunk.position, "envelope": orjson.loads(chunk.envelope), "native": _native(chunk),
        "body": None if chunk.body_bytes is None else jsonable(chunk.values), "erased": chunk.body_bytes is None, **_told(chunk),
        "next_actions": face.next(*ways, f"show {short} --raw", f"show {short} --body"),
    }  # fmt: skip


def _told(chunk: Chunk) -> dict[str, Any]:
    """What stands beside a model call's body for scripts: its prompt, message by message."""
    try:
        found = None if chunk.body_bytes is None else prompt(chunk)
    except RathError as error:
        return {"prompt": None, "prompt_error": str(error)}
    return {} if found is None else {"prompt": jsonable(found)}


def _native(chunk: Chunk) -> dict[str, Any] | None:
    ref = None if chunk.body_bytes is None else chunk.native_ref
    return None if ref is None else {key: ref[key] for key in ("framework", "version", "codec", "digest", "size")}


def _print(face: Face, chunk: Chunk, full: bool = False) -> None:
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="head", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value, style in _facts(face, chunk):
        facts.add_row(name, Text(value, style))
    face.show(facts)
    face.out.print()
    if chunk.body_bytes is None:
        face.line((f"The content was erased; {size(chunk.size)} with the digest above are what it was.", "warn"))
        return
    try:
        values = chunk.values
    except RathError as error:
        face.line((f"The body cannot be read: {inert(str(error))}", "bad"))
        return
    if chunk.kind == "inference":
        values = {key: value for key, value in values.items() if key != "usage"}
        face.line(("usage: ", "head"), _usage(cast(Inference, chunk.body)))
        if _print_prompt(face, chunk, full):
            values.pop("input", None)
    for indent, key, text in _lines(values, 0):
        label = Text("- " if key == "-" else f"{inert(key)}: " if key else "", "head")
        face.show(Padding(label.append(text, "default"), (0, 0, 0, indent * 2), expand=False))


def _usage(body: Inference) -> str:
    found = {one.name: getattr(body.usage, one.name, None) for one in fields(Usage)}
    told = [
        f"{value_words(count)} {name.replace('_tokens', ' tokens').replace('_', ' ')}"
        for name, count in found.items()
        if count is not None
    ]
    return ", ".join(told) or "not on record"


def _print_prompt(face: Face, chunk: Chunk, full: bool) -> bool:
    """Print what a model was told; tell whether there was something to print."""
    try:
        told = prompt(chunk)
    except RathError as error:
        face.line((f"The prompt cannot be read: {inert(str(error))}", "bad"))
        return False
    if told is None:
        return False
    ref = chunk.values.get("input")
    face.line(("prompt: ", "head"), _scalar(ref) if isinstance(ref, TreeRef) else "")
    for who, said in lines(told, full):
        face.show(Padding(Text(f"- {who}: ", "head").append(said, "default"), (0, 0, 0, 2), expand=False))
    return True


def _facts(face: Face, chunk: Chunk) -> Iterator[tuple[str, str, str]]:
    yield "chunk", chunk.id, "id"
    yield "kind", inert(chunk.kind), style_of(chunk)
    yield "at", format_time(chunk.at), ""
    yield "number", str(chunk.position), ""
    if chunk.run is not None:
        yield "run", f"{inert(RunNames(face.store.backend).of(chunk) or '')} ({inert(chunk.run)})", "run"
    if chunk.origin is not None:
        origin = cast("dict[str, Any]", orjson.loads(chunk.origin))
        yield "origin", ", ".join(f"{inert(str(key))} {inert(str(value))}" for key, value in origin.items()), ""
    for parent in chunk.parents:
        yield "parent", parent, "id"
    if chunk.span is not None:
        inside = f" in {inert(chunk.span.parent_id)}" if chunk.span.parent_id else ""
        yield "span", f"{inert(chunk.span.span_id)}{inside}, trace {inert(chunk.span.trace_id)}", ""
    yield "body", f"{chunk.body_digest} ({size(chunk.size)})", ""
    native = _native(chunk)
    if native is not None:
        what = f"{native['framework']} {native['version']}, {native['codec']}, {size(native['size'])}"
        yield "native", f"{inert(what)}\n{native['digest']}", ""
    refs = [ref.name for ref in face.store.backend.refs() if ref.head == chunk.id]
    if refs:
        yield "tip of", inert(", ".join(refs)), "ref"


def _lines(value: Any, indent: int, key: str = "") -> Iterator[tuple[int, str, str]]:
    """Yield (indent, key, inert text) lines of a value, maps and lists opened; depth is bounded by the encoding's own limit."""
    if isinstance(value, Mapping) and value:
        if key:
            yield indent, key, ""
        found = cast("Mapping[Any, Any]", value)
        for name in sorted(found, key=lambda name: (name != "type", str(name))):
            yield from _lines(found[name], indent + bool(key), str(name))
    elif isinstance(value, list | tuple) and value:
        if key:
            yield indent, key, ""
        for item in cast("list[Any]", value):
            yield from _item(item, indent + bool(key))
    elif isinstance(value, str) and "\n" in value:
        yield indent, key, ""
        for line in value.split("\n"):
            yield indent + 1, "", inert(line)
    else:
        yield indent, key, _scalar(value)


def _item(item: Any, indent: int) -> Iterator[tuple[int, str, str]]:
    """Yield a list's item with a dash before its first line."""
    lines = _lines(item, indent + 1)
    _, key, text = next(lines)
    yield indent, f"- {key}" if key else "-", text
    yield from lines


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return inert(value) if value else '""'
    if isinstance(value, BlobRef):
        return f"<{inert(value.media_type or 'blob')}, {size(value.size)}, {value.digest}>"
    if isinstance(value, TreeRef):
        return f"<{inert(value.form)} of {value.count}, {value.digest}>"
    if isinstance(value, bytes):
        return f"<{size(len(value))}: {value[:16].hex()}{'…' if len(value) > 16 else ''}>"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1024:
        return hex(value)  # decimal digits of such numbers are slow, and Python refuses many of them
    return dumps(escape(value, {})).decode()
