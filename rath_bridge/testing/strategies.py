"""Hypothesis strategies for everything that a session may hold; each is made once, since making them takes longer than drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rath_bridge.model import kinds as k
from rath_bridge.model import parts as p
from rath_bridge.model.chunk import Draft, Native, SpanContext, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.session import Session, Store, open_store

ODD_TEXTS: Final = (
    "", "\0", "a\0b", "\u2028\u2029", "\ud800", "\udfff\ud800", "\ud83d\ude00", "\U0001f600", "$rath", '"\\', "e\u0301", "\ufeff", "\r\n",
)  # fmt: skip
"""Texts that some layer, somewhere, gets wrong."""

ODD_INTS: Final = (2**53 - 1, 2**53, -(2**53), 2**63, 2**64, 2**70 + 1, -(10**400))


@cache
def texts(max_size: int = 20) -> st.SearchStrategy[str]:
    """Any str: U+0000, U+2028 and lone surrogates too, and some that are long enough to become blobs."""
    short = st.text(st.characters(exclude_categories=()), max_size=max_size)

    def repeated(text: str, times: int) -> str:
        return (text or "x") * times

    long = st.builds(repeated, short, st.integers(500, 600))
    return st.one_of(short, short, st.sampled_from(ODD_TEXTS), long)


@cache
def scalars() -> st.SearchStrategy[Any]:
    """None, booleans, any int, any float, any str, bytes."""
    return st.one_of(
        st.none(), st.booleans(), st.integers(), st.sampled_from(ODD_INTS), st.floats(), texts(),
        st.binary(max_size=20), st.binary(min_size=512, max_size=520),
    )  # fmt: skip


@cache
def keys() -> st.SearchStrategy[Any]:
    """Map keys: mostly texts, now and then what JSON does not allow."""
    odd = st.one_of(st.integers(), st.booleans(), st.none(), st.binary(max_size=4), st.tuples(st.integers(), texts(3)))
    return st.one_of(texts(5), texts(5), st.just("$rath"), odd)


@cache
def values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Anything that a body may hold in a free field."""
    return st.recursive(
        st.one_of(scalars(), blob_refs(), tree_refs()),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys(), inner, max_size=4)),
        max_leaves=max_leaves,
    )


@cache
def json_values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Plain JSON values without lone surrogates: what frameworks can hold, too."""
    text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    leaf = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False, allow_infinity=False), text
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text, inner, max_size=4)),
        max_leaves=max_leaves,
    )


@cache
def digests() -> st.SearchStrategy[str]:
    """Digests of something that nobody holds."""
    return st.binary(max_size=8).map(digest)


@cache
def blob_refs() -> st.SearchStrategy[BlobRef]:
    """References to bytes."""
    return st.builds(BlobRef, digests(), st.integers(0, 2**53 - 1), st.none() | st.just("image/png"))


@cache
def tree_refs() -> st.SearchStrategy[TreeRef]:
    """References to trees."""
    return st.builds(TreeRef, digests(), st.integers(0, 10_000), st.sampled_from(["list", "map"]))


@cache
def parts() -> st.SearchStrategy[p.Part]:
    """Message parts of every type, unknown ones and unknown keys included."""
    extra = st.dictionaries(st.sampled_from(["x", "signature", "\u2028", "cache"]), json_values(3), max_size=2)
    name = texts(8)
    generic = st.sampled_from(["server_tool_call", "server_tool_call_response", "later"])
    return st.one_of(
        st.builds(p.TextPart, texts(), extra),
        st.builds(p.ReasoningPart, texts(), extra),
        st.builds(p.ToolCallPart, st.none() | name, name, values(4), extra),
        st.builds(p.ToolCallResponsePart, st.none() | name, values(4), extra),
        st.builds(p.BlobPart, st.just("image"), st.binary(max_size=600), st.none() | st.just("image/png"), extra),
        st.builds(p.FilePart, st.just("document"), name, st.none(), extra),
        st.builds(p.UriPart, st.just("image"), name, st.none(), extra),
        st.builds(p.GenericPart, generic, extra),
    )


@cache
def usages() -> st.SearchStrategy[k.Usage]:
    """Token counts."""
    count = st.none() | st.integers(0, 10**6)
    return st.builds(k.Usage, input_tokens=count, output_tokens=count, cache_read_input_tokens=count)


@cache
def _field(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if p.TextPart in arguments:
            return parts()
        return st.one_of(*map(_field, arguments))
    if origin is tuple:
        return st.lists(_field(arguments[0]), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(texts(5).filter(lambda key: key != "$rath"), values(4), max_size=3)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        Any: values(6), str: texts(), int: st.integers(), float: st.floats(), bool: st.booleans(), type(None): st.none(),
        TreeRef: tree_refs(), k.Usage: usages(),
    }  # fmt: skip
    return simple[hint]


@cache
def bodies_of(kind: type[k.Body]) -> st.SearchStrategy[k.Body]:
    """Bodies of one kind with anything in their fields."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: _field(hints[f.name]) for f in fields(kind)})


@cache
def bodies() -> st.SearchStrategy[k.Body]:
    """Bodies of every kind, and of kinds that this version does not know."""
    fields_ = st.dictionaries(st.sampled_from(["a", "b", "\u2028"]), values(4), max_size=3)
    unknown = st.builds(k.Unknown, name=st.just("later_kind"), fields=fields_)
    return st.one_of(*map(bodies_of, k.KINDS.values()), unknown)


@cache
def spans() -> st.SearchStrategy[SpanContext]:
    """OpenTelemetry ids."""
    ids = st.binary(min_size=8, max_size=8).map(bytes.hex)
    return st.builds(SpanContext, st.binary(min_size=16, max_size=16).map(bytes.hex), ids, st.none() | ids)


@cache
def natives() -> st.SearchStrategy[Native]:
    """Native records."""
    return st.builds(Native, st.just("made"), st.just("1.0"), st.just("json"), st.binary(max_size=700))


@cache
def drafts() -> st.SearchStrategy[Draft]:
    """Anything that can be appended."""
    origin = st.none() | st.dictionaries(
        st.sampled_from(["adapter", "framework", "version"]), st.sampled_from(["x", "é\u2028"]), max_size=2
    )
    plain = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
    return st.builds(
        draft, bodies(), run=st.none() | plain, origin=origin, span=st.none() | spans(),
        at=st.integers(0, 4_000_000_000_000_000), native=st.none() | natives(),
    )  # fmt: skip


@st.composite
def transcripts(draw: st.DrawFn, *, pending: bool = True, odd_text: bool = True) -> tuple[k.Body, ...]:
    """Bodies of a conversation such as frameworks have: turns, calls with results, usage; texts repeat on purpose.

    Args:
        draw: Hypothesis'.
        pending: Now and then leave a call without a result.
        odd_text: Use any str in texts; else only what UTF-8 can hold.
    """
    text = texts(12) if odd_text else st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
    said = st.one_of(st.sampled_from(["yes", "no", "hello"]), text)
    found: list[k.Body] = []
    calls = 0
    if draw(st.booleans()):
        found.append(k.Message(role="system", parts=(p.TextPart("be brief"),)))
    for _ in range(draw(st.integers(1, 4))):
        found.append(k.Message(role="user", parts=(p.TextPart(draw(said)),), name=draw(st.none() | st.just("ann"))))
        ids = [f"call-{calls + i}" for i in range(draw(st.integers(0, 2)))]
        calls += len(ids)
        if ids:
            asked = tuple(p.ToolCallPart(i, draw(st.sampled_from(["add", "find"])), draw(_arguments())) for i in ids)
            found += [k.Message(role="assistant", parts=asked), k.Inference(model="made", usage=draw(usages()))]
            if pending and draw(st.integers(0, 4)) == 0:
                ids = ids[:-1]
            found += [k.Message(role="tool", parts=(p.ToolCallResponsePart(i, draw(said)),)) for i in ids]
        found.append(k.Message(role="assistant", parts=(p.TextPart(draw(said)),), name=draw(st.none() | st.just("bob"))))
        found.append(k.Inference(model="made", usage=draw(usages())))
    return tuple(found)


@cache
def _arguments() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["a", "b"]), json_values(3), max_size=2)


def session_of(bodies: Sequence[k.Body], store: Store | None = None, name: str = "made") -> Session:
    """Append bodies to a new session (of a new ``memory:`` store, when none is given)."""
    session = (store or open_store("memory:")).create(name)
    return session.append(*map(draft, bodies))
