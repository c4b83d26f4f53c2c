"""Files and hub data sets to rows. A row remembers where it stood, so that every later complaint can name the place."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import DataError

_HUB_ID = re.compile(r"^(?P<id>[\w.-]+/[\w.-]+)(:(?P<config>[^:\[\]]+))?(:(?P<split>[^:\[\]]+(\[[^\]]*\])?))?$")
_SUFFIXES = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a source.

    Example:
        Row(columns={"question": "How many?", "gold": "SELECT 3"}, place="train.jsonl:12", number=12)
    """

    columns: Mapping[str, Any]
    place: str
    """Where it stands, for messages."""
    number: int
    """Position in the source, from 1, before any filter."""

    def value(self, column: str) -> Any:
        """The value of a column.

        Raises:
            DataError: no such column; the message lists those found.
        """
        if column not in self.columns:
            raise DataError(f"{self.place}: no column {column!r}. {listing(column, self.columns)}")
        return self.columns[column]


def listing(name: str, known: Iterable[str]) -> str:
    """One sentence with the names that exist, and the closest one where there is a close one."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"Columns found: {', '.join(names) or 'none'}.{hint}"


def read_rows(source: str, folder: Path) -> tuple[Row, ...]:
    """All rows of a .jsonl, .json or .parquet file below `folder`, or of a hub data set.

    A hub data set is written "org/name" (its split "train"), "org/name:split" or "org/name:config:split"; a split may
    be cut ("org/name:train[:500]").

    Raises:
        DataError: not found, not readable, a row that is not a set of named columns, or no rows at all.
    """
    path = folder / Path(source).expanduser()
    if path.is_file() or path.suffix in _SUFFIXES:
        rows = _read_file(path)
    elif hub := _HUB_ID.match(source):
        if path.exists():
            raise DataError(f"{path} is a folder; give a file ({', '.join(_SUFFIXES)}) in it.")
        rows = _read_hub(source, hub)
    else:
        raise DataError(
            f"{source!r} is neither a file below {folder} nor a hub id; "
            f'give a file ({", ".join(_SUFFIXES)}) or "org/name".'
        )
    if not rows:
        raise DataError(f"{source}: no rows.")
    return rows


def _read_file(path: Path) -> tuple[Row, ...]:
    if not path.is_file():
        raise DataError(f"{path} does not exist; relative paths start at the recipe's folder.")
    if path.suffix == ".jsonl":
        return _read_jsonl(path)
    if path.suffix == ".json":
        return _read_json(path)
    if path.suffix == ".parquet":
        return _read_parquet(path)
    raise DataError(f"{path}: the format {path.suffix!r} is not known; allowed: {', '.join(_SUFFIXES)}.")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); convert it to UTF-8.") from error


def _read_jsonl(path: Path) -> tuple[Row, ...]:
    rows: list[Row] = []
    # not str.splitlines: it also breaks at characters that JSON allows inside a text, such as U+2028
    for line_number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{line_number}: not JSON: {error.msg}, column {error.colno}.") from error
        rows.append(_row(value, f"{path}:{line_number}", len(rows) + 1))
    return tuple(rows)


def _read_json(path: Path) -> tuple[Row, ...]:
    try:
        values = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON: {error.msg}, column {error.colno}.") from error
    if not isinstance(values, list):
        raise DataError(f"{path}: holds {type(values).__name__}; a .json file must hold a list of objects.")
    return tuple(_row(value, f"{path} element {number}", number) for number, value in enumerate(values, start=1))


def _read_parquet(path: Path) -> tuple[Row, ...]:
    import pyarrow  # here, because it takes longer to import than everything else in this room
    import pyarrow.parquet

    try:
        values = pyarrow.parquet.ParquetFile(path).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
    return tuple(_row(value, f"{path} row {number}", number) for number, value in enumerate(values, start=1))


def _read_hub(source: str, hub: re.Match[str]) -> tuple[Row, ...]:
    config, split = hub["config"], hub["split"]
    if split is None:
        config, split = None, config or "train"
    try:
        import datasets  # here, because most runs read files and it takes seconds to import
    except ImportError as error:
        raise DataError(f"{source!r} is a hub id, which needs the package datasets: pip install datasets") from error
    try:
        loaded = datasets.load_dataset(hub["id"], config, split=split)
        values = [dict(value) for value in loaded]
    except Exception as error:  # a hub client raises its own and its HTTP library's errors; none of them is our bug
        raise DataError(
            f"{source!r} is no file below the recipe's folder, and as a hub id "
            f"(config {config or 'default'}, split {split}) it could not be loaded: {type(error).__name__}: {error}\n"
            '  Check the id ("org/name", "org/name:split" or "org/name:config:split") and the network, '
            "or save the data set as .jsonl or .parquet and give that file."
        ) from error
    return tuple(_row(value, f"{source} row {number}", number) for number, value in enumerate(values, start=1))


def _row(value: Any, place: str, number: int) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{place}: holds {type(value).__name__}; a row must be an object with named columns.")
    return Row(columns=value, place=place, number=number)
