"""SqlVerifier on DuckDB files: the same verdicts, DuckDB's own semantics, and no mixing with SQLite."""

import importlib.util
import subprocess
import sys

import pytest

from groupwise.errors import VerifierError
from groupwise.types import Status, Task
from groupwise.verifiers import SqlVerifier

pytestmark = pytest.mark.skipif(importlib.util.find_spec("duckdb") is None, reason="the package duckdb is missing")
ROWS = {
    "shop": "(1, 'Ann', 'Oslo', 30), (2, 'Bob', 'Rome', 20), (3, 'Cem', 'Oslo', 20), (4, 'Dee', NULL, 10)",
    "shop_v1": "(1, 'Ann', 'Rome', 25), (5, 'Eve', 'Oslo', 25), (6, 'Fay', 'Oslo', 40)",
}
WRITE = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); c.execute(sys.argv[2]); c.close()"


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ducks")
    for name, rows in ROWS.items():
        table = "CREATE TABLE person(id INTEGER, name VARCHAR, city VARCHAR, age INTEGER)"
        script = f"{table}; INSERT INTO person VALUES {rows}"
        subprocess.run([sys.executable, "-c", WRITE, str(folder / f"{name}.duckdb"), script], check=True, timeout=60)
    verifier = SqlVerifier(
        snapshots=["shop.duckdb", "shop_v1.duckdb"], time_limit_s=0.5, num_workers=1, base_folder=folder
    )
    yield verifier
    verifier.close()


OSLO = "SELECT name FROM person WHERE city = 'Oslo'"


@pytest.mark.parametrize(
    ("gold", "answer", "word"),
    [
        (OSLO, "SELECT p.name FROM person p WHERE p.city ILIKE 'oslo';", "same_rows"),
        (OSLO, "```duckdb\nSELECT name FROM person WHERE city = 'Oslo'\n```", "same_rows"),
        (OSLO, "SELECT name FROM person WHERE name IN ('Ann', 'Cem')", "wrong_rows"),
        ("SELECT name FROM person ORDER BY age", "SELECT name FROM person ORDER BY age, name DESC", "same_rows"),
        ("SELECT name FROM person ORDER BY age", "SELECT name FROM person ORDER BY age DESC", "wrong_order"),
        (
            "SELECT name FROM person ORDER BY age LIMIT 2",
            "SELECT name FROM person ORDER BY age, id DESC LIMIT 2",
            "same_rows",
        ),
        ("SELECT avg(age) FROM person", "SELECT sum(age) / count(*) FROM person", "same_rows"),
        ("SELECT count(*) FROM person WHERE id = 1", "SELECT 1", "reads_nothing"),
        ("SELECT count(*) FROM person WHERE id = 1", "WITH person AS (SELECT 1) SELECT 1 FROM person", "reads_nothing"),
        (OSLO, "DELETE FROM person", "forbidden"),
        (OSLO, "SELECT * FROM read_csv('/etc/passwd')", "forbidden"),
        (OSLO, "SELECT nom FROM person", "sql_error"),
        (OSLO, "SELECT count(*) FROM range(100000000000)", "timeout"),
        (OSLO, "SELECT len(range(1000000000))", "memory"),
    ],
)
def test_verdicts(verifier, gold, answer, word):
    verdict = verifier.judge(Task(id="t1", prompt="?", columns={"gold": gold}), answer)
    assert verdict.reason.replace(":", " ").split()[0] == word
    assert verdict.reward == (1.0 if word == "same_rows" else 0.0)


def test_golds_are_checked_and_dates_of_today_refused(verifier):
    good = Task(id="good", prompt="?", columns={"gold": OSLO})
    clock = Task(id="clock", prompt="?", columns={"gold": "SELECT name FROM person WHERE current_date > '2000-01-01'"})
    (problem,) = verifier.check([good, clock])
    assert (problem.task_id, problem.reason.split(":")[0]) == ("clock", "gold_failed")
    assert verifier.judge(clock, OSLO).status is Status.UNSCORED
    assert len(verifier.version) == 16


def test_the_two_kinds_do_not_mix():
    with pytest.raises(VerifierError, match="only"):
        SqlVerifier(snapshots=["a.duckdb", "b.sqlite"])
