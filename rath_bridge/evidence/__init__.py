"""Evidence packets: a session, whole, as files that a person can check with ``sha256sum`` alone.

Layout (``docs/format/packet.md``)::

    chunks.jsonl    each line exactly an envelope; its sha256 is the chunk's id; parents before children
    bodies.jsonl    each line exactly a body, in the order of the envelopes; erased ones absent
    blobs/<digest>  long texts, native records, files and items of trees
    trees/<digest>  nodes of trees, raw
    refs.json       every ref of the sessions, with its reflog
    manifest.json   format version, sessions, heads, counts, software, what is erased or absent
    SHA256SUMS      for ``sha256sum -c``: every other file, sorted
"""

from rath_bridge.evidence.export import export_packet as export_packet
from rath_bridge.evidence.verify import PacketReport as PacketReport
from rath_bridge.evidence.verify import verify_packet as verify_packet

__all__ = ["PacketReport", "export_packet", "verify_packet"]
