"""One service as a real HTTP server.

    python -m examples.risk_control.service NAME PORT LEDGER [HOST]

`POST /` with {"application", "facts"}; headers `Idempotency-Key` and `Epoch`. Answers 200 with the
service's answer, 409 to a superseded attempt, 400 to what it cannot read.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from examples.risk_control.ledger import Entry, Ledger, LowerEpoch
from examples.risk_control.rules import SERVICES

WORK_S = 0.03


class Service:
    """Answers one question, writes what it did into its ledger."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._answer = SERVICES[name]
        self._ledger = ledger
        self._busy: dict[str, asyncio.Lock] = {}

    async def post(self, request: web.Request) -> web.Response:
        try:
            key, epoch = request.headers["Idempotency-Key"], int(request.headers["Epoch"])
            body = await request.json()
            application, facts = str(body["application"]), dict(body["facts"])
        except (KeyError, ValueError) as error:
            return web.json_response({"error": f"unreadable request: {error!r}"}, status=400)
        async with self._busy.setdefault(key, asyncio.Lock()):
            return await self._apply(key, epoch, application, facts)

    async def _apply(
        self, key: str, epoch: int, application: str, facts: dict[str, object]
    ) -> web.Response:
        try:
            before = self._ledger.known(key, epoch)
            if before is None:
                await asyncio.sleep(WORK_S)
                self._ledger.known(key, epoch)
                before = Entry(key, epoch, application, self._answer(application, facts))
                self._ledger.record(before)
        except LowerEpoch as refusal:
            return web.json_response({"error": str(refusal), "seen": refusal.seen}, status=409)
        return web.json_response(before.answer)


def main(name: str, port: str, path: str, host: str = "127.0.0.1") -> None:
    """Serve until killed."""
    app = web.Application()
    app.router.add_post("/", Service(name, Ledger(Path(path))).post)
    app.router.add_get("/health", lambda _: web.Response(text="ok"))
    web.run_app(app, host=host, port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
