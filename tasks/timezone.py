"""A time zone as a field of a model, of schedules and of quiet hours."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo

from tasks.cron import check_timezone

ACCEPTED: Final = {"accepted": True}
"""The context for reading what is packed. Its time zones (and a schedule's cron line and `at`) were checked when it was
accepted, and are not checked again: the replicated state must not depend on the time zones that one machine knows, and
must stay readable if an earlier version accepted more."""


def _known(name: str, info: ValidationInfo) -> str:
    if info.context is not ACCEPTED:
        check_timezone(name)
    return name


Timezone = Annotated[
    str, AfterValidator(_known), Field(description="A time zone of the IANA database", examples=["Europe/Paris"])
]
"""The name of a time zone. Checked, except in the context `ACCEPTED`."""
