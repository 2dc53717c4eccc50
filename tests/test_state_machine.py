"""Any sequence of verbs on a real store does what a plain Python model says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

import rath_bridge as rb
from rath_bridge.errors import ConflictError, MergeConflict, NameInUseError
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.kinds import Inference, Placement, Usage
from rath_bridge.session import Session
from rath_bridge.testing import NaiveModel
from rath_bridge.testing.naive import ANONYMOUS, NaiveChunk, NaiveConflictError, RefName
from rath_bridge.verbs.lineage import merge_base
from tests.postgres_server import fresh_database

NAMES = ["a", "b", "c"]
BRANCHES = ["x", "y"]
texts = st.sampled_from(["yes", "no", "", "\u2028 \ud800", "long " * 150])


class Sessions(RuleBasedStateMachine):
    """Values are kept and used again later, so that many of them are stale: that is what a race is."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.around = ExitStack()
        options: Any = {}
        url = self.url
        if url == "sqlite:":
            folder = self.around.enter_context(tempfile.TemporaryDirectory())
            url, options = f"sqlite:///{Path(folder) / 'store.db'}", {"synchronous": "OFF"}
        elif url.startswith("postgresql:"):
            url, options = self.around.enter_context(fresh_database(url)), {"pool_size": 2}
        self.store = self.around.enter_context(rb.open_store(url, **options))
        self.model = NaiveModel()
        self.values: list[tuple[Session, RefName, int]] = []
        self.branch_of: dict[RefName, str] = {}
        """Real branch of a model's race."""

    def teardown(self) -> None:
        with self.around:
            self.same_graph()

    def attempt(self, real: Callable[[], Session], model: Callable[[], tuple[RefName, int]]) -> None:
        """Do it on both sides: both succeed, or both refuse."""
        try:
            ref, head = model()
        except NaiveConflictError:
            before = self.store.backend.refs()
            with pytest.raises((NameInUseError, ConflictError, MergeConflict)):
                real()
            assert self.store.backend.refs() == before
            return
        session = real()
        if ref[1].startswith(ANONYMOUS):
            assert session.branch == f"race-{session.head[:8]}" or self.branch_of.get(ref) == session.branch
            self.branch_of.setdefault(ref, session.branch)
        self.values.append((session, ref, head))
        self.same(session, head)

    def same(self, session: Session, head: int) -> None:
        line = self.model.line(head)
        chunks = list(session.chunks())
        assert len(session) == len(chunks) == len(line)
        assert [c.kind for c in chunks] == [self.model.chunks[n].kind for n in line]
        assert [c.position for c in chunks] == list(range(len(line)))
        assert [c.body_bytes is None for c in chunks] == [self.model.is_erased(n) for n in line]
        assert chunks[-1].generation == self.model.generation(head)
        assert [m.text for m in session.messages()] == self.model.messages(head)
        assert (session.usage().input_tokens or 0) == self.model.usage(head)
        assert (session.placement.backend if session.placement else None) == self.model.placement(head)

    def pick(self, data: st.DataObject) -> tuple[Session, RefName, int]:
        return data.draw(st.sampled_from(self.values))

    @initialize()
    def first(self) -> None:
        self.attempt(lambda: self.store.create("a"), lambda: (("a", "main"), self.model.create("a")))

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        self.attempt(lambda: self.store.create(name), lambda: ((name, "main"), self.model.create(name)))

    @rule(
        data=st.data(),
        said=st.lists(texts, min_size=1, max_size=3),
        tokens=st.none() | st.integers(1, 9),
        on_conflict=st.sampled_from(["serialise", "branch", "raise"]),
    )
    def append(self, data: st.DataObject, said: list[str], tokens: int | None, on_conflict: Any) -> None:
        session, ref, head = self.pick(data)
        drafts: list[Draft] = [rb.message("user", text) for text in said]
        new = [NaiveChunk("message", text, ()) for text in said]
        if tokens is not None:
            drafts.append(draft(Inference(model="m", usage=Usage(input_tokens=tokens))))
            new.append(NaiveChunk("inference", "", (), tokens))
        self.attempt(
            lambda: session.append(*drafts, on_conflict=on_conflict), lambda: self.model.append(ref, head, new, on_conflict)
        )

    @rule(data=st.data(), where=st.sampled_from(["local", "docker"]))
    def place(self, data: st.DataObject, where: str) -> None:
        session, ref, head = self.pick(data)
        new = [NaiveChunk("placement", where, ())]
        place = draft(Placement(backend=where))
        self.attempt(lambda: session.append(place, on_conflict="raise"), lambda: self.model.append(ref, head, new, "raise"))

    @rule(data=st.data(), branch=st.sampled_from(BRANCHES), into=st.none() | st.sampled_from(NAMES), whole=st.booleans())
    def fork(self, data: st.DataObject, branch: str, into: str | None, whole: bool) -> None:
        session, ref, head = self.pick(data)
        at = None if whole else data.draw(st.integers(0, len(session) - 1))
        point = head if at is None else self.model.line(head)[at]
        name = into or ref[0]
        real = lambda: session.fork(branch, at=None if at is None else session[at].id, session=into)
        self.attempt(real, lambda: ((name, branch), self.model.fork(point, (name, branch))))

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def detach(self, data: st.DataObject, name: str) -> None:
        session, _, head = self.pick(data)
        self.attempt(lambda: session.detach(name), lambda: ((name, "main"), self.model.detach(head, name)))

    @precondition(lambda self: len(self.values) > 1)
    @rule(data=st.data(), strategy=st.sampled_from(["summary", "ours", "theirs"]))
    def merge(self, data: st.DataObject, strategy: str) -> None:
        session, ref, head = self.pick(data)
        other, _, their_head = self.pick(data)
        self.attempt(
            lambda: session.merge(other, strategy), lambda: (ref, self.model.merge(ref, head, their_head, other.name, strategy))
        )

    @rule(data=st.data(), copies=st.booleans(), extra=st.sampled_from(["", "later", "unused", "dry_run"]), scrub=st.booleans())
    def erase(self, data: st.DataObject, copies: bool, extra: str, scrub: bool) -> None:
        session, _, head = self.pick(data)
        line = self.model.line(head)
        said = [at for at, n in enumerate(line) if self.model.chunks[n].kind in ("message", "inference")]
        places = data.draw(st.sets(st.sampled_from(said), max_size=3)) if said else set[int]()
        options: Any = {extra: True} if extra else {}
        names = [session[at].id for at in places]
        before = list(session.chunks())
        done = self.store.backend.erase(names, copies=copies, **options)
        if extra == "dry_run":
            assert [c.body_bytes for c in session.chunks()] == [c.body_bytes for c in before]
            return
        gone = self.model.erase({line[at] for at in places}, copies=copies and extra != "later")
        assert len(done.chunks) == len(gone)
        assert {session[at].id for at in places if line[at] in gone} <= set(done.chunks)
        assert [c.id for c in session.chunks()] == [c.id for c in before]
        if scrub:
            self.store.backend.scrub()
        self.same(session, head)

    @precondition(lambda self: len(self.values) > 1)
    @rule(data=st.data())
    def base(self, data: st.DataObject) -> None:
        (ours, _, our_head), (theirs, _, their_head) = self.pick(data), self.pick(data)
        found = merge_base(ours.head, theirs.head, self.store.backend)
        expected = self.model.bases(our_head, their_head)
        if found is None:
            assert not expected
        else:
            assert self.numbers(ours, our_head)[found] in expected

    @rule(data=st.data())
    def old_values_stay_what_they_were(self, data: st.DataObject) -> None:
        session, _, head = self.pick(data)
        self.same(session, head)

    @invariant()
    def same_refs(self) -> None:
        found = {(ref.session, ref.branch): ref.position for ref in self.store.backend.refs()}
        expected = {
            (ref[0], self.branch_of.get(ref, ref[1])): len(self.model.line(head)) - 1 for ref, head in self.model.refs.items()
        }
        assert found == expected

    def numbers(self, session: Session, head: int) -> dict[str, int]:
        """Digest to the model's number, for all that a session descends from."""
        found: dict[str, int] = {}
        todo = [(session.head, head)]
        while todo:
            name, number = todo.pop()
            if name not in found:
                found[name] = number
                parents = self.store.backend.chunk(name).parents
                assert len(parents) == len(self.model.chunks[number].parents)
                todo += zip(parents, self.model.chunks[number].parents, strict=True)
        assert len(set(found.values())) == len(found) == len(self.model.ancestors(head))
        return found

    def same_graph(self) -> None:
        for ref, head in self.model.refs.items():
            branch = self.branch_of.get(ref, ref[1])
            session = self.store.session(ref[0] if branch == "main" else f"{ref[0]}@{branch}")
            self.same(session, head)
            self.numbers(session, head)
        assert list(self.store.fsck()) == []


def run(url: str, examples: int) -> None:
    machine: Any = type("SessionsSomewhere", (Sessions,), {"url": url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=30, deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "url", "examples"), [("memory", "memory:", 40), ("sqlite", "sqlite:", 8)])
def test_any_sequence_of_verbs(kind: str, url: str, examples: int) -> None:
    run(url, examples)


def test_any_sequence_of_verbs_in_postgresql(postgres_server: str) -> None:
    run(postgres_server, 4)
