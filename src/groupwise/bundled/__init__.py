"""The task that ships with the package: questions about a small bike shop, answered in SQL.

    shop.sqlite                            the snapshot that the questions are about
    shop_copy1.sqlite, shop_copy2.sqlite   the same tables and keys with other values, rows dropped, added and doubled
    shop_heldback.sqlite                   one more copy, which only the held-back grader of the recipe looks at
    demonstrations.jsonl                   question, gold and the gold again as a completion to imitate
    train.jsonl, heldout.jsonl             question and gold; no gold occurs in two files

Every row has id, prompt, gold, level (1 one table, 2 groups and joins, 3 subqueries and set operations) and family (the
pattern it was drawn from). None is edited by hand: scripts/bundled_task/build.py makes them from one seed, but for
shop_heldback.sqlite, which is the first copy that `groupwise variants shop.sqlite` makes for the questions of all three
files.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from groupwise.errors import DataError

__all__ = ["path"]


def path(name: str) -> Path:
    """The place of one bundled file: path("shop.sqlite").

    Raises:
        DataError: if no bundled file has that name.
    """
    folder = Path(str(resources.files(__name__)))
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix in {".sqlite", ".jsonl", ".toml"})
    if name not in names:
        raise DataError(f'bundled file "{name}" does not exist; choose one of {", ".join(names)}')
    return folder / name
