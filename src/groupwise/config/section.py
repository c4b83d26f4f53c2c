"""What every section of a recipe has in common: frozen, no unknown keys, no silent conversion of types."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

T = TypeVar("T")

Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A TOML array. The one place where a type is converted: TOML has lists, a frozen section holds tuples."""


class Section(BaseModel):
    """Base of every section. The text under a field is its documentation: unit, range, meaning of the default."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


def problem(key: str | tuple[str, ...], message: str, **values: Any) -> PydanticCustomError:
    """A rule that a type cannot express was broken at `key`, relative to the place that raises it ("" = that place).

    A key is dotted text ("optim.lr"), or a tuple where names come from the user and may hold dots.

    `message` says what is allowed and why; `{name}` in it is replaced by the keyword value of that name.
    """
    parts = tuple(key.split(".")) if isinstance(key, str) else key
    return PydanticCustomError("recipe_rule", message, {"key": parts, **values})
