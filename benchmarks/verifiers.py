"""How many SQL verdicts one core gives in a second, and how long the slow ones take.

    python benchmarks/verifiers.py [--spider FOLDER]

Every verdict runs one query on four snapshots (a database and three copies of it) and compares the rows. The texts are
all different, so that no verdict comes from the cache. Without --spider a database of nine singers and stadiums is
made; with it, the databases and golds of the folder (dev.jsonl, sqlite/DB_ID.sqlite). One worker process and one
thread, which take turns: what is measured is one core. Prints a table and writes results/verifiers.json.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from groupwise.sandbox.workers import _cpu_seconds
from groupwise.types import Status, Task
from groupwise.verifiers import SqlVerifier
from groupwise.verifiers.variants import make_variants
from groupwise.verifiers.variants_mutants import mutants_of
from groupwise.verifiers.variants_schema import read_database

RESULTS = Path(__file__).resolve().parent / "results"
NUM_COPIES = 3
GOLDS = (
    "SELECT count(*) FROM singer",
    "SELECT name, country, age FROM singer ORDER BY age DESC",
    "SELECT avg(age), min(age), max(age) FROM singer WHERE country = 'France'",
    "SELECT DISTINCT country FROM singer WHERE age > 20",
    "SELECT location, name FROM stadium WHERE capacity BETWEEN 5000 AND 10000",
    "SELECT s.name, count(*) FROM concert AS c JOIN stadium AS s ON c.stadium_id = s.id GROUP BY c.stadium_id",
    "SELECT name FROM stadium WHERE id NOT IN (SELECT stadium_id FROM concert)",
    "SELECT country, count(*) FROM singer GROUP BY country ORDER BY count(*) DESC LIMIT 1",
)


def write_database(path: Path) -> None:
    """Three small tables with made-up rows."""
    rng = random.Random(7)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE stadium(id INTEGER PRIMARY KEY, location TEXT, name TEXT, capacity INTEGER);"
            "CREATE TABLE singer(id INTEGER PRIMARY KEY, name TEXT, country TEXT, age INTEGER);"
            "CREATE TABLE concert(id INTEGER PRIMARY KEY, theme TEXT, stadium_id INTEGER, year TEXT);"
        )
        for number in range(1, 10):
            country = rng.choice(["France", "Peru", "Japan"])
            stadium = (number, f"Town {number % 4}", f"Park {number}", rng.randrange(2000, 60000))
            connection.execute("INSERT INTO stadium VALUES (?, ?, ?, ?)", stadium)
            connection.execute(
                "INSERT INTO singer VALUES (?, ?, ?, ?)", (number, f"S {number}", country, 20 + 3 * number)
            )
            concert = (number, f"Theme {number % 3}", 1 + number % 5, str(2013 + number % 3))
            connection.execute("INSERT INTO concert VALUES (?, ?, ?, ?)", concert)
    connection.close()


def jobs_of(database: Path, golds: list[str], num_verdicts: int) -> list[tuple[Task, str]]:
    """Gold and mutants of every gold in turn, each text made different by a comment."""
    schema = {name: table.columns for name, table in read_database(database, golds).tables.items()}
    answers = [
        (Task(id=f"{database.stem}-{number}", prompt="?", columns={"gold": gold}), text)
        for number, gold in enumerate(golds)
        for text in (gold, *(mutant.sql for mutant in mutants_of(gold, schema)))
    ]
    random.Random(3).shuffle(answers)
    return [(task, f"{text} -- {n}") for n in range(num_verdicts) for task, text in [answers[n % len(answers)]]]


def measure(database: Path, golds: list[str], num_verdicts: int, scratch: Path) -> dict[str, Any]:
    """Latencies of one database, in seconds, right and wrong answers mixed."""
    golds = list(dict.fromkeys(golds))
    made = make_variants(database, golds, scratch, num_copies=NUM_COPIES)
    unusable = {gold for gold, _ in made.trial.unusable_golds}
    jobs = jobs_of(database, [gold for gold in golds if gold.strip() not in unusable], num_verdicts)
    verifier = SqlVerifier(snapshots=[database, *made.copies], num_workers=1)
    try:
        verifier.check([task for task, _ in jobs[:200]])  # golds are computed once, before training
        for task, text in jobs[:200]:
            verifier.judge(task, f"{text} warm")
        seconds, rewards, unscored = [], 0.0, 0
        started, own, theirs = time.perf_counter(), time.process_time(), workers_s(verifier)
        for task, text in jobs:
            before = time.perf_counter()
            verdict = verifier.judge(task, text)
            seconds.append(time.perf_counter() - before)
            rewards += verdict.reward or 0.0
            unscored += verdict.status is Status.UNSCORED
        wall, cpu = time.perf_counter() - started, time.process_time() - own + workers_s(verifier) - theirs
    finally:
        verifier.close()
    counts = {"right": rewards, "unscored": unscored}
    return {"database": database.stem, "seconds": seconds, "wall": wall, "cpu": cpu, **counts}


def workers_s(verifier: SqlVerifier) -> float:
    """CPU seconds of the workers that have ended and of the one that runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = used.ru_utime + used.ru_stime
    return ended + sum(_cpu_seconds(pid) or 0.0 for pid in verifier._sandbox._pool.pids())  # type: ignore[attr-defined]


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def main() -> None:
    """Measure, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spider", type=Path, default=None, help="folder with dev.jsonl and sqlite/ (a made database)")
    parser.add_argument("--only", default="", help="names of databases, separated by commas (all)")
    parser.add_argument("--verdicts", type=int, default=2000, help="verdicts for each database (2000)")
    parser.add_argument("--output", type=Path, default=RESULTS / "verifiers.json")
    args = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        golds: dict[Path, list[str]] = {}
        if args.spider is None:
            write_database(scratch / "music.sqlite")
            golds[scratch / "music.sqlite"] = list(GOLDS)
        else:
            for line in (args.spider / "dev.jsonl").read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                if not args.only or row["db_id"] in args.only.split(","):
                    golds.setdefault(args.spider / "sqlite" / f"{row['db_id']}.sqlite", []).append(row["query"])
        for database, queries in golds.items():
            if database.is_file():
                runs.append(measure(database, queries, args.verdicts, scratch / "copies"))
    print("| database | verdicts/s | a core-second | median ms | p99 ms | right | unscored |")
    print("|---|---|---|---|---|---|---|")
    everything = [second for run in runs for second in run["seconds"]]
    total = {"database": "all", "seconds": everything, "wall": sum(run["wall"] for run in runs)}
    total |= {key: sum(run[key] for run in runs) for key in ("cpu", "right", "unscored")}
    report = []
    for run in [*runs, total]:
        num = len(run["seconds"])
        median, p99 = (1000 * quantile(run["seconds"], share) for share in (0.5, 0.99))
        entry = {"database": run["database"], "verdicts": num, "per_second": round(num / run["wall"], 1)}
        entry["per_core_second"] = round(num / run["cpu"], 1)
        entry |= {"median_ms": round(median, 3), "p99_ms": round(p99, 3)}
        entry |= {"right_frac": round(run["right"] / num, 3), "unscored": run["unscored"]}
        report.append(entry)
        print(
            f"| {entry['database']} | {entry['per_second']:.0f} | {entry['per_core_second']:.0f} "
            f"| {median:.2f} | {p99:.2f} | {entry['right_frac']:.0%} | {entry['unscored']} |"
        )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    document = {"snapshots": 1 + NUM_COPIES, "runs": report}
    args.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
