"""JSON Schema of the envelope and of every kind's body, as the bytes stand: escapes included.

Built when asked for, from pydantic's `TypeAdapter` over the frozen dataclasses. ``python -m rath_bridge.model.schema FOLDER`` writes the
files; those in ``docs/format/schema`` are compared with this module by a test.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

from rath_bridge.model import kinds, parts

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_DIGEST: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _escape(tag: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": ["$rath", *required], "properties": {"$rath": {"const": tag}, **properties}}


def _bytes_escape(tag: str) -> dict[str, Any]:
    inline = _escape(tag, ["v"], v={"type": "string", "contentEncoding": "base64"})
    return {"anyOf": [inline, _escape(tag, ["digest", "size"], digest=_DIGEST, size=_COUNT)]}


_COMMON: Final[dict[str, Any]] = {
    "digest": _DIGEST,
    "text": {
        "anyOf": [
            {"type": "string"},
            _escape("text", ["digest", "size"], digest=_DIGEST, size={"type": "integer", "minimum": 512}),
            _bytes_escape("surrogates"),
        ]
    },
    "integer": {"anyOf": [{"type": "integer"}, _escape("int", ["v"], v={"type": "string", "pattern": "^-?0x[0-9a-f]+$"})]},
    "number": {
        "anyOf": [{"type": "number"}, {"$ref": "#/$defs/integer"}, _escape("float", ["v"], v={"enum": ["nan", "inf", "-inf"]})]
    },
    "bytes": _bytes_escape("bytes"),
    "tree": _escape("tree", ["digest", "count", "form"], digest=_DIGEST, count=_COUNT, form={"enum": ["list", "map"]}),
    "native": _escape(
        "native", ["digest", "size", "framework", "version", "codec"], digest=_DIGEST, size=_COUNT,
        framework={"$ref": "#/$defs/text"}, version={"$ref": "#/$defs/text"}, codec={"$ref": "#/$defs/text"},
    ),
}  # fmt: skip

_TYPES: Final = {"string": "text", "integer": "integer", "number": "number"}


def envelope_schema() -> dict[str, Any]:
    """Return the schema of an envelope."""
    identifier = {"type": "string", "pattern": r"^[\w.:/@+-]{1,200}$"}
    return {
        "$schema": DIALECT,
        "title": "envelope",
        "description": "One immutable event. The sha256 of its exact bytes is the chunk's id.",
        "type": "object",
        "required": ["at", "body", "kind", "size"],
        "properties": {
            "at": {
                "type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$", "description": "UTC, with microseconds.",
            },
            "body": {**_DIGEST, "description": "sha256 of the body's bytes; still here once the body is erased."},
            "kind": {"type": "string", "pattern": "^[a-z][a-z0-9_.]{0,63}$"},
            "origin": {"type": "object", "description": "Who recorded it: adapter, framework, version."},
            "parents": {
                "type": "array", "items": _DIGEST, "minItems": 1,
                "description": "Session order; the first parent is the line that goes on. Absent at a root.",
            },
            "run": {"type": "string", "description": "Id of the run that it belongs to."},
            "size": {**_COUNT, "description": "Bytes of the body."},
            "span": {
                "type": "object", "required": ["span_id", "trace_id"],
                "properties": {"parent_id": identifier, "span_id": identifier, "trace_id": identifier},
                "description": "OpenTelemetry ids, assigned when the work starts.",
            },
        },
    }  # fmt: skip


@cache
def body_schema(kind: str) -> dict[str, Any]:
    """Return the schema of one kind's body. Fields that it does not name are allowed: later versions add some.

    Raises:
        KeyError: Not a kind of the core set.
    """
    from pydantic import TypeAdapter

    cls = kinds.KINDS[kind]
    found = TypeAdapter(cls).json_schema()
    definitions = cast("dict[str, Any]", found.pop("$defs", {}))
    docs, generated, volatile = _field_docs(cls), kinds.marked(cls, "generated"), kinds.marked(cls, "volatile")
    properties: dict[str, Any] = {
        "nonce": {
            "type": "string",
            "pattern": "^[0-9a-f]{32}$",
            "description": "Random: keeps erased short answers from being guessed.",
        },
        "native": {"$ref": "#/$defs/native", "description": "The framework's exact bytes, for the trip home."},
    }
    for name, field in cast("dict[str, Any]", found.get("properties", {})).items():
        known: dict[str, Any] = {"type": "array", "items": {"$ref": "#/$defs/part"}} if name == "parts" else _encoded(field)
        if name in docs:
            known["description"] = docs[name]
        if name in generated:
            known["x-rath-generated"] = True
        if name in volatile:
            known["x-rath-volatile"] = True
        properties[name] = known
    used = {"Usage": _encoded(definitions["Usage"])} if "Usage" in definitions else {}
    if "parts" in properties:
        used["part"] = _part_schema()
    return {
        "$schema": DIALECT,
        "title": kind,
        "description": inspect.getdoc(cls) or "",
        "type": "object",
        "required": sorted({"nonce", *found.get("required", ())}),
        "properties": dict(sorted(properties.items())),
        "$defs": {**_COMMON, **used},
    }


def _encoded(node: Any) -> Any:
    """Turn what pydantic says about a value into what its encoded form may be: escapes allowed, absent instead of null."""
    if isinstance(node, list):
        return [_encoded(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    found = {key: value for key, value in cast("dict[str, Any]", node).items() if key not in ("title", "description")}
    if found.get("default", ...) in (None, {}, []):
        del found["default"]
    if "anyOf" in found:
        choices = [_encoded(choice) for choice in found.pop("anyOf") if choice != {"type": "null"}]
        return {**(choices[0] if len(choices) == 1 else {"anyOf": choices}), **found}
    if found.get("$ref") == "#/$defs/TreeRef":
        return {**found, "$ref": "#/$defs/tree"}
    if found.get("type") in _TYPES:
        return {"$ref": f"#/$defs/{_TYPES[found.pop('type')]}", **found}
    if "properties" in found:
        found["properties"] = {name: _encoded(value) for name, value in found["properties"].items()}
    if "items" in found:
        found["items"] = _encoded(found["items"])
    return found


def _part_schema() -> dict[str, Any]:
    """Message parts: required keys by type; other types and other keys are kept as they come."""
    types = {"content": {"$ref": "#/$defs/text"}, "arguments": True, "response": True}
    rules: list[dict[str, Any]] = []
    for name, required, optional in parts.known_parts():
        wanted = {key: types.get(key, {"$ref": "#/$defs/text"}) for key in (*required, *optional)}
        if name == "blob":
            wanted["content"] = {"$ref": "#/$defs/bytes"}
        rules.append(
            {"if": {"properties": {"type": {"const": name}}}, "then": {"required": list(required), "properties": wanted}}
        )
    return {"type": "object", "required": ["type"], "properties": {"type": {"$ref": "#/$defs/text"}}, "allOf": rules}


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """The sentence under each field, from the class's source."""
    (tree,) = ast.parse(inspect.getsource(cls)).body
    found: dict[str, str] = {}
    body = cast(ast.ClassDef, tree).body
    for field, after in pairwise(body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
            case _:
                continue
    return found


def schemas() -> dict[str, dict[str, Any]]:
    """Return every schema by file name: ``envelope.json``, ``body.message.json`` ..."""
    return {"envelope.json": envelope_schema()} | {f"body.{kind}.json": body_schema(kind) for kind in sorted(kinds.KINDS)}


def write(folder: Path) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (folder / name).write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
