"""What somebody would write instead of a task of the kind `etl`: rows of PostgreSQL, aggregated, into PostgreSQL, once.

    PGPASSWORD=... python -m bench.pipelines.plain_etl URL TABLE

All rows are in this process's memory at once. The whole table is replaced, and nothing says which run did it.
"""

import sys

from adbc_driver_postgresql import dbapi

from bench.pipelines.plain_session import plain_session
from bench.pipelines.rows import TOTALS


def main(url: str, table: str) -> None:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM orders")
        orders = cursor.fetch_arrow_table()
    spark = plain_session()
    spark.createDataFrame(orders).createOrReplaceTempView("source")
    totals = spark.sql(TOTALS).toArrow()
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest(table, totals, mode="replace")
        connection.commit()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
