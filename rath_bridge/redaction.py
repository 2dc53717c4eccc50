"""Known secrets are taken out of observed copies before anything is hashed.

What a framework loads again is kept as given (`redact_state=True` changes that); what is merely observed (inference, calls,
messages, spans, environment) passes through a `Redactor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

from rath_bridge.model.chunk import Native
from rath_bridge.model.encoding import BlobRef, TreeRef

T = TypeVar("T")

RULES: Final[Mapping[str, str]] = {
    "openai-key": r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}",
    "anthropic-key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "aws-key-id": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "github-token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})",
    "slack-token": r"\bxox[abposr]-[A-Za-z0-9-]{10,}",
    "google-key": r"\bAIza[0-9A-Za-z_-]{35}",
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "bearer": r"(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}=*",
    "private-key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    "url-password": r"(?<=://)[^/\s:@]{1,64}:[^/\s@]{1,256}(?=@)",
}
"""Name to regular expression; what matches is replaced by ``[redacted:name]``."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """Applies rules to every text of a value."""

    pattern: re.Pattern[str]

    @classmethod
    def of(cls, rules: Mapping[str, str] = RULES, secrets: Iterable[str] = ()) -> Redactor:
        """Build a redactor from rules and literal secrets (at least 6 characters each).

        Args:
            rules: Name to regular expression.
            secrets: Values to take out wherever they stand, such as passwords of this process.
        """
        named = [f"(?P<{name.replace('-', '_')}>{rule})" for name, rule in rules.items()]
        literal = [re.escape(secret) for secret in sorted(secrets, key=len, reverse=True) if len(secret) >= 6]
        if literal:
            named.insert(0, f"(?P<secret>{'|'.join(literal)})")
        return cls(re.compile("|".join(named) or r"(?!)", re.DOTALL))

    def text(self, value: str) -> str:
        """Return the text with every match replaced; the same object when nothing matches."""
        return self.pattern.sub(lambda m: f"[redacted:{(m.lastgroup or 'secret').replace('_', '-')}]", value)

    def apply(self, value: T) -> T:
        """Return a value of the same shape with its texts redacted; the same object where nothing changed."""
        return self._apply(value)

    def native(self, value: Native) -> Native:
        """Redact a native record; bytes that are no UTF-8 text are left as they are."""
        try:
            text = value.data.decode()
        except UnicodeDecodeError:
            return value
        clean = self.text(text)
        return value if clean == text else replace(value, data=clean.encode())

    def _apply(self, value: Any) -> Any:
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            return self.text(value) if len(value) > 8 else value
        if value is None or kind in (int, float, bool, bytes, TreeRef, BlobRef):
            return value
        if kind is dict:
            changed = {key: self._apply(item) for key, item in value.items()}
            return changed if any(changed[key] is not value[key] for key in value) else value
        if kind in (list, tuple):
            items: list[Any] = [self._apply(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else cast(Any, kind(items))
        if is_dataclass(value) and not isinstance(value, type):
            news = {f.name: self._apply(getattr(value, f.name)) for f in fields(value) if f.init}
            changed = {name: new for name, new in news.items() if new is not getattr(value, name)}
            return replace(value, **changed) if changed else value
        return value


DEFAULT: Final = Redactor.of()
