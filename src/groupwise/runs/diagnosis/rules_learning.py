"""Rules about the updates: too large, too small for the number format, away from the reference, without entropy left,
off policy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from groupwise.runs.diagnosis.finding import Finding, change_of, percent
from groupwise.runs.diagnosis.rows import (
    FROM_ROLLOUTS,
    RECENT,
    PassRate,
    Row,
    StageRows,
    lookup,
    mean,
    numbers,
    pass_rate,
    share,
    stage_rows,
    window,
)
from groupwise.runs.record import RunRecord

HARDLY_MOVED = 0.03
"""Share of the weights that a step changed. At a usual rate a bfloat16 step moves 5 % and more, and float32 nearly all;
bfloat16 weights of 0.02 at a rate of 1e-6, where training is known to stand still, move 2 %."""
COLLAPSED_TO = 0.25
"""A pass rate that fell to a quarter of what it was. Prompts that retire make it fall, too, but not as far."""
SMALLEST_FALL, NUM_ERRORS = 0.25, 4.0
"""Of the pass rate: as much as chance between two windows of a few steps never shows."""
FIRST_FEW = 4
"""Collections that must follow the first one, and groups that it must have, to be compared with it."""
LOSS_ROSE = 0.5
"""Nats a token above its lowest, and above where it began: a loss of SFT only falls, up to its noise of 0.1 to 0.2."""
KL_FAR = 0.5
"""Nats a token: an answer of 20 tokens is e^10 times as likely as under the reference, which then bounds nothing. Usual
are 0.001 to 0.1."""
KL_LOST = 1.0
"""Nats a token from which it is a problem and no warning."""
ENTROPY_LEFT = 0.2
"""Share of the entropy at the start of the stage that is left where it has collapsed."""
ENTROPY_LOW = 0.1
"""Nats a token under which hardly anything is drawn: 10 tokens are then the same in 1 of e draws."""
STILL_WRONG = 0.8
"""With a higher pass rate a low entropy is success and no collapse."""
MOSTLY_REPEATED = 0.9
"""Share of answers that repeat another one of their group, where nothing is explored any more. Groups of short answers
repeat themselves to 60 % while they learn."""
CLIPPED = 0.3
"""Share of trained tokens on which the clip acts. PPO's usual share is 0.02 to 0.2; sequence ratios clip about 0.15."""
FAR_RATIOS = 0.1
"""Share of tokens whose probability changed by more than a factor of 2 within a step."""
CHOSEN_FELL = 0.5
"""Nats a token that the chosen answers lost. Some fall is usual in DPO; this is a factor of e^10 over 20 tokens."""


def lr_too_high(record: RunRecord) -> Finding | None:
    """The stage makes the model worse: its pass rate collapses, or its loss rises, after it began well."""
    for stage in stage_rows(record, "sft", *FROM_ROLLOUTS):
        said = _loss_rose(stage) if stage.algorithm == "sft" else _collapse(stage) or _heldout_fell(record, stage)
        if said is None:
            continue
        lr = stage.setting("optim.lr")
        norms = numbers(stage.steps, "grad_norm")
        sizes = f"; the gradient norm was {norms[0]:.3g} at first and at most {max(norms):.3g}" if norms else ""
        updates = numbers(stage.steps, "update_norm")
        sizes += f", a step changes the weights by a norm of up to {max(updates):.3g}" if updates else ""
        return Finding(
            name="lr_too_high",
            severity="problem",
            title="Training destroyed what the model could do: the learning rate is too high.",
            evidence=f"{said}{sizes}.",
            change=change_of("optim.lr", lr, None if lr is None else lr / 10, stage=stage.name),
            stage=stage.name,
            step=stage.last_step,
        )
    failed = [e for e in record.events_named("failed") if e.get("error") == "FloatingPointError"]
    if failed:
        name = str(failed[-1].get("stage") or "")
        lr = next((lookup(t, "optim.lr") for t in record.stages if t.get("name") == name), None)
        return Finding(
            name="lr_too_high",
            severity="problem",
            title="The gradient is not a number any more: the learning rate is too high.",
            evidence=f"the run ended by an error: {failed[-1].get('message')}.",
            change=change_of("optim.lr", lr, None if lr is None else lr / 10, stage=name),
            stage=name,
        )
    return None


def lr_below_precision(record: RunRecord) -> Finding | None:
    """There is a gradient, and the stored weights stay as they are: the updates are lost in rounding."""
    for stage in stage_rows(record, "sft", "dpo", *FROM_ROLLOUTS):
        lr = stage.setting("optim.lr")
        # a warm-up, and the end of a schedule, are below it on purpose
        rows = [r for r in stage.steps if lr is None or (r.get("lr") or 0.0) >= 0.5 * lr]
        moved, norms = numbers(rows, "weights_moved_frac"), numbers(rows, "grad_norm")
        if not moved or not norms or median(moved) >= HARDLY_MOVED or median(norms) <= 0:
            continue
        dtype = lookup(record.environment, "dtype") or lookup(record.recipe, "model.dtype")
        is_short = dtype in ("bfloat16", "float16")
        return Finding(
            name="lr_below_precision",
            severity="problem",
            title="The updates are smaller than the precision of the weights: hardly any weight changes.",
            evidence=f"a step changed {percent(median(moved))} of the trained weights (median of {len(moved)} steps) "
            f"while the gradient norm was {median(norms):.3g}; the weights are {dtype or 'of an unknown format'} and "
            f"the learning rate is {lr if lr is None else f'{lr:g}'}.",
            change=change_of("model.dtype", dtype, "float32")
            if is_short
            else change_of("optim.lr", lr, None if lr is None else 10 * lr, stage=stage.name),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def kl_runaway(record: RunRecord) -> Finding | None:
    """The policy has left its reference, which is there to hold it."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        rows = stage.steps[-window(stage.steps) :]
        per_token = numbers(rows, "kl_to_ref") or _per_token(rows)
        if not per_token or median(per_token) <= KL_FAR:
            continue
        setting = "algorithm.beta" if stage.algorithm == "grpo" else "algorithm.kl.coef"
        weight = stage.setting(setting)
        return Finding(
            name="kl_runaway",
            severity="problem" if median(per_token) > KL_LOST else "warning",
            title="The policy has run away from its reference.",
            evidence=f"the KL to the reference is {median(per_token):.2f} nats a token over the last {len(rows)} of "
            f"{len(stage.steps)} steps (it was {_first_kl(stage):.3f} in the first); 0.001 to 0.1 are usual.",
            change=change_of(setting, weight, 5 * weight)
            if weight
            else change_of("optim.lr", stage.setting("optim.lr"), (stage.setting("optim.lr") or 0) / 3 or None),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def entropy_collapse(record: RunRecord) -> Finding | None:
    """The policy has become sure of its answers, and many are still wrong."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        rows = stage.collections
        if len(numbers(rows, "sampler_nll")) < 4:
            continue
        # not the entropy metric: it is that of trained tokens, and groups that agree are not among them
        width = window(rows)
        first, last = mean(rows[:width], "sampler_nll"), mean(rows[-width:], "sampler_nll")
        end = rows[-max(width, 2) :]
        solved, repeated = pass_rate(end), share(end, "repeated_frac")
        if first is None or last is None or last > min(ENTROPY_LOW, ENTROPY_LEFT * first):
            continue
        if solved is None or solved.value > STILL_WRONG or repeated is None or repeated.value < MOSTLY_REPEATED:
            continue
        coef = stage.setting("algorithm.loss.entropy_coef") if stage.algorithm == "grpo" else None
        lr = stage.setting("optim.lr")
        return Finding(
            name="entropy_collapse",
            severity="problem",
            title="The policy has stopped exploring while many answers are wrong.",
            evidence=f"the sampler's entropy fell from {first:.3f} to {last:.3f} nats a token in {len(rows)} "
            f"collections; {repeated} repeat another one of their group; the pass rate is {percent(solved.value)}.",
            change=change_of("algorithm.loss.entropy_coef", coef or 0.0, 0.01, stage=stage.name)
            if stage.algorithm == "grpo"
            else change_of("optim.lr", lr, None if lr is None else lr / 3, stage=stage.name),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def off_policy_clipping(record: RunRecord) -> Finding | None:
    """The later updates of a step learn from rollouts of a policy that is gone."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        rows = stage.steps[-RECENT:]
        low, high, tail = (mean(rows, n) for n in ("clipped_low", "clipped_high", "ratio_tail_frac"))
        clipped = None if low is None or high is None else low + high
        if (clipped or 0.0) <= CLIPPED and (tail or 0.0) <= FAR_RATIOS:
            continue
        path = "algorithm.loss.epochs" if stage.algorithm == "grpo" else "algorithm.epochs"
        epochs, lr = stage.setting(path), stage.setting("optim.lr")
        parts = [] if clipped is None else [f"the clip acts on {percent(clipped)} of the trained tokens"]
        parts += [] if tail is None else [f"{percent(tail)} became twice or half as likely within a step"]
        p99 = mean(rows, "ratio_p99")
        parts += [] if p99 is None else [f"the 99th percentile of the ratio is {p99:.2f}"]
        return Finding(
            name="off_policy_clipping",
            severity="warning",
            title="The updates of a step go further than its rollouts can tell.",
            evidence=", ".join(parts) + f" (mean of the last {len(rows)} steps).",
            change=change_of(path, epochs, max(1, epochs // 2), stage=stage.name)
            if isinstance(epochs, int) and epochs > 1
            else change_of("optim.lr", lr, None if lr is None else lr / 3, stage=stage.name),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def dpo_chosen_falls(record: RunRecord) -> Finding | None:
    """The margin grows while the better answers become much less likely themselves."""
    for stage in stage_rows(record, "dpo"):
        width = window(stage.steps)
        first, last = stage.steps[:width], stage.steps[-width:]
        before, after, accuracy = mean(first, "chosen_logprob"), mean(last, "chosen_logprob"), mean(last, "accuracy")
        tokens, pairs = mean(stage.steps, "num_trained_tokens"), mean(stage.steps, "num_pairs")
        if before is None or after is None or accuracy is None or not tokens or not pairs or len(stage.steps) < 2:
            continue
        fell = (before - after) / (tokens / (2 * pairs))
        if fell <= CHOSEN_FELL or accuracy <= 0.5:
            continue
        coef = stage.setting("algorithm.nll_coef")
        return Finding(
            name="dpo_chosen_falls",
            severity="warning",
            title="The margins grow because both answers become unlikely, the better one too.",
            evidence=f"the log-probability of a chosen answer fell from {before:.1f} to {after:.1f} nats, "
            f"{fell:.2f} a token, over {len(stage.steps)} steps; the accuracy is {percent(accuracy)}.",
            change=change_of("algorithm.nll_coef", coef, 1.0, stage=stage.name)
            if not coef
            else change_of("optim.lr", stage.setting("optim.lr"), stage.setting("optim.lr") / 3, stage=stage.name),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def fell_surely(before: PassRate, after: PassRate) -> bool:
    """True where the second rate is a collapse against the first, far beyond chance."""
    error = (before.error**2 + after.error**2) ** 0.5
    fall = before.value - after.value
    return fall > max(SMALLEST_FALL, NUM_ERRORS * error) and after.value < COLLAPSED_TO * before.value


def _collapse(stage: StageRows) -> str | None:
    """The best window of the stage against its last one."""
    rows: Sequence[Row] = stage.collections
    width = min(RECENT, max(1, len(rows) // 4))
    after = pass_rate(rows[-width:])
    windows = [found for i in range(len(rows) - 2 * width + 1) if (found := pass_rate(rows[i : i + width]))]
    best = max(windows, key=lambda found: found.value, default=None)
    start, rest = pass_rate(rows[:1]), pass_rate(rows[1:][-RECENT:])
    if start is not None and rest is not None and _broke_at_once(rows, start, rest):
        best, after = start, rest
    if best is None or after is None or not fell_surely(best, after):
        return None
    return (
        f"the pass rate fell from {percent(best.value)} of {best.groups:.0f} groups to {percent(after.value)} of "
        f"{after.groups:.0f}"
    )


def _broke_at_once(rows: Sequence[Row], start: PassRate, rest: PassRate) -> bool:
    """The first updates undid what the first collection shows; windows of several collections hide that."""
    is_enough = len(rows) > FIRST_FEW and start.groups >= FIRST_FEW and not rows[-1].get("set_aside_always_solved")
    return is_enough and fell_surely(start, rest)


def _heldout_fell(record: RunRecord, stage: StageRows) -> str | None:
    if record.summary is None:
        return None
    names = [s.name for s in record.summary.stages]
    if stage.name not in names or names.index(stage.name) == 0:
        return None
    after = record.summary.stages[names.index(stage.name)]
    before = record.summary.stages[names.index(stage.name) - 1]
    if after.interval.high >= before.interval.low or after.pass_rate >= 0.5 * before.pass_rate:
        return None
    return (
        f"the held-out pass rate fell from {percent(before.pass_rate)} to {percent(after.pass_rate)} over "
        f"{after.num_prompts} prompts, and the 95 % intervals do not meet"
    )


def _loss_rose(stage: StageRows) -> str | None:
    losses = numbers(stage.steps, "nll")
    if len(losses) < 3:
        return None
    last = mean(stage.steps[-window(stage.steps) :], "nll")
    if last is None or last <= min(losses) + LOSS_ROSE or last <= losses[0]:
        return None
    return f"the loss rose from {losses[0]:.2f} nats a token in the first step to {last:.2f}"


def _per_token(rows: Sequence[Row]) -> list[float]:
    """PPO reports a sum over a completion."""
    return [
        row["kl_to_ref_sum"] * row["num_rollouts"] / row["num_generated_tokens"]
        for row in rows
        if numbers([row], "kl_to_ref_sum") and numbers([row], "num_rollouts") and row.get("num_generated_tokens")
    ]


def _first_kl(stage: StageRows) -> float:
    found = numbers(stage.steps[:1], "kl_to_ref") or _per_token(stage.steps[:1])
    return found[0] if found else float("nan")
