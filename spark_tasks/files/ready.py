"""Which of the new files are complete, by the task's rule: old enough, or marked by another file."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_tasks.files.listing import Source
from spark_tasks.storage.url import is_local, without_protocol

if TYPE_CHECKING:
    from typing import Self

NAME: Final = "{name}"


class Ready(BaseModel):
    """When a file is complete."""

    model_config = ConfigDict(extra="forbid")

    age_s: float | None = Field(
        default=None, ge=1, le=31 * 86_400, description="Seconds since the file was last modified, by this node's clock"
    )
    marker: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^[^/]+$",
        description="The name of a file that is put into the same folder once the files there are complete. `{name}` "
        "in it stands for the name of the one file that it marks",
        examples=["_SUCCESS", "{name}.done"],
    )

    @model_validator(mode="after")
    def _check_one(self) -> "Self":
        if (self.age_s is None) == (self.marker is None):
            raise ValueError("give `age_s` or `marker`")
        return self


def marker_of(path: str, marker: str) -> str:
    """Return the path of the marker, the file that says that the file at `path` is complete.

    >>> marker_of("/in/a.csv", "_SUCCESS"), marker_of("s3://in/a.csv", "{name}.done")
    ('/in/_SUCCESS', 's3://in/a.csv.done')
    """
    folder, _, name = path.rpartition("/")
    return f"{folder}/{marker.replace(NAME, name)}"


def marked(sources: Sequence[Source], marker: str, there: Collection[str]) -> tuple[Source, ...]:
    """Return the files of `sources` whose marker is among the paths `there`, without the markers themselves. Pure."""
    markers = {marker_of(source.path, marker) for source in sources}
    return tuple(source for source in sources if marker_of(source.path, marker) in there and source.path not in markers)


def aged(sources: Sequence[Source], modified_s: Mapping[str, float], age_s: float, now_s: float) -> tuple[Source, ...]:
    """Return the files of `sources` that were modified at least `age_s` seconds before `now_s`. Pure.

    >>> aged([Source("a", 1), Source("b", 1)], {"a": 100.0, "b": 140.0}, age_s=60, now_s=160)
    (Source(path='a', size_bytes=1),)
    """
    return tuple(source for source in sources if now_s - modified_s[source.path] >= age_s)


def complete(sources: Sequence[Source], rule: Ready | None, now_s: float) -> tuple[Source, ...]:
    """Return the files of `sources` that are complete by the rule. Looks for markers and times in their file
    systems.
    """
    if rule is None:
        return tuple(sources)
    if rule.marker is not None:
        wanted = {marker_of(source.path, rule.marker) for source in sources}
        return marked(sources, rule.marker, {path for path in wanted if _exists(path)})
    assert rule.age_s is not None
    return aged(sources, modified_s(sources, now_s), rule.age_s, now_s)


def _exists(path: str) -> bool:
    import fsspec

    filesystem, name = fsspec.core.url_to_fs(without_protocol(path) if is_local(path) else path)
    return bool(filesystem.exists(name))


def modified_s(sources: Sequence[Source], now_s: float) -> dict[str, float]:
    """Return when each file was last modified. A file that was removed meanwhile counts as modified just now, so it is
    not complete.
    """
    import fsspec

    found = {}
    for source in sources:
        try:
            if is_local(source.path):
                found[source.path] = Path(without_protocol(source.path)).stat().st_mtime
            else:
                filesystem, name = fsspec.core.url_to_fs(source.path)
                found[source.path] = filesystem.modified(name).timestamp()
        except FileNotFoundError:
            found[source.path] = now_s
    return found


def staged_modified_s(place: Path, source: Source, now_s: float) -> float:
    """As `modified_s`, for the local file opened at `place`, or for a remote file after it was fetched to `place`."""
    import fsspec

    if is_local(source.path):
        return place.stat().st_mtime
    fsspec.core.url_to_fs(source.path)[0].invalidate_cache()
    return modified_s([source], now_s)[source.path]
