"""How a post of a package is signed: the headers of Standard Webhooks 1.0, and the id of our key.

Signed is `<id>.<timestamp>.<body>` with HMAC-SHA256; the header holds `v1,` and the MAC in base64.
Source: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from typing import Final

ID: Final = "webhook-id"
"""The same for every attempt and every repeat of one message: a receiver takes it once."""

TIMESTAMP: Final = "webhook-timestamp"
"""Unix seconds of the attempt: a receiver refuses what is older than some minutes."""

SIGNATURE: Final = "webhook-signature"
KEY_ID: Final = "dalsegno-key-id"
"""Which secret signed, by the id that the policy names."""

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64


def signature(secret: bytes, message_id: str, at_s: int, body: bytes) -> str:
    """The value of the signature header."""
    signed = f"{message_id}.{at_s}.".encode() + body
    return "v1," + b64encode(hmac.digest(secret, signed, "sha256")).decode()


def secret_of(text: str) -> bytes:
    """The secret that `whsec_<base64>` stands for. Raises `ValueError`, without the secret."""
    if not text.startswith(SECRET_PREFIX):
        raise ValueError(f"a webhook secret begins with {SECRET_PREFIX}")
    try:
        secret = b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what follows {SECRET_PREFIX} is no base64") from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ValueError(
            f"a webhook secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes,"
            f" not {len(secret)}"
        )
    return secret
