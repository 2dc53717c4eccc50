"""A record of which something was erased says so, and gives no advice that does not fit."""

from __future__ import annotations

import pytest
from agents import Agent
from agents.testing import ScriptedModel

import rath_bridge as rb
from rath_bridge.maintenance import redact
from rath_bridge.model.digests import digest
from rath_openai_agents import wrap
from tests.openai_agents.scripted import say

pytestmark = pytest.mark.usefixtures("sync_loop")


@pytest.mark.parametrize("kinds", [("inference",), ("inference", "message")])
def test_an_erased_model_call_was_recorded(store: rb.Store, kinds: tuple[str, ...]) -> None:
    def run() -> None:
        wrap(Agent(name="A", model=ScriptedModel([say("done")])), store, "s").run_sync("hi")

    run()
    gone = [chunk.id for chunk in store.session("s") if chunk.kind in kinds]
    redact(store, gone, reason="asked")
    report = rb.replay(store.session("s"), run)
    assert report.exit_status == 125
    assert report.reasons[0] == f"the contents of {len(gone)} chunk{'s' if len(gone) > 1 else ''} were erased"
    assert not any("wrap the model" in one for one in report.reasons), report.reasons


def test_what_stands_on_an_erased_text_is_told_as_that(store: rb.Store) -> None:
    """`rath-bridge fsck` lists none: a redaction tells why it is gone."""
    long = "Ada Lovelace, 7 High Street. " * 40

    def run() -> None:
        wrap(Agent(name="A", model=ScriptedModel([say(long)])), store, "s").run_sync("hi")

    run()
    s = store.session("s")
    redact(store, reason="asked", objects=[digest(long.encode())])
    s = store.session("s")
    assert s.fsck() == []
    reasons = rb.replay(s, run).reasons
    assert any(one.endswith("cannot be read whole: what they stand on was erased") for one in reasons), reasons
    assert not any("fsck" in one for one in reasons)
