"""Functions that a policy might name as health checks."""


def yes() -> bool:
    return True


def no() -> bool:
    return False


async def later() -> bool:
    return True


def raises() -> bool:
    raise RuntimeError("not today")
