"""How many wrong answers one database accepts, and how many it accepts together with a few made copies.

    python benchmarks/variants.py SPIDER_FOLDER

SPIDER_FOLDER holds dev.jsonl (db_id, query), tables.json and sqlite/DB_ID.sqlite. For every database the copies are
made and chosen as `groupwise variants` does; broken golds and constant answers are tried on the original alone and on
the original with the copies. Prints a table and writes results/variants.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from groupwise.cli.variants import _spider_relations
from groupwise.verifiers.variants import make_variants, survival_by_kind
from groupwise.verifiers.variants_trial import CONSTANT, survivors

RESULTS = Path(__file__).resolve().parent / "results"


def measure(folder: Path, name: str, golds: list[str], copies: int, seed: int, out: Path) -> dict[str, Any]:
    """Counts of one database."""
    started = time.perf_counter()
    made = make_variants(
        folder / "sqlite" / f"{name}.sqlite",
        golds,
        out,
        num_copies=copies,
        relations=_spider_relations(folder / "tables.json", name),
        seed=seed,
    )
    kinds = {k.kind: [k.num, k.on_original, k.on_all] for k in survival_by_kind(made)}
    alive = [[a.kind, a.gold, a.sql] for a in survivors(made.trial, made.chosen)]
    return {
        "database": name,
        "seconds": round(time.perf_counter() - started, 1),
        "kinds": kinds,
        "unusable_golds": len(made.trial.unusable_golds),
        "bad_copies": len(made.trial.bad_copies),
        "survivors": alive,
    }


def totals(databases: list[dict[str, Any]]) -> dict[str, list[int]]:
    """kind -> [tried, accepted by the original alone, accepted by the original and the copies]."""
    sums: dict[str, Counter[int]] = {}
    for database in databases:
        for kind, numbers in database["kinds"].items():
            sums.setdefault(kind, Counter()).update(dict(enumerate(numbers)))
    return {kind: [count[0], count[1], count[2]] for kind, count in sums.items()}


def table(sums: dict[str, list[int]]) -> str:
    """The sums as a Markdown table."""
    mutants = [numbers for kind, numbers in sums.items() if kind != CONSTANT]
    rows = {**{kind: n for kind, n in sums.items() if kind != CONSTANT}}
    rows["all mutants"] = [sum(numbers[index] for numbers in mutants) for index in range(3)]
    rows[CONSTANT] = sums.get(CONSTANT, [0, 0, 0])
    lines = ["| wrong answer | tried | accepted by one database | with the copies |", "|---|---|---|---|"]
    for kind, (num, before, after) in rows.items():
        lines.append(f"| {kind} | {num} | {before / max(num, 1):.1%} | {after / max(num, 1):.1%} |")
    return "\n".join(lines)


def main() -> None:
    """Measure every database, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with dev.jsonl, tables.json and sqlite/")
    parser.add_argument("--copies", type=int, default=3, help="copies of each database (3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of databases, separated by commas (all)")
    parser.add_argument("--output", type=Path, default=RESULTS / "variants.json")
    parser.add_argument("--keep", type=Path, default=None, help="folder in which the copies stay (none)")
    args = parser.parse_args()
    golds: dict[str, list[str]] = {}
    for line in (args.folder / "dev.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        golds.setdefault(row["db_id"], []).append(row["query"])
    names = [name for name in golds if (args.folder / "sqlite" / f"{name}.sqlite").is_file()]
    names = [name for name in names if not args.only or name in args.only.split(",")]
    databases = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(names, start=1):
            out = args.keep or Path(scratch)
            databases.append(measure(args.folder, name, golds[name], args.copies, args.seed, out))
            print(f"{number}/{len(names)} {name}: {databases[-1]['seconds']} s", flush=True)
    sums = totals(databases)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"copies": args.copies, "seed": args.seed, "totals": sums, "databases": databases}
    args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(sums))


if __name__ == "__main__":
    main()
