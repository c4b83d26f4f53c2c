"""Rules about the machinery: weights that the sampler lacks, memory, time, and a run that ended by an error."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from groupwise.runs.diagnosis.finding import Finding, change_of, percent
from groupwise.runs.diagnosis.rows import (
    FROM_ROLLOUTS,
    StageRows,
    last_rollouts,
    lookup,
    mean,
    numbers,
    stage_rows,
    window,
)
from groupwise.runs.record import RunRecord

GAP_GREW = 5.0
"""Times its first value: rounding stays where it is, weights that are left behind fall back further with each step."""
GAP_LARGE = 0.05
"""Nats a token, mean. bfloat16 rounds by 0.01 to 0.03; a gap below it changes no importance weight that matters."""
GAP_AT_START = 0.3
"""Nats a token, mean, in the first step, where both have the same weights: twice what bfloat16 allows."""
MEMORY_CLOSE, MEMORY_FULL = 0.9, 0.97
"""Shares of the limit. Peaks vary by 5 to 10 % between steps of one run, because completions differ in length."""
FAR_OFF = 2.0
"""Times the forecast. Forecasts are usually within a third."""
WORTH_TELLING_S = 60.0
"""A stage that takes less time is finished before anybody asks why."""
GB = 1e9


def weights_not_synced(record: RunRecord) -> Finding | None:
    """The sampler does not have the weights that the trainer has: rollouts of an old version, or a gap that grows."""
    for event in record.events_named("step_refused"):
        if (event.get("step") or 1) > 1:
            said = " ".join(str(event.get("reason", "")).split())[:300]
            return _not_synced(record, str(event.get("stage", "")), event.get("step"), said)
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        said = _lag(record, stage) or _gap_growth(stage)
        if said:
            return _not_synced(record, stage.name, stage.last_step, said)
    return None


def sampler_is_not_trainer(record: RunRecord) -> Finding | None:
    """Sampler and trainer disagree from the first step on: another distribution, template or number format."""
    for stage in stage_rows(record, *FROM_ROLLOUTS):
        refused = [e for e in record.events_named("step_refused") if e.get("stage") == stage.name]
        first = mean(stage.steps[:1], "logprob_gap_mean")
        said = ""
        if refused and (refused[0].get("step") or 1) == 1:
            said = " ".join(str(refused[0].get("reason", "")).split())[:300]
        elif first is not None and first > GAP_AT_START:
            said = f"the log-probabilities differ by {first:.2f} nats a token in the first step of {stage.name}"
        if said:
            check = lookup(record.recipe, "model.attention_check")
            return Finding(
                name="sampler_is_not_trainer",
                severity="problem",
                title="Sampler and trainer do not describe the same distribution.",
                evidence=f"{said}; with the same weights only rounding is allowed.",
                change=change_of("model.attention_check", check, True)
                if check is False
                else change_of("model.dtype", lookup(record.recipe, "model.dtype"), "float32"),
                stage=stage.name,
                step=1,
            )
    return None


def memory_near_limit(record: RunRecord) -> Finding | None:
    """The largest memory in use against what there is."""
    limit = lookup(record.environment, "memory_limit_bytes")
    if not isinstance(limit, int | float) or limit <= 0:
        return None
    peaks = [(max(numbers(s.collections, "memory_bytes"), default=0.0), s.name) for s in _all_stages(record)]
    if record.summary is not None and record.summary.peak_memory_bytes:
        peaks.append((float(record.summary.peak_memory_bytes), ""))
    peak = max((p for p, _ in peaks), default=0.0)
    if peak < MEMORY_CLOSE * limit:
        return None
    stage = max((p for p in peaks if p[1]), default=(0.0, ""))[1]
    table = next((t for t in record.stages if t.get("name") == stage), {})
    return Finding(
        name="memory_near_limit",
        severity="problem" if peak >= MEMORY_FULL * limit else "warning",
        title="The memory is nearly used up: a longer answer may end the run.",
        evidence=f"{peak / GB:.2f} of {limit / GB:.2f} GB ({percent(peak / limit)}) were in use at the peak.",
        change=_smaller_microbatch(table, stage),
        stage=stage,
    )


def forecast_far_off(record: RunRecord) -> Finding | None:
    """A stage took much longer than it was forecast."""
    for event in record.events_named("forecast"):
        pairs = [event.get(name) for name in ("seconds_generate", "seconds_train")]
        given = [p for p in pairs if isinstance(p, Mapping)]
        forecast, measured = (sum(float(p.get(key) or 0.0) for p in given) for key in ("forecast", "measured"))
        if not forecast or measured < WORTH_TELLING_S or measured <= FAR_OFF * forecast:
            continue
        return Finding(
            name="forecast_far_off",
            severity="warning",
            title="The stage took much longer than forecast.",
            evidence=f"sampling and training took {measured:.0f} s in {event.get('steps')} steps; the forecast was "
            f"{forecast:.0f} s ({measured / forecast:.1f} times as long): something else used the machine, or its "
            "rates are old.",
            change="no setting: measure the machine again with `groupwise doctor --measure`",
            stage=str(event.get("stage", "")),
        )
    return None


def ended_by_error(record: RunRecord) -> Finding | None:
    """The run ended by an error, and has not been taken up again."""
    order = [e for e in record.events if e.get("event") in ("failed", "restarted")]
    if not order or order[-1].get("event") != "failed":
        return None
    event = order[-1]
    message = " ".join(str(event.get("message", "")).split())[:400]
    out_of_memory = event.get("error") in ("MemoryError", "OutOfMemoryError")
    name = str(event.get("stage") or "")
    table = next((t for t in record.stages if t.get("name") == name), {})
    return Finding(
        name="ended_by_error",
        severity="problem",
        title="The run ended by an error.",
        evidence=f"{event.get('error')}: {message}",
        change=_smaller_microbatch(table, name)
        if out_of_memory
        else "what the message names; then go on with `groupwise train --resume RUN`",
        stage=name,
    )


def _smaller_microbatch(table: Mapping[str, Any], stage: str) -> str:
    tokens = lookup(table, "optim.tokens_per_microbatch")
    halved = None if tokens is None else max(1, tokens // 2)
    return change_of("optim.tokens_per_microbatch", tokens, halved, stage=stage)


def _not_synced(record: RunRecord, stage: str, step: int | None, said: str) -> Finding:
    check, lora = lookup(record.recipe, "model.attention_check"), lookup(record.recipe, "model.lora")
    what = "the adapter" if lora else "the new weights"
    return Finding(
        name="weights_not_synced",
        severity="problem",
        title=f"The sampler does not get {what}: it goes on sampling from an old policy.",
        evidence=f"{said}.",
        change=change_of("model.attention_check", check, "true, which refuses such steps; then mend the engine")
        if check is False
        else "no setting: the engine must load the weights after every step (on_new_weights)",
        stage=stage,
        step=step,
    )


def _lag(record: RunRecord, stage: StageRows) -> str:
    """Where the rollouts of the last steps were all sampled by older versions than the step began with."""
    after = {int(row["step"]): row.get("policy_version") for row in stage.steps}
    lags = []
    for rollouts in last_rollouts(record, stage.name, 3):
        began = after.get(rollouts[0].step - 1)
        if began is None or rollouts[0].stage != stage.name:
            continue
        lags.append(int(began) - max(r.policy_version for r in rollouts))
    if not lags or min(lags) <= 0:
        return ""
    return f"the rollouts of the last {len(lags)} steps come from a policy {max(lags)} updates old"


def _gap_growth(stage: StageRows) -> str:
    gaps = numbers(stage.steps, "logprob_gap_mean")
    if len(gaps) < 3:
        return ""
    last = median(gaps[-max(2, window(stage.steps)) :])
    if last <= max(GAP_LARGE, GAP_GREW * gaps[0]) or gaps[0] > GAP_AT_START:
        return ""
    return (
        f"the log-probabilities of sampler and trainer differ by {last:.3f} nats a token at the end, and by "
        f"{gaps[0]:.2g} in the first of {len(gaps)} steps"
    )


def _all_stages(record: RunRecord) -> list[StageRows]:
    found: list[StageRows] = []
    for table in record.stages:
        name: Any = table.get("name", "")
        found.append(StageRows(name=name, table=table, steps=record.steps(name), collections=record.collections(name)))
    return found
