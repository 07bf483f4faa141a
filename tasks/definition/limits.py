"""A task's limits, as a part of its definition: the memory, CPU, disk and so on that one attempt may use."""

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

_UNITS: Final = {
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_SIZE_PATTERN: Final = f"^[1-9][0-9]{{0,11}}({'|'.join(_UNITS)})$"
_SIZE: Final = re.compile(_SIZE_PATTERN)

SIZE_MIN: Final = 1024**2
SIZE_MAX: Final = 2**50
MEMORY_MIN: Final = 32 * 1024**2
"""The smallest limit of memory, in bytes: an attempt needs 10 to 20 MiB before its work begins."""


def parse_size(value: Any) -> Any:
    """Return the number of bytes in a text such as "512MiB". A value that is not text is returned unchanged.

    Raises `ValueError` for any other text. "512M" is refused, since it means 512,000,000 to some people and 536,870,912
    to others.

    >>> parse_size("512MiB"), parse_size("2GB"), parse_size(4096)
    (536870912, 2000000000, 4096)
    """
    if isinstance(value, bool):
        raise ValueError("must be a size, not true or false")  # noqa: TRY004 - pydantic wants a ValueError
    if not isinstance(value, str):
        return value
    if not (found := _SIZE.fullmatch(value)):
        raise ValueError(
            f"{value[:40]!r} is not a size: give bytes as a whole number, or a whole number with kB, MB, GB, TB (1000) "
            'or KiB, MiB, GiB, TiB (1024), such as "512MiB"'
        )
    unit = found.group(1)
    return int(value.removesuffix(unit)) * _UNITS[unit]


def thousandths(value: float | None) -> float | None:
    """Return the number unchanged. Raises `ValueError` if it has more than three decimal places.

    So its thousandths are an exact integer.
    """
    exponent = Decimal(repr(value)).as_tuple().exponent if value is not None else 0
    if not isinstance(exponent, int) or exponent < -3:
        raise ValueError("at most three decimal places")
    return value


_Whole = Annotated[int, Field(ge=SIZE_MIN, le=SIZE_MAX)]
_Text = Annotated[str, Field(pattern=_SIZE_PATTERN)]

Size = Annotated[_Whole, BeforeValidator(parse_size, json_schema_input_type=_Whole | _Text)]
"""A number of bytes: a whole number, or text such as "512MiB", which is stored as a number."""


class Limits(BaseModel):
    """What one attempt may use, all its processes together. If an attempt uses more, its run fails with that reason.

    A limit must not exceed what the member allows one attempt (`ROTA_LIMIT_MEMORY` and the like), or the attempt fails
    before it begins. null: what the member allows. Sizes are bytes, or text such as `512MiB` (1024) or `500MB` (1000).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: Size | None = Field(
        default=None,
        description="Memory, without what is cached of files, 32 MiB at least. The attempt is killed",
        examples=["2GiB"],
    )
    cpu: Annotated[float, Field(ge=0.01, le=4096), AfterValidator(thousandths)] | None = Field(
        default=None,
        description="Cores, in thousandths at the finest: `1.5` is one and a half. The attempt gets no more time; held "
        "only on members with cgroups (`rota members`)",
    )
    processes: Annotated[int, Field(ge=8, le=4_194_304)] | None = Field(
        default=None,
        description="Processes and threads: a JVM has some fifty. The attempt is killed",
    )
    files: Annotated[int, Field(ge=32, le=1_073_741_816)] | None = Field(
        default=None,
        description="Files and connections that each process may have open at once. Opening more fails",
    )
    scratch: Size | None = Field(
        default=None, description="What its scratch folder may hold. The attempt is killed", examples=["10GiB"]
    )
    log: Size | None = Field(
        default=None,
        description="What its log may hold. The rest is dropped, and the run says `log_truncated`; it does not fail",
        examples=["16MiB"],
    )

    @field_validator("memory")
    @classmethod
    def _suffices(cls, value: int | None) -> int | None:
        if value is not None and value < MEMORY_MIN:
            raise ValueError(f"must be at least 32 MiB ({MEMORY_MIN}): an attempt needs 20 MiB before its work begins")
        return value

    @property
    def cpu_milli(self) -> int | None:
        """`cpu` in thousandths of a core, exactly."""
        return None if self.cpu is None else round(self.cpu * 1000)
