"""Ports for a child that binds them a moment later."""

import random
import socket
from contextlib import suppress

# Below the usual ephemeral range, so that no outgoing connection takes one before Java binds it.
_LOWEST, _HIGHEST = 20_000, 32_000
_ANSWER_S = 1.0


def free_ports(count: int) -> list[int]:
    """`count` different ports of the loopback address that are free now."""
    draw = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = draw.randrange(_LOWEST, _HIGHEST)
        if port not in found and is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether a server could bind this port of the loopback address now."""
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def answers_kafka(port: int) -> bool:
    """Whether a broker answers an ApiVersions request.

    A broker binds early but answers only once it is unfenced, so this is the sign of life.
    """
    request = bytes.fromhex("0000000e0012000000000001000470696e67")
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), _ANSWER_S) as link:
        link.sendall(request)
        return link.recv(8)[4:] == b"\0\0\0\1"
    return False
