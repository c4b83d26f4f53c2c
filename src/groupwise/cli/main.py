"""Entry point of `groupwise`: the verbs, and how an error reaches the user.

An error that the user can mend is one message on stderr and exit code 2. Anything else is a bug and keeps its
traceback.
"""

from __future__ import annotations

import os
import sys

import typer

from groupwise.cli import (
    audit,
    bakeoff,
    compare,
    curate,
    demo,
    diagnose,
    doctor,
    evaluate,
    pairs,
    plan,
    report,
    rollouts,
    runs,
    score,
    train,
    variants,
)
from groupwise.errors import GroupwiseError

app = typer.Typer(
    name="groupwise",
    help="Post-train language models on tasks whose answers can be checked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("audit")(audit.audit)
app.command("curate")(curate.curate)
app.command("plan")(plan.plan)
app.command("pairs")(pairs.pairs)
app.command("train")(train.train)
app.command("bakeoff")(bakeoff.bakeoff)
app.command("eval")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("runs")(runs.runs)
app.command("rollouts")(rollouts.rollouts)
app.command("score")(score.score)
app.command("variants")(variants.variants)
app.command("diagnose")(diagnose.diagnose)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def main() -> None:
    """Runs one verb. The exit code is 0, 1 (a verb's own verdict), 2 (mend the input) or 130 (Ctrl-C)."""
    # Must be set before torch loads OpenMP. Threads that spin until the others arrive made a forward ten times slower
    # on a busy core; threads that sleep at once made a decode step two times slower on idle ones. So: spin for some
    # microseconds, then sleep.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        app()
    except GroupwiseError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
