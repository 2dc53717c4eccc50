"""Law 5, replay touches nothing, against a naive model: a program is a list of calls for each actor, and two programs are equal when
the lists are. Parallel actors may take turns in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.replay import players
from rath_bridge.verbs.replay_form import replay_form
from tests.replay import toy

Op = tuple[str, str, Any]
Program = list[list[Op]]
"""For each actor, its calls in order."""

OPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(["writer", "critic"]), st.sampled_from(["a", "b", "x" * 600])),
    st.tuples(st.just("use"), st.sampled_from(["look", "pay"]), st.integers(0, 2)),
)
PROGRAMS = st.lists(st.lists(OPS, max_size=5), min_size=1, max_size=3)


@pytest.fixture(autouse=True, scope="module")
def toy_only() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(players, "adapters", lambda: {"toy": toy})
    patch.setattr("rath_bridge.replay.running.adapters", lambda: {"toy": toy})
    yield
    patch.undo()


def turns(program: Program, order: list[int]) -> Iterator[tuple[int, Op]]:
    """Let the actors take turns, as ``order`` picks among those that have something left."""
    left = [list(calls) for calls in program]
    for pick in [*order, *[0] * sum(map(len, program))]:
        waiting = [i for i, calls in enumerate(left) if calls]
        if not waiting:
            return
        actor = waiting[pick % len(waiting)]
        yield actor, left[actor].pop(0)


def running(store: rb.Store, program: Program, order: list[int]) -> Callable[[], list[Any]]:
    def run() -> list[Any]:
        answers: list[list[Any]] = [[] for _ in program]
        with rb.record(store, "s") as recorder, recorder.run("team", "team"):
            runs = [recorder.begin(f"actor-{i}") for i in range(len(program))]
            try:
                for actor, (kind, name, argument) in turns(program, order):
                    with recorder.inside(runs[actor]):
                        answers[actor].append((toy.ask if kind == "ask" else toy.use)(name, argument))
            finally:
                for one in runs:
                    recorder.end(one)
        return answers

    return run


ORDERS = st.lists(st.integers(0, 2), max_size=15)


@given(program=PROGRAMS, then=ORDERS, now=ORDERS)
def test_a_program_is_served_what_it_was_answered_whatever_the_order_of_actors(program: Program, then: Any, now: Any) -> None:
    with rb.open_store("memory:") as store:
        first = running(store, program, then)()
        s, toy.MADE[:] = store.session("s"), []
        report = rb.replay(s, running(store, program, now))
        assert (report.equal, report.value, report.misses, report.unused) == (True, first, (), ()), str(report)
        assert (report.served, report.live, toy.MADE) == (sum(map(len, program)), 0, [])
        assert [one.head for one in store.sessions()] == [s.head]


@given(program=PROGRAMS, other=PROGRAMS, order=ORDERS)
def test_another_program_is_equal_only_where_the_naive_model_says_so(program: Program, other: Program, order: Any) -> None:
    _compared(program, other, order)


@given(
    program=PROGRAMS,
    actor=st.integers(0, 2),
    at=st.integers(0, 5),
    new=OPS,
    how=st.sampled_from(["drop", "change", "add", "swap"]),
)
def test_one_change_is_always_noticed(program: Program, actor: int, at: int, new: Op, how: str) -> None:
    changed = [list(calls) for calls in program]
    calls = changed[actor % len(changed)]
    if how == "add":
        calls.insert(at, new)
    elif at < len(calls):
        if how == "drop":
            del calls[at]
        elif how == "change":
            calls[at] = new
        else:
            calls[at - 1], calls[at] = calls[at], calls[at - 1]
    _compared(program, changed, [])


@given(program=PROGRAMS, order=ORDERS, at=st.integers(0, 40), reads=st.booleans())
def test_a_what_if_serves_up_to_a_chunk_and_writes_nothing_twice(program: Program, order: Any, at: int, reads: bool) -> None:
    """The same program, live behind any chunk: models are asked again, reads are made, writes are answered from the record."""
    with rb.open_store("memory:") as store:
        running(store, program, order)()
        s, toy.MADE[:] = store.session("s"), []
        until = at % len(s)
        calls = [c for c in s if c.kind in ("inference", "tool_result")]
        behind = [c for c in calls if c.position > until]
        report = rb.replay(
            s, running(store, program, order), until=until, then="live", policy={"*": "reads"} if reads else None, branch="what-if"
        )  # fmt: skip
        live = [c for c in behind if reads or c.kind == "inference"]
        assert report.equal, str(report)
        assert (report.live, len(toy.MADE), report.served) == (len(live), len(live), len(calls) - len(live)), str(report)
        assert store.session("s").head == s.head
        branch = report.result
        assert branch is not None
        if not live:
            assert branch.store.url != store.url, "nothing was new: nothing was written"
            return
        assert (branch.name, branch.fsck()) == ("s@what-if", [])
        assert [c.id for c in branch[: until + 1]] == [c.id for c in s[: until + 1]]
        assert branch[until + 1].kind == "session"
        assert Counter(step.actor for step in replay_form(branch)) == Counter(step.actor for step in replay_form(s))


def test_threads_that_are_bound_are_answered_too() -> None:
    """A thread of the user's own, started through ``recorder.bind``."""

    def run() -> list[str]:
        with rb.record(store, "s") as recorder, recorder.run("job"):
            answers: list[str] = []

            def work(name: str) -> None:
                with recorder.run(name):
                    answers.append(toy.ask("writer", "a"))

            threads = [Thread(target=recorder.bind(work), args=(f"thread-{i}",)) for i in range(3)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            return sorted(answers)

    with rb.open_store("memory:") as store:
        first = run()
        s, toy.MADE[:] = store.session("s"), []
        report = rb.replay(s, run)
        assert (report.equal, report.value, toy.MADE) == (True, first, []), str(report)
        assert store.session("s").head == s.head


def test_two_replays_at_once_do_not_meet() -> None:
    """Threads replay two records, and a third asks live meanwhile."""
    with rb.open_store("memory:") as store:
        programs: list[Program] = [[[("ask", "writer", "a"), ("use", "look", n)] for n in range(5)] for _ in range(2)]
        runs = [running(store, one, []) for one in programs]
        runs[0]()
        s, toy.MADE[:] = store.session("s"), []
        found: list[Any] = []
        threads = [Thread(target=lambda: found.append(rb.replay(s, runs[0]).equal)) for _ in range(4)]
        for one in threads:
            one.start()
        live = toy.answering("writer", "live")
        for one in threads:
            one.join()
        assert found == [True] * 4
        assert live.startswith("answer ")
        assert toy.MADE == ["writer: live"]
        assert toy.answering.__name__ == "answering"
        assert not hasattr(toy.answering, "__wrapped__"), "restored"


def _compared(program: Program, other: Program, order: Any) -> None:
    with rb.open_store("memory:") as store:
        running(store, program, order)()
        s, toy.MADE[:] = store.session("s"), []
        report = rb.replay(s, running(store, other, order))
        assert report.equal is (program == other), str(report)
        assert (report.live, toy.MADE) == (0, [])
        assert [one.head for one in store.sessions()] == [s.head]
        if program != other:
            assert report.divergence is not None
            assert report.exit_status == 1
            served = _served_before_a_miss(program, other, order)
            assert report.served == served, str(report)


def _served_before_a_miss(program: Program, other: Program, order: Any) -> int:
    """The naive model: each actor's calls are a bag that the other program takes from, until it asks for what is not there."""
    bags = [list(calls) for calls in program]
    served = 0
    for actor, op in turns(other, order):
        if actor >= len(bags) or op not in bags[actor]:
            break
        bags[actor].remove(op)
        served += 1
    return served
