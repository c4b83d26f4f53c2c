"""One GRPO optimizer step by Groupwise: our side of `step_vs_trl.py`.

It calls what the training loop calls: `TorchEngine.generate`, the advantages, batch and loss of `training/grpo.py`,
`training/step.py` and our AdamW. It differs from a run in two places, both so that the step is TRL's step:

- A completion must have exactly the agreed length, so the engine is given a model without end tokens: every row then
  decodes to the limit. TRL forbids the end token before the last one instead; with either no row stops early. An end
  token that is drawn here stays in the completion as an ordinary token.
- The reward is a function of token ids, not a verifier, so the groups are put together here.

Not timed: the comparison of the token tree with the model's own attention (`training/numerics.py`). A run makes it
once, before its first step; here it is made before the stopwatch starts and its result is printed on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from workload import (
    LEARNING_RATE,
    MAX_GRAD_NORM,
    TEMPERATURE,
    Stopwatch,
    Workload,
    build_prompts,
    parse_worker_arguments,
    print_report,
    render,
    token_reward,
)

from groupwise.models import LoadedModel, ScoredSequence, load_model, padded_scores, tree_scores, why_no_tree
from groupwise.models.logprobs import ScoreFunction
from groupwise.rollout import Sampling, TorchEngine
from groupwise.training.grpo import GrpoOptions, loss_function, make_batch, step_advantages
from groupwise.training.numerics import check_logprobs
from groupwise.training.optim import OptimOptions, build_optimizer
from groupwise.training.step import optimizer_step
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Task, Verdict


def collect(engine: TorchEngine, prompts: Sequence[Prompt], workload: Workload) -> list[Group]:
    """Generate and score: `workload.group_size` rollouts of each prompt."""
    sampling = Sampling(max_tokens=workload.completion_tokens, temperature=TEMPERATURE)
    completions = engine.generate(prompts, workload.group_size, sampling, seed=workload.seed)
    return [
        Group(task=Task(id=prompt.task_id, prompt=""), prompt=prompt, rollouts=tuple(judged(c) for c in group))
        for prompt, group in zip(prompts, completions, strict=True)
    ]


def judged(completion: Completion) -> Rollout:
    """The completion with the workload's reward. It counts as solved where that is above one half."""
    reward = token_reward(completion.token_ids)
    verdict = Verdict(status=Status.SCORED, reward=reward, outcome=reward > 0.5, reason="token_reward")
    return Rollout(completion=completion, verdict=verdict)


def update(
    loaded: LoadedModel,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    workload: Workload,
    *,
    scores: ScoreFunction,
    tokens_per_microbatch: int,
) -> None:
    """Advantages, forward, backward and AdamW.

    Raises:
        ValueError: if no group has a gradient, because there is then no step to measure.
    """
    options = GrpoOptions()  # std scale, sequence mean, clip 0.2, no KL term: TRL's loss_type "grpo" with beta 0
    batch = make_batch(
        groups, step_advantages(groups, options), options, max_completion_tokens=workload.completion_tokens
    )
    if batch is None or len(batch.sequences) != workload.num_completions:
        raise ValueError("groupwise: a group of equal rewards would be left out; choose another --seed")
    optimizer_step(
        loaded.model,
        optimizer,
        batch,
        loss_function(options),
        scores=scores,
        temperature=TEMPERATURE,
        tokens_per_microbatch=tokens_per_microbatch,
        max_grad_norm=MAX_GRAD_NORM,
    )


def main() -> None:
    """Load, compare the two forwards, take one step, print the report."""
    model_folder, workload, args = parse_worker_arguments(
        __doc__, {"warm-up-steps": (0, "whole steps made before the measured one")}
    )
    loaded = load_model(str(model_folder), device="cpu", dtype="float32")
    prompt_ids = [render(loaded.tokenizer, messages) for messages in build_prompts(loaded.tokenizer, workload)]
    prompts = [Prompt(task_id=f"p{n}", token_ids=tuple(ids)) for n, ids in enumerate(prompt_ids)]
    has_tree = why_no_tree(loaded.model) is None
    scores: ScoreFunction = tree_scores if has_tree else padded_scores
    probe = [ScoredSequence(token_ids=(*ids, *ids[-4:]), prompt_length=len(ids)) for ids in map(tuple, prompt_ids[:2])]
    gap = check_logprobs(loaded.model, probe, scores=scores)
    print(f"token tree: {has_tree}, largest difference from the padded forward: {gap:.1e} nats", file=sys.stderr)
    optim = OptimOptions(lr=LEARNING_RATE, max_grad_norm=MAX_GRAD_NORM)
    engine = TorchEngine(replace(loaded, end_token_ids=()), use_tree=has_tree)
    optimizer = build_optimizer(loaded.model, optim)
    before = next(loaded.model.parameters()).detach().clone()

    stopwatch = Stopwatch()
    for number in range(args.warm_up_steps + 1):
        engine.set_policy_version(number)
        stopwatch.start()
        groups = collect(engine, prompts, workload)
        stopwatch.mark_rollout_done()
        update(
            loaded,
            optimizer,
            groups,
            workload,
            scores=scores,
            tokens_per_microbatch=optim.tokens_per_microbatch,
        )
        stopwatch.stop()

    if torch.equal(before, next(loaded.model.parameters())):
        raise ValueError("groupwise: the step did not change the weights, so it is not the step to be measured")
    rollouts = [(group, rollout) for group in groups for rollout in group.rollouts]
    print_report(
        side="groupwise",
        workload=workload,
        stopwatch=stopwatch,
        prompt_ids=prompt_ids,
        prompt_tokens=sum(len(group.prompt.token_ids) for group, _ in rollouts),
        completion_lengths=[len(rollout.completion.token_ids) for _, rollout in rollouts],
        threads=torch.get_num_threads(),
        packages=("torch", "transformers", "groupwise"),
    )


if __name__ == "__main__":
    main()
