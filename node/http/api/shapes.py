"""Types that requests and responses of several topics share: times, numbers, and the parameters of a page."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from node.state.restoring import COUNT_MAX
from node.state.shape import LATEST_US
from tasks.definition.cron import LAST_FIRE_US

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, UTC")]
Cursor = Annotated[str | None, Field(description="Send it as `after` to get the next page; null on the last page")]

After = Annotated[str | None, Field(max_length=1000, description="`next` of the page before")]
Limit = Annotated[int, Field(ge=1, le=1000, description="How many at most")]

Count = Annotated[int, Field(ge=0, lt=COUNT_MAX)]
Due = Annotated[int, Field(ge=0, le=LAST_FIRE_US)]
Moment = Annotated[int, Field(ge=0, le=LATEST_US)]
"""A `Count` is a counter; a `Due`, a time from which a schedule continues; a `Moment`, any other time.

Times are in microseconds since the epoch. All three are bounded, so that sums of them fit 64 bits.
"""


class RequestModel(BaseModel):
    """A query or a body. Refuses fields that the model does not declare."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PageQuery(RequestModel):
    """A page of a list."""

    limit: Limit = 100
    after: After = None
