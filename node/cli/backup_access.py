"""Where the backups of a task are, and what commands for backups may use of this machine: what the caller has named.

A task's definition comes from the cluster, and somebody else may have written it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from pydantic import BaseModel

from node.cli.api import Api, ago
from node.cli.text import say
from node.client import ApiProblem, Unreachable, path
from tasks.access import (
    Access,
    AccessRefused,
    addresses,
    check_address,
    check_options,
    check_protocol,
    parse_hosts,
)
from tasks.backup.encryption import BackupKeys, BadIdentity, Identities
from tasks.backup.finding import TaskPlace
from tasks.backup.params import backup_locations
from tasks.errors import MissingSecret
from tasks.places.place import local_path, resolved
from tasks.secret import Reference, SecretFile, reference_of, references_in, resolve

_KEYS: Final = (
    ". Give them by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by "
    """--options '{"key": {"secret": "k"}, "secret": {"secret": "s"}}' --secret k=FILE --secret s=FILE"""
)
"""What to do where a URL is named without the keys to it."""


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turn an error of a backup or its storage into a sentence and exit code 1."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, ApiProblem, Unreachable):
        raise
    except Exception as error:
        if type(error).__module__.startswith("tasks."):
            raise click.ClickException(str(error)) from error
        # fsspec's libraries raise exceptions of many types: no credentials, no such bucket, no permission.
        said = f"the storage returned an error: {type(error).__name__}: {error}"
        raise click.ClickException(said + (_KEYS if "Credentials" in type(error).__name__ else "")) from error


@dataclass(frozen=True)
class NamedByCaller:
    """What a task's definition, which somebody else may have written, may use of this machine: the caller has named it.

    `secrets` are files and `env` variables, by the names in references to them; `hosts` are the hosts that may hold the
    task's backups, as in ROTA_DESTINATION_HOSTS; `options` are the caller's own options for the URL.
    """

    secrets: Mapping[str, Path]
    env: tuple[str, ...]
    hosts: tuple[str, ...]
    options: Mapping[str, Any]

    def lacks(self, reference: Reference) -> str | None:
        """Return the option that the caller must add to name a reference; None if the reference is named."""
        if isinstance(reference, SecretFile):
            return None if reference.secret in self.secrets else f"--secret {reference.secret}=FILE"
        return None if reference.env in self.env else f"--env {reference.env}"

    def resolve(self, reference: Reference) -> str:
        """Return the value of a named reference. Raises `MissingSecret`."""
        if isinstance(reference, SecretFile):
            file = self.secrets[reference.secret]
            return resolve({"secret": file.name}, file.parent, (), {})
        return resolve(reference, Path(), self.env, os.environ)

    def own_options(self) -> dict[str, Any]:
        """Return the caller's options with secrets resolved. Raises `click.UsageError`, `MissingSecret`."""
        if missing := [how for reference in references_in(self.options) if (how := self.lacks(reference))]:
            raise click.UsageError(f"--options refers to secrets that are not named: add {' '.join(missing)}")
        return resolved(self.options, self.resolve)


def task_places(
    api: Api, what: str, named: NamedByCaller, only: str | None = None, kind: str = "backup"
) -> list[TaskPlace]:
    """Return what WHAT stands for at each destination that can be read here; `only`: at the destination with this URL.

    WHAT is a URL, or the name of a task of this kind. Reports other destinations on standard error. Raises the first
    one's error if none is left.
    """
    if "/" in what:
        if only is not None:
            raise click.UsageError("--from chooses among the destinations of a task: give the task's name, or the URL")
        return [TaskPlace(what, named.own_options())]
    try:
        task = api.client.get(path("v1", "tasks", what))
    except Unreachable as error:
        instead = f"DESTINATION/{what}, or ./{what}"
        raise Unreachable(f"{error}. Without a node, give the URL instead of the name: {instead}") from None
    if task["kind"] != kind:
        raise click.UsageError(f"{what} is a task of kind {task['kind']}, not of kind {kind}")
    locations = backup_locations(task["params"], what)
    chosen = [one for one in locations if only is None or one.url in {only.rstrip("/"), f"{only.rstrip('/')}/{what}"}]
    if not chosen:
        where = ", ".join(one.url.rpartition("/")[0] for one in locations)
        raise click.UsageError(f"--from {only}: {what} has no such destination (it has: {where})")
    found: list[TaskPlace] = []
    errors: list[click.ClickException | MissingSecret] = []
    for url, options in chosen:
        try:
            usable = _resolved_if_named(what, url, options, named)
            folder = local_path(url)
            if folder is not None and not Path(folder).exists():
                _refuse_if_elsewhere(api, what, url)
            found.append(TaskPlace(url, usable | named.own_options()))
        except (click.ClickException, MissingSecret) as error:
            errors.append(error)
    if not found:
        raise errors[0]
    for refusal in errors:
        say(f"skipped a destination: {getattr(refusal, 'message', refusal)}", err=True)
    return found


def _resolved_if_named(task: str, url: str, options: Mapping[str, Any], named: NamedByCaller) -> dict[str, Any]:
    """Return the options of a task's definition, with secrets resolved.

    Raises `click.UsageError` unless the caller has named each secret in the options, and each address to connect to.
    """
    missing = [how for reference in references_in(options) if (how := named.lacks(reference))]
    try:
        remote = check_protocol(url)
        check_options(url, options)
        if missing:  # find the addresses that are known without the secrets
            known = {name: None if isinstance(value, BaseModel) else value for name, value in options.items()}
        else:
            known = resolved(options, named.resolve)
        where = addresses(url, known) if remote else ()
    except ValueError as error:
        raise click.UsageError(
            f"the definition of {task} cannot be used here: {error}; give the backups' URL"
        ) from None
    for address in where:
        try:
            check_address(Access(destination_hosts=named.hosts), "destination", address, url)
        except AccessRefused:
            missing.insert(0, f"--host {address}")
    if missing:
        at = f"{url}, on {', '.join(where)}" if where else url
        raise click.UsageError(
            f"the definition of {task} comes from the cluster, and says that its backups are at {at}. Nothing was sent "
            f"there from this machine. To allow this, add: {' '.join(dict.fromkeys(missing))}"
        )
    return known


def _refuse_if_elsewhere(api: Api, task: str, url: str) -> None:
    """Raise an error if a node has made backups of `task` in a folder that this machine does not have."""
    for run in api.client.get("/v1/runs", task=task, state="succeeded", limit=1)["items"]:
        made = (run["result"] or {}).get("url", url)
        raise click.ClickException(
            f"{url} does not exist on this machine, but {run['node']} has written {made} ({ago(run['finished_at'])}): "
            f"the destination is on the disk of that node. Run this command on {run['node']}, or mount the folder here"
        )


def _options(text: str | None) -> dict[str, Any]:
    try:
        options = json.loads(text) if text else {}
    except ValueError as error:
        raise click.UsageError(f"--options is not JSON: {error}") from error
    if not isinstance(options, dict):
        raise click.UsageError('--options is a JSON object, such as {"endpoint_url": "https://s3.internal"}')
    return {name: reference_of(value) if _is_reference(value) else value for name, value in options.items()}


def _is_reference(value: object) -> bool:
    return isinstance(value, dict) and value.keys() in ({"secret"}, {"env"})


def option_pairs(option: str, example: str, pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the values NAME=VALUE of an option that may be repeated, by name. Raises `click.UsageError`."""
    found = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name or not value:
            raise click.UsageError(f"{option} is NAME=PATH, {example}, not {pair!r}")
        found[name] = value
    return found


def _files(pairs: tuple[str, ...]) -> dict[str, Path]:
    found = option_pairs("--secret", "such as s3_key=/run/secrets/s3_key", pairs)
    return {name: Path(file) for name, file in found.items()}


def _hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(host for text in texts for host in parse_hosts(text))
    except ValueError as error:
        raise click.UsageError(f"--host: {error}") from None


def naming_what_may_be_used(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `NamedByCaller`, and pass their values to it as the argument `named`."""

    @click.option("--secret", "secrets", multiple=True, metavar="NAME=FILE", help="A file for a task's {secret: NAME}.")
    @click.option("--env", multiple=True, metavar="NAME", help="A variable for a task's {env: NAME}.")
    @click.option("--host", "hosts", multiple=True, metavar="HOST", help="Where a task's backups may be, if remote.")
    @click.option("--options", help='fsspec\'s options, a JSON object; {"secret": NAME} is the file of --secret.')
    @wraps(command)
    def with_named(
        *args: Any,
        secrets: tuple[str, ...],
        env: tuple[str, ...],
        hosts: tuple[str, ...],
        options: str | None,
        **more: Any,
    ) -> None:
        command(*args, named=NamedByCaller(_files(secrets), env, _hosts(hosts), _options(options)), **more)

    return with_named


def opening_backups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that open encrypted backups, and pass their value to it as the argument `keys`."""

    @click.option("--identity", "files", multiple=True, metavar="FILE", help="An identity of age or an SSH key.")
    @click.option("--passphrase-file", metavar="FILE", help="The passphrase that wraps an identity.")
    @wraps(command)
    def with_keys(*args: Any, files: tuple[str, ...], passphrase_file: str | None, **more: Any) -> None:
        command(*args, keys=_backup_keys(files, passphrase_file), **more)

    return with_keys


def _backup_keys(files: tuple[str, ...], passphrase_file: str | None) -> BackupKeys | None:
    """Read the files that the options name; None if they name none. Raises `click.ClickException`."""
    if not files and passphrase_file is None:
        return None
    passphrase = None if passphrase_file is None else passphrase_in(passphrase_file)
    try:
        found = [Identities.of_text(Path(file).read_text(), file, passphrase) for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the identity cannot be read: {error}") from None
    except BadIdentity as error:
        raise click.ClickException(str(error)) from None
    return BackupKeys(Identities(tuple(key for one in found for key in one.keys)), passphrase)


def passphrase_in(file: str) -> str:
    """Return the first line of a file. Raises `click.ClickException`."""
    try:
        line = Path(file).read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the passphrase cannot be read: {error}") from None
    if not line:
        raise click.ClickException(f"{file}: the first line, which is the passphrase, is empty")
    return line
