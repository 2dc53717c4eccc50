"""What a store can do. Memory, SQLite and PostgreSQL implement it; `rath_bridge.testing.StoreContract` checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from rath_bridge.model.chunk import Chunk, Draft, Key
from rath_bridge.model.digests import Digest
from rath_bridge.store.arriving import Arrival, Landing
from rath_bridge.store.erasing import Erasure

OnConflict = Literal["serialise", "branch", "raise"]
"""What an append does when the ref has moved: go on from where it stands now, open the branch ``race-<8 hex of
tip>``, or raise."""


class Ref(NamedTuple):
    """A name for a tip: session and branch."""

    session: str
    branch: str
    head: Digest
    position: int

    @property
    def name(self) -> str:
        """``ticket-4711``, or ``ticket-4711@try-b`` off the main branch."""
        return self.session if self.branch == "main" else f"{self.session}@{self.branch}"


class RefMove(NamedTuple):
    """One line of a reflog."""

    at: int
    """Microseconds since 1970, UTC."""
    old: Digest | None
    new: Digest
    reason: str


class Appended(NamedTuple):
    """What an append did."""

    ref: Ref
    """Where the chunks stand: another branch than was asked for, after a race."""
    written: int
    """How many are new."""
    make: Callable[[], tuple[Chunk, ...]]
    """Builds `chunks`: most callers need only the ref."""

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """One for each draft, in order; for a draft whose ``once`` key stood already, the chunk that stands there."""
        return self.make()


class Reader(Protocol):
    """The read side: all that verbs need."""

    @property
    def url(self) -> str:
        """Address, without a password."""
        ...

    def refs(self, session: str | None = None) -> list[Ref]:
        """All refs (of a session), sorted by session, ``main`` first, then by branch."""
        ...

    def ref(self, session: str, branch: str) -> Ref | None:
        """One ref."""
        ...

    def reflog(self, session: str, branch: str) -> list[RefMove]:
        """Every move of a ref, oldest first."""
        ...

    def chunk(self, name: Digest) -> Chunk:
        """One chunk.

        Raises:
            MissingChunkError: The store does not hold it.
        """
        ...

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        """Chunks of the first-parent line of ``head`` with positions ``start <= p < stop``, oldest first, read in pages."""
        ...

    def find(self, prefix: str) -> list[Digest]:
        """Up to ten digests of chunks that begin with these hexadecimal characters."""
        ...

    def objects(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        """Blobs, native records and tree nodes.

        Raises:
            MissingObjectError: One of them is not there.
            ErasedError: One of them was erased.
        """
        ...

    def lookup(self, key: Key) -> Chunk | None:
        """The chunk that stands under an index key."""
        ...

    def scan(
        self,
        framework: str,
        native_id: str,
        namespace: str,
        *,
        before: str | None = None,
        exact: str | None = None,
        sub: str | None = None,
        limit: int | None = None,
    ) -> list[tuple[Key, Chunk]]:
        """Index entries of one scope, greatest key first, then by ``sub`` ascending.

        Args:
            framework: First part of the scope.
            native_id: Second part: thread id, session id ...
            namespace: Third part.
            before: Only keys that sort before this one.
            exact: Only this key.
            sub: Only entries with this ``sub``.
            limit: At most so many.
        """
        ...

    def entries(self) -> Iterator[tuple[Key, Digest]]:
        """Every index entry with the chunk that stands under it, scope after scope; reads the whole index."""
        ...

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        """``(native_id, namespace)`` of every scope of a framework."""
        ...


class Backend(Reader, Protocol):
    """A store: the read side, and three ways to write."""

    def append(
        self,
        session: str,
        branch: str,
        drafts: Sequence[Draft],
        *,
        head: Digest | None,
        parents: Sequence[Digest] | None = None,
        on_conflict: OnConflict = "raise",
        reason: str = "append",
    ) -> Appended:
        """Append drafts to a ref in one transaction; when it returns, they are durable.

        The ref is locked first; then envelopes are hashed and the batch is committed, so writers wait instead of retrying.

        Args:
            session: Session name.
            branch: Branch name.
            drafts: At least one; each becomes the parent of the next.
            head: The head that the caller saw; None creates the ref.
            parents: Parents of the first draft; the head, when absent. The first of them is the line that goes on.
            Where the batch
                is serialised behind a ref that has moved, ``head`` among them means where it stands now.
            on_conflict: What to do when the ref does not stand at ``head``. With ``branch``, drafts that were appended
                behind the same parents before are the same chunks and are not written twice.
            reason: For the reflog.

        Raises:
            ConflictError: The ref has moved and ``on_conflict`` is ``raise``; or a ref was to be created, and all drafts stand
                under their ``once`` keys already.
            NameInUseError: ``head`` is None and the ref exists.
            MissingSessionError: ``head`` is given and there is no such ref.
            MissingChunkError: A parent is not in the store.
            StoreUnavailableError: The store could not be written; nothing was.
        """
        ...

    def copy(self, session: str, branch: str, source: Digest, first: Draft, *, reason: str = "detach") -> Ref:
        """Create a ref over new envelopes of ``source``'s line, without parents in it; bodies are shared.

        Args:
            session: Session to create.
            branch: Its branch.
            source: Head of the line to copy.
            first: The root chunk that tells where it came from.
            reason: For the reflog.
        """
        ...

    def ingest(self, arrivals: Iterable[Arrival], landings: Sequence[Landing], *, reason: str = "import") -> int:
        """Keep chunks with the ids that they have elsewhere, and let refs stand at them; one transaction.

        Chunks that stand already are passed over: what was erased here stays erased. Unknown fields of an envelope stay too.

        Args:
            arrivals: Parents before children.
            landings: Refs to create, or to move from where the caller saw them.
            reason: For the reflogs.

        Returns:
            How many chunks are new.

        Raises:
            CorruptStoreError: A chunk or an object is not what its name says.
            MissingChunkError: A parent, or the tip of a ref, neither stands here nor arrived.
            NameInUseError: A ref that should be created exists.
            ConflictError: A ref has moved meanwhile.
        """
        ...

    def drop_keys(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Remove index entries of a scope (of all namespaces; only some keys) and return how many; chunks stay."""
        ...

    def copy_keys(self, framework: str, native_id: str, target: str) -> bool:
        """Let every index entry of a native id, in all its namespaces, be found under another one too, as it is now.

        O(1), whatever the size: no entry and no chunk is copied, and neither side sees what is done to the other later. What stands
        under the target already stays. Returns whether there was anything.

        Raises:
            NameInUseError: The target is a copy or has copies already (`drop_keys` frees it), or is the source itself.
        """
        ...

    def erase(
        self,
        chunks: Iterable[Digest],
        *,
        objects: Iterable[Digest] = (),
        copies: bool = True,
        unused: bool = False,
        later: bool = False,
        dry_run: bool = False,
    ) -> Erasure:
        """Erase bodies, with every object that only they stand on, in one transaction; envelopes, refs and keys stay.

        Nobody else writes meanwhile. The whole store is read to find what else stands on the same objects, except with ``later``.

        Args:
            chunks: Whose bodies to erase; one that has none any more is passed over.
            objects: Objects to erase whoever stands on them: reading them raises `ErasedError` from then on.
            copies: Erase the same body wherever it stands (detached lines share bodies); else a body that a chunk outside of
                ``chunks`` has, too, stays.
            unused: Drop every object that no body stands on as well.
            later: Only the bodies go now, those that others have stay (as with ``copies=False``); the cost follows their number. What
                nothing else stands on goes with `scrub`, with the next ``unused``, or with the erasure that makes these bodies many
                (`rath_bridge.store.erasing.many`).
            dry_run: Only tell.

        Raises:
            MissingChunkError: A chunk is not in the store.
        """
        ...

    def erasures(self) -> int:
        """Count the erasures that took objects away: while it stays, what somebody has seen stored is stored."""
        ...

    def scrub(self) -> None:
        """Drop what nothing stands on any more, then rewrite the store's own files, so that what was erased is not in them; logs and
        copies outside of them are not reached. As slow as a copy of the store.

        Raises:
            StoreUnavailableError: Others use the store at the moment; nothing was lost, do it again.
        """
        ...

    def close(self) -> None:
        """Release connections. Safe to call twice."""
        ...
