"""Known secrets are taken out of observed copies before anything is hashed.

What a framework loads again is kept as given (`redact_state=True` changes that); what is merely observed (inference, calls,
messages, spans, environment) passes through a `Redactor`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

import orjson

from rath_bridge.model.chunk import Native
from rath_bridge.model.encoding import BlobRef, Encoded, TreeRef

T = TypeVar("T")

RULES: Final[Mapping[str, str]] = {
    "anthropic-key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "openai-key": r"sk-(?:proj-|svcacct-|admin-)[A-Za-z0-9_-]{20,}|(?<![A-Za-z])sk-[A-Za-z0-9_-]{20,}",
    "aws-key-id": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "github-token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    "slack-token": r"\bxox[abposr]-[A-Za-z0-9-]{10,}",
    "google-key": r"\bAIza[0-9A-Za-z_-]{35}",
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "bearer": r"(?i:\bbearer(?:\s|\\[nrt])+)[A-Za-z0-9._~+/-]{16,}=*",
    "private-key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    "url-password": r"(?P<keep>://)[^/\s:@\"]{1,64}:[^/\s@\"]{1,256}(?=@)",
}
"""Name to regular expression; what matches is replaced by ``[redacted:name]``, after the group ``keep`` where there is one."""

_ANCHORS: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic-key": ("sk-ant-",),
    "openai-key": ("sk-",),
    "aws-key-id": ("akia", "asia"),
    "github-token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "slack-token": ("xox",),
    "google-key": ("aiza",),
    "jwt": ("eyj",),
    "bearer": ("bearer",),
    "private-key": ("private key-----",),
    "url-password": ("://",),
}
"""What a text must hold, case folded, for a rule of ours to match: most texts are passed over without a regular expression."""


_SIEVED: Final = b"-/:AIJKg_hkxyz"
_SIEVE: Final = re.compile(rb"k-|A(?:KI|I)A|AIz|xx|yJ|gh_|K-----|://")
_OTHERS: Final = bytes(set(range(256)).difference(_SIEVED))
"""What every match of our rules but `bearer` leaves of itself when only the bytes of `_SIEVED` are kept: one pass over few bytes tells
that most texts hold none of them, and what is left is looked at again.
"""
_FINER: Final = re.compile(rb"sk-|A(?:KI|I)A|AIz|xox|yJ|gh[pousr]_|K-----|://")
_LESS: Final = bytes(set(range(256)).difference(_SIEVED + b"oprsu"))
"""The same once more with a few bytes more, for what passes: names such as ``langchain_core`` do."""

SHORTEST: Final = 6
"""Characters that a literal secret has at least; shorter texts are not looked at."""


_OURS: Final[Mapping[str, re.Pattern[str]]] = {name: re.compile(rule, re.DOTALL) for name, rule in RULES.items()}


_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^"\s\[\]{},:]+')
"""A text of some JSON, or a number."""
_PRINTED: Final = re.compile(r"[\x20-\x7e\t\r\n]{6,}")
_TEXT: Final = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, ready to run."""

    name: str
    anchors: tuple[str, ...]
    """One of these must stand in the case-folded text; empty: always run."""
    pattern: re.Pattern[str]
    literals: tuple[str, ...] = ()
    """All that it matches, where that is known."""

    def replacement(self, match: re.Match[str]) -> str:
        """What stands in place of a match."""
        return f"{match.groupdict().get('keep') or ''}[redacted:{self.name}]"


@dataclass(frozen=True, slots=True)
class Redactor:
    """Applies rules to every text of a value."""

    rules: tuple[Rule, ...]
    _anchors: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    """What bytes, their ASCII lowered, hold where one of our own rules matches."""
    _others: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    """What bytes hold where any other rule may match: literal secrets, or nothing at all."""

    def __post_init__(self) -> None:
        ours = [rule for rule in self.rules if rule.anchors and rule.pattern == _OURS.get(rule.name)]
        texts = [form for rule in self.rules if rule not in ours for form in rule.literals or ("",)]
        others = dict.fromkeys(form for text in texts for form in (text, _inside_json(text)))  # as in a blob, as in a body
        object.__setattr__(self, "_anchors", tuple(anchor.encode() for rule in ours for anchor in rule.anchors))
        object.__setattr__(self, "_others", tuple(form.encode("utf-8", "surrogatepass") for form in others))

    @classmethod
    def of(cls, rules: Mapping[str, str] = RULES, secrets: Iterable[str] = ()) -> Redactor:
        """Build a redactor from rules and literal secrets (at least 6 characters each).

        Args:
            rules: Name to regular expression; dots match line ends.
            secrets: Values to take out wherever they stand, such as passwords of this process.
        """
        found = [
            Rule(name, _ANCHORS[name] if RULES.get(name) == rule else (), re.compile(rule, re.DOTALL))
            for name, rule in rules.items()
        ]
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        if forms:
            longest_first = sorted(forms, key=lambda form: (-len(form), form))
            pattern = re.compile("|".join(map(re.escape, longest_first)))
            found.insert(0, Rule("secret", tuple(form.casefold() for form in longest_first), pattern, tuple(longest_first)))
        return cls(tuple(found))

    def _wanted(self, text: str) -> Iterator[Rule]:
        folded = text.casefold()
        for rule in self.rules:
            for anchor in rule.anchors or ("",):
                if anchor in folded:
                    yield rule
                    break

    def suspects(self, data: bytes) -> bool:
        """Tell in a moment whether encoded bytes may hold a secret; only then is the value itself walked through."""
        if b'"$rath":"' in data and (b'"$rath":"bytes"' in data or b'"$rath":"surrogates"' in data):
            return True
        lowered = data.lower()
        if b"bearer" in lowered or (
            _SIEVE.search(data.translate(None, _OTHERS)) is not None and _FINER.search(data.translate(None, _LESS)) is not None
        ):
            return any(map(lowered.__contains__, self._anchors)) or any(map(data.__contains__, self._others))
        return any(map(data.__contains__, self._others)) if self._others else False

    def text(self, value: str) -> str:
        """Return the text with every match replaced; the same object when nothing matches."""
        for rule in self._wanted(value):
            value = rule.pattern.sub(rule.replacement, value)
        return value

    def apply(self, value: T) -> T:
        """Return a value of the same shape with its texts redacted; the same object where nothing changed."""
        return self._apply(value)

    def data(self, value: bytes) -> bytes | None:
        """Return bytes with every match replaced; None where they are no UTF-8 text, hold a secret, and so cannot be mended.

        In JSON, or lines of it, only within its texts: it stays JSON, and no rule looks beyond the end of a text.
        """
        try:
            text = value.decode()
        except UnicodeDecodeError:
            binary = value.decode("latin-1")
            printed = "\n".join(_PRINTED.findall(binary))  # the texts in it: no rule of ours looks beyond the end of one
            ours = {rule.name for rule in self.rules if rule.pattern == _OURS.get(rule.name)}
            found = (rule.pattern.search(printed if rule.name in ours else binary) for rule in self._wanted(binary))
            return None if any(found) else value
        if "\\" not in text and next(self._wanted(text), None) is None:
            return value
        lines = text.rstrip("\n").split("\n")
        clean = self._json(text) if _is_json(text) or all(map(_is_json, lines)) else self.text(text)
        return value if clean == text else clean.encode()

    def _json(self, text: str) -> str:
        if b"" not in self._others:  # no rule that one cannot know: all texts are read at once, and most hold nothing
            told: str = json.loads('"' + "\\n".join(_TEXT.findall(text)) + '"')
            if self.text(told) == told and not any(rule.literals and rule.pattern.search(text) for rule in self.rules):
                return text
        return _TOKEN.sub(self._token, text)

    def _token(self, match: re.Match[str]) -> str:
        held = match[0]
        told: str = json.loads(held) if held.startswith('"') else held
        if not self.suspects(told.encode("utf-8", "surrogatepass")):
            return held
        clean = self.text(told)
        return held if clean == told else json.dumps(clean)

    def native(self, value: Native) -> Native | None:
        """Redact a native record; None where it is no text and holds a secret: it is left out then."""
        data = self.data(value.data)
        return None if data is None else value if data is value.data else replace(value, data=data)

    def _apply(self, value: Any) -> Any:
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            return self.text(value) if len(value) >= SHORTEST else value
        if value is None or kind in (int, float, bool, TreeRef, BlobRef):
            return value
        if kind is bytes:
            data = self.data(value)
            return b"[redacted]" if data is None else data
        if kind is Encoded:  # its texts, not its bytes: a rule would look beyond the end of a text, and miss what JSON escapes
            told = orjson.loads(value.data)
            clean = self._apply(told)
            return value if clean is told else clean
        if isinstance(value, Mapping):
            pairs = [(key, self._apply(key), item, self._apply(item)) for key, item in cast("Mapping[Any, Any]", value).items()]
            same = all(new_key is key and new is item for key, new_key, item, new in pairs)
            return cast(Any, value) if same else {new_key: new for _, new_key, _, new in pairs}
        if kind in (list, tuple):
            items: list[Any] = [self._apply(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else cast(Any, kind(items))
        if is_dataclass(value) and not isinstance(value, type):
            news = {f.name: self._apply(getattr(value, f.name)) for f in fields(value) if f.init}
            changed = {name: new for name, new in news.items() if new is not getattr(value, name)}
            return replace(value, **changed) if changed else value
        return value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _forms(secret: str) -> Iterable[str]:
    """How a secret may stand in a text or in bytes: as it is, inside JSON (also JSON that stands as a text in JSON, as a call's
    arguments do), and as UTF-8 that is read byte by byte.
    """
    once = {json.dumps(secret)[1:-1], _inside_json(secret)}
    yield from {secret, *once, *map(_inside_json, once), *(json.dumps(form)[1:-1] for form in once)}
    yield secret.encode("utf-8", "surrogatepass").decode("latin-1")


def _inside_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


DEFAULT: Final = Redactor.of()
