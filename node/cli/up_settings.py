"""Which settings `rota up` hands from its environment to its nodes."""

from collections.abc import Mapping

from node.app.settings import FILE_NAMES, PREFIX, SETTINGS


class NotForUp(Exception):
    """A setting is given that `rota up` cannot hand on. The message names it and says what to do."""


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The ROTA_* variables that every node of `rota up` gets: all but `ROTA_URL`. None is dropped silently.

    Raises `NotForUp` for those that cannot be the same on every node.

    >>> handed_on({"ROTA_ENV_ALLOW": "PGPASSWORD", "ROTA_URL": "http://127.0.0.1:8101", "HOME": "/root"})
    {'ROTA_ENV_ALLOW': 'PGPASSWORD'}
    """
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value.strip()}
    given.pop("ROTA_URL", None)  # for the command line only
    for name in sorted(given):
        setting = SETTINGS.get(name) or FILE_NAMES.get(name)
        if setting is not None and setting.not_for_up:
            raise NotForUp(
                f"rota up does not take {name}: {setting.not_for_up}. Unset it, or run each node with `rota node`"
            )
    for file_name, setting in FILE_NAMES.items():
        if setting.name in given and file_name in given:
            raise NotForUp(f"{setting.name} and {file_name} are both set: keep one")
    return given
