"""The formats that other tools speak: ATIF, OpenAI chat messages, OpenAI Responses items, OTLP, Markdown; files in and out."""

from rath_bridge.interchange.formats import Format as Format
from rath_bridge.interchange.formats import decode as decode
from rath_bridge.interchange.formats import documents as documents
from rath_bridge.interchange.formats import encode as encode
from rath_bridge.interchange.formats import format_named as format_named
from rath_bridge.interchange.formats import format_of as format_of
from rath_bridge.interchange.formats import formats as formats
