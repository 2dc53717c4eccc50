"""`RathSession`: the SDK's Session protocol over a rath_bridge Session.

What the SDK keeps here stands in the transcript beside what other frameworks have said, and nothing vanishes: ``pop_item`` and
``clear_session`` are ``compaction`` chunks. Where a run is recorded to the same session, each message stands once (law 12).
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any, Final

from agents.memory import SessionSettings

from rath_bridge.aio import settled
from rath_bridge.errors import MissingChunkError, MissingSessionError
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Draft, Key, Native, draft
from rath_bridge.model.digests import Digest, new_id
from rath_bridge.model.kinds import Compaction, ToolResult
from rath_bridge.model.report import ManifestEntry, align
from rath_bridge.recorder import current_recorder
from rath_bridge.session import Session, Store, native_name, open_store
from rath_bridge.verbs.merge import MergeFunction
from rath_bridge.verbs.transcript import TranscriptMessage
from rath_openai_agents.decode import native, origin, texts
from rath_openai_agents.encode import Row, rows_of
from rath_openai_agents.history import tail, unanswered, whole
from rath_openai_agents.items import FRAMEWORK, PAIRS, Item, Known, grouped, key, kind_of, known, of_model
from rath_openai_agents.messages import message
from rath_openai_agents.place import Place, locate

_KEPT: Final = "session_id"
"""Attribute of the messages that the SDK put here itself."""


class RathSession:
    """Keeps a conversation for ``Runner.run(agent, text, session=...)`` (source: ``agents.memory.Session``).

    Appends are idempotent within a turn: by call id and type, and for a repeated ``add_items`` whose outcome nobody saw; never by
    content, so two turns that say "yes" stay two. A history read hands out no call without its answer and no reasoning without what
    it led to; the store keeps them. Errors of the store are raised: what the SDK loads again is never spooled.
    """

    session_settings: SessionSettings | None

    def __init__(
        self, session_id: str, store: Store | None = None, *, session: str | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:  # fmt: skip
        """Open a conversation; it is started with the first item.

        Args:
            session_id: The SDK's id.
            store: From ``rath_bridge.open_store``, which is called without it.
            session: The rath_bridge session (or session@branch) to keep it in. By default the ambient recorder's, else the one
                in which this id was kept last, else ``openai_agents/<session_id>``.
            session_settings: The SDK's: how many items a history read returns.
        """
        check_store(store, "RathSession", session, optional=True)
        self.session_id = session_id
        self.session_settings = session_settings if session_settings is not None else SessionSettings()
        self._store = open_store() if store is None else store
        self._name = session or self._find()
        self._lock = RLock()
        self._read: tuple[tuple[Digest, int], list[TranscriptMessage], list[Row]] = (("", 0), [], [])
        """What was read, at which head and after how many erasures."""
        self._mark = -1
        """Where the line stood after the last operation: what a recorder wrote since is this turn's own."""
        self._turn_calls: set[tuple[str, Any, Digest]] = set()
        self._unsure: dict[tuple[Digest, ...], str] = {}
        """Appends whose outcome the SDK did not see, until the next turn."""

    @property
    def session(self) -> Session:
        """The rath_bridge session as it stands; raises `MissingSessionError` before the first item."""
        return self._store.session(self._name)

    # ---------------------------------------------------------------- the SDK's side

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the history, or its last items.

        Args:
            limit: At most so many; ``session_settings.limit`` when absent.
        """
        usual = getattr(self.session_settings, "limit", None)
        return await settled(self._get, usual if limit is None else limit, limit in (None, usual), self._place())

    async def add_items(self, items: list[Any]) -> None:
        """Append items in one transaction; when it returns, or is cancelled, they are durable or an error was raised."""
        if items:
            given = [known(_dumped(item), f"items[{i}]") for i, item in enumerate(items)]
            await settled(self._add, given, self._place())
            self._unsure.pop(tuple(one.key for one in given), None)  # not where it was cancelled: the SDK may try again

    async def pop_item(self) -> Any:
        """Take the last item out of the history and return it; None when there is none. The record keeps it."""
        return await settled(self._pop)

    async def clear_session(self) -> None:
        """Take all items out of the history; the record keeps them."""
        await settled(self._clear)

    # ---------------------------------------------------------------- ours

    async def fork(self, branch: str, *, at: int | Digest | None = None) -> RathSession:
        """Begin another line at an item, inclusive; this one is left as it is.

        Args:
            branch: Name of the new branch.
            at: Place of an item in the history as it is kept, or the digest of a chunk; the end, when absent.

        Returns:
            A conversation of the same ``session_id`` on the branch.

        Raises:
            NameInUseError: The branch exists.
            IndexError: There is no such item.
        """
        return await settled(self._fork, branch, at)

    async def merge(self, other: RathSession, strategy: str | MergeFunction = "summary") -> None:
        """Fold another line in; see ``Session.merge``."""
        await settled(lambda: self.session.merge(other.session, strategy))

    # ---------------------------------------------------------------- inside

    def _find(self) -> str:
        ambient = current_recorder()
        if ambient is not None and ambient.store == self._store:
            return ambient.name
        kept = self._store.backend.scan(FRAMEWORK, self.session_id, "session")
        latest = max(kept, key=lambda entry: entry[1].at, default=None)
        return latest[0].key if latest is not None else native_name(FRAMEWORK, self.session_id)

    def _place(self) -> Place | None:
        """Where this run is recorded, if that is this session."""
        return locate(self._store, self._name)

    def _now(self, place: Place | None = None) -> tuple[Session | None, list[TranscriptMessage], list[Row]]:
        if place is not None:
            place.recorder.flush()
        try:
            session = self.session
        except MissingSessionError:
            return None, [], []
        stands = session.head, self._store.backend.erasures()  # counted first: what goes meanwhile is read again
        if self._read[0] != stands:
            messages = list(session.messages())
            self._read = (stands, messages, rows_of(session, [], messages))
        return session, self._read[1], self._read[2]

    def _get(self, limit: int | None, history: bool, place: Place | None) -> list[Item]:
        with self._lock:
            session, _, rows = self._now(place)
            items = [row.item for row in rows]
            places = whole(items) if history or limit is None else range(len(items))
            if limit is not None:
                shown = list(places)
                places = [shown[i] for i in tail([items[i] for i in shown], limit)]
            if history:  # a turn begins
                self._turn_calls.clear()
                self._unsure.clear()
                self._mark = session.position if session is not None else -1
            if place is not None and not place.talk.begun:
                place.talk.stands([key(item) for item in items])
            return [dict(items[i]) for i in places]

    def _add(self, given: Sequence[Known], place: Place | None) -> None:
        with self._lock:
            session, messages, rows = self._now(place)
            if session is None:
                session = self._store.session(self._name, create=True)
            if place is not None and not place.talk.begun:  # a resumed run reads no history
                place.talk.stands([key(row.item) for row in rows])
            keys = tuple(one.key for one in given)
            again, token = keys in self._unsure, self._unsure.setdefault(keys, new_id(8))
            fresh = self._not_kept(self._not_observed(given, self._observed(messages, rows, place)), rows)
            drafts: list[Draft] = []
            for start, stop in grouped([one.value for one in fresh]):
                first = next(i for i, one in enumerate(given) if one is fresh[start])
                drafts.append(self._draft(fresh[start:stop], place, f"{token}/{first}"))
            self._mark = session.append(*drafts, on_conflict="serialise").position
            self._turn_calls.update(_calls(given))
            if place is not None and not again:
                place.talk.stands([one.key for one in fresh])

    def _draft(self, group: Sequence[Known], place: Place | None, token: str) -> Draft:
        body = message(
            [one.value for one in group], attributes={_KEPT: self.session_id},
            name=place.agent if place is not None and of_model(group[0].value) else None,
        )  # fmt: skip
        return self._chunk(
            body, place, native=native(group), objects=texts(group),
            once=Key(FRAMEWORK, self._name, "append", token), keys=[Key(FRAMEWORK, self.session_id, "session", self._name)],
        )  # fmt: skip

    def _chunk(self, body: Any, place: Place | None = None, **more: Any) -> Draft:
        run = place.talk.run if place is not None else None
        return draft(body, run=run.id if run is not None else None, origin=origin(), **more)

    def _observed(self, messages: Sequence[TranscriptMessage], rows: Sequence[Row], place: Place | None) -> list[ManifestEntry]:
        """Return the items of this turn that the run's recorder has put on record already."""
        if place is None or place.talk.run is None:
            return []
        run = place.talk.run.id
        ours = {
            one.id for one in messages
            if one.chunk.position > self._mark and one.chunk.run == run and _KEPT not in one.body.attributes
        }  # fmt: skip
        return [ManifestEntry(i, row.chunk, key(row.item)) for i, row in enumerate(rows) if row.chunk in ours]

    def _not_observed(self, given: Sequence[Known], observed: Sequence[ManifestEntry]) -> list[Known]:
        found = align(observed, [one.key for one in given])
        return [one for one, chunk in zip(given, found, strict=True) if chunk is None]

    def _not_kept(self, given: Sequence[Known], rows: Sequence[Row]) -> list[Known]:
        """Leave out calls and answers that this turn has kept, and calls that still wait for their answer (a resumed run)."""
        items = [row.item for row in rows]
        waiting = {call for at in unanswered(items)[0] for call in _calls([_known(items[at])])}
        return [one for one in given if not any(call in self._turn_calls or call in waiting for call in _calls([one]))]

    def _pop(self) -> Item | None:
        with self._lock:
            session, _, rows = self._now()
            if session is None or not rows:
                return None
            last = rows[-1]
            group = [row.item for row in rows if row.chunk == last.chunk]
            drafts: list[Draft] = []
            if len(group) == 1:
                drafts.append(self._chunk(Compaction(dropped=(last.chunk,), reason="popped")))
            else:
                drafts += self._shortened(session, last.chunk, group[:-1])
                about = {"of": last.chunk, "item": len(group) - 1}
                drafts.append(self._chunk(Compaction(reason="popped", attributes=about)))
            drafts += self._closed([row.item for row in rows], [len(rows) - 1], "popped")
            self._mark = session.append(*drafts, on_conflict="serialise").position
            self._turn_calls.difference_update(_calls([_known(last.item)]))
            return dict(last.item)

    def _shortened(self, session: Session, name: Digest, items: Sequence[Item]) -> list[Draft]:
        """Return the edit that leaves a message with its first items."""
        old = next(one.body for one in session.messages() if one.id == name)
        group = [_known(item) for item in items]
        body = message(list(items), name=old.name, turn=old.turn, replaces=name, attributes=dict(old.attributes))
        record: Native = native(group)
        return [self._chunk(body, native=record, objects=texts(group))]

    def _closed(self, items: Sequence[Item], gone: Sequence[int], reason: str) -> list[Draft]:
        """Close the calls that nobody will answer any more (law 8)."""
        waiting = unanswered(items)[0]
        found: list[Draft] = []
        for at in gone:
            call_id = items[at].get("call_id")
            if at in waiting and isinstance(call_id, str):
                body = ToolResult(name=str(items[at].get("name", "")), call_id=call_id, status="no_response", reason=reason)
                found.append(self._chunk(body))
        return found

    def _clear(self) -> None:
        with self._lock:
            session, messages, rows = self._now()
            if session is None or not messages:
                return
            items = [row.item for row in rows]
            cleared = Compaction(dropped=tuple(one.id for one in messages), reason="cleared")
            drafts = [self._chunk(cleared), *self._closed(items, range(len(items)), "cleared")]
            self._mark = session.append(*drafts, on_conflict="serialise").position
            self._turn_calls.clear()

    def _fork(self, branch: str, at: int | Digest | None) -> RathSession:
        with self._lock:
            session, _, rows = self._now()
            if session is None:
                raise MissingSessionError(self._name, [one.name for one in self._store.sessions()])
            point: Digest | None = at if isinstance(at, str) else None
            rest: list[Item] = []
            if isinstance(at, int):
                if not -len(rows) <= at < len(rows):
                    raise IndexError(f"{self._name} has {len(rows)} items, there is no number {at}")
                at %= len(rows)
                point = rows[at].chunk
                if any(row.chunk == point for row in rows[at + 1 :]):
                    rest = [row.item for row in rows[: at + 1] if row.chunk == point]
                self._reaches(session, point, [row.chunk for row in rows[: at + 1]])
            forked = session.fork(branch, at=point)
            if rest and point is not None:
                forked.append(*self._shortened(session, point, rest))
            return RathSession(self.session_id, self._store, session=forked.name, session_settings=self.session_settings)

    def _reaches(self, session: Session, point: Digest, wanted: Sequence[Digest]) -> None:
        """Check that what stands before an item was also written before it (an insertion may have come later)."""
        backend = session.store.backend
        where = backend.chunk(point).position
        if any(backend.chunk(name).position > where for name in set(wanted)):
            raise MissingChunkError(point)


def _dumped(item: Any) -> Any:
    from rath_openai_agents.items import dump

    return dump(item) if hasattr(item, "model_dump") else item


def _known(item: Item) -> Known:
    return known(item)


def _calls(given: Sequence[Known]) -> list[tuple[str, Any, Digest]]:
    """Type, call id and comparison key of the calls and answers among items."""
    answers = PAIRS.values()
    return [
        (kind_of(one.value), one.value.get("call_id"), one.key) for one in given
        if (kind_of(one.value) in PAIRS or kind_of(one.value) in answers) and one.value.get("call_id") is not None
    ]  # fmt: skip


__all__ = ["RathSession"]
