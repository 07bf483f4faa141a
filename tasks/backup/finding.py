"""Finds the backups of a task at all its destinations: each backup once, with the places that have it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tasks.backup.manifest import Manifest, NoBackup, begun, counting_backups, survey_url
from tasks.backup.objects import needed_by_restore
from tasks.backup.retention import name_of
from tasks.places.place import Place


class TaskPlace(NamedTuple):
    """The folder of a task's backups at one destination."""

    #: Its URL.
    url: str
    #: fsspec's options for it, with secrets resolved.
    options: dict[str, Any]


class BackupAt(NamedTuple):
    """A backup at one place."""

    #: Its manifest as it is there.
    manifest: Manifest
    place: TaskPlace


@dataclass(frozen=True)
class FoundBackups:
    """The backups of a task, newest first, and where each one is."""

    complete: tuple[Manifest, ...]
    """Each backup once, as the first place that has it records it."""

    at: Mapping[str, tuple[BackupAt, ...]]
    """By the name of a backup's folder, the backup at the places that have it, in the order of the destinations."""

    problems: tuple[str, ...]
    """A sentence for each place that cannot be read, and for each manifest that cannot be read."""

    unfinished: tuple[str, ...] = ()
    """The names of the folders, newer than any complete backup, that have no manifest at any place."""

    def places(self, name: str) -> list[str]:
        """Return the URLs of the places that have the backup of a name."""
        return [each.place.url for each in self.at.get(name, ())]

    def chosen(self, name: str | None = None) -> Manifest:
        """Return the backup of a name; None: the newest. Raises `NoBackup`, whose message says what was found."""
        if name is not None and name not in self.at:
            there = ", ".join(each.name for each in self.complete[:_SHOWN]) or "none"
            raise NoBackup("; ".join([f"there is no backup {name} (the newest are: {there})", *self.problems]))
        if name is None and not self.complete:
            raise NoBackup("; ".join(self.problems) or "no destination holds a backup")
        return self.complete[0] if name is None else self.at[name][0].manifest

    def whole(self, manifest: Manifest, tell: Callable[[str], None] = lambda sentence: None) -> Iterator[BackupAt]:
        """Yield a backup at each place that has all its files, and those of the backups that it needs.

        Only the sizes of the files are compared. `tell` gets a sentence for each place that lacks some. Raises
        `NoBackup` if no place has all.
        """
        why: list[str] = []
        found = False
        for each in self.at[manifest.name]:
            lacking = lacking_file(each)
            if lacking is None:
                found = True
                yield each
            else:
                why.append(lacking)
                tell(lacking)
        if not found:
            older = next((one for one in self.complete if one.created < manifest.created), None)
            instead = "there is no older one" if older is None else f"the one before it is {older.url}"
            raise NoBackup(f"{manifest.name} is whole at no destination ({'; '.join(why)}): {instead}")


_SHOWN = 5
"""How many names of backups an error lists."""


def find_backups(places: Sequence[TaskPlace]) -> FoundBackups:
    """Read the backups of a task at all `places`. A place is the folder of a task, or that of one backup.

    Of several places, one that cannot be read is reported, not raised.
    """
    found: dict[str, Manifest] = {}
    at: dict[str, tuple[BackupAt, ...]] = {}
    problems: list[str] = []
    without: set[str] = set()
    for place in places:
        try:
            here = survey_url(place.url, place.options)
        except Exception as error:
            if len(places) == 1:
                raise
            problems.append(f"{place.url} cannot be read: {type(error).__name__}: {error}")
            continue
        problems += here.unreadable
        without.update(name for name in here.without if begun(name) is not None)
        if not here.complete and not here.unreadable:
            problems.append(f"{place.url} holds no folder with a manifest.json: {_instead(place)}")
        for manifest in here.complete:
            name = name_of(manifest.url)
            found.setdefault(name, manifest)
            at[name] = (*at.get(name, ()), BackupAt(manifest, place))
    newest_first = sorted(found.values(), key=lambda one: (one.created, one.token), reverse=True)
    complete = tuple(counting_backups(newest_first))
    newest = complete[0].name if complete else ""
    unfinished = tuple(sorted(name for name in without - at.keys() if name > newest))
    return FoundBackups(complete, at, tuple(problems), unfinished)


def _instead(place: TaskPlace) -> str:
    """Say what to name instead of a place without backups, by what is in it and beside it."""
    above = place.url.rstrip("/").rpartition("/")[0]
    for url in (place.url.rstrip("/"), above):
        try:
            there = sorted(Place(url, place.options).folders())
        except Exception:  # noqa: BLE001, S112  storage libraries raise any exception; this is a hint only
            continue
        if there and not any(begun(name) for name in there):
            more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
            return f"give DESTINATION/TASK; {url} has the folders {', '.join(there[:_SHOWN])}{more}"
    return "give DESTINATION/TASK, or one backup"


def lacking_file(backup: BackupAt) -> str | None:
    """Say which file of a backup, or of those that it needs, a place lacks; None: it has all."""
    options = backup.place.options
    try:
        for each in needed_by_restore(backup.manifest, options):
            place = Place(each.url, options)
            for file in each.files:
                if file.version is not None:
                    continue  # this version is read, whatever was written over it since
                try:
                    size_bytes = place.size_bytes(file.name)
                except (FileNotFoundError, NotADirectoryError):
                    return f"{each.url} lacks {file.name}"
                if size_bytes not in {None, file.stored_bytes}:
                    return f"{each.url}/{file.name} has {size_bytes} bytes, not {file.stored_bytes}"
    except NoBackup as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception
        return f"{backup.manifest.url} cannot be read: {type(error).__name__}: {error}"
    return None
