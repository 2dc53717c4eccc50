"""A team that is recorded, saved, and goes on as a fresh one. Offline: ``python examples/autogen_team.py``."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient as Scripted

import rath_bridge as rb
from rath_autogen import load_team_state, save_team_state, wrap

store = rb.open_store("memory:")
first = wrap(RoundRobinGroupChat([AssistantAgent("writer", Scripted(["A draft."]))], max_turns=1), store, "ticket")
asyncio.run(first.run(task="Write about rain."))
asyncio.run(save_team_state(first))
second = wrap(RoundRobinGroupChat([AssistantAgent("writer", Scripted(["A poem."]))], max_turns=1), store, "ticket")
asyncio.run(load_team_state(second, store.session("ticket")))
asyncio.run(second.run(task="Shorter."))
print(*(f"{message.name}: {message.text}" for message in store.session("ticket").messages()), sep="\n")
