"""Functions that a policy might name as health checks."""

import threading


def yes() -> bool:
    return True


def no() -> bool:
    return False


async def later() -> bool:
    return True


def raises() -> bool:
    raise RuntimeError("not today")


may_return = threading.Event()


def hangs() -> bool:
    return may_return.wait(60)


both = threading.Barrier(2)


def meets() -> bool:
    return both.wait(20) >= 0
