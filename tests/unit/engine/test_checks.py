"""Start-up checks: each fault by name, with what mends it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dalsegno.schemas.control import Policy
from dalsegno.schemas.topics import Topics
from dalsegno.streams.engine.checks import check, dispatch_fault, layout_of, size_fault
from dalsegno.streams.engine.topics_admin import (
    DEAD_LETTER_BYTES_MAX,
    TopicFacts,
    differences,
    plan,
)

TOPICS = Topics("t")


def right(*, dev: bool = False, replication: int = 3) -> dict[str, TopicFacts]:
    return {
        topic.name: TopicFacts(topic.partitions, replication, topic.config)
        for topic in plan(TOPICS, 4, ["default", "gpu"], dev=dev)
    }


def faults(facts: dict[str, TopicFacts], *, dev: bool = False) -> str:
    return "\n".join(check(TOPICS, facts, dev=dev).faults)


def with_config(name: str, **config: str) -> dict[str, TopicFacts]:
    facts = right()
    changed = {key.replace("_", "."): value for key, value in config.items()}
    facts[name] = replace(facts[name], config={**facts[name].config, **changed})
    return facts


def test_topics_as_created_have_no_fault() -> None:
    findings = check(TOPICS, right(), dev=False)
    assert findings.faults == ()
    assert findings.warnings == ()


def test_a_topic_that_was_lowered_is_named_and_leaves_nothing_out_meanwhile() -> None:
    facts = with_config(TOPICS.transitions, max_message_bytes="2000")
    line = "t.transitions: max.message.bytes is 2000, not 1048588: run `dalsegno topics create`"
    assert size_fault(TOPICS, facts, TOPICS.transitions) == size_fault(TOPICS, facts) == line
    assert size_fault(TOPICS, facts, TOPICS.escalations) == ""
    assert size_fault(TOPICS, right()) == ""
    size_of = layout_of(TOPICS, facts).size_of
    assert size_of(TOPICS.transitions) == layout_of(TOPICS, right()).size_of(TOPICS.transitions)


def test_a_missing_topic_names_the_command() -> None:
    facts = right()
    del facts[TOPICS.owners]
    assert faults(facts) == "topic t.owners is missing: run `dalsegno topics create`"
    assert "t.events is missing" in faults({})


def test_unequal_partition_counts_name_both_numbers() -> None:
    facts = right()
    facts[TOPICS.runs_changelog] = replace(facts[TOPICS.runs_changelog], partitions=8)
    assert "8 partitions, t.events has 4" in faults(facts)
    facts = right()
    facts[TOPICS.queue("gpu")] = replace(facts[TOPICS.queue("gpu")], partitions=2)
    assert "t.queue.gpu has 2" in faults(facts)


def test_control_may_have_another_count() -> None:
    facts = right()
    facts[TOPICS.control] = replace(facts[TOPICS.control], partitions=1)
    assert faults(facts) == ""


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        (TOPICS.events, "message.timestamp.type", "CreateTime"),
        (TOPICS.heartbeats, "message.timestamp.type", "CreateTime"),
        (TOPICS.events, "cleanup.policy", "compact"),
        (TOPICS.events, "retention.ms", "604800000"),
        (TOPICS.runs_changelog, "cleanup.policy", "delete"),
        (TOPICS.runs_changelog, "segment.ms", "604800000"),
        (TOPICS.dead_letters, "max.message.bytes", "1048588"),
        (TOPICS.heartbeats, "max.message.bytes", "65536"),
        (TOPICS.events, "min.insync.replicas", "1"),
        (TOPICS.events, "unclean.leader.election.enable", "true"),
    ],
)
def test_each_wrong_setting_is_a_fault_that_create_mends(
    name: str, setting: str, value: str
) -> None:
    facts = right()
    facts[name] = replace(facts[name], config={**facts[name].config, setting: value})
    assert setting in faults(facts)
    assert "dalsegno topics create" in faults(facts)
    topic = next(t for t in plan(TOPICS, 4, ["default", "gpu"], dev=False) if t.name == name)
    assert setting in differences(topic, facts[name])


def test_every_fault_says_what_is_wrong_and_then_the_command_that_mends_it() -> None:
    """`dalsegno topics check` shows what stands behind the last colon as the remedy."""
    facts = with_config(TOPICS.events, retention_ms="60000", min_insync_replicas="1")
    facts[TOPICS.owners] = replace(facts[TOPICS.owners], partitions=3)
    facts[TOPICS.queue("gpu")] = replace(facts[TOPICS.queue("gpu")], partitions=2)
    facts[TOPICS.control] = replace(facts[TOPICS.control], replication=1)
    facts[TOPICS.transitions] = with_config(TOPICS.transitions, retention_ms="-1")[
        TOPICS.transitions
    ]
    del facts[TOPICS.faults]
    lines = check(TOPICS, facts, dev=False, archive_interval_ms=30_000, erasure=True).faults
    told = "\n".join(lines)
    subjects = ("owners", "queue.gpu", "control", "transitions", "faults", "insync", "archived")
    assert [subject for subject in subjects if subject not in told] == []
    for line in lines:
        detail, _, remedy = line.rpartition(": ")
        assert detail, line
        assert re.search(r"`[a-z]+(-[a-z]+)* [^`]+`|`kafka-[a-z-]+`", remedy), line


def test_larger_messages_and_shorter_segments_are_right() -> None:
    facts = right()
    config = {**facts[TOPICS.events].config, "max.message.bytes": "9999999", "segment.ms": "1000"}
    facts[TOPICS.events] = replace(facts[TOPICS.events], config=config)
    roomy = with_config(TOPICS.dead_letters, max_message_bytes="11000000")
    facts[TOPICS.dead_letters] = roomy[TOPICS.dead_letters]
    assert faults(facts) == ""


def test_thin_replication_is_a_fault_and_in_dev_a_warning() -> None:
    assert "replication below 3" in faults(right(replication=1))
    findings = check(TOPICS, right(dev=True, replication=1), dev=True)
    assert findings.faults == ()
    assert len(findings.warnings) == 1


def test_the_layout_has_room_for_framing() -> None:
    layout = layout_of(TOPICS, right())
    assert layout.partitions == 4
    assert layout.queues == ("default", "gpu")
    assert layout.size_of(TOPICS.dead_letters) < DEAD_LETTER_BYTES_MAX
    assert layout.size_of(TOPICS.transitions) < 1_048_588


def test_what_a_policy_bounds_is_not_bounded_by_what_topics_took_at_the_start() -> None:
    layout = layout_of(TOPICS, right())
    assert layout.size_of(TOPICS.queue("default")) > 16_777_216
    assert layout.size_of(TOPICS.control) > 16_777_216


def test_dead_letters_that_take_less_than_the_largest_event_are_a_fault() -> None:
    """Else its original bytes would be lost."""
    facts = with_config(TOPICS.events, max_message_bytes="5000000")
    (told,) = check(TOPICS, facts, dev=True).faults
    assert "t.dead-letters takes 1114124 bytes" in told
    assert "--entity-name t.dead-letters --add-config max.message.bytes=5065536" in told
    roomy = with_config(TOPICS.dead_letters, max_message_bytes="5065536")
    facts[TOPICS.dead_letters] = roomy[TOPICS.dead_letters]
    assert check(TOPICS, facts, dev=True).faults == ()


def test_a_policy_whose_handoffs_are_larger_than_their_topic_takes_is_a_fault() -> None:
    """Else they would leave without a value, and nobody could start them."""
    assert dispatch_fault(TOPICS, right(), Policy()) == ""
    large = Policy(dispatch_bytes_max=5_000_000)
    told = dispatch_fault(TOPICS, right(), large)
    assert "dispatch_bytes_max is 5000000, and t.queue.default takes 1048588 bytes" in told
    assert "--entity-name t.queue.default --add-config max.message.bytes=5126988" in told
    facts = with_config(TOPICS.queue("default"), max_message_bytes="6000000")
    assert "t.control takes 1048588" in dispatch_fault(TOPICS, facts, large)
    facts[TOPICS.control] = facts[TOPICS.queue("default")]
    assert dispatch_fault(TOPICS, facts, large) == ""
