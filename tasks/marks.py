"""The environment variables by which the processes of a node and of an attempt are recognised.

A process that builds the environment of another one hands them on: `node.execution.leftovers` finds by them what has
outlived its supervisor.
"""

from typing import Final

MARK: Final = "NURSERY_OF"
"""The environment variable that names the data folder. It is not called ROTA_*: workers do not inherit those."""

RUN_MARK: Final = "NURSERY_RUN"
"""The environment variable that names the attempt: RUN_ID:TOKEN."""
