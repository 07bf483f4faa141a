"""The definition of a task that restores a backup of another task, for the form for a new task. Pure.

The form shows it as a proposal: the target is new, and whoever restores may change each field before it is registered.
"""

from collections.abc import Container, Iterable, Mapping
from itertools import chain, count
from typing import Any, Final
from urllib.parse import quote

from tasks.definition.yaml_text import as_yaml

BACKUP: Final = "backup"
"""The kind whose backups can be restored."""

_STEM_CHARS_MAX: Final = 128 - len("-restored-999")


def restore_text(
    task: str,
    params: Mapping[str, Any],
    backup: str | None,
    node: str | None,
    logs: Iterable[tuple[str, Mapping[str, Any]]],
    taken: Container[str],
) -> str:
    """Return, as YAML, a definition that restores the backup named `backup` (None: the newest) of a task.

    `params` are those of the task, `node` is the member that made the backup. `logs` are the names and params of the
    tasks of kind `wal`, of which one may archive the server's log. The new name is not in `taken`.

    >>> params = {"source": {"type": "folder", "path": "/srv/a"}, "destination": "/to/"}
    >>> print(restore_text("a", params, "20261121T030000.000000Z-42", "node-1", [], {"a"}), end="")
    name: a-restored
    kind: restore
    group:
      node: node-1
    params:
      backups:
        url: /to/a
      backup: 20261121T030000.000000Z-42
      target: /srv/a-restored
    """
    source = params.get("source", {})
    log = next(((name, its) for name, its in logs if its.get("backups") == task), None)
    given: dict[str, Any] = {"backups": _stored(task, params)}
    if copies := params.get("copies"):
        given["copies"] = [_stored(task, each) for each in copies]
    if source.get("type") == "postgres_physical" and log is not None:
        given["wal"] = _stored(*log)
    elif backup is not None:
        given["backup"] = backup
    given |= _target(task, source)
    if "://" in given["target"] and source.get("password") is not None:
        given["password"] = source["password"]
    if encryption := params.get("encryption"):
        opener = "passphrase" if encryption.get("identity") else "identity"
        given[opener] = {"secret": f"backup_{opener}"}
    stem = f"{task[:_STEM_CHARS_MAX]}-restored"
    numbered = (f"{stem}-{number}" for number in count(2))
    text: dict[str, Any] = {
        "name": next(name for name in chain((stem,), numbered) if name not in taken),
        "kind": "restore",
    }
    if "://" not in given["target"] and node is not None:
        text["group"] = {"node": node}
    return as_yaml({**text, "params": given})


def _stored(task: str, params: Mapping[str, Any]) -> dict[str, Any]:
    url = f"{str(params.get('destination', '')).rstrip('/')}/{task}"
    return {"url": url, "options": params["options"]} if params.get("options") else {"url": url}


def _target(task: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that name a new place: beside the source, or one that whoever restores has to replace.

    Several databases cannot be restored beside themselves, so another server is proposed, for its name to be put in.

    >>> _target("a", {"type": "postgres", "url": "postgresql://u@db:5432/orders?sslmode=require"})
    {'target': 'postgresql://u@db:5432/orders_restored?sslmode=require'}
    >>> _target("a", {"type": "postgres", "url": "postgresql://u@db,db2:5433/postgres", "databases": "all"})
    {'target': 'postgresql://u@new-server/postgres'}
    >>> _target("a", {"type": "mariadb", "url": "mysql://u@[::1]:3307/?tls=verified", "databases": ["shop"]})
    {'target': 'mysql://u@[::1]:3307/shop_restored?tls=verified', 'database': 'shop'}
    >>> _target("a", {"type": "sqlite", "path": "/srv/app.db"}), _target("a", {"type": "stream"})
    ({'target': '/srv/app.db-restored'}, {'target': '/srv/restored/a'})
    """
    match source:
        case {"type": "folder" | "sqlite", "path": str(path)}:
            return {"target": f"{path.rstrip('/')}-restored"}
        case {"type": "postgres" | "mariadb", "url": str(url), "databases": [str(name)]}:
            return {"target": _with_database(url, f"{name}_restored"), "database": name}
        case {"type": "mariadb", "url": str(url)} | {"type": "postgres", "url": str(url), "databases": "all" | [*_]}:
            scheme, _, rest = url.partition("://")
            user, at, where = rest.rpartition("@")
            path = where.partition("?")[0].partition("/")[2]
            return {"target": f"{scheme}://{user}{at}new-server/{path}"}
        case {"type": "postgres", "url": str(url)}:
            named = url.partition("?")[0].rstrip("/").rpartition("/")[2]
            return {"target": _with_database(url, f"{named}_restored")}
    return {"target": f"/srv/restored/{task}"}


def _with_database(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    before, mark, query = url.partition("?")
    scheme, _, rest = before.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{quote(name)}{mark}{query}"
