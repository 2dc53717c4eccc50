"""Coverage: integrity is not completeness. What recorded, from when to when, what it cannot see, and what is not in the packet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_bridge.evidence.survey import Survey
from rath_bridge.plugins import adapters

BLIND_SPOTS: Final[Mapping[str, tuple[str, ...]]] = {
    "langgraph": (
        "Work in a raw threading.Thread, and models and tools that are called past LangChain, are not seen by its callbacks.",
        "Messages come from checkpoints: what a node discards before it returns is not seen.",
        "A graph without the callback handler leaves checkpoints only: no model calls, no usage.",
    ),
    "openai_agents": (
        "Without a recording model, what was said to a model is known only as far as the SDK's spans tell it.",
        "Runs while the SDK's tracing is disabled are seen by the recording model and the hooks alone.",
        "What a hosted tool does at the provider is seen only as the provider reports it.",
    ),
    "autogen": (
        "Model calls through a client that is not wrapped are known only by the messages and the usage that the team reports.",
        "Inner monologue that an agent does not emit as a message or an event is not seen.",
    ),
    "mcp": (
        "Only traffic of the client, server or proxy that was recorded is seen; a second connection is not.",
        "What a server does outside of its answers (files, network, other services) is not seen.",
    ),
    "the program itself": ("It appended these chunks by hand: they are what it says, seen by no hook.",),
}
"""What each adapter is known not to see, for adapters that do not say it themselves (an optional member ``BLIND_SPOTS``)."""

_NAMED: Final = 5
"""Of what is left open, so many are named in a sentence; ``coverage.json`` lists them."""
_ALWAYS: Final = (
    "What happened while no adapter was active, or outside of the processes that recorded.",
    "What models were trained on, the providers' own logs, and whatever a tool did beyond its recorded result.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What ``coverage.json`` tells, and whether the chunks tell the same."""

    facts: Mapping[str, Any]
    """Counted from the chunks: adapters, gaps, open calls and runs, redactions, erased content."""
    blind_spots: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By adapter, in its own words."""
    not_in_packet: tuple[str, ...] = ()
    """What a reader will not find here."""
    contradictions: tuple[str, ...] = ()
    """Where the file tells other than the chunks."""

    @property
    def verdict(self) -> str:
        """``contradicted``, ``holes`` or ``no hole shows``: nothing can say ``complete``."""
        return "contradicted" if self.contradictions else "holes" if self.holes() else "no hole shows"

    def holes(self) -> tuple[str, ...]:
        """What is known to be missing, one sentence each."""
        return tuple(_holes(self.facts))

    def adapters(self) -> tuple[str, ...]:
        """Who recorded from when to when, one sentence each."""
        return tuple(
            f"{adapter_words(one)}: {one.get('chunks')} chunk{'' if one.get('chunks') == 1 else 's'}, "
            f"{str(one.get('from'))[:19]}Z to {str(one.get('until'))[:19]}Z"
            for one in _dicts(self.facts.get("adapters"))
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "verdict": self.verdict,
            "facts": dict(self.facts),
            "holes": list(self.holes()),
            "blind_spots": {name: list(spots) for name, spots in self.blind_spots.items()},
            "not_in_packet": list(self.not_in_packet),
            "contradictions": list(self.contradictions),
        }


def coverage_of(survey: Survey, sessions: Iterable[str], absent: int) -> Coverage:
    """Return what a packet covers.

    Args:
        survey: Fed with its chunks.
        sessions: The sessions that it holds.
        absent: Objects that the store did not hold.
    """
    facts = {**survey.facts(), "absent": absent}
    names = {str(one.get("framework") or one.get("adapter")) for one in _dicts(facts["adapters"])}
    missing = sorted(survey.derived.keys() - set(sessions))
    gone = [f"The session {name}, from which one was {_DONE.get(survey.derived[name], 'made')}." for name in missing]
    spots = {name: blind_spots(name) for name in sorted(names)}
    return Coverage(facts=facts, blind_spots=spots, not_in_packet=(*gone, *_ALWAYS))


_DONE: Final = {"fork": "forked", "detach": "detached", "import": "imported", "replay": "replayed"}


def blind_spots(name: str) -> tuple[str, ...]:
    """Return what an adapter is known not to see: its own word (an optional member ``BLIND_SPOTS``), else ours."""
    own: Any = getattr(adapters().get(name), "BLIND_SPOTS", None)
    return tuple(map(str, own)) if own else BLIND_SPOTS.get(name, ("Nothing is known about what this adapter does not see.",))


def compare(told: Any, counted: Coverage) -> Coverage:
    """Return the coverage that was counted, with what ``coverage.json`` adds, and with every fact in which the two differ.

    Facts that one of them does not know are passed over: versions count different things.

    Args:
        told: What stands in ``coverage.json``.
        counted: What the chunks tell.
    """
    value = _map(told)
    claimed, known = _map(value.get("facts")), _map(value.get("blind_spots"))
    if not claimed:
        return counted
    differ = [name for name in counted.facts if name in claimed and claimed[name] != counted.facts[name]]
    told_holes = value.get("holes")
    if isinstance(told_holes, list) and len(cast("list[Any]", told_holes)) < len(list(_holes(claimed))):
        differ.append("holes")  # its sentences hide what its own facts tell
    return Coverage(
        facts=counted.facts,
        blind_spots={str(name): _texts(known[name]) for name in known},
        not_in_packet=_texts(value.get("not_in_packet")),
        contradictions=tuple(f"coverage.json tells other {name.replace('_', ' ')} than the chunks" for name in differ),
    )


def adapter_words(one: Mapping[str, Any]) -> str:
    """Return an adapter in a few words: ``rath_langgraph (langgraph 1.0.4)``."""
    name = str(one.get("adapter") or one.get("framework"))
    behind = " ".join(str(one[key]) for key in ("framework", "version") if one.get(key) and one.get("adapter"))
    return f"{name} ({behind})" if behind else name


def _holes(facts: Mapping[str, Any]) -> Iterable[str]:
    def count(name: str, key: str = "count") -> int:
        value: Any = facts.get(name)
        found = _map(value).get(key) if isinstance(value, Mapping) else value
        return found if type(found) is int else 0

    if lost := count("gaps", "lost"):
        yield f"{lost} event{_s(lost)} happened that {_are(lost)} not on record (gaps)"
    if adrift := count("unattributed", "chunks"):
        yield f"{adrift} chunk{_s(adrift)} could not be attributed to a run"
    if calls := count("open_calls"):
        which = _which(facts, "open_calls", calls)
        yield f"{calls} tool call{_s(calls)} {_have(calls)} no result, what {_they(calls)} did is unknown{which}"
    if silent := count("no_response"):
        yield f"{silent} tool call{_s(silent)} {_were(silent)} closed without a response{_which(facts, 'no_response', silent)}"
    if runs := count("open_runs"):
        yield f"{runs} run{_s(runs)} {_have(runs)} no end{_which(facts, 'open_runs', runs)}"
    if erased := count("erased"):
        told = count("erased", "told")
        why = (
            "as redactions in the record tell"
            if told == erased
            else f"{erased - told} of them without a redaction that tells why"
        )
        yield f"the content of {erased} chunk{_s(erased)} was erased, {why}"
    if masked := count("masked"):
        yield f"{masked} chunk{_s(masked)} hold{'s' if masked == 1 else ''} values that were masked before they were recorded"
    if absent := count("absent"):
        yield f"{absent} object{_s(absent)} {_were(absent)} not in the store when the packet was written"


def _which(facts: Mapping[str, Any], name: str, count: int) -> str:
    """Name the first few: what they are called, their id, and the chunk that shows them."""
    found = [
        f"{str(one.get('name') or '?')[:80]} ({str(one.get('run') or one.get('call') or '?')[:16]}, chunk {str(one.get('chunk'))[:12]})"
        for one in _dicts(_map(facts.get(name)).get("list"))[:_NAMED]
    ]
    more = f" and {count - len(found)} more" if count > len(found) else ""
    return f": {', '.join(found)}{more}" if found else ""


def _they(count: int) -> str:
    return "it" if count == 1 else "they"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _map(value: Any) -> Mapping[str, Any]:
    return {str(key): item for key, item in cast("Mapping[Any, Any]", value).items()} if isinstance(value, Mapping) else {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [_map(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in cast("list[Any]", value) if isinstance(item, str)) if isinstance(value, list) else ()
