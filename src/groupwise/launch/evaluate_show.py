"""What `groupwise eval` shows: tables for a terminal, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from groupwise.launch.evaluate import Measured
from groupwise.launch.measure import pass_rates_by_k
from groupwise.runs import Interval, KRate, stage_table

if TYPE_CHECKING:
    from rich.table import Table


def measured_lines(measured: Measured) -> Iterator[str | Table]:
    """What the terminal shows, in order: rates, attempts, what they rest on."""
    yield stage_table([measured.summary])
    if measured.evaluation.groups and measured.evaluation.samples_per_prompt > 1:
        yield k_table(measured)
    yield settings_line(measured)
    if line := unscored_line(measured):
        yield line
    yield from measured.notes


def k_table(measured: Measured) -> Table:
    """pass@k and pass^k of the sampled completions, side by side."""
    from rich import box
    from rich.table import Table

    table = Table(
        title="Of k sampled attempts at least one right (pass@k), all right (pass^k), with 95 % intervals",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("k", "pass@k", "pass^k", "prompts"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one, every in zip(*pass_rates_by_k(measured.evaluation), strict=True):
        table.add_row(str(one.k), _shown(one), _shown(every), str(one.num_prompts))
    return table


def settings_line(measured: Measured) -> str:
    """Everything that the numbers depend on, in one line."""
    facts, about = measured.facts, measured.about
    sampled = f"{about.samples_per_prompt} sampled" if about.samples_per_prompt else "none sampled"
    greedy = " and 1 greedy" if measured.evaluation.greedy_groups else ""
    solved = "the verifier's outcome" if facts["success"] == "outcome" else facts["success"]
    limited = f" of {about.num_original}" if facts["num_prompts"] < about.num_original else ""
    return (
        f"{facts['num_prompts']}{limited} held-out prompts, {sampled}{greedy} completions each; temperature "
        f"{facts['temperature']:g}, top_p {facts['top_p']:g}, at most {facts['max_completion_tokens']} tokens; seed "
        f"{about.seed}; solved = {solved}; verifier {about.verifier} {about.verifier_version[:8]}; model {about.model}"
    )


def unscored_line(measured: Measured) -> str:
    """How many completions are in no rate; empty where all are."""
    evaluation = measured.evaluation
    sampled, greedy = evaluation.num_unscored, evaluation.num_greedy_unscored
    if not sampled + greedy:
        return ""
    return f"Not scored, and counted neither as right nor as wrong: {sampled} sampled and {greedy} greedy completions."


def next_command(measured: Measured, *, out: str | None, asked: str) -> str:
    """The one command that comes next: compare what was kept, or keep it. asked is the command that was called."""
    if out is None:
        return f"Keep it, to compare it later:  {asked} --out evaluations/{measured.about.task}"
    return f"Compare it with a run or another evaluation:  groupwise compare OTHER {out}"


def measured_json(measured: Measured) -> str:
    """The facts of the evaluation and what was measured, in one line."""
    about = measured.about
    facts = {**measured.facts, "model": about.model, "engine": about.kind, "num_original_prompts": about.num_original}
    return json.dumps({**facts, "notes": list(measured.notes), "versions": about.versions})


def _shown(found: KRate) -> str:
    return "-" if math.isnan(found.rate) else f"{found.rate:.1%} {_bounds(found.interval)}"


def _bounds(interval: Interval) -> str:
    return f"[{100 * interval.low:.0f}, {100 * interval.high:.0f}]"
