"""The vectors of ``docs/format/vectors``, checked twice: by this package, and by what a stranger would write from the specification.

The stranger's part (everything above the line) uses ``json``, ``hashlib`` and ``base64`` alone.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[1] / "docs/format/vectors"


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text("utf-8"))


# ---------------------------------------------------------------- a stranger's encoder


def utf8(text: list[int]) -> bytes:
    """UTF-8 of code points, surrogates encoded like any other."""
    found = bytearray()
    for point in text:
        if point < 0x80:
            found.append(point)
        elif point < 0x800:
            found += bytes((0xC0 | point >> 6, 0x80 | point & 63))
        elif point < 0x10000:
            found += bytes((0xE0 | point >> 12, 0x80 | point >> 6 & 63, 0x80 | point & 63))
        else:
            found += bytes((0xF0 | point >> 18, 0x80 | point >> 12 & 63, 0x80 | point >> 6 & 63, 0x80 | point & 63))
    return bytes(found)


def points(text: Any) -> list[int]:
    """A text of the vectors: a JSON string, a list of code points, or something repeated."""
    if isinstance(text, dict):
        return points(text["repeat"]) * text["times"]
    return [ord(c) for c in text] if isinstance(text, str) else text


class Encoder:
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def long(self, tag: str, data: bytes) -> str:
        name = sha256(data).hexdigest()
        self.blobs[name] = data
        return f'{{"$rath":"{tag}","digest":"{name}","size":{len(data)}}}'

    def tagged(self, tag: str, data: bytes) -> str:
        return self.long(tag, data) if len(data) >= 512 else f'{{"$rath":"{tag}","v":"{b64encode(data).decode()}"}}'

    def text(self, text: list[int]) -> str:
        if any(0xD800 <= point < 0xE000 for point in text):
            return self.tagged("surrogates", utf8(text))
        if len(utf8(text)) >= 512:
            return self.long("text", utf8(text))
        return quoted(text)

    def encode(self, value: dict[str, Any]) -> str:
        ((kind, content),) = value.items()
        if kind in ("null", "bool"):
            return json.dumps(content)
        if kind == "int":
            number = int(content)
            return content if abs(number) < 2**53 else f'{{"$rath":"int","v":"{hex(number)}"}}'
        if kind == "float":
            return f'{{"$rath":"float","v":"{content}"}}' if content in ("nan", "inf", "-inf") else content
        if kind == "text":
            return self.text(points(content))
        if kind == "bytes":
            return self.tagged("bytes", bytes.fromhex(content))
        if kind == "list":
            return "[" + ",".join(map(self.encode, content)) + "]"
        if kind == "blob":
            name = f',"media_type":"{content["media_type"]}"' if "media_type" in content else ""
            return f'{{"$rath":"blob","digest":"{content["digest"]}"{name},"size":{content["size"]}}}'
        if kind == "tree":
            return f'{{"$rath":"tree","count":{content["count"]},"digest":"{content["digest"]}","form":"{content["form"]}"}}'
        assert kind == "map"
        keys = [points(key["text"]) if "text" in key else None for key, _ in content]
        if all(key is not None and key != points("$rath") and not any(0xD800 <= p < 0xE000 for p in key) for key in keys):
            pairs = sorted(
                (utf8(key), quoted(key), item) for key, (_, item) in zip(keys, content, strict=True) if key is not None
            )
            return "{" + ",".join(f"{key}:{self.encode(item)}" for _, key, item in pairs) + "}"
        odd = sorted((self.encode(key).encode(), self.encode(item).encode()) for key, item in content)
        return '{"$rath":"map","v":[' + ",".join(f"[{key.decode()},{item.decode()}]" for key, item in odd) + "]}"


def quoted(text: list[int]) -> str:
    return json.dumps("".join(map(chr, text)), ensure_ascii=False)


# ---------------------------------------------------------------- a stranger's trees


def cut(row: list[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    """After an item whose digest ends in three zero bits: 2 items at least, 32 at most."""
    nodes: list[list[tuple[bytes, bytes]]] = [[]]
    for key, digest in row:
        nodes[-1].append((key, digest))
        if len(nodes[-1]) == 32 or (len(nodes[-1]) >= 2 and digest[31] % 8 == 0):
            nodes.append([])
    return [node for node in nodes if node] or [[]]


def leb128(number: int) -> bytes:
    found = bytearray()
    while True:
        number, low = number >> 7, number & 127
        found.append(low | 128 if number else low)
        if not number:
            return bytes(found)


def tree(form: str, row: list[tuple[bytes, bytes]]) -> tuple[str, dict[str, bytes], list[int]]:
    """Root, nodes, and how many nodes each level has, leaves first."""
    nodes: dict[str, bytes] = {}
    levels: list[int] = []
    while True:
        above: list[tuple[bytes, bytes]] = []
        for node in cut(row):
            data = form.encode() + bytes((len(levels),))
            data += b"".join((leb128(len(key)) + key if form == "M" else b"") + digest for key, digest in node)
            nodes[sha256(data).hexdigest()] = data
            above.append((node[0][0] if node else b"", sha256(data).digest()))
        levels.append(len(above))
        if len(above) == 1:
            return above[0][1].hex(), nodes, levels
        row = above


def tree_row(case: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Items of a vector: spelled out, or the sha256 of ``<prefix><number>``."""
    if "entries" in case:
        return sorted((utf8(points(key)), bytes.fromhex(digest)) for key, digest in case["entries"])
    if "items" in case:
        return [(b"", bytes.fromhex(digest)) for digest in case["items"]]
    if "same" in case:
        return [(b"", bytes.fromhex(case["same"]))] * case["times"]
    names = [f"{case['prefix']}{number}".encode() for number in range(case["from"], case["to"])]
    return sorted((name if case["form"] == "map" else b"", sha256(name).digest()) for name in names) if case["form"] == "map" else [
        (b"", sha256(name).digest()) for name in names
    ]  # fmt: skip


# ---------------------------------------------------------------- a stranger's envelopes


def envelope(facts: dict[str, Any], body: bytes) -> bytes:
    found = {key: value for key, value in facts.items() if value is not None}
    found |= {"body": sha256(body).hexdigest(), "size": len(body)}
    return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


# ================================================================ the vectors, both ways


def value_of(value: dict[str, Any]) -> Any:
    """The Python value that a vector describes."""
    from rath_bridge.model.encoding import BlobRef, TreeRef

    ((kind, content),) = value.items()
    match kind:
        case "int":
            return int(content)
        case "float":
            return float(content)
        case "text":
            return "".join(map(chr, points(content)))
        case "bytes":
            return bytes.fromhex(content)
        case "list":
            return [value_of(item) for item in content]
        case "map":
            pairs = [(value_of(key), value_of(item)) for key, item in content]
            return {tuple(key) if isinstance(key, list) else key: item for key, item in pairs}
        case "blob":
            return BlobRef(content["digest"], content["size"], content.get("media_type"))
        case "tree":
            return TreeRef(content["digest"], content["count"], content["form"])
        case _:
            return content


@pytest.mark.parametrize("case", load("encoding.json"), ids=lambda case: case["name"])
def test_encoding(case: dict[str, Any]) -> None:
    from rath_bridge.model.encoding import decode, encode
    from rath_bridge.testing import same

    stranger = Encoder()
    assert stranger.encode(case["value"]) == case["encoded"]
    assert sha256(case["encoded"].encode()).hexdigest() == case["sha256"]
    assert sorted(stranger.blobs) == case["blobs"]
    data, blobs = encode(value_of(case["value"]))
    assert data == case["encoded"].encode()
    assert blobs == stranger.blobs
    assert same(decode(data, lambda names: {name: blobs[name] for name in names}), value_of(case["value"]))


@pytest.mark.parametrize("case", load("envelopes.json"), ids=lambda case: case["name"])
def test_envelopes(case: dict[str, Any]) -> None:
    from rath_bridge.model.chunk import parse_envelope

    body = case["body"].encode()
    assert envelope(case["facts"], body).decode() == case["envelope"]
    assert sha256(case["envelope"].encode()).hexdigest() == case["id"]
    chunk = parse_envelope(case["envelope"].encode(), body)
    assert (chunk.id, chunk.envelope.decode(), chunk.raw) == (case["id"], case["envelope"], None)
    assert chunk.kind == case["facts"]["kind"]
    assert chunk.body is not None


def test_the_envelopes_are_a_chain() -> None:
    ids = {case["id"] for case in load("envelopes.json")}
    parents = {parent for case in load("envelopes.json") for parent in case["facts"].get("parents", ())}
    assert parents
    assert parents < ids


@pytest.mark.parametrize("case", load("trees.json"), ids=lambda case: case["name"])
def test_trees(case: dict[str, Any]) -> None:
    from rath_bridge.model.trees import list_tree, map_tree, read_list, read_map

    row = tree_row(case)
    root, nodes, levels = tree("M" if case["form"] == "map" else "L", row)
    assert (root, levels) == (case["root"], case["levels"])
    assert all(nodes[name].hex() == data for name, data in case.get("nodes", {}).items())
    if case["form"] == "map":
        entries = {key.decode("utf-8", "surrogatepass"): digest for key, digest in row}
        ref, ours = map_tree(entries)
        assert read_map(ref, lambda names: {name: ours[name] for name in names}) == entries
    else:
        grown, ours = list_tree([digest for _, digest in row])
        ref = grown.ref
        assert read_list(ref, lambda names: {name: ours[name] for name in names}) == [digest for _, digest in row]
    assert (ref.digest, ref.count, ref.form) == (case["root"], len(row), case["form"])
    assert ours == nodes
