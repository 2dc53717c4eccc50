"""LangGraph's own conformance suite, every capability, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

import rath_bridge as rb
from rath_langgraph import RathSaver

ALL = {"put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune"}


async def test_every_capability_holds(store_url: str) -> None:
    stores = [rb.open_store(store_url)]

    @checkpointer_test(name="RathSaver")
    async def saver() -> AsyncIterator[RathSaver]:
        yield RathSaver(stores[0])

    report = await validate(saver, capabilities=ALL)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert not failures
    assert {name for name, result in report.results.items() if result.passed} == ALL
    assert sum(result.tests_passed for result in report.results.values()) == 81
    stores[0].close()


def test_the_public_names_are_there_and_load_late() -> None:
    import rath_langgraph

    assert rath_langgraph.name == rath_langgraph.extra == "langgraph"
    assert {"RathSaver", "RathCallbackHandler", "wrap"} <= set(dir(rath_langgraph))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rath_langgraph.nothing  # noqa: B018
