"""`make setup` says how far it is."""

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "requirements" / "install.py"


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_line_for_some_packages_for_large_downloads_and_for_each_phase() -> None:
    progress: Callable[[Iterable[str], int], Iterator[str]] = _module().progress
    said = [
        *(
            f"Collecting package-{number}==1.0 (from -r requirements/dev.lock (line {number}))\n"
            for number in range(41)
        ),
        "  Downloading click-8.5.1-py3-none-any.whl (108 kB)\n",
        "  Downloading pyspark-4.3.0.tar.gz (434.5 MB)\n",
        "Building wheels for collected packages: pyspark\n",
        "Installing collected packages: py4j, pyspark, click\n",
        "Successfully installed click-8.5.1\n",
    ]
    assert list(progress(said, 119)) == [
        "20 of about 119 packages",
        "40 of about 119 packages",
        "downloading pyspark-4.3.0.tar.gz (434.5 MB)",
        "building pyspark (up to a minute)",
        "installing 3 packages (up to a minute)",
    ]
