"""What the measurements begin with: their options, and nodes on this machine that are ready."""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from node.cli.local import LocalCluster


def options_of(about: str | None) -> argparse.ArgumentParser:
    """A parser of options whose help is a module's docstring, as it stands there."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


@contextmanager
def ready_cluster(nodes: int = 3, env: Mapping[str, str] | None = None) -> Iterator[LocalCluster]:
    """A cluster that is ready, in a folder that goes with it; `env` is added to each node's environment."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder), nodes, env=env) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        yield cluster
