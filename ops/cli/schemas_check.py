"""`dalsegno schemas check`: can all versions of the contract read each other?"""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json


def check(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Prove the compatibility of all schema versions. Exit code 1 if some are not."""
    from dalsegno.schemas.check import check_all

    report = check_all()
    problems = [str(each) for each in report.problems]
    if json:
        print_json(
            {
                "kinds": report.kinds,
                "versions": report.versions,
                "pairs": report.pairs,
                "problems": problems,
            }
        )
    else:
        for line in problems:
            print(line)
        found = f"{len(problems)} problem(s)" if problems else "all compatible"
        print(f"{report.kinds} kinds, {report.versions} versions, {report.pairs} pairs: {found}")
    if not report.ok:
        raise typer.Exit(ExitCode.FOUND)
