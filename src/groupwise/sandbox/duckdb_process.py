"""Runs inside a worker: one read-only DuckDB query a request, behind an allow-list.

DuckDB has no authorizer. Its own parser writes the query down as JSON (json_serialize_sql), and every node of that tree
must be of a known harmless kind: no write, no setting, no file, no clock, no sample, no table but the snapshot's. The
connection is read-only, without external access, and its configuration is locked; the limits of child.py end whatever
runs too long or grows too large, which DuckDB's own limits do not.

    request and reply   as in sqlite_process.py; functions stays empty, columns_read holds (table, "*")

Dates, times and nested values travel as text, decimals as numbers, booleans as 0 and 1.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

MAX_OPEN_SNAPSHOTS = 8
MAX_SQL_CHARS = 100_000
MAX_DEPTH = 200
FETCH_ROWS = 256
QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
TABLE_NODES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "TABLE_FUNCTION", "EMPTY", "PIVOT"})
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
# Not marked as volatile, yet they depend on more than their arguments.
CONTEXT_WORDS = """
ago age current_catalog current_connection_id current_database current_date current_localtime current_localtimestamp
current_query current_query_id current_role current_schema current_schemas current_setting current_time
current_timestamp current_transaction_id current_user get_current_time get_current_timestamp getvariable getenv
in_search_path localtime localtimestamp now pg_sleep session_user sleep_ms today transaction_timestamp txid_current
user
"""
CONTEXT_NAMES = frozenset(CONTEXT_WORDS.split())
CLOCK_NAMES = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Parsed as columns; read the clock where no column has the name."""
MACRO_WORDS = """
array_append array_pop_back array_pop_front array_prepend array_push_back array_push_front array_reverse
array_to_string date_add days_in_month fdiv geomean geometric_mean if json_group_array json_group_object
list_any_value list_append list_avg list_bool_and list_bool_or list_count list_first list_last list_max list_median
list_min list_mode list_prepend list_product list_reverse list_stddev_pop list_stddev_samp list_string_agg list_sum
list_var_pop list_var_samp nullif split_part wavg weighted_avg
"""
MACROS = frozenset(MACRO_WORDS.split())


class Refused(Exception):
    """The query wants something outside the allow-list."""


def allowed_functions(duckdb: Any) -> frozenset[str]:
    """Names of functions whose result depends on their arguments only. Asked once, for it takes its time."""
    with duckdb.connect(":memory:", config={"threads": "1"}) as connection:
        functions = connection.execute(
            "SELECT lower(function_name), bool_or(stability = 'VOLATILE') FROM duckdb_functions() "
            "WHERE function_type IN ('scalar', 'aggregate', 'window') GROUP BY 1"
        ).fetchall()
    steady = {str(name) for name, volatile in functions if not volatile}
    return frozenset((steady | MACROS | TABLE_FUNCTIONS) - CONTEXT_NAMES)


class Snapshot:
    """An open database file with the names of its tables."""

    def __init__(self, duckdb: Any, path: str, memory_mb: int, functions: frozenset[str]) -> None:
        self.functions = functions
        self.connection = duckdb.connect(
            path,
            read_only=True,
            config={
                "enable_external_access": "false",
                "autoload_known_extensions": "false",
                "autoinstall_known_extensions": "false",
                "python_enable_replacements": "false",
                "allow_community_extensions": "false",
                "threads": "1",
                "memory_limit": f"{memory_mb}MB",
                "max_temp_directory_size": "0KB",
                "temp_directory": "",
            },
        )
        self.connection.execute("SET lock_configuration = true")
        self.database = str(self.connection.execute("SELECT current_database()").fetchone()[0]).lower()
        names = self.connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = current_database()"
        ).fetchall()
        self.table_names = {str(name).lower() for _, name in names}
        self.schemas = {str(schema).lower() for schema, _ in names} | {"main"}
        views = self.connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema = 'main' "
            "AND table_catalog = current_database()"
        ).fetchall()
        self.behind = {str(name).lower(): self.tables_named(f'SELECT * FROM "{name}"') for (name,) in views}

    def tables_named(self, sql: str) -> set[str]:
        """The tables that DuckDB itself finds in a text, views resolved; none where it cannot tell."""
        try:
            names = self.connection.get_table_names(sql)
        except Exception:  # it misreads some queries that run well
            return set()
        return {str(name).rpartition(".")[2].strip('"').lower() for name in names}

    def judge(self, sql: str) -> set[str]:
        """The tables that the query reads; refuses everything but one query over the snapshot's own.

        Raises:
            Refused: what is not allowed.
        """
        if len(sql) > MAX_SQL_CHARS:
            raise Refused(f"a text of more than {MAX_SQL_CHARS} characters")
        tree = json.loads(self.connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()[0])
        if tree["error"]:
            if "Only SELECT" in str(tree.get("error_message")):
                raise Refused("a statement that is not a query")
            self.connection.extract_statements(sql)  # raises where the text is no SQL at all
            raise Refused(f"a query that cannot be looked into: {tree.get('error_message')}")
        if len(tree["statements"]) != 1:
            raise Refused(f"{len(tree['statements'])} statements")
        nodes = list(walk(tree["statements"][0], 0))
        expressions = {
            str(entry["key"]).lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", [])
        } | {str(node["cte_name"]).lower() for node in nodes if node.get("cte_name")}
        read = self.tables_named(sql)
        for node in nodes:
            self.judge_node(node, expressions)
            name = str(node.get("table_name", "")).lower()
            if node.get("type") == "BASE_TABLE" and (node.get("schema_name") or name not in expressions):
                read |= {name} | self.behind.get(name, set())
        return read

    def judge_node(self, node: dict[str, Any], expressions: set[str]) -> None:
        """Refuses one node of the tree; see judge."""
        kind = node.get("type")
        if not isinstance(kind, str):
            return
        if kind.endswith("_NODE") and kind not in QUERY_NODES:
            raise Refused(kind.lower())
        if "sample" in node and not kind.endswith("_NODE") and kind not in TABLE_NODES:
            raise Refused(kind.lower())
        if node.get("sample") is not None:
            raise Refused("a random sample")
        if kind == "BASE_TABLE":
            self.judge_table(node, expressions)
        elif kind == "TABLE_FUNCTION":
            function = str(node["function"].get("function_name", "")).lower()
            if function not in TABLE_FUNCTIONS:
                raise Refused(f"table function {function}")
        elif "function_name" in node and str(node["function_name"]).lower() not in self.functions:
            raise Refused(f"function {node['function_name']}")
        elif kind == "COLUMN_REF" and len(node["column_names"]) == 1 and node["column_names"][0].lower() in CLOCK_NAMES:
            raise Refused(str(node["column_names"][0]))

    def judge_table(self, node: dict[str, Any], expressions: set[str]) -> None:
        """A table of the snapshot or a WITH expression of the query; nothing of the system's own."""
        name = str(node["table_name"]).lower()
        schema, catalog = str(node.get("schema_name") or "").lower(), str(node.get("catalog_name") or "").lower()
        is_own = name in self.table_names and schema in self.schemas | {"", self.database}
        if catalog not in ("", self.database) or not (is_own or (name in expressions and not schema)):
            raise Refused(f"table {name}, which is not one of the snapshot's")


def walk(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Every object of the tree."""
    if depth > MAX_DEPTH * 4:
        raise Refused("a query that is nested too deeply")
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from walk(child, depth + 1)
    elif isinstance(node, list):
        for child in node:
            yield from walk(child, depth + 1)


def encode(value: Any) -> Any:
    """A cell as JSON."""
    if value is None or isinstance(value, (str, float)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"hex": bytes(value).hex()}
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return str(value)


def cell_bytes(value: Any) -> int:
    """A rough size, to bound what a reply weighs."""
    if isinstance(value, (str, bytes)):
        return 16 + len(value)
    return 16 + (len(str(value)) if isinstance(value, (list, dict, tuple)) else 0)


def run(duckdb: Any, snapshot: Snapshot, request: dict[str, Any]) -> dict[str, Any]:
    """Judges and executes the request's SQL text as it stands, and reads at most max_rows rows."""
    max_rows, budget = int(request["max_rows"]), int(request["max_bytes"])
    rows: list[list[Any]] = []
    try:
        tables = snapshot.judge(request["sql"])
        if len(snapshot.connection.extract_statements(request["sql"])) != 1:
            raise Refused("more than one statement")
        result = snapshot.connection.execute(request["sql"])
        num_columns = len(result.description)
        while len(rows) <= max_rows and (part := result.fetchmany(min(FETCH_ROWS, max_rows + 1 - len(rows)))):
            for row in part:
                budget -= sum(cell_bytes(value) for value in row)
                rows.append([encode(value) for value in row])
            if budget < 0:
                return {"status": "too_large", "message": f"a result of more than {request['max_bytes']} bytes"}
    except Refused as refusal:
        return {"status": "forbidden", "message": f"not allowed: {refusal}"}
    except (duckdb.OutOfMemoryException, MemoryError, RecursionError) as error:
        return {"status": "memory", "message": str(error)[:200], "retire": True}
    except (duckdb.InternalException, duckdb.FatalException) as error:
        return {"status": "sql_error", "message": str(error)[:200], "retire": True}
    except (duckdb.Error, ValueError, OverflowError) as error:
        return {"status": "sql_error", "message": str(error)[:200]}
    return {
        "status": "ok",
        "num_columns": num_columns,
        "rows": rows[:max_rows],
        "truncated": len(rows) > max_rows,
        "columns_read": sorted((name, "*") for name in tables),
        "functions": [],
    }


def start(settings: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Called once in a fresh worker. settings: {"package_folder": where duckdb is, "memory_mb": its own limit}."""
    sys.path.append(str(settings["package_folder"]))
    import duckdb

    sys.path.remove(str(settings["package_folder"]))
    functions = allowed_functions(duckdb)
    snapshots: OrderedDict[tuple[str, int, int, int], Snapshot] = OrderedDict()

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        path = str(request["snapshot"])
        try:
            stat = os.stat(path)
        except OSError as error:
            return {"status": "snapshot_missing", "message": f"{path}: {error.strerror}"}
        key = (path, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        snapshot = snapshots.get(key)
        if snapshot is None:
            for old in [old for old in snapshots if old[0] == path]:
                snapshots.pop(old).connection.close()  # an open file of this name would be used again as it was
            try:
                snapshot = Snapshot(duckdb, path, int(settings["memory_mb"]), functions)
            except duckdb.Error as error:
                return {"status": "snapshot_bad", "message": f"{path}: {str(error)[:200]}"}
            snapshots[key] = snapshot
            if len(snapshots) > MAX_OPEN_SNAPSHOTS:
                snapshots.popitem(last=False)[1].connection.close()
        snapshots.move_to_end(key)
        return run(duckdb, snapshot, request)

    return handle
