"""Every reference case through `groupwise score`: the verdict that is printed is the one that is listed."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from groupwise.config import ScoringRecipe
from groupwise.launch.score import score_file

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CASES = SHARED / "handbook" / "cases.jsonl"
DOMAINS = ("tools", "extraction", "rationale", "math")
sys.path.insert(0, str(ROOT / "tests" / "verifiers"))


@pytest.fixture(scope="module")
def listed():
    if not CASES.is_file():
        pytest.skip(f"no reference cases at {CASES}")
    cases = defaultdict(list)
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        cases[case["domain"]].append(case)
    return cases


def rewards(section, rows, folder):
    """The rewards of (task, completion) pairs in their order, by the command's own code."""
    recipe = ScoringRecipe.model_validate({"verifier": section}).in_folder(folder)
    lines = [{"id": t.id, "completion": text, "columns": {**t.columns}, "prompt": t.prompt} for t, text in rows]
    file = io.StringIO("".join(json.dumps(line) + "\n" for line in lines))
    return [verdict.reward for _, verdict in score_file(recipe, file, "cases")]


def case_tasks(domain):
    module = importlib.import_module(f"case_tasks_{domain}")
    return module.tasks(CASES) if inspect.signature(module.tasks).parameters else module.tasks()


def test_sql_cases(listed):
    folder = SHARED / "data" / "sql" / "spider"
    if not folder.is_dir():
        pytest.skip(f"no databases at {folder}")
    variants = [f"variants/concert_singer_v{number}.sqlite" for number in (1, 2, 3)]
    recipe = ScoringRecipe.model_validate(
        {"verifier": {"kind": "sql", "snapshots": ["sqlite/concert_singer.sqlite", *variants], "time_limit_s": 0.5}}
    ).in_folder(folder)
    rows = [{"id": c["id"], "completion": c["candidate"], "columns": {"gold": c["setting"]}} for c in listed["sql"]]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = {case: verdict.reward for case, verdict in score_file(recipe, io.StringIO(text), "cases")}
    assert {c["id"] for c in listed["sql"] if (found[c["id"]] == 1.0) is not (c["verdict"] == "PASS")} == set()
    assert None not in found.values()


@pytest.mark.parametrize("domain", DOMAINS)
def test_cases_of_the_other_kinds(listed, domain):
    by_section = defaultdict(list)
    for case, section, task, completion, _ in case_tasks(domain):
        by_section[json.dumps(section)].append((case, task, completion))
    found = []
    for section, rows in by_section.items():
        values = rewards(json.loads(section), [row[1:] for row in rows], ROOT / "tests" / "verifiers")
        found += zip([case for case, _, _ in rows], values, strict=True)
    verdicts = {case["id"]: case["verdict"] for case in listed[domain]}
    assert {re.sub("[a-z]$", "", case) for case, _ in found} == verdicts.keys()  # RAT-08a and RAT-08b are one case
    passing = {case for case, reward in found if reward == 1.0}
    assert {re.sub("[a-z]$", "", case) for case in passing} == {c for c, v in verdicts.items() if v == "PASS"}
    assert [case for case, reward in found if reward is None] == []
