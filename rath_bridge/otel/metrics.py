"""Token and duration metrics by the GenAI and MCP conventions, from finished spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rath_bridge.otel import names as n
from rath_bridge.otel.records import SpanRecord
from rath_bridge.plugins import require

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

TOKENS: Final = "gen_ai.client.token.usage"
DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
WORKFLOW: Final = "gen_ai.workflow.duration"
MCP_CLIENT: Final = "mcp.client.operation.duration"
MCP_SERVER: Final = "mcp.server.operation.duration"

_TOKEN_BUCKETS: Final = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
_SECONDS: Final = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_GENAI: Final = (n.OPERATION, n.PROVIDER, n.REQUEST_MODEL, n.RESPONSE_MODEL, n.ERROR_TYPE)
_MCP: Final = (n.MCP_METHOD, n.TOOL_NAME, n.PROMPT_NAME, n.ERROR_TYPE, n.RPC_STATUS, "mcp.protocol.version", "network.transport")


class Instruments:
    """The histograms of one meter provider."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Make the instruments.

        Args:
            meter_provider: The process's own by default.

        Raises:
            MissingExtraError: OpenTelemetry is not installed.
        """
        api: Any = require("opentelemetry.metrics", "recording metrics", "otel")
        from rath_bridge import __version__

        provider: Any = meter_provider if meter_provider is not None else api.get_meter_provider()
        meter = provider.get_meter(n.SCOPE, __version__, schema_url=n.SCHEMA_URL)

        def seconds(name: str, what: str) -> Any:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=_SECONDS)

        self._tokens = meter.create_histogram(
            TOKENS, "{token}", "Tokens of a model call", explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS
        )
        self._duration = seconds(DURATION, "Duration of a GenAI operation")
        self._first = seconds(FIRST_CHUNK, "Time to the first chunk of a streamed answer")
        self._workflow = seconds(WORKFLOW, "Duration of a workflow")
        self._mcp = {
            "client": seconds(MCP_CLIENT, "Duration of an MCP request as its sender saw it"),
            "server": seconds(MCP_SERVER, "Duration of an MCP request as its receiver saw it"),
        }

    def record(self, record: SpanRecord) -> None:
        """Count one span; what was replayed is not counted (nothing was executed), nor what has not ended."""
        found = record.attributes
        if n.REPLAYED in found or found.get(n.CALL_STATUS) == "pending" or found.get(n.RUN_STATUS) == "open":
            return
        seconds = (record.end - record.start) / 1e6
        operation = found.get(n.OPERATION)
        if n.MCP_METHOD in found and record.kind in self._mcp:
            self._mcp[record.kind].record(seconds, {name: found[name] for name in _MCP if name in found})
        elif operation == "invoke_workflow":
            self._workflow.record(seconds, {name: found[name] for name in (n.WORKFLOW_NAME, n.ERROR_TYPE) if name in found})
        elif operation is not None:
            about = {name: found[name] for name in _GENAI if name in found}
            self._duration.record(seconds, about)
            if isinstance(found.get(n.FIRST_CHUNK), int | float):
                self._first.record(found[n.FIRST_CHUNK], about)
            about.pop(n.ERROR_TYPE, None)
            for kind, name in (("input", n.INPUT_TOKENS), ("output", n.OUTPUT_TOKENS)):
                if isinstance(found.get(name), int | float):  # a count beyond 64 bits is text
                    self._tokens.record(found[name], {**about, n.TOKEN_TYPE: kind})
