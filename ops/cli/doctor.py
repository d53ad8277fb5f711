"""`dalsegno doctor`: is everything there that this machine and this service need?"""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, print_table
from dalsegno.ops.cli.settings import read_settings


def doctor(
    local: Annotated[bool, typer.Option("--local", help="This machine only, no brokers")] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Look at the machine, the brokers, the topics and the engines. Exit code 1 on a fault."""
    from dalsegno.ops.checkup import (
        Health,
        local_checks,
        service_checks,
        store_checks,
        variables_checks,
    )
    from dalsegno.ops.cli.topics_check import topic_faults

    found = [*local_checks(), *variables_checks()]
    if not local:
        settings = read_settings()
        found += [*store_checks(settings), *service_checks(settings, topic_faults)]
    if json:
        print_json(
            [
                {"subject": f.subject, "health": f.health, "detail": f.detail, "remedy": f.remedy}
                for f in found
            ]
        )
    else:
        rows = ((f.subject, f.health.value, f.detail, f.remedy) for f in found)
        print_table(("subject", "health", "detail", "what to do"), rows, "")
    if any(each.health is Health.FAULT for each in found):
        raise typer.Exit(ExitCode.FOUND)
