"""The file systems that are off are all that the installed Spark has, but for files of this machine."""

import re
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark

from spark_tasks.spark.lockdown import OFF, OFF_LOCALLY, OFF_ON_CLUSTERS, file_system_settings

JARS = Path(pyspark.__file__).parent / "jars"
SERVICES = "META-INF/services/org.apache.hadoop.fs.FileSystem"
SCHEMES = {
    "org.apache.hadoop.fs.LocalFileSystem": "file",
    "org.apache.hadoop.fs.viewfs.ViewFileSystem": "viewfs",
    "org.apache.hadoop.fs.HarFileSystem": "har",
    "org.apache.hadoop.fs.http.HttpFileSystem": "http",
    "org.apache.hadoop.fs.http.HttpsFileSystem": "https",
    "org.apache.hadoop.hdfs.DistributedFileSystem": "hdfs",
    "org.apache.hadoop.hdfs.web.WebHdfsFileSystem": "webhdfs",
    "org.apache.hadoop.hdfs.web.SWebHdfsFileSystem": "swebhdfs",
    "org.apache.hadoop.hive.ql.io.NullScanFileSystem": "nullscan",
    "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem": "pfile",
}
"""The schemes of the file systems that Hadoop finds by itself."""


def test_each_file_system_of_the_installed_jars_is_off() -> None:
    named, found = set(), set()
    for jar in JARS.glob("*.jar"):
        with zipfile.ZipFile(jar) as archive:
            names = set(archive.namelist())
            if SERVICES in names:
                found |= {line for line in archive.read(SERVICES).decode().split() if line[0] != "#" and "." in line}
            for name in names & {"core-default.xml", "hdfs-default.xml"}:
                text = archive.read(name).decode()
                named |= set(re.findall(r"<name>fs\.(?:AbstractFileSystem\.)?([\w-]+)\.impl</name>", text))
    classes = {line for line in found if line.startswith("org.apache.hadoop.")}
    assert len(classes) >= 8, "the jars are read"
    assert classes <= set(SCHEMES), "Spark has a file system that nobody has looked at"
    assert {SCHEMES[name] for name in classes} | named <= {"file", *OFF_LOCALLY}


def test_a_cluster_keeps_the_file_systems_that_its_operator_may_have_set_up() -> None:
    local, cluster = file_system_settings(local=True), file_system_settings(local=False)
    assert set(cluster) < set(local)
    assert set(local.values()) == {OFF}
    assert not [name for name in local if ".file." in name]
    assert "hdfs" not in OFF_ON_CLUSTERS
    assert "http" in OFF_ON_CLUSTERS
