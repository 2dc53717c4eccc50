"""A plain Python model of sessions, refs and their graph: slow, obvious, and what the state machine compares stores with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

RefName = tuple[str, str]
"""Session and branch."""

ANONYMOUS = "race-"
"""The branch of a race is named after its tip's digest, which the model does not know: it numbers them."""


@dataclass(frozen=True, slots=True)
class NaiveChunk:
    """One chunk: what it says, and which chunks (by number) it follows."""

    kind: str
    text: str
    parents: tuple[int, ...]
    tokens: int = 0
    body: int = -1
    """Chunks with the same number have the same body: detached copies."""


class NaiveConflictError(Exception):
    """The model expects the operation to be refused, and nothing to change."""


@dataclass(slots=True)
class NaiveModel:
    """Chunks by number, refs by name. Every method is the shortest way to say what should happen."""

    chunks: list[NaiveChunk] = field(default_factory=list[NaiveChunk])
    refs: dict[RefName, int] = field(default_factory=dict[RefName, int])
    races: int = 0
    erased: set[int] = field(default_factory=set[int])
    """Bodies that are gone."""

    # ---------------------------------------------------------------- read

    def line(self, head: int) -> list[int]:
        """First parents, oldest first."""
        found: list[int] = []
        at: int | None = head
        while at is not None:
            found.append(at)
            parents = self.chunks[at].parents
            at = parents[0] if parents else None
        return found[::-1]

    def ancestors(self, head: int) -> set[int]:
        """Everything that a chunk descends from, itself too."""
        found: set[int] = set()
        todo = [head]
        while todo:
            at = todo.pop()
            if at not in found:
                found.add(at)
                todo += self.chunks[at].parents
        return found

    def generation(self, head: int) -> int:
        """Length of the longest way back to a root."""
        depth: dict[int, int] = {}
        for at in sorted(self.ancestors(head)):  # parents have smaller numbers
            depth[at] = max((depth[parent] + 1 for parent in self.chunks[at].parents), default=0)
        return depth[head]

    def bases(self, ours: int, theirs: int) -> set[int]:
        """The common ancestors of the greatest generation: a merge base is one of them."""
        common = self.ancestors(ours) & self.ancestors(theirs)
        nearest = max(map(self.generation, common), default=-1)
        return {at for at in common if self.generation(at) == nearest}

    def is_erased(self, number: int) -> bool:
        """Whether nothing but the envelope of a chunk is left."""
        return self.chunks[number].body in self.erased

    def messages(self, head: int) -> list[str]:
        """The texts of the transcript; what was erased is not in it."""
        return [self.chunks[at].text for at in self.line(head) if self.chunks[at].kind == "message" and not self.is_erased(at)]

    def usage(self, head: int) -> int:
        """Tokens of all ancestors, each once; what was erased tells none."""
        return sum(self.chunks[at].tokens for at in self.ancestors(head) if not self.is_erased(at))

    def placement(self, head: int) -> str | None:
        """The last place of a line."""
        return next((self.chunks[at].text for at in reversed(self.line(head)) if self.chunks[at].kind == "placement"), None)

    # ---------------------------------------------------------------- write

    def create(self, name: str) -> int:
        """Begin a session."""
        return self._begin((name, "main"), ())

    def fork(self, at: int, ref: RefName) -> int:
        """Begin a line behind any chunk."""
        return self._begin(ref, (at,))

    def detach(self, head: int, name: str) -> int:
        """Copy a line under a new root."""
        ref = (name, "main")
        old = self.line(head)
        at = self._begin(ref, ())
        for number in old:
            chunk = self.chunks[number]
            at = self._add(NaiveChunk(chunk.kind, chunk.text, (at,), chunk.tokens, chunk.body))
        self.refs[ref] = at
        return at

    def erase(self, numbers: set[int], *, copies: bool) -> set[int]:
        """Erase bodies, or, without ``copies``, those that nobody else has; returns the chunks that lose theirs."""
        wanted = {self.chunks[number].body for number in numbers} - self.erased
        shared = {chunk.body for number, chunk in enumerate(self.chunks) if number not in numbers}
        gone = wanted if copies else wanted - shared
        self.erased |= gone
        return {number for number, chunk in enumerate(self.chunks) if chunk.body in gone}

    def append(
        self, ref: RefName, seen: int, new: list[NaiveChunk], on_conflict: Literal["serialise", "branch", "raise"]
    ) -> tuple[RefName, int]:
        """Append behind a ref that the writer saw at ``seen``; parents of ``new`` are filled in here."""
        at = self.refs[ref]
        if at != seen:
            if on_conflict == "raise":
                raise NaiveConflictError
            if on_conflict == "branch":
                self.races += 1
                ref, at = (ref[0], f"{ANONYMOUS}{self.races}"), seen
        for chunk in new:
            at = self._add(NaiveChunk(chunk.kind, chunk.text, (at,), chunk.tokens))
        self.refs[ref] = at
        return ref, at

    def merge(self, ref: RefName, ours: int, theirs: int, name: str, strategy: str) -> int:
        """Fold ``theirs`` into a ref that the writer saw at ``ours``; returns ``ours`` where there is nothing to do."""
        if theirs in self.ancestors(ours):
            return ours
        here, there = self.placement(ours), self.placement(theirs)
        if strategy == "summary" and None not in (here, there) and here != there:
            raise NaiveConflictError
        if self.refs[ref] != ours:
            raise NaiveConflictError
        parents = (theirs, ours) if strategy == "theirs" else (ours, theirs)
        only = self.ancestors(theirs) - self.ancestors(ours)
        at = self._add(NaiveChunk("merge", "", parents))
        if strategy == "summary":
            heard = [n for n in self.line(theirs) if n in only and self.chunks[n].kind == "message" and not self.is_erased(n)]
            said = [self.chunks[n].text for n in heard]
            last = next((f"user: {text}" for text in reversed(said) if text), "(no text)")
            counts = f"{len(said)} message{'s'[: len(said) != 1]}, {len(only)} chunk{'s'[: len(only) != 1]}"
            if said:
                at = self._add(NaiveChunk("message", f"[merged from {name}: {counts}; its last message follows]\n{last}", (at,)))
        self.refs[ref] = at
        return at

    def _begin(self, ref: RefName, parents: tuple[int, ...]) -> int:
        if ref in self.refs:
            raise NaiveConflictError
        self.refs[ref] = self._add(NaiveChunk("session", "", parents))
        return self.refs[ref]

    def _add(self, chunk: NaiveChunk) -> int:
        self.chunks.append(chunk if chunk.body >= 0 else replace(chunk, body=len(self.chunks)))
        return len(self.chunks) - 1
