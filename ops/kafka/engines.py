"""Find the engines through the owners topic, and ask them over HTTP."""

import http.client
import urllib.parse
from collections.abc import Iterator

import msgspec

from dalsegno.ops.http import NotHttpError, http_get
from dalsegno.ops.kafka.reader import Reader
from dalsegno.schemas import codec
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.engine.settings import EngineSettings

_ANSWER_S = 10.0


class EngineError(Exception):
    """No engine gave an answer. The message says what to do."""


class NoSuchRunError(Exception):
    """The owner of its partition does not know the run."""

    def __init__(self, run_id: str, answer: bytes = b"", *, live: bool = False) -> None:
        erased = b'"erased"' in answer
        run = "live run" if live else "run"
        said = "it was erased" if erased else f"no {run} {run_id}: see `dalsegno runs`"
        super().__init__(said)


def claims(settings: EngineSettings) -> dict[int, Claim]:
    """The newest claim of each partition. Raises ReadError."""
    found: dict[int, Claim] = {}
    with Reader(settings) as reader:
        for partition in range(reader.partitions(settings.topics.owners)):
            for record in reader.read(settings.topics.owners, partition):
                claim = codec.decode_if(Claim, record.value)
                if claim is not None:
                    found[claim.partition] = claim
    return found


class _Run(msgspec.Struct):
    run: dict[str, object]


class _Version(msgspec.Struct):
    version: dict[str, object]


class Listing(msgspec.Struct):
    """Runs. Not `complete`: an engine has not looked at all of its own."""

    runs: list[dict[str, object]]
    complete: bool


class _Plan(msgspec.Struct):
    plan: dict[str, object]


class _Erasure(msgspec.Struct):
    erasure: dict[str, object]


class _Recovery(msgspec.Struct):
    partitions: list[dict[str, object]]


class _Partitions(msgspec.Struct):
    own: list[dict[str, object]]


class Engines:
    """All engines that own a partition. `urls`: base addresses without a slash at the end."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls

    @classmethod
    def find(cls, settings: EngineSettings) -> "Engines":
        """From the owners topic. Raises ReadError, or EngineError when nobody ever claimed."""
        urls = {claim.url.rstrip("/") for claim in claims(settings).values() if claim.url}
        if not urls:
            raise EngineError("no engine has claimed a partition yet: start `dalsegno engine`")
        return cls(sorted(urls))

    def run(self, run_id: str) -> dict[str, object]:
        """The run as its owner sees it, as JSON fields. Raises NoSuchRunError, EngineError."""
        status, body = self._any(f"/runs/{urllib.parse.quote(run_id, safe='')}")
        if status == http.client.NOT_FOUND:
            raise NoSuchRunError(run_id, body)
        return msgspec.convert(_decode(status, body), _Run).run

    def version(self, run_id: str, run_version: int) -> dict[str, object] | None:
        """The run as it was at that version, as JSON fields; None where its owner keeps it not.

        Raises EngineError.
        """
        path = f"/runs/{urllib.parse.quote(run_id, safe='')}?version={run_version}"
        status, body = self._any(path)
        if status == http.client.NOT_FOUND:
            return None
        return msgspec.convert(_decode(status, body), _Version).version

    def runs(self, state: str, flow: str, limit: int) -> Listing:
        """Runs of all partitions. Raises EngineError when none answers."""
        query = urllib.parse.urlencode(
            {k: v for k, v in (("state", state), ("flow", flow), ("limit", limit)) if v}
        )
        answers = [msgspec.convert(each, Listing) for each in self._each(f"/runs?{query}")]
        found = [run for answer in answers for run in answer.runs]
        return Listing(found[:limit], all(answer.complete for answer in answers))

    def partitions(self) -> list[dict[str, object]]:
        """What every engine says of its own partitions. Raises EngineError when none answers."""
        answers = [msgspec.convert(each, _Partitions) for each in self._each("/partitions")]
        return [row for answer in answers for row in answer.own]

    def plan(self, run_id: str, width: int) -> dict[str, object]:
        """The recovery plan of a live run, as JSON fields. Raises NoSuchRunError, EngineError."""
        path = f"/plans/{urllib.parse.quote(run_id, safe='')}?width={width}"
        status, body = self._any(path)
        if status == http.client.NOT_FOUND:
            raise NoSuchRunError(run_id, live=True)
        return msgspec.convert(_decode(status, body), _Plan).plan

    def erasure(self, digest: str, partition: int) -> dict[str, object] | None:
        """The tombstone of a run by the digest of its id, as JSON fields. Raises EngineError."""
        status, body = self._any(f"/erasures/{digest}?partition={partition}")
        if status == http.client.NOT_FOUND:
            return None
        return msgspec.convert(_decode(status, body), _Erasure).erasure

    def recovery(
        self, flow: str, fault_point: str, limit: int, width: int
    ) -> list[dict[str, object]]:
        """What waits to be brought back, by partition. Raises EngineError when none answers."""
        query = urllib.parse.urlencode(
            {"flow": flow, "fault_point": fault_point, "limit": limit, "width": width}
        )
        answers = [msgspec.convert(each, _Recovery) for each in self._each(f"/recovery?{query}")]
        return [row for answer in answers for row in answer.partitions]

    def _any(self, path: str) -> tuple[int, bytes]:
        failures = []
        for url in self.urls:
            try:
                status, body = http_get(url + path, _ANSWER_S)
            except (OSError, NotHttpError) as error:
                failures.append(f"{url}: {_reason(error)}")
                continue
            if status != http.client.SERVICE_UNAVAILABLE:
                return status, body
            failures.append(f"{url}: not ready, {body[:300].decode('utf-8', 'replace')}")
        raise _silent(failures)

    def _each(self, path: str) -> Iterator[object]:
        answers, failures = 0, []
        for url in self.urls:
            try:
                status, body = http_get(url + path, _ANSWER_S)
            except (OSError, NotHttpError) as error:  # its partitions move to the others
                failures.append(f"{url}: {_reason(error)}")
                continue
            if status == http.client.SERVICE_UNAVAILABLE:  # it has just begun, and owns nothing yet
                failures.append(f"{url}: not ready, {body[:300].decode('utf-8', 'replace')}")
                continue
            answers += 1
            yield _decode(status, body)
        if not answers:
            raise _silent(failures)


def _silent(failures: list[str]) -> EngineError:
    return EngineError(f"no engine answers ({'; '.join(failures)}): is `dalsegno engine` up?")


def _decode(status: int, body: bytes) -> object:
    if status != http.client.OK:
        said = body[:300].decode("utf-8", "replace")
        raise EngineError(f"an engine answers {status}: {said}; its log says more")
    return msgspec.json.decode(body)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error))
