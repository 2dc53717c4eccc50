"""The value in the middle: an immutable `Session` (store, name, head), and the `Store` that opens them.

Verbs return new Sessions; the algorithms live in `rath_bridge.verbs`, one file each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, overload
from urllib.parse import quote

from rath_bridge.aio import in_thread
from rath_bridge.errors import (
    AmbiguousDigestError,
    CorruptStoreError,
    InvalidNameError,
    MissingChunkError,
    MissingSessionError,
    NameInUseError,
    WrongTypeError,
)
from rath_bridge.model.chunk import Chunk, Draft, draft, draft_of
from rath_bridge.model.digests import Digest, digest, is_digest
from rath_bridge.model.kinds import Message, Placement, SessionStart, Usage
from rath_bridge.model.parts import Part, TextPart
from rath_bridge.store import connect
from rath_bridge.store.protocol import Backend, OnConflict, Ref
from rath_bridge.verbs import lineage, merge, transcript
from rath_bridge.verbs.blame import BlameLine, blame
from rath_bridge.verbs.diff import Diff, diff
from rath_bridge.verbs.fsck import Finding, fsck
from rath_bridge.verbs.log import LogEntry, log
from rath_bridge.verbs.transcript import Call, TranscriptMessage

Place = Digest | int | Chunk | TranscriptMessage
"""What names a chunk of a session: digest, number, the chunk itself, or a message of the transcript."""
_PLACEMENT: Final = frozenset({"placement"})
_NAME: Final = re.compile(r"[^\x00-\x20\x7f-\x9f\u2028\u2029@]{1,400}\Z")


def _text(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidNameError(name, f"a {what} name is a text")
    return name


def check_name(name: str, what: str = "session") -> str:
    """Return a session or branch name, or raise.

    Raises:
        InvalidNameError: Empty, longer than 400 characters, with spaces, control characters, line separators, lone surrogates
            or ``@``; or no text.
    """
    _text(name, what)
    if not _NAME.match(name):
        raise InvalidNameError(name, f"a {what} name has 1 to 400 characters, no spaces, control characters or @")
    try:
        if not name.isascii():
            name.encode()
    except UnicodeEncodeError:
        raise InvalidNameError(name, "it holds half of a surrogate pair") from None
    return name


def native_name(framework: str, native_id: str) -> str:
    """Return the session that a framework's own id names: ``langgraph/1``; odd characters are percent-encoded."""
    safe = quote(native_id.encode("utf-8", "surrogatepass"), safe="-_.~/:+=,;!()*'")
    name = f"{framework}/{safe}"
    return name if len(name) <= 400 else f"{name[:380]}~{digest(name.encode())[:16]}"


def split_name(name: str) -> tuple[str, str]:
    """Split ``ticket@try-b`` into session and branch (``main`` when absent)."""
    session, at, branch = _text(name, "session").partition("@")
    return check_name(session), check_name(branch, "branch") if at else "main"


def message(role: str, content: str | Sequence[Part], **fields: Any) -> Draft:
    """Make a message to append.

    Args:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        content: Text, or parts.
        **fields: Other fields of `rath_bridge.model.kinds.Message`.
    """
    parts = (TextPart(content),) if isinstance(content, str) else tuple(content)
    return draft(Message(role=role, parts=parts, **fields))


redirect: Final[ContextVar[Callable[[Backend], Backend] | None]] = ContextVar("rath_bridge_redirect", default=None)
"""Set while a replay runs: every store leads to its scratch, whoever opened it, so that nothing reaches the user's sessions."""


@dataclass(frozen=True, slots=True)
class Store:
    """What `open_store` returns: sessions by name, over any backend."""

    kept: Backend
    """The backend that was opened."""

    @property
    def backend(self) -> Backend:
        """Where reads and writes go: the backend that was opened, or the scratch of the replay that the caller runs in."""
        elsewhere = redirect.get()
        return self.kept if elsewhere is None else elsewhere(self.kept)

    def bound(self) -> Store:
        """Return the store that this one leads to here, for what goes on where the context is another: a thread, a late write."""
        backend = self.backend
        return self if backend is self.kept else Store(backend)

    @property
    def url(self) -> str:
        """Address, without a password."""
        return self.backend.url

    def create(self, name: str) -> Session:
        """Start a session.

        Raises:
            NameInUseError: It exists; nothing was changed.
            InvalidNameError: Not a usable name.
        """
        name, branch = split_name(name)
        start = draft(SessionStart(op="create", name=name, branch=branch))
        return self._at(self.backend.append(name, branch, [start], head=None, reason="create").ref)

    def session(self, name: str, *, create: bool = False) -> Session:
        """Open a session (``ticket``) or a branch (``ticket@try-b``) where it stands now.

        Args:
            name: Session, or session@branch.
            create: Start it where it does not exist.

        Raises:
            MissingSessionError: It does not exist.
        """
        ref = self.backend.ref(*split_name(name))
        if ref is not None:
            return self._at(ref)
        if not create:
            raise MissingSessionError(name, [r.name for r in self.backend.refs()])
        try:
            return self.create(name)
        except NameInUseError:  # somebody else was faster
            return self.session(name)

    def sessions(self) -> list[Session]:
        """All sessions at the tip of their first branch (``main``, where there is one), by name."""
        found: dict[str, Session] = {}
        for ref in self.backend.refs():
            found.setdefault(ref.session, self._at(ref))
        return list(found.values())

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self.backend.ref(*split_name(name)) is not None
        except InvalidNameError:
            return False

    def fsck(self, head: Digest | None = None) -> Iterator[Finding]:
        """Check every ref of the store; yields every fault, and never stops at the first."""
        yield from fsck(self.backend, head=head)

    def close(self) -> None:
        """Release connections."""
        self.backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _at(self, ref: Ref) -> Session:
        return Session(self.bound(), ref.session, ref.branch, ref.head, ref.position)

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[str]]:
        if self.url.startswith("memory:"):
            raise TypeError("a session of a memory: store cannot be pickled: it lives in this process only; use sqlite:///…")
        return open_store, (self.url,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)


def open_store(url: str | None = None, **options: Any) -> Store:
    """Open a store.

    Args:
        url: ``sqlite:///runs.db``, ``postgresql://…`` or ``memory:``; default ``$RATH_BRIDGE_STORE``, else ``sqlite:///.rath/store.db``.
        **options: For the backend (``synchronous`` for SQLite, ``pool_size`` for PostgreSQL).

    Raises:
        StoreAddressError: Not an address of a store.
        StoreUnavailableError: It cannot be reached or written.
        NewerFormatError: A newer version wrote it; it was left alone.
        WrongTypeError: No text.
    """
    if url is not None and not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        address = f"sqlite:///{os.fspath(url)}" if isinstance(url, os.PathLike) else "sqlite:///runs.db"
        raise WrongTypeError("open_store", "an address as a text", url, f"pass rb.open_store({address!r})")
    return Store(connect(url, **options))


@dataclass(frozen=True, slots=True)
class Session:
    """An immutable value: store, name and head. Verbs return new Sessions; equality is over those three."""

    store: Store
    session: str
    """The session's name, without the branch."""
    branch: str
    head: Digest
    """Digest of the last chunk."""
    position: int

    @property
    def name(self) -> str:
        """``ticket-4711``, or ``ticket-4711@try-b`` off the main branch."""
        return self.session if self.branch == "main" else f"{self.session}@{self.branch}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and (self.store, self.name, self.head) == (other.store, other.name, other.head)

    def __hash__(self) -> int:
        return hash((self.store.url, self.name, self.head))

    def __repr__(self) -> str:
        return f"<Session {self.name} {self.head[:12]} {len(self)} chunks in {self.store.url}>"

    # ------------------------------------------------------------------ write

    def append(self, *drafts: Draft, on_conflict: OnConflict = "branch") -> Session:
        """Append chunks in one transaction; when it returns they are durable.

        Args:
            *drafts: From ``rb.message``, ``rb.draft`` or an adapter's ``decode``.
            on_conflict: What to do when somebody moved the branch since this value was read: open the branch ``race-…``,
                ``serialise`` behind what stands there now, or ``raise``.

        Raises:
            ConflictError: The branch moved and ``on_conflict`` is ``raise``.
            StoreUnavailableError: Nothing was written.
        """
        if not drafts:
            return self
        for item in drafts:
            if type(item) is not Draft:
                raise TypeError(
                    f"append takes what rb.message, rb.draft or an adapter's decode returns, not {type(item).__name__}"
                )
        if on_conflict not in ("serialise", "branch", "raise"):
            raise ValueError(f"on_conflict={on_conflict!r} is not 'serialise', 'branch' or 'raise'")
        done = self.store.backend.append(self.session, self.branch, drafts, head=self.head, on_conflict=on_conflict)
        return self._at(done.ref)

    def fork(self, branch: str | None = None, *, at: Place | None = None, session: str | None = None) -> Session:
        """Begin another line at a chunk, inclusive. O(1): one chunk, whatever the length (law 3).

        Args:
            branch: Name of the new branch of this session.
            at: The chunk to fork at: its digest or the beginning of it, its number in this line, the `Chunk` itself, or a message of
                `messages`; the head, when absent.
            session: Fork into a session of this name instead.

        Raises:
            NameInUseError: The branch or session exists.
            MissingChunkError: ``at`` is not in the store.
            IndexError: This line has no chunk of that number.
            WrongTypeError: ``at`` names no chunk.
        """
        if branch is None and session is None:
            raise InvalidNameError(branch, "give the fork a branch name, or session='name'")
        point = self.head if at is None else self._point(at)
        name = self.session if session is None else check_name(session)
        branch = check_name("main" if branch is None else branch, "branch")
        plain = type(name) is type(branch) is str  # an enum's member is a text, too, and would be written as its value
        start = draft_of("session", {"op": "fork", "name": name, "branch": branch, "of": self.name}, plain=plain)
        done = self.store.backend.append(name, branch, [start], head=None, parents=(point,), reason="fork")
        return self._at(done.ref)

    def detach(self, session: str) -> Session:
        """Copy the line under a new root: no parent in the old one, bodies shared (law 6)."""
        renamed = transcript.renamed(list(self.chunks()))
        start = draft(SessionStart(op="detach", name=check_name(session), of=self.name, source=self.head, renamed=renamed))
        return self._at(self.store.backend.copy(session, "main", self.head, start))

    def merge(
        self,
        other: Session,
        strategy: str | merge.MergeFunction = "summary",
        *,
        merge_state: merge.MergeState | None = None,
        on_conflict: OnConflict = "raise",
    ) -> Session:
        """Fold another line in; both parents are kept and the base stands once (law 4).

        Args:
            other: The session or branch to fold in, of the same store.
            strategy: ``summary``, ``ours``, ``theirs``, ``state`` or a function of `MergeSides` that writes the block.
            merge_state: An adapter's function that merges framework states; ``state`` needs one.
            on_conflict: As in `append`, when somebody moved this branch meanwhile.

        Raises:
            MergeConflict: Both sides changed the same thing; nothing was written.
            ValueError: Another store, or an unknown strategy.
        """
        self._same_store(other, "merge")
        plan = merge.plan_merge(
            self.head, other.head, self.store.backend, name=other.name, strategy=strategy, merge_state=merge_state
        )
        if plan is None:
            return self
        done = self.store.backend.append(
            self.session, self.branch, plan.drafts, head=self.head, parents=plan.parents, on_conflict=on_conflict, reason="merge"
        )
        return self._at(done.ref)

    def place(self, backend: str, root: str | None = None, **spec: Any) -> Session:
        """Record where the work runs from here on; returns the new Session (``.to`` is an alias)."""
        return self.append(draft(Placement(backend=backend, root=root, spec=spec)))

    to = place

    # ------------------------------------------------------------------ read

    def __len__(self) -> int:
        return self.position + 1

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            wanted = range(len(self))[index]
            if not wanted:
                return []
            first = min(wanted[0], wanted[-1])
            found = list(self.store.backend.line(self.head, first, max(wanted[0], wanted[-1]) + 1))
            return [found[i - first] for i in wanted]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"{self.name} has {len(self)} chunks, there is no number {index}")
        for chunk in self.store.backend.line(self.head, at, at + 1):
            return chunk
        raise CorruptStoreError(f"chunk {at} of {self.name}", "it is missing from its line")

    def __iter__(self) -> Iterator[Chunk]:
        return self.chunks()

    def chunks(self) -> Iterator[Chunk]:
        """Iterate over the line, oldest first, in pages."""
        return self.store.backend.line(self.head)

    def messages(self, run: str | None = None) -> tuple[TranscriptMessage, ...]:
        """Return the transcript: a fold over top-level runs, or over one run.

        A message whose content was erased is not in it, since not even its role is left: `chunks` holds it, `log` shows it in its place,
        and the report of `encode` names it as a loss.
        """
        return transcript.transcript(self._of(transcript.TRANSCRIPT), run)

    def calls(self) -> tuple[Call, ...]:
        """Return every tool call of the line with its result (law 8)."""
        return tuple(transcript.calls(self._of(transcript.CALLS)))

    def pending(self) -> tuple[Call, ...]:
        """Return the calls without a result."""
        return transcript.pending(self._of(transcript.CALLS))

    def usage(self) -> Usage:
        """Add up the tokens of all that this session descends from; a merge counts its base once (law 7)."""
        return transcript.usage(lineage.ancestors(self.head, self.store.backend))

    @property
    def placement(self) -> Placement | None:
        """Where the work runs: the last `place`."""
        return merge.placement(self._of(_PLACEMENT))

    def heads(self) -> dict[str, Digest]:
        """Return the tips of all branches of this session by branch name."""
        return {ref.branch: ref.head for ref in self.store.backend.refs(self.session)}

    def log(self, *, all: bool = False) -> Iterator[LogEntry]:  # noqa: A002 - git's word
        """Iterate newest first over this line, or (``all``) over all branches of the session."""
        heads = list(self.heads().values()) if all else [self.head]
        return log(heads, self.store.backend, first_parent=not all)

    def diff(self, other: Session) -> Diff:
        """Compare with another session or branch of the same store.

        Raises:
            ValueError: Another store.
        """
        self._same_store(other, "diff")
        return diff(self.head, other.head, self.store.backend)

    def blame(self, wanted: str) -> list[BlameLine]:
        """Find which chunks, runs and agents brought a text or a path into this session."""
        return blame(self.head, wanted, self.store.backend)

    def fsck(self, head: Digest | None = None) -> list[Finding]:
        """Check all that this line stands on, with what was merged into it; an empty list is a clean one.

        Other branches are lines of their own: ``store.session("ticket@try-b").fsck()``, or ``store.fsck()`` for everything.

        Args:
            head: A head that is known from elsewhere; it must be in this session's history.
        """
        return list(fsck(self.store.backend, heads=[self.head], head=head))

    def latest(self) -> Session:
        """Return this branch where it stands now."""
        return self.store.session(self.name)

    # ------------------------------------------------------------------ async twins

    async def aappend(self, *drafts: Draft, on_conflict: OnConflict = "branch") -> Session:
        """Async twin of `append`."""
        return await in_thread(self.append, *drafts, on_conflict=on_conflict)

    async def afork(self, branch: str | None = None, *, at: Place | None = None, session: str | None = None) -> Session:
        """Async twin of `fork`."""
        return await in_thread(self.fork, branch, at=at, session=session)

    async def adetach(self, session: str) -> Session:
        """Async twin of `detach`."""
        return await in_thread(self.detach, session)

    async def amerge(self, other: Session, strategy: str | merge.MergeFunction = "summary", **options: Any) -> Session:
        """Async twin of `merge`."""
        return await in_thread(self.merge, other, strategy, **options)

    async def achunks(self) -> list[Chunk]:
        """Async twin of `chunks`: the whole line."""
        return await in_thread(lambda: list(self.chunks()))

    async def amessages(self, run: str | None = None) -> tuple[TranscriptMessage, ...]:
        """Async twin of `messages`."""
        return await in_thread(self.messages, run)

    async def adiff(self, other: Session) -> Diff:
        """Async twin of `diff`."""
        return await in_thread(self.diff, other)

    async def afsck(self, head: Digest | None = None) -> list[Finding]:
        """Async twin of `fsck`."""
        return await in_thread(self.fsck, head)

    async def ausage(self) -> Usage:
        """Async twin of `usage`."""
        return await in_thread(self.usage)

    # ------------------------------------------------------------------ inside

    def _at(self, ref: Ref) -> Session:
        return Session(self.store.bound(), ref.session, ref.branch, ref.head, ref.position)

    def _of(self, kinds: frozenset[str]) -> list[Chunk]:
        """The chunks of the line that a fold looks at; the others are let go as they are read."""
        return [chunk for chunk in self.chunks() if chunk.kind in kinds]

    def _same_store(self, other: Session, taker: str) -> None:
        if not isinstance(other, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(taker, "a Session", other, "open it with store.session(NAME)")
        if other.store != self.store:
            raise ValueError(f"{other.name} lives in {other.store.url}, not in {self.store.url}: import it there first")

    def _point(self, at: Place) -> Digest:
        if isinstance(at, Chunk | TranscriptMessage):
            return at.id
        if isinstance(at, int) and not isinstance(at, bool):
            return self[at].id
        if not isinstance(at, str):
            raise WrongTypeError(
                "fork", "a chunk as at: its digest, its number, the Chunk or a message", at, "pass at=session[3]"
            )
        return at if is_digest(at) else resolve(self.store.backend, at)


def resolve(backend: Backend, prefix: str) -> Digest:
    """Return the one chunk digest that begins with ``prefix``.

    Raises:
        MissingChunkError, AmbiguousDigestError: None, or several.
    """
    found = backend.find(prefix.lower()) if re.fullmatch(r"[0-9a-fA-F]{4,64}", str(prefix)) else []
    if not found:
        raise MissingChunkError(str(prefix))
    if len(found) > 1:
        raise AmbiguousDigestError(prefix, found)
    return found[0]
