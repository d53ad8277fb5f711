"""One bounded request to an engine.

Its address came from a topic: nothing but HTTP is spoken to it, no redirect is followed, and no
proxy of the environment lies between.
"""

from __future__ import annotations

import http.client
from typing import Final
from urllib.parse import urlsplit

BODY_BYTES_MAX: Final = 64 << 20
CONNECT_S: Final = 3.0
"""A host that is gone does not answer at all: do not wait for it as long as for an answer."""


class NotHttpError(Exception):
    """The address is not one of an HTTP server, or what answers there does not speak HTTP."""


def http_get(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body, whatever the status; see `http_call`."""
    return http_call("GET", url, timeout_s)


def http_call(
    method: str,
    url: str,
    timeout_s: float,
    body: bytes | None = None,
    *,
    bytes_max: int = BODY_BYTES_MAX,
) -> tuple[int, bytes]:
    """Status and body, whatever the status. `timeout_s` bounds each wait for the answer.

    Raises `OSError`, `NotHttpError`; also for an answer of more than `bytes_max`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise NotHttpError(f"{url[:200]!r}: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise NotHttpError(f"{url[:200]!r} is not an address of an engine")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=min(CONNECT_S, timeout_s))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.connect()
        connection.sock.settimeout(timeout_s)
        connection.request(method, target, body, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        found = answer.read(bytes_max + 1)
    except http.client.HTTPException as error:
        raise NotHttpError(f"{url[:200]!r}: {error!r}") from error
    finally:
        connection.close()
    if len(found) > bytes_max:
        raise NotHttpError(f"{url[:200]!r}: an answer of more than {bytes_max} bytes")
    return answer.status, found
