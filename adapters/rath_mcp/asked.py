"""What a server asks of its client in the middle of a call: sampling, elicitation, roots. Asked again in a replay.

Only what the client says it can answer is asked of it, and only in the era with a handshake: in the later one such questions stand in
results (``input_required``), and the client asks again with its answers, so they need no more than an equal request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rath_mcp.frames import mapping

Json = dict[str, Any]

ABLE: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
"""Methods, and the capability with which a client says that it answers them."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request of the server on record."""

    method: str
    params: Any
    answer: Json | None = None
    """What the client said: ``{"result": ...}`` or ``{"error": ...}``; None where it said nothing."""

    def may_go_to(self, capabilities: Mapping[str, Any]) -> bool:
        """Tell whether a client with these capabilities can be asked."""
        return self.method in ABLE and ABLE[self.method] in capabilities

    def request(self, request_id: Any) -> Json:
        """Return the message that asks."""
        params = {} if self.params is None else {"params": self.params}
        return {"jsonrpc": "2.0", "id": request_id, "method": self.method, **params}

    def is_same(self, answer: Mapping[str, Any]) -> bool:
        """Tell whether the client says what it said on record; how it words a refusal does not count."""
        if self.answer is None:
            return True
        if "error" in self.answer or "error" in answer:
            return mapping(self.answer.get("error")).get("code") == mapping(answer.get("error")).get("code")
        return _plain(self.answer.get("result")) == _plain(answer.get("result"))


def _plain(result: Any) -> Any:
    return {key: value for key, value in mapping(result).items() if key != "_meta" and value is not None}
