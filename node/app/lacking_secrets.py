"""Which secrets a task names and this member lacks, before anything is claimed. No value is read."""

import asyncio
from collections.abc import Sequence

from node.app.config import Config
from node.app.kinds import InstalledKinds
from node.state.value import State
from tasks.definition.run import HELD
from tasks.secret import Reference, lacking


async def lacking_secrets(state: State, task: str, kinds: InstalledKinds, config: Config) -> list[str]:
    """A sentence for each secret that the next run of `task` names and that does not resolve on this member.

    The files are looked at in another thread: they may be on a network.
    """
    row = state.tasks.get(task)
    if row is None:
        return []
    runs = (state.runs[run_id] for run_id in state.runs_of.get(task, ()))
    params = next((run.params for run in runs if run.state not in HELD and run.params is not None), row.spec.params)
    references = kinds.references(row.placing.kind, params)
    return await asyncio.to_thread(_lacking, references, config) if references else []


def _lacking(references: Sequence[Reference], config: Config) -> list[str]:
    found = (lacking(each, config.secrets_dir, config.env_allow, config.variables, config.own) for each in references)
    return [why for why in found if why is not None]
