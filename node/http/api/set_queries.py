"""The query parameters that say which set of files makes or removes pools and calendars (`node.state.set_owned`)."""

from pydantic import Field

from node.http.api.shapes import RequestModel
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.set_owned import owner_fault
from tasks.definition.spec import Name


class PruneQuery(RequestModel):
    """The set of files on whose behalf something is removed."""

    set: Name | None = Field(default=None, description="Refuse unless this set of files made it")

    def by_set(self, context: RequestContext) -> str:
        """Return the set; "" if none is named. Raises `Problem` conflict while not all members know such sets."""
        if self.set is not None and (fault := owner_fault(context.state.lead.rules, self.set)) is not None:
            raise Problem("conflict", fault)
        return self.set or ""


class OwnQuery(PruneQuery):
    """The set of files that makes pools or calendars, and may later remove those that it made, and no others."""

    set: Name | None = Field(
        default=None, description="What this makes is of this set of files; what this removes must be"
    )
    adopt: bool = Field(default=False, description="Take over what another set made; what was made by hand stays so")
