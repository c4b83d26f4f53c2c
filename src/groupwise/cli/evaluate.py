"""groupwise eval RECIPE, groupwise eval --run RUN, groupwise eval RECIPE --endpoint URL --model NAME"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.cli.terminal import Terminal
    from groupwise.launch.evaluate import Measured


def evaluate(
    recipe: Annotated[Path | None, typer.Argument(help="A TOML recipe; with --run not needed.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Another model than the recipe's: folder, .gguf or hub id; with --endpoint its name there."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="The checkpoint of this run with the most updates, or the one given: RUN/checkpoints/grpo-30."
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server, up to /v1; no weights are loaded here.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option(help="With --endpoint: the environment variable that holds the API key.")
    ] = "OPENAI_API_KEY",
    as_chat: Annotated[
        bool, typer.Option("--as-chat", help="With --endpoint: plain text prompts as a user turn, not to be continued.")
    ] = False,
    requests: Annotated[int, typer.Option(min=1, help="With --endpoint: requests at once.")] = 8,
    time_limit: Annotated[float, typer.Option(min=0.001, help="With --endpoint: seconds for one request.")] = 120.0,
    samples: Annotated[
        int | None, typer.Option(min=0, help="Sampled completions for each prompt; 0 = the greedy one alone.")
    ] = None,
    num_prompts: Annotated[int | None, typer.Option(min=1, help="Only the first so many held-out prompts.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of sampling, in place of the recipe's; the prompts stay the same.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write results and samples here, as lm-evaluation-harness lays them out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON, and nothing else.")] = False,
) -> None:
    """Measure a model on the recipe's held-out tasks: pass rate, pass@k, pass^k, greedy, lengths. Trains nothing."""
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    _refuse_contradictions(recipe, run, model, endpoint)
    loaded = None if recipe is None else load_recipe(recipe)  # a mistake in it is told before torch is imported
    from groupwise.launch import evaluate as launch
    from groupwise.launch import evaluate_show as show
    from groupwise.launch.display import Quiet
    from groupwise.rollout.endpoint_engine import Endpoint

    checkpoint = None if run is None else launch.find_checkpoint(run)
    server = None
    if endpoint is not None:
        server = Endpoint(
            url=endpoint,
            model=model or "",
            key_variable=key_variable,
            as_chat=as_chat,
            num_requests=requests,
            time_limit_s=time_limit,
        )
    terminal = Terminal()
    if loaded is None:
        assert checkpoint is not None, "without a recipe there is a run"
        loaded = launch.recipe_of(checkpoint)
    if checkpoint is not None and not as_json:
        terminal.line(f"Measuring {checkpoint.folder} (policy version {checkpoint.policy_version}).")
    measured = launch.evaluate_any(
        launch.with_overrides(loaded, samples=samples, num_prompts=num_prompts),
        Quiet() if as_json else terminal,
        model=model,
        checkpoint=checkpoint,
        endpoint=server,
        seed=seed,
    )
    written = None if out is None else measured.write(out)
    if as_json:
        print(show.measured_json(measured))
        return
    _show(measured, terminal)
    for path in written or ():
        terminal.line(f"Written: {path}")
    asked = shlex.join(["groupwise", *sys.argv[1:]])
    terminal.line(show.next_command(measured, out=None if out is None else str(out), asked=asked))


def _show(measured: Measured, terminal: Terminal) -> None:
    from groupwise.launch.evaluate_show import measured_lines
    from groupwise.launch.measure import unscored_warning

    if warning := unscored_warning(measured.evaluation):
        terminal.warning(f"{measured.facts['name']}: {warning}")
    for line in measured_lines(measured):
        terminal.line(line) if isinstance(line, str) else terminal.table(line)


def _refuse_contradictions(recipe: Path | None, run: Path | None, model: str | None, endpoint: str | None) -> None:
    from groupwise.errors import ConfigError

    if recipe is None and run is None:
        raise ConfigError("there is nothing to measure; give a recipe (a .toml file), or --run with a run folder.")
    if run is not None and (model is not None or endpoint is not None):
        raise ConfigError(
            "--run names the weights itself; leave out --model and --endpoint, or give the run's recipe in its place: "
            f"groupwise eval {run}/recipe.toml --model ..."
        )
    if endpoint is not None and model is None:
        raise ConfigError("--endpoint needs --model: the model's name at the server.")
