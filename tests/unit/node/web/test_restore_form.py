"""What the form proposes for a restore is what the kind accepts, for each type of source."""

from typing import Any

import pytest
import yaml

from node.web.restore_form import restore_text
from tasks.backup.params import BackupParams
from tasks.restore.params import RestoreParams

NAME = "20261121T030000.000000Z-42"
POSTGRES = "postgresql://u@db:5432/orders"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"type": "folder", "path": "/srv/a/"}, "/srv/a-restored"),
        ({"type": "sqlite", "path": "/srv/a.db"}, "/srv/a.db-restored"),
        ({"type": "stream", "argv": ["slapcat"]}, "/srv/restored/a"),
        ({"type": "postgres", "url": POSTGRES}, f"{POSTGRES}_restored"),
        ({"type": "postgres", "url": POSTGRES, "databases": ["sales"]}, "postgresql://u@db:5432/sales_restored"),
        ({"type": "postgres", "url": POSTGRES, "databases": ["a", "b"]}, "postgresql://u@new-server/orders"),
        ({"type": "postgres", "url": POSTGRES, "databases": "all"}, "postgresql://u@new-server/orders"),
        ({"type": "mariadb", "url": "mysql://u@db:3307/"}, "mysql://u@new-server/"),
        ({"type": "mariadb", "url": "mysql://u@/?socket=/run/m.sock", "databases": "all"}, "mysql://u@new-server/"),
        ({"type": "mariadb", "url": "mysql://u@db/", "databases": ["a b"]}, "mysql://u@db/a%20b_restored"),
        ({"type": "postgres_physical", "url": POSTGRES}, "/srv/restored/a"),
    ],
)
def test_each_source_has_a_new_place(source: dict[str, Any], target: str) -> None:
    params = {
        "source": source if "url" not in source else {**source, "password": {"secret": "pg"}},
        "destination": "/to",
        "copies": [{"destination": "s3://far/rota", "options": {"key": {"secret": "s3"}}}],
        "encryption": {"recipients": ["age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"]},
    }
    BackupParams.model_validate(params)
    logs = [("log", {"destination": "/log", "backups": "a"})]
    text = yaml.safe_load(restore_text("a", params, NAME, "node-1", logs, {"a"}))
    proposed = RestoreParams.model_validate(text["params"])
    assert proposed.target == target
    assert [place.url for place in (proposed.backups, *proposed.copies)] == ["/to/a", "s3://far/rota/a"]
    assert proposed.identity is not None and proposed.passphrase is None
    assert (proposed.password is not None) == ("://" in target)
    assert text.get("group") == (None if "://" in target else {"node": "node-1"})
    is_server = source["type"] == "postgres_physical"
    assert (proposed.wal is not None, proposed.backup) == (is_server, "latest" if is_server else NAME)
