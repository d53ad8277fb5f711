"""`dalsegno escalations webhooks`: how far each webhook has come."""

from typing import Annotated

import typer

from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings


def list_webhooks(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List the targets of the policy, how many packages wait for each, and since when."""
    from dalsegno.ops.kafka.in_force import policy_of
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.people.deliveries import read_deliveries
    from dalsegno.schemas.control import PolicySet

    settings = read_settings()
    found = read_in_force(settings, PolicySet)
    # One entry for each name: partitions have the same policy but while it is being changed.
    hooks = {hook.name: hook for each in found for hook in policy_of(each).webhooks}
    with Reader(settings) as reader:
        deliveries = read_deliveries(reader, settings, list(hooks.values()))
    if json:
        print_json(deliveries)
        return
    print_table(
        ("webhook", "url", "waiting", "oldest (UTC)"),
        ((d.name, d.url, d.unsettled, when(d.oldest_ms) if d.oldest_ms else "-")
         for d in deliveries),
        "the policy lists no webhook",
    )  # fmt: skip
