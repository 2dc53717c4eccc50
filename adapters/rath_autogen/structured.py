"""A team knows the structured types that its own agents produce (issue 6983: it refuses them unless it was told of each)."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.messages import StructuredMessage

from rath_autogen.capture import members, wrapped


def register_structured(runner: Any) -> None:
    """Register the ``output_content_type`` of every participant, nested ones included, where nobody did."""
    stack = [runner]
    while stack:
        team = stack.pop()
        for member in members(team):
            agent = wrapped(member) or member
            stack.append(getattr(agent, "_team", None) or agent)
            content = getattr(agent, "_output_content_type", None)
            if content is not None and not team._message_factory.is_registered(StructuredMessage[content]):
                team._message_factory.register(StructuredMessage[content])
