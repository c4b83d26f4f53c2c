"""Rows to tasks: filter, show the schema, build the prompt, check everything before a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.types import Message, Task

from .messages import read_completion, read_conversation, read_prompt
from .options import DataOptions
from .schema import schema_text
from .sources import Row, listing, read_rows
from .splits import RowSets, TaskSets, refuse_leaks, split_rows
from .templates import fill

_CONVERSATION = "messages"
_SCHEMA = "schema"


def load_tasks(options: DataOptions, folder: Path, seed: int) -> TaskSets:
    """Read, filter, divide and check the tasks of a recipe. Same options, files and seed, same tasks in the same order.

    `folder` is where relative paths start. The numbers in made-up ids ("train-0012") are row numbers of the source, so
    a filter does not rename tasks.

    Raises:
        DataError: files, columns or values that cannot be used, an empty set, two equal ids, held-out prompts in train.
    """
    sets = tasks_of(read_sets(options, folder, seed), options, folder)
    refuse_leaks(sets)
    return sets


def tasks_of(rows: RowSets, options: DataOptions, folder: Path) -> TaskSets:
    """The task of each row, in the same order; nothing is refused for standing in two sets.

    Raises:
        DataError: columns or values that cannot be used, two equal ids.
    """
    schemas: dict[Path, str] = {}
    return TaskSets(
        demonstrations=_to_tasks(rows.demonstrations, "demonstrations", options, folder, schemas),
        train=_to_tasks(rows.train, "train", options, folder, schemas),
        heldout=_to_tasks(rows.heldout, "heldout", options, folder, schemas),
    )


def read_sets(options: DataOptions, folder: Path, seed: int) -> RowSets:
    """The rows of a recipe, filtered and divided.

    Raises:
        DataError: files that cannot be used, or an empty set.
    """
    if options.source is not None and options.split is not None:
        return split_rows(_filtered(options.source, options, folder), options.split, seed)
    if options.heldout is None or (options.train is None and options.demonstrations is None and options.pairs is None):
        raise DataError("[data] names no tasks; give train and heldout (files), or source and [data.split].")
    return RowSets(
        demonstrations=_filtered(options.demonstrations, options, folder),
        train=_filtered(options.train, options, folder),
        heldout=_filtered(options.heldout, options, folder),
    )


def _filtered(source: str | None, options: DataOptions, folder: Path) -> tuple[Row, ...]:
    if source is None:
        return ()
    rows = read_rows(source, folder)
    kept = tuple(row for row in rows if passes(row, options))
    if not kept:
        raise DataError(f"{source}: none of {len(rows)} rows passes data.where and data.where_not; loosen them.")
    return kept


def passes(row: Row, options: DataOptions) -> bool:
    """True where data.where and data.where_not keep the row.

    Raises:
        DataError: a column of the filters is missing.
    """
    wanted = all(row.value(column) in values for column, values in options.where.items())
    return wanted and not any(row.value(column) in values for column, values in options.where_not.items())


def _to_tasks(
    rows: Sequence[Row], set_name: str, options: DataOptions, folder: Path, schemas: dict[Path, str]
) -> tuple[Task, ...]:
    places: dict[str, str] = {}
    tasks: list[Task] = []
    for row in rows:
        task = _to_task(row, set_name, options, folder, schemas)
        if task.id in places:
            raise DataError(
                f"{row.place}: the id {task.id!r} is already that of {places[task.id]}; ids must be unique."
            )
        places[task.id] = row.place
        tasks.append(task)
    return tuple(tasks)


def _to_task(row: Row, set_name: str, options: DataOptions, folder: Path, schemas: dict[Path, str]) -> Task:
    prompt, demonstration, columns = read_task_row(row, options, folder, schemas)
    name = options.columns.demonstration
    if demonstration is None and columns.get(name) is not None:
        demonstration = read_completion(columns[name], row.place, name)
    if set_name == "demonstrations" and not demonstration:
        found = f"column {name!r} is empty." if name in columns else f"no column {name!r}. {listing(name, columns)}"
        raise DataError(
            f"{row.place}: no demonstration to imitate: {found} "
            "Set data.columns.demonstration to the column with the completion."
        )
    return Task(
        id=_id(row, set_name, options.columns.id),
        prompt=prompt,
        demonstration=demonstration,
        columns=columns,
    )


def read_task_row(
    row: Row, options: DataOptions, folder: Path, schemas: dict[Path, str]
) -> tuple[str | tuple[Message, ...], str | None, dict[str, Any]]:
    """The prompt of a row as the options build it, the demonstration where the row is a conversation, and the columns
    that are left. `schemas` remembers the schemas that were read.

    Raises:
        DataError: columns or values that cannot be used.
    """
    columns = dict(row.columns)
    if options.schema_from is not None:
        columns[_SCHEMA] = _schema(row, options.schema_from, folder, schemas)
    prompt, demonstration, used = _read_row(row, columns, options)
    prompt = _with_system(prompt, _system_text(row, columns, options), row.place)
    return prompt, demonstration, {column: value for column, value in columns.items() if column != used}


def _system_text(row: Row, columns: Mapping[str, Any], options: DataOptions) -> str | None:
    if options.system_prompt is None:
        return None
    return fill(options.system_prompt, columns, place=row.place, setting="data.system_prompt")


def _read_row(
    row: Row, columns: Mapping[str, Any], options: DataOptions
) -> tuple[str | tuple[Message, ...], str | None, str | None]:
    """Prompt, demonstration (of a conversation) and the column that became the prompt."""
    name = options.columns.prompt
    if options.prompt_template is not None:
        text = fill(options.prompt_template, columns, place=row.place, setting="data.prompt_template")
        return read_prompt(text, row.place, "data.prompt_template"), None, None
    if _CONVERSATION in columns and (name not in columns or name == _CONVERSATION):
        prompt, demonstration = read_conversation(columns[_CONVERSATION], row.place, _CONVERSATION)
        return prompt, demonstration, _CONVERSATION
    try:
        value = row.value(name)
    except DataError as error:
        raise DataError(f"{error} Set data.columns.prompt, or build the prompt with data.prompt_template.") from error
    return read_prompt(value, row.place, name), None, name


def _schema(row: Row, template: str, folder: Path, schemas: dict[Path, str]) -> str:
    if _SCHEMA in row.columns:
        raise DataError(f"{row.place}: has a column 'schema' already; remove it, or remove data.schema_from.")
    path = folder / Path(fill(template, row.columns, place=row.place, setting="data.schema_from")).expanduser()
    if path not in schemas:
        schemas[path] = schema_text(path)
    return schemas[path]


def _id(row: Row, set_name: str, column: str | None) -> str:
    if column is None:
        return f"{set_name}-{row.number:04d}"
    value = row.value(column)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError(f"{row.place}: the id in column {column!r} is {value!r}; it must be text or a whole number.")
    return str(value)


def _with_system(prompt: str | tuple[Message, ...], system_prompt: str | None, place: str) -> str | tuple[Message, ...]:
    if system_prompt is None:
        return prompt
    turns: tuple[Message, ...] = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    if not system_prompt:
        return turns
    if turns[0]["role"] in ("system", "developer"):
        raise DataError(
            f"{place}: the prompt has a {turns[0]['role']} message already; remove it, or remove data.system_prompt."
        )
    return ({"role": "system", "content": system_prompt}, *turns)
