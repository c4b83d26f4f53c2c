"""What the fuzz run mutates: labelled cases of every kind of verifier, and the settings that they are judged under."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from groupwise.config import VerifierSection
from groupwise.launch.verifiers import verifier_of
from groupwise.types import Task
from groupwise.verifiers import TaskVerifier

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "verifiers"))

import case_tasks_extraction  # noqa: E402
import case_tasks_math  # noqa: E402
import case_tasks_rationale  # noqa: E402
import case_tasks_tools  # noqa: E402
from mutations import mutate  # noqa: E402

CASES = ROOT.parent / "shared" / "handbook" / "cases.jsonl"
SIZES = {1_000_000: 200, 50_000: 50, 7_500: 25, 900: 15}
"""Characters that a text grows to, and how often: one text in this many."""

Case = tuple[str, dict[str, Any], Task, str, str]
"""Case id, section, task, completion, "PASS" or "FAIL"."""

GOLD_SQL = "SELECT name FROM singer WHERE country = 'France' ORDER BY age"
SQL = (
    ("own-1", GOLD_SQL, GOLD_SQL, "PASS"),
    ("own-2", GOLD_SQL, "```sql\nselect s.name from singer s where s.country = 'France' order by s.age\n```", "PASS"),
    ("own-3", GOLD_SQL, "SELECT name FROM singer WHERE country = 'France' ORDER BY age LIMIT 3", "FAIL"),
    ("own-4", GOLD_SQL, "SELECT name FROM singer WHERE singer_id IN (1, 4)", "FAIL"),
    ("own-5", GOLD_SQL, "DELETE FROM singer", "FAIL"),
    ("own-6", "SELECT count(*) FROM singer", "SELECT 8", "FAIL"),
    ("own-7", "SELECT count(*) FROM singer", "SELECT sum(1) FROM singer -- all rows", "PASS"),
    ("own-8", "SELECT country, avg(age) FROM singer GROUP BY 1", "SELECT country, age FROM singer GROUP BY 1", "FAIL"),
)
MATH = (
    ("own-1", "42", "So it is #### 42", "PASS"),
    ("own-2", r"\frac{3}{4}", r"Hence \boxed{0.75}", "PASS"),
    ("own-3", "x^2 + 2x + 1", r"\boxed{(x+1)^2}", "PASS"),
    ("own-4", r"\{1, 2\}", r"\boxed{\{2, 3\}}", "FAIL"),
    ("own-5", "(1, 2]", r"\boxed{[1, 2]}", "FAIL"),
    ("own-6", "1234.5", "<answer>1,234.50</answer>", "PASS"),
    ("own-7", r"\sqrt{2} + \pi", r"\boxed{4.5558}", "FAIL"),
    ("own-8", "x = 3", r"\boxed{2} or \boxed{3}", "FAIL"),
)
FUNCTION = """
def exact(prompts, completions, answer, **kwargs):
    return [1.0 if text.strip() == truth else 0.0 for text, truth in zip(completions, answer)]

def short(prompts, completions, **kwargs):
    return [1.0 / (1 + len(text) / 100) for text in completions]
"""
VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "sql": ({}, {"answer_in": "text"}, {"answer_in": "fence"}),
    "tools": (
        *({}, {"call_form": "tags"}, {"call_form": "json"}, {"match": "exact"}, {"responses": "check"}),
        {"match": "writes", "max_failed_calls": 3, "partial_cap": 0.3},
    ),
    "extraction": ({}, {"answer_in": "fence"}, {"partial_cap": 0.5}),
    "classification": ({}, {"answer_in": "text"}, {"answer_in": "json"}, {"rationale": "off"}),
    "math": (
        *({}, {"answer_in": "boxed"}, {"answer_in": "text"}, {"answer_in": "line"}, {"several_answers": "refuse"}),
        {"percent": "fraction", "rel_tolerance": 0.01},
    ),
    "function": ({}, {"text_form": "messages", "path": "rewards.py:short"}),
    "compose": ({}, {"partial_cap": 0.2}),
}


def fits(variant: Mapping[str, Any], task: Task) -> bool:
    """False where the task could not be proved under the setting, so that every verdict would be unscored."""
    if variant.get("match") == "writes":
        return "state" in task.columns
    return variant.get("match") != "exact" or "$from" not in json.dumps(task.columns["calls"])


def label_of(completion: str) -> object:
    """The label of a case's JSON completion."""
    return json.loads(completion)["label"]


class Corpus:
    """Every domain's cases, the files that their verifiers read, and one verifier for each setting in use.

    Args:
        folder: an empty folder for a database and a file with reward functions.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = cases_in(folder)
        self._verifiers: dict[str, TaskVerifier] = {}

    def text(self, seed: int, number: int, domains: tuple[str, ...]) -> dict[str, Any]:
        """Text number `number`: its domain, case, section, task, what was done, and the text itself."""
        rng = random.Random(f"{seed}-{number}")
        domain = domains[number % len(domains)]
        case_id, section, task, completion, expected = rng.choice(self.cases[domain])
        donor = rng.choice(self.cases[domain if rng.random() < 0.7 else rng.choice(domains)])[3]
        size = next((size for size, every in SIZES.items() if number % every == every // 2), 0)
        text, done = mutate(completion, donor, rng, size)
        section = {**section, **rng.choice([variant for variant in VARIANTS[domain] if fits(variant, task)])}
        if section.get("rationale") == "off" and label_of(completion) == task.columns["label"]:
            expected = "PASS"
        made = {"number": number, "domain": domain, "case": case_id, "section": section, "task": task}
        return made | {"expected": expected, "done": done, "text": text}

    def verifier(self, section: dict[str, Any]) -> TaskVerifier:
        """The verifier of a section, built once."""
        key = json.dumps(section, sort_keys=True)
        if key not in self._verifiers:
            self._verifiers[key] = self.build(section)
        return self._verifiers[key]

    def build(self, section: dict[str, Any]) -> TaskVerifier:
        """A new verifier, which shares nothing with others."""
        return verifier_of(TypeAdapter(VerifierSection).validate_python(section), self.folder)

    def close(self) -> None:
        """Ends every verifier."""
        for verifier in self._verifiers.values():
            verifier.close()
        self._verifiers.clear()


def cases_in(folder: Path) -> dict[str, list[Case]]:
    """domain -> its cases; writes the database and the reward functions that they need into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rewards.py").write_text(FUNCTION, encoding="utf-8")
    rng = random.Random(7)
    snapshots = [f"singers{number}.sqlite" for number in range(3)]
    for snapshot, num_rows in zip(snapshots, (9, 40, 120), strict=True):  # a LIMIT or a constant fits one of them only
        (folder / snapshot).unlink(missing_ok=True)
        with sqlite3.connect(folder / snapshot) as connection:
            connection.execute(
                "CREATE TABLE singer(singer_id INTEGER PRIMARY KEY, name TEXT, country TEXT, age INTEGER)"
            )
            rows = [
                (n, f"S {n}", ("France", "Peru")[rng.random() < 0.5], rng.randint(18, 80)) for n in range(1, num_rows)
            ]
            connection.executemany("INSERT INTO singer VALUES (?, ?, ?, ?)", rows)
        connection.close()
    sql = {"kind": "sql", "snapshots": snapshots, "num_workers": 1, "time_limit_s": 0.5}
    maths = {"kind": "math", "num_workers": 1, "time_limit_s": 0.5}
    function = {"kind": "function", "path": "rewards.py:exact", "gold_column": "answer"}
    short = {"name": "short", "role": "shaping", "weight": 0.5, "verifier": {**function, "path": "rewards.py:short"}}
    label = {"name": "label", "role": "outcome", "weight": 2.0, "verifier": case_tasks_rationale.NLI}
    compose = {"kind": "compose", "parts": [label, short]}
    answers = [
        (f"own-{n}", text, "PASS" if text.strip() == "4" else "FAIL") for n, text in enumerate(("4", "5", " 4\n"))
    ]
    math_cases = [(name, maths, Task(id=name, prompt="?", columns={"gold": gold}), *rest) for name, gold, *rest in MATH]
    if CASES.is_file():
        math_cases += [(c[0], {**maths, **c[1]}, *c[2:]) for c in case_tasks_math.tasks(CASES)]
    return {
        "sql": [(name, sql, Task(id=name, prompt="?", columns={"gold": gold}), *rest) for name, gold, *rest in SQL],
        "tools": case_tasks_tools.tasks(),
        "extraction": case_tasks_extraction.tasks(),
        "classification": case_tasks_rationale.tasks(),
        "math": math_cases,
        "function": [
            (n, function, Task(id=n, prompt="2 + 2?", columns={"answer": "4"}), *rest) for n, *rest in answers
        ],
        "compose": [
            (name, compose, *rest)
            for name, section, *rest in case_tasks_rationale.tasks()
            if section["labels"][0] == "entailment"
        ],
    }
