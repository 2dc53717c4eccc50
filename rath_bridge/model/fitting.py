"""Ids and names as model providers take them: what does not fit is replaced, the same way every time.

Sources: `tool_calls[].id` of Chat Completions has at most 40 characters (vercel/ai issue 8132, microsoft/autogen issue 6377),
`call_id` of the Responses API 64 (decolua/9router issue 393); the pattern is `^[a-zA-Z0-9_-]+$`, and names of functions and speakers
have 1 to 64 of the same characters.
"""

from __future__ import annotations

import re
from typing import Final

from rath_bridge.model.digests import digest

CALL_ID: Final = 40
"""Characters of a call id that every provider takes."""
RESPONSES_CALL_ID: Final = 64
NAME: Final = 64

_ALLOWED: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")
_OTHERS: Final = re.compile(r"[^a-zA-Z0-9_-]")


def fitting_id(call_id: str, limit: int = CALL_ID) -> str:
    """Return a call id as it is, or, where it is too long or has other characters, one that is made of its digest.

    A function of the id alone, so that a call and its answer stay a pair wherever they stand.
    """
    if len(call_id) <= limit and _ALLOWED.match(call_id):
        return call_id
    return f"call_{_digest(call_id)[:24]}"


def fitting_name(name: str, limit: int = NAME) -> str:
    """Return the name of a tool or a speaker with ``_`` for what is not allowed; two names that differ stay two."""
    if len(name) <= limit and _ALLOWED.match(name):
        return name
    return f"{_OTHERS.sub('_', name)[: limit - 9]}_{_digest(name)[:8]}"


def _digest(text: str) -> str:
    return digest(text.encode("utf-8", "surrogatepass"))
