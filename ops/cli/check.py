"""`dalsegno check`: the list to go through before production."""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, print_table


def check(
    flows: Annotated[list[str], typer.Argument(metavar="MODULE:FLOW...", help="Flows to check")],
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Check flows before production: declarations, times, risks, effects, secrets, clean-up.

    Exit code 1 when something is an error; warnings alone do not count.
    """
    from dalsegno.ops.flow_loader import load_flow
    from dalsegno.streams.client.check import Severity

    found = [(name, finding) for name in flows for finding in load_flow(name).check()]
    if json:
        print_json(
            [
                {
                    "flow": name,
                    "severity": each.severity.name.lower(),
                    "code": each.code,
                    "step": each.step,
                    "message": each.message,
                }
                for name, each in found
            ]
        )
    else:
        print_table(
            ("flow", "severity", "step", "code", "what to do"),
            (
                (name, each.severity.name.lower(), each.step or "-", each.code, each.message)
                for name, each in found
            ),
            f"{len(flows)} flow(s): nothing to mend",
        )
    if any(each.severity is Severity.ERROR for _, each in found):
        raise typer.Exit(ExitCode.FOUND)
