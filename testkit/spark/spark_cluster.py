"""A standalone Spark cluster on loopback: a master and workers, from the same packages as the nodes."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from node.execution import process_tree

STARTS_S: Final = 120.0
"""A daemon takes a few seconds to start; on a busy machine, much longer."""

EXECUTOR_MEMORY: Final = "512m"
"""Spark refuses less than 450 MiB."""

WORKER: Final = ("--cores", "2", "--memory", "1100m")
"""What a worker offers: room for an executor of each of two attempts."""

_LOOPBACK: Final = "127.0.0.1"


@dataclass
class SparkDaemon:
    """A master or a worker. `url` is the master's."""

    process: "subprocess.Popen[bytes]"
    url: str
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """What it has said."""
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        """End it with SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait()


class SparkCluster:
    """The master and the workers that run. All that they write is in `folder`."""

    def __init__(self, folder: Path, defaults: Mapping[str, str]) -> None:
        self.folder = folder
        self.started = 0
        self.conf = folder / "conf"
        self.conf.mkdir(parents=True)
        lines = [f"{name} {value}\n" for name, value in defaults.items()]
        (self.conf / "spark-defaults.conf").write_text("".join(lines))
        self.master = self._start("master", (), r"Starting Spark master at (spark://\S+)")
        self.workers: list[SparkDaemon] = []

    @property
    def environ(self) -> dict[str, str]:
        """What a worker of Rota's gets for this cluster: an attempt takes a core of each of two Spark workers."""
        return {
            "RUN_SPARK_MASTER": self.master.url,
            "RUN_SPARK_CORES": "2",
            "RUN_SPARK_EXECUTOR_MEMORY": EXECUTOR_MEMORY,
            "SPARK_CONF_DIR": str(self.conf),
        }

    def add_worker(self, within: Sequence[str] = ()) -> SparkDaemon:
        """Start a worker, with `within` before its command; returns when the master knows it."""
        options = (*WORKER, self.master.url)
        worker = self._start("worker", options, r"Successfully registered with master (spark://\S+)", within)
        self.workers.append(worker)
        return worker

    def executors(self, worker: SparkDaemon | None = None) -> list[int]:
        """The pids of the executors, of one worker or of all."""
        roots = [each.pid for each in ([worker] if worker else self.workers)]
        return [pid for pid in _below(roots) if "CoarseGrainedExecutorBackend" in command_line(pid)]

    def busy(self, executor: int) -> bool:
        """Whether an executor has a Python process, in which rows are read or written."""
        return any("pyspark.daemon" in command_line(pid) for pid in _below([executor]))

    def kill_worker(self, worker: SparkDaemon) -> None:
        """End a worker with SIGKILL, and its executors with it, as if their machine were gone."""
        gone = self.executors(worker)
        self.workers.remove(worker)
        worker.kill()
        for pid in gone:
            process_tree.send(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all of it."""
        for worker in [*self.workers]:
            self.kill_worker(worker)
        self.master.kill()

    def _start(self, daemon: str, options: Sequence[str], says: str, within: Sequence[str] = ()) -> SparkDaemon:
        self.started += 1
        folder = self.folder / f"{daemon}-{self.started}"
        folder.mkdir(parents=True)
        module = [sys.executable, "-m", "spark_tasks.spark.standalone", str(folder), daemon]
        ports = ["--host", _LOOPBACK, "--port", "0", "--webui-port", "0"]
        environ = os.environ | {"SPARK_LOCAL_IP": _LOOPBACK, "SPARK_CONF_DIR": str(self.conf)}
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen([*within, *module, *ports, *options], stdout=out, stderr=out, env=environ)
        deadline_s = time.monotonic() + STARTS_S
        while not (found := re.search(says, log.read_text(errors="replace"))):
            if process.poll() is not None or time.monotonic() > deadline_s:
                process.kill()
                raise AssertionError(f"the Spark {daemon} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        return SparkDaemon(process, found[1], log)


@contextmanager
def spark_cluster(
    folder: Path, workers: int = 2, defaults: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkCluster]:
    """A cluster that lasts as long as the block, with `defaults` in its spark-defaults.conf."""
    cluster = SparkCluster(folder, defaults)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()


def command_line(pid: int) -> str:
    """A process's command; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _below(roots: Sequence[int]) -> list[int]:
    return [one.pid for one in process_tree.descendants(roots, process_tree.processes())]
