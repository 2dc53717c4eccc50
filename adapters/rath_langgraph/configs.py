"""The part of LangGraph's configs that names threads and checkpoints."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from rath_bridge.errors import NotFoundError


def configurable(config: RunnableConfig) -> dict[str, Any]:
    """The part of a config that names threads and checkpoints."""
    return config.get("configurable") or {}


def place_of(config: RunnableConfig) -> tuple[str, str]:
    """Thread and namespace.

    Raises:
        NotFoundError: It names no thread.
    """
    place = configurable(config)
    if "thread_id" not in place:
        raise NotFoundError("the config has no thread_id: pass {'configurable': {'thread_id': ...}}")
    return str(place["thread_id"]), str(place.get("checkpoint_ns") or "")


def place_name(thread_id: str, namespace: str) -> str:
    """Thread and namespace in one."""
    return f"{thread_id}\0{namespace}"


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
