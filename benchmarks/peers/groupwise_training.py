"""The training phase alone: the worker of `training_flops.py`.

Completions are random token ids, so that nothing is generated. The products of the same sizes are timed before and
after, and the better rate of the two counts as the peak: an interruption while measuring it would flatter us.
"""

from __future__ import annotations

import json
import random
import time

import torch
from flops import count_tree, gemm_peak, sizes_of, training_flops
from groupwise_step import judged, update
from workload import LEARNING_RATE, MAX_GRAD_NORM, build_prompts, digest, parse_worker_arguments, peak_rss_bytes, render

from groupwise.models import load_model, padded_scores, tree_scores, why_no_tree
from groupwise.models.logprobs import ScoreFunction
from groupwise.training.optim import OptimOptions, build_optimizer
from groupwise.types import Completion, Group, Prompt, Task


def main() -> None:
    """Load, measure the peak, take the steps, measure the peak again, print the report."""
    options = {"warm-steps": (2, "steps after the first; the median counts")}
    model_folder, workload, args = parse_worker_arguments(__doc__, options)
    loaded = load_model(str(model_folder), device="cpu", dtype="float32")
    prompt_ids = [render(loaded.tokenizer, messages) for messages in build_prompts(loaded.tokenizer, workload)]
    rng = random.Random(workload.seed)
    sizes = sizes_of(loaded.model)

    def completion() -> Completion:
        ids = tuple(rng.randrange(sizes.vocabulary) for _ in range(workload.completion_tokens))
        return Completion(text="", token_ids=ids, sampler_logprobs=(0.0,) * len(ids))

    groups = [
        Group(
            task=Task(id=f"p{number}", prompt=""),
            prompt=Prompt(task_id=f"p{number}", token_ids=tuple(ids)),
            rollouts=tuple(judged(completion()) for _ in range(workload.group_size)),
        )
        for number, ids in enumerate(prompt_ids)
    ]
    sequences = [
        (group.prompt.token_ids + rollout.completion.token_ids, len(group.prompt.token_ids))
        for group in groups
        for rollout in group.rollouts
    ]
    counts = count_tree(sequences)
    useful = training_flops(sizes, counts)
    optim = OptimOptions(lr=LEARNING_RATE, max_grad_norm=MAX_GRAD_NORM)
    optimizer = build_optimizer(loaded.model, optim)
    has_tree = why_no_tree(loaded.model) is None
    scores: ScoreFunction = tree_scores if has_tree else padded_scores

    peaks = [gemm_peak(sizes, counts)]
    seconds = []
    for _ in range(1 + args.warm_steps):
        started = time.perf_counter()
        update(loaded, optimizer, groups, workload, scores=scores, tokens_per_microbatch=optim.tokens_per_microbatch)
        seconds.append(time.perf_counter() - started)
    peaks.append(gemm_peak(sizes, counts))

    peak = max(peaks, key=lambda rates: rates["flops_per_second"])
    warm = sorted(seconds[1:])[len(seconds[1:]) // 2] if args.warm_steps else seconds[0]
    print(
        json.dumps(
            {
                "cold_seconds": seconds[0],
                "warm_seconds": warm,
                "step_seconds": seconds,
                "useful_flops": useful,
                "nodes": counts.nodes,
                "pairs": counts.pairs,
                "head_rows": counts.heads,
                "peak_flops_per_second": peak["flops_per_second"],
                "product_flops_per_second": {name: rate for name, rate in peak.items() if name != "flops_per_second"},
                "warm_share_of_peak": useful / warm / peak["flops_per_second"],
                "cold_share_of_peak": useful / seconds[0] / peak["flops_per_second"],
                "prompt_digest": digest(prompt_ids),
                "threads": torch.get_num_threads(),
                "peak_rss_bytes": peak_rss_bytes(),
            }
        )
    )


if __name__ == "__main__":
    main()
