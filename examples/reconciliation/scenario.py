"""The course of events: accounts come in, bookings fail, a clerk decides, the service returns."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Final

from dalsegno.client import Client, RunResult
from examples.desk import Desk, Package
from examples.reconciliation import services
from examples.reconciliation.flow import NAME, TTL_S, scaled
from examples.reconciliation.rules import taken_back
from examples.risk_control.processes import wait_for
from examples.stage import Stage

FLOW: Final = "examples.reconciliation.flow:reconciliation"
LIMIT_S: Final = 90.0
_STARTS_PER_S: Final = 12.0
_FAILING_S: Final = 1.0
"""How long the booking service takes bookings and loses its answers before it dies."""
_LOOK_S: Final = 5.0
"""How often the clerk looks at the desk once the service is back."""

Tell = Callable[[str, dict[str, RunResult]], None]


class Scenario:
    """`tell` is called some times a second with what happens and the ends so far."""

    def __init__(self, stage: Stage, accounts: Sequence[str], tell: Tell) -> None:
        self.stage, self.accounts, self._tell = stage, accounts, tell
        self._client = Client(bootstrap_servers=stage.bootstrap, prefix=stage.prefix)
        self._ends: dict[str, RunResult] = {}
        self._started: list[str] = []
        self._next_look = 0.0
        self.shown = ""

    def up(self) -> None:
        """Topics, services, engine, workers and the clerk's key; returns when all are ready."""
        self.stage.prepare()
        urls = services.start(self.stage)
        self.stage.engine()
        for name in ("worker-1", "worker-2"):
            self.stage.worker(name, FLOW)
        self.clerk = Desk(self.stage, "ana")
        self.stage.ready(urls)

    def play(self) -> dict[str, RunResult]:
        """From the first account to the last end; returns the ends."""
        third = len(self.accounts) // 3
        self._start(self.accounts[:third])
        self._until("bookings go well", lambda: len(self._ends) >= third // 3)
        self._start(self.accounts[third : 2 * third])
        self._fail()
        self._start(self.accounts[2 * third :])
        packages = self._wait_for_packages()
        self.shown = self.clerk.show(packages[0].name)
        self._decide(packages)
        self._next_look = time.monotonic() + _LOOK_S
        self._until("the booking service is back", self._all_ended)
        self._client.close()
        return self._ends

    def _start(self, accounts: Sequence[str]) -> None:
        begun = time.monotonic()
        for number, account in enumerate(accounts):
            time.sleep(max(0.0, begun + number / _STARTS_PER_S - time.monotonic()))
            self._client.start(scaled, {"account": account}, run_id=account)
            self._started.append(account)
            self._look("accounts come in")

    def _look(self, what: str) -> None:
        for account in self._started:
            if account not in self._ends and (end := self._client.result(account)) is not None:
                self._ends[account] = end
        self._tell(what, self._ends)

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + LIMIT_S
        self._look(what)
        while not condition():
            if time.monotonic() > limit:
                return
            time.sleep(0.1)
            self._look(what)

    def _fail(self) -> None:
        """The service takes bookings and loses its answers; then it is gone."""
        url = self.stage.env["RECONCILIATION_BOOKING_URL"]
        with urllib.request.urlopen(urllib.request.Request(url + "fail", method="POST")):
            over = time.monotonic() + _FAILING_S
        self._until("the booking service loses its answers", lambda: time.monotonic() > over)
        self.stage.fleet.kill("booking")

    def _wait_for_packages(self) -> list[Package]:
        """Until every run that has not ended is put to a person: the outage outlasts its life."""
        found: list[Package] = []
        limit = time.monotonic() + LIMIT_S
        next_look = time.monotonic() + TTL_S
        what = f"the booking service is down; runs live {TTL_S} s"
        while time.monotonic() < limit:
            self._look(what)
            if time.monotonic() > next_look:
                found = self.clerk.waiting(NAME)
                if len({each.run_id for each in found}) + len(self._ends) == len(self.accounts):
                    break
                next_look = time.monotonic() + 1.0
            time.sleep(0.1)
        return found

    def _decide(self, packages: Sequence[Package]) -> None:
        """Takes back what is another department's, while the service is still away; a decision on
        what is decided already is tried, and refused. Once it is back, the rest is tried again.
        """
        lines = self.clerk.freeze(NAME, self.stage.folder)
        back = [
            lines[each.name]
            for each in packages
            if taken_back(each.run_id) and "compensate" in each.options
        ]
        again = [line for line in lines.values() if line not in back]
        self._look("the clerk decides")
        self.clerk.decide_all("compensate", back, "another department books these")
        self.clerk.decide_all("retry", back, "changed my mind")
        self.stage.fleet.restart("booking")
        wait_for(self.stage.env["RECONCILIATION_BOOKING_URL"] + "health")
        self.clerk.decide_all("retry", again, "the booking service is back")

    def _all_ended(self) -> bool:
        """Also what the outage kept from being taken back for too long is tried again by now."""
        if time.monotonic() > self._next_look and len(self._ends) < len(self.accounts):
            if lines := self.clerk.freeze(NAME, self.stage.folder).values():
                self.clerk.decide_all("retry", lines, "the booking service is back")
            self._next_look = time.monotonic() + _LOOK_S
        return len(self._ends) == len(self.accounts)
