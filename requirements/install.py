"""`python requirements/install.py LOCK`: pip install of a lock file, with a line now and then that says how far it is.

pip itself prints either several lines for each package or, with -q, nothing for minutes. Imports the standard library
only, since nothing else is installed yet.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

EVERY = 20
"""Packages between two lines."""

LARGE_BYTES = 20_000_000
"""A download of this size gets a line of its own."""

_UNITS = {"kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


def main() -> int:
    """Install, and return pip's exit code; if pip fails, print the end of its output."""
    lock = Path(sys.argv[1])
    total = len(re.findall(r"^[A-Za-z0-9._-]+(?:\[[^\]]*\])?==", lock.read_text(), re.MULTILINE))
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--no-input", "--require-hashes", "--requirement", str(lock)]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in progress(_kept(pip.stdout, said), total):
            print(f"setup: {line}", flush=True)
        code = pip.wait()
    if code:
        print("".join(said[-20:]), file=sys.stderr)
    return code


def _kept(lines: Iterable[str], said: list[str]) -> Iterator[str]:
    for line in lines:
        said.append(line)
        yield line


def progress(lines: Iterable[str], total: int) -> Iterator[str]:
    """What to print of pip's output; `total` is the number of packages in the lock file."""
    found = 0
    for line in lines:
        words = line.split()
        if line.startswith("Collecting "):
            found += 1
            if found % EVERY == 0:
                yield f"{found} of about {total} packages"
        elif words[:1] == ["Downloading"] and _size_bytes(line) >= LARGE_BYTES:
            yield f"downloading {' '.join(words[1:])}"
        elif line.startswith("Building wheels"):
            yield f"building {line.partition(':')[2].strip()} (up to a minute)"
        elif line.startswith("Installing collected packages"):
            yield f"installing {line.count(',') + 1} packages (up to a minute)"


def _size_bytes(line: str) -> float:
    size = re.search(r"\(([\d.]+) (kB|MB|GB)\)", line)
    return float(size[1]) * _UNITS[size[2]] if size else 0


if __name__ == "__main__":
    sys.exit(main())
