"""SqlVerifier as a whole: verdicts, whose fault a failure is, gold checks, caching, threads."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from groupwise.errors import VerifierError
from groupwise.sandbox import QueryResult, QueryStatus
from groupwise.types import Status, Task
from groupwise.verifiers import SqlVerifier, Verifier

ROWS = {
    "shop": [(1, "Ann", "Oslo", 30), (2, "Bob", "Rome", 20), (3, "Cem", "Oslo", 20), (4, "Dee", None, 10)],
    "shop_v1": [(1, "Ann", "Rome", 25), (5, "Eve", "Oslo", 25), (6, "Fay", "Oslo", 40)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    for name, rows in ROWS.items():
        write_snapshot(folder / f"{name}.sqlite", rows)
    return folder


def write_snapshot(path, rows):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER)")
        connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?)", rows)
    connection.close()


@pytest.fixture(scope="module")
def verifier(folder):
    verifier = make_verifier(folder)
    yield verifier
    verifier.close()


def make_verifier(folder, **settings):
    settings = {"snapshots": ["shop.sqlite", "shop_v1.sqlite"], "time_limit_s": 0.3, "memory_limit_mb": 512} | settings
    return SqlVerifier(base_folder=folder, **settings)


def task(gold="SELECT name FROM person WHERE city = 'Oslo'", **columns):
    return Task(id="t1", prompt="?", columns={"gold": gold, **columns})


def test_it_is_a_verifier(verifier):
    checked: Verifier = verifier
    assert checked.judge(task(), checked.gold(task())).reward == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "word"),
    [
        (
            "SELECT name FROM person WHERE city = 'Oslo'",
            "select p.name from person p where p.city = 'Oslo';",
            "same_rows",
        ),
        (
            "SELECT name FROM person WHERE city = 'Oslo'",
            "SELECT name, id FROM person WHERE city = 'Oslo'",
            "wrong_columns",
        ),
        ("SELECT name FROM person WHERE city = 'Oslo'", "SELECT name FROM person", "wrong_rows"),
        (
            "SELECT name FROM person WHERE city = 'Oslo'",
            "SELECT name FROM person WHERE name IN ('Ann', 'Cem')",
            "wrong_rows",
        ),
        ("SELECT name FROM person WHERE city = 'Oslo'", "SELECT city FROM person WHERE city = 'Oslo'", "wrong_values"),
        ("SELECT name, age FROM person", "SELECT age, name FROM person", "same_rows"),
        (
            "SELECT name, age FROM person ORDER BY age",
            "SELECT name, age FROM person ORDER BY age, name DESC",
            "same_rows",
        ),
        ("SELECT name FROM person ORDER BY age", "SELECT name FROM person ORDER BY age, name DESC", "same_rows"),
        ("SELECT name FROM person ORDER BY age", "SELECT name FROM person ORDER BY age DESC", "wrong_order"),
        (
            "SELECT name FROM person ORDER BY age LIMIT 2",
            "SELECT name FROM person ORDER BY age, id DESC LIMIT 2",
            "same_rows",
        ),
        (
            "SELECT name FROM person ORDER BY age LIMIT 2",
            "SELECT name FROM person ORDER BY id DESC LIMIT 2",
            "wrong_values",
        ),
        (
            "SELECT city, count(*) AS n FROM person GROUP BY city ORDER BY n DESC",
            "SELECT city, count(*) FROM person GROUP BY 1 ORDER BY 2 DESC, 1 DESC",
            "same_rows",
        ),
        ("SELECT avg(age) FROM person", "SELECT sum(age) * 1.0 / count(*) FROM person", "same_rows"),
        (
            "SELECT avg(age) FROM person WHERE city = 'Oslo'",
            "SELECT sum(age) / count(*) FROM person WHERE city = 'Oslo'",
            "wrong_values",
        ),
        ("SELECT city FROM person", "SELECT ifnull(city, '') FROM person", "wrong_values"),
        ("SELECT count(*) FROM person WHERE id = 1", "SELECT 1", "reads_nothing"),
        ("SELECT count(*) FROM person WHERE id = 1", "WITH person AS (SELECT 1) SELECT 1 FROM person", "reads_nothing"),
        ("SELECT count(*) FROM person WHERE id = 1", "SELECT min(id) FROM person", "same_rows"),
    ],
)
def test_scored(verifier, gold, answer, word):
    verdict = verifier.judge(task(gold), answer)
    assert verdict.status is Status.SCORED
    assert verdict.reason.split()[0] == word
    assert verdict.outcome is (word == "same_rows")
    assert verdict.reward == float(verdict.outcome)
    assert all(check.passed for check in verdict.checks) is verdict.outcome


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("", "no_answer"),
        ("Oslo has two people.", "not_sql"),
        ("-- SELECT 1", "not_sql"),
        ("SELECT 1; SELECT 2", "several_statements"),
        ("DELETE FROM person", "forbidden"),
        ("EXPLAIN SELECT name FROM person", "forbidden"),
        ("WITH x AS (SELECT 1) DELETE FROM person", "forbidden"),
        ("SELECT sql FROM sqlite_master", "forbidden"),
        ("SELECT nom FROM person", "sql_error"),
        ("WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r", "timeout"),
        ("SELECT replace(replace(printf('%.*c', 1000, 'a'), 'a', printf('%.*c', 1000, 'b')), 'b', 'cc')", "too_large"),
        ("SELECT name FROM person WHERE name <> '" + "x" * 9000 + "'", "too_large"),
        ("```sql\nSELECT 1\n```\nor\n```sql\nSELECT 2\n```", "several_answers"),
    ],
)
def test_invalid_is_the_policys_fault_and_costs_it(verifier, folder, answer, word):
    before = sorted(os.listdir(folder))
    verdict = verifier.judge(task(), answer)
    assert verdict.status is Status.INVALID
    assert (verdict.reward, verdict.outcome) == (0.0, False)
    assert verdict.reason.split(":")[0] == word
    assert sorted(os.listdir(folder)) == before
    assert verifier.judge(task(), "SELECT name FROM person WHERE 'Oslo' = city").reward == 1.0


@pytest.mark.parametrize(
    ("gold", "word"),
    [
        ("SELECT nom FROM person", "gold_failed"),
        ("DELETE FROM person", "gold_failed"),
        ("SELECT 1; SELECT 2", "gold_failed"),
        ("SELECT name FROM person WHERE random() > 0", "gold_failed"),
        ("SELECT name FROM person WHERE date('now') > '2000'", "gold_failed"),
        ("SELECT 9e999 FROM person", "gold_failed"),
        ("WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r", "gold_failed"),
        ("SELECT name FROM person WHERE 0", "gold_empty"),
        ("", "gold_missing"),
        (None, "gold_missing"),
    ],
)
def test_an_unusable_gold_is_unscored_and_found_beforehand(verifier, gold, word):
    verdict = verifier.judge(task(gold), "SELECT name FROM person")
    assert verdict.status is Status.UNSCORED
    assert (verdict.reward, verdict.outcome) == (None, None)
    assert verdict.reason.startswith(word)
    (problem,) = verifier.check([task(gold)])
    assert problem.task_id == "t1"
    assert problem.reason.startswith(word)
    assert problem.blocking


def test_an_empty_gold_on_one_snapshot_is_fine(verifier):
    gold = "SELECT name FROM person WHERE age > 35"  # nobody in the first snapshot, Fay in the second
    assert verifier.judge(task(gold), "SELECT name FROM person WHERE 0").reason == "wrong_rows on snapshot 2 of 2"
    assert verifier.check([task(gold)]) == []


def test_a_gold_that_never_changes_is_reported_as_weak(verifier):
    (problem,) = verifier.check([task("SELECT count(*) FROM person WHERE id = 1")])
    assert problem.reason.startswith("same_on_all_snapshots")
    assert not problem.blocking


def test_missing_and_broken_snapshots(folder, tmp_path):
    (tmp_path / "broken.sqlite").write_bytes(b"no database at all, only text " * 100)
    write_snapshot(tmp_path / "logged.sqlite", [])
    (tmp_path / "logged.sqlite-wal").write_bytes(b"not merged yet")
    for name, word in [("none", "snapshot_missing"), ("broken", "snapshot_bad"), ("logged", "snapshot_bad")]:
        verifier = make_verifier(tmp_path, snapshots=[f"{name}.sqlite"])
        (problem,) = verifier.check([task()])
        assert problem.reason.startswith(word)
        assert verifier.judge(task(), "SELECT name FROM person").status is Status.UNSCORED
        verifier.close()


def test_snapshots_by_column(folder):
    verifier = make_verifier(folder, snapshots=["{db}.sqlite"])
    gold = "SELECT count(*) FROM person"
    answer = "SELECT count(*) FROM person WHERE id < 5"
    assert verifier.judge(task(gold, db="shop"), answer).reward == 1.0
    assert verifier.judge(task(gold, db="shop_v1"), answer).reward == 0.0
    missing = verifier.judge(task(gold), answer)
    assert missing.status is Status.UNSCORED
    assert "'db'" in missing.reason
    assert [
        p.reason.split(":")[0] for p in verifier.check([task(gold), task(gold, db="x"), task(gold, db="shop")])
    ] == [
        "snapshot_missing",
        "snapshot_missing",
    ]
    verifier.close()


def test_checks_say_what_was_expected_and_found(verifier):
    verdict = verifier.judge(task(), "SELECT name FROM person WHERE city = 'Rome'")
    assert [(c.name, c.passed, c.expected, c.found) for c in verdict.checks] == [
        ("columns", True, "1", "1"),
        ("rows", False, "2", "1"),
    ]
    flood = verifier.judge(task(), "SELECT name FROM person UNION ALL SELECT name FROM person")
    assert flood.checks[1].found == "more than 2"


def test_the_answers_place(folder):
    fenced = "So:\n```sql\nSELECT name FROM person WHERE city = 'Oslo'\n```\nDone."
    bare = "SELECT name FROM person WHERE city = 'Oslo'"
    rewards = {}
    for place in ("auto", "text", "fence"):
        verifier = make_verifier(folder, answer_in=place)
        rewards[place] = [verifier.judge(task(), text).reward for text in (fenced, bare, verifier.gold(task()))]
        verifier.close()
    assert rewards == {"auto": [1.0, 1.0, 1.0], "text": [0.0, 1.0, 1.0], "fence": [1.0, 0.0, 1.0]}


def test_the_text_runs_as_written(verifier):
    gold = "SELECT 'SELECT DISTINCT x' AS value, name FROM person -- the 'value'\nWHERE city = 'Oslo'"
    assert verifier.judge(task(gold), gold).reward == 1.0


def test_many_threads_get_the_right_verdicts_although_some_queries_hang(folder):
    verifier = make_verifier(folder)
    hang = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r WHERE x < 0 -- "
    texts, expected = [], []
    for i in range(60):
        kind = "hang" if i % 20 == 0 else i % 2
        texts.append(
            {"hang": f"{hang}{i}", 0: f"SELECT name FROM person WHERE city = 'Oslo' -- {i}", 1: f"SELECT {i}"}[kind]
        )
        expected.append({"hang": "timeout", 0: "same_rows", 1: "wrong_rows"}[kind])
    with ThreadPoolExecutor(8) as threads:
        reasons = list(threads.map(lambda text: verifier.judge(task(), text).reason.split(":")[0].split()[0], texts))
    assert reasons == expected
    verifier.close()


def test_repeated_answers_are_judged_once_and_failures_of_the_machine_again(folder, monkeypatch):
    verifier = make_verifier(folder)
    verifier.judge(task(), "SELECT 1")
    run, calls = verifier._sandbox.run, []

    def failing_run(*arguments, **options):
        calls.append(arguments)
        return QueryResult(status=QueryStatus.WORKER_FAILED, message="no worker")

    monkeypatch.setattr(verifier._sandbox, "run", failing_run)
    assert verifier.judge(task(), "SELECT 1").reason.startswith("wrong_rows")
    assert calls == []
    failed = verifier.judge(task(), "SELECT name FROM person WHERE city = 'Oslo'")
    assert failed.status is Status.UNSCORED
    assert failed.reason.startswith("worker_failed")
    monkeypatch.setattr(verifier._sandbox, "run", run)
    assert verifier.judge(task(), "SELECT name FROM person WHERE city = 'Oslo'").reward == 1.0
    verifier.close()


def test_the_version_follows_settings_and_contents(folder, tmp_path):
    for name in ROWS:
        (tmp_path / f"{name}.sqlite").write_bytes((folder / f"{name}.sqlite").read_bytes())
    versions = [make_verifier(place).version for place in (folder, tmp_path)]
    assert versions[0] == versions[1]
    assert make_verifier(tmp_path, snapshots=[str(folder / f"{name}.sqlite") for name in ROWS]).version == versions[0]
    assert make_verifier(tmp_path, time_limit_s=0.4).version != versions[0]
    by_column = make_verifier(tmp_path, snapshots=["{db}.sqlite"]).version
    with (tmp_path / "shop_v1.sqlite").open("ab") as file:
        file.write(b"x")
    assert make_verifier(tmp_path).version != versions[0]
    assert make_verifier(tmp_path, snapshots=["{db}.sqlite"]).version != by_column


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("snapshots", []),
        ("snapshots", "shop.sqlite"),
        ("snapshots", ["{}.sqlite"]),
        ("snapshots", ["{db.sqlite"]),
        ("answer_in", "box"),
        ("time_limit_s", 0),
        ("memory_limit_mb", 1),
        ("num_workers", 0),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(folder, setting, value):
    with pytest.raises(VerifierError, match=setting if setting != "snapshots" else "snapshot"):
        make_verifier(folder, **{setting: value})


def test_no_gold_no_completion(verifier):
    with pytest.raises(VerifierError, match="gold_column"):
        verifier.gold(replace(task(), columns={"answer": "x"}))


def test_the_reference_cases(shared):
    case_files, spider = list(shared.glob("*/cases.jsonl")), shared / "data" / "sql" / "spider"
    if not case_files or not spider.is_dir():
        pytest.skip(f"no SQL cases below {shared}")
    cases = [case for line in case_files[0].read_text().splitlines() if (case := json.loads(line))["domain"] == "sql"]
    variants = [f"variants/concert_singer_v{number}.sqlite" for number in (1, 2, 3)]
    verifier = make_verifier(spider, snapshots=["sqlite/concert_singer.sqlite", *variants])
    wrong = [
        (case["id"], verdict.reason)
        for case in cases
        for verdict in [verifier.judge(task(case["setting"]), case["candidate"])]
        if (verdict.reward, verdict.outcome) != ((1.0, True) if case["verdict"] == "PASS" else (0.0, False))
    ]
    verifier.close()
    assert len(cases) >= 30
    assert wrong == []


def test_no_tensor_library_is_imported():
    code = "import sys, groupwise.verifiers; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "pydantic", "numpy"} & set(modules)


def test_a_hang_costs_bounded_time(verifier):
    started = time.monotonic()
    hang = "SELECT instr(printf('%.*c', 900000, 'a'), printf('%.*c', 450000, 'a') || 'b')"
    assert verifier.judge(task(), hang).reason.startswith("timeout")
    assert time.monotonic() - started < 5.0


def test_sort_keys_lost_to_a_failing_machine_do_not_make_the_order_strict(folder, monkeypatch):
    verifier = make_verifier(folder)
    run, gold = verifier._sandbox.run, "SELECT name FROM person ORDER BY age"

    def run_but_lose_keys(path, sql, **options):
        lost = QueryResult(status=QueryStatus.WORKER_FAILED, message="no worker")
        return lost if "order_key" in sql else run(path, sql, **options)

    monkeypatch.setattr(verifier._sandbox, "run", run_but_lose_keys)
    assert verifier.judge(task(gold), gold).reason.startswith("worker_failed")
    monkeypatch.setattr(verifier._sandbox, "run", run)
    assert verifier.judge(task(gold), "SELECT name FROM person ORDER BY age, name DESC").reward == 1.0
    verifier.close()


def test_every_verifier_is_found_by_its_public_name():
    import groupwise.verifiers as room

    for name in room.__all__:
        assert getattr(room, name).__name__ == name
    with pytest.raises(AttributeError, match="NoVerifier"):
        _ = room.NoVerifier
