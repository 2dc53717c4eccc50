"""What rewrites a store: content that is erased because somebody asks for it, or because it is old. Envelopes stay, and verify.

Both leave a ``redaction`` chunk in every session that they touched, and both make sure that the bytes are gone from the store's own
files (``docs/evidence.md`` says what remains outside of them).
"""

from rath_bridge.maintenance.prune import Needed as Needed
from rath_bridge.maintenance.prune import Pruned as Pruned
from rath_bridge.maintenance.prune import prune as prune
from rath_bridge.maintenance.redact import Redacted as Redacted
from rath_bridge.maintenance.redact import redact as redact
from rath_bridge.maintenance.searching import Hits as Hits
from rath_bridge.maintenance.searching import find_text as find_text
from rath_bridge.maintenance.uses import Use as Use
from rath_bridge.maintenance.uses import Uses as Uses
from rath_bridge.maintenance.uses import where_used as where_used

__all__ = ["Hits", "Needed", "Pruned", "Redacted", "Use", "Uses", "find_text", "prune", "redact", "where_used"]
