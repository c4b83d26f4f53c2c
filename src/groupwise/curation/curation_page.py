"""What a curation has found, for people: one page, and the same in short for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table as TerminalTable

from groupwise.curation.decision import CuratedRow, Curation, Decision, Reason
from groupwise.curation.prior import BetaPrior
from groupwise.curation.retire import RetireRule
from groupwise.pages import Cell, Fact, Page, Section, Table, bar_chart, histogram

MEANINGS: Mapping[Reason, str] = {
    Reason.KEPT: "solved by some completions and not by others",
    Reason.NEVER_SOLVED: "no completion solved it: too hard for now",
    Reason.TOO_HARD: "solved at times, and too rarely",
    Reason.ALWAYS_SOLVED: "every completion solved it: nothing to learn",
    Reason.TOO_EASY: "not solved at times, and too rarely",
    Reason.UNDECIDED: "more samples would tell",
    Reason.BROKEN_GOLD: "the verifier refuses its gold",
    Reason.UNDETERMINED_GOLD: "a wrong answer may equal its gold",
    Reason.CONFLICTING_GOLD: "the text of an earlier prompt with another gold",
    Reason.DUPLICATE: "repeats an earlier prompt",
    Reason.LEAKS_INTO_HELDOUT: "is also held out",
    Reason.TOO_LONG: "over data.max_prompt_tokens",
    Reason.NOT_DRAWN: "not among the curation.num_prompts that were drawn",
}
"""What each reason means, in the order in which they are shown."""
NUM_BINS = 10
NUM_EXAMPLES = 5
BAR_WIDTH = 30
_LENGTHS = {
    "num_prompt_tokens_mean": "prompt, mean",
    "trunk_tokens": "shared by all prompts",
    "completion_tokens_mean": "completion, mean",
    "completion_tokens_mean_right": "right completion, mean",
    "completion_tokens_mean_wrong": "wrong completion, mean",
    "completion_tokens_longest_mean_of_group": "longest completion of a prompt, mean",
    "completion_tokens_longest": "longest completion",
}


def headline(decisions: Sequence[Decision], num_samples: int) -> str:
    """One sentence: how many are kept, of how many, for how many completions."""
    counts = Counter(decision.reason for decision in decisions)
    text = (
        f"{counts[Reason.KEPT]:,} of {len(decisions):,} training prompts are kept, solved sometimes and not always, "
        f"after {num_samples:,} completions."
    )
    if counts[Reason.UNDECIDED]:
        text += f" {counts[Reason.UNDECIDED]:,} are undecided: more samples would tell."
    return text


def reason_table(decisions: Sequence[Decision]) -> TerminalTable:
    """Prompts by reason, for a terminal."""
    table = TerminalTable()
    for name, side in (("reason", "left"), ("prompts", "right"), ("share", "right"), ("meaning", "left")):
        table.add_column(name, justify="right" if side == "right" else "left")
    for reason, count in _counts(decisions).items():
        table.add_row(str(reason), f"{count:,}", f"{count / len(decisions):.1%}", MEANINGS[reason])
    return table


def histogram_lines(curation: Curation) -> list[str]:
    """The posterior mean pass rates of all sampled prompts as bars of text."""
    means = _means(curation.rows, curation.prior)
    if not means:
        return []
    bins = Counter(min(NUM_BINS - 1, int(mean * NUM_BINS)) for mean in means)
    scale = BAR_WIDTH / max(bins.values())
    lines = [f"pass rate of {len(means):,} sampled prompts (posterior mean)"]
    for place in range(NUM_BINS):
        bar = "#" * max(round(bins[place] * scale), bins[place] > 0)
        lines.append(f"  {place / NUM_BINS:.1f} - {(place + 1) / NUM_BINS:.1f}  {bar:<{BAR_WIDTH}}  {bins[place]:,}")
    return lines


def curation_page(name: str, curation: Curation, summary: Mapping[str, Any]) -> Page:
    """The page of a curation; `summary` is what its ledger.json holds."""
    decisions, prior = curation.decisions(), curation.prior
    counts = _counts(decisions)
    means = _means(curation.rows, prior)
    identity = summary["identity"]
    return Page(
        title=f"Curated prompts of {name}",
        lead=headline(decisions, curation.num_samples),
        facts=(
            Fact(label="kept", value=counts.get(Reason.KEPT, 0), note=f"of {len(decisions):,} prompts"),
            Fact(label="undecided", value=counts.get(Reason.UNDECIDED, 0), note="more samples would tell"),
            Fact(label="completions", value=curation.num_samples, note="of all calls"),
            Fact(label="mean pass rate", value=round(sum(means) / len(means), 3) if means else None),
        ),
        sections=(
            _reasons(counts, len(decisions), curation.options.rule),
            _rates(means, prior),
            _examples(curation.rows, decisions),
            Section(heading="Lengths", tables=(_length_table(summary),)),
        ),
        footer=(
            f"Measured with {identity['model']} (weights {identity['weights']}), verifier {identity['verifier']}, "
            f"sampling {', '.join(f'{key} = {value}' for key, value in identity['sampling'].items())}."
        ),
    )


def _reasons(counts: Mapping[Reason, int], num_prompts: int, rule: RetireRule) -> Section:
    return Section(
        heading="What became of every prompt",
        charts=(
            bar_chart(
                [{"reason": str(reason), "prompts": count} for reason, count in counts.items()],
                title="Prompts by reason",
                label="reason",
                value="prompts",
                label_title="reason",
                value_title="prompts",
            ),
        ),
        tables=(
            Table(
                columns=("reason", "prompts", "share (%)", "meaning"),
                rows=tuple(
                    (str(reason), count, round(100 * count / num_prompts, 1), MEANINGS[reason])
                    for reason, count in counts.items()
                ),
                caption=(
                    f"Each prompt has one reason. Too hard is a rate up to {rule.hopeless_below:g}, too easy one from "
                    f"{rule.solved_above:g} on, each with a probability of {rule.confidence:g} or more."
                ),
            ),
        ),
    )


def _rates(means: Sequence[float], prior: BetaPrior) -> Section:
    return Section(
        heading="Pass rates",
        text=(
            f"The counts together point to pass rates that are distributed as Beta({prior.alpha:.2f}, "
            f"{prior.beta:.2f}): {prior.posterior(solved=0, scored=0).mean:.0%} on average. A single prompt's rate is "
            "estimated under that prior, so a prompt that was tried four times lies nearer to the average than its "
            "count.",
        ),
        charts=(
            histogram(
                means,
                title="Pass rates of the sampled prompts",
                x_title="posterior mean pass rate",
                y_title="prompts",
                bounds=(0.0, 1.0),
                x_format=".0%",
            ),
        ),
    )


def _examples(rows: Sequence[CuratedRow], decisions: Sequence[Decision]) -> Section:
    shown: list[tuple[Cell, ...]] = []
    for reason in MEANINGS:
        found = [(row, d) for row, d in zip(rows, decisions, strict=True) if d.reason is reason]
        shown += [(str(reason), row.id, d.detail, "; ".join(row.notes)) for row, d in found[:NUM_EXAMPLES]]
    caption = f"At most {NUM_EXAMPLES} of each reason; the ledger has them all."
    table = Table(columns=("reason", "prompt", "why", "note"), rows=tuple(shown), caption=caption)
    return Section(heading="Examples", tables=(table,))


def _length_table(summary: Mapping[str, Any]) -> Table:
    rows = tuple((label, summary[key]) for key, label in _LENGTHS.items() if summary.get(key) is not None)
    return Table(columns=("what", "tokens"), rows=rows, caption="Lengths of what was sampled, in tokens.")


def _counts(decisions: Sequence[Decision]) -> dict[Reason, int]:
    counts = Counter(decision.reason for decision in decisions)
    return {reason: counts[reason] for reason in MEANINGS if counts[reason]}


def _means(rows: Sequence[CuratedRow], prior: BetaPrior) -> list[float]:
    return [prior.posterior(solved=row.solved, scored=row.scored).mean for row in rows if row.scored]
