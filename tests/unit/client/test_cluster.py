"""The cluster is asked for its id by one topic, not by all that it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dalsegno.streams.client import cluster
from dalsegno.streams.client.config import ClientConfig


@pytest.mark.parametrize(("told", "known"), [("c-1", "c-1"), (None, "b:9")])
def test_one_topic_is_asked_for(
    told: str | None, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def list_topics(topic: str = "", timeout: float = -1) -> object:
        assert timeout > 0
        asked.append(topic)
        return SimpleNamespace(cluster_id=told)

    admin = SimpleNamespace(list_topics=list_topics)
    monkeypatch.setattr(cluster, "AdminClient", lambda _: admin)
    assert cluster.cluster_of(ClientConfig("b:9", prefix="p")) == known
    assert asked == ["p.events"]
