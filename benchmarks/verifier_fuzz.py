"""Does any text make a verifier raise, hang or give up, and which mutated texts earn the reward?

    python benchmarks/verifier_fuzz.py [--texts 10000] [--seed 0] [--only DOMAIN,DOMAIN] [--first N]

Mutated texts of the labelled cases of every kind of verifier, each judged under one of several settings. Text number n
of a seed is always the same. Prints a table, the texts that passed although the case they come from is wrong, and
writes results/verifier_fuzz.json. Exit code 1: an exception, a hang, a dead process, a verdict that breaks the
contract, or an unscored one; the text's number is in the report (--first N --texts 1 judges it alone). A slow verdict
(above 5 s twice) is counted. The math cases come from the reference data where it is present; a few stand here.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import resource
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from groupwise.config import VerifierSection
from groupwise.launch.verifiers import verifier_of
from groupwise.types import Status, Task, Verdict
from groupwise.verifiers import TaskVerifier

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "verifiers"))

import case_tasks_extraction  # noqa: E402
import case_tasks_math  # noqa: E402
import case_tasks_rationale  # noqa: E402
import case_tasks_tools  # noqa: E402
from mutations import mutate  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
CASES = ROOT.parent / "shared" / "handbook" / "cases.jsonl"
SLOW_S = 5.0
HANG_S = 60
SHOWN_CHARS = 200
SIZES = {1_000_000: 200, 50_000: 50, 7_500: 25, 900: 15}
"""Characters that a text grows to, and how often: one text in this many."""
WORD = re.compile(r"[a-z][a-z0-9_]*")

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


@dataclass(slots=True)
class Report:
    """What one domain's texts came to."""

    texts: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: float = 0.0
    slow: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    passed: list[dict[str, Any]] = field(default_factory=list)

    def add(self, entry: dict[str, Any]) -> None:
        """Count one judged text."""
        self.texts += 1
        self.seconds += entry["seconds"]
        self.slowest = max(self.slowest, entry["seconds"])
        self.statuses[entry["status"]] += 1
        self.reasons[entry["reason"]] += 1
        if entry["seconds"] > SLOW_S:
            self.slow.append(entry)
        if entry["problem"]:
            self.failures.append(entry)
        if entry["solved"]:
            self.passed.append(entry)

    def as_document(self) -> dict[str, Any]:
        """Everything, for JSON; reasons by how often they were given."""
        whole = {name: getattr(self, name) for name in self.__slots__}
        return whole | {"statuses": dict(self.statuses), "reasons": dict(self.reasons.most_common())}

    @property
    def suspicious(self) -> list[dict[str, Any]]:
        """Texts held right whose case is wrong."""
        return [entry for entry in self.passed if entry["expected"] != "PASS"]


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


def judge(corpus: Corpus, made: dict[str, Any]) -> dict[str, Any]:
    """One text's entry of the report. A verdict above SLOW_S is given again by a new verifier; the quicker counts."""
    entry = {key: made[key] for key in ("number", "domain", "case", "expected", "done")}
    entry |= {"settings": {k: v for k, v in made["section"].items() if k in SETTINGS}, "length": len(made["text"])}
    entry |= {
        "status": "exception",
        "reason": "",
        "reward": None,
        "solved": False,
        "problem": "",
        "text": shown(made["text"]),
    }
    started = time.perf_counter()
    try:
        verifier = corpus.verifier(made["section"])
        started = time.perf_counter()
        verdict = verifier.judge(made["task"], made["text"])
        seconds = time.perf_counter() - started
        if seconds > SLOW_S:
            seconds = min(seconds, again(corpus, made))
        entry |= {"status": str(verdict.status), "reward": verdict.reward, "reason": verdict.reason.split(":")[0][:40]}
        entry["solved"] = verdict.outcome is True
        cap = 1.0 if made["domain"] == "function" else made["section"].get("partial_cap", 0.0)
        entry["problem"] = problem_of(verdict, cap)
    except Exception:
        seconds = time.perf_counter() - started
        entry["problem"] = traceback.format_exc(limit=-4)
    return entry | {"seconds": round(seconds, 4)}


SETTINGS = frozenset(key for variants in VARIANTS.values() for variant in variants for key in variant)


def again(corpus: Corpus, made: dict[str, Any]) -> float:
    """Seconds of the same verdict in a verifier that has seen nothing; its start is not counted."""
    fresh = corpus.build(made["section"])
    try:
        fresh.judge(made["task"], "warm")
        started = time.perf_counter()
        fresh.judge(made["task"], made["text"])
        return time.perf_counter() - started
    finally:
        fresh.close()


def problem_of(verdict: Verdict, partial_cap: float) -> str:
    """How a verdict breaks the contract; "" where it does not. Unscored is always the verifier's fault here."""
    if verdict.status is Status.UNSCORED:
        return f"unscored: {verdict.reason}"
    reward = verdict.reward
    if reward is None or not (math.isfinite(reward) and 0 <= reward <= 1):
        return f"reward {reward} is not in 0..1"
    if verdict.status is Status.INVALID and (reward != 0 or verdict.outcome):
        return f"invalid with reward {reward}"
    if not verdict.outcome and reward > partial_cap:
        return f"a wrong answer earns {reward}"
    if not WORD.match(verdict.reason):
        return f"the reason {verdict.reason!r} starts with no word"
    return "" if verdict.checks or verdict.status is Status.INVALID else "no checks"


def shown(text: str) -> str:
    """Both ends of a text, printable."""
    short = text if len(text) <= 2 * SHOWN_CHARS else f"{text[:SHOWN_CHARS]} [...] {text[-SHOWN_CHARS:]}"
    return short.encode("utf-8", "backslashreplace").decode()


def work(connection: Connection, folder: Path, seed: int, numbers: range, domains: tuple[str, ...]) -> None:
    """The judging process: sends a number before a text is judged, and its entry behind."""
    corpus = Corpus(folder)
    try:
        for number in numbers:
            made = corpus.text(seed, number, domains)
            connection.send(number)
            connection.send(judge(corpus, made))
        connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    finally:
        corpus.close()


def entries(folder: Path, seed: int, numbers: range, domains: tuple[str, ...]) -> Iterator[dict[str, Any] | int]:
    """Entries of all texts, then the judging process's peak memory in KiB. A process that hangs or dies is replaced.

    Waiting is counted in polls of a second, so that a machine that sleeps is not taken for a hang.
    """
    context = multiprocessing.get_context("spawn")
    while numbers:
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, folder, seed, numbers, domains))
        process.start()
        theirs.close()
        number, problem = numbers[0], ""
        try:
            while not problem:
                polls = 0
                while not ours.poll(1.0) and not problem:
                    polls += 1
                    problem = f"hang: no verdict within {HANG_S} s" if polls >= HANG_S else ""
                if problem:
                    break
                message = ours.recv()
                if isinstance(message, dict):
                    number += 1
                    yield message
                elif number in numbers:
                    number = message
                else:
                    yield message
                    return
        except EOFError:
            process.join(10)
            problem = f"dead process: exit code {process.exitcode}"
        finally:
            process.kill() if problem else None
            process.join()
        yield lost(folder, seed, number, domains, problem)
        numbers = range(number + 1, numbers.stop)


def lost(folder: Path, seed: int, number: int, domains: tuple[str, ...], problem: str) -> dict[str, Any]:
    """The entry of a text that took the judging process with it."""
    made = Corpus(folder).text(seed, number, domains)
    entry = {key: made[key] for key in ("number", "domain", "case", "expected", "done")}
    entry |= {"settings": made["section"], "length": len(made["text"]), "status": problem.split(":")[0]}
    text = shown(made["text"])
    return entry | {
        "reason": "",
        "reward": None,
        "solved": False,
        "problem": problem,
        "text": text,
        "seconds": float(HANG_S),
    }


def table(reports: Mapping[str, Report]) -> str:
    """One line a domain."""
    lines = ["| domain | texts | failures | unscored | slow | held right | of wrong cases | mean ms | slowest s |"]
    lines.append("|" + "---|" * 9)
    for domain, report in reports.items():
        mean = 1000 * report.seconds / max(1, report.texts)
        counts = (report.texts, len(report.failures), report.statuses["unscored"], len(report.slow))
        counts += (len(report.passed), len(report.suspicious))
        cells = [domain, *map(str, counts), f"{mean:.2f}", f"{report.slowest:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """Options, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000, help="texts over all domains (10000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first text (0)")
    parser.add_argument("--only", default=",".join(VARIANTS), help=f"domains, of {', '.join(VARIANTS)}")
    parser.add_argument("--output", type=Path, default=RESULTS / "verifier_fuzz.json")
    args = parser.parse_args()
    args.only = tuple(args.only.split(","))
    unknown = [name for name in args.only if name not in VARIANTS]
    if unknown or args.texts < 1:
        parser.error(f"--only {','.join(unknown)}: known are {', '.join(VARIANTS)}; --texts is 1 or more")
    return args


def main() -> int:
    """Judge, show, write; 1 if a verifier failed."""
    args = parse_arguments()
    reports = {domain: Report() for domain in args.only}
    numbers = range(args.first, args.first + args.texts)
    started, peak_kib, done = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries(Path(folder), args.seed, numbers, args.only):
            if isinstance(entry, int):
                peak_kib = entry
                continue
            reports[entry["domain"]].add(entry)
            done += 1
            if entry["problem"]:
                print(
                    f"text {entry['number']} ({entry['domain']} {entry['case']}): {entry['problem'].strip()}",
                    flush=True,
                )
            if done % 250 == 0:
                left = (time.perf_counter() - started) / done * (args.texts - done)
                print(f"{done} of {args.texts} texts, about {left:.0f} s left", file=sys.stderr, flush=True)
    print(table(reports))
    for report in reports.values():
        for entry in report.suspicious:
            print(f"passes: text {entry['number']} of {entry['case']} {entry['settings']} {entry['done']}")
            print(f"    {entry['text']!r}")
    document = {"seed": args.seed, "texts": args.texts, "first": args.first, "peak_mib": peak_kib // 1024}
    document |= {"seconds": round(time.perf_counter() - started, 1)}
    document |= {"domains": {domain: report.as_document() for domain, report in reports.items()}}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(report.failures for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
