"""``report.html``: the packet for a person without Python. A function of the chunks, the claims and the coverage alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import RathError
from rath_bridge.evidence.audit import Answer
from rath_bridge.evidence.claims import ClaimVerdict
from rath_bridge.evidence.coverage import Coverage
from rath_bridge.evidence.instructions import SIGNATURE_COMMAND, SIGNERS_COMMAND, SUMS_COMMAND
from rath_bridge.evidence.page import document, text
from rath_bridge.evidence.survey import Survey
from rath_bridge.evidence.timeline import Shown, Timeline
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Body, Message, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.verbs.words import part_words, summary

LANES: Final = 40
"""Lines that the graph draws."""
_TEXT: Final = 2000
_MINOR: Final = frozenset({"run", "checkpoint", "task", "span", "inference", "workspace", "placement", "memory", "session"})
_COLOURS: Final = 6
_FOOTER: Final = (
    "<footer>Written by rath_bridge from the packet's own chunks. This page runs nothing and fetches nothing; what agents said is shown"
    " as text. It is a view: what counts is in chunks.jsonl and bodies.jsonl.</footer>"
)


def report(
    heads: Mapping[str, Digest],
    timeline: Timeline,
    survey: Survey,
    coverage: Coverage,
    claims: Sequence[ClaimVerdict],
    answers: Mapping[str, Sequence[Answer]],
    signers: Sequence[str],
) -> bytes:
    """Return the page.

    Args:
        heads: Tip of each ref by name.
        timeline: Fed with the packet's chunks.
        survey: Fed with them, too.
        coverage: What they cover.
        claims: The ledger, looked at again.
        answers: Audit answers by session.
        signers: Names of the keys that sign.
    """
    sessions = list(dict.fromkeys(name.partition("@")[0] for name in heads))
    shown = {one.chunk.id for one in (*timeline.first, *timeline.last)}
    title = sessions[0] if len(sessions) == 1 else f"{len(sessions)} sessions"
    parts = [
        _top(title, sessions, heads, timeline, survey),
        '<section class="cards first">', _integrity(signers), _coverage(coverage), _claims_card(claims), "</section>",
        _claims(claims, shown), _answers(answers, shown), _graph(timeline), _timeline(timeline), _who(coverage), _heads(heads),
        _FOOTER,
    ]  # fmt: skip
    return document(f"Evidence: {title}", "\n".join(parts))


# ---------------------------------------------------------------------------------------------- the top


def _top(title: str, sessions: Sequence[str], heads: Mapping[str, Digest], timeline: Timeline, survey: Survey) -> str:
    last = f" to {_day(survey.until)}" if _day(survey.until) != _day(survey.since) else ""
    names = "" if len(sessions) == 1 else f'<p class="soft">{", ".join(text(name, 80) for name in sessions[:40])}</p>'
    figures = [
        (len(heads), "line" if len(heads) == 1 else "lines"), (survey.chunks, "events"), (survey.tally["message"], "messages"),
        (survey.tally["tool_call"], "tool calls"), (survey.tally["inference"], "model calls"),
        _tokens(survey),
    ]  # fmt: skip
    if survey.cost is not None:
        figures.append((f"{survey.cost:.4f}", "USD, as reported"))
    cells = "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in figures)
    models = ", ".join(text(name, 60) for name in sorted(survey.models)[:20]) or "none named"
    agents = ", ".join(text(name, 60) for name in sorted(survey.agents or set(timeline.runs.values()))[:30]) or "none named"
    return (
        f'<header><p class="soft small">Evidence packet</p><h1>{text(title, 200)}</h1>{names}'
        f'<p class="soft">{_day(survey.since)}{last} (UTC)</p><div class="figures">{cells}</div>'
        f'<p class="small who"><span class="soft">Agents</span> {agents}<br><span class="soft">Models</span> {models}</p>'
        "</header>"
    )


def _tokens(survey: Survey) -> tuple[str, str]:
    calls = survey.tally["inference"]
    if calls and not survey.told:
        return "–", "tokens: usage not on record"
    some = f", {survey.told} of {calls} model calls report usage" if survey.told < calls else ""
    return f"{survey.tokens[0] + survey.tokens[1]:,}".replace(",", " "), f"tokens{some}"


def _integrity(signers: Sequence[str]) -> str:
    signed = "".join(f"<li>signed by <code>{text(name)}</code></li>" for name in signers)
    told = (
        f'<ul class="small">{signed}</ul><p class="small">Is it the key that you know from elsewhere?</p>'
        if signers
        else '<p class="small">Not signed when it was written: compare a <a href="#heads">head</a> that you know from elsewhere.</p>'
    )
    commands = "\n".join([SUMS_COMMAND, *([SIGNERS_COMMAND, SIGNATURE_COMMAND] if signers else [])])
    return (
        '<div class="card"><h3>Integrity</h3><p class="verdict">check it yourself</p><p class="small">No page can vouch for itself. In the'
        f' packet\'s directory:</p><pre>{text(commands, 1000)}</pre>{told}<p class="small soft">VERIFY.md says more.</p></div>'
    )


def _coverage(coverage: Coverage) -> str:
    holes = coverage.holes()
    verdict = f'<p class="verdict warn">{len(holes)} hole{"" if len(holes) == 1 else "s"} known</p>' if holes else (
        '<p class="verdict good">no hole shows</p>'
    )  # fmt: skip
    rest = 'That nothing was changed does not mean that everything is here. <a href="#seen">What recorded it, and cannot see</a>'
    return (
        f'<div class="card"><h3>Coverage</h3>{verdict}<ul class="small">{_list(holes)}</ul><p class="small soft">{rest}</p></div>'
    )


def _claims_card(claims: Sequence[ClaimVerdict]) -> str:
    lowered = sum(not one.holds for one in claims)
    if not claims:
        verdict, told = '<p class="verdict">none</p>', "Nobody claims anything about this record."
    elif lowered:
        verdict = f'<p class="verdict bad">{lowered} of {len(claims)} lowered</p>'
        told = "A claim that the record does not carry was lowered to what it carries."
    else:
        verdict = f'<p class="verdict good">{len(claims)} hold as made</p>'
        told = "Each was looked at again against the record; no command was run."
    return f'<div class="card"><h3>Claims</h3>{verdict}<p class="small">{told}</p></div>'


# ---------------------------------------------------------------------------------------------- claims and answers


def _claims(claims: Sequence[ClaimVerdict], shown: set[Digest]) -> str:
    if not claims:
        return ""
    styles = {"supported": "good", "partial": "warn", "conditional": "warn"}
    rows: list[str] = []
    for one in claims:
        claim = one.claim
        found = f'<b class="{styles.get(one.found, "soft")}">{one.found}</b>' + (
            "" if one.holds else f'<br><s class="small">{claim.status}</s>'
        )
        why = "".join(f'<br><span class="small warn">{text(reason)}</span>' for reason in one.reasons)
        condition = f'<br><span class="small soft">if {text(claim.precondition)}</span>' if claim.precondition else ""
        by = f'<br><span class="small soft">says {text(claim.by, 80)}</span>' if claim.by else ""
        command = f"<br><code>{text(claim.command)}</code>" if claim.command else ""
        rows.append(
            f"<tr><td><b>{text(claim.id, 100)}</b></td><td>{text(claim.sentence, 1000)}{condition}{by}{command}{why}</td>"
            f"<td>{found}</td><td>{claim.basis}<br>{_ids(claim.evidence[:6], shown)}</td></tr>"
        )
    head = "<tr><th>Claim</th><th></th><th>Holds</th><th>Rests on</th></tr>"
    return f'<h2>What is claimed</h2><div class="card wide claims"><table>{head}{"".join(rows)}</table></div>'


def _answers(answers: Mapping[str, Sequence[Answer]], shown: set[Digest]) -> str:
    found: list[str] = []
    for name, listed in answers.items():
        title = f"<h3>{text(name, 200)}</h3>" if len(answers) > 1 else ""
        rows = "".join(_answer(one, shown) for one in listed)
        found.append(f'<div class="card" style="margin-bottom:12px">{title}{rows}</div>')
    return f"<h2>What an auditor asks</h2>{''.join(found)}" if found else ""


def _answer(answer: Answer, shown: set[Digest]) -> str:
    rows = "".join(
        f'<li><span>{text(row.text, 600)} {_ids(row.evidence[:4], shown)}</span></li>' for row in answer.rows[:40]
    ) or '<li class="soft">nothing on record</li>'  # fmt: skip
    more = answer.left + max(0, len(answer.rows) - 40)
    rest = f'<li class="soft">and {more} more</li>' if more else ""
    chain = " chain" if answer.name == "final_answer" else ""  # the answer first, then what it rests on
    return f'<p class="q">{text(answer.question)}</p><ul class="rows{chain}">{rows}{rest}</ul>'


def _ids(names: Iterable[Digest], shown: set[Digest]) -> str:
    return " ".join(
        f'<a class="id" href="#c{name[:16]}">{name[:8]}</a>'
        if name in shown
        else f'<span class="id soft">{text(name[:8])}</span>'
        for name in names
    )


# ---------------------------------------------------------------------------------------------- the graph


def _graph(timeline: Timeline) -> str:
    lanes = timeline.lanes[:LANES]
    if not lanes:
        return ""
    width, left, gap = 1000, 220, 34
    span = max(1, *(lane.last for lane in lanes))
    scale = (width - left - 30) / span

    def x(place: int) -> float:
        return round(left + place * scale, 1)

    def y(number: int) -> int:
        return 24 + number * gap

    drawn: list[str] = []
    for lane in lanes:
        colour, at = f"g{lane.number % _COLOURS}", y(lane.number)
        start = x(lane.first)
        if lane.fork is not None and lane.fork[0] < LANES:
            begin, above = x(lane.fork[1]), y(lane.fork[0])
            bend = min(begin + 18, start) if start > begin else begin
            drawn.append(
                f'<path class="{colour}" style="fill:none" d="M{begin} {above}C{bend} {above} {begin} {at} {start} {at}"/>'
            )
        drawn.append(f'<path class="{colour}" d="M{start} {at}H{x(lane.last)}"/>')
        for place, other, there in lane.merges:
            if other < LANES:
                begin, end = x(there), x(place)
                path = f"M{begin} {y(other)}C{(begin + end) / 2:.1f} {y(other)} {(begin + end) / 2:.1f} {at} {end} {at}"
                drawn.append(f'<path class="g{other % _COLOURS}" style="fill:none;stroke-dasharray:5 4" d="{path}"/>')
                drawn.append(f'<circle class="{colour}" cx="{end}" cy="{at}" r="5"/>')
        step = max(1, len(lane.messages) // 120)
        drawn += [f'<circle class="{colour}" cx="{x(place)}" cy="{at}" r="2.6"/>' for place in lane.messages[::step]]
        drawn.append(f'<circle class="{colour}" cx="{x(lane.last)}" cy="{at}" r="4.5"/>')
        count = f"{lane.chunks} event{'' if lane.chunks == 1 else 's'}"
        drawn.append(f'<text x="0" y="{at}">{text(lane.name, 30)}</text><text class="s" x="0" y="{at + 14}">{count}</text>')
    height = y(len(lanes) - 1) + 30
    more = len(timeline.lanes) - len(lanes)
    rest = f'<p class="small soft">and {more} more lines</p>' if more else ""
    legend = '<p class="small soft">Left to right: what came after what. Dots are messages; dashed lines are merges.</p>'
    label = "The lines of the packet with their forks and merges"
    return (
        f'<h2>Lines, forks and merges</h2><div class="card wide"><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{label}">{"".join(drawn)}</svg>{rest}{legend}</div>'
    )


# ---------------------------------------------------------------------------------------------- the timeline


class _Told:
    """What is known of all rows before the first is drawn."""

    def __init__(self, timeline: Timeline) -> None:
        rows = (*timeline.first, *timeline.last)
        self.runs = timeline.runs
        self.seconds = Counter(one.chunk.at // 1_000_000 for one in rows)
        """Rows in each second."""
        self.calls = {str(body.call_id) for one in rows if isinstance(body := _body(one.chunk), ToolCall | ToolResult)}
        """Calls that have rows of their own."""

    def is_said_twice(self, body: Body | None) -> bool:
        """A message that holds nothing but calls, or answers, which stand as rows of their own."""
        if not isinstance(body, Message) or not body.parts:
            return False
        return all(isinstance(part, ToolCallPart | ToolCallResponsePart) and str(part.id) in self.calls for part in body.parts)


def _body(chunk: Chunk) -> Body | None:
    try:
        return None if chunk.body_bytes is None else chunk.body
    except RathError:
        return None


def _timeline(timeline: Timeline) -> str:
    told = _Told(timeline)
    parts = [
        "<h2>Timeline</h2>",
        '<p><label><input type="checkbox" id="minor"> show model calls, runs, checkpoints and other machinery, too, and messages that only '
        "repeat calls</label></p>",
        '<div class="time">', *_rows(timeline, told, timeline.first, None),
    ]  # fmt: skip
    if timeline.left:
        parts.append(
            f'<p class="cut">{timeline.left} events between are not shown here; they are in chunks.jsonl and bodies.jsonl</p>'
        )
    parts += _rows(timeline, told, timeline.last, timeline.first[-1] if timeline.first and not timeline.left else None)
    return "\n".join([*parts, "</div>"])


def _rows(timeline: Timeline, told: _Told, shown: Iterable[Shown], before: Shown | None) -> Iterator[str]:
    lane = None if before is None else before.lane
    many = len(timeline.lanes) > 1
    day = "" if before is None else _day(before.chunk.at)
    for one in shown:
        if (one.lane != lane and many) or _day(one.chunk.at) != day:
            lane, day = one.lane, _day(one.chunk.at)
            name = f"{text(timeline.lanes[lane].name, 120)} · " if many else ""
            yield f'<p class="lane">{name}{day}</p>'
        yield _row(one, told)


def _row(shown: Shown, told: _Told) -> str:
    chunk = shown.chunk
    looks = text(chunk.kind, 60)
    note = chunk.kind == "note" and chunk.origin is not None
    if chunk.kind in _MINOR or note or (chunk.kind == "message" and told.is_said_twice(_body(chunk))):
        looks += " minor"
    if _failed(chunk):
        looks += " failed"
    clock = format_time(chunk.at)[11 : 23 if told.seconds[chunk.at // 1_000_000] > 1 else 19]
    who, words = _words(chunk, told.runs)
    kind = text(chunk.kind.replace("_", " "), 60)
    label = f"<b>{text(who, 80)}</b>{kind}" if who else kind
    return (
        f'<div class="row {looks} l{shown.lane % _COLOURS}" id="c{chunk.id[:16]}"><span class="at">{clock}</span>'
        f'<span class="kind">{label}</span><span class="what">{words}</span><a class="id" href="#c{chunk.id[:16]}">{chunk.id[:8]}</a></div>'
    )


def _failed(chunk: Chunk) -> bool:
    if chunk.kind != "tool_result" or chunk.body_bytes is None:
        return False
    try:
        body = chunk.body
    except RathError:
        return False
    return isinstance(body, ToolResult) and body.status != "ok"


def _words(chunk: Chunk, runs: Mapping[str, str]) -> tuple[str, str]:
    """Who, and what: messages with their whole text, other kinds in one line."""
    agent = runs.get(chunk.run or "", "")
    if chunk.kind != "message" or chunk.body_bytes is None:
        return agent, text(summary(chunk), 600)
    try:
        body = cast(Any, chunk.body)
    except RathError:
        return agent, text(summary(chunk), 600)
    if not isinstance(body, Message):
        return agent, text(summary(chunk), 600)
    said = [text(part.content, _TEXT) if isinstance(part, TextPart) else text(part_words(part), 600) for part in body.parts[:50]]
    edit = ' <span class="soft small">(edit)</span>' if body.replaces else ""
    return body.name or (agent if body.role == "assistant" else "") or body.role, ("\n".join(said) or "(empty)") + edit


# ---------------------------------------------------------------------------------------------- the end


def _who(coverage: Coverage) -> str:
    blind = [f"{name}: {spot}" for name, spots in coverage.blind_spots.items() for spot in spots]
    lists = {"Recorded by": coverage.adapters(), "Blind spots": blind, "Not in this packet": coverage.not_in_packet}
    cards = (f'<div class="card"><h3>{title}</h3><ul class="small">{_list(found)}</ul></div>' for title, found in lists.items())
    return f'<h2 id="seen">What recorded it, and what it cannot see</h2><div class="cards">{"".join(cards)}</div>'


def _list(sentences: Iterable[str]) -> str:
    return "".join(f"<li>{text(one)}</li>" for one in sentences)


def _heads(heads: Mapping[str, Digest]) -> str:
    rows = "".join(f"<tr><td>{text(name, 200)}</td><td><code>{head}</code></td></tr>" for name, head in list(heads.items())[:400])
    more = f'<p class="small soft">and {len(heads) - 400} more in refs.json</p>' if len(heads) > 400 else ""
    return f'<h2 id="heads">Heads</h2><div class="card wide"><table><tr><th>Line</th><th>Its last event</th></tr>{rows}</table>{more}</div>'


def _day(at: int | None) -> str:
    return "" if at is None else format_time(at)[:10]
