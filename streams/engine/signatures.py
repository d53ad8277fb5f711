"""Ed25519 as the intake needs it: the one place where signatures are checked."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def verify_ed25519(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is of this message by this key. Never raises for what they hold."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
