"""The first steps of a node's process, so that no other process of its user learns its secrets."""

import sys

from node.settings.own_environment import NotHandedOver, start_anew_without_secrets


def enter_node() -> None:
    """Remove secrets from this process's environment, and close its memory to other processes of its user.

    The program may start anew (`start_anew_without_secrets`), so call this before imports that take long. Exits with a
    sentence if the secrets cannot be removed.
    """
    try:
        start_anew_without_secrets()
    except (OSError, NotHandedOver) as error:
        sys.exit(f"rota: the node cannot take its secrets out of its environment: {error}")
    from node.execution.linux import close_memory, dump_no_core

    close_memory()
    dump_no_core()
