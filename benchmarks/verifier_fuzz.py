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
import re
import resource
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

from verifier_fuzz_cases import VARIANTS, Corpus

from groupwise.types import Status, Verdict

RESULTS = Path(__file__).resolve().parent / "results"
SLOW_S = 5.0
HANG_S = 60
SHOWN_CHARS = 200
SETTINGS = frozenset(key for variants in VARIANTS.values() for variant in variants for key in variant)
WORD = re.compile(r"[a-z][a-z0-9_]*")


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
