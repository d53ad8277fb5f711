"""Names of the topics under one prefix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topics:
    """The contract's topics; `prefix` is a setting that all participants share."""

    prefix: str = "dalsegno"

    @property
    def events(self) -> str:
        """Every input, keyed by run id, or by partition for control kinds about a partition."""
        return f"{self.prefix}.events"

    @property
    def heartbeats(self) -> str:
        """Liveness and progress; as many partitions as the events."""
        return f"{self.prefix}.heartbeats"

    def queue(self, name: str) -> str:
        """Handoffs to the workers of one queue; as many partitions as the events."""
        return f"{self.prefix}.queue.{name}"

    @property
    def queue_prefix(self) -> str:
        """What every queue's topic name starts with."""
        return f"{self.prefix}.queue."

    @property
    def control(self) -> str:
        """Answers, keyed by reply address."""
        return f"{self.prefix}.control"

    @property
    def runs_changelog(self) -> str:
        """Checkpoints of the partitions' state; compacted."""
        return f"{self.prefix}.runs-changelog"

    @property
    def owners(self) -> str:
        """Claims, keyed by partition; one partition, compacted."""
        return f"{self.prefix}.owners"

    @property
    def transitions(self) -> str:
        """The audit record, keyed by run id."""
        return f"{self.prefix}.transitions"

    @property
    def faults(self) -> str:
        """Reports about fault points, keyed by fault point."""
        return f"{self.prefix}.faults"

    @property
    def faults_changelog(self) -> str:
        """State of the fault points; compacted."""
        return f"{self.prefix}.faults-changelog"

    @property
    def escalations(self) -> str:
        """Packages for people, keyed by run id."""
        return f"{self.prefix}.escalations"

    @property
    def dead_letters(self) -> str:
        """Original bytes and headers of records that were not understood, with the reason."""
        return f"{self.prefix}.dead-letters"
