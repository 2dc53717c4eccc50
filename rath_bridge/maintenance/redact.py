"""Redact: erase what should not be on record, wherever it stands, and leave a chunk that tells that it was done, why and by whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rath_bridge.given import check_store
from rath_bridge.maintenance.echoes import echoes, texts_of
from rath_bridge.maintenance.uses import Use, Uses, where_used
from rath_bridge.model.chunk import Key, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Redaction
from rath_bridge.session import Store
from rath_bridge.store.erasing import Erasure
from rath_bridge.store.protocol import Backend, Ref

_THREADS: Final = frozenset({"langgraph"})
"""Frameworks that load the newest entry of a scope of the index, and go on from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """What a redaction did, or would do."""

    uses: Uses
    """Where the content stands: every session, branch and index entry."""
    erasure: Erasure
    """Chunks and objects that are gone, and objects that stay since other chunks stand on them."""
    notices: Mapping[str, Digest] = field(default_factory=dict[str, Digest])
    """Session to its ``redaction`` chunk."""
    forgotten: int = 0
    """Index entries that were dropped."""
    echoes: tuple[Use, ...] = ()
    """Places that stay and say the same as the chunks that were named (``look_around``): prompts, states, quotes."""
    blocked: tuple[tuple[Key, Digest], ...] = ()
    """Newest checkpoints of threads that cannot be loaded any more, unless they are forgotten, with their chunks."""


def redact(
    store: Store,
    chunks: Iterable[Digest] = (),
    *,
    reason: str,
    by: str | None = None,
    objects: Iterable[Digest] = (),
    forget: bool = False,
    look_around: Iterable[Digest] = (),
    dry_run: bool = False,
    scrub: bool = True,
) -> Redacted:
    """Erase bodies, nonces, and all blobs, native records and tree items that nothing else stands on, in every session.

    A redaction chunk is appended to every session that holds an erased chunk, before anything is erased: if the process dies between
    the two, do it again. Envelopes stay, so every chain still verifies, under the same head.

    Args:
        store: The store.
        chunks: Ids. Copies of their bodies on detached lines go, too.
        reason: Why, for the record; do not repeat the content in it.
        by: Who asked for it.
        objects: Objects to erase although others stand on them: from `find_text`, for example.
        forget: Drop the index entries that lead to what cannot be read any more: a LangGraph thread then goes on from its newest
            checkpoint that can. Otherwise its framework gets an error that says that the content was erased.
        look_around: Those of ``chunks`` whose words are looked for in the rest of the store, which is read once more for it: an
            erasure of one message leaves what a prompt, a state or a quote repeats. `find_text` finds these, to be erased as well.
        dry_run: Only tell, and list where everything is used.
        scrub: Rewrite the store's files, so that the bytes are gone from them; several redactions need it once, at the last.

    Raises:
        MissingChunkError: A chunk is not in the store; nothing was changed.
        StoreUnavailableError: The store could not be written, or others read it while its files should be rewritten.
    """
    check_store(store, "redact")
    asked, wanted = set(chunks), set(objects)
    backend = store.backend
    told = backend.erase(asked, objects=wanted, dry_run=True)
    uses = where_used(backend, told.chunks, told.objects)
    texts = frozenset[str]().union(*(texts_of(backend.chunk(name)) for name in look_around))
    stuck = _blocked(backend, uses)
    if dry_run:
        return Redacted(uses=uses, erasure=told, echoes=echoes(backend, texts, told.chunks), blocked=stuck)
    notices = _notices(store, uses, told, reason, by)
    done = backend.erase(asked, objects=wanted)
    late = set(done.chunks) - set(told.chunks)
    if late:  # somebody detached a copy meanwhile
        notices |= _notices(store, where_used(backend, late), Erasure(tuple(late), (), ()), reason, by)
    forgotten = drop_entries(backend, [key for key, _ in uses.entries]) if forget else 0
    if scrub:
        backend.scrub()
    left = echoes(backend, texts, done.chunks)
    return Redacted(uses=uses, erasure=done, notices=notices, forgotten=forgotten, echoes=left, blocked=() if forget else stuck)


def _blocked(backend: Backend, uses: Uses) -> tuple[tuple[Key, Digest], ...]:
    """Threads whose newest checkpoint stands on what goes; older ones are only loaded by who asks for them."""
    scopes: dict[tuple[str, str, str], set[str]] = {}
    for key, _ in uses.entries:
        if key.framework in _THREADS:
            scopes.setdefault((key.framework, key.native_id, key.namespace), set()).add(key.key)
    newest = [found[0] for scope in scopes if (found := backend.scan(*scope, sub="", limit=1))]
    return tuple((key, chunk.id) for key, chunk in newest if key.key in scopes[key.framework, key.native_id, key.namespace])


def _notices(store: Store, uses: Uses, told: Erasure, reason: str, by: str | None) -> dict[str, Digest]:
    erased = set(told.chunks)
    found: dict[str, Digest] = {}
    for name, places in uses.by_session().items():
        targets = tuple(dict.fromkeys(place.chunk for place in places if place.chunk in erased))
        objects = tuple(sorted({one for place in places for one in place.objects} & set(told.named)))
        if targets or objects:
            refs = [place.ref for place in places]
            body = Redaction(targets=targets, objects=objects, rule="redact", reason=reason, by=by)
            found[name] = notice(store, name, body, refs)
    return found


def drop_entries(backend: Backend, keys: Iterable[Key]) -> int:
    """Let index entries not be found any more; return how many."""
    scopes: dict[tuple[str, str, str], list[str]] = {}
    for key in keys:
        scopes.setdefault((key.framework, key.native_id, key.namespace), []).append(key.key)
    return sum(backend.drop_keys(*scope, names) for scope, names in scopes.items())


def notice(store: Store, session: str, body: Redaction, refs: Collection[str]) -> Digest:
    """Append a redaction chunk to a session: on main, where it is touched, else on the first branch that is.

    Returns:
        Its id.
    """
    there = [ref for ref in store.backend.refs(session) if ref.name in refs] or store.backend.refs(session)[:1]
    ref: Ref = there[0]
    done = store.backend.append(
        ref.session, ref.branch, [draft(body)], head=ref.head, on_conflict="serialise", reason="redaction"
    )
    return done.chunks[0].id
