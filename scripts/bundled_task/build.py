"""Build the bundled task: three snapshots of a bike shop and the questions about it.

    python scripts/bundled_task/build.py [FOLDER]

Everything follows from SEED, so a second run writes the same files. A drafted pair is kept only where its answer is
non-empty on every snapshot, changes between the base and each copy, and does not depend on how ties are broken.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import patterns_group
import patterns_join
import patterns_nested
import patterns_one
import patterns_summary
import schema
from drafts import Draft

SEED = 17
LEVELS = {
    1: patterns_one.PATTERNS + patterns_summary.PATTERNS,
    2: patterns_group.PATTERNS + patterns_join.PATTERNS,
    3: patterns_nested.PATTERNS,
}
PAIRS = {1: 360, 2: 210, 3: 90}
"""How many pairs of each level to make. Fewer of level 3 is easier."""
SIZES = {"demonstrations": 200, "heldout": 72}
"""The rest is train."""
MAX_WORDS = 34
"""Longest gold, counted in words, numbers and marks; about 1.3 model tokens each."""
MAX_ROWS = 120
TRIES = 1500
"""Draws of a pattern before it is left with fewer pairs than its share."""
FOLDER = Path(__file__).resolve().parents[2] / "src" / "groupwise" / "bundled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One question.

    Example:
        Pair(family="count_all", level=1, question="How many stores are there?", gold="SELECT COUNT(*) FROM store")
    """

    family: str
    level: int
    question: str
    gold: str


def normal(text: str) -> str:
    """Text with case, spacing and final marks levelled, for telling apart."""
    return re.sub(r"\s+", " ", text).strip(" .?;").lower()


def rows_of(connection: sqlite3.Connection, sql: str) -> list[tuple[object, ...]]:
    return connection.execute(sql).fetchall()


def tie_breaks(gold: str, num_columns: int) -> tuple[str, ...]:
    """The gold with its ties broken both ways; equal answers mean that no tie shows."""
    match = re.search(r" ORDER BY (.+?)( LIMIT \d+)?$", gold)
    if match is None:
        return ()
    head, tail = gold[: match.end(1)], match.group(2) or ""
    places = range(1, num_columns + 1)
    return tuple(head + "".join(f", {p}{way}" for p in places) + tail for way in ("", " DESC"))


def is_sound(gold: str, connections: list[sqlite3.Connection]) -> bool:
    """Non-empty and tie-free on every snapshot, and different on each copy."""
    if len(re.findall(r"\w+|[^\w\s]", gold)) > MAX_WORDS:
        return False
    answers = []
    for connection in connections:
        rows = rows_of(connection, gold)
        if not rows or rows in ([(0,)], [(1,)]) or all(value is None for row in rows for value in row):
            return False
        if len({tuple(rows_of(connection, sql)) for sql in tie_breaks(gold, len(rows[0]))} | {tuple(rows)}) > 1:
            return False
        answers.append(Counter(rows))
    return answers[0].total() <= MAX_ROWS and all(copy != answers[0] for copy in answers[1:])


def agree(gold: str, readings: list[str], connections: list[sqlite3.Connection]) -> bool:
    """Whether other readings of the question give the gold's rows on every snapshot."""
    return all(Counter(rows_of(c, sql)) == Counter(rows_of(c, gold)) for sql in readings for c in connections)


def draw_pairs(connections: list[sqlite3.Connection]) -> list[Pair]:
    """Sound pairs, spread evenly over the patterns of each level. No question, no gold twice."""
    rng = random.Random(SEED)
    golds: set[str] = set()
    questions: set[str] = set()
    pairs: list[Pair] = []
    for level, patterns in LEVELS.items():
        missing = PAIRS[level]
        drawn = [pattern_pairs(pattern, level, rng, connections, golds, questions) for pattern in patterns]
        for place in range(max(map(len, drawn))):
            for family in drawn:
                if place < len(family) and missing > 0:
                    pairs.append(family[place])
                    missing -= 1
        if missing:
            raise SystemExit(
                f"level {level}: {missing} of {PAIRS[level]} pairs are missing; raise TRIES or lower PAIRS"
            )
    return pairs


def pattern_pairs(
    pattern: Callable[[random.Random], Draft],
    level: int,
    rng: random.Random,
    connections: list[sqlite3.Connection],
    golds: set[str],
    questions: set[str],
) -> list[Pair]:
    """Up to twice the pattern's fair share of pairs; adds what it uses to golds and questions."""
    share = 2 * -(-PAIRS[level] // len(LEVELS[level]))
    found: list[Pair] = []
    for _ in range(TRIES):
        if len(found) == share:
            break
        gold, question, *readings = pattern(rng)
        if normal(gold) in golds or normal(question) in questions:
            continue
        if not is_sound(gold, connections) or not agree(gold, readings, connections):
            continue
        golds.add(normal(gold))
        questions.add(normal(question))
        found.append(Pair(family=pattern.__name__, level=level, question=question, gold=gold))
    return found


def split_pairs(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Demonstrations, train and heldout, each with the same share of every level and, as far as numbers allow, pattern.

    The pairs of a level are laid out pattern by pattern and dealt at even distances.
    """
    splits: dict[str, list[Pair]] = {"demonstrations": [], "train": [], "heldout": []}
    families: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        families[pair.family].append(pair)
    wanted = {name: size / len(pairs) for name, size in SIZES.items()}
    credit = dict.fromkeys(SIZES, 0.5)
    for members in families.values():
        taken = 0
        for name, share in wanted.items():
            credit[name] += share * len(members)
            # every family needs a demonstration, and one pair in train
            count = min(int(credit[name]), len(members) - taken - 1)
            count = max(count, 1) if name == "demonstrations" else count
            credit[name] -= count
            splits[name] += members[taken : taken + count]
            taken += count
        splits["train"] += members[taken:]
    for name, members in splits.items():
        random.Random(f"{SEED}{name}").shuffle(members)
    return splits


def write_split(name: str, pairs: list[Pair], folder: Path) -> None:
    """One JSON object a line; a completion only where it is to be imitated."""
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for number, pair in enumerate(pairs, start=1):
            row: dict[str, object] = {"id": f"{name}-{number:03d}", "prompt": pair.question}
            if name == "demonstrations":
                row["completion"] = pair.gold
            file.write(json.dumps(row | {"gold": pair.gold, "level": pair.level, "family": pair.family}) + "\n")


def build(folder: Path) -> dict[str, list[Pair]]:
    """Write snapshots and splits into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    connections = [sqlite3.connect(path) for path in schema.write_all(folder)]
    splits = split_pairs(draw_pairs(connections))
    for name, pairs in splits.items():
        write_split(name, pairs, folder)
    for connection in connections:
        connection.close()
    return splits


def main() -> None:
    splits = build(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    families = {name: {pair.family for pair in pairs} for name, pairs in splits.items()}
    for name, pairs in splits.items():
        levels = Counter(pair.level for pair in pairs)
        print(f"{name}: {len(pairs)} pairs, levels {dict(sorted(levels.items()))}, {len(families[name])} patterns")


if __name__ == "__main__":
    main()
