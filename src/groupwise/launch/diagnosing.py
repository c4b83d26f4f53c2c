"""Diagnosing a run where it is made: at its end, also where that is an error, and in its first steps.

The rules are those of runs/diagnosis/. Nothing here stops a run: a diagnosis that cannot be made is told in one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from groupwise.errors import GroupwiseError
from groupwise.launch.run_state import Run
from groupwise.runs import read_run, write_atomic
from groupwise.runs.diagnosis.diagnose import coverage, diagnose, diagnose_early, finding_lines, findings_json

FAILED = "failed"
"""The event of a run that ended by an error: {stage, error, message}."""

_FAILURES = (GroupwiseError, OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What a record can hold that a rule does not expect, and what a disk can do."""


@contextmanager
def diagnosed(run: Run) -> Iterator[None]:
    """Around the stages of a run: when they end, the findings are shown and written to diagnosis.json.

    An error is recorded as an event and diagnosed, too, and goes on its way. A second Ctrl-C wants no more words.
    """
    try:
        yield
    except Exception as error:
        place = len(run.log.finished) - 1  # the base is finished before the first stage
        stages = run.recipe.stages
        stage = stages[place].name if 0 <= place < len(stages) else ""
        run.recorder.event(FAILED, {"stage": stage, "error": type(error).__name__, "message": str(error)})
        _tell(run)
        raise
    _tell(run)


def warn_early(run: Run, stage: str, step: int, metrics: Mapping[str, float]) -> None:
    """After steps 1, 2, 4, 8, ... of a stage: what looks wrong so far, one line each, and each only once a run.

    Nobody should wait for the end of a run whose answers are all cut in its first step. metrics is not read: the row
    is on record already. Other steps cost nothing.
    """
    if step < 1 or step & (step - 1):
        return
    try:
        for finding in diagnose_early(read_run(run.directory.path)):
            if finding.name not in run.warned:
                run.warned.add(finding.name)
                run.display.warning(
                    f"{stage}, step {step}: {finding.title} {finding.change}. [{finding.name}, {finding.severity}]"
                )
    except _FAILURES as error:
        run.display.line(f"The steps so far could not be diagnosed ({type(error).__name__}: {error}).")


def _tell(run: Run) -> None:
    try:
        record = read_run(run.directory.path)
        findings = diagnose(record)
        write_atomic(run.directory.diagnosis, findings_json(findings))
    except _FAILURES as error:
        run.display.line(f"The run could not be diagnosed ({type(error).__name__}: {error}).")
        return
    if findings:
        run.display.line(f"Diagnosis: {len(findings)} {'finding' if len(findings) == 1 else 'findings'}")
    else:
        num_asked = len(coverage(record).asked)
        run.display.line(f"Diagnosis: nothing wrong was found; {num_asked} questions, `groupwise diagnose` lists them.")
    for line in finding_lines(findings):
        run.display.line(line)
