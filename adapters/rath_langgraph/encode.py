"""A session -> what LangGraph takes: a list of messages, a state, or its newest checkpoint.

This room imports without LangGraph; messages are built in `rath_langgraph.native`.
"""

from __future__ import annotations

from typing import Any, Final

from rath_bridge.errors import CorruptStoreError, UnsupportedError
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.session import Session
from rath_langgraph.edge import room

FORMS: Final = ("messages", "state", "checkpoint")


def encode(session: Session, /, as_: str = "messages") -> tuple[Any, LossReport]:
    """Translate a session for LangGraph; pure.

    Args:
        session: What to hand over.
        as_: ``messages`` (a list), ``state`` (a map: the transcript as ``messages``, and the other channels of the newest
            checkpoint), or ``checkpoint`` (the newest one of this line, a ``CheckpointTuple`` as LangGraph saved it).

    Raises:
        UnsupportedError: Another form, or no checkpoint in the session.
        MissingExtraError: LangGraph is not installed.
    """
    if as_ not in FORMS:
        raise UnsupportedError(f"rath_langgraph has no form {as_!r}: use one of {', '.join(FORMS)}")
    room("native", "rath_langgraph.encode")
    from rath_langgraph.native import encode_chunks
    from rath_langgraph.saved import channels_of, last_checkpoint

    chunks = list(session.chunks())
    if as_ == "checkpoint":
        return last_checkpoint(session, chunks), LossReport()
    messages, report = encode_chunks(chunks)
    if as_ == "messages":
        return messages, report
    try:
        channels, missing = channels_of(session, chunks)
    except CorruptStoreError as error:
        loss = Loss(None, "state", f"the channels of the newest checkpoint cannot be read ({error}): left out")
        return {"messages": messages}, LossReport((*report.losses, loss), report.manifest)
    missing = [loss for loss in missing if loss.path != "state['messages']"]  # the transcript says those
    return {**channels, "messages": messages}, LossReport((*report.losses, *missing), report.manifest)
