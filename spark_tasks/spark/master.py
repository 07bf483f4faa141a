"""The master of a Spark cluster: its address, and whether it answers.

The master is tried before Spark is started, because a JVM takes seconds to start, and then tries for a minute.
"""

import socket
from typing import Final

from tasks.kind import Away, Unretryable

CONNECT_S: Final = 5.0
"""How long a master's port may take to accept a connection."""

REGISTRATION_S: Final = 60.0
"""How long Spark asks a master before it gives up: three times for 20 s, which no setting changes."""

_SCHEME: Final = "spark://"


class SparkAway(Away):
    """The Spark cluster does not answer, gives no executors, or ended the application. A later attempt may succeed."""


class MasterUnfit(Unretryable):
    """The setting ROTA_SPARK_MASTER names no Spark master that can be used."""


def standalone_masters(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a standalone master and of its standby masters; empty for another kind of cluster.

    Raises `MasterUnfit`.

    >>> standalone_masters("spark://one.internal:7077,[::1]:7078")
    [('one.internal', 7077), ('::1', 7078)]
    >>> standalone_masters("yarn")
    []
    """
    if master.startswith("sc://"):
        raise MasterUnfit(
            f"ROTA_SPARK_MASTER is {master}: a Spark Connect server cannot be used, since it goes on with "
            "the work of an attempt that is stopped. Name the cluster's master itself, as spark://HOST:PORT"
        )
    if not master.startswith(_SCHEME):
        return []
    found = []
    for one in master.removeprefix(_SCHEME).split(","):
        host, colon, port = one.strip().rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65_536):
            raise MasterUnfit(f"ROTA_SPARK_MASTER is {master}: it must be spark://HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


def own_address(master: str, connect_s: float = CONNECT_S) -> str | None:
    """Return this machine's address on the route to the master, at which the cluster's executors reach a driver here.

    Returns None for a cluster whose master is not given by an address. Raises `MasterUnfit`, and `SparkAway` if no
    master accepts a connection within `connect_s` seconds.
    """
    failures = []
    for host, port in standalone_masters(master):
        try:
            with socket.create_connection((host, port), timeout=connect_s) as connected:
                return bracketed(connected.getsockname()[0])
        except OSError as error:
            failures.append(f"{bracketed(host)}:{port}: {error.strerror or error}")
    if failures:
        raise SparkAway(f"the Spark master {master} does not answer ({'; '.join(failures)}): check that it runs")
    return None


def bracketed(host: str) -> str:
    """Return the host as Spark needs it before a port: an IPv6 address is in brackets.

    >>> bracketed("10.0.0.5"), bracketed("::1")
    ('10.0.0.5', '[::1]')
    """
    return f"[{host}]" if ":" in host else host
