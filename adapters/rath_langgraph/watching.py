"""Who records what happens in a graph, and where: what is open, which recorder it goes to, and which handler it belongs to."""

from __future__ import annotations

from time import monotonic
from uuid import UUID

from langgraph.callbacks import GraphCallbackHandler

from rath_bridge.errors import StoreError
from rath_bridge.given import check_store
from rath_bridge.model.kinds import Body
from rath_bridge.recorder import Recorder, current_recorder, current_run, recorder_for
from rath_bridge.session import Store, open_store
from rath_bridge.store.protocol import Ref
from rath_langgraph.begun import OpenCall, OpenRun, later
from rath_langgraph.behind import finish, stand_behind
from rath_langgraph.stages import Stages
from rath_langgraph.threads import FRAMEWORK, Threads

owners: dict[UUID, Watching] = {}
"""Who records a callback run: one handler of a store, however many were added to a graph and to the graphs in it (law 7)."""


class Watching(GraphCallbackHandler):
    """What has begun in a graph, and where it is recorded."""

    run_inline = True  # in the node's own context, so that its run can be made ambient

    def __init__(self, store: Store | None = None, session: str | None = None) -> None:
        check_store(store, "RathCallbackHandler", session, optional=True)
        self._store, self._session = store, session
        self._open: dict[UUID, OpenRun] = {}
        self._calls: dict[UUID, OpenCall] = {}
        self._stages: tuple[Store, Stages] | None = None

    @property
    def _threads(self) -> Threads | None:
        """The threads of the store that this context leads to: in a replay, those of its scratch."""
        return None if self._stages is None else self._stages[1].here()

    @property
    def raise_error(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A strict recorder's errors reach the user's run."""
        return any(found.recorder.strict for found in list(self._open.values()))

    def _told(self, found: OpenRun, body: Body) -> None:
        later(found.recorder, found.run, lambda: (body, None, None))

    def _begin(self, run_id: UUID, parent_run_id: UUID | None) -> tuple[OpenCall, OpenRun | None]:
        around = self._open.get(parent_run_id) if parent_run_id else None
        parent_call = self._calls.get(parent_run_id) if parent_run_id and around is None else None
        if around is not None:
            call = OpenCall(around.recorder, False, around.run, monotonic())
        elif parent_call is not None:  # a model that is called inside a tool
            call = OpenCall(parent_call.recorder, False, parent_call.run, monotonic())
        else:
            recorder, owned = self._recorder(None)
            call = OpenCall(recorder, owned, current_run(), monotonic())
        self._calls[run_id] = call
        owners[run_id] = self
        stand_behind(call.recorder)
        return call, around

    def recorder_of(self, run_id: UUID | None) -> Recorder | None:
        """Where a callback run is recorded."""
        found = (self._open.get(run_id) or self._calls.get(run_id)) if run_id else None
        return found.recorder if found is not None else None

    def _over(self, run_id: UUID) -> OpenCall | None:
        if run_id in self._calls:
            owners.pop(run_id, None)
        return self._calls.pop(run_id, None)

    def _elsewhere(self, run_id: UUID, parent_run_id: UUID | None) -> bool:
        """Tell whether another handler of the same store records this."""
        if parent_run_id is not None and (parent_run_id in self._open or parent_run_id in self._calls):
            return False
        other = owners.get(run_id) or (owners.get(parent_run_id) if parent_run_id else None)
        return other is not None and other is not self and (self._store is None or self._store == other._store)

    def _done(self, call: OpenCall) -> None:
        if call.owned:
            finish(call.recorder, close=True)

    def _recorder(self, thread_id: str | None) -> tuple[Recorder, bool]:
        ambient = current_recorder()
        store = self._store or (ambient.store if ambient is not None else None)
        if store is None:
            store = self._store = open_store()
        session = self._session
        if self._stages is None or self._stages[0] != store:
            self._stages = store, Stages(store, session)
        if session is None and thread_id is not None and (ambient is None or ambient.store != store):
            session = self._home(thread_id)
        return recorder_for(store, FRAMEWORK, thread_id, session)

    def _home(self, thread_id: str) -> str | None:
        threads = self._threads
        if threads is None:
            return None
        try:
            return Ref(*threads.home(threads.line(thread_id, "")), "", 0).name
        except StoreError:  # it is down: the name that a new thread would have
            return None
