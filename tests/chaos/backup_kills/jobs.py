"""The tasks whose runs are killed: what is whole when one dies, and what must hold once its run has ended."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from examples.demo.postgres import postgres_server
from tasks.backup.manifest import NAME, Manifest, read_manifest, survey_url
from tasks.backup.proofs import read_proofs
from tasks.backup.verify import verify
from tasks.places.place import Place
from testkit.cluster import Cluster
from testkit.servers.object_store import ObjectStore, object_store_process
from testkit.trees import facts_of_tree
from tests.chaos.backup_kills.sources import PASSWORD, FewFiles, KilledSource, equal

KEEP: Final = 3
"""How many backups stay, so that each run but the first ones removes one."""

_RECORD: Final = ".whole.json"
_ENDED_S: Final = 120.0


class Violated(AssertionError):
    """Something that must hold whatever is killed does not hold."""


def demand(holds: bool, said: str) -> None:
    """Raise `Violated` unless `holds`."""
    if not holds:
        raise Violated(said)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was whole when an attempt died, each with what shows that it was not made again."""

    #: Objects at the first destination, by their names: the inodes.
    objects: Mapping[str, Any] = field(default_factory=dict)
    #: The name of the backup's folder, if the backup was complete at the first destination.
    complete: str | None = None
    #: Objects of the complete backup at further destinations, by the URL and the name.
    copied: Mapping[tuple[str, str], Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What was whole, in a few words."""
        words = [f"{len(self.objects)} objects whole"] if self.objects else []
        words += ["the backup complete"] if self.complete else []
        words += [f"{len(self.copied)} objects copied"] if self.copied else []
        return ", ".join(words) or "nothing whole"


class Job(Protocol):
    """A task whose runs are killed."""

    @property
    def task(self) -> str:
        """The name of the task to run next."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets that the nodes hold."""

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that the nodes need."""

    @property
    def local(self) -> bool:
        """Whether only one member can do it."""

    def prepare(self, cluster: Cluster, number: int) -> None:
        """Register the task if need be, and change what it works on."""

    def landmarks(self) -> Mapping[str, Callable[[Mapping[str, Any]], bool]]:
        """Return the moments that can be waited for: each looks at a run that works."""

    def seen(self, run_id: str) -> Seen:
        """Return what is whole now."""

    def check(self, run: Mapping[str, Any], seen: Seen, scratch: Path) -> None:
        """Raise `AssertionError` unless all is as it must be after a run that has ended."""

    def leftovers(self) -> list[str]:
        """Return what is at the destinations and no part of what counts."""

    def sessions(self) -> list[str]:
        """Return the sessions of others at servers."""


class BackupJob:
    """A task of kind `backup`."""

    task = "nightly"

    def __init__(self, stack: ExitStack, folder: Path, make: Callable[[ExitStack, Path], KilledSource]) -> None:
        self.source = make(stack, folder)
        self.secrets = self.source.secrets
        self.env = self.source.env
        self.local = self.source.local
        self._first = folder / "to" / self.task
        self._runs = 0
        self.params: dict[str, Any] = {**self.source.params, "destination": str(folder / "to"), "keep": KEEP}
        self._chained = "full_every" in self.source.params["source"]
        self._earlier: set[Path] = set()

    def places(self) -> list[tuple[str, dict[str, Any] | None]]:
        """The URLs of the task's folders at all destinations, with their options; the first one first."""
        return [(str(self._first), None)]

    def prepare(self, cluster: Cluster, number: int) -> None:
        if number == 0:
            more: dict[str, Any] = {"group": {"node": "node-1"}} if self.local else {}
            cluster.register(self.task, "backup", params=self.params, retry={"attempts": 5, "backoff_s": 0.1}, **more)
        self.source.change(number)
        self._earlier = set(self._first.glob(f"*/{NAME}"))

    def landmarks(self) -> dict[str, Callable[[Mapping[str, Any]], bool]]:
        def has(key: str) -> Callable[[Mapping[str, Any]], bool]:
            return lambda run: key in (run["checkpoint"] or {})

        found: dict[str, Callable[[Mapping[str, Any]], bool]] = {
            "its checkpoint": has("begun"),
            "the manifest's checkpoint": has("finishing"),
            "the manifest": lambda run: self._complete(run["run_id"]) is not None,
            "the last checkpoint": has("finished"),
            "a removal": lambda run: not all(path.exists() for path in self._earlier),
        }
        if self.source.parts:
            found["a whole object"] = lambda run: any(self._first.glob(f"*/*{_RECORD}"))
        return found

    def seen(self, run_id: str) -> Seen:
        complete = self._complete(run_id)
        objects = {}
        for record in self._first.glob(f"*/*{_RECORD}"):
            path = record.with_name(record.name.removesuffix(_RECORD))
            try:
                objects[path.name] = path.stat().st_ino
            except FileNotFoundError:
                continue  # the next attempt is moving it, and the record follows
        copied = {}
        if complete is not None:
            for url, options in self.places()[1:]:
                for file in complete.files:
                    if (
                        stamp := self._stamp(f"{url}/{complete.name}", options, file.name, file.stored_bytes)
                    ) is not None:
                        copied[url, file.name] = stamp
        return Seen(objects=objects, complete=None if complete is None else complete.name, copied=copied)

    def _complete(self, run_id: str) -> Manifest | None:
        """The backup that the run has completed at the first destination."""
        for path in self._first.glob(f"*/{NAME}"):
            if path not in self._earlier:
                found = read_manifest(Place(str(path.parent)))
                if found is not None and found.run_id == run_id:
                    return found
        return None

    def _stamp(self, url: str, options: dict[str, Any] | None, name: str, size_bytes: int) -> Any:
        """What changes when an object is written again; None: it is not there as a whole."""
        try:
            about = (Path(url) / name).stat()
        except FileNotFoundError:
            return None
        return about.st_ino if about.st_size == size_bytes else None

    def check(self, run: Mapping[str, Any], seen: Seen, scratch: Path) -> None:
        self._runs += 1
        demand(run["state"] == "succeeded", f"the run ended as {run['state']}: {run['error']}")
        demand(not run["result"]["owed"], f"something is owed: {run['result']['owed']}")
        made = run["result"]["url"].rpartition("/")[2]
        for url, options in self.places():
            found = survey_url(url, options)
            own = [one.name for one in found.complete if one.run_id == run["run_id"]]
            demand(own == [made], f"{url} lists {own} of the run, whose result is {made}")
            demand(not found.unreadable, f"{url}: {found.unreadable}")
            count = min(KEEP, self._runs)
            listed = [one.name for one in found.complete]
            demand(len(listed) == count or (self._chained and len(listed) > count), f"{url} lists {listed}")
        self._check_kept(made, seen)
        for url, options in self.places():
            self.source.compare(f"{url}/{made}", options, scratch)

    def _check_kept(self, made: str, seen: Seen) -> None:
        if seen.complete is not None:
            demand(made == seen.complete, f"{seen.complete} was complete, and {made} was made")
        for name, inode in seen.objects.items():
            path = self._first / made / name
            demand(path.exists() and path.stat().st_ino == inode, f"{name} was whole, and was made again in {made}")
        for (url, name), stamp in seen.copied.items():
            options = dict(self.places())[url]
            (size_bytes,) = [file.stored_bytes for file in self._manifest(made).files if file.name == name]
            now = self._stamp(f"{url}/{made}", options, name, size_bytes)
            demand(now == stamp, f"{url}/{made}/{name} was copied, and was copied again")

    def _manifest(self, name: str) -> Manifest:
        found = read_manifest(Place(str(self._first / name)))
        assert found is not None
        return found

    def leftovers(self) -> list[str]:
        left = []
        for url, options in self.places():
            found = survey_url(url, options)
            named = {f"{one.name}/{file.name}" for one in found.complete for file in one.files}
            named |= {f"{one.name}/{NAME}" for one in found.complete}
            left += [f"{url}/{name}" for name in self._names(url) if name not in named]
            left += [f"{url}/{name} does not count" for name in found.superseded]
        return left

    def _names(self, url: str) -> Iterator[str]:
        """Files below a URL, and empty folders."""
        for path in Path(url).rglob("*"):
            if not path.is_dir() or not any(path.iterdir()):
                yield str(path.relative_to(url))

    def sessions(self) -> list[str]:
        return self.source.sessions()


class CopiesJob(BackupJob):
    """A task of kind `backup` with three destinations: one is written at the same time, two afterwards."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, folder, FewFiles)
        self._store: ObjectStore = stack.enter_context(object_store_process(folder / "store.log"))
        self.secrets = self._store.secrets
        self._near, self._later, self._far = folder / "near", folder / "later", self._store.url("far")
        self.params["copies"] = [
            {"destination": str(self._near), "keep": KEEP},
            {"destination": str(self._later), "keep": KEEP, "copy": "later"},
            {"destination": self._far, "options": self._store.references, "keep": KEEP, "copy": "later"},
        ]

    def places(self) -> list[tuple[str, dict[str, Any] | None]]:
        far = (f"{self._far}/{self.task}", self._store.options)
        return [*super().places(), *((f"{each}/{self.task}", None) for each in (self._near, self._later)), far]

    def landmarks(self) -> dict[str, Callable[[Mapping[str, Any]], bool]]:
        def copied(to: Path) -> Callable[[Mapping[str, Any]], bool]:
            def there(run: Mapping[str, Any]) -> bool:
                made = self._complete(run["run_id"])
                return made is not None and (to / self.task / made.name / NAME).exists()

            return there

        return super().landmarks() | {"the copy made at once": copied(self._near), "a later copy": copied(self._later)}

    def _stamp(self, url: str, options: dict[str, Any] | None, name: str, size_bytes: int) -> Any:
        if options is None:
            return super()._stamp(url, options, name, size_bytes)
        try:
            about = self._store.files.info(f"{url}/{name}")
        except FileNotFoundError:
            return None
        return (about["ETag"], about["LastModified"]) if about["size"] == size_bytes else None

    def _names(self, url: str) -> Iterator[str]:
        if url.startswith("/"):
            yield from super()._names(url)
            return
        yield from self._store.names(f"far/{self.task}")
        uploads = self._store.files.call_s3("list_multipart_uploads", Bucket="lake").get("Uploads", [])
        yield from (f"the upload of {each['Key']}" for each in uploads)


class DrillJob:
    """A task of kind `drill`, which restores the backup of a database on trial."""

    task = "proving"
    local = False

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._server = stack.enter_context(postgres_server(PASSWORD))
        self.secrets = {"pg": PASSWORD}
        self.env = {"ROTA_POSTGRES_BIN": str(self._server.programs)}
        self._backups = folder / "to" / "orders"
        self._server.sql("postgres", "CREATE DATABASE orders")
        self._server.sql(
            "orders", "CREATE TABLE line AS SELECT n AS id, md5(n::text) AS t FROM generate_series(1, 50000) n"
        )

    def prepare(self, cluster: Cluster, number: int) -> None:
        if number:
            return
        source = {"type": "postgres", "url": self._server.url("orders"), "password": {"secret": "pg"}}
        params = {"source": source | {"fingerprint": "content"}, "destination": str(self._backups.parent)}
        cluster.register("orders", "backup", params=params)
        done = cluster.wait_for_run(cluster.run("orders"), deadline_s=_ENDED_S)
        assert done["state"] == "succeeded", done["error"]
        drill = {"backups": {"url": str(self._backups)}, "compare": "content"}
        cluster.register(self.task, "drill", params=drill, retry={"attempts": 5, "backoff_s": 0.1})

    def landmarks(self) -> dict[str, Callable[[Mapping[str, Any]], bool]]:
        return {
            "its checkpoint": lambda run: run["checkpoint"] is not None,
            "the proof": lambda run: bool(self._proofs(run["run_id"])),
        }

    def _proofs(self, run_id: str) -> list[str]:
        found = read_proofs(Place(str(self._backups)))
        demand(not found.unreadable, f"{found.unreadable}")
        return [one.result for one in found.proofs if one.run_id == run_id]

    def seen(self, run_id: str) -> Seen:
        proofs = self._proofs(run_id)
        return Seen(complete=f"{len(proofs)} proofs" if proofs else None)

    def check(self, run: Mapping[str, Any], seen: Seen, scratch: Path) -> None:
        demand(run["state"] == "succeeded", f"the run ended as {run['state']}: {run['error']}")
        proofs = self._proofs(run["run_id"])
        # An attempt that died after its proof was written leaves it: the next one proves the same backup once more.
        demand(set(proofs) == {"proven"} and len(proofs) <= run["attempt"], f"the run has the proofs {proofs}")
        (backup,) = survey_url(str(self._backups)).complete
        report = verify(backup.url)
        demand(not report.problems, f"the drilled backup: {report.problems}")

    def leftovers(self) -> list[str]:
        (backup,) = survey_url(str(self._backups)).complete
        named = {f"{backup.name}/{name}" for name in (NAME, *(file.name for file in backup.files))}
        proofs = [f"proofs/{one.name}" for one in read_proofs(Place(str(self._backups))).proofs]
        there = [str(path.relative_to(self._backups)) for path in self._backups.rglob("*") if not path.is_dir()]
        return [name for name in there if name not in named and name not in proofs]

    def sessions(self) -> list[str]:
        return []


class RestoreJob:
    """Tasks of kind `restore`: in turn a folder, on one member, and a database."""

    local = False

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._folder = folder
        self._server = stack.enter_context(postgres_server(PASSWORD))
        self.secrets = {"pg": PASSWORD}
        self.env = {"ROTA_POSTGRES_BIN": str(self._server.programs)}
        self._files = FewFiles(stack, folder)
        self._server.sql("postgres", "CREATE DATABASE orders")
        hexes = " || ".join(["md5(random()::text)"] * 16)
        self._server.sql("orders", f"CREATE TABLE line AS SELECT n, {hexes} AS t FROM generate_series(1, 60000) n")
        self._target = ""
        self.task = ""

    def prepare(self, cluster: Cluster, number: int) -> None:
        secret = {"password": {"secret": "pg"}}
        if number == 0:
            sources = {
                "orders": {"type": "postgres", "url": self._server.url("orders")} | secret,
                "files": {"type": "folder", "path": str(self._folder / "files"), "shared": True},
            }
            for name, source in sources.items():
                cluster.register(name, "backup", params={"source": source, "destination": str(self._folder / "to")})
                done = cluster.wait_for_run(cluster.run(name), deadline_s=_ENDED_S)
                assert done["state"] == "succeeded", done["error"]
        self.local = number % 2 == 0
        self.task = f"back-{number}"
        params: dict[str, Any] = {"backups": {"url": str(self._folder / "to" / ("files" if self.local else "orders"))}}
        if self.local:
            self._target = str(self._folder / "new" / self.task)
            more: dict[str, Any] = {"group": {"node": "node-1"}}
        else:
            self._server.sql("postgres", f'CREATE DATABASE "{self.task}"')
            self._target = self._server.url(self.task)
            params, more = params | secret, {}
        params["target"] = self._target
        cluster.register(self.task, "restore", params=params, retry={"attempts": 5, "backoff_s": 0.1}, **more)

    def landmarks(self) -> dict[str, Callable[[Mapping[str, Any]], bool]]:
        if self.local:
            new = self._folder / "new"
            return {
                "the folder beside the target": lambda run: any(new.glob(f".{self.task}.*")),
                "the target": lambda run: Path(self._target).exists(),
            }
        tables = "SELECT count(*) FROM pg_class WHERE relname = 'line'"
        return {"the restored table": lambda run: self._server.sql(self.task, tables) == "1"}

    def seen(self, run_id: str) -> Seen:
        return Seen()

    def check(self, run: Mapping[str, Any], seen: Seen, scratch: Path) -> None:
        # A database has no inode by which the next attempt knows that it was restored: it says that this may be so.
        told = not self.local and "an earlier attempt at this run may have restored it" in (run["error"] or "")
        demand(run["state"] == "succeeded" or told, f"the run ended as {run['state']}: {run['error']}")
        if self.local:
            equal("the folder", facts_of_tree(self._folder / "files"), facts_of_tree(Path(self._target)))
            return
        sums = "SELECT count(*), md5(string_agg(t, '|' ORDER BY n)) FROM line"
        equal("the database", self._server.sql("orders", sums), self._server.sql(self.task, sums))
        self._server.sql("postgres", f'DROP DATABASE "{self.task}" WITH (FORCE)')

    def leftovers(self) -> list[str]:
        return [str(path) for path in (self._folder / "new").glob(".*")]

    def sessions(self) -> list[str]:
        listed = "SELECT query FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return [line for line in self._server.sql("postgres", listed).splitlines() if line]
