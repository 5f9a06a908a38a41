"""The port at which the processes of one job meet: chosen where nobody else gets one by chance; standard library alone.

Between choosing a port and the job's listening on it lie seconds. The kernel hands out ports of its range for
outgoing connections and to whoever asks for any port, so that range is avoided; jobs begin to look at different
places of the rest, so that two that start together do not meet. What is left is a server with a fixed port that
starts in these seconds: ``taken`` tells that at the job's end, so that it costs the job nothing.
"""

from __future__ import annotations

import errno
import os

# The module typing would cost a fifth of the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cotenant.executors.local.outputs import OutputFile

__all__ = ["free_port", "taken", "usual_range"]

_LEAST, _MOST = 10_000, 65_535
_FEWEST = 1000
"""Where the kernel's range leaves less, it is not avoided."""

_WORDS = (b"EADDRINUSE", b"ddress already in use")


def usual_range(path: str = "/proc/sys/net/ipv4/ip_local_port_range") -> tuple[int, int]:
    """The ports that the kernel hands out by itself; Linux's usual ones if it does not say."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            low, high = map(int, file.read().split())
    except (OSError, ValueError):
        return 32_768, 60_999
    return low, high


def free_port(whose: str, kernel: tuple[int, int] | None = None) -> int:
    """A port on which nobody listens now, and which nobody gets without asking for it.

    Parameters
    ----------
    whose : str
        Something that only this start of this job has, such as its folder: different ones begin to look at
        different places.
    kernel : tuple of int, optional
        First and last port that the kernel hands out by itself.

    Raises
    ------
    OSError
        If none is free.
    """
    import zlib

    low, high = kernel or usual_range()
    below, above = range(_LEAST, min(low, _MOST)), range(max(high + 1, _LEAST), _MOST + 1)
    ports = max(below, above, key=len)
    if len(ports) < _FEWEST:
        ports = range(_LEAST, _MOST + 1)
    first = zlib.crc32(os.fsencode(whose))
    for step in range(len(ports)):
        port = ports[(first + step) % len(ports)]
        if not _in_use(port):
            return port
    told = f"no port between {ports[0]} and {ports[-1]} is free for the job's processes to meet"
    raise OSError(errno.EADDRINUSE, told)


def taken(spec: dict[str, Any], outputs: list[OutputFile]) -> str:
    """A sentence if a job's last words and a look say that another process has its port; else nothing.

    Parameters
    ----------
    spec : dict
        ``port``: that which was chosen for the job; 0 if it brought its own, or has none.
    outputs : list of OutputFile
        Of a job of which no process is left.
    """
    port = int(spec.get("port", 0))
    said = any(words in out.tail for out in outputs for words in _WORDS)
    if port and said and _in_use(port):
        return f"another process took port {port}, at which its processes were to meet"
    return ""


def _in_use(port: int) -> bool:
    import socket

    # On all addresses, as some listen there; what only lingers after a connection's end is no hindrance.
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
