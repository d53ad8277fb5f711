"""`dalsegno topics create`: the topics as they have to be; a queue's topic, then the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import UsageFault
from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.render import print_json
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.streams.engine.settings import EngineSettings


def create(
    queue: Annotated[
        list[str] | None, typer.Option(help="Also this queue; may be repeated")
    ] = None,
    partitions: Annotated[int, typer.Option(help="Of new topics; 0: as the events, or 8")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Make missing topics, mend wrong settings, and list new queues in the policy.

    Partition counts of topics that exist are never changed: runs are placed by them.
    """
    settings = read_settings()
    done = make_topics(settings, queue or [], partitions or None)
    done += _list_queues(settings, queue or [])
    if json:
        print_json(done)
    else:
        print("\n".join(done) or "all topics are as they should be")


def make_topics(settings: EngineSettings, queues: list[str], partitions: int | None) -> list[str]:
    """One line per change. Raises UsageFault when the cluster is too small for what is asked."""
    from confluent_kafka import KafkaError, KafkaException

    from dalsegno.streams.engine.topics_admin import TopicAdmin

    try:
        return TopicAdmin(settings).create(queues, partitions)
    except KafkaException as error:
        found = error.args[0]
        if isinstance(found, KafkaError) and found.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            raise UsageFault(
                "topics need 3 brokers for their replication; with one broker, for development, "
                "set DALSEGNO_DEV=true"
            ) from error
        raise


def create_for_dev(env: dict[str, str], partitions: int) -> None:
    """The topics of `dalsegno dev`; those that exist keep their number of partitions."""
    from dalsegno.streams.engine.topics_admin import TopicAdmin

    settings = read_settings(
        bootstrap_servers=env["DALSEGNO_BOOTSTRAP_SERVERS"],
        prefix=env["DALSEGNO_PREFIX"],
        dev=True,
    )
    admin = TopicAdmin(settings)
    present = settings.topics.events in admin.facts()
    admin.create(partitions=None if present else partitions)


def _list_queues(settings: EngineSettings, queues: list[str]) -> list[str]:
    """A plan that names a queue which the policy does not list is refused, so list it."""
    if not queues:
        return []
    import msgspec

    from dalsegno.ops.kafka.in_force import policy_of
    from dalsegno.ops.kafka.writer import Writer
    from dalsegno.schemas.control import PolicySet

    done, writer = [], Writer(settings)
    for each in read_in_force(settings, PolicySet):
        policy = policy_of(each)
        new = [name for name in dict.fromkeys(queues) if name not in policy.queues]
        if new:
            wider = msgspec.structs.replace(policy, queues=(*policy.queues, *new))
            number, partition = each.next_number, each.partition
            writer.append_control(
                PolicySet(source="cli", partition=partition, number=number, policy=wider)
            )
            done.append(f"partition {partition}: the policy lists {', '.join(new)}")
    return done
