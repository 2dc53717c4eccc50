"""Names and limits of the packet format, for the writing and the reading side."""

from __future__ import annotations

import re
from typing import Final

FORMAT: Final = "rath-bridge-packet"
VERSION: Final = 3
"""1 had the first five files and objects; 2 adds what an auditor reads, and signatures; 3 adds the index and the spans."""

CHUNKS: Final = "chunks.jsonl"
BODIES: Final = "bodies.jsonl"
REFS: Final = "refs.json"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
CLAIMS: Final = "claims.json"
COMMANDS: Final = "commands.json"
COVERAGE: Final = "coverage.json"
ENVIRONMENT: Final = "environment.json"
INSTRUCTIONS: Final = "VERIFY.md"
REPORT: Final = "report.html"
INDEX: Final = "index.jsonl"
SPANS: Final = "spans.otlp.jsonl"
REQUIRED: Final = (CHUNKS, BODIES, REFS, MANIFEST, SUMS)
ADDED: Final = (CLAIMS, COMMANDS, COVERAGE, ENVIRONMENT, INSTRUCTIONS, REPORT)
"""Required from version 2 on."""
INDEXED: Final = (INDEX, SPANS)
"""Required from version 3 on; either may be empty."""

SIGNATURE: Final = re.compile(r"SHA256SUMS(?:\.([2-9]|[1-9][0-9]))?\.sig\Z")
"""One file for each signer: ``SHA256SUMS.sig``, ``SHA256SUMS.2.sig`` ..."""
MAX_SIGNATURES: Final = 99

OBJECT: Final = re.compile(r"(blobs|trees)/([0-9a-f]{64})\Z")
SUM_LINE: Final = re.compile(rb"([0-9a-f]{64})  ([ -\[\]-~]+)\Z")
"""``<digest>  <name>``; coreutils' escapes for odd names do not occur."""

MAX_LINE: Final = 64 << 20
"""Bytes of one envelope or body."""
MAX_DOCUMENT: Final = 256 << 20
"""Bytes of ``refs.json``, ``manifest.json`` and ``SHA256SUMS``."""
MAX_NODE: Final = 16 << 20
"""Bytes of one tree node."""
MAX_READING: Final = 16 << 20
"""Bytes of each file that is written for people, and of the claims."""
MAX_LISTING: Final = 128 << 20
"""Bytes of an archive's own list of files: about a million of them."""
MAX_FILES: Final = 1 << 20
"""Files in a directory."""
MAX_GROWTH: Final = 200
"""How many times larger than the archive its content may be, beyond `FREE_GROWTH` bytes."""
FREE_GROWTH: Final = 1 << 30


def signature_file(number: int) -> str:
    """Return the name of the n-th signature's file, from 1."""
    return "SHA256SUMS.sig" if number == 1 else f"SHA256SUMS.{number}.sig"


def required(version: int) -> tuple[str, ...]:
    """Return the names of the files that every packet of a version has."""
    return (*REQUIRED, *(ADDED if version >= 2 else ()), *(INDEXED if version >= 3 else ()))


def is_known(name: str, version: int) -> bool:
    """Tell whether a version of the format has a file of that name."""
    if name in REQUIRED or OBJECT.match(name) is not None:
        return True
    if version >= 2 and (name in ADDED or name == SPANS or SIGNATURE.match(name) is not None):
        return True
    return version >= 3 and name == INDEX
