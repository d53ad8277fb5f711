"""`python -m tests.integration.four_groups.services_process PORT FOLDER SEED`: every service of the
examples in one process, each with its book in FOLDER.

`POST /control` with {"EXAMPLE/SERVICE": "down" | "loses answers" | ""}: a service that is down
breaks every connection, one that loses answers acts and then breaks it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aiohttp import web
from examples.documents import services as documents
from examples.documents.sources import generated
from examples.order import rules as order_rules
from examples.order.ledger import Ledger
from examples.order.service import Service as OrderService
from examples.reconciliation import services as reconciliation
from examples.risk_control import rules as risk_rules
from examples.risk_control.ledger import Ledger as RiskLedger
from examples.risk_control.service import Service as RiskService

MODES = {"down", "loses answers", ""}
DOCUMENTS = 500
"""Numbers of the documents that the store holds."""


def risk(name: str, folder: Path) -> web.Application:
    app = web.Application()
    book = RiskLedger(folder / f"risk-{name}.jsonl")
    app.router.add_post("/", RiskService(name, book).post)
    return app


def order(name: str, folder: Path, seed: int) -> web.Application:
    service = OrderService(name, Ledger(folder / f"{name}.jsonl"), seed)
    app = web.Application()
    app.router.add_post("/do", service.do)
    app.router.add_post("/undo", service.undo)
    app.router.add_get("/done", service.done)
    return app


def application(folder: Path, seed: int) -> web.Application:
    """All of them, each under /EXAMPLE/SERVICE/."""
    modes: dict[str, str] = {}

    @web.middleware
    async def unreliable(request: web.Request, handler: object) -> web.StreamResponse:
        mode = modes.get("/".join(request.path.split("/")[1:3]), "")
        assert request.transport is not None
        if mode == "down":
            request.transport.abort()
            return web.Response()
        answer: web.StreamResponse = await handler(request)  # type: ignore[operator]
        if mode == "loses answers":
            request.transport.abort()
        return answer

    async def control(request: web.Request) -> web.Response:
        given = await request.json()
        assert set(given.values()) <= MODES
        modes.update(given)
        return web.json_response(modes)

    root = web.Application(middlewares=[unreliable], client_max_size=1 << 24)
    root.router.add_post("/control", control)
    root.router.add_get("/health", lambda _: web.Response(text="ok"))
    for name in risk_rules.SERVICES:
        root.add_subapp(f"/risk/{name}/", risk(name, folder))
    for name in order_rules.SERVICES:
        root.add_subapp(f"/order/{name}/", order(name, folder, seed))
    for name in reconciliation.SERVICES:
        root.add_subapp(f"/reconciliation/{name}/", reconciliation.application(name, folder))
    held = [generated(number, seed) for number in range(DOCUMENTS)]
    for name in documents.SERVICES:
        root.add_subapp(f"/documents/{name}/", documents.application(name, folder, held))
    return root


def addresses(url: str) -> dict[str, str]:
    """What the workers' environment says of where the services are."""
    found = {}
    for name in risk_rules.SERVICES:
        variable = "RISK_CONTROL_" + name.upper().replace("-", "_") + "_URL"
        found[variable] = f"{url}risk/{name}/"
    for name in order_rules.SERVICES:
        found[f"ORDER_{name.upper()}_URL"] = f"{url}order/{name}/"
    for name in reconciliation.SERVICES:
        found[f"RECONCILIATION_{name.upper()}_URL"] = f"{url}reconciliation/{name}/"
    for name in documents.SERVICES:
        found[f"DOCUMENTS_{name.upper()}_URL"] = f"{url}documents/{name}/"
    return found


if __name__ == "__main__":
    web.run_app(
        application(Path(sys.argv[2]), int(sys.argv[3])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        print=None,
        access_log=None,
    )
