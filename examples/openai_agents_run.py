"""A run that is recorded exactly, and replayed with nothing run. Offline: ``python examples/openai_agents_run.py``."""

import asyncio

from agents import Agent, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import rath_bridge as rb
from rath_openai_agents import install, wrap

weather = function_tool(lambda city: f"sunny in {city}", name_override="weather")


async def main(url: str = "memory:") -> None:
    store = rb.open_store(url)
    install(store)  # and nothing is sent to OpenAI any more
    steps = [[function_call("weather", {"city": "Oslo"}, call_id="c1")], [assistant_message("Sunny.")]]
    agent = Agent(name="Guide", model=ScriptedModel(steps), tools=[weather])
    await wrap(agent, store, "trip").run("Weather in Oslo?")
    trip = store.session("trip")
    print(*(f"{message.role}: {message.text or message.parts[0].type}" for message in trip.messages()), sep="\n")
    print(await rb.areplay(trip, lambda: wrap(agent, store, "trip").run("Weather in Oslo?")))


if __name__ == "__main__":
    asyncio.run(main())
