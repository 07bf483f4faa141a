"""A cache of Spark's classes that is really used, and not used when it is damaged.

It is the environment's, which `make test-more` has made before; where there is none, it is made here.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark

from spark_tasks.spark.class_cache import AOT_SINCE, cache_file, using
from spark_tasks.spark.java import find_java
from spark_tasks.spark.make_class_cache import NotMade, make
from spark_tasks.spark.session import JVM_OPTIONS

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

_SESSION = """
import sys
from pathlib import Path
from spark_tasks.spark.session import spark_session
from pyspark import SparkContext
with spark_session("cached", Path(sys.argv[1])) as spark:
    spark.range(1).selectExpr("count(1)").collect()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    print(Path(f"/proc/{jvm}/maps").read_text())
"""


def _maps(scratch: Path, options: Sequence[str]) -> str:
    """What files a session's JVM has in its memory when it has done a job."""
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _SESSION, str(scratch)],
        env=os.environ | {JVM_OPTIONS: shlex.join(options)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_cache_is_used_and_one_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    java = find_java(os.environ)
    there = cache_file(java, pyspark.__version__)
    if not there.exists():
        make(java, there)
    file = cache_file(java, pyspark.__version__, tmp_path / "it's an environment")
    file.parent.mkdir(parents=True)
    shutil.copyfile(there, file)
    name = re.escape(str(file))
    assert re.search(name, _maps(tmp_path / "with", using(java, file)))
    assert not re.search(name, _maps(tmp_path / "without", []))
    damaged = file.with_name(f"damaged{file.suffix}")
    damaged.write_bytes(b"x" * 4096 + file.read_bytes()[4096:])
    assert str(damaged) not in _maps(tmp_path / "damaged", using(java, damaged))


def test_a_java_that_makes_none_is_no_reason_to_keep_anything(tmp_path: Path) -> None:
    java = find_java(os.environ)
    if java.major >= AOT_SINCE:
        pytest.skip("this Java knows the options of all")
    with pytest.raises(NotMade, match="Spark did not start"):
        make(replace(java, major=AOT_SINCE), tmp_path / "cache.aot")
    assert not list(tmp_path.iterdir())
