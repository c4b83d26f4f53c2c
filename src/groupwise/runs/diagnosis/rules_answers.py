"""Rules about the answers themselves: cut, without an end, in a form that the verifier cannot read, all the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from groupwise.runs.diagnosis.finding import Finding, change_of, percent, shown
from groupwise.runs.diagnosis.rows import (
    FROM_ROLLOUTS,
    RECENT,
    Share,
    StageRows,
    last_rollouts,
    lookup,
    mean,
    numbers,
    one_answer,
    pass_rate,
    share,
    short,
    stage_rows,
    total,
    window,
)
from groupwise.runs.intervals import wilson
from groupwise.runs.record import RecordedRollout, RunRecord

MANY_CUT = 0.2
"""Share of cut answers, surely exceeded, that is a finding: one answer in five that cannot be right."""
BEGAN_CUT = 0.1
"""Share of cut answers at the start of a stage; a limit that is too small cuts more from the first answers on."""
FELL_TO = 0.5
"""Share of the pass rate at the start: below it, answers that grow into the limit are no matter of the limit."""
MOST_CUT = 0.5
"""Above it the limit, and not the answers, decides most rewards."""
CUT_CHANGED = 0.1
"""Difference of shares from which a finding names both: what was told early is then not what is told at the end."""
SHORT_DEMONSTRATION = 0.5
"""Where demonstrations need less than this share of the limit and most answers are cut, the limit is not to blame."""
MOST_INVALID = 0.6
"""Share of answers in a wrong form, surely exceeded. Under it the other answers teach the form (clean runs begin with
up to a half)."""
HARDLY_SOLVED = 0.05
"""With more right answers than this the form is being learned from them."""
MOSTLY_REPEATED = 0.8
"""Share of answers that another one of their group repeats. Short answers repeat by chance: half of them is usual."""
NEARLY_CERTAIN_NLL = 0.1
"""Nats a token: at 0.1 an answer of 10 tokens is drawn again with a chance of about 1 in 3."""
SURE_NLL = 0.02
"""The same where no setting makes the sampler narrow: 10 tokens are drawn again with a chance of 2 in 3."""
LOW_TEMPERATURE = 0.5
"""Squares the odds of every token: from here down it is the temperature that makes answers equal."""
SAME_FOR_ALL = 0.9
"""Share of the completions that give one answer. Collapse ends at 1; honest answers to a skewed task stay below."""
MIN_EXCESS, NUM_DEVIATIONS = 0.15, 4.0
"""One answer is given too often from 0.15 and from 4 standard deviations above its share among the right ones."""
MIN_PROMPTS = 8
"""Different prompts that must have the same answer: few prompts may well have one right answer."""


def outputs_cut(record: RunRecord) -> Finding | None:
    """The token limit cuts answers that would go on: the limit is too small for this task."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        cut = _many_cut(stage)
        if cut is None or _has_learned_short_answers(record, stage) or _broke_down(stage):
            continue
        limit = lookup(record.recipe, "rollout.max_completion_tokens")
        solved = pass_rate(stage.collections[-RECENT:])
        # what the demonstrations need is known; else double until nothing is cut
        needed = _demonstration_tokens(record, stage)
        proposed = None if limit is None else max(2 * limit, math.ceil(1.5 * (needed or 0)))
        return Finding(
            name="outputs_cut",
            severity="problem" if cut.value >= MOST_CUT else "warning",
            title=f"{percent(cut.value)} of the answers are cut at the token limit.",
            evidence=f"{cut} ended at the limit of {shown(limit)} tokens{_began_cut(stage, cut)}"
            + (f"; the pass rate is {percent(solved.value)}" if solved else "")
            + (f"; a demonstration has {needed:.0f} tokens" if needed else "")
            + f". {_dead(stage)}",
            change=change_of("rollout.max_completion_tokens", limit, proposed),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def sft_no_end(record: RunRecord) -> Finding | None:
    """The model saw short demonstrations, and goes on to the limit all the same: it has not learned to stop."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        cut, needed = _many_cut(stage), _demonstration_tokens(record, stage)
        if cut is not None and cut.value >= MOST_CUT and _has_learned_short_answers(record, stage) and needed:
            return _no_end(record, stage.name, f"{cut} of {stage.name} ended", needed)
    for event in record.events_named("evaluation"):
        sft = next((s for s in stage_rows(record, "sft") if s.name == event.get("name")), None)
        cut_frac, limit = event.get("truncated_frac"), lookup(record.recipe, "rollout.max_completion_tokens")
        needed = None if sft is None else _tokens_of(sft)
        num_prompts = event.get("num_prompts") or len(event.get("solved") or ())
        if needed is None or limit is None or not isinstance(cut_frac, int | float) or not num_prompts:
            continue
        if needed <= SHORT_DEMONSTRATION * limit and wilson(cut_frac * num_prompts, num_prompts).low > MOST_CUT:
            said = f"{percent(cut_frac)} of the held-out answers to {num_prompts} prompts ended"
            return _no_end(record, str(event["name"]), said, needed)
    return None


def _no_end(record: RunRecord, stage: str, said: str, needed: float) -> Finding:
    sft = list(stage_rows(record, "sft"))[-1]
    limit = lookup(record.recipe, "rollout.max_completion_tokens")
    steps = sft.setting("steps")
    loss = mean(sft.steps[-window(sft.steps) :], "nll")
    return Finding(
        name="sft_no_end",
        severity="problem",
        title="The model never stops: it has not learned the end of an answer from the demonstrations.",
        evidence=f"{said} at the limit of {shown(limit)} tokens, while a demonstration has {needed:.0f} tokens"
        + (f"; the last loss of {sft.name} is {loss:.2f} nats a token" if loss is not None else "")
        + ".",
        change=change_of("steps", steps, None if steps is None else 2 * steps, stage=sft.name),
        stage=stage,
        step=None,
    )


def parser_never_matched(record: RunRecord) -> Finding | None:
    """Nearly every answer breaks a rule of the verifier before it is judged: it is no answer in the asked form."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        recent = stage.collections[-RECENT:]
        invalid, solved = share(recent, "invalid_frac"), pass_rate(recent)
        if invalid is None or solved is None or solved.value > HARDLY_SOLVED or not _surely_over(invalid, MOST_INVALID):
            continue
        seen = [r for rollouts in last_rollouts(record, stage.name) for r in rollouts if r.status == "invalid"]
        reasons, sample = _reasons(seen), f" One of them: {one_answer(seen[0])}." if seen else ""
        return Finding(
            name="parser_never_matched",
            severity="problem",
            title="The verifier finds no answer in nearly every completion.",
            evidence=f"{invalid} broke a rule of the verifier; the pass rate is {percent(solved.value)} over "
            f"{solved.groups:.0f} groups.{reasons}{sample}",
            change=change_of(
                "data.system_prompt",
                None if (prompt := lookup(record.recipe, "data.system_prompt")) is None else short(str(prompt)),
                "a sentence that shows what an answer looks like (or an sft stage first)",
            ),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def sampler_nearly_greedy(record: RunRecord) -> Finding | None:
    """The answers of a group repeat each other from the start, because the sampler hardly draws."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        start = stage.collections[:RECENT]
        repeated, solved = share(start, "repeated_frac"), pass_rate(start)
        nll = mean(start, "sampler_nll")
        temperature, top_p, top_k = (
            lookup(record.recipe, f"rollout.{name}") for name in ("temperature", "top_p", "top_k")
        )
        narrow = top_k in range(1, 4) or (top_p is not None and top_p <= LOW_TEMPERATURE)
        is_cold = temperature is not None and temperature <= LOW_TEMPERATURE
        if repeated is None or not _surely_over(repeated, MOSTLY_REPEATED - 0.2) or repeated.value < MOSTLY_REPEATED:
            continue
        # the sampler's own log-probabilities are those before top_p and top_k
        if not narrow and (nll is None or nll > (NEARLY_CERTAIN_NLL if is_cold else SURE_NLL)):
            continue
        if not (narrow or is_cold) and solved is not None and solved.value > 0.9:
            continue  # a model that knows the answers may be sure of them
        setting, now, proposed = "temperature", temperature, 1.0 if is_cold else 1.3
        if narrow and not is_cold:
            setting, now, proposed = ("top_k", top_k, 0) if top_k else ("top_p", top_p, 1.0)
        return Finding(
            name="sampler_nearly_greedy",
            severity="problem",
            title="The answers of a group are nearly all the same: the sampler hardly draws.",
            evidence=f"{repeated} have the text of another one of their group"
            + (f"; a sampled token costs {nll:.3f} nats on average" if nll is not None else "")
            + f"; temperature {shown(temperature)}, top_p {shown(top_p)}, top_k {shown(top_k)}. {_dead(stage)}",
            change=change_of(f"rollout.{setting}", now, proposed),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def one_answer_for_all(record: RunRecord) -> Finding | None:
    """One label, or one text, is given to every prompt, more often than it is right."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        rollouts = [r for collection in last_rollouts(record, stage.name, 3) for r in collection]
        num_prompts = len({r.task_id for r in rollouts})
        given = [(answer, r) for r in rollouts if (answer := _answer(r))]
        if num_prompts < MIN_PROMPTS or not given:
            continue
        answer, count = Counter(a for a, _ in given).most_common(1)[0]
        same = [r for a, r in given if a == answer]
        if count < SAME_FOR_ALL * len(rollouts) or len({r.task_id for r in same}) < SAME_FOR_ALL * num_prompts:
            continue
        # where it is right that often, it is no collapse
        right = sum(r.outcome is True for r in same) / len(same)
        excess = count / len(rollouts) - right
        if excess <= max(MIN_EXCESS, NUM_DEVIATIONS * math.sqrt(right * (1 - right) / num_prompts)):
            continue
        return Finding(
            name="one_answer_for_all",
            severity="problem",
            title="The model gives the same answer to every prompt.",
            evidence=f"{count} of {len(rollouts)} completions to {num_prompts} prompts say {short(answer)!r}; it is "
            f"right in {percent(right)} of them.",
            change=_towards_variety(stage),
            stage=stage.name,
            step=stage.last_step,
        )
    return None


def _broke_down(stage: StageRows) -> bool:
    """The stage began with answers that fitted and were right; what came after is not the limit's doing."""
    began, before, after = (
        stage.collections[:1],
        pass_rate(stage.collections[:1]),
        pass_rate(stage.collections[-RECENT:]),
    )
    cut = share(began, "truncated_frac")
    if cut is None or before is None or after is None or stage.collections[-1].get("set_aside_always_solved"):
        return False  # prompts that retired leave harder ones, with longer answers
    return cut.value <= BEGAN_CUT and after.value < FELL_TO * before.value


def _began_cut(stage: StageRows, now: Share) -> str:
    """The share of the first collection, as an early warning told it, where the last ones differ."""
    first = share(stage.collections[:1], "truncated_frac")
    if first is None or len(stage.collections) == 1 or abs(first.value - now.value) < CUT_CHANGED:
        return ""
    return f" lately, {percent(first.value)} in the first collection"


def _many_cut(stage: StageRows) -> Share | None:
    cut = share(stage.collections[-RECENT:], "truncated_frac")
    return cut if cut is not None and _surely_over(cut, MANY_CUT) else None


def _surely_over(found: Share, bound: float) -> bool:
    """The completions of a group resemble each other, so that a group counts as one trial."""
    return wilson(found.value * found.groups, found.groups).low > bound


def _has_learned_short_answers(record: RunRecord, stage: StageRows) -> bool:
    needed, limit = _demonstration_tokens(record, stage), lookup(record.recipe, "rollout.max_completion_tokens")
    return needed is not None and limit is not None and needed <= SHORT_DEMONSTRATION * limit


def _demonstration_tokens(record: RunRecord, stage: StageRows) -> float | None:
    """Tokens of a demonstration of the last SFT stage before this one."""
    names = [str(table.get("name")) for table in record.stages]
    before = [s for s in stage_rows(record, "sft") if names.index(s.name) < names.index(stage.name)]
    return _tokens_of(before[-1]) if before else None


def _tokens_of(sft: StageRows) -> float | None:
    each = sft.setting("algorithm.tasks_per_step")
    counted = numbers(sft.steps, "num_trained_tokens")
    return sum(counted) / (len(counted) * each) if counted and each else None


def _reasons(rollouts: Sequence[RecordedRollout]) -> str:
    words = Counter(r.reason.split(" ")[0].rstrip(":,") for r in rollouts if r.reason)
    if not words:
        return ""
    common = ", ".join(f"{word} {count} of {len(rollouts)}" for word, count in words.most_common(3))
    return f" Reasons of the last step: {common}."


def _answer(rollout: RecordedRollout) -> str:
    """The label of a classification, where the verifier names one; else the text."""
    labels = [check.get("found") for check in rollout.checks if check.get("name") == "wrong_label"]
    return str(labels[0]) if labels and labels[0] is not None else " ".join(rollout.text.split())


def _towards_variety(stage: StageRows) -> str:
    if stage.algorithm == "grpo":
        now = stage.setting("algorithm.loss.entropy_coef")
        return change_of("algorithm.loss.entropy_coef", now or 0.0, 0.01, stage=stage.name)
    now = stage.setting("optim.lr")
    return change_of("optim.lr", now, None if now is None else now / 3, stage=stage.name)


def _dead(stage: StageRows) -> str:
    groups, live = total(stage.collections, "num_groups"), total(stage.collections, "live_groups")
    return f"{groups - live:.0f} of {groups:.0f} groups had no spread." if groups else ""
