"""Each way to spoil a backup once, and good ones; `python -m tests.integration.drills` takes as many as one asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psycopg2")
pytest.importorskip("pyrage")

from tests.integration.drills.backups import GoodBackups, good_backups
from tests.integration.drills.spoilings import SPOILINGS
from tests.integration.drills.trials import trials

pytestmark = [pytest.mark.integration, pytest.mark.more]

WAYS = sum(map(len, SPOILINGS.values()))
GOOD = 10


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoodBackups]:
    with good_backups(tmp_path_factory.mktemp("made")) as made:
        yield made


@pytest.mark.parametrize("number", range(WAYS))
def test_a_spoilt_backup_is_not_proven(good: GoodBackups, tmp_path: Path, number: int) -> None:
    (trial,) = trials(good, tmp_path, range(number, number + 1), spoilt=True)
    assert trial.is_right, trial


@pytest.mark.parametrize("number", range(GOOD))
def test_a_good_backup_is_proven(good: GoodBackups, tmp_path: Path, number: int) -> None:
    (trial,) = trials(good, tmp_path, range(number, number + 1), spoilt=False)
    assert trial.is_right, trial
