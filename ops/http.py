"""One bounded GET."""

import urllib.error
import urllib.request


class NotHttpError(Exception):
    """The address is not HTTP: it came from a topic, so it is not followed anywhere else."""


def http_get(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body, whatever the status. Raises OSError, NotHttpError."""
    if not url.startswith(("http://", "https://")):
        raise NotHttpError(f"{url[:200]!r} is not an address of an engine")
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310 - checked above
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
