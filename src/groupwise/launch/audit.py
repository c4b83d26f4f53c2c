"""The audit of a recipe: its tasks, the attacks that fit its verifier, and a second process that judges again."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from groupwise.audit import AuditLimits, AuditReport, audit
from groupwise.config import ScoringRecipe, VerifierSection
from groupwise.data import load_tasks
from groupwise.errors import DataError, VerifierError
from groupwise.launch.attacks import attack_plan
from groupwise.launch.display import Display, Quiet
from groupwise.launch.score import judged_labels
from groupwise.launch.verifiers import build_verifier
from groupwise.types import Task, Verdict
from groupwise.verifiers import TaskVerifier

SECOND_PROCESS_TIMEOUT_S = 120.0
ADVICE = (
    "Mend the verifier or the tasks (more snapshots, stricter rules); `groupwise audit` shows every finding.\n"
    "  --accept-audit trains all the same."
)


def audit_recipe(
    recipe: ScoringRecipe, display: Display | None = None, *, labelled: TextIO | None = None, labelled_name: str = ""
) -> AuditReport:
    """The whole audit: every gold, then audit.tasks tasks under attack, then labelled completions where given.

    Raises:
        GroupwiseError: for what the user must mend before an audit can run.
    """
    display = display or Quiet()
    tasks = recipe_tasks(recipe)
    section = recipe.audit
    limits = AuditLimits(
        max_null_share=section.max_null_share,
        max_attack_share=section.max_attack_share,
        max_unscored_share=section.max_unscored_share,
        tasks=section.tasks,
    )
    verifier = build_verifier(recipe)
    try:
        report = _audit(recipe, verifier, tasks, limits, display, check_golds=True)
        if labelled is not None:
            more = judged_labels(recipe, verifier, labelled, labelled_name, max_share=section.max_attack_share)
            report = report.with_findings(more)
        return report
    finally:
        verifier.close()


def audit_before_training(
    recipe: ScoringRecipe, verifier: TaskVerifier, tasks: Sequence[Task], display: Display, *, accept: bool
) -> AuditReport | None:
    """The fast audit on a sample of tasks whose golds were checked already; None where audit.fast_tasks = 0.

    Raises:
        VerifierError: no-go, unless it is accepted.
    """
    section = recipe.audit
    if section.fast_tasks == 0:
        display.line("audit: left out, as audit.fast_tasks = 0 asks")
        return None
    limits = AuditLimits(
        max_null_share=section.max_null_share,
        max_attack_share=section.max_attack_share,
        max_unscored_share=section.max_unscored_share,
        tasks=section.fast_tasks,
        max_seconds=section.fast_seconds,
        rejudged_tasks=2,
    )
    report = _audit(recipe, verifier, tasks, limits, display, check_golds=False)
    display.line(report.headline())
    if report.go:
        return report
    text = f"{report.headline()}\n{_reasons(report)}"
    if not accept:
        raise VerifierError(f"{text}\n  {ADVICE}")
    display.line(
        f"{_reasons(report)}\nThe audit is accepted as asked: training goes on with a verifier that can be gamed."
    )
    return report


def recipe_tasks(recipe: ScoringRecipe) -> list[Task]:
    """Every task of the recipe, each id once.

    Raises:
        DataError: no [data], or data that cannot be used.
    """
    if recipe.data is None:
        raise DataError("the recipe has no [data], so there is no task to audit with; add [data] with some tasks")
    sets = load_tasks(recipe.data, recipe.folder, recipe.seed)
    return list({task.id: task for task in (*sets.demonstrations, *sets.train, *sets.heldout)}.values())


def rejudge(section: VerifierSection, folder: Path, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
    """Verdicts of a second process, with another order of hashes than this one's.

    Raises:
        VerifierError: the process did not come to its end.
    """
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "groupwise.launch.second_process"],
            input=pickle.dumps((section, folder.absolute(), list(pairs))),
            capture_output=True,
            env=environment,
            timeout=SECOND_PROCESS_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise VerifierError(
            f"audit: a second process judged {len(pairs)} texts for {SECOND_PROCESS_TIMEOUT_S:.0f} s without an end; "
            "the verifier is slow or hangs"
        ) from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise VerifierError(f"audit: the verifier cannot be used in a second process: {last[0]}")
    verdicts: list[Verdict] = pickle.loads(done.stdout)
    return verdicts


def report_json(report: AuditReport) -> str:
    """The report as JSON text."""
    return json.dumps(report.as_json(), indent=1)


def _audit(
    recipe: ScoringRecipe,
    verifier: TaskVerifier,
    tasks: Sequence[Task],
    limits: AuditLimits,
    display: Display,
    *,
    check_golds: bool,
) -> AuditReport:
    plan = attack_plan(recipe.verifier, recipe.folder)
    try:
        with display.working("attacking the verifier") as advance:
            return audit(
                verifier,
                tasks,
                attack=plan.attack,
                answer_keys=plan.answer_keys,
                constants=plan.constants,
                rejudge=lambda pairs: rejudge(recipe.verifier, recipe.folder, pairs),
                drop_unusable=recipe.verifier.unusable_gold == "drop",
                check_golds=check_golds,
                limits=limits,
                seed=recipe.seed,
                progress=advance,
            )
    finally:
        plan.close()


def _reasons(report: AuditReport) -> str:
    lines = []
    for finding in report.no_gos[:5]:
        allowed = f" (allowed: {finding.allowed})" if finding.allowed else ""
        lines.append(f"  {finding.check}: {finding.found}{allowed}")
        if finding.example is not None:
            lines.append(f"    task {finding.example.task_id}: {finding.example.completion[:120]!r}")
    return "\n".join(lines)
