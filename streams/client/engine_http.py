"""One bounded GET from an engine.

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
    """Status and body, whatever the status. `timeout_s` bounds each wait for the answer.

    Raises `OSError`, `NotHttpError`.
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
        connection.request("GET", target, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read(BODY_BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise NotHttpError(f"{url[:200]!r}: {error!r}") from error
    finally:
        connection.close()
    if len(body) > BODY_BYTES_MAX:
        raise NotHttpError(f"{url[:200]!r}: an answer of more than {BODY_BYTES_MAX} bytes")
    return answer.status, body
