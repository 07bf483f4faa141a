"""Removes secrets from the environment with which the node was started.

/proc/PID/environ shows that environment to every process of the same user, even if the program removes variables later,
and child processes inherit it. So a node that was given secrets in variables executes itself again without them: same
process, same arguments. It hands them over in a file in memory, whose descriptor is in the variable `HANDED`. This
module imports little, so that it runs before slow imports.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

SECRETS: Final = ("ROTA_SECRET", "ROTA_TOKEN", "ROTA_READ_TOKEN")
"""The node's own settings that are secrets. Their `_FILE` forms, which name files, stay in the environment."""

TRACES: Final = "ROTA_TRACES"
LINEAGE: Final = "ROTA_LINEAGE"

ENV_ALLOW: Final = "ROTA_ENV_ALLOW"
"""The setting that names the variables to which tasks may refer: the tasks' secrets, which no process inherits."""

HANDED: Final = "ROTA_HANDED_OVER"
"""The variable with the descriptor of the file in memory. Only Rota sets it."""

EVERY_PROGRAMS: Final = frozenset({"PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"})
"""Variables that decide which programs are found. `ROTA_ENV_ALLOW` may not name them: all programs would lose them."""

_FILE: Final = "rota-environment"


class NotHandedOver(Exception):
    """`HANDED` is set, and its descriptor is not a file that `memory_file` made."""


def export_secrets(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the variables in which the clients of traces and lineage are given keys, if the node sends either.

    >>> given = {"OPENLINEAGE_API_KEY": "k", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=k"}
    >>> sorted(export_secrets({"ROTA_LINEAGE": "1", **given})), sorted(export_secrets(given))
    (['OPENLINEAGE_API_KEY'], [])
    """
    traces, lineage = (environ.get(name, "").strip() not in ("", "0") for name in (TRACES, LINEAGE))
    return frozenset(
        name
        for name in environ
        if (traces and name.startswith("OTEL_EXPORTER_OTLP_") and name.endswith("HEADERS"))
        or (lineage and (name == "OPENLINEAGE_API_KEY" or (name.startswith("OPENLINEAGE__") and "AUTH" in name)))
    )


def parted(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split an environment. Returns the environment without the secrets, and the secrets in it, by variable.

    >>> parted({"ROTA_TOKEN": "t", "ROTA_ENV_ALLOW": "KEY, PATH", "KEY": "k", "PATH": "/bin", "ROTA_SECRET": ""})
    ({'ROTA_ENV_ALLOW': 'KEY, PATH', 'PATH': '/bin', 'ROTA_SECRET': ''}, {'ROTA_TOKEN': 't', 'KEY': 'k'})
    """
    allowed = {name.strip() for name in environ.get(ENV_ALLOW, "").split(",")} - EVERY_PROGRAMS
    allowed |= export_secrets(environ)
    secret = {
        name: value
        for name, value in environ.items()
        if (value.strip() if name in SECRETS else name in allowed and not name.startswith("ROTA_"))
    }
    return {name: value for name, value in environ.items() if name not in secret}, secret


def memory_file(secret: Mapping[str, str]) -> int:
    """Write these variables to a file in memory. Returns its descriptor, which exec closes. Raises `OSError`."""
    descriptor = os.memfd_create(_FILE, os.MFD_CLOEXEC)
    # In the format of /proc/PID/environ, since a name or a value can hold any byte but zero.
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in secret.items()))
    return descriptor


def start_anew_without_secrets() -> None:
    """Start this program anew in this process if its environment holds secrets; otherwise return.

    The new program gets them from `handed_over`. Call this while the process has one thread. Raises `OSError`, and
    `NotHandedOver`.
    """
    rest, secret = parted(os.environ)
    if secret:
        descriptor = memory_file(handed_over() | secret)
        os.set_inheritable(descriptor, True)
        # The same arguments, with the interpreter's options, so that the program finds its modules as before.
        os.execve(sys.executable, sys.orig_argv, {**rest, HANDED: str(descriptor)})  # noqa: S606  no shell is wanted


def handed_over() -> dict[str, str]:
    """Read the variables that were handed over, and close their file; {} if none were. Raises `NotHandedOver`."""
    named = os.environ.get(HANDED)
    if named is None:
        return {}
    try:
        descriptor = int(named)
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"/memfd:{_FILE} "):  # noqa: PTH115  imports little
            raise ValueError
        with os.fdopen(descriptor, "rb") as file:
            file.seek(0)
            entries = file.read().split(b"\0")[:-1]
    except (OSError, ValueError):
        raise NotHandedOver(
            f"{HANDED}={named} is set in the environment, and nothing was handed over there: only Rota sets this "
            "variable, so unset it"
        ) from None
    del os.environ[HANDED]
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}
