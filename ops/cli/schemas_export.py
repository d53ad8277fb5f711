"""`dalsegno schemas export`: the whole contract as AsyncAPI 3."""

from pathlib import Path
from typing import Annotated

import typer

from dalsegno.ops.cli.failures import UsageFault


def export(
    output: Annotated[str, typer.Option(help="File; - is standard output")] = "-",
    prefix: Annotated[str, typer.Option(help="Prefix of the topics in it")] = "dalsegno",
) -> None:
    """Write the contract (topics, keys, headers, schemas) as AsyncAPI 3, in JSON."""
    import msgspec

    from dalsegno.schemas.asyncapi import export_asyncapi
    from dalsegno.schemas.topics import Topics

    document = msgspec.json.format(msgspec.json.encode(export_asyncapi(Topics(prefix))), indent=2)
    if output == "-":
        print(document.decode())
        return
    try:
        Path(output).write_bytes(document + b"\n")
    except OSError as error:
        raise UsageFault(f"{output}: {error.strerror}") from error
