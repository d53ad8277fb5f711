"""One service of the shop as a real HTTP server.

    python -m examples.order.service NAME PORT LEDGER SEED

`POST /do` with {"order", "units", "amount"}; headers `Idempotency-Key` and `Epoch`. `POST /undo`
with {"order", "of"}: the key under which it was done. `GET /done?key=` says whether it was. Answers
200, 409 to who may not do it any more, 422 to what it refuses for good, 423 while an order is busy.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

from aiohttp import web

from examples.order.ledger import Entry, Ledger, Refused
from examples.order.rules import faults

WORK_S = 0.01


class Service:
    """Does what it is asked once, under the faults that the seed has for each order."""

    def __init__(self, name: str, ledger: Ledger, seed: int) -> None:
        self._name, self._ledger, self._seed = name, ledger, seed
        self._calls: Counter[tuple[str, bool]] = Counter()
        self._lost: set[tuple[str, bool]] = set()
        self._busy: dict[str, asyncio.Lock] = {}

    async def do(self, request: web.Request) -> web.Response:
        """The act."""
        key, epoch = request.headers["Idempotency-Key"], int(request.headers["Epoch"])
        body = await request.json()
        order = str(body["order"])
        async with self._busy.setdefault(key, asyncio.Lock()):
            try:
                if self._ledger.known(key, epoch) is None:
                    fault = self._fault(order, undo=False)
                    if fault is not None:
                        return fault
                    await asyncio.sleep(WORK_S)
                    self._ledger.known(key, epoch)
                    entry = Entry("do", key, order, int(body["units"]), int(body["amount"]))
                    self._ledger.record(entry)
            except Refused as refusal:
                return web.json_response({"error": str(refusal)}, status=409)
        return self._answer(request, order, undo=False)

    async def undo(self, request: web.Request) -> web.Response:
        """Takes an act back, or closes the key of one that was never done."""
        undo_key, body = request.headers["Idempotency-Key"], await request.json()
        order, of = str(body["order"]), str(body["of"])
        async with self._busy.setdefault(of, asyncio.Lock()):
            if self._ledger.undone(of) is None:
                fault = self._fault(order, undo=True)
                if fault is not None:
                    return fault
                await asyncio.sleep(WORK_S)
                self._ledger.take_back(of, undo_key, order)
        return self._answer(request, order, undo=True)

    async def done(self, request: web.Request) -> web.Response:
        """Whether an act was done, for whoever does not know."""
        try:
            known = self._ledger.known(request.query["key"], 1 << 31) is not None
        except Refused:
            known = False
        return web.json_response({"done": known})

    def _fault(self, order: str, *, undo: bool) -> web.Response | None:
        """What keeps this call from doing anything."""
        treats = faults(self._seed, self._name, order, undo=undo)
        self._calls[order, undo] += 1
        if self._calls[order, undo] <= treats.busy:
            return web.json_response({"error": f"{order} is busy"}, status=423)
        if treats.refuses:
            return web.json_response({"error": f"{self._name} refuses {order}"}, status=422)
        return None

    def _answer(self, request: web.Request, order: str, *, undo: bool) -> web.Response:
        """The answer, unless it is the one that gets lost."""
        loses = faults(self._seed, self._name, order, undo=undo).loses_answer
        if loses and (order, undo) not in self._lost:
            self._lost.add((order, undo))
            assert request.transport is not None, "the caller is still there"
            request.transport.abort()
        return web.json_response({"order": order, "service": self._name})


async def health(_: web.Request) -> web.Response:
    """The service listens."""
    return web.Response(text="ok")


def main(name: str, port: str, path: str, seed: str) -> None:
    """Serve until killed."""
    service = Service(name, Ledger(Path(path)), int(seed))
    app = web.Application()
    app.router.add_post("/do", service.do)
    app.router.add_post("/undo", service.undo)
    app.router.add_get("/done", service.done)
    app.router.add_get("/health", health)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
