"""Tables of fields, from the JSON schemas of models."""

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, StringConstraints, create_model

from tasks.secret import Reference
from testkit.reference.schema import table


class Inner(BaseModel):
    """A model with a heading of its own."""


def row(annotation: Any, **field: Any) -> list[str]:
    """The cells of the one field of a model."""
    model = create_model("Model", one=(annotation, Field(description="What it is", **field)))
    _, _, line = table(model, {"Inner": "The inner one"}).splitlines()
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "text"),
        (Annotated[str, StringConstraints(max_length=4096)], "text (4,096 characters at most)"),
        (Annotated[int, Field(ge=1, le=1000)], "integer (1 to 1,000)"),
        (Annotated[float, Field(gt=0, le=5)], "number (more than 0, 5 at most)"),
        (Annotated[int, Field(ge=2)], "integer (2 at least)"),
        (bool, "true or false"),
        (datetime, "time (RFC 3339)"),
        (Literal["skip", "all"], "`skip`, `all`"),
        (list[str] | None, "list of text, or null"),
        (dict[str, int], "map from text to integer"),
        (dict[Annotated[str, StringConstraints(pattern="^a")], int], "map from text to integer"),
        (Inner, "[The inner one](#the-inner-one)"),
        (Reference | str, "[reference to a secret](#references-to-secrets), or text"),
    ],
)
def test_a_type_is_said_in_words(annotation: Any, words: str) -> None:
    assert row(annotation) == ["`one`", words, "required", "What it is"]


def test_a_default_and_an_example_are_shown() -> None:
    assert row(str, default="", examples=["a|b"]) == ["`one`", "text", '`""`', "What it is. For example `a\\|b`"]
    assert row(Inner, default=Inner())[2] == "its own defaults"


def test_a_field_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match="'Bare' has no description"):
        table(create_model("Model", bare=(int, 1)), {})
