"""`dalsegno policy show`: the settings in the log that decide about runs."""

from typing import Annotated

import typer

from dalsegno.ops.cli.in_force import read_in_force
from dalsegno.ops.cli.render import print_json, print_table
from dalsegno.ops.cli.settings import read_settings


def show(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print the policy in force on each partition."""
    from dalsegno.ops.kafka.in_force import policy_of
    from dalsegno.ops.policy_file import describe
    from dalsegno.schemas.control import PolicySet

    found = read_in_force(read_settings(), PolicySet)
    policies = {each.partition: policy_of(each) for each in found}
    if json:
        print_json(
            [
                {
                    "partition": each.partition,
                    "number": each.next_number - 1,
                    "set_at_ms": each.at_ms,
                    "policy": describe(policies[each.partition]),
                }
                for each in found
            ]
        )
        return
    if len(set(policies.values())) > 1:
        numbers = {each.partition: each.next_number - 1 for each in found}
        print(f"partitions differ (number of the last policy by partition): {numbers}")
    for policy in dict.fromkeys(policies.values()):
        where = [str(p) for p, each in policies.items() if each == policy]
        print(f"partitions {', '.join(where)}")
        print_table(("setting", "value"), describe(policy).items(), "")
