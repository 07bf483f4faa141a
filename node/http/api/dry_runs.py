"""What an entry would do: it is applied to the present state, and the new state is dropped."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

from node.http.door.request_context import RequestContext, problem_of_proposal, require_accepted
from node.raft.errors import EntryTooLarge
from node.state.apply import apply
from node.state.codec import BadEntry, pack_batch
from node.state.entries import Entry, Proposal, ProposalId
from node.state.value import Result


async def tried(context: RequestContext, entry: Entry, before: Sequence[Entry] = ()) -> Result:
    """Return the result that an entry would have, once the entries `before` are applied.

    Raises `Problem` as `RequestContext.propose` does: for an entry that cannot be proposed, or would be refused.
    """
    proposal = Proposal(ProposalId(context.node.settings.node, sys.maxsize, sys.maxsize), entry)
    try:
        packed = await asyncio.to_thread(pack_batch, [proposal])
        if len(packed) > context.server.limits.entry_bytes:
            raise EntryTooLarge
    except (BadEntry, EntryTooLarge) as error:
        raise problem_of_proposal(error) from None
    state = context.state
    for number, one in enumerate(before, 1):
        made = apply(state, Proposal(replace(proposal.id, sequence=sys.maxsize - 1 - len(before) + number), one))
        require_accepted(made.result)
        state = made.state
    return require_accepted((await asyncio.to_thread(apply, state, proposal)).result)
