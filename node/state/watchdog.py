"""The setting `watchdog`: an outside watcher, which is pinged while all is well and raises the alarm if pings stop.

It is needed because a cluster that is down cannot report it.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from node.state.channel import URL_CHARS_MAX, url_fault
from tasks.secret import Reference, SecretEnv, SecretFile

EVERY_S_MIN: Final = 1.0
EVERY_S_MAX: Final = 86_400.0


class WatchdogBody(BaseModel):
    """An outside watcher: a URL that the leader requests (GET) every `every_s` seconds while all is well."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Reference | Annotated[str, StringConstraints(min_length=1, max_length=URL_CHARS_MAX)] = Field(
        description="`https://...`, or a reference to a secret that holds it", examples=[{"secret": "watchdog_url"}]
    )
    every_s: Annotated[float, Field(ge=EVERY_S_MIN, le=EVERY_S_MAX)] = 60.0

    @model_validator(mode="after")
    def _a_web_address(self) -> "WatchdogBody":
        if isinstance(self.url, str) and (why := url_fault(self.url)) is not None:
            raise ValueError(f"url: {why}")
        return self


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The setting as it is replicated: `url`, or the name of a `secret` or of a variable (`env`) that holds it."""

    every_s: float = 60.0
    url: str = ""
    secret: str = ""
    env: str = ""

    @property
    def where(self) -> Reference | str:
        """The URL, or the reference to it."""
        return SecretFile(secret=self.secret) if self.secret else SecretEnv(env=self.env) if self.env else self.url

    def plain(self) -> dict[str, Any]:
        """Return the setting as JSON values, as the API takes it."""
        return WatchdogBody.model_construct(url=self.where, every_s=self.every_s).model_dump(mode="json")


def watchdog_of(value: Any) -> Watchdog | str:
    """Read the setting from plain values. Returns a text that describes the fault if they are invalid."""
    try:
        body = WatchdogBody.model_validate(value)
    except ValidationError as error:
        return f"watchdog: {error.errors(include_url=False, include_input=False)[0]['msg']}"
    match body.url:
        case SecretFile(secret=name):
            return Watchdog(body.every_s, secret=name)
        case SecretEnv(env=name):
            return Watchdog(body.every_s, env=name)
        case url:
            return Watchdog(body.every_s, url=url)
