"""Attacks on the read-only SQLite: each must end, change nothing, and leave the sandbox usable."""

import hashlib
import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from groupwise.sandbox import QUERY_FAULTS, QueryStatus, SqliteSandbox, WorkerCrashed

LIMIT_S = 0.2


@pytest.fixture(scope="module")
def sandbox():
    sandbox = SqliteSandbox(num_workers=2, time_limit_s=LIMIT_S, memory_limit_mb=512)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    path = tmp_path_factory.mktemp("a folder with ?, # and %") / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, spent REAL, photo BLOB);
            INSERT INTO customer VALUES (1, 'Ann', 1.5, x'00ff'), (2, 'Bob', NULL, NULL), (3, 'Cem', 3.0, x'');
            INSERT INTO customer(id, name) VALUES (4, CAST(x'ff41' AS TEXT));
            CREATE VIEW rich AS SELECT name FROM customer WHERE spent > 2;
            """
        )
    connection.close()
    return path


def fingerprint(path):
    return hashlib.sha256(path.read_bytes()).hexdigest(), sorted(os.listdir(path.parent))


def test_rows_come_back_with_their_types(sandbox, shop):
    result = sandbox.run(shop, "SELECT id, name, spent, photo FROM customer ORDER BY id", max_rows=10)
    assert result.status is QueryStatus.OK
    assert result.rows == (
        (1, "Ann", 1.5, b"\x00\xff"),
        (2, "Bob", None, None),
        (3, "Cem", 3.0, b""),
        (4, "\ufffdA", None, None),
    )
    assert isinstance(result.rows[2][2], float)
    assert result.num_columns == 4


def test_reading_stops_after_max_rows(sandbox, shop):
    three = sandbox.run(shop, "SELECT id FROM customer", max_rows=3)
    four = sandbox.run(shop, "SELECT id FROM customer", max_rows=4)
    assert (len(three.rows), three.truncated) == (3, True)
    assert (len(four.rows), four.truncated) == (4, False)


def test_a_flood_of_rows_costs_nothing(sandbox, shop):
    flood = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r"
    assert sandbox.run(shop, flood, max_rows=5).truncated


def test_what_was_read_is_reported(sandbox, shop):
    assert sandbox.run(shop, "SELECT 6", max_rows=1).columns_read == frozenset()
    assert sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).columns_read == {("customer", "")}
    view = sandbox.run(shop, "SELECT upper(name) FROM rich", max_rows=9)
    assert {"customer", "rich"} == {table for table, _ in view.columns_read}
    assert "upper" in view.functions
    assert sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).columns_read == {("customer", "")}


FORBIDDEN = [
    "DELETE FROM customer",
    "UPDATE customer SET name = 'x'",
    "INSERT INTO customer(id) VALUES (9)",
    "REPLACE INTO customer(id) VALUES (9)",
    "DROP TABLE customer",
    "WITH x AS (SELECT 1) DELETE FROM customer",
    "WITH x AS (SELECT 1) INSERT INTO customer(id) SELECT 9",
    "CREATE TEMP VIEW customer AS SELECT 1",
    "CREATE TEMP TABLE t(x)",
    "ATTACH '{folder}/new.db' AS x",
    "VACUUM INTO '{folder}/copy.db'",
    "PRAGMA query_only = 0",
    "PRAGMA writable_schema = 1",
    "EXPLAIN SELECT 1",
    "EXPLAIN QUERY PLAN SELECT 1",
    "BEGIN",
    "SAVEPOINT s",
    "ANALYZE",
    "REINDEX",
    "SELECT 1; DROP TABLE customer",
    "-- only a comment",
    "/* only a comment",
    "",
    ";",
    "SELECT * FROM sqlite_master",
    "SELECT count(*) FROM sqlite_master",
    "SELECT 1 FROM sqlite_schema",
    "SELECT (SELECT group_concat(sql) FROM main.sqlite_master)",
    "SELECT * FROM pragma_table_info('customer')",
    "SELECT count(*) FROM pragma_database_list",
    "SELECT count(*) FROM dbstat",
    "SELECT * FROM sqlite_stmt",
    "SELECT load_extension('x')",
    "SELECT random()",
    "SELECT name FROM customer ORDER BY random()",
    "SELECT hex(randomblob(4))",
    "SELECT zeroblob(500000000)",
    "SELECT sqlite_version()",
    "SELECT fts3_tokenizer('simple')",
    "SELECT CURRENT_TIMESTAMP",
    "SELECT date('now')",
    "SELECT strftime('%Y', ' NOW ')",
    "SELECT strftime('%Y') -- no moment",
    "SELECT julianday()",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_forbidden(sandbox, shop, sql):
    before = fingerprint(shop)
    result = sandbox.run(shop, sql.replace("{folder}", str(shop.parent)), max_rows=10)
    assert result.status is QueryStatus.FORBIDDEN
    assert result.rows == ()
    assert fingerprint(shop) == before
    assert sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).rows == ((4,),)


BOMBS = [
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r ORDER BY x",
    "SELECT printf('%.*c', 500000000, 'x')",
    "SELECT length(printf('%.*c', 2000000000, 'x'))",
    "SELECT instr(printf('%.*c', 900000, 'a'), printf('%.*c', 450000, 'a') || 'b')",
    "SELECT replace(replace(printf('%.*c', 1000, 'a'), 'a', printf('%.*c', 1000, 'b')), 'b', 'cc')",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 2000) "
    "SELECT printf('%.*c', 900000, 'x') FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 2000) "
    "SELECT group_concat(printf('%.*c', 900000, 'x')) FROM r",
    "SELECT " + "(" * 900 + "1" + ")" * 900,
    "SELECT 1" + " UNION ALL SELECT 1" * 400,
    "SELECT '" + "x" * 2_000_000 + "'",
    "SELECT hex(zeroblob(500000000))",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 10000) SELECT count(*) FROM r a, r b",
]


@pytest.mark.parametrize("number", range(len(BOMBS)))
def test_bombs_end_in_time_and_are_the_querys_fault(sandbox, shop, number):
    started = time.monotonic()
    result = sandbox.run(shop, BOMBS[number], max_rows=5000)
    assert result.status in QUERY_FAULTS
    assert time.monotonic() - started < 6.0  # CPU seconds bound it; the margin is for a busy machine
    assert sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).rows == ((4,),)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM customer",
        "SELECT 'a",
        "SELECT ?",
        "SELECT 1 FROM nowhere",
        "SELECT '\ud800'",
        "SELECT '\0'",
    ],
)
def test_errors_are_the_querys_fault(sandbox, shop, sql):
    assert sandbox.run(shop, sql, max_rows=1).status is QueryStatus.SQL_ERROR


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT date('2020-01-31', '+1 day')",
        "SELECT name FROM customer WHERE name <> 'now'",
        "SELECT printf('%.2f', 1.234)",
        "/* note */ SELECT name FROM customer -- end",
        "SELECT replace(name, 'A', 'B') FROM customer",
        "VALUES (1), (2)",
        "SELECT row_number() OVER (ORDER BY id) FROM customer;",
        "SELECT 'a;b' || \"name\" || [name] || `name` FROM customer",
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 9) SELECT sum(x) FROM r",
    ],
)
def test_ordinary_queries_run(sandbox, shop, sql):
    assert sandbox.run(shop, sql, max_rows=10).status is QueryStatus.OK


def test_missing_and_broken_snapshots_are_not_the_querys_fault(sandbox, tmp_path):
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"not a database, but long enough to be read as one " * 40)
    assert sandbox.run(tmp_path / "none.sqlite", "SELECT 1", max_rows=1).status is QueryStatus.SNAPSHOT_MISSING
    assert sandbox.run(broken, "SELECT 1", max_rows=1).status is QueryStatus.SNAPSHOT_BAD
    assert sandbox.run(tmp_path, "SELECT 1", max_rows=1).status is QueryStatus.SNAPSHOT_BAD
    assert os.listdir(tmp_path) == ["broken.sqlite"]


def test_a_replaced_file_is_opened_anew(sandbox, tmp_path):
    path = tmp_path / "changing.sqlite"
    for value in (1, 2):
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE t(x)")
            connection.execute("INSERT INTO t VALUES (?)", (value,))
        connection.close()
        os.utime(path, ns=(value * 10**9, value * 10**9))
        assert sandbox.run(path, "SELECT x FROM t", max_rows=1).rows == ((value,),)


def test_a_worker_killed_from_outside_is_retried(shop):
    sandbox = SqliteSandbox(num_workers=1, time_limit_s=5.0)
    sandbox.run(shop, "SELECT 1", max_rows=1)
    os.kill(sandbox._pool.pids()[0], signal.SIGKILL)
    assert sandbox.run(shop, "SELECT 7", max_rows=1).rows == ((7,),)
    sandbox.close()


def test_a_query_that_ends_every_worker_is_at_fault_only_if_others_run(shop, monkeypatch):
    sandbox = SqliteSandbox(num_workers=1, time_limit_s=5.0)
    call, calls = sandbox._pool.call, []

    def crash_on(text):
        def crashing_call(request, **limits):
            calls.append(request["sql"])
            if text in request["sql"]:
                raise WorkerCrashed("gone")
            return call(request, **limits)

        monkeypatch.setattr(sandbox._pool, "call", crashing_call)

    crash_on("13")
    assert sandbox.run(shop, "SELECT 13", max_rows=1).status is QueryStatus.CRASH
    assert calls[:2] == ["SELECT 13", "SELECT 13"]
    assert sandbox.run(shop, "SELECT 14", max_rows=1).rows == ((14,),)
    crash_on("SELECT")
    assert sandbox.run(shop, "SELECT 13", max_rows=1).status is QueryStatus.WORKER_FAILED
    sandbox.close()


def test_a_closed_sandbox_is_not_the_querys_fault(shop):
    sandbox = SqliteSandbox(num_workers=1)
    sandbox.close()
    assert sandbox.run(shop, "SELECT 14", max_rows=1).status is QueryStatus.WORKER_FAILED


ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
ONE_LONG_CALL = "SELECT instr(printf('%.*c', 900000, 'a'), printf('%.*c', 450000, 'a') || 'b')"


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ten_rounds_of_hangs_from_a_thread_leave_no_orphan_and_no_smaller_pool(shop):
    sandbox = SqliteSandbox(num_workers=2, time_limit_s=0.05, memory_limit_mb=512)
    seen, answers = set(), []

    def attack():
        for number in range(10):
            hang = sandbox.run(shop, f"{ONE_LONG_CALL if number % 2 else ENDLESS} -- {number}", max_rows=1)
            seen.update(sandbox._pool.pids())
            answers.append((hang.status, sandbox.run(shop, "SELECT count(*) FROM customer", max_rows=1).rows))
            seen.update(sandbox._pool.pids())

    before = fingerprint(shop)
    thread = threading.Thread(target=attack)
    thread.start()
    thread.join(timeout=60.0)
    assert answers == [(QueryStatus.TIMEOUT, ((4,),))] * 10
    with ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(lambda n: sandbox.run(shop, f"SELECT {n}", max_rows=1).rows, range(20)))
    assert rows == [((n,),) for n in range(20)]
    alive = set(sandbox._pool.pids())
    sandbox.close()
    assert not any(is_alive(pid) for pid in seen | alive)
    assert fingerprint(shop) == before


def test_a_workers_memory_stays_under_its_limit(shop):
    sandbox = SqliteSandbox(num_workers=1, time_limit_s=0.2, memory_limit_mb=256)
    for bomb in (bomb for bomb in BOMBS if "group_concat" in bomb or "2000000000" in bomb or "ORDER BY" in bomb):
        sandbox.run(shop, bomb, max_rows=5000)
    sandbox.run(shop, "SELECT 1", max_rows=1)
    status = Path(f"/proc/{sandbox._pool.pids()[0]}/status").read_text()
    sandbox.close()
    (peak_kb,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmPeak")]
    assert peak_kb <= 256 * 1024


def test_two_sandboxes_on_one_file_do_not_lock_each_other_out(shop):
    sandboxes = [SqliteSandbox(num_workers=1, time_limit_s=5.0) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        runs = threads.map(
            lambda n: sandboxes[n % 2].run(shop, f"SELECT count(*) + {n} FROM customer", max_rows=1).rows, range(60)
        )
        assert list(runs) == [((4 + n,),) for n in range(60)]
    for sandbox in sandboxes:
        sandbox.close()


def test_a_relative_snapshot_starts_at_the_callers_folder(tmp_path, monkeypatch):
    with closing(sqlite3.connect(tmp_path / "here.sqlite")) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (7)")
        connection.commit()
    monkeypatch.chdir(tmp_path)
    sandbox = SqliteSandbox(num_workers=1, time_limit_s=2.0)  # its workers live in a folder of their own
    try:
        assert sandbox.run(Path("here.sqlite"), "SELECT a FROM t", max_rows=5).rows == ((7,),)
    finally:
        sandbox.close()
