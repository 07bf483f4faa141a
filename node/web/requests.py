"""The queries of the page's endpoints."""

from pydantic import BaseModel, ConfigDict, Field


class _PageQuery(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SignInQuery(_PageQuery):
    """Where to go after signing in."""

    next: str = Field(default="/", max_length=2000)


class AssetQuery(_PageQuery):
    """The version of an asset."""

    v: str = ""
