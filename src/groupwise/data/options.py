"""What this room needs to be told. A [data] section has these names; so may anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Columns(Protocol):
    """Names of the columns that are not the verifier's."""

    @property
    def id(self) -> str | None:
        """Column with a unique id; None = made from the set's name and the row number."""
        ...

    @property
    def prompt(self) -> str:
        """Column with the prompt."""
        ...

    @property
    def demonstration(self) -> str:
        """Column with a completion worth imitating."""
        ...

    @property
    def chosen(self) -> str:
        """Column with the better completion of a pair."""
        ...

    @property
    def rejected(self) -> str:
        """Column with the worse completion of a pair."""
        ...


class Split(Protocol):
    """How one source is divided."""

    @property
    def heldout(self) -> int:
        """Tasks held out."""
        ...

    @property
    def demonstrations(self) -> int:
        """Tasks with a demonstration; 0 = none."""
        ...

    @property
    def train(self) -> int | None:
        """Training tasks; None = what is left."""
        ...

    @property
    def group_by(self) -> str | None:
        """Column that no two sets may share a value of; None = row by row."""
        ...


class DataOptions(Protocol):
    """Where tasks come from and how a row becomes one: train and heldout, or source and split."""

    @property
    def train(self) -> str | None:
        """File or hub id."""
        ...

    @property
    def heldout(self) -> str | None:
        """File or hub id."""
        ...

    @property
    def demonstrations(self) -> str | None:
        """File or hub id; None = none."""
        ...

    @property
    def pairs(self) -> str | None:
        """File or hub id; None = none."""
        ...

    @property
    def source(self) -> str | None:
        """File or hub id that is divided by split."""
        ...

    @property
    def split(self) -> Split | None:
        """How source is divided."""
        ...

    @property
    def columns(self) -> Columns:
        """Names of columns."""
        ...

    @property
    def system_prompt(self) -> str | None:
        """First message; "" = chat turns without one; None = prompts stay what they are."""
        ...

    @property
    def prompt_template(self) -> str | None:
        """Prompt text with {column} in place of values."""
        ...

    @property
    def schema_from(self) -> str | None:
        """Path of a SQLite file with {column} in it."""
        ...

    @property
    def where(self) -> Mapping[str, tuple[Any, ...]]:
        """Keep only rows with one of these values."""
        ...

    @property
    def where_not(self) -> Mapping[str, tuple[Any, ...]]:
        """Drop rows with one of these values."""
        ...
