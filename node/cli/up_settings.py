"""Which settings in the environment `rota up` hands to its nodes: all that can be every node's, and none unsaid."""

from collections.abc import Mapping
from typing import Final

OF_ITS_OWN: Final = {
    **dict.fromkeys(("NODE", "MEMBERS", "DATA", "HEARTBEAT_PORT"), "it gives each node its own"),
    "JOIN": "its nodes make a cluster of their own",
    "BIND": "its nodes listen on this machine only",
    **dict.fromkeys(("SECRET", "SECRET_FILE"), "it makes a secret, and keeps it in its folder"),
}


class NotForUp(Exception):
    """A setting is given that `rota up` cannot hand on. The message names it, and says what to do."""


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The ROTA_* variables that every node of `rota up` gets. Raises `NotForUp`.

    >>> handed_on({"ROTA_ENV_ALLOW": "PGPASSWORD", "ROTA_URL": "http://127.0.0.1:8101", "HOME": "/root"})
    {'ROTA_ENV_ALLOW': 'PGPASSWORD'}
    """
    given = {name: value for name, value in environ.items() if name.startswith("ROTA_") and value.strip()}
    given.pop("ROTA_URL", None)  # where the command line looks, and no node's
    for name in sorted(given):
        why = OF_ITS_OWN.get(name.removeprefix("ROTA_"))
        if why is not None:
            raise NotForUp(f"rota up does not take {name}: {why}. Unset it, or run each node with `rota node`")
    if "ROTA_TOKEN" in given and "ROTA_TOKEN_FILE" in given:
        raise NotForUp("ROTA_TOKEN and ROTA_TOKEN_FILE are both set: keep one")
    return given
