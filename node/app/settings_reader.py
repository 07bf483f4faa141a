"""Reads the settings from an environment, one by one, and collects the errors in them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from node.app.settings import SETTINGS, not_the_nodes

_T = TypeVar("_T")


class SettingsReader:
    """Reads the variables of the table `node.app.settings`; a name that is not in it is a `KeyError`.

    `problems` collects a sentence for each error. `failed` collects the settings that could not be read, so that no
    other check reports them again.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []
        self.failed: set[str] = set()

    def given(self, name: str) -> str | None:
        """The text of a setting; None if it is not set or blank. The table's default does not count."""
        return self._text(SETTINGS[name].name)

    def given_file(self, name: str) -> str | None:
        """The file that NAME_FILE names for the value of a setting; None if NAME_FILE is not set."""
        return self._text(SETTINGS[name].file_name)

    def text(self, name: str) -> str:
        """The text of a setting, or its default."""
        return self.given(name) or SETTINGS[name].default

    def parsed(self, name: str) -> Any:
        """The value of a setting, or of its default."""
        row = SETTINGS[name]
        return self.parsed_or(name, row.parse(row.default))

    def parsed_or(self, name: str, default: _T) -> _T:
        """The value of a setting whose default depends on the machine or on other settings."""
        text = self.given(name)
        if text is None:
            return default
        try:
            value: _T = SETTINGS[name].parse(text)
        except ValueError as error:
            self.failed.add(name)
            self.problems.append(f"{name}={text!r}: {error}")
            return default
        return value

    def secret(self, name: str) -> str | None:
        """The value of a setting, or the content of the file that NAME_FILE names; None if neither is set."""
        value, path = self.given(name), self.given_file(name)
        if value and path:
            self.failed.add(name)
            self.problems.append(f"{name} and {name}_FILE are both set: keep one")
        source = name
        try:
            if path and not value:
                source = f"{name}_FILE={path}"
                value = Path(path).read_text(encoding="utf-8").strip() or None
            (value or "").encode()  # a variable holds bytes, which need not be UTF-8
            return value
        except OSError as error:
            self.problems.append(f"{source}: {error.strerror}")
        except UnicodeError:
            self.problems.append(
                f"{source}: is not UTF-8 text (raw random bytes?); make one with: openssl rand -hex 32"
            )
        self.failed.add(name)
        return None

    def variables(self, names: Iterable[str]) -> dict[str, str]:
        """The values, unchanged, of those variables in `names` that are set."""
        return {name: self._environ[name] for name in names if name in self._environ}

    def not_the_nodes(self) -> dict[str, str]:
        """The ROTA_* variables that are set and are not the node's own."""
        return {name: text for name in not_the_nodes(self._environ) if (text := self._text(name))}

    def _text(self, variable: str) -> str | None:
        return self._environ.get(variable, "").strip() or None
