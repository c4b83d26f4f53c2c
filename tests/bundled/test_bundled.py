"""The bundled task: sound golds, separate splits, clean snapshots, and the generator that made them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise import bundled
from groupwise.errors import DataError

SNAPSHOTS = ("shop.sqlite", "shop_copy1.sqlite", "shop_copy2.sqlite")
SPLITS = ("demonstrations", "train", "heldout")
BUILD = Path(__file__).resolve().parents[2] / "scripts" / "bundled_task" / "build.py"


def rows_of_split(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bundled.path(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def normal(text: str) -> str:
    return " ".join(text.split()).strip(" .?;").lower()


@pytest.fixture(scope="module")
def connections() -> Iterator[list[sqlite3.Connection]]:
    opened = [sqlite3.connect(f"{bundled.path(name).as_uri()}?mode=ro", uri=True) for name in SNAPSHOTS]
    yield opened
    for connection in opened:
        connection.close()


@pytest.fixture(scope="module")
def splits() -> dict[str, list[dict[str, Any]]]:
    return {name: rows_of_split(name) for name in SPLITS}


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match=r"shop_copy1\.sqlite"):
        bundled.path("shop_copy9.sqlite")


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_is_small_and_clean(name):
    assert bundled.path(name).stat().st_size < 100_000
    connection = sqlite3.connect(f"{bundled.path(name).as_uri()}?mode=ro", uri=True)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_the_copies_share_the_schema_of_the_base(connections):
    schemas = [c.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall() for c in connections]
    assert len(schemas[0]) >= 6
    assert schemas[1] == schemas[0]
    assert schemas[2] == schemas[0]


def test_rows_have_the_promised_fields(splits):
    for name, rows in splits.items():
        for row in rows:
            assert set(row) - {"completion"} == {"id", "prompt", "gold", "level", "family"}
            assert ("completion" in row) == (name == "demonstrations")
            assert row.get("completion", row["gold"]) == row["gold"]
            assert row["level"] in (1, 2, 3)


def test_no_question_and_no_gold_occurs_twice(splits):
    rows = [row for members in splits.values() for row in members]
    assert len(rows) >= 600
    for column in ("id", "prompt", "gold"):
        assert Counter(normal(row[column]) for row in rows).most_common(1)[0][1] == 1, column


def test_held_out_patterns_are_seen_in_the_other_splits(splits):
    families = {name: {row["family"] for row in rows} for name, rows in splits.items()}
    assert len(families["heldout"]) >= 30
    assert families["heldout"] <= families["demonstrations"] & families["train"]


def test_every_split_has_the_same_mix_of_levels(splits):
    everything = [row for rows in splits.values() for row in rows]
    for level in (1, 2, 3):
        overall = sum(row["level"] == level for row in everything) / len(everything)
        for rows in splits.values():
            assert sum(row["level"] == level for row in rows) / len(rows) == pytest.approx(overall, abs=0.05)


def test_every_gold_answers_and_tells_the_copies_from_the_base(splits, connections):
    for row in (row for rows in splits.values() for row in rows):
        answers = [Counter(connection.execute(row["gold"]).fetchall()) for connection in connections]
        assert all(answers), row["gold"]
        assert answers[1] != answers[0], row["gold"]
        assert answers[2] != answers[0], row["gold"]


def test_literals_of_a_gold_are_words_of_its_question(splits):
    """A question that does not name a value cannot be answered."""
    for row in (row for rows in splits.values() for row in rows):
        for literal in row["gold"].split("'")[1::2]:
            assert literal.strip("%").lower() in row["prompt"].lower(), row


def test_building_again_gives_the_same_files(tmp_path):
    if not BUILD.exists():
        pytest.skip("the generator is not part of an installed package; run this in a checkout")
    subprocess.run([sys.executable, str(BUILD), str(tmp_path)], check=True, capture_output=True)
    for name in (f"{split}.jsonl" for split in SPLITS):
        digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in (tmp_path / name, bundled.path(name))}
        assert len(digests) == 1, name
    for name in SNAPSHOTS:
        dumps = []
        for file in (tmp_path / name, bundled.path(name)):
            connection = sqlite3.connect(file)
            dumps.append("\n".join(connection.iterdump()))
            connection.close()
        assert dumps[0] == dumps[1], name
