"""Calls of an example's HTTP services, and what their answers mean for a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import aiohttp

from dalsegno.client import DependencyDown, Permanent, Transient


class Services:
    """The services of one example: `url(service)` says where each is.

    One session for all of them, made on the loop of whoever asks first. A flow hands `close` to
    `on_stop`.
    """

    def __init__(self, url: Callable[[str], str], timeout_s: float) -> None:
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the session, if there is one; the next call makes another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, service: str, path: str, **query: str) -> bytes:
        """What is there now. A read changes nothing, so it is no effect.

        Raises `DependencyDown`.
        """
        try:
            url = self._url(service) + path
            async with self._opened().get(url, params=query) as response:
                response.raise_for_status()
                return await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DependencyDown(service, message=f"no answer: {error!r}") from error

    async def post(
        self, service: str, path: str, body: Mapping[str, object], *, key: str, epoch: int
    ) -> dict[str, object]:
        """Have something done once under `key`.

        Raises `DependencyDown`, `Permanent` for what the service refuses (422), `Transient`.
        """
        headers = {"Idempotency-Key": key, "Epoch": str(epoch)}
        try:
            url = self._url(service) + path
            async with self._opened().post(url, json=body, headers=headers) as response:
                answer: dict[str, object] = await response.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DependencyDown(service, message=f"no answer: {error!r}") from error
        if response.status == HTTPStatus.OK:
            return answer
        said = f"{service} answered {response.status}: {answer.get('error')}"
        if response.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise Permanent(said, error_class="refused")
        raise Transient(said)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        return self._session
