"""docs/reference/settings.md, from the table of settings and docker-compose.yml."""

import re
from typing import Any, Final

from node.settings.row import Setting
from node.settings.table import FILE_NAMES, ROWS, SETTINGS
from tasks.installed_kinds import installed, settings_asked_for
from testkit.reference.markdown import MADE_BY, code, table
from testkit.reference.pages import ROOT

PATH: Final = "docs/reference/settings.md"

_INTRO: Final = """\
# Settings

A node takes its settings from environment variables. They are read once, at its start; a node that finds something
wrong with them reports all of it and ends with exit code 2. A variable that is blank counts as not set. A `ROTA_*`
variable that is not listed here is ignored, with a warning. Lists are separated by commas, switches are `1` or `0`,
sizes are in bytes.

"""


def render() -> str:
    """The page."""
    parts = [MADE_BY, "\n", _INTRO]
    for heading, rows in _groups().items():
        parts += [f"## {heading}\n\n", table(("variable", "meaning", "default", "example"), map(_row, rows)), "\n"]
    return "".join([*parts, _of_kinds(), "\n", _from_files(), "\n", _under_up(), "\n", _under_compose()])


def _groups() -> dict[str, list[Setting[Any]]]:
    """The rows of the table by their headings."""
    groups: dict[str, list[Setting[Any]]] = {}
    for row in ROWS:
        if row.heading:
            rows = groups[row.heading] = []
        rows.append(row)
    return groups


_OF_KINDS: Final = {
    "ROTA_BACKUP_THREADS": Setting(
        "ROTA_BACKUP_THREADS",
        "The threads that compress each object of a `backup`; 0: the thread that reads compresses, too.",
        str,
        computed="the cores",
        example="4",
    ),
    "ROTA_SPARK_MASTER": Setting(
        "ROTA_SPARK_MASTER",
        "The Spark master on which `ingest` and `etl` run: `local[N]` for this machine, or that of "
        "[a Spark cluster](../how-to/run-on-a-spark-cluster.md).",
        str,
        default="local[*]",
        example="spark://spark.internal:7077",
    ),
    "ROTA_SPARK_MEMORY": Setting(
        "ROTA_SPARK_MEMORY",
        "The heap of each Spark driver, as the JVM spells sizes.",
        str,
        default="512m",
        example="2g",
    ),
    "ROTA_SPARK_CORES": Setting(
        "ROTA_SPARK_CORES",
        "The most cores of a Spark cluster that one attempt takes; with `local[N]` it is not used.",
        str,
        default="2",
        example="8",
    ),
    "ROTA_SPARK_EXECUTOR_MEMORY": Setting(
        "ROTA_SPARK_EXECUTOR_MEMORY",
        "The heap of each executor on a Spark cluster, as the JVM spells sizes; 450m at least.",
        str,
        computed="Spark's own: 1g",
        example="4g",
    ),
    "ROTA_SPARK_SHARED": Setting(
        "ROTA_SPARK_SHARED",
        "A folder that the nodes and the executors of a Spark cluster see at the same path: files that an `ingest` "
        "fetches from elsewhere are put there for the executors.",
        str,
        example="/mnt/exchange",
    ),
    "ROTA_SPARK_UI": Setting(
        "ROTA_SPARK_UI",
        "Spark's web pages about each session, while it lasts; the attempt's log has the address. They have no "
        "password. 0: off. 1: on loopback, if Spark runs on this machine alone. host: on every address of the machine.",
        str,
        default="0",
        example="1",
    ),
    "ROTA_SPARK_SESSIONS": Setting(
        "ROTA_SPARK_SESSIONS",
        "How many Spark sessions the node has at once: those of attempts, and those that are started beforehand for "
        "what is due soon. Others wait and say so. 1 to 10000.",
        str,
        computed="half of `ROTA_MAX_RUNS`",
        example="2",
    ),
}


def _of_kinds() -> str:
    """The settings that installed kinds ask for. Raises `KeyError` for one without a meaning."""
    rows = [_row(_OF_KINDS[name]) for name in sorted(settings_asked_for(installed().values()))]
    return "## Settings of kinds\n\nThe node hands these to the workers of the kinds that ask for them.\n\n" + table(
        ("variable", "meaning", "default", "example"), rows
    )


_OF_COMPOSE: Final = {
    "ROTA_TARGET": "The image to build: `rota`, or `rota-spark` for tasks of kind `ingest`, `etl` and `maintain` too.",
    "ROTA_SECRETS": "The folder of the secret files, with `node/` and `tasks/` in it.",
    "ROTA_DATA_VOLUME": "What all nodes see as `/srv/data`: a volume, or the path of a folder of this machine.",
    "SPARK_WORKER_CORES": "The cores that each of the two Spark workers offers.",
    "SPARK_WORKER_MEMORY": "The memory that each of the two Spark workers offers.",
    "ROTA_POSTGRES_IMAGE": "The image of the PostgreSQL server.",
    **{f"ROTA_PORT_{node}": f"The port on this machine for the API of node-{node}." for node in range(1, 6)},
}


def _row(setting: Setting[Any]) -> tuple[str, str, str, str]:
    return code(setting.name), setting.meaning, _default(setting), _example(setting)


def _default(setting: Setting[Any]) -> str:
    if setting.computed:
        return setting.computed
    if not setting.default:
        return "not set"
    return code(setting.default) + _in_larger_units(setting)


def _example(setting: Setting[Any]) -> str:
    return setting.example if "`" in setting.example else code(setting.example)


def _in_larger_units(setting: Setting[Any]) -> str:
    """A size as people say it.

    >>> _in_larger_units(SETTINGS["ROTA_LOG_BYTES"]), _in_larger_units(SETTINGS["ROTA_CAPACITY"])
    (' (64 MiB)', '')
    """
    if not setting.name.endswith("_BYTES") or setting.default == "0":
        return ""
    mib = int(setting.default) >> 20
    return f" ({mib} MiB)" if mib < 1024 else f" ({mib >> 10} GiB)"


def _from_files() -> str:
    names = [f"`{file}` for `{setting.name}`" for file, setting in FILE_NAMES.items()]
    return (
        "## Values from files\n\n"
        f"Instead of the value, a variable can name a file that holds it: {' and '.join(names)}. Blanks around the "
        "value are dropped. Only one of the two may be set.\n"
    )


def _under_up() -> str:
    refused = [setting for setting in SETTINGS.values() if setting.not_for_up]
    rows = [
        (", ".join(map(code, (setting.name, *([setting.file_name] if setting.has_file else [])))), setting.not_for_up)
        for setting in refused
    ]
    return (
        "## Under `rota up`\n\n"
        "`rota up` hands every `ROTA_*` variable of its own environment to each of its nodes, except `ROTA_URL`, and "
        "refuses to start with these:\n\n" + table(("variable", "why"), rows)
    )


def _under_compose() -> str:
    """The variables of docker-compose.yml with their defaults there."""
    given = dict(re.findall(r"\$\{((?:ROTA|SPARK)_\w+):-([^}]*)\}", (ROOT / "docker-compose.yml").read_text()))
    rows = [
        (code(name), _OF_COMPOSE.get(name, "As above."), code(default) or "empty") for name, default in given.items()
    ]
    return (
        "## With Docker Compose\n\n"
        "[docker-compose.yml](../../docker-compose.yml) sets the other settings of its nodes itself. It takes these "
        "variables from the environment or an `--env-file`:\n\n" + table(("variable", "meaning", "default"), rows)
    )
