"""Decisions of a graph: where a router, a ``Command`` or a ``Send`` leads, and what a person answered. Pure.

Sources: ``langgraph.graph._branch.BranchSpec``, ``langgraph.types`` (``Command``, ``Send``, ``Interrupt``),
``langchain.agents.middleware.HumanInTheLoopMiddleware`` (the words of a refusal).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langgraph.types import Command, Send

from rath_bridge.model.kinds import Route
from rath_langgraph.neutral import plain

_REFUSED: Final = frozenset({"reject", "rejected", "deny", "denied", "decline", "declined", "refuse", "refused", "no", "ignore"})
_VERDICTS: Final = ("type", "action", "decision", "approved", "approve", "accepted", "allow", "allowed", "granted", "status")
"""Keys under which forms of approval keep the verdict."""


class Routers:
    """The conditional edges of a compiled graph and of the graphs in it: what each could have chosen."""

    def __init__(self, graph: Any = None) -> None:
        self._ends: dict[tuple[str, str], Mapping[Any, str]] = {}
        self._goto: dict[str, tuple[str, ...]] = {}
        self._known = graph is not None
        for one in _graphs(graph) if graph is not None else ():
            builder: Any = getattr(one, "builder", None)
            for node, branches in cast("Mapping[str, Mapping[str, Any]]", getattr(builder, "branches", {})).items():
                for name, branch in branches.items():
                    ends = branch.ends or {other: other for other in [*builder.nodes, "__end__"]}
                    self._ends[node, name] = ends
            for node, spec in cast("Mapping[str, Any]", getattr(builder, "nodes", {})).items():
                if getattr(spec, "ends", None):
                    self._goto[node] = tuple(map(str, spec.ends))

    def routes(self, node: str, name: str) -> bool:
        """Tell whether this runnable of a node may be one of its routers; without a graph, any may be."""
        return not self._known or (node, name) in self._ends

    def decided(self, node: str, name: str, output: Any) -> Route | None:
        """What a router decided; None where the output is no decision."""
        ends = self._ends.get((node, name), {})
        listed = cast("Sequence[Any]", output) if isinstance(output, (list, tuple)) else [output]
        chosen: list[str] = []
        for one in listed:
            if isinstance(one, Send):
                chosen.append(one.node)
            elif _hashable(one) and one in ends:
                chosen.append(ends[one])
            elif isinstance(one, str) and not self._known:
                chosen.append(one)
            else:
                return None
        return Route(router=name, chosen=tuple(chosen), candidates=tuple(dict.fromkeys(ends.values())))

    def commanded(self, node: str, output: Any) -> Iterator[Route]:
        """Where the commands that a node returned, or raised for the graph around it, lead."""
        for one in cast("Sequence[Any]", output) if isinstance(output, (list, tuple)) else [output]:
            if isinstance(one, Command):
                goto: Any = cast(Any, one).goto
                listed = [goto] if isinstance(goto, (str, Send)) else list(goto or ())
                chosen = tuple(to.node if isinstance(to, Send) else str(to) for to in listed)
                if chosen:
                    reason = "Command to the graph around it" if one.graph else "Command"
                    yield Route(router=node, chosen=chosen, candidates=self._goto.get(node, ()), reason=reason)


def _graphs(graph: Any) -> Iterator[Any]:
    """A compiled graph, and those that are nodes of it at any depth."""
    waiting, seen = [graph], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        for node in getattr(one, "nodes", {}).values():
            waiting += [sub for sub in getattr(node, "subgraphs", None) or () if hasattr(sub, "nodes")]


def _hashable(value: Any) -> bool:
    return isinstance(value, (str, int, bool, tuple, type(None))) or value.__hash__ is not None


def verdict(answer: Any) -> str:
    """``granted`` or ``denied``: an answer is a refusal where it says so, as a bare word or in one of the usual forms."""
    if answer is False:
        return "denied"
    if isinstance(answer, str):
        return "denied" if answer.strip().casefold() in _REFUSED else "granted"
    if isinstance(answer, Mapping):
        found = cast("Mapping[Any, Any]", answer)
        if isinstance(found.get("decisions"), (list, tuple)):
            return verdict(found["decisions"])
        return next(("denied" for key in _VERDICTS if key in found and verdict(found[key]) == "denied"), "granted")
    if isinstance(answer, (list, tuple)):
        return "denied" if any(verdict(one) == "denied" for one in cast("Sequence[Any]", answer)) else "granted"
    return "granted"


def answers(resume: Any, asked: Sequence[str]) -> list[tuple[str | None, Any]]:
    """Pair the value of ``Command(resume=...)`` with the interrupts that it answers: (interrupt id, answer).

    Args:
        resume: One answer, or a map of interrupt id to answer (``Pregel`` tells them apart by the form of the keys).
        asked: Ids of the interrupts that wait, as far as they are known.
    """
    if isinstance(resume, Mapping) and resume:
        keys = list(cast("Mapping[Any, Any]", resume))
        if all(isinstance(key, str) and len(key) == 32 and set(key) <= set("0123456789abcdef") for key in keys):
            return [(key, plain(cast(Any, resume)[key])) for key in keys]
    return [(asked[0] if len(asked) == 1 else None, plain(resume))]
