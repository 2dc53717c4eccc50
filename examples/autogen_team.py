"""A team that is recorded, saved, and goes on as a fresh one. Offline: ``python examples/autogen_team.py``."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient

import rath_bridge as rb
from rath_autogen import load_team_state, save_team_state, wrap


async def main(url: str = "memory:") -> None:
    store = rb.open_store(url)
    for answers in ({"writer": ["A draft."], "critic": []}, {"writer": [], "critic": ["Too short."]}):
        agents = [AssistantAgent(name, ReplayChatCompletionClient(said)) for name, said in answers.items()]
        team = wrap(RoundRobinGroupChat([*agents], max_turns=1), store, session="ticket")
        going_on = "ticket" in store
        if going_on:
            await load_team_state(team, store.session("ticket"))
        await team.run(task=None if going_on else "Write about rain.")
        await save_team_state(team)
    print(*(f"{message.name}: {message.text}" for message in store.session("ticket").messages()), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
