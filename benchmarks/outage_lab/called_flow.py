"""A flow whose one step calls the service at `OUTAGE_URL`.

`python -m benchmarks.outage_lab.called_flow NAME` works on it.
"""

from __future__ import annotations

import os
import sys

from aiohttp import ClientError, ClientSession, ClientTimeout
from benchmarks.outage_lab.service import KEY_HEADER

from dalsegno.client import Context, DependencyDown, Flow, Worker

flow = Flow("called", version=1, ttl="30m")
TIMEOUT_S = 2.0
AT_ONCE = 60
URL: str = "OUTAGE_URL"


@flow.step(reads=[], writes=["answer"], depends_on=["validation"], timeout="20s")
async def validate(ctx: Context) -> dict[str, object]:
    """Calls the service once, under the step's key."""
    timeout = ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            ClientSession(timeout=timeout) as session,
            session.post(
                f"{os.environ[URL]}/do/{ctx.run_id}", headers={KEY_HEADER: ctx.key}
            ) as answer,
        ):
            if answer.status == 503:
                raise DependencyDown("validation", retry_after=f"{answer.headers['Retry-After']}s")
            return {"answer": await answer.text()}
    except (ClientError, OSError, TimeoutError) as error:
        raise DependencyDown("validation", message=repr(error)) from error


if __name__ == "__main__":
    Worker([flow], name=sys.argv[1], concurrency=AT_ONCE).run()
