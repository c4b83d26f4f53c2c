"""groupwise score RECIPE COMPLETIONS"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


def score(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe; [verifier] alone will do.")],
    given: Annotated[
        Path | None, typer.Argument(metavar="COMPLETIONS", help="A .jsonl file of completions; - = standard input.")
    ] = None,
    completions: Annotated[Path | None, typer.Option(help="The same as COMPLETIONS.")] = None,
) -> None:
    """Judge given texts, without a model: one JSON verdict a line, a summary on stderr.

    A line is {"id": ..., "completion": ...}, where id is a task of the recipe, or has the task's own "columns".
    """
    from groupwise.config import load_scoring_recipe
    from groupwise.errors import DataError
    from groupwise.launch.score import ScoreCounts, open_completions, score_file, verdict_line

    loaded = load_scoring_recipe(recipe)
    if (given is None) == (completions is None):
        raise DataError("give one file of completions: groupwise score RECIPE COMPLETIONS")
    path = given or completions
    assert path is not None
    counts = ScoreCounts()
    with nullcontext(sys.stdin) if str(path) == "-" else open_completions(path) as file:
        for task_id, verdict in score_file(loaded, file, str(path)):
            counts.add(verdict)
            print(verdict_line(task_id, verdict))
    for line in counts.lines():
        print(line, file=sys.stderr)
