"""Finds the backups of a task at all its destinations: each backup once, with the places that have it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tasks.backup.chain import BrokenChain
from tasks.backup.manifest import Manifest, NoBackup, counting_backups, survey_url
from tasks.backup.objects import needed_by_restore
from tasks.backup.retention import name_of
from tasks.places.place import Place


class TaskPlace(NamedTuple):
    """The folder of a task's backups at one destination."""

    #: Its URL.
    url: str
    #: fsspec's options for it, with secrets resolved.
    options: dict[str, Any]


@dataclass(frozen=True)
class FoundBackups:
    """The backups of a task, newest first, and where each one is."""

    complete: tuple[Manifest, ...]
    """Each backup once, as the first place that has it records it."""

    places: Mapping[str, tuple[TaskPlace, ...]]
    """By the name of a backup's folder, the places that have it, in the order of the task's destinations."""

    problems: tuple[str, ...]
    """A sentence for each place that cannot be read, and for each manifest that cannot be read."""

    def newest_whole(self) -> tuple[Manifest, TaskPlace]:
        """Return the newest backup as it is at the first place that has all its files, and that place.

        An incremental backup needs the files of those before it, too. Only the sizes of the files are compared. Raises
        `NoBackup`.
        """
        if not self.complete:
            raise NoBackup("; ".join(self.problems) or "no destination holds a backup")
        name = name_of(self.complete[0].url)
        broken: list[str] = []
        for place in self.places[name]:
            found = survey_url(f"{place.url}/{name}", place.options).complete
            try:
                if found and all(_has_all(each, place.options) for each in needed_by_restore(found[0], place.options)):
                    return found[0], place
            except BrokenChain as error:
                broken.append(str(error))
        where = ", ".join(place.url for place in self.places[name])
        why = "; ".join([f"{name} is whole at no destination ({where})", *broken])
        raise NoBackup(f"{why}: verify an older backup, by its URL")


def find_backups(places: Sequence[TaskPlace]) -> FoundBackups:
    """Read the backups of a task at all `places`.

    Of several places, one that cannot be read is reported, not raised.
    """
    found: dict[str, Manifest] = {}
    where: dict[str, tuple[TaskPlace, ...]] = {}
    problems: list[str] = []
    for place in places:
        try:
            here = survey_url(place.url, place.options)
        except Exception as error:
            if len(places) == 1:
                raise
            problems.append(f"{place.url} cannot be read: {type(error).__name__}: {error}")
            continue
        problems += here.unreadable
        for manifest in here.complete:
            name = name_of(manifest.url)
            found.setdefault(name, manifest)
            where[name] = (*where.get(name, ()), place)
    newest_first = sorted(found.values(), key=lambda one: (one.created, one.token), reverse=True)
    return FoundBackups(tuple(counting_backups(newest_first)), where, tuple(problems))


def _has_all(manifest: Manifest, options: dict[str, Any]) -> bool:
    place = Place(manifest.url, options)
    try:
        return all(place.size_bytes(file.name) in {None, file.stored_bytes} for file in manifest.files)
    except (FileNotFoundError, NotADirectoryError):
        return False
