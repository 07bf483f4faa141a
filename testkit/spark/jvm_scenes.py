"""What tests have a process do with a session of its own: `python -m testkit.spark.jvm_scenes SCENE ...`.

Each prints what it has seen, as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node.execution.linux import gain_no_rights
from spark_tasks.spark.java import find_java
from spark_tasks.spark.session import spark_session
from tasks.landlock import IOCTL, READ, RUN, WRITE, Ruleset, abi

if TYPE_CHECKING:
    import pyarrow as pa

_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


def confined(scratch: Path) -> Any:
    """A session where Java, Python, chmod and rm may be executed, and nothing else: no shell, no env."""
    java = find_java(os.environ)
    programs = [sys.executable, str(java.home), "/usr/bin/chmod", "/usr/bin/rm", *_LOADERS]
    rules = Ruleset.make(abi(), network=True)
    rules.allow("/", READ | WRITE | IOCTL)
    for program in programs:
        rules.allow(program, READ | RUN)
    gain_no_rights()
    rules.enter()
    seen: dict[str, Any] = {"shells": [shell for shell in ("/bin/sh", "/bin/bash", "/usr/bin/env") if _runs(shell)]}
    with spark_session("confined", scratch) as spark:
        seen["sum"] = spark.range(1_000).selectExpr("sum(id)").collect()[0][0]
        seen["python"] = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
        spark.range(10).write.parquet(f"{scratch}/rows")
        seen["parquet"] = spark.read.parquet(f"{scratch}/rows").count()
        try:
            spark.sql("SELECT TRANSFORM(1) USING 'id' AS (o string)").collect()
        except Exception as error:
            seen["transform"] = "/bin/bash" in str(error) and "Permission denied" in str(error)
    return seen


def _runs(program: str) -> bool:
    try:
        return subprocess.run([program, "-c", "true"], check=False, capture_output=True).returncode >= 0
    except PermissionError:
        return False


def environments(scratch: Path) -> Any:
    """The environment of the JVM, of its Python and of this process."""

    def own(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"said": [json.dumps(dict(os.environ))]})

    with spark_session("looked at", scratch) as spark:
        jvm: Any = spark._jvm
        pid = int(jvm.java.lang.ProcessHandle.current().pid())
        entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
        python = spark.range(0, 1, 1, 1).mapInArrow(own, "said string").collect()[0][0]
        return {
            "jvm": dict(each.split("=", 1) for each in entries if each),
            "python": json.loads(python),
            "worker": dict(os.environ),
            "figures": [str(path) for path in Path("/tmp").glob(f"hsperfdata_*/{pid}")],
        }


_SCHEMA = (
    '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r"><xs:complexType><xs:sequence>'
    '<xs:element name="a" type="xs:string"/></xs:sequence></xs:complexType></xs:element></xs:schema>'
)
_FIRST = '<xs:element name="r"'


def reach(scratch: Path, host: str, secret: str) -> Any:
    """All ways to have the JVM ask `host` or open `secret`: what came of each."""
    schemas = {
        "plain": _SCHEMA,
        "entity": f'<!DOCTYPE s [<!ENTITY e SYSTEM "file://{secret}">]>' + _SCHEMA.replace('"a"', '"&e;"'),
        "text": f'<!DOCTYPE s [<!ENTITY e SYSTEM "file://{secret}">]>'
        + _SCHEMA.replace(_FIRST, f"<xs:annotation><xs:documentation>&e;</xs:documentation></xs:annotation>{_FIRST}"),
        "parameter": f'<!DOCTYPE s [<!ENTITY % e SYSTEM "http://{host}/parameter"> %e;]>{_SCHEMA}',
        "doctype": f'<!DOCTYPE s SYSTEM "http://{host}/doctype">{_SCHEMA}',
        "include": _SCHEMA.replace(_FIRST, f'<xs:include schemaLocation="http://{host}/include"/>{_FIRST}'),
        "redefine": _SCHEMA.replace(_FIRST, f'<xs:redefine schemaLocation="http://{host}/redefine"/>{_FIRST}'),
        "import": _SCHEMA.replace(_FIRST, f'<xs:import namespace="n" schemaLocation="http://{host}/import"/>{_FIRST}'),
        "file": _SCHEMA.replace(_FIRST, f'<xs:include schemaLocation="file://{secret}"/>{_FIRST}'),
    }
    for name, text in schemas.items():
        (scratch / f"{name}.xsd").write_text(text)
    said: dict[str, str] = {}

    def tried(name: str, do: Callable[[], Any]) -> None:
        try:
            said[name] = str(do())
        except Exception as error:
            said[name] = f"refused: {error}"[:2000]

    with spark_session("reaching", scratch) as spark:
        jvm: Any = spark._jvm

        def sql(name: str, text: str) -> None:
            tried(name, lambda: spark.sql(text).collect())

        def read(name: str, url: str, **options: str) -> None:
            tried(name, lambda: spark.read.options(**options).text(url).collect())

        for name in schemas:
            by = f"map('rowValidationXSDPath', '{scratch}/{name}.xsd', 'mode', 'FAILFAST', 'rowTag', 'r')"
            sql(f"xsd {name}", f"SELECT from_xml('<r><a>1</a></r>', 'a STRING', {by})")
        entity = f'<!DOCTYPE r [<!ENTITY e SYSTEM "http://{host}/document">]><r><a>&e;</a></r>'
        sql("document", f"SELECT from_xml('{entity}', 'a STRING', map('mode', 'FAILFAST'))")
        sql("schema of a document", f"SELECT schema_of_xml('{entity}')")
        sql("xpath", f"SELECT xpath_string('{entity}', 'r/a')")
        by_url = f"map('rowValidationXSDPath', 'http://{host}/xsd', 'mode', 'FAILFAST', 'rowTag', 'r')"
        sql("xsd by http", f"SELECT from_xml('<r><a>1</a></r>', 'a STRING', {by_url})")
        for scheme in "http HTTP https ftp sftp hdfs webhdfs swebhdfs viewfs har s3a gs".split():
            read(f"read {scheme}", f"{scheme}://{host}/{scheme}")
        read("har over http", f"har://http-{host}/x.har/a")
        read("pfile", f"pfile://{secret}")
        read("nullscan", f"nullscan://{secret}")
        tried("allowed", lambda: spark.read.text(f"file://{scratch}/plain.xsd").count())
        # A reader's options and the session's settings come before those of the JVM: the proxy is what is left.
        named = {"fs.http.impl": "org.apache.hadoop.fs.http.HttpFileSystem"}
        read("class by option", f"http://{host}/option", **named)
        spark.conf.set("fs.http.impl", named["fs.http.impl"])
        read("class by setting", f"http://{host}/setting")
        sql("jar", f"ADD JAR 'http://{host}/a.jar'")
        sql("file by http", f"ADD FILE 'http://{host}/a.txt'")
        tried("after the jar and the file", lambda: spark.range(3).count())
        tried("url", lambda: jvm.java.net.URL(f"http://{host}/url").openStream())
        tried("url of ftp", lambda: jvm.java.net.URL(f"ftp://{host}/url").openStream())
    return said


def left(scratch: Path) -> Any:
    """A session that lasts until standard input ends; the pid of its JVM and what that has in its memory."""
    from pyspark import SparkContext

    with spark_session("left", scratch) as spark:
        spark.range(1).count()
        gateway: Any = SparkContext._gateway
        pid = gateway.proc.pid
        print(json.dumps({"jvm": pid, "maps": Path(f"/proc/{pid}/maps").read_text()}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    scene: Callable[..., Any] = {f.__name__: f for f in (confined, environments, reach, left)}[sys.argv[1]]
    print(json.dumps(scene(Path(sys.argv[2]), *sys.argv[3:])))
