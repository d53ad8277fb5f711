"""A real S3 in trouble, behind a proxy, while engines run on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for
from tests.integration.store_proxy import Mood, StoreProxy, store_proxy
from tests.integration.test_archive import archived_to, command, environment, observed

from dalsegno.client import Client
from dalsegno.ops.archived import open_archive
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka

PARTITIONS = 2
FAILURES = "dalsegno_archive_failures_total"
TROUBLES = {
    Mood.DOWN: ("unreachable",),
    Mood.HANGS: ("slow",),
    Mood.DENIES: ("denied",),
    Mood.FULL: ("full",),
    Mood.LIES: ("damaged",),
    Mood.CUTS: ("unreachable", "damaged"),
    Mood.HALVES: ("damaged",),
}


@pytest.fixture
def proxy(s3: EmbeddedS3) -> Iterator[StoreProxy]:
    with store_proxy(s3) as made:
        yield made


class Rig:
    """An engine whose archive is behind the proxy, and a client."""

    def __init__(
        self, lab: Lab, s3: EmbeddedS3, proxy: StoreProxy, patch: pytest.MonkeyPatch, **more: str
    ) -> None:
        self.lab, self.proxy = lab, proxy
        self.where = {
            **environment(s3),
            "DALSEGNO_ARCHIVE_ENDPOINT": proxy.endpoint,
            "DALSEGNO_ARCHIVE_READ_TIMEOUT_MS": "1000",
            **more,
        }
        for name, value in {**lab.environment(), **self.where}.items():
            patch.setenv(name, value)
        patch.setenv("DALSEGNO_ARCHIVE_ENDPOINT", s3.endpoint)  # of the test's own looks
        self.settings = EngineSettings()
        self.engine: EngineProcess = lab.engine(fold="served", **self.where)
        self.engine.wait_ready()
        self.client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)

    def start(self, name: str, count: int = 20) -> None:
        runs = {f"{name}-{n}": {"amount": n} for n in range(count)}
        self.client.start_many(observed(), runs)

    def failures(self, troubles: tuple[str, ...]) -> float:
        return sum(
            metric(self.engine, f'{FAILURES}{{trouble="{trouble}"}}') for trouble in troubles
        )

    def end(self, number: int) -> int:
        return self.lab.end(self.lab.topics.events, number)

    def wait_archived(self, what: str = "all of it") -> None:
        """What is in the log now: its last record may be the archive's own word."""
        ends = [self.end(number) for number in range(PARTITIONS)]

        def is_archived() -> bool:
            return all(
                archived_to(self.settings, number) >= end - 1 for number, end in enumerate(ends)
            )

        wait_for(what, is_archived, 120)

    def close(self) -> None:
        self.client.close()
        assert self.engine.term() == 0

    def command(self, *arguments: str) -> dict[str, object]:
        done = command(self.lab.environment(), *arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found


def test_whatever_the_store_does_intake_goes_on_and_the_archive_is_whole_in_the_end(
    lab: Lab, s3: EmbeddedS3, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(lab, s3, proxy, monkeypatch)
    for mood, troubles in TROUBLES.items():
        before = rig.failures(troubles)
        proxy.mood = mood
        rig.start(mood)
        wait_for(f"a failure: {mood}", lambda t=troubles, b=before: rig.failures(t) > b)  # type: ignore[misc]
        assert rig.client.query(f"{mood}-19", timeout="60s").flow == "order", "intake goes on"
        proxy.mood = Mood.FAIR
        rig.wait_archived(f"all of it after {mood}")
        assert metric(rig.engine, "dalsegno_archive_holds_intake") == 0
    rig.close()
    assert rig.command("archive", "verify")["faults"] == []
    assert rig.command("audit", "halves-7", "--archive-only")["differences"] == []
    # Each failure is counted once and waited after: some requests, not a storm of them.
    assert all(proxy.seen[mood, "PUT"] < 60 for mood in TROUBLES)


def test_at_its_bound_a_partition_reads_no_further_until_the_archive_is_nearer(
    lab: Lab, s3: EmbeddedS3, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.mood = Mood.DOWN
    bound, segment = 300, 65_536
    rig = Rig(
        lab, s3, proxy, monkeypatch,
        DALSEGNO_ARCHIVE_BACKLOG_EVENTS=str(bound),
        DALSEGNO_ARCHIVE_SEGMENT_BYTES=str(segment),
        DALSEGNO_BATCH_RECORDS_MAX="50",
    )  # fmt: skip
    rig.start("many", 2_000)
    wait_for(
        "both partitions at their bound",
        lambda: metric(rig.engine, "dalsegno_archive_holds_intake") == PARTITIONS,
    )
    for number in range(PARTITIONS):
        backlog = metric(rig.engine, f'dalsegno_archive_backlog_events{{partition="{number}"}}')
        assert bound < backlog <= bound + 50
        assert rig.end(number) > 2 * bound, "the log has more, and nothing of it is lost"
    # What was read goes on to be answered, and a crash changes nothing of the bound.
    rig.engine.kill()
    rig.engine.restart()
    rig.engine.wait_ready()
    wait_for(
        "both partitions at their bound again",
        lambda: metric(rig.engine, "dalsegno_archive_holds_intake") == PARTITIONS,
    )
    proxy.mood = Mood.FAIR
    rig.wait_archived()
    wait_for("no hold", lambda: metric(rig.engine, "dalsegno_archive_holds_intake") == 0)
    assert rig.client.query("many-1999", timeout="60s").flow == "order"
    rig.close()
    assert rig.command("archive", "verify")["faults"] == []


def test_what_a_crash_between_segment_and_manifest_leaves_is_swept(
    lab: Lab, s3: EmbeddedS3, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.mood = Mood.HOLDS_MANIFESTS
    rig = Rig(
        lab, s3, proxy, monkeypatch,
        DALSEGNO_ARCHIVE_SWEEP_INTERVAL_MS="500",
        DALSEGNO_ARCHIVE_ORPHAN_AGE_MS="0",
        DALSEGNO_ARCHIVE_READ_TIMEOUT_MS="60000",
    )  # fmt: skip

    def names() -> tuple[set[str], set[str]]:
        with open_archive(rig.settings) as archive:
            held = [archive.held(number) for number in range(PARTITIONS)]
        return {n for each in held for n in each.segments}, {n for e in held for n in e.manifests}

    rig.start("first")
    wait_for("a manifest on its way", lambda: proxy.seen[Mood.HOLDS_MANIFESTS, "PUT"] >= 2)
    (left,), none = names()
    assert none == set()
    rig.engine.kill()
    rig.start("second")  # so the next owner makes another segment
    proxy.mood = Mood.FAIR
    rig.engine.restart()
    rig.engine.wait_ready()
    wait_for("it is swept", lambda: metric(rig.engine, "dalsegno_archive_swept_total") >= 1)
    rig.wait_archived()
    rig.close()
    segments, manifests = names()
    assert segments == manifests
    assert left not in segments
    assert rig.command("archive", "verify")["faults"] == []
    assert rig.command("audit", "first-3", "--archive-only")["differences"] == []
