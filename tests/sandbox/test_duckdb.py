"""Attacks on the read-only DuckDB: each must end, change nothing, and leave the sandbox usable."""

import hashlib
import importlib.util
import os
import subprocess
import sys
import time

import pytest

from groupwise.errors import VerifierError
from groupwise.sandbox import QUERY_FAULTS, DuckdbSandbox, QueryStatus
from groupwise.sandbox import duckdb as duckdb_module

pytestmark = pytest.mark.skipif(importlib.util.find_spec("duckdb") is None, reason="the package duckdb is missing")
SCHEMA = """
CREATE TABLE customer(
    id INTEGER PRIMARY KEY, name VARCHAR, spent DECIMAL(5, 2), joined DATE, photo BLOB, tags INTEGER[]);
INSERT INTO customer VALUES (1, 'Ann', 1.5, '2020-01-01', '\\x00\\xFF'::BLOB, [1, 2]), (2, 'Bob', 2, NULL, NULL, NULL);
CREATE VIEW rich AS SELECT name FROM customer WHERE spent > 1.6;
"""


@pytest.fixture(scope="module")
def sandbox():
    sandbox = DuckdbSandbox(num_workers=1, time_limit_s=0.3, memory_limit_mb=512)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("ducks") / "shop.duckdb"
    write_duckdb(path, SCHEMA)
    return path


def write_duckdb(path, script):
    """In a process of its own: duckdb must not be loaded where the tests look for it."""
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); c.execute(sys.argv[2]); c.close()"
    subprocess.run([sys.executable, "-c", code, str(path), script], check=True, timeout=60)


def fingerprint(path):
    return hashlib.sha256(path.read_bytes()).hexdigest(), sorted(os.listdir(path.parent))


def test_rows_come_back_as_plain_values(sandbox, shop):
    result = sandbox.run(shop, "SELECT *, id = 1, 1 / 2 FROM customer ORDER BY id", max_rows=9)
    assert result.rows == (
        (1, "Ann", 1.5, "2020-01-01", b"\x00\xff", "[1, 2]", 1, 0.5),
        (2, "Bob", 2, None, None, None, 0, 0.5),
    )
    assert (result.num_columns, result.truncated) == (8, False)
    assert sandbox.run(shop, "SELECT id FROM customer", max_rows=1).truncated


def test_the_tables_read_are_reported(sandbox, shop):
    def read(sql):
        return sandbox.run(shop, sql, max_rows=9).columns_read

    assert read("SELECT name FROM rich") == {("customer", "*"), ("rich", "*")}
    assert read("WITH customer AS (SELECT id FROM customer) SELECT id FROM customer") == {("customer", "*")}
    assert read("SELECT 6") == frozenset()
    assert read("WITH customer AS (SELECT 1) SELECT 1 FROM customer") == frozenset()


FORBIDDEN = [
    "DELETE FROM customer",
    "CREATE TEMP TABLE customer AS SELECT 1",
    "CREATE MACRO upper(x) AS 'x'",
    "ATTACH '{folder}/new.db' AS x",
    "COPY customer TO '{folder}/rows.csv'",
    "EXPORT DATABASE '{folder}/all'",
    "INSTALL httpfs",
    "SET threads = 4",
    "RESET memory_limit",
    "PRAGMA database_list",
    "CALL duckdb_settings()",
    "EXPLAIN SELECT 1",
    "SELECT 1; DROP TABLE customer",
    "WITH t AS (DELETE FROM customer RETURNING *) SELECT * FROM t",
    "WITH t AS (SELECT 1) INSERT INTO customer(id) SELECT 9",
    "",
    "-- only a comment",
    "SELECT * FROM '{folder}/shop.csv'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT content FROM read_blob('{folder}/shop.duckdb')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('customer')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT * FROM (DESCRIBE customer)",
    "SELECT * FROM nowhere",
    "SELECT current_setting('memory_limit')",
    "SELECT getenv('HOME')",
    "SELECT random()",
    "SELECT uuid()",
    "SELECT name FROM customer ORDER BY random()",
    "SELECT * FROM customer TABLESAMPLE 50%",
    "SELECT * FROM customer USING SAMPLE 1",
    "SELECT now()",
    "SELECT current_date",
    "SELECT age(joined) FROM customer",
    "SELECT nextval('s')",
    "SELECT sleep_ms(60000)",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_forbidden(sandbox, shop, sql):
    before = fingerprint(shop)
    result = sandbox.run(shop, sql.replace("{folder}", str(shop.parent)), max_rows=10)
    assert result.status is QueryStatus.FORBIDDEN
    assert result.rows == ()
    assert fingerprint(shop) == before
    assert sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).rows == ((2,),)


BOMBS = [
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
    "SELECT count(*) FROM range(1000000) a, range(1000000) b",
    "SELECT length(repeat('x', 1000000000))",
    "SELECT len(range(1000000000))",
    "SELECT string_agg(repeat('x', 1000), '') FROM range(100000000)",
    "SELECT repeat('x', 1000000) FROM range(100)",
    "SELECT " + "(" * 3000 + "1" + ")" * 3000,
]


@pytest.mark.parametrize("number", range(len(BOMBS)))
def test_bombs_end_in_time_and_are_the_querys_fault(sandbox, shop, number):
    started = time.monotonic()
    assert sandbox.run(shop, BOMBS[number], max_rows=5000).status in QUERY_FAULTS
    assert time.monotonic() - started < 6.0  # CPU seconds bound it; the margin is for a busy machine
    assert sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).rows == ((2,),)


@pytest.mark.parametrize("sql", ["SELECT nothing FROM customer", "SELECT 'a", "SELECT $1", "SELECT '\ud800'"])
def test_errors_are_the_querys_fault(sandbox, shop, sql):
    assert sandbox.run(shop, sql, max_rows=1).status is QueryStatus.SQL_ERROR


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT upper(name), nullif(id, 1), row_number() OVER (ORDER BY id), coalesce(spent, 0) FROM customer",
        "WITH a AS (SELECT * FROM customer) SELECT a.id FROM a JOIN main.customer USING (id)",
        "SELECT extract(year FROM joined), strftime(joined, '%Y'), joined > DATE '2019-01-01' FROM customer",
        "SELECT name FROM rich UNION SELECT 'x' EXCEPT SELECT 'y'",
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 9) SELECT sum(x) FROM r",
        "SELECT sum(x) FROM range(5) t(x)",
        "VALUES (1), (2);",
    ],
)
def test_ordinary_queries_run(sandbox, shop, sql):
    assert sandbox.run(shop, sql, max_rows=10).status is QueryStatus.OK


def test_missing_and_broken_snapshots_are_not_the_querys_fault(sandbox, tmp_path):
    broken = tmp_path / "broken.duckdb"
    broken.write_bytes(b"not a database, but long enough to be read as one " * 400)
    assert sandbox.run(tmp_path / "none.duckdb", "SELECT 1", max_rows=1).status is QueryStatus.SNAPSHOT_MISSING
    assert sandbox.run(broken, "SELECT 1", max_rows=1).status is QueryStatus.SNAPSHOT_BAD
    assert os.listdir(tmp_path) == ["broken.duckdb"]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(duckdb_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VerifierError, match=r"groupwise\[duckdb\]"):
        DuckdbSandbox()


def test_the_trainers_process_never_loads_duckdb(sandbox, shop):
    code = (
        "import sys, pathlib; from groupwise.sandbox import DuckdbSandbox; s = DuckdbSandbox(num_workers=1); "
        "r = s.run(pathlib.Path(sys.argv[1]), 'SELECT 1', max_rows=1); s.close(); "
        "print(r.status, 'duckdb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(shop)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ok", "False"]
