"""What somebody would write instead of a task of the kind `ingest`: CSV files into a Delta table, once.

    python -m bench.pipelines.plain_ingest FOLDER TABLE COLUMNS

It looks for no endless line, open quote or malformed row, counts and syncs nothing, and knows nothing of an earlier or
another attempt. The session is as small as a task's.
"""

import sys
import time
from pathlib import Path

from deltalake import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from bench.pipelines.plain_session import plain_session


def main(folder: str, table: str, columns: str) -> None:
    spark = plain_session()
    rows = spark.read.csv(folder, schema=columns, header=True, escape='"')
    data = Path(table) / "data"
    rows.write.parquet(str(data))
    files = [
        AddAction(f"data/{file.name}", file.stat().st_size, {}, time.time_ns() // 1_000_000, True, "{}")
        for file in data.glob("*.parquet")
    ]
    create_table_with_add_actions(table, Schema.from_json(rows.schema.json()), files)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
