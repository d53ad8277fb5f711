"""Questions to the engines over HTTP. Any of them answers for any run: it asks the owner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dalsegno.schemas.errors import ValueRefusedError
from dalsegno.schemas.outputs import RunState
from dalsegno.streams.client.directory import Directory
from dalsegno.streams.client.engine_http import NotHttpError, http_get
from dalsegno.streams.client.errors import (
    DeliveryFailed,
    EngineUnavailable,
    UnknownRun,
    VersionNotKept,
)
from dalsegno.streams.client.views import (
    RunVersion,
    RunView,
    read_points,
    read_run,
    read_runs,
    read_version,
)
from dalsegno.streams.core.faultpoint.standing import PointView, newest

T = TypeVar("T")
PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
_MARK_S: Final = 1.0
_ANSWER_S: Final = 8.0
"""Beyond the wait that was asked for; longer than an engine waits for the owner that it asks."""


class Place(NamedTuple):
    """A run, its partition, and the offset that must have been read for the answer."""

    run_id: str
    partition: int
    min_offset: int


class NotYetRead(EngineUnavailable):
    """The owner has not read so far. `lag`: records that it knows to lie before it."""

    def __init__(self, detail: str, lag: int) -> None:
        super().__init__(detail)
        self.lag = lag


class _Partition(msgspec.Struct):
    state: str = ""
    restore: dict[str, float] = {}


class _Trouble(msgspec.Struct):
    error: str = ""
    detail: str = ""
    lag: int = 0
    newest: int = 0
    partition: int | _Partition = 0


class Question:
    """What is asked about one run, again and again. What is shown of it never goes back."""

    def __init__(self, engines: Engines, place: Place) -> None:
        self._engines = engines
        self._place = place
        self._asked_for = place.min_offset
        self.reaches_end = False

    def reach_end(self) -> None:
        """From now on the answer is about all that is in the log now: so 'no such run' is the truth
        as of now. Raises `EngineUnavailable`.
        """
        try:
            end = self._engines.events_end(self._place.partition)
        except DeliveryFailed as error:
            raise EngineUnavailable(f"the end of the log: {error}") from error
        self._place = self._place._replace(min_offset=max(self._asked_for, end - 1))
        self.reaches_end = True

    def to_the_end(self, wait_s: float) -> RunView:
        """Once, and once more before 'no such run' is believed: another client may just have
        started it. Raises as `Engines.run`.
        """
        try:
            return self.ask(wait_s)
        except UnknownRun:
            if self.reaches_end:
                raise
        self.reach_end()
        return self.ask(wait_s)

    def ask(self, wait_s: float, *, until_ended: bool = False) -> RunView:
        """Once. Raises as `Engines.run`."""
        try:
            view = self._engines.ask(self._place, wait_s, until_ended=until_ended)
        except NotYetRead as error:
            if error.lag == 0 and wait_s >= _MARK_S:
                # The log ends with the mark of a transaction, which is no event.
                self._place = self._place._replace(min_offset=self._asked_for)
            raise
        self._asked_for = max(self._asked_for, view.position - 1)
        self._place = self._place._replace(min_offset=max(self._place.min_offset, self._asked_for))
        return view


class Engines:
    """Thread-safe. Knows the engines' addresses from the owners topic, and reads that again when
    one of them does not answer.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._urls: dict[int, str] = {}
        self._stale = True

    def run(self, place: Place, timeout_s: float) -> RunView:
        """The run as its owner holds it, asked again until the time is over.

        Raises `UnknownRun` if the log held no such run when this was called, `EngineUnavailable`,
        `SettingsError` without an owners topic.
        """
        question = Question(self, place)
        return _again(question.to_the_end, timeout_s)

    def version(self, place: Place, version: int, timeout_s: float) -> RunVersion:
        """The run as it was at one of its versions. Raises as `run`, and `VersionNotKept`."""

        def ask(wait_s: float) -> RunVersion:
            try:
                return self._one(place, wait_s, {"version": version}, read_version)
            except UnknownRun:
                # Another client may just have started it: this goes to the end of the log.
                self.run(place, wait_s)
            return self._one(place, wait_s, {"version": version}, read_version)

        return _again(ask, timeout_s)

    def ask(self, place: Place, wait_s: float, *, until_ended: bool = False) -> RunView:
        """One question. The engine waits for `min_offset`, and with `until_ended` for the run's end
        or refusal, at most `wait_s`. Raises as `run`.
        """
        return self._one(place, wait_s, {"until": "ended"} if until_ended else {}, read_run)

    def _one(
        self, place: Place, wait_s: float, asked: Mapping[str, object], read: Callable[[bytes], T]
    ) -> T:
        query = {"min_offset": place.min_offset, "wait_ms": int(wait_s * 1_000), **asked}
        path = f"/runs/{quote(place.run_id, safe='')}?{urlencode(query)}"
        failures: list[str] = []
        for url in self._around(place.partition):
            try:
                status, body = http_get(url + path, wait_s + _ANSWER_S)
                if status == HTTPStatus.OK:
                    return read(body)
                if status == HTTPStatus.NOT_FOUND:
                    raise _not_found(place.run_id, asked, body)
            except (OSError, NotHttpError, msgspec.MsgspecError, ValueRefusedError) as error:
                # Whoever else answers: the next question is not to wait for this one again.
                self._stale = True
                failures.append(f"{url}: {error}")
                continue
            failures.append(f"{url}: {_said(status, body)}")
        self._stale = True
        raise EngineUnavailable(_nobody(failures))

    def runs(
        self, state: RunState | None, flow: str, limit: int, timeout_s: float
    ) -> list[RunView]:
        """What every engine holds that answers in time. Raises `EngineUnavailable` if none does."""
        query = urlencode(
            {
                **({"state": state.value} if state else {}),
                **({"flow": flow} if flow else {}),
                "limit": limit,
            }
        )
        return self._every(f"/runs?{query}", read_runs, timeout_s)[:limit]

    def fault_points(self, timeout_s: float) -> list[PointView]:
        """Those that are not healthy, by name. Raises as `runs`."""
        return newest(self._every("/fault-points", read_points, timeout_s))

    def _every(self, path: str, read: Callable[[bytes], list[T]], timeout_s: float) -> list[T]:
        deadline = time.monotonic() + timeout_s
        found: list[T] = []
        failures: list[str] = []
        urls = dict.fromkeys(self._around(-1))
        for url in urls:
            left_s = max(0.1, deadline - time.monotonic())
            try:
                status, body = http_get(url + path, left_s)
                if status == HTTPStatus.OK:
                    found.extend(read(body))
                    continue
                failures.append(f"{url}: {_said(status, body)}")
            except (OSError, NotHttpError, msgspec.MsgspecError, ValueRefusedError) as error:
                failures.append(f"{url}: {error}")
        if failures:
            self._stale = True
        if len(failures) == len(urls):
            raise EngineUnavailable(_nobody(failures))
        return found

    def events_end(self, partition: int) -> int:
        """The offset after the last event of a partition. Raises `DeliveryFailed`."""
        return self._directory.events_end(partition)

    def addresses(self, partition: int) -> list[str]:
        """All engines, the partition's owner first. Raises `EngineUnavailable`, `SettingsError`."""
        return self._around(partition)

    def lost(self) -> None:
        """None of them could help: the owners topic is read again before the next question."""
        self._stale = True

    def close(self) -> None:
        """Free what is held. May be repeated."""
        self._directory.close()

    def _around(self, partition: int) -> list[str]:
        """All addresses, the partition's owner first."""
        with self._lock:
            if self._stale:
                try:
                    self._urls = self._directory.urls()
                except DeliveryFailed as error:
                    if not self._urls:
                        raise EngineUnavailable(f"the owners topic: {error}") from error
                self._stale = False
            urls = self._urls
        owner = urls.get(partition)
        others = sorted(set(urls.values()) - {owner})
        return [owner, *others] if owner else others


def _again(ask: Callable[[float], T], timeout_s: float) -> T:
    deadline = time.monotonic() + timeout_s
    pause_s = PAUSE_FIRST_S
    while True:
        left_s = deadline - time.monotonic()
        try:
            return ask(max(0.0, min(left_s, PAUSE_MAX_S)))
        except EngineUnavailable:
            if left_s <= pause_s:
                raise
        time.sleep(pause_s)
        pause_s = min(PAUSE_MAX_S, pause_s * 2)


def _not_found(run_id: str, asked: Mapping[str, object], body: bytes) -> Exception:
    trouble = msgspec.json.decode(body, type=_Trouble)
    version = asked.get("version")
    if trouble.error == "version_not_kept" and isinstance(version, int):
        return VersionNotKept(run_id, version, trouble.detail, trouble.newest)
    return UnknownRun(run_id)


def _said(status: int, body: bytes) -> str:
    """What went wrong, as the engine tells it. Raises it when no other engine can know better."""
    try:
        trouble = msgspec.json.decode(body, type=_Trouble)
    except msgspec.MsgspecError:
        return f"{status} {body[:200].decode('utf-8', 'replace')}"
    where = trouble.partition
    if trouble.error == "not_yet_read":
        raise NotYetRead("the run's owner has not read the log so far yet", trouble.lag)
    if trouble.error == "partition_not_ready" and isinstance(where, _Partition):
        share = where.restore.get("share")
        progress = f", {share:.0%} read back" if share is not None else ""
        raise EngineUnavailable(f"the run's partition is {where.state}{progress}", share)
    return f"{status} {trouble.error} {trouble.detail}".rstrip()


def _nobody(failures: list[str]) -> str:
    if not failures:
        return "no engine has claimed a partition yet: is `dalsegno engine` up?"
    return f"no engine answers: {'; '.join(failures)}"
