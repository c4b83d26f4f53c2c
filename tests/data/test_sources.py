from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from groupwise.data import read_rows
from groupwise.errors import DataError


def test_jsonl_rows_know_their_lines_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"q": "x\u2028y"}\n\n{"q": 2}\n', encoding="utf-8")
    rows = read_rows("a.jsonl", tmp_path)
    assert [row.columns["q"] for row in rows] == ["x\u2028y", 2]
    assert [row.place for row in rows] == [f"{tmp_path / 'a.jsonl'}:1", f"{tmp_path / 'a.jsonl'}:3"]
    assert [row.number for row in rows] == [1, 2]


def test_the_three_formats_give_the_same_rows(tmp_path: Path) -> None:
    values = [{"q": "one", "gold": 4}, {"q": "two", "gold": None}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    (tmp_path / "a.json").write_text(json.dumps(values))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(values), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.json", "a.parquet"):
        assert [dict(row.columns) for row in read_rows(name, tmp_path)] == values


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b'{"q": 1}\n{"q": \n', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"q": 1}\n[1]\n', r"a\.jsonl:2: holds list"),
        ("a.jsonl", b"\n\n", "no rows"),
        ("a.jsonl", b"\xff\n", "not UTF-8"),
        ("a.json", b'{"q": 1}', "must hold a list of objects"),
        ("a.json", b"[1]", "element 1: holds int"),
        ("a.json", b"[\n1,,]", r"a\.json:2: not JSON"),
        ("a.parquet", b"no", "cannot be read as parquet"),
        ("a.csv", b"q\n1\n", r"'\.csv' is not known; allowed: \.jsonl"),
    ],
)
def test_what_is_not_rows_is_refused(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=expected):
        read_rows(name, tmp_path)


def test_a_missing_file_is_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"b\.jsonl does not exist"):
        read_rows("a/b.jsonl", tmp_path)
    with pytest.raises(DataError, match="neither a file"):
        read_rows("nothing", tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    with pytest.raises(DataError, match="is a folder"):
        read_rows("org/name", tmp_path)


def fake_hub(monkeypatch: pytest.MonkeyPatch, load_dataset: Any) -> None:
    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("org/name", ("org/name", None, "train")),
        ("org/name:test", ("org/name", None, "test")),
        ("org/name:test[10:20%]", ("org/name", None, "test[10:20%]")),
        ("org/name:main:test[:5]", ("org/name", "main", "test[:5]")),
    ],
)
def test_hub_ids_name_config_and_split(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, asked: tuple[str, str | None, str]
) -> None:
    calls: list[Any] = []

    def load_dataset(name: str, config: str | None, *, split: str) -> list[dict[str, str]]:
        calls.append((name, config, split))
        return [{"q": "x"}]

    fake_hub(monkeypatch, load_dataset)
    (row,) = read_rows(source, tmp_path)
    assert (dict(row.columns), row.place) == ({"q": "x"}, f"{source} row 1")
    assert calls == [asked]


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("offline")

    fake_hub(monkeypatch, load_dataset)
    with pytest.raises(DataError, match=r"(?s)ConnectionError: offline.*save the data set as \.jsonl"):
        read_rows("org/name", tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        read_rows("org/name", tmp_path)
