"""Ed25519 signatures over ``SHA256SUMS``, in the format of ``ssh-keygen -Y sign`` (OpenSSH, PROTOCOL.sshsig).

Anybody with OpenSSH checks them without us; the private key may be an OpenSSH or a PEM file. The same key over the same packet
gives the same bytes.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any, Final

from rath_bridge.errors import PacketError
from rath_bridge.verbs.fsck import Finding

NAMESPACE: Final = "rath-bridge-packet"
"""What a signature is for: ``ssh-keygen -Y verify -n rath-bridge-packet``."""
_KIND: Final = b"ssh-ed25519"
_MAGIC: Final = b"SSHSIG"
_ARMOUR: Final = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END SSH SIGNATURE-----\s*\Z")
_KEY: Final = re.compile(r"ssh-ed25519\s+([A-Za-z0-9+/]+={0,2})")
MOST: Final = 1 << 16
"""Bytes of a signature or a file of keys that are read."""

KeyFile = str | os.PathLike[str]


class KeyFileError(PacketError):
    """A file that holds no key which packets are signed with.

    Attributes:
        path: The file.
        problem: What is wrong with it.
    """

    exit_status = 2

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"cannot take a key from {path}: {problem}. Make one with: ssh-keygen -t ed25519 -f {path}")


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature that a packet carries."""

    file: str
    """``SHA256SUMS.sig``, ``SHA256SUMS.2.sig`` ..."""
    key: str | None
    """The signer's key as ``ssh-keygen -l`` shows it, ``SHA256:…``; None where it cannot be read."""
    problem: str | None = None
    """Why it does not hold; None where it does."""


def fingerprint(key: bytes) -> str:
    """Return a raw public key's name, as ``ssh-keygen -l`` prints it."""
    return "SHA256:" + b64encode(sha256(_strings(_KIND, key)).digest()).decode().rstrip("=")


def signer_name(key: Any) -> str:
    """Return the name of a private key's public half."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return fingerprint(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def load_signer(path: KeyFile, password: str | None = None) -> Any:
    """Read a private Ed25519 key, OpenSSH's format or PEM.

    Raises:
        KeyFileError: It is none, or it is encrypted and the password does not open it.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    data = Path(path).read_bytes()
    load = load_ssh_private_key if b"BEGIN OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key = load(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(str(path), f"it is no private key that can be opened ({error})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(str(path), "it holds another kind of key than Ed25519")
    return key


def load_keys(path: KeyFile) -> tuple[bytes, ...]:
    """Read public Ed25519 keys: a ``.pub`` file, an ``allowed_signers`` or ``authorized_keys`` file, or PEM.

    Returns:
        Raw keys, 32 bytes each; a signature of one of them counts.

    Raises:
        KeyFileError: It names none.
    """
    data = Path(path).read_bytes()[:MOST]
    if b"PRIVATE KEY" in data:
        raise KeyFileError(str(path), "it is a private key; give the public one (.pub)")
    if b"BEGIN PUBLIC KEY" in data:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

        try:
            raw = load_pem_public_key(data).public_bytes(Encoding.Raw, PublicFormat.Raw)
        except ValueError as error:
            raise KeyFileError(str(path), f"it is no Ed25519 key ({error})") from error
        return (raw,)
    found: list[bytes] = []
    for line in data.decode("utf-8", "replace").splitlines():
        match = None if line.lstrip().startswith("#") else _KEY.search(line)
        if match:
            try:
                kind, raw = _take(b64decode(match[1], validate=True), 2)
            except ValueError as error:
                raise KeyFileError(str(path), f"a key in it is damaged ({error})") from error
            if kind == _KIND and len(raw) == 32:
                found.append(raw)
    if not found:
        raise KeyFileError(str(path), "it names no ssh-ed25519 key")
    return tuple(dict.fromkeys(found))


def sign(message: bytes, key: Any) -> bytes:
    """Return the signature of a message, armoured as ``ssh-keygen -Y sign -n rath-bridge-packet`` writes it.

    Args:
        message: The bytes of ``SHA256SUMS``.
        key: From `load_signer`.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = key.sign(_signed(message, NAMESPACE.encode(), b"sha512"))
    blob = _MAGIC + (1).to_bytes(4, "big")
    blob += _strings(_strings(_KIND, public), NAMESPACE.encode(), b"", b"sha512", _strings(_KIND, signature))
    text = b64encode(blob).decode()
    lines = [text[at : at + 70] for at in range(0, len(text), 70)]
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]).encode()


def check(file: str, armoured: bytes, message: bytes) -> tuple[Signature, bytes | None]:
    """Check one signature; never raises, whatever stands in the file.

    Args:
        file: Its name, for the report.
        armoured: Its bytes.
        message: The bytes of ``SHA256SUMS``.

    Returns:
        What was found, and the signer's raw public key where it could be read.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public, namespace, hashed, signature = _read(armoured)
    except ValueError as error:
        return Signature(file, None, f"it is no Ed25519 signature of ssh-keygen's format ({error})"), None
    name = fingerprint(public)
    if namespace != NAMESPACE.encode():
        return Signature(file, name, f"it was made for {namespace!r:.60}, not for {NAMESPACE!r}"), public
    if hashed not in (b"sha512", b"sha256"):
        return Signature(file, name, f"it uses the hash {hashed!r:.40}"), public
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _signed(message, namespace, hashed))
    except (InvalidSignature, ValueError):
        return Signature(file, name, "it does not fit SHA256SUMS: something was changed after it was signed"), public
    return Signature(file, name), public


UNSIGNED: Final = "this key has not signed"


def judge(signatures: Sequence[tuple[Signature, bytes | None]], keys: Mapping[str, Sequence[bytes]]) -> Iterator[Finding]:
    """Name every signature that does not hold, and every key file of whose keys none has signed.

    Args:
        signatures: From `check`.
        keys: What `load_keys` found in each file; one of each must have signed.
    """
    for found, _ in signatures:
        if found.problem is not None:
            yield Finding(found.file, found.problem, found.file)
    valid = {public for found, public in signatures if found.problem is None}
    for path, known in keys.items():
        if valid.isdisjoint(known):
            who = ", ".join(found.key or "an unreadable key" for found, _ in signatures)
            there = f"it carries signatures of {who} only" if signatures else "it carries no signature"
            names = ", ".join(fingerprint(key) for key in known[:4])
            yield Finding(names, f"{UNSIGNED} the packet as it is: {there}", path)


def _signed(message: bytes, namespace: bytes, hashed: bytes) -> bytes:
    total = (sha512 if hashed == b"sha512" else sha256)(message).digest()
    return _MAGIC + _strings(namespace, b"", hashed, total)


def _read(armoured: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Public key, namespace, hash and signature."""
    match = _ARMOUR.match(armoured[:MOST])
    if match is None or len(armoured) > MOST:
        raise ValueError("no armour")
    blob = b64decode(b"".join(match[1].split()), validate=True)
    if blob[:6] != _MAGIC or blob[6:10] != (1).to_bytes(4, "big"):
        raise ValueError("another version")
    key, namespace, _, hashed, signature = _take(blob[10:], 5)
    kind, public = _take(key, 2)
    signed_by, raw = _take(signature, 2)
    if kind != _KIND or signed_by != _KIND or len(public) != 32 or len(raw) != 64:
        raise ValueError(f"a key of kind {kind.decode('ascii', 'replace')[:40]}")
    return public, namespace, hashed, raw


def _strings(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "big") + value for value in values)


def _take(data: bytes, count: int) -> list[bytes]:
    """Read exactly so many length-prefixed strings."""
    found: list[bytes] = []
    for _ in range(count):
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size:
            raise ValueError("it is cut")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    if data:
        raise ValueError("bytes are left over")
    return found
