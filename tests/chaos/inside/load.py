"""`python -m tests.chaos.inside.load SEED PER_S ACKS`: applications at a steady pace, until told.

One line per acknowledged start goes to ACKS: run id, monotonic seconds. Ends when ACKS.stop exists.
A start whose outcome is unknown is sent again, as any user of the client would.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from examples.risk_control.flow import risk
from examples.risk_control.rules import applicant

from dalsegno.client import Client, DeliveryFailed

APPLICATIONS_MAX = 2_000


def main(seed: int, per_s: float, acks: Path) -> None:
    begun = time.monotonic()
    stop = acks.with_name(acks.name + ".stop")
    with Client() as client, acks.open("w", buffering=1) as book:
        for number in range(APPLICATIONS_MAX):
            if stop.exists():
                return
            time.sleep(max(0.0, begun + number / per_s - time.monotonic()))
            run_id = start(client, applicant(number, seed))
            book.write(f"{run_id} {time.monotonic():.3f}\n")


def start(client: Client, who: dict[str, object]) -> str:
    while True:
        try:
            return client.start(risk, {"applicant": who}, run_id=str(who["application"]))
        except DeliveryFailed as error:
            print(f"sent again: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
