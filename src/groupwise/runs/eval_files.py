"""An evaluation as files, laid out as lm-evaluation-harness lays out its own, so that its readers find their way.

    FOLDER/results_2026-11-30T19-31-12.123456.json              rates by task and metric, settings, seeds, versions
    FOLDER/samples_shop-sql_2026-11-30T19-31-12.123456.jsonl    one line a prompt: what was asked, said and judged

A metric's name is "metric,filter"; the filters here are "sampled" and "greedy", which are never mixed. What the layout
has no place for stands under "groupwise" in the results, and under names of our own in a sample: task_id, outcomes,
rewards, reasons, stops, num_tokens, greedy_resp and greedy_outcome. An outcome of null could not be scored: it counts
in no rate. There is no hash of a repository in the files: git_hash is null.

The samples are written first, so that a results file always has them beside it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.directory import write_atomic
from groupwise.runs.pass_at_k import k_values, pass_all_k, pass_at_k
from groupwise.runs.recorder import readable_prompt
from groupwise.types import Group

SAMPLED, GREEDY = "sampled", "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedModel:
    """What was measured, and how.

    Example:
        EvaluatedModel(task="shop-sql", model="HuggingFaceTB/SmolLM2-135M", kind="groupwise", verifier="sql",
                       verifier_version="3f2a...", samples_per_prompt=4, num_original=80, seed=17,
                       generation={"temperature": 1.0, "max_gen_toks": 64}, versions=software_versions())
    """

    task: str
    """The recipe's name."""
    model: str
    """Folder, hub id, or the name at an endpoint."""
    kind: str
    """The engine: "groupwise" in this process, "openai-compatible" at an endpoint."""
    verifier: str
    """Its kind."""
    verifier_version: str
    samples_per_prompt: int
    num_original: int
    """Held-out prompts that the recipe has; fewer may have been used."""
    seed: int
    generation: Mapping[str, Any]
    """How samples were drawn, under the names of the layout: temperature, top_p, max_gen_toks, until."""
    versions: Mapping[str, str]


def write_evaluation(
    folder: str | Path,
    about: EvaluatedModel,
    *,
    groups: Sequence[Group],
    greedy_groups: Sequence[Group],
    golds: Mapping[str, str],
    facts: Mapping[str, Any],
    now: datetime | None = None,
) -> tuple[Path, Path]:
    """(results file, samples file). facts are the numbers of the evaluation, as a run records them in its event; golds
    are the right completions by task id, as far as there are any.

    Raises:
        DataError: if the folder cannot be written.
    """
    stamp = (now or datetime.now()).isoformat().replace(":", "-")
    task = re.sub(r"[^\w.-]", "_", about.task)
    results, samples = Path(folder) / f"results_{stamp}.json", Path(folder) / f"samples_{task}_{stamp}.jsonl"
    lines = _sample_lines(about, groups, greedy_groups, golds)
    content = _results(about, task, lines, groups, greedy_groups)
    content["groupwise"] = {**facts, "model": about.model, "samples_file": samples.name, "versions": about.versions}
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_atomic(samples, "".join(_json(line) + "\n" for line in lines))
        write_atomic(results, _json(content, indent=2) + "\n")
    except OSError as error:
        raise DataError(f"{str(folder)!r} cannot hold an evaluation ({error}); give a folder to write to") from error
    return results, samples


def _sample_lines(
    about: EvaluatedModel, groups: Sequence[Group], greedy_groups: Sequence[Group], golds: Mapping[str, str]
) -> list[dict[str, Any]]:
    greedy = {group.task.id: group.rollouts[0] for group in greedy_groups}
    lines: list[dict[str, Any]] = []
    for number, group in enumerate(groups or greedy_groups):
        task, rollouts = group.task, group.rollouts
        texts, one = [rollout.completion.text for rollout in rollouts], greedy.get(task.id)
        prompt, target = readable_prompt(task.prompt), golds.get(task.id, "")
        doc = {"prompt": task.prompt, **task.columns}
        lines.append(
            {
                "doc_id": number,
                "doc": doc,
                "target": target,
                "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": about.generation}},
                "resps": [texts],
                "filtered_resps": [texts],
                "filter": SAMPLED if groups else GREEDY,
                "metrics": ["pass@1"],
                "doc_hash": _hash(_json(doc)),
                "prompt_hash": _hash(prompt),
                "target_hash": _hash(target),
                "pass@1": group.num_solved / group.num_scored if group.num_scored else None,
                "task_id": task.id,
                "outcomes": [rollout.verdict.outcome for rollout in rollouts] if groups else [],
                "rewards": [rollout.verdict.reward for rollout in rollouts],
                "reasons": [rollout.verdict.reason for rollout in rollouts],
                "stops": [rollout.completion.stop.value for rollout in rollouts],
                "num_tokens": [rollout.completion.num_tokens or None for rollout in rollouts],
                "greedy_resp": None if one is None else one.completion.text,
                "greedy_outcome": None if one is None else one.verdict.outcome,
            }
        )
    return lines


def _results(
    about: EvaluatedModel,
    task: str,
    lines: Sequence[Mapping[str, Any]],
    groups: Sequence[Group],
    greedy_groups: Sequence[Group],
) -> dict[str, Any]:
    """The file but for its part "groupwise", in the layout's own order."""
    rates = _metrics(groups, about.samples_per_prompt, SAMPLED) | _metrics(greedy_groups, 1, GREEDY)
    metrics = list(dict.fromkeys(name.split(",")[0] for name in rates if "_stderr" not in name))
    return {
        "results": {task: {"alias": task, **rates}},
        "group_subtasks": {task: []},
        "configs": {
            task: {
                "task": task,
                "output_type": "generate_until",
                "num_fewshot": 0,
                "repeats": about.samples_per_prompt,
                "generation_kwargs": about.generation,
                "metric_list": [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in metrics],
                "filter_list": [{"name": name} for name in (SAMPLED, GREEDY)],
                "metadata": {"verifier": about.verifier, "version": about.verifier_version},
            }
        },
        "versions": {task: about.verifier_version},
        "n-shot": {task: 0},
        "higher_is_better": {task: dict.fromkeys(metrics, True)},
        "n-samples": {task: {"original": about.num_original, "effective": len(lines)}},
        "config": {
            "model": about.kind,
            "model_args": f"pretrained={about.model}",
            "batch_size": None,
            "device": None,
            "limit": None if about.num_original == len(lines) else len(lines),
            "gen_kwargs": about.generation,
            "random_seed": about.seed,
            "torch_seed": about.seed,
        },
        "git_hash": None,
        "date": time.time(),
        "task_hashes": {
            task: _hash("".join(line[name] for line in lines for name in ("doc_hash", "prompt_hash", "target_hash")))
        },
        "model_source": about.kind,
        "model_name": about.model,
        "model_name_sanitized": re.sub(r"[^\w.-]", "__", about.model),
    }


def _metrics(groups: Sequence[Group], num_samples: int, name: str) -> dict[str, Any]:
    """Means over prompts with their standard errors, of prompts with enough scored completions."""
    counts = [(group.num_scored, group.num_solved) for group in groups]
    found: dict[str, Any] = {}
    kinds: tuple[tuple[str, Callable[[int, int, int], float]], ...] = (("pass@", pass_at_k), ("pass^", pass_all_k))
    for k in k_values(num_samples) if groups else ():
        for symbol, estimate in kinds:
            rates = [estimate(scored, solved, k) for scored, solved in counts if scored >= k]
            if (symbol == "pass^" and k == 1) or not rates:
                continue  # pass^1 is pass@1
            error = statistics.stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else "N/A"
            found[f"{symbol}{k},{name}"] = math.fsum(rates) / len(rates)
            found[f"{symbol}{k}_stderr,{name}"] = error
    return found


def _json(value: Any, indent: int | None = None) -> str:
    """JSON text; what JSON lacks becomes its str, a lone surrogate its escape."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
