"""[data]: where the tasks come from, which rows are used, and how a row becomes a prompt."""

from __future__ import annotations

import string
from typing import Any

from pydantic import Field, field_validator, model_validator

from .section import Many, Section, problem


class ColumnsSection(Section):
    """Names of the columns that are not the verifier's. Verifier columns keep their own names."""

    id: str | None = None
    """Column with a unique id; None = ids are made from the set's name and the row number ("train-0001")."""
    prompt: str = "prompt"
    """Column with the prompt: text, or a list of chat messages. Not read where data.prompt_template is given."""
    demonstration: str = "completion"
    """Column with a completion worth imitating: text, or a list of one assistant message."""
    chosen: str = "chosen"
    """Column of data.pairs with the better completion: text, or chat messages that end with the assistant's."""
    rejected: str = "rejected"
    """Column of data.pairs with the worse completion. Same forms as chosen."""


class SplitSection(Section):
    """How the rows of data.source are divided. The division depends on the recipe's seed only."""

    heldout: int = Field(ge=1)
    """Held-out tasks, 1 or more. Drawn first, so the other numbers never change which tasks are held out."""
    demonstrations: int = Field(default=0, ge=0)
    """Tasks whose demonstrations SFT imitates; 0 = none."""
    train: int | None = Field(default=None, ge=1)
    """Training tasks, 1 or more; None = every row that is left."""
    group_by: str | None = None
    """Column of which no value may appear in two of the sets (a database, a customer); None = split row by row."""


class DataSection(Section):
    """The tasks: either a file or hub id for each set, or one source that is split."""

    train: str | None = None
    """Training tasks: a .jsonl, .json or .parquet file, or a hub id: "org/name[:split]" or "org/name:config:split"."""
    heldout: str | None = None
    """Tasks for evaluation that training never sees. Same forms as train."""
    demonstrations: str | None = None
    """Tasks with a demonstration, for SFT; None = none. Same forms as train."""
    pairs: str | None = None
    """Two completions of each prompt, one of them better, for DPO and reward models; None = none. Same forms as train;
    also beside source. `groupwise pairs` makes such a file."""
    source: str | None = None
    """One file or hub id to be divided by [data.split], instead of train and heldout."""
    split: SplitSection | None = None
    """How source is divided."""
    columns: ColumnsSection = ColumnsSection()
    """Names of columns."""
    system_prompt: str | None = None
    """Put first as a system message, so that text prompts become chat turns; "" = chat turns without a system message;
    None = prompts stay what they are. May hold {column} like prompt_template; {{ and }} are braces."""
    prompt_template: str | None = None
    """Prompt text with {column} in place of values, {{ and }} for braces; None = the prompt column as it is."""
    schema_from: str | None = None
    """SQLite file, {column} allowed ("db/{db_id}.sqlite"): adds a column `schema`, one line a table; None = no."""
    max_prompt_tokens: int = Field(default=1024, ge=1)
    """Longer prompts are dropped and counted, never cut. 1 or more."""
    where: dict[str, Many[Any]] = Field(default_factory=dict)
    """Keep only rows whose column has one of the listed values; empty = keep all."""
    where_not: dict[str, Many[Any]] = Field(default_factory=dict)
    """Drop rows whose column has one of the listed values; empty = drop none."""

    @field_validator("system_prompt", "prompt_template", "schema_from")
    @classmethod
    def _well_formed(cls, template: str | None) -> str | None:
        if template is None:
            return None
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise problem("", "is not a template ({error}); write {{ and }} for braces", error=str(error)) from error
        if "" in names:
            raise problem("", "has an empty placeholder {}; name a column, or write {{}} for braces")
        return template

    @field_validator("where", "where_not")
    @classmethod
    def _plain_values(cls, filters: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for column, values in filters.items():
            if not values:
                raise problem((column,), "lists no value, so it decides nothing; list one or more, or remove it")
            if not all(isinstance(value, str | int | float | bool) for value in values):
                raise problem((column,), "may list text, numbers, true and false only")
        return filters

    @model_validator(mode="after")
    def _one_way_in(self) -> DataSection:
        files = {name for name in ("train", "heldout", "demonstrations") if getattr(self, name) is not None}
        if self.source is None and not files and self.pairs is None:
            raise problem("", "names no tasks; give train and heldout (files), or source and [data.split]")
        if self.source is not None and files:
            key = sorted(files)[0]
            raise problem(key, "is given and so is source; give train and heldout (files), or source and [data.split]")
        if self.source is not None and self.split is None:
            raise problem("source", "needs [data.split], which says how many tasks are held out")
        if self.source is None and self.split is not None:
            raise problem("split", "divides data.source, which is not given; set source, or remove [data.split]")
        if self.pairs is not None:
            files.add("pairs")
        if self.source is None and (self.heldout is None or files == {"heldout"}):
            raise problem(
                "",
                "needs heldout, and train, demonstrations or pairs; given: {given}",
                given=", ".join(sorted(files)),
            )
        for name in ("train", "demonstrations", "pairs"):
            if self.source is None and getattr(self, name) == self.heldout:
                raise problem(
                    "heldout", "is the same as {name}; held-out tasks that were trained on measure memory", name=name
                )
        return self
