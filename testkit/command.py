"""Runs the command `rota` as a process."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]


@dataclass
class Said:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output with --json, parsed."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass
class Rota:
    """The command `rota` with the addresses of a cluster."""

    urls: str
    token: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str, stdin: str = "") -> Said:
        """Run the command to its end; 30 s at most."""
        done = subprocess.run(
            [sys.executable, "-m", "node.cli.entry", *words],
            cwd=ROOT,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, *words: str) -> Iterator["Running"]:
        """Run the command within the block; terminate it at the end of the block."""
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "node.cli.entry", *words],
                cwd=ROOT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                yield Running(process, out)
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        token = {"ROTA_TOKEN": self.token} if self.token else {}
        return {**inherited, **token, **self.env, "ROTA_URL": self.urls, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}


@dataclass
class Running:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    _file: IO[str]

    def out(self) -> str:
        """Its output so far."""
        return os.pread(self._file.fileno(), 1_000_000, 0).decode()
