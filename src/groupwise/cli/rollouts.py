"""`groupwise rollouts`: what was sampled, from the steps of a run down to the answers to one prompt."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from groupwise.runs import RecordedRollout, RunRecord
    from groupwise.runs.rollout_view import RecordedStep, RolloutGroup

_PLAIN_WIDTH = 160
"""Columns of a table where there is no terminal that could tell."""
_ANSWER_WIDTH = 44
"""Columns that an answer needs at least; as many stand side by side as fit."""


def rollouts(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    stage: Annotated[
        str | None, typer.Option(help="A stage, or evaluation-NAME for held-out answers (evaluation-base).")
    ] = None,
    step: Annotated[int | None, typer.Option(help="A step; of an evaluation the policy version.")] = None,
    prompt: Annotated[
        str | None, typer.Option(help="A task id. Without --step: its groups over the whole run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Show what was sampled: steps, the groups of a step (--step), the answers of a group (--step and --prompt).

    A group is live where some of its answers solve the task and some do not; only those teach GRPO anything. Answers
    with the same text stand together.
    """
    from groupwise.runs import read_run
    from groupwise.runs.rollout_view import groups_named, groups_of, history_of, overview, resolve_step

    record = read_run(run)
    if step is None and prompt is None and not _is_one_step(record, stage):
        steps = overview(record, stage)
        _emit([one.as_json() for one in steps], lambda console: _show_steps(console, run, stage, steps), as_json)
    elif step is None and prompt is not None and not _is_one_step(record, stage):
        groups = history_of(record, prompt, stage)
        _emit([group.as_json() for group in groups], lambda console: _show_groups(console, run, groups, True), as_json)
    else:
        name, number = resolve_step(record, stage, step)
        groups = groups_of(record, name, number)
        if prompt is None:
            lines = [group.as_json() for group in groups]
            _emit(lines, lambda console: _show_groups(console, run, groups, False), as_json)
        else:
            chosen = groups_named(groups, prompt)
            full = [group.answers_json() for group in chosen]
            _emit(full, lambda console: _show_answers(console, chosen), as_json)


def _is_one_step(record: RunRecord, stage: str | None) -> bool:
    """An evaluation is one step: it needs no --step."""
    return stage is not None and sum(name == stage for name, _ in record.recorded()) == 1


def _emit(values: object, show: object, as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        print(json.dumps(values, indent=1))
        return
    assert callable(show)
    show(Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH))


def _show_steps(console: Console, run: Path, stage: str | None, steps: Sequence[RecordedStep]) -> None:
    """A line a step of one stage; a line a stage where none is chosen."""
    from groupwise.runs.record import EVALUATION

    rows: dict[str, list[RecordedStep]] = {}
    for one in steps:
        rows.setdefault(one.stage if stage is None else f"{one.stage}\0{one.step}", []).append(one)
    headings = ("stage", ">steps", ">groups", ">live", ">answers", ">solved")
    console.print(_table(headings, [_steps_row(found) for found in rows.values()]))
    for one in steps:
        if one.problem:
            _line(console, one.problem)
    last = [one for one in steps if not one.stage.startswith(EVALUATION)][-1:] or steps[-1:]
    _next_step(console, run, stage, last[0])


def _next_step(console: Console, run: Path, stage: str | None, last: RecordedStep) -> None:
    if stage is None:
        _line(console, f"Next: groupwise rollouts {run} --stage {last.stage} --step {last.step}")
    else:
        _line(console, f"Next: groupwise rollouts {run} --stage {stage} --step {last.step} --prompt ID")


def _steps_row(steps: Sequence[RecordedStep]) -> list[str]:
    good = [one for one in steps if one.num_groups is not None]
    numbers = f"{steps[0].step}" if len(steps) == 1 else f"{steps[0].step}-{steps[-1].step} ({len(steps)})"
    groups, answers = sum(one.num_groups or 0 for one in good), sum(one.num_rollouts for one in good)
    if not good:
        return [steps[0].stage, numbers, "unreadable", "", "", ""]
    return [
        steps[0].stage,
        numbers,
        str(groups),
        _share(sum(one.num_live for one in good), groups) if answers > groups else "-",
        str(answers),
        _share(sum(one.num_solved for one in good), sum(one.num_scored for one in good)),
    ]


def _show_groups(console: Console, run: Path, groups: Sequence[RolloutGroup], with_step: bool) -> None:
    """A line a group."""
    from groupwise.runs.rollout_view import left_out_counts

    if not groups:
        _line(console, "No groups were sampled in this step.")
        return
    first = groups[0]
    if not with_step:
        _line(console, f"{first.stage} step {first.step}: {len(groups)} groups, {sum(g.is_live for g in groups)} live")
    rows = []
    for group in groups:
        shortest, mean, longest = group.lengths
        reward = "-" if group.reward_mean is None else f"{group.reward_mean:.3f}"
        out = ", ".join(f"{num} {reason.replace('_', ' ')}" for reason, num in left_out_counts([group]).items())
        rows.append(
            [
                f"{group.stage} {group.step}" if with_step else group.task_id,
                f"{group.num_solved}/{group.num_scored}",
                reward,
                group.state,
                f"{shortest} {mean:.0f} {longest}",
                str(group.num_cut),
                out,
            ]
        )
    headings = (
        "step" if with_step else "prompt",
        ">solved",
        ">reward",
        "state",
        ">tokens min mean max",
        ">cut",
        "left out",
    )
    console.print(_table(headings, rows))
    shown = next((group for group in groups if group.is_live), first)
    _line(console, f"Next: groupwise rollouts {run} --stage {shown.stage} --step {shown.step} --prompt {shown.task_id}")


def _show_answers(console: Console, groups: Sequence[RolloutGroup]) -> None:
    """Prompt and answers; side by side in a terminal, blocks below one another where there is none."""
    for group in groups:
        title = f"{group.task_id}, {group.stage} step {group.step}: {group.num_solved} of {group.num_scored} solved"
        _line(console, f"{title} ({group.state})")
        _line(console, group.rollouts[0].prompt or "(this run did not keep the prompt's text)")
        if group.gold:
            _line(console, f"\n--- a right answer ---\n{group.gold}")
        if console.is_terminal:
            console.print(_side_by_side(_answers(group), console.width))
            continue
        for answer in _answers(group):
            _line(console, f"\n--- {answer.title} ---\n{answer.text}\n")
            for line in answer.facts:
                _line(console, f"  {line}")


class _Answer(NamedTuple):
    """One text that was given, by one answer of the group or by several."""

    title: str
    text: str
    facts: tuple[str, ...]
    style: str


def _answers(group: RolloutGroup) -> list[_Answer]:
    """The different texts of a group. A fact that all answers with the text share stands once."""
    answers = []
    for places in group.by_text:
        numbers = ", ".join(str(place + 1) for place in places)
        of = f"of {len(group.rollouts)}"
        title = f"answer {numbers} {of}" if len(places) == 1 else f"answers {numbers} {of}: the same text"
        all_facts = {place: _facts(group.rollouts[place]) for place in places}
        facts: dict[str, None] = {}
        for place, own in all_facts.items():
            for fact in own:
                is_shared = all(fact in others for others in all_facts.values())
                facts[fact if is_shared else f"answer {place + 1}: {fact}"] = None
        outcomes = {group.rollouts[place].outcome for place in places}
        style = "green" if outcomes == {True} else "red" if outcomes == {False} else "yellow"
        answers.append(_Answer(title, group.rollouts[places[0]].text, tuple(facts), style))
    return answers


def _side_by_side(answers: Sequence[_Answer], width: int) -> RenderableType:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from groupwise.runs.rollout_view import printable

    columns = max(1, min(len(answers), width // _ANSWER_WIDTH))
    grid = Table.grid(expand=True)
    for _ in range(columns):
        grid.add_column(ratio=1, overflow="fold")
    panels = []
    for answer in answers:
        body = Text(printable(answer.text) or "(empty)", overflow="fold")
        body.append("\n\n" + "\n".join(printable(line) for line in answer.facts), style="dim")
        panels.append(Panel(body, title=Text(answer.title), border_style=answer.style, title_align="left"))
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        grid.add_row(*row, *[""] * (columns - len(row)))
    return grid


def _facts(rollout: RecordedRollout) -> list[str]:
    """What is known of an answer, a line each."""
    from groupwise.runs.record import EVALUATION
    from groupwise.runs.rollout_view import left_out_sentence

    outcome = "not judged" if rollout.outcome is None else "right" if rollout.outcome else "wrong"
    reward = "none" if rollout.reward is None else f"{rollout.reward:g}"
    parts = "" if not rollout.parts else f" ({', '.join(f'{n} {v:g}' for n, v in rollout.parts.items())})"
    facts = [f"outcome {outcome}, reward {reward}{parts}", f"verdict {rollout.status}: {rollout.reason}"]
    for check in rollout.checks:
        if not check.get("passed"):
            compared = f": expected {check['expected']}, found {check['found']}" if check.get("expected") else ""
            facts.append(f"failed check {check.get('name')}{compared}")
    cut = ", cut at the limit" if rollout.stop == "length" else f", stop {rollout.stop}"
    facts.append(f"{rollout.num_tokens} tokens{cut}, policy version {rollout.policy_version}")
    if not rollout.stage.startswith(EVALUATION):
        facts.append(f"advantage {rollout.advantage:+.3f}")
        facts += [sentence] if (sentence := left_out_sentence(rollout)) else []
    return facts


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """A heading that begins with > stands over numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from groupwise.runs.rollout_view import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in headings:
        table.add_column(heading.lstrip(">"), justify="right" if heading[0] == ">" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _line(console: Console, text: str) -> None:
    from groupwise.runs.rollout_view import printable

    console.print(printable(text), soft_wrap=not console.is_terminal)


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if whole else "0"
