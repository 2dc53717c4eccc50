"""A cipher that needs no package: enough to tell whether something is left in clear."""

from __future__ import annotations


class Xor:
    """Turns every byte around."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "xor", bytes(b ^ 0x5A for b in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(b ^ 0x5A for b in ciphertext)
