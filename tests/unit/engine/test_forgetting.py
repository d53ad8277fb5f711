"""The date by which Kafka's logs have forgotten: from topic settings, or none at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engine.test_checks import TOPICS, right

from dalsegno.streams.engine.checks import check
from dalsegno.streams.engine.forgetting import (
    Broker,
    forgets,
    gone_by_ms,
    rolled_within_ms,
    topics_of_runs,
)
from dalsegno.streams.engine.topics_admin import TopicFacts, differences, plan

BROKER = Broker(retention_check_ms=300_000, cleaner_backoff_ms=15_000)
DAY_MS = 86_400_000


def erasing(**config: str) -> dict[str, TopicFacts]:
    """Topics as they are made with erasure and an archive, and a retention of the events."""
    wanted = plan(TOPICS, 4, ["default"], dev=False, archived=True, erasure=True)
    facts = {topic.name: TopicFacts(topic.partitions, 3, topic.config) for topic in wanted}
    changed = {key.replace("_", "."): value for key, value in config.items()}
    events = facts[TOPICS.events]
    facts[TOPICS.events] = replace(
        events, config={**events.config, "retention.ms": str(7 * DAY_MS), **changed}
    )
    return facts


def checked(facts: dict[str, TopicFacts], *, interval_ms: int = 300_000) -> str:
    found = check(TOPICS, facts, dev=False, archive_interval_ms=interval_ms, erasure=True)
    return "\n".join(found.faults)


def test_a_topic_that_deletes_closes_a_file_and_keeps_it() -> None:
    config = {
        "cleanup.policy": "delete", "segment.ms": "1000", "retention.ms": "20000",
        "file.delete.delay.ms": "300",
    }  # fmt: skip
    (found,) = forgets(TOPICS, {TOPICS.events: TopicFacts(4, 3, config)}, 5_000_000, BROKER)
    assert found.by_ms == 5_000_000 + 1_000 + 20_000 + 300_000 + 300


def test_a_topic_that_compacts_is_cleaned_twice() -> None:
    config = {
        "cleanup.policy": "compact", "segment.ms": "9000", "max.compaction.lag.ms": "2000",
        "delete.retention.ms": "700", "file.delete.delay.ms": "0",
    }  # fmt: skip
    (found,) = forgets(TOPICS, {TOPICS.runs_changelog: TopicFacts(4, 3, config)}, 1_000, BROKER)
    assert found.by_ms == 1_000 + 2 * (2_000 + 15_000) + 700
    assert rolled_within_ms(config) == 2_000
    assert rolled_within_ms({"segment.ms": "9000"}) == 9_000


@pytest.mark.parametrize("text", ["-1", "9223372036854775807", "", "soon"])
def test_without_a_limit_there_is_no_date_and_it_says_what_to_set(text: str) -> None:
    config = {"cleanup.policy": "delete", "segment.ms": "1000", "retention.ms": text}
    compacted = {"cleanup.policy": "compact", "max.compaction.lag.ms": text}
    found = forgets(
        TOPICS,
        {
            TOPICS.events: TopicFacts(4, 3, config),
            TOPICS.runs_changelog: TopicFacts(4, 3, compacted),
        },
        1,
        BROKER,
    )
    assert [each.by_ms for each in found] == [None, None]
    assert "retention.ms" in found[0].remedy
    assert "max.compaction.lag.ms" in found[1].remedy
    assert gone_by_ms(found) is None


def test_the_last_of_the_dates_counts() -> None:
    facts = erasing()
    found = forgets(TOPICS, facts, 0, BROKER)
    assert {each.topic for each in found} == set(topics_of_runs(TOPICS, facts))
    letters = next(each for each in found if each.topic == TOPICS.dead_letters)
    assert gone_by_ms(found) == letters.by_ms
    assert letters.by_ms == 31 * DAY_MS + 300_000 + 60_000


def test_the_checks_pass_where_everything_has_a_date() -> None:
    assert checked(erasing()) == ""


def test_events_that_stay_for_ever_are_a_fault_once_erasure_is_on() -> None:
    assert "t.events never forgets" in checked(erasing(retention_ms="-1"))
    without = check(TOPICS, erasing(retention_ms="-1"), dev=False, erasure=True).faults
    assert any("DALSEGNO_ARCHIVE_BUCKET" in line for line in without)
    assert check(TOPICS, right(), dev=False).faults == ()


def test_events_may_be_limited_only_with_an_archive() -> None:
    facts = erasing()
    assert any("retention.ms is" in line for line in check(TOPICS, facts, dev=False).faults)
    assert check(TOPICS, facts, dev=False, archive_interval_ms=300_000).faults == ()
    assert "may wait 300000 ms" in checked(erasing(retention_ms="900000"))
    assert "retention.bytes" in checked(erasing(retention_bytes="5"))


def test_a_changelog_that_is_never_cleaned_is_a_fault_once_erasure_is_on() -> None:
    facts = erasing()
    changelog = facts[TOPICS.runs_changelog]
    for name, value in (("max.compaction.lag.ms", str(1 << 63)), ("delete.retention.ms", "10**9")):
        wrong = replace(changelog, config={**changelog.config, name: value})
        assert name in checked({**facts, TOPICS.runs_changelog: wrong})
    assert "max.compaction.lag.ms" in changelog.config
    plain = {topic.name: topic for topic in plan(TOPICS, 4, ["default"], dev=False)}
    assert "max.compaction.lag.ms" not in plain[TOPICS.runs_changelog].config


def test_a_retention_that_was_set_is_left_alone() -> None:
    wanted = {t.name: t for t in plan(TOPICS, 4, [], dev=False, archived=True)}
    facts = erasing()
    assert differences(wanted[TOPICS.events], facts[TOPICS.events]) == {}
    assert wanted[TOPICS.events].config["retention.ms"] == "-1", "as it is made"
