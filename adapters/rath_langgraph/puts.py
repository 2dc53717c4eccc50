"""One ``put``: where it goes, what it says, and the append, repeated while others move the branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from rath_bridge.errors import ConflictError, NameInUseError
from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Checkpoint, SessionStart
from rath_bridge.model.report import ManifestEntry
from rath_bridge.store.protocol import Appended, Ref
from rath_langgraph.cleaning import StateCleaner
from rath_langgraph.configs import place_name
from rath_langgraph.deltas import Deltas, Reads, delta_channels, known_at, unfold
from rath_langgraph.items import Encoder, Seen
from rath_langgraph.messages import Lifted, lift, manifest
from rath_langgraph.neutral import origin
from rath_langgraph.state import checkpoint_body
from rath_langgraph.threads import FRAMEWORK, Known, Line, Threads, Where, above, settle
from rath_langgraph.upkeep import run_key

_ATTEMPTS: Final = 50


class Put:
    """One put: where it goes, what it says, and the append, repeated while others move the branch."""

    def __init__(
        self,
        threads: Threads,
        serde: SerializerProtocol,
        line: Line,
        parent_id: str | None,
        checkpoint: LangGraphCheckpoint,
        facts: dict[str, Any],
        new_versions: ChannelVersions,
        on_conflict: str,
        reads: Reads,
        clean: StateCleaner | None = None,
    ) -> None:
        self.threads, self.serde, self.line, self.parent_id = threads, serde, line, parent_id
        self.clean, self.reads = clean, reads
        facts = facts if clean is None else cast("dict[str, Any]", clean(facts))
        self.checkpoint, self.facts, self.new_versions, self.on_conflict = checkpoint, facts, new_versions, on_conflict
        self.backend = threads.store.backend
        self.key = Key(FRAMEWORK, line.thread_id, line.namespace, checkpoint["id"])
        self.parent = self.threads.known(line, parent_id)
        if line.namespace:
            parents: dict[str, Any] = facts.get("parents") or {}
            line.started = parents.get(above(line.namespace))
        self.ended = threads.ended(line, checkpoint["id"]) if facts.get("source") not in ("fork", "update") else []
        """Ends of subgraph calls: a checkpoint behind them tells that they are done."""
        self.erasures = threads.erasures
        self.unfolded: tuple[Known | None, Deltas, Mapping[bytes, bytes]] | None = None

    def write(self) -> None:
        """Store it.

        Raises:
            ConflictError: See `RathSaver.put`.
        """
        settle(self.threads.store, self.threads.home(self.line)[0], place_name(self.line.thread_id, self.line.namespace))
        for attempt in range(_ATTEMPTS):
            where, foreign = self._where(trust=attempt == 0)
            if where is None:
                again = self.backend.lookup(self.key)
                if again is None:
                    return self._fork()
                return self._again()
            session, branch = where
            head = self.line.marks[where][0]
            drafts, lifted, known, encoder = self._drafts(head, foreign)
            last = attempt == _ATTEMPTS - 1
            try:
                done = self.backend.append(session, branch, drafts, head=head, on_conflict="serialise" if last else "raise")
            except ConflictError:
                continue
            return self._stored(done, 0, where, lifted, known, encoder)
        raise AssertionError("unreachable")  # the last attempt serialises

    def _where(self, trust: bool) -> tuple[Where | None, list[Chunk]]:
        """The branch that the parent is the tip of, and what others wrote to it since; None where the put is a fork.

        With ``trust``, a branch is taken to stand where this process left it: the append tells if it does not.
        """
        line, home = self.line, self.threads.home(self.line)
        if self.parent_id is None:
            if line.tips or line.passed:
                return None, []
            where: Where | None = home
        elif self.parent is None:
            where = home  # a parent that is not on record
        else:
            where = self.threads.is_tip(line, self.parent_id)
            if where is not None and where[0] != home[0]:
                where = home  # the thread goes on in another session
        if where is None:
            return None, []
        mark = line.marks.get(where)
        if mark is not None and trust:
            return where, []
        place = self.threads.store.session(Ref(*where, "", 0).name, create=True)
        if mark is None:
            start = self._start(where)
        elif mark[0] == place.head:
            return where, []
        else:
            start = mark[1] + 1
        foreign = list(self.backend.line(place.head, start))
        line.marks[where] = (place.head, place.position)
        if any(chunk.kind == "redaction" and chunk.run == line.run for chunk in foreign):
            line.forget_content()  # what this process takes for stored may have been erased
            self.parent = self.threads.known(line, self.parent_id)
        kept = (c for c in reversed(foreign) if c.kind == "checkpoint" and c.run == line.run and c.body_bytes is not None)
        last = next(kept, None)
        name = cast(Checkpoint, last.body).checkpoint_id if last is not None else None
        if name is not None and name not in (self.checkpoint["id"], self.parent_id):  # a merge may have written the parent
            self._pass(where, name)
            return None, []
        return where, foreign

    def _start(self, where: Where) -> int:
        """From where on a branch that was not read yet has to be looked at."""
        first = self.parent.chunk if self.parent is not None else self.line.run_chunk
        chunk = self.backend.chunk(first)
        ref = self.backend.ref(*where)
        if ref is None or ref.position < chunk.position:
            return 0 if ref is None else ref.position + 1
        standing = next(self.backend.line(ref.head, chunk.position, chunk.position + 1))
        return chunk.position + 1 if standing.id == chunk.id else ref.position + 1

    def _pass(self, where: Where, checkpoint_id: str) -> None:
        """Another process has moved this branch on."""
        if self.parent_id is not None:
            self.line.tips.pop(self.parent_id, None)
            self.line.passed.add(self.parent_id)
        self.line.tips[checkpoint_id] = where

    def _drafts(
        self, head: Digest, foreign: Sequence[Chunk], again: Known | None = None
    ) -> tuple[list[Draft], Lifted, Known, Encoder]:
        """Messages first, so that a fork at the checkpoint holds them; then the checkpoint.

        Args:
            head: The chunk behind which they will stand.
            foreign: What others have written to the branch since the parent.
            again: The same checkpoint, where it stands already.
        """
        line = self.line
        intact, self.erasures = self.threads.intact(line), self.threads.erasures
        if not intact:  # the graph says it again, so it is written as if it were the first time
            line.seen = Seen()
        encoder = Encoder(self.serde, line.seen, self.clean)
        stands = self.parent if again is None else again
        old = stands.state if stands is not None and stands.whole and intact else None
        body, state = checkpoint_body(
            line.namespace, self.parent_id, self.checkpoint, self.facts, encoder, old, self.new_versions
        )
        deltas = self._deltas(encoder)
        said = {name: delta for name, delta in deltas.items() if delta is not None}
        base = self.parent if again is None else replace(again, deltas={**deltas, **again.deltas})
        handed = self._handed(foreign)
        lifted = lift(
            line,
            {**self.checkpoint["channel_values"], **{name: delta.items for name, delta in said.items()}},
            {**state.values, **{name: delta.value for name, delta in said.items()}},
            base,
            encoder,
            self.threads,
            head,
            handed,
            self._around(encoder),
        )
        keys = (self.key, *run_key(self.facts, line, self.key.key))
        drafts = [*self.ended, *lifted.drafts, draft(body, run=line.run, objects=encoder.objects, origin=origin(), keys=keys)]
        waits = handed if self.facts.get("source") == "input" else ()
        return drafts, lifted, Known("", state, lifted.feed, lifted.ids, deltas, handed=waits), encoder

    def _handed(self, foreign: Sequence[Chunk]) -> tuple[ManifestEntry, ...]:
        """What the graph was given since the parent, or by the parent: an input is a checkpoint of its own, taken in by the next."""
        found, parent = manifest(foreign), self.parent
        if found or parent is None or self.line.namespace:
            return found
        return manifest(self.backend.line(parent.chunk)) if parent.handed is None else parent.handed

    def _deltas(self, encoder: Encoder) -> Deltas:
        """What the checkpoint's delta channels hold; worked out once for each parent."""
        if not encoder.open:
            return {}
        if self.unfolded is None or self.unfolded[0] is not self.parent:
            values, versions = self.checkpoint["channel_values"], self.checkpoint["channel_versions"]
            names, side = delta_channels(values, self.facts), Encoder(self.serde, self.line.seen, self.clean)
            parent = self.parent
            known = known_at(names, parent.deltas if parent is not None else {}, side, self.reads)
            old = parent.state.versions if parent is not None else None
            made = unfold(names, values, lambda name: old is None or old.get(name) != versions.get(name), known, side, self.reads)
            if parent is not None and self.parent_id is not None and len(known) > len(parent.deltas):
                self.parent = replace(parent, deltas=known)
                self.line.remember(self.parent_id, self.parent)
            self.unfolded = self.parent, made, side.bytes
        encoder.bytes.update(self.unfolded[2])
        return self.unfolded[1]

    def _around(self, encoder: Encoder) -> list[Known]:
        """The enclosing graph's checkpoint, whose messages a subgraph starts from."""
        if not self.line.namespace or not encoder.open:
            return []
        namespace = above(self.line.namespace)
        parents: dict[str, Any] = self.facts.get("parents") or {}
        name: str | None = parents.get(namespace)
        line = self.threads.line(self.line.thread_id, namespace)
        known = self.threads.known(line, name)
        return [known] if known is not None else []

    def _stored(self, done: Appended, first: int, where: Where, lifted: Lifted, known: Known, encoder: Encoder) -> None:
        """Remember what is durable now."""
        line, name = self.line, self.checkpoint["id"]
        ids = lifted.named(done.chunks[first + len(self.ended) :]) if lifted.places else lifted.ids
        line.remember(name, replace(known, chunk=done.ref.head, ids=ids))  # the checkpoint is written last
        if self.parent_id is not None:
            line.tips.pop(self.parent_id, None)
            line.passed.add(self.parent_id)
        line.tips[name] = line.where = where
        line.marks[where] = (done.ref.head, done.ref.position)
        self._remember(encoder)

    def _remember(self, encoder: Encoder) -> None:
        self.line.renew(self.erasures)
        self.line.seen.remember(encoder)
        self.threads.shelf.keep({name.hex(): data for name, data in encoder.bytes.items()})

    def _again(self) -> None:
        """The same checkpoint once more: it supersedes itself by key."""
        line, name = self.line, self.checkpoint["id"]
        where = line.tips.get(name) or self.threads.home(line)
        base = self.threads.known(line, name)
        drafts, lifted, known, encoder = self._drafts(base.chunk if base else "", [], again=base)
        done = self.threads.append(line, where, drafts)
        ids = lifted.named(done.chunks[len(self.ended) :]) if lifted.places else lifted.ids
        line.remember(name, replace(known, chunk=done.ref.head, ids=ids))
        self._remember(encoder)

    def _fork(self) -> None:
        """Open a branch at the parent's chunk: nobody's answer is lost (law 11)."""
        line = self.line
        session = self.threads.home(line)[0]
        travel = self.facts.get("source") in ("fork", "update") or self.threads.travels(line, self.parent_id)
        if self.on_conflict == "raise" and not travel:
            tip = next(iter(line.tips), None)
            raise ConflictError(f"thread {line.thread_id!r}", self.parent_id, tip)
        point = self.parent.chunk if self.parent is not None else line.run_chunk
        drafts, lifted, known, encoder = self._drafts(point, [])
        base = f"{'fork' if travel else 'race'}-{drafts[-1].body_digest[:8]}"
        for suffix in ("", "-2", "-3", "-4"):
            branch = base + suffix
            start = draft(
                SessionStart(op="fork", name=session, branch=branch, of=session, reason="time travel" if travel else "race"),
                origin=origin(),
            )
            with suppress(NameInUseError):
                done = self.backend.append(
                    session, branch, [start, *drafts], head=None, parents=(point,), reason="fork" if travel else "race"
                )
                return self._stored(done, 1, (session, branch), lifted, known, encoder)
        raise NameInUseError(f"{session}@{base}")
