"""Spark's own web pages about a session. They have no password, so they are off unless a node's setting asks for them.

`1`: on this machine's loopback; for a Spark on other machines they stay off then, since Spark would serve them on every
address. `host`: on every address.
"""

import logging
import socket
from typing import Final

_log = logging.getLogger("rota.spark")

LOOPBACK: Final = "1"
EVERYWHERE: Final = "host"


def ui_settings(asked: str, *, local: bool) -> dict[str, str]:
    """Spark's configuration for the UI that is asked for. `local`: Spark runs on this machine alone.

    >>> ui_settings("", local=True)
    {'spark.ui.enabled': 'false'}
    >>> ui_settings("1", local=True)
    {'spark.ui.enabled': 'true', 'spark.ui.port': '0', 'spark.ui.killEnabled': 'false'}
    """
    on = asked == EVERYWHERE or (asked == LOOPBACK and local)
    if not on and asked not in ("", "0"):
        why = "would be on every address: ask for it with `host`" if asked == LOOPBACK else "is not 0, 1 or host"
        _log.warning("Spark's UI stays off: ROTA_SPARK_UI=%s %s", asked, why)
    if not on:
        return {"spark.ui.enabled": "false"}
    return {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.ui.killEnabled": "false"}


def ui_environment(asked: str) -> dict[str, str]:
    """The variables by which Spark's launcher takes the UI's address: it has no setting for it.

    >>> ui_environment("1"), sorted(ui_environment("host"))
    ({}, ['SPARK_LOCAL_IP', 'SPARK_PUBLIC_DNS'])
    """
    if asked != EVERYWHERE:
        return {}
    return {"SPARK_LOCAL_IP": "0.0.0.0", "SPARK_PUBLIC_DNS": socket.gethostname()}  # noqa: S104 - it was asked for
