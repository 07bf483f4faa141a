from dataclasses import dataclass

from node.settings.row import Setting, SettingsReader, rows_of, value_of
from node.settings.values import integer_between, no_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    name: str = value_of(Setting("ROTA_ENGINE", "The engine.", parse=str, default="steam"))
    pistons: int = value_of(
        Setting("ROTA_PISTONS", "Its pistons.", integer_between(1, 99), unset=lambda above: len(above["name"]))
    )
    key: str | None = value_of(Setting("ROTA_KEY", "The key.", parse=str, unset=no_value, has_file=True))


def test_a_field_with_a_row_is_read_and_nothing_else_says_how() -> None:
    reader = SettingsReader({"ROTA_ENGINE": " diesel ", "ROTA_PISTONS": "4", "ROTA_KEY": "k"})
    assert Engine(**reader.values(Engine)) == Engine(name="diesel", pistons=4, key="k")
    assert [(field, row.name) for field, row in rows_of(Engine)] == [
        ("name", "ROTA_ENGINE"),
        ("pistons", "ROTA_PISTONS"),
        ("key", "ROTA_KEY"),
    ]


def test_what_is_not_given_is_the_default_or_follows_from_the_settings_above() -> None:
    assert Engine(**SettingsReader({}).values(Engine)) == Engine(name="steam", pistons=5, key=None)
    assert Engine(**SettingsReader({"ROTA_ENGINE": "v8", "ROTA_KEY": " "}).values(Engine)).pistons == 2


def test_what_cannot_be_read_is_a_problem_and_counts_as_not_given() -> None:
    reader = SettingsReader({"ROTA_PISTONS": "many", "ROTA_KEY": "k", "ROTA_KEY_FILE": "/some/file"})
    assert reader.values(Engine) == {"name": "steam", "pistons": 5, "key": "k"}
    assert reader.problems == [
        "ROTA_PISTONS='many': must be a whole number from 1 to 99",
        "ROTA_KEY and ROTA_KEY_FILE are both set: keep one",
    ]
    assert reader.failed == {"ROTA_PISTONS", "ROTA_KEY"}
