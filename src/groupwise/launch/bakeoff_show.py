"""A bake-off as tables: the one that both terminal and page show, and those behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from groupwise.launch.bakeoff_report import Arm, Comparison, value_network_share, wasted_share
from groupwise.launch.plan_alternatives import duration
from groupwise.pages import Cell

TableParts = tuple[tuple[str, ...], list[tuple[Cell, ...]]]
GB = 1e9
PAGE_ONLY = ("greedy", "sampled")
"""Columns of the arms that do not fit into a terminal of 80 characters."""


def arms_table(arms: Sequence[Arm]) -> TableParts:
    """One row an arm, the start model first."""
    columns = (
        "arm",
        "pass rate",
        "seeds",
        "greedy",
        "steps",
        "time",
        "peak GB",
        "nets",
        "sampled",
        "right",
        "wrong",
        "wasted",
    )
    return columns, [_arm_row(arm) for arm in arms]


def comparisons_table(comparisons: Sequence[Comparison]) -> TableParts:
    """One row for every two arms."""
    rows: list[tuple[Cell, ...]] = [
        (
            f"{c.second} - {c.first}",
            f"{c.difference.difference:+.1%}",
            f"{c.difference.interval.low:+.1%} to {c.difference.interval.high:+.1%}",
            "yes" if c.seeds_agree else "no",
            c.verdict,
        )
        for c in comparisons
    ]
    return ("compared", "gap", "95 % interval", "seeds agree", "verdict"), rows


def gradient_table(gradient: Mapping[str, Any]) -> TableParts:
    """One row a normalization: how hard a token of the short and of the long wrong answer is pushed."""
    rows: list[tuple[Cell, ...]] = [
        (
            push["normalize"],
            f"{push['short']:.3g}",
            f"{push['long']:.3g}",
            f"{push['ratio']:.2f}",
            _number(push["short_norm"], ".3g"),
            _number(push["long_norm"], ".3g"),
        )
        for push in gradient["pushes"]
    ]
    first = gradient["pushes"][0]
    columns = (
        "normalize",
        f"token of {first['short_tokens']}",
        f"token of {first['long_tokens']}",
        "long / short",
        "weights, short",
        "weights, long",
    )
    return columns, rows


def memory_table(arms: Sequence[Arm]) -> TableParts:
    """Measured megabytes by network and part; peak is that of the process."""
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        for network, parts in arm.held_bytes().items():
            rows.append(
                (
                    arm.name,
                    network,
                    *(round(parts.get(name, 0) / 1e6, 1) for name in ("parameters", "gradients", "optimizer")),
                )
            )
    return ("arm", "network", "weights MB", "gradients MB", "optimizer MB"), rows


def gradient_sentence(gradient: Mapping[str, Any] | None) -> str:
    """What the measurement says of GRPO's division by length."""
    if gradient is None:
        return "No sampled group had a right answer and wrong ones of different lengths: the push was not measured."
    push = next(row for row in gradient["pushes"] if row["normalize"] == "sequence")
    return (
        f"Divided by its own length (normalize = sequence, GRPO), a wrong answer of {push['long_tokens']} tokens is "
        f"pushed {push['ratio']:.2f} times as hard a token as one of {push['short_tokens']} tokens of the same group; "
        "with token or constant (Dr. GRPO) equally hard."
    )


def memory_sentence(arms: Sequence[Arm]) -> str:
    """What the value network holds, measured; empty where no arm has one."""
    found = value_network_share(arms)
    if found is None:
        return ""
    share = found["critic_bytes"] / found["trained_bytes"]
    text = (
        f"The value network of {found['arm']} holds {_size(found['critic_bytes'])} of its "
        f"{_size(found['trained_bytes'])} of trained state (weights, gradients, optimizer), {share:.0%}"
    )
    if "other" in found:
        text += f"; {found['other']} has {_size(found['other_trained_bytes'])} without one"
    return text + "."


def terminal_table(caption: str, parts: TableParts) -> Table:
    """The same table for a terminal."""
    columns, rows = parts
    table = Table(title=caption, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    kept = [number for number, column in enumerate(columns) if column not in PAGE_ONLY]
    for number in kept:
        table.add_column(columns[number], justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*("-" if row[number] is None else str(row[number]) for number in kept))
    return table


def _arm_row(arm: Arm) -> tuple[Cell, ...]:
    if arm.pass_rate is None:
        return (arm.name, f"failed ({arm.num_failed})", *(None for _ in range(10)))
    seeds = list(arm.by_seed.values())
    failed = f" ({arm.num_failed} failed)" if arm.num_failed else ""
    waste = wasted_share(arm)
    wall, peak = arm.mean("wall_s"), arm.mean("peak_bytes")
    return (
        arm.name,
        f"{arm.pass_rate:.1%} [{100 * arm.interval.low:.0f}, {100 * arm.interval.high:.0f}]",
        f"{100 * min(seeds):.1f}-{100 * max(seeds):.1f}{failed}" if seeds else None,
        None if arm.greedy_pass_rate is None else f"{arm.greedy_pass_rate:.1%}",
        _number(arm.mean("steps"), ".0f"),
        None if wall is None else duration(wall),
        None if peak is None else f"{peak / GB:.2f}",
        len(arm.held_bytes()) or None,
        _number(arm.spent("rollout_tokens"), ",.0f"),
        _number(arm.mean("mean_length_right"), ".1f"),
        _number(arm.mean("mean_length_wrong"), ".1f"),
        None if waste is None else f"{waste:.0%}",
    )


def _size(num_bytes: float) -> str:
    return f"{num_bytes / GB:.2f} GB" if num_bytes >= GB / 10 else f"{num_bytes / 1e6:.2f} MB"


def _number(value: float | None, how: str) -> str | None:
    return None if value is None else format(value, how)
