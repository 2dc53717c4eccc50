"""A stdio server that asks the person at the other end, twice in one call (SDK 2.x): within results, to clients of the later era."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel

room: Any = import_module("mcp.server.mcpserver")
server = room.MCPServer("asks", log_level="ERROR")


class Name(BaseModel):
    name: str


class Colour(BaseModel):
    colour: str


async def who() -> Any:
    return room.Elicit("Who are you?", Name)


if TYPE_CHECKING:
    Who = Name
    Likes = Colour
else:
    Who = Annotated[Name, room.Resolve(who)]


async def likes(person: Who) -> Any:  # asked once the first question is answered: a round of its own
    return room.Elicit(f"What does {person.name} like?", Colour)


if not TYPE_CHECKING:
    Likes = Annotated[Colour, room.Resolve(likes)]


@server.tool()
async def greet(person: Who, thing: Likes) -> str:
    return f"hello {person.name}, {thing.colour} as ever"


server.run("stdio")
