from __future__ import annotations

import pytest

from groupwise.data.templates import fill
from groupwise.errors import DataError


def filled(template: str, **columns: object) -> str:
    return fill(template, columns, place="a.jsonl:3", setting="data.prompt_template")


def test_columns_are_put_in() -> None:
    assert filled("{schema}\n\n{question}", schema="t(a)", question="How {many}?") == "t(a)\n\nHow {many}?"
    assert filled("{{{n}}} {price:.2f}", n=4, price=1.5) == "{4} 1.50"


def test_nothing_never_becomes_the_word_none() -> None:
    assert filled("[{hint}]", hint=None) == "[]"


def test_an_unknown_placeholder_lists_the_columns() -> None:
    expected = r"a\.jsonl:3: .*\{qestion\}.* Columns found: db, question\. Did you mean 'question'\?"
    with pytest.raises(DataError, match=expected):
        filled("{qestion}", question="x", db="y")


def test_what_is_no_template_is_refused() -> None:
    with pytest.raises(DataError, match="is not a template"):
        filled("{a", a=1)
    with pytest.raises(DataError, match="no column"):
        filled("{a.__class__}", a=1)
    with pytest.raises(DataError, match="cannot write"):
        filled("{a:d}", a="x")
