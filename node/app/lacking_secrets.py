"""Which secrets a task names that do not resolve on this member."""

import asyncio
from collections.abc import Sequence

from node.app.config import Config
from node.duty.occurrence_params import readable_params
from node.state.value import State
from tasks.definition.run import HELD
from tasks.installed_kinds import InstalledKinds
from tasks.secret import Reference, lacking


async def lacking_secrets(state: State, task: str, kinds: InstalledKinds, config: Config) -> list[str]:
    """Return a sentence for each secret that `task` names for its next run and that does not resolve on this member.

    The secrets' files are read in another thread, since they may be on a network file system.
    """
    row = state.tasks.get(task)
    if row is None:
        return []
    runs = (state.runs[run_id] for run_id in state.runs_of.get(task, ()))
    own = next((run.params for run in runs if run.state not in HELD and run.params is not None), None)
    references = kinds.references(row.placing.kind, readable_params(row.spec) if own is None else own)
    return await asyncio.to_thread(_lacking, references, config) if references else []


def _lacking(references: Sequence[Reference], config: Config) -> list[str]:
    found = (lacking(each, config.secrets_dir, config.env_allow, config.variables, config.own) for each in references)
    return [why for why in found if why is not None]
