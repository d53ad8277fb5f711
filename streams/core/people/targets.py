"""Which webhooks a policy may list: nothing is posted anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from dalsegno.schemas.control import Webhook
from dalsegno.schemas.signing import key_id_fault

WEBHOOKS_MAX: Final = 16
URL_CHARS_MAX: Final = 2_048
_TIMEOUT_MS_MAX: Final = 60_000
_WAIT_MS_MAX: Final = 86_400_000
_ATTEMPTS_MAX: Final = 100_000


def webhooks_fault(webhooks: Sequence[Webhook]) -> str:
    """Why these cannot be used, or an empty text."""
    if len(webhooks) > WEBHOOKS_MAX:
        return f"webhooks: {len(webhooks)}, {WEBHOOKS_MAX} may be"
    if len({each.name for each in webhooks}) != len(webhooks):
        return "webhooks: two have one name"
    for each in webhooks:
        if fault := _fault(each):
            return f"webhooks: {each.name[:80]!a}: {fault}"
    return ""


def _fault(webhook: Webhook) -> str:
    if fault := key_id_fault(webhook.name):
        return fault
    if fault := url_fault(webhook.url):
        return f"url: {fault}"
    if fault := key_id_fault(webhook.key_id):
        return f"key_id: {fault}"
    if not 0 < webhook.timeout_ms <= _TIMEOUT_MS_MAX:
        return f"timeout_ms is {webhook.timeout_ms}, use 1 to {_TIMEOUT_MS_MAX}"
    if not 0 < webhook.retry_initial_ms <= webhook.retry_max_ms <= _WAIT_MS_MAX:
        return f"0 < retry_initial_ms <= retry_max_ms <= {_WAIT_MS_MAX} does not hold"
    if not 0 < webhook.attempts_max <= _ATTEMPTS_MAX:
        return f"attempts_max is {webhook.attempts_max}, use 1 to {_ATTEMPTS_MAX}"
    return ""


def url_fault(url: str) -> str:
    """Why nothing can be posted to a URL, or an empty text."""
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        return f"use at most {URL_CHARS_MAX} printable ASCII characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "use https://host/path (or http://, inside a network of yours)"
    if port == 0 or parts.username is not None or parts.password is not None or parts.fragment:
        return "no user, password, fragment or port 0: the signature says who posts"
    return ""
