"""groupwise demo"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.cli.terminal import Terminal
    from groupwise.config import Recipe


def demo(
    seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder that receives the run.")] = Path("runs"),
    quick: Annotated[bool, typer.Option(help="A tiny random model: checks the machinery, learns nothing.")] = False,
) -> None:
    """The whole job on the bundled text-to-SQL task: SmolLM2-135M, SFT, then GRPO. Minutes on a laptop CPU."""
    from groupwise import bundled
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    recipe = load_recipe(bundled.path("quick.toml" if quick else "recipe.toml"))
    changes: dict[str, object] = {"output_dir": str(output_dir.resolve())}
    if seed is not None:
        changes["seed"] = seed
    recipe = recipe.model_copy(update=changes)
    terminal = Terminal()
    if not quick:
        _train(recipe, terminal)
        return
    from groupwise.models.tiny import save_tiny_model

    terminal.line("A tiny random model takes the place of the real one: this checks that everything runs, no more.")
    with TemporaryDirectory(prefix="groupwise-") as folder:
        random = save_tiny_model(Path(folder) / "tiny-random", seed=recipe.seed)
        model = recipe.model.model_copy(update={"name": str(random)})
        _train(recipe.model_copy(update={"model": model}), terminal)


def _train(recipe: Recipe, terminal: Terminal) -> None:
    from groupwise.launch import local

    terminal.outcome(*local.train(recipe, terminal))
