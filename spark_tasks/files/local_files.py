"""The local file system, which says what its globs left out."""

from typing import Any

from fsspec.implementations.local import LocalFileSystem


class LocalFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """fsspec's local file system, whose globs leave out each folder that they cannot list, without a word: `unlisted`
    has these folders, but those that were removed meanwhile.
    """

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.unlisted: dict[str, OSError] = {}

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        """As fsspec's."""
        try:
            return list(super().ls(path, detail=detail, **kwargs))
        except FileNotFoundError:
            raise
        except OSError as error:
            self.unlisted[path.rstrip("/")] = error
            raise
