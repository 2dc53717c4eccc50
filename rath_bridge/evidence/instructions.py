"""What a packet tells its reader about itself: ``VERIFY.md`` for people with coreutils and openssh, ``commands.json`` for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final

from rath_bridge.evidence.claims import ClaimVerdict
from rath_bridge.evidence.coverage import Coverage
from rath_bridge.evidence.layout import signature_file
from rath_bridge.evidence.signing import NAMESPACE
from rath_bridge.model.digests import Digest
from rath_bridge.verbs.inert import one_line

SUMS_COMMAND: Final = "sha256sum --check --strict --quiet SHA256SUMS"
SIGNERS_COMMAND: Final = "signers=$(mktemp) && printf 'signer %s\\n' \"$(cut -d ' ' -f 1,2 signer.pub)\" > \"$signers\""
SIGNATURE_COMMAND: Final = f'ssh-keygen -Y verify -f "$signers" -I signer -n {NAMESPACE} -s SHA256SUMS.sig < SHA256SUMS'
_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|!~&])")


_BEGINNING: Final = f"""\
# How to check this packet

You need `sha256sum` (coreutils) and, for signatures, `ssh-keygen` (OpenSSH 8.2 or later). You need nothing of ours. Unpack the
archive, if it is one, and run the commands in the directory of this file. `report.html` shows the record to people.

## 1. No file was changed

```sh
{SUMS_COMMAND}
```

Silence and status 0: every file is what `SHA256SUMS` says.

## 2. It is from whom you think

"""
_UNSIGNED: Final = """\
The packet was not signed when it was written: somebody who rebuilds all of it is found only by a head (3). Where it was signed
since, `SHA256SUMS.sig` is there.
"""
_SIGNATURE: Final = f"""
A key that came with the packet proves nothing. Take the signer's public key (`signer.pub`) from a place that you trust:

```sh
{SIGNERS_COMMAND}
{SIGNATURE_COMMAND}
```

For a second signature put `SHA256SUMS.2.sig` in its place, and so on.

## 3. It is the history that you know

The last chunk of each line. A head that you noted down earlier, or have from somebody else, must be among the ids of the chunks:

| line | head |
|---|---|
"""
_HEADS: Final = r"""
```sh
{command}
```

It prints the number of the line that is the head. Each of the {chunks} lines of `chunks.jsonl` is one chunk: its sha256, without the
newline, is the chunk's id, `parents` names the chunks before it and `body` its content, a line of `bodies.jsonl`. So a head stands for
everything before it, if all of that is here. Ask (in bash; about a minute for 10 000 chunks):

```sh
ids() {{ while IFS= read -r line; do printf %s "$line" | sha256sum | cut -c 1-64; done < "$1" | sort -u; }}
comm -13 <(ids chunks.jsonl) <(grep -o '"parents":\[[^]]*\]' chunks.jsonl | grep -o '[0-9a-f]\{{64\}}' | sort -u)
comm -13 <(ids bodies.jsonl) <(grep -o '"body":"[0-9a-f]\{{64\}}"' chunks.jsonl | cut -c 9-72 | sort -u)
for f in blobs/* trees/*; do [ ! -f "$f" ] || [ "$(sha256sum < "$f" | cut -c 1-64)" = "${{f##*/}}" ] || echo "$f"; done
```

The second line prints nothing: every chunk that is named as a parent is here. The third prints the digests of contents that were erased
({erased} here) and no others. The fourth prints nothing: every text and tree is what its name says.

## 4. What this does not show

That nothing was changed does not mean that everything is here. `coverage.json` tells:

"""
_END: Final = """
## With our program

`rath-bridge verify PACKET --key signer.pub --head DIGEST` does all of this and more: it follows every reference, counts the
coverage again, and looks at every claim again.
"""


def head_command(head: str) -> str:
    """Return a shell line that prints which line of ``chunks.jsonl`` a head is."""
    ids = 'while IFS= read -r line; do printf %s "$line" | sha256sum; done < chunks.jsonl'
    return f"{ids} | grep -n {head} | cut -d : -f 1"


def verify_md(
    heads: Mapping[str, Digest],
    chunks: int,
    erased: int,
    signers: Sequence[str],
    coverage: Coverage,
    claims: Sequence[ClaimVerdict],
) -> bytes:
    """Return ``VERIFY.md``.

    Args:
        heads: Tip of each ref by name.
        chunks: How many there are.
        erased: Contents that are gone: digests that chunks name and no line has.
        signers: Names of the keys that sign, in order.
        coverage: What the packet covers.
        claims: The ledger.
    """
    parts = [_BEGINNING]
    parts += [f"- `{signature_file(number)}`: key `{key}`\n" for number, key in enumerate(signers, 1)] or [_UNSIGNED]
    parts += [_SIGNATURE, *(f"| {_plain(name)} | `{head}` |\n" for name, head in heads.items())]
    parts.append(_HEADS.format(command=head_command(next(iter(heads.values()), "DIGEST")), chunks=chunks, erased=erased))
    parts += [f"- {_plain(text)}\n" for text in (*coverage.adapters(), *coverage.holes(), *coverage.not_in_packet)]
    parts += [f"- {_plain(name)}: {_plain(spot)}\n" for name, spots in coverage.blind_spots.items() for spot in spots]
    parts.append("\n## 5. What is claimed\n\n")
    if claims:
        parts.append("| claim | says | rests on | holds |\n|---|---|---|---|\n")
        parts += [f"| {_plain(c.claim.id)} | {_plain(c.claim.sentence)} | {c.claim.basis} | {c.found} |\n" for c in claims]
    else:
        parts.append("Nothing.\n")
    return "".join([*parts, _END]).encode()


def commands(heads: Mapping[str, Digest], coverage: Coverage, claims: Sequence[ClaimVerdict]) -> dict[str, Any]:
    """Return ``commands.json``: what checks the packet, what answers questions about it, and what reproduces its claims."""
    first = next(iter(heads.values()), "DIGEST")
    return {
        "check": [
            {"what": "no file was changed", "in": "the packet's directory", "command": SUMS_COMMAND},
            {"what": "who signed it", "in": "the packet's directory", "command": f"{SIGNERS_COMMAND} && {SIGNATURE_COMMAND}"},
            {"what": "everything", "command": f"rath-bridge verify PACKET --key signer.pub --head {first}"},
        ],
        "ask": [
            {"what": "the audit questions, with evidence", "command": f"rath-bridge audit {quote(name)} --packet PACKET"}
            for name in heads
        ],
        "replay": {
            "how": "PROGRAM is what was run. Models and tools answer from the record, nothing is called live, and the first divergence is"
            " named. In Python: rath_bridge.replay(session, run), where run is the graph, agent, team or function as it was.",
            "commands": [
                "rath-bridge import PACKET",
                *(f"rath-bridge replay {quote(name)} -- python PROGRAM" for name in heads if "@" not in name),
            ],
            "recorded_by": [dict(one) for one in coverage.facts.get("adapters", ())],
            "sessions": [{"name": name, "head": head} for name, head in heads.items()],
        },
        "claims": [{"claim": one.claim.id, "command": one.claim.command} for one in claims if one.claim.command],
    }


def _plain(text: str) -> str:
    """Foreign words in Markdown: on one line, and no marks."""
    return _MARKS.sub(r"\\\1", one_line(text, 400))
