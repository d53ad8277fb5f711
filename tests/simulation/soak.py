"""Endless simulation: `python -m tests.simulation.soak [--seed N] [--minutes M]`.

Goes up from the first seed (drawn by the system's own randomness unless it is given), each seed in
the next kind of world unless one is named, every tenth world a large one. Stops with exit code 1 at
the first seed that breaks a promise.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.simulation.runner import SPINE, WORLDS, FailedSeedError, run_seed

SEEDS = 1 << 40
# Prime to the number of kinds, so that each of them has large ones.
LARGE_EVERY = 10
PROGRESS_S = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed (default: drawn)")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes (default: never)")
    parser.add_argument("--count", type=int, help="stop after so many seeds (default: never)")
    parser.add_argument("--large", action="store_true", help="only large worlds")
    parser.add_argument(
        "--world",
        choices=list(WORLDS),
        help=f"only this kind (default: all in turn, or {SPINE} with --count)",
    )
    return parser.parse_args()


def main() -> int:
    options = arguments()
    seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
    begun = shown = time.monotonic()
    done = 0
    kinds = list(WORLDS)
    print(f"first seed {seed}", flush=True)
    while options.count is None or done < options.count:
        now = time.monotonic()
        if options.minutes is not None and now - begun > options.minutes * 60:
            break
        large = options.large or (options.count is None and done % LARGE_EVERY == LARGE_EVERY - 1)
        world = options.world or (kinds[done % len(kinds)] if options.count is None else SPINE)
        try:
            digest = run_seed(seed + done, large=large, world=world)
        except FailedSeedError as failed:
            print(failed, flush=True)
            return 1
        done += 1
        if options.count is not None or now - shown > PROGRESS_S:
            shown = now
            print(
                f"seed {seed + done - 1} digest {digest}: {done} worlds, no promise broken",
                flush=True,
            )
    print(f"{done} worlds from seed {seed}: no promise broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
