"""The bank, the ledger and the booking service as real HTTP servers.

    python -m examples.reconciliation.services NAME PORT FOLDER

* `bank`: `GET /statement?account=`.
* `ledger`: `GET /entries?account=`, and `POST /close` with {"account", "cents"}: the day is closed
  with a balance.
* `booking`: `POST /do` with {"account", "reference", "cents"}; `POST /undo` with {"what", "of"}:
  the key under which it was booked. `POST /fail`: from now on it fails, until it is started again.

Acts carry the headers `Idempotency-Key` and `Epoch`, and stand in FOLDER/NAME.jsonl. Answers 200,
409 to who may not do it any more.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from examples.order.ledger import Entry, Ledger, Refused
from examples.reconciliation.rules import Line, ledger, statement, swallows
from examples.stage import Stage

SERVICES: Final = ("bank", "ledger", "booking")
WORK_S: Final = 0.15
_MODULE: Final = "examples.reconciliation.services"


def start(stage: Stage) -> list[str]:
    """Start all three on a stage, and tell its workers where they are; returns their URLs."""
    urls = [stage.service(name, _MODULE, str(stage.folder)) for name in SERVICES]
    for name, url in zip(SERVICES, urls, strict=True):
        stage.env[f"RECONCILIATION_{name.upper()}_URL"] = url
    stage.fleet.extend(stage.env)
    return urls


class Booker:
    """Writes what it is asked into its book, once for each key, and takes it back once."""

    def __init__(self, book: Ledger) -> None:
        self._book = book
        self._fails = False
        self._busy: dict[str, asyncio.Lock] = {}

    async def do(self, request: web.Request) -> web.Response:
        """The act."""
        key, epoch = request.headers["Idempotency-Key"], int(request.headers["Epoch"])
        body = await request.json()
        account, reference = str(body["account"]), str(body.get("reference", "closed"))
        entry = Entry("do", key, f"{account}/{reference}", 1, int(body["cents"]))
        if self._fails and not swallows(account, reference):
            return self._lost(request)
        async with self._busy.setdefault(key, asyncio.Lock()):
            try:
                if self._book.known(key, epoch) is None:
                    await asyncio.sleep(WORK_S)
                    self._book.known(key, epoch)
                    self._book.record(entry)
            except Refused as refusal:
                return web.json_response({"error": str(refusal)}, status=409)
        return self._lost(request) if self._fails else web.json_response({"booked": key[:12]})

    async def undo(self, request: web.Request) -> web.Response:
        """Takes an act back, or closes the key of one that was never done."""
        undo_key, body = request.headers["Idempotency-Key"], await request.json()
        of = str(body["of"])
        if self._fails:
            return self._lost(request)
        async with self._busy.setdefault(of, asyncio.Lock()):
            entry = self._book.take_back(of, undo_key, str(body["what"]))
        return web.json_response({"was": entry.what})

    async def fail(self, _: web.Request) -> web.Response:
        """The outage begins."""
        self._fails = True
        return web.json_response({"fails": True})

    @staticmethod
    def _lost(request: web.Request) -> web.Response:
        """The connection breaks: whoever asked knows nothing."""
        if request.transport is not None:
            request.transport.abort()
        return web.json_response({})


def _lines(
    found: Callable[[str], list[Line]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(found(request.query["account"]))

    return answer


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def application(name: str, folder: Path) -> web.Application:
    """The service `name`, with its book in `folder`."""
    app = web.Application()
    app.router.add_get("/health", _health)
    if name == "bank":
        app.router.add_get("/statement", _lines(statement))
        return app
    booker = Booker(Ledger(folder / f"{name}.jsonl"))
    if name == "ledger":
        app.router.add_get("/entries", _lines(ledger))
        app.router.add_post("/close", booker.do)
        return app
    app.router.add_post("/do", booker.do)
    app.router.add_post("/undo", booker.undo)
    app.router.add_post("/fail", booker.fail)
    return app


def main(name: str, port: str, folder: str) -> None:
    """Serve until killed."""
    app = application(name, Path(folder))
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
