"""groupwise plan RECIPE"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    ledger: Annotated[
        Path | None, typer.Option(help="What `groupwise curate` measured: its folder, or the ledger.jsonl in it.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(help="A card (a100, h100, rtx4090 ...), this, or a .json file of rates.")
    ] = None,
    price: Annotated[float | None, typer.Option(help="Price of that hardware for an hour, in any currency.")] = None,
    pass_rate: Annotated[
        list[float] | None, typer.Option(help="A pass rate of the start model, 0 to 1; give it once or more.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Rollouts for which group sizes are compared; default = those of a step.")
    ] = None,
    ranks: Annotated[int, typer.Option(help="Devices that share the memory; seconds stay those of one.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the plan with its curves to this HTML file.")] = None,
) -> None:
    """Group sizes, operations, seconds, memory, price and held-out size of a recipe, before they are spent.

    Nothing is sampled and no weights are read. With a ledger the numbers rest on this task's measured pass rates.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe
    from groupwise.errors import DataError
    from groupwise.launch.plan import make_plan
    from groupwise.launch.plan_show import plan_json, plan_lines

    loaded = load_recipe(recipe)
    made = make_plan(
        loaded,
        ledger=None if ledger is None else str(ledger.absolute()),
        hardware=hardware,
        price_per_hour=price,
        pass_rates=pass_rate or None,
        budget=budget,
        ranks=ranks,
    )
    if as_json:
        print(plan_json(made))
    else:
        terminal = Terminal()
        for part in plan_lines(made):
            terminal.line(part) if isinstance(part, str) else terminal.table(part)
    if html is not None:
        from groupwise.launch.plan_page import plan_page
        from groupwise.runs import write_atomic

        try:
            html.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(html, plan_page(made))
        except (OSError, ValueError) as error:
            raise DataError(f"--html {html}: cannot be written ({error}); choose a writable place") from error
        if not as_json:
            terminal.line(f"The curves: {html}")
    elif not as_json:
        selects = any(stage.selects_prompts for stage in loaded.stages)
        terminal.line(f"Next: groupwise {'curate' if selects and not made.rates_measured else 'train'} {recipe}")
