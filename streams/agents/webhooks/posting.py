"""One attempt to post a message. It says what came of it and never raises for what others do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar

_DETAIL_CHARS_MAX: Final = 200
_GONE: Final = 410
# The target is overloaded or not there at the moment; the message is not at fault.
_PASSING: Final = frozenset({408, 425, 429})
_RETRY_AFTER_S_MAX: Final = 3_600.0


class Posted(StrEnum):
    """What came of an attempt. `TROUBLE` is the target's, `REFUSED` is about this message."""

    DELIVERED = "delivered"
    TROUBLE = "trouble"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt's outcome, with words on it. `retry_after_s`: how long the target wants rest."""

    posted: Posted
    detail: str = ""
    retry_after_s: float = 0.0


def new_session() -> ClientSession:
    """Keeps no cookies, and asks no proxy of the environment."""
    return ClientSession(cookie_jar=DummyCookieJar(), trust_env=False, auto_decompress=False)


async def post(
    session: ClientSession, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
) -> Attempt:
    """Posts once. A redirect is not followed: only what the policy lists hears anything.

    What the target says beside its status is not read.
    """
    timeout = ClientTimeout(total=timeout_s)
    try:
        async with session.post(
            url, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as answer:
            status, rest = answer.status, answer.headers.get("retry-after", "")
    except TimeoutError:
        return Attempt(Posted.TROUBLE, f"no answer within {timeout_s:g} s")
    except (ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
        return Attempt(Posted.TROUBLE, f"{type(error).__name__}: {error}"[:_DETAIL_CHARS_MAX])
    return _judge(status, rest)


def _judge(status: int, rest: str) -> Attempt:
    detail = f"status {status}"
    if 200 <= status < 300:
        return Attempt(Posted.DELIVERED, detail)
    if status == _GONE:
        return Attempt(Posted.GONE, detail)
    if status >= 500 or status in _PASSING:
        return Attempt(Posted.TROUBLE, detail, _seconds(rest))
    return Attempt(Posted.REFUSED, detail)


def _seconds(rest: str) -> float:
    """Seconds of a `Retry-After`; a date counts for nothing, as clocks differ."""
    if not (rest.isascii() and rest.isdigit()):
        return 0.0
    return min(float(rest), _RETRY_AFTER_S_MAX)
