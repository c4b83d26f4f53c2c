"""groupwise pairs RECIPE"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def pairs(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    out: Annotated[Path, typer.Option(help="The .jsonl file to write, for data.pairs.")],
    run: Annotated[
        Path | None, typer.Option(help="Take the rollouts that this run recorded, in place of sampling.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=2, help="Completions to sample of every prompt; default: rollout.group_size.")
    ] = None,
    max_pairs: Annotated[int, typer.Option(min=1, help="Most pairs of a prompt.")] = 1,
    pick: Annotated[
        str, typer.Option(help="closest = pairs of nearest length, which teach no length; random = any.")
    ] = "closest",
    seed: Annotated[int, typer.Option(help="Decides among equally good pairs.")] = 0,
) -> None:
    """Make preference pairs for dpo: a solved and an unsolved completion of the same training prompt.

    The verifier decides, never a person or a judge model. Completions without a verdict are left out, and cut ones are
    never the chosen side. Exit code 1 where no prompt gives a pair.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe
    from groupwise.errors import ConfigError

    loaded = load_recipe(recipe)  # a mistake in the recipe is told before torch is imported
    if run is not None and samples is not None:
        raise ConfigError("--run and --samples are both given; take a run's rollouts, or sample new ones.")
    if pick not in ("closest", "random"):
        raise ConfigError(f"--pick {pick!r} is not known; use closest or random.")
    from groupwise.curation.preference import PairRule
    from groupwise.launch.pairs import pairs_by_sampling, pairs_of_run, write_pairs

    terminal = Terminal()
    rule = PairRule(max_pairs=max_pairs, pick="random" if pick == "random" else "closest", seed=seed)
    made = pairs_by_sampling(loaded, samples, rule, terminal) if run is None else pairs_of_run(loaded, run, rule)
    terminal.line(made.summary())
    if made.pairs:
        write_pairs(out, made)
        terminal.line(f"Pairs: {out}   Train on them: a dpo stage, and in [data]:")
        terminal.line(f'  pairs = "{os.path.relpath(out, loaded.folder)}"')
    raise typer.Exit(0 if made.pairs else 1)
