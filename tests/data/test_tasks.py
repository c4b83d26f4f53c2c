from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import ColumnsSection, DataSection, SplitSection
from groupwise.data import DataOptions, TaskSets, load_tasks
from groupwise.errors import DataError

USER = {"role": "user", "content": "How many?"}


def load(folder: Path, rows: list[dict[str, Any]], **options: Any) -> TaskSets:
    """`rows` are the training rows; the held-out one is like the first, under a prompt of its own."""
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = {**rows[0], "prompt": "held out", "question": "held out"}
    if "messages" in other:
        other["messages"] = [{"role": "user", "content": "held out"}]
        del other["prompt"]
    (folder / "heldout.jsonl").write_text(json.dumps(other) + "\n")
    section: DataOptions = DataSection(train="train.jsonl", heldout="heldout.jsonl", **options)
    return load_tasks(section, folder, seed=0)


def test_a_row_becomes_a_task_with_all_other_columns(tmp_path: Path) -> None:
    sets = load(tmp_path, [{"prompt": "2+2?", "answer": 4, "completion": "4"}, {"prompt": "3?", "answer": None}])
    first, second = sets.train
    assert (first.id, first.prompt, first.demonstration) == ("train-0001", "2+2?", "4")
    assert first.columns == {"answer": 4, "completion": "4"}
    assert (second.id, second.demonstration) == ("train-0002", None)
    assert sets.heldout[0].id == "heldout-0001"
    assert sets.demonstrations == ()


def test_the_gold_column_may_be_the_demonstration_too(tmp_path: Path) -> None:
    columns = ColumnsSection(id="key", prompt="question", demonstration="gold")
    (task,) = load(tmp_path, [{"key": 7, "question": "q", "gold": "SELECT 1"}], columns=columns).train
    assert (task.id, task.demonstration, task.columns["gold"]) == ("7", "SELECT 1", "SELECT 1")


def test_columns_as_trl_names_them_work_as_they_are(tmp_path: Path) -> None:
    (turns,) = load(tmp_path, [{"prompt": [USER], "completion": [{"role": "assistant", "content": "3"}]}]).train
    assert (turns.prompt, turns.demonstration) == ((USER,), "3")
    (whole,) = load(tmp_path, [{"messages": [USER, {"role": "assistant", "content": "3"}], "gold": 3}]).train
    assert (whole.prompt, whole.demonstration, whole.columns) == ((USER,), "3", {"gold": 3})


def test_a_system_prompt_makes_chat_turns(tmp_path: Path) -> None:
    (task,) = load(tmp_path, [{"prompt": "How many?"}], system_prompt="Answer in SQL.").train
    assert task.prompt == ({"role": "system", "content": "Answer in SQL."}, USER)
    (filled,) = load(tmp_path, [{"prompt": "How many?", "unit": "km"}], system_prompt="In {unit}.").train
    assert filled.prompt[0] == {"role": "system", "content": "In km."}
    (bare,) = load(tmp_path, [{"prompt": "How many?"}], system_prompt="").train
    assert bare.prompt == (USER,)
    with pytest.raises(DataError, match=r"has a system message already"):
        load(tmp_path, [{"prompt": [{"role": "system", "content": "x"}, USER]}], system_prompt="y")


def test_the_schema_of_the_rows_database_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    for name in ("a", "b"):
        with closing(sqlite3.connect(tmp_path / "db" / f"{name}.sqlite")) as connection:
            connection.execute(f"CREATE TABLE {name} (x, y)")
    rows = [{"question": "q1", "db_id": "a"}, {"question": "q2", "db_id": "b"}]
    template = "{schema}\n\n{question}"
    sets = load(tmp_path, rows, schema_from="db/{db_id}.sqlite", prompt_template=template)
    assert [task.prompt for task in sets.train] == ["a(x, y)\n\nq1", "b(x, y)\n\nq2"]
    assert sets.train[0].columns["schema"] == "a(x, y)"
    assert sets.train[0].columns["question"] == "q1"
    with pytest.raises(DataError, match=r"c\.sqlite does not exist"):
        load(tmp_path, [{"question": "q", "db_id": "c"}], schema_from="db/{db_id}.sqlite", prompt_template=template)
    with pytest.raises(DataError, match="has a column 'schema' already"):
        load(tmp_path, [{"prompt": "q", "schema": "x"}], schema_from="db/a.sqlite")


def test_filters_keep_and_drop_without_renaming(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n}", "level": level} for n, level in enumerate(["easy", "hard", "odd", "easy"])]
    sets = load(tmp_path, rows, where={"level": ("easy", "odd")}, where_not={"level": ("odd",)})
    assert [task.id for task in sets.train] == ["train-0001", "train-0004"]
    with pytest.raises(DataError, match=r"none of 4 rows passes data\.where"):
        load(tmp_path, rows, where={"level": ("none",)})
    with pytest.raises(DataError, match=r"train\.jsonl:1: no column 'lvel'\. .* Did you mean 'level'"):
        load(tmp_path, rows, where={"lvel": ("easy",)})


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        (
            [{"prmpt": "x"}],
            {},
            r"train\.jsonl:1: no column 'prompt'\. Columns found: prmpt.*'prmpt'.*data\.columns\.prompt",
        ),
        ([{"prompt": "x"}, {"prompt": 4}], {}, r"train\.jsonl:2: column 'prompt' holds int"),
        ([{"prompt": "x"}], {"columns": ColumnsSection(id="id")}, "no column 'id'"),
        ([{"prompt": "x", "id": None}], {"columns": ColumnsSection(id="id")}, "must be text or a whole number"),
        (
            [{"prompt": "x", "id": 1}, {"prompt": "y", "id": "1"}],
            {"columns": ColumnsSection(id="id")},
            "must be unique",
        ),
        ([{"prompt": "x"}], {"prompt_template": "{question}"}, r"data\.prompt_template names \{question\}"),
        (
            [{"prompt": "x"}],
            {"demonstrations": "train.jsonl"},
            r"no column 'completion'\. .*data\.columns\.demonstration",
        ),
        ([{"prompt": "x", "completion": ""}], {"demonstrations": "train.jsonl"}, "'completion' is empty"),
        ([{"prompt": "Held  Out"}], {}, "1 of 1 held-out prompts are also in train"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(DataError, match=expected):
        load(tmp_path, rows, **options)


def test_a_source_is_split_by_the_seed(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"p{n}", "completion": "c", "db": n % 5}) for n in range(20)]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    section = DataSection(source="all.jsonl", split=SplitSection(heldout=4, demonstrations=4, group_by="db"))
    sets = load_tasks(section, tmp_path, seed=3)
    assert [len(part) for part in (sets.heldout, sets.demonstrations, sets.train)] == [4, 4, 12]
    assert {task.id.split("-")[0] for task in sets.heldout} == {"heldout"}
    assert load_tasks(section, tmp_path, seed=3) == sets
    assert load_tasks(section, tmp_path, seed=4) != sets


def test_loading_tasks_needs_no_torch(tmp_path: Path) -> None:
    load(tmp_path, [{"prompt": "x"}])
    code = (
        "import sys; from pathlib import Path; from groupwise.config import DataSection; "
        "from groupwise.data import load_tasks; "
        f"load_tasks(DataSection(train='train.jsonl', heldout='heldout.jsonl'), Path({str(tmp_path)!r}), 0); "
        "assert not {'torch', 'transformers', 'datasets', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
