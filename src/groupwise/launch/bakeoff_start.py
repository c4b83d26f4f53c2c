"""What all arms of a bake-off have in common, in a process of its own: python -m groupwise.launch.bakeoff_start FOLDER

The verifier is audited once, the start model is measured on the held-out tasks with the seed of each run, and the push
of the loss on long and short wrong answers is measured on a group that it samples. FOLDER holds recipe.toml and
seeds.json; start.json is written beside them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.config import Recipe, load_recipe, scoring_part
from groupwise.errors import GroupwiseError
from groupwise.launch.assemble import Policy, RenderedTasks, sampling
from groupwise.launch.audit import audit_before_training
from groupwise.launch.display import Display, Quiet
from groupwise.launch.local import prepare
from groupwise.launch.measure import evaluate_heldout, held_out_counts, summarise
from groupwise.launch.numerics import check_sampling
from groupwise.launch.select import drawn
from groupwise.launch.verifiers import build_verifier
from groupwise.rollout import collect_groups
from groupwise.runs import write_atomic
from groupwise.training.batch import derive_seed
from groupwise.training.length_bias import most_different, token_pushes, wrong_by_length
from groupwise.types import Verifier

NUM_PROMPTS = 16
"""Training prompts that are sampled for a group with long and short wrong answers."""


class Lines(Quiet):
    """Prints sentences and nothing else: for a log."""

    def line(self, text: str) -> None:
        """See Display."""
        print(text, flush=True)


def measure_start(recipe: Recipe, seeds: list[int], display: Display, *, accept_audit: bool) -> dict[str, Any]:
    """start.json.

    Raises:
        GroupwiseError: for anything the user can mend.
    """
    verifier = build_verifier(recipe)
    try:
        policy, sets = prepare(recipe, verifier, display, with_pairs=True)
        tasks = (*sets.train.tasks, *sets.heldout.tasks)
        audit_before_training(scoring_part(recipe), verifier, tasks, display, accept=accept_audit)
        check_sampling(recipe, policy, sets, display)
        rows = []
        for seed in seeds:
            seeded = recipe.model_copy(update={"seed": seed})
            evaluation, rendered = evaluate_heldout(
                seeded, policy, verifier, sets, display, f"start, seed {seed}: held-out evaluation"
            )
            summary = summarise("base", evaluation, rendered)
            rows.append(
                {
                    "seed": seed,
                    **held_out_counts(evaluation),
                    "mean_length_right": summary.mean_length_right,
                    "mean_length_wrong": summary.mean_length_wrong,
                    "seconds": evaluation.seconds,
                }
            )
        found = gradient(recipe, policy, verifier, sets.train, display)
        return {"model": policy.loaded.source, "evaluations": rows, "gradient": found}
    finally:
        verifier.close()


def gradient(
    recipe: Recipe, policy: Policy, verifier: Verifier, train: RenderedTasks, display: Display
) -> dict[str, Any] | None:
    """The push on a short and a long wrong answer of one sampled group; None where no group has both."""
    if not train.tasks:
        return None
    chosen = drawn(train, NUM_PROMPTS, derive_seed(recipe.seed, "gradient"))
    with display.working(f"gradient: {len(chosen.tasks)} groups") as advance:
        groups = collect_groups(
            policy.engine,
            verifier,
            chosen.tasks,
            chosen.prompts,
            group_size=recipe.rollout.group_size,
            sampling=sampling(recipe),
            seed=derive_seed(recipe.seed, "gradient", "rollouts"),
            progress=advance,
        ).groups
    group = most_different(groups)
    if group is None:
        return None
    wrong = [group.rollouts[i].completion.text for i in wrong_by_length(group)]
    pushes = token_pushes(
        group,
        max_completion_tokens=recipe.rollout.max_completion_tokens,
        temperature=recipe.rollout.temperature,
        loaded=policy.loaded,
        scores=policy.scores,
    )
    return {
        "task_id": group.task.id,
        "num_solved": group.num_solved,
        "num_rollouts": len(group.rollouts),
        "short_text": wrong[0],
        "long_text": wrong[-1],
        "pushes": [asdict(push) | {"ratio": push.ratio} for push in pushes],
    }


def main() -> None:
    """Exit code 2 with one message where the input must be mended."""
    folder = Path(sys.argv[1])
    given = json.loads((folder / "seeds.json").read_text())
    try:
        found = measure_start(
            load_recipe(folder / "recipe.toml"), given["seeds"], Lines(), accept_audit=given["accept_audit"]
        )
    except GroupwiseError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    write_atomic(folder / "start.json", json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
