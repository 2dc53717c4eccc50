"""Bad input on the way in: the error names the field, what is unknown is kept, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rath_autogen
import rath_bridge as rb
from rath_bridge.errors import DecodeError
from tests.autogen.test_runs import swarm
from tests.cli_store import run

CHIEF = "SwarmGroupChatManager"


async def saved() -> dict[str, Any]:
    team = swarm()
    await team.run(task="go")
    return json.loads(json.dumps(await team.save_state()))


def thread(state: dict[str, Any]) -> list[Any]:
    return state["agent_states"][CHIEF]["message_thread"]


async def test_a_state_of_a_later_version_with_unknown_parts_is_kept_whole(store: rb.Store) -> None:
    """To load it is refused (see test_team_state.py); to keep it is not."""
    state = await saved()
    state |= {"version": "9.0.0", "later": {"deep": [1, None, {"x": "é"}]}}
    state["agent_states"]["a"]["agent_state"]["mood"] = "fine"
    unknown = {**thread(state)[0], "type": "HologramMessage", "id": "h1", "content": {"beams": 3}, "source": "a"}
    thread(state).append(unknown)
    session = store.create("s").append(*rb.decode(state))
    assert rath_autogen.encode(session, "team_state")[0] == state
    note = next(c for c in session if c.kind == "note")
    assert json.loads(note.values["text"]) == {"beams": 3}
    assert note.native is not None
    assert json.loads(note.native.data) == unknown
    assert not session.fsck()


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    f"agent_states.{CHIEF}.message_thread": lambda s: s["agent_states"][CHIEF].update(message_thread={}),
    "agent_states": lambda s: s.update(agent_states=[1]),
    "content": lambda s: thread(s)[0].pop("content"),
    "source": lambda s: thread(s)[1].pop("source"),
}


@pytest.mark.parametrize("field", DAMAGE)
async def test_a_damaged_state_names_the_field(field: str) -> None:
    state = await saved()
    DAMAGE[field](state)
    with pytest.raises(DecodeError) as raised:
        rb.decode(state)
    assert raised.value.path == field


@pytest.mark.parametrize("place", ["messages[0]", "messages[1]"])
async def test_a_damaged_result_names_the_message(place: str) -> None:
    result = (await swarm().run(task="go")).model_dump(mode="json")
    result["messages"][int(place[-2])] = {"content": "of no type"}
    with pytest.raises(DecodeError) as raised:
        rath_autogen.decode(result)
    assert raised.value.path == place


async def test_a_file_that_was_cut_is_refused_with_its_place_and_nothing_is_changed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    text = json.dumps(await saved())
    (tmp_path / "state.json").write_text(text)
    assert run("import", "--from", "autogen", str(tmp_path / "state.json"), "--as", "ticket", store=url).exit_code == 0
    with rb.open_store(url) as store:
        before = store.backend.refs()
    for cut in (text[:900], text[: len(text) // 2], text[:-1], "", "[1,"):
        (tmp_path / "cut.json").write_text(cut)
        for name in ("ticket", "other"):
            refused = run("import", "--from", "autogen", str(tmp_path / "cut.json"), "--as", name, store=url)
            assert refused.exit_code == 3, refused.output
            assert "cut.json" in refused.output
    (tmp_path / "odd.json").write_text(json.dumps(json.loads(text) | {"agent_states": 3}))
    refused = run("import", "--from", "autogen", str(tmp_path / "odd.json"), "--as", "other", store=url)
    assert refused.exit_code == 3
    assert "agent_states" in refused.output
    with rb.open_store(url) as store:
        assert store.backend.refs() == before
