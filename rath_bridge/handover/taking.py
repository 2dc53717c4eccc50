"""What a hand-written loop over chat messages made of a session: its new messages come back, each once (law 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.interchange import openai_messages
from rath_bridge.interchange.natives import key
from rath_bridge.model.chunk import draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Inference, Run, Usage
from rath_bridge.model.report import LossReport, align
from rath_bridge.session import Session

_ORIGIN: Final = {"adapter": "rath_bridge.handover", "framework": openai_messages.name, "version": openai_messages.VERSION}


def take(
    session: Session,
    messages: Sequence[Mapping[str, Any]],
    report: LossReport,
    *,
    responses: Sequence[Any] = (),
    name: str = "chat",
) -> Session:
    """Append what is new in a list of chat messages that began as ``encode(session, "openai_messages")``.

    Args:
        session: What was handed over; it is read again, and what others appended meanwhile stays.
        messages: The whole list as it stands now.
        report: What ``encode`` returned beside the list.
        responses: The ``ChatCompletion`` of each model call (the object, or its JSON), in order: they carry model and usage.
        name: Who spoke, for the record.

    Returns:
        The session with the new messages and model calls in a run of their own, which names what it was handed.
    """
    known = align(report.manifest, [key(message) for message in messages])
    fresh = [message for message, chunk in zip(messages, known, strict=True) if chunk is None]
    if not fresh and not responses:
        return session
    run = new_id(8)
    begin = draft(Run(phase="begin", name=name, type="agent", manifest=report.rows()), run=run, origin=_ORIGIN)
    said = [one._replace(run=run) for one in openai_messages.decode(fresh)] if fresh else []
    asked = [draft(_inference(one, name), run=run, origin=_ORIGIN) for one in responses]
    end = draft(Run(phase="end", name=name, status="ok"), run=run, origin=_ORIGIN)
    return session.latest().append(begin, *asked, *said, end, on_conflict="serialise")


def _inference(response: Any, agent: str) -> Inference:
    found = _table(response)
    choices = cast("Sequence[Mapping[str, Any]]", found.get("choices") or ())
    used = cast("Mapping[str, Any]", found.get("usage") or {})
    cached = cast("Mapping[str, Any]", used.get("prompt_tokens_details") or {}).get("cached_tokens")
    reasoned = cast("Mapping[str, Any]", used.get("completion_tokens_details") or {}).get("reasoning_tokens")
    usage = Usage(
        input_tokens=used.get("prompt_tokens"), output_tokens=used.get("completion_tokens"), cache_read_input_tokens=cached,
        reasoning_output_tokens=reasoned,
    )  # fmt: skip
    return Inference(
        response_model=found.get("model"), response_id=found.get("id"), agent=agent, usage=usage if used else None,
        output=tuple(choice.get("message") for choice in choices),
        finish_reasons=tuple(choice["finish_reason"] for choice in choices if choice.get("finish_reason")),
    )  # fmt: skip


def _table(response: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", response) if type(response) is dict else response.model_dump(mode="json", exclude_unset=True)
