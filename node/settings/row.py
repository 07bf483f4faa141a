"""A setting, declared once: a field of a dataclass carries its row, which says how the setting's text is read."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

PREFIX: Final = "ROTA_"

T = TypeVar("T")

Above = Mapping[str, Any]
"""The values of the settings above a row in the table, by the names of their fields."""

_ROW: Final = "row"


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One ROTA_* variable."""

    #: The variable's name.
    name: str
    #: What the variable sets, as a sentence for the reference.
    meaning: str
    #: Parses the text into the value. Raises `ValueError` with a sentence that says what would be right.
    parse: Callable[[str], T]
    #: The default, as a text that is parsed as if it was given.
    default: str = ""
    #: Computes the value of an unset variable from the settings above; None: `default` is parsed.
    unset: Callable[[Above], T] | None = None
    #: Describes a default that depends on the machine or on other settings; "": it does not.
    computed: str = ""
    #: An example of a value.
    example: str = ""
    #: Whether `NAME_FILE` may name a file that holds the value.
    has_file: bool = False
    #: Why `rota up` refuses the variable; "": it hands the variable to its nodes.
    not_for_up: str = ""
    #: The heading in the reference above this row; "": the row stands under the heading of the row above.
    heading: str = ""

    @property
    def file_name(self) -> str:
        """The variable that names a file with the value."""
        return f"{self.name}_FILE"


def value_of(row: Setting[T]) -> T:
    """Declare a field of a dataclass that `SettingsReader` reads by this row; its type is that of the row's values."""
    return cast(T, field(metadata={_ROW: row}))


def rows_of(declared: type) -> Iterator[tuple[str, Setting[Any]]]:
    """Yield the rows of the settings that a dataclass declares, each with the name of its field, in order."""
    for each in fields(declared):
        if (row := each.metadata.get(_ROW)) is not None:
            yield each.name, row


class SettingsReader:
    """Reads the settings that a dataclass declares from an environment.

    `problems` collects a sentence for each error. `failed` collects the settings that could not be read, so that no
    other check reports them again.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []
        self.failed: set[str] = set()

    def values(self, declared: type) -> dict[str, Any]:
        """Return the value of each setting that a dataclass declares, by the name of its field."""
        values: dict[str, Any] = {}
        for name, row in rows_of(declared):
            values[name] = self._value(row, row.parse(row.default) if row.unset is None else row.unset(values))
        return values

    def given_file(self, row: Setting[Any]) -> str | None:
        """Return the file that NAME_FILE names for the value of a setting; None if NAME_FILE is not set."""
        return self.text(row.file_name)

    def text(self, variable: str) -> str | None:
        """Return the text of a variable; None if it is not set or blank."""
        return self._environ.get(variable, "").strip() or None

    def _value(self, row: Setting[Any], unset: Any) -> Any:
        text = self._secret(row) if row.has_file else self.text(row.name)
        if text is None:
            return unset
        try:
            return row.parse(text)
        except ValueError as error:
            self._failed(row, f"{row.name}={text!r}: {error}")
            return unset

    def _secret(self, row: Setting[Any]) -> str | None:
        """Return the text of a setting, or the content of the file that NAME_FILE names; None if neither is set."""
        text, path = self.text(row.name), self.given_file(row)
        if text and path:
            self._failed(row, f"{row.name} and {row.file_name} are both set: keep one")
        source = row.name
        try:
            if path and not text:
                source = f"{row.file_name}={path}"
                text = Path(path).read_text(encoding="utf-8").strip() or None
            (text or "").encode()  # a variable holds bytes, which need not be UTF-8
        except OSError as error:
            self._failed(row, f"{source}: {error.strerror}")
        except UnicodeError:
            self._failed(row, f"{source}: is not UTF-8 text (raw random bytes?); make one with: openssl rand -hex 32")
        else:
            return text
        return None

    def _failed(self, row: Setting[Any], problem: str) -> None:
        self.failed.add(row.name)
        self.problems.append(problem)
