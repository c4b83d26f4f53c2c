"""One GRPO optimizer step by TRL's `GRPOTrainer`: the peer's side of `step_vs_trl.py`.

Runs in an environment of its own (the driver makes it). The step is timed from the trainer's `on_step_begin` to its
`on_step_end`; TRL generates inside that interval, so it holds generation, scoring, forward, backward and AdamW.
The moment at which the reward function returns splits it in two. Everything used here is TRL's public interface.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
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


class StepTimer(TrainerCallback):
    """Starts and stops the stopwatch around the last optimizer step, and keeps TRL's own count of its tokens."""

    def __init__(self, stopwatch: Stopwatch, warm_up_steps: int, completion_lengths: list[int]) -> None:
        self.stopwatch = stopwatch
        self.warm_up_steps = warm_up_steps
        self.completion_lengths = completion_lengths
        self.num_tokens = self.num_tokens_before = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.warm_up_steps:
            self.completion_lengths.clear()
            self.num_tokens_before = int(state.num_input_tokens_seen)
            self.stopwatch.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stopwatch.stop()
        self.num_tokens = int(state.num_input_tokens_seen) - self.num_tokens_before


def grpo_config(workload: Workload, *, micro_batch: int, num_steps: int, output_dir: str) -> GRPOConfig:
    """TRL's settings for the workload. `micro_batch` rows go through one forward; their gradients accumulate.

    Raises:
        ValueError: if the rows of the step are not a multiple of `micro_batch`.
    """
    rows = workload.num_completions
    if rows % micro_batch:
        raise ValueError(f"--micro-batch {micro_batch} does not divide the {rows} rows of the step")
    return GRPOConfig(
        output_dir=output_dir,
        use_cpu=True,
        bf16=False,
        fp16=False,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rows // micro_batch,
        num_generations=workload.group_size,
        max_completion_length=workload.completion_tokens,
        generation_kwargs={"min_new_tokens": workload.completion_tokens},
        temperature=TEMPERATURE,
        learning_rate=LEARNING_RATE,
        max_grad_norm=MAX_GRAD_NORM,
        beta=0.0,
        loss_type="grpo",
        gradient_checkpointing=False,
        max_steps=num_steps,
        seed=workload.seed,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def main() -> None:
    """Load, take the steps, print the report of the last one."""
    model_folder, workload, args = parse_worker_arguments(
        __doc__,
        {
            "micro-batch": (0, "rows a forward; 0: the whole step"),
            "warm-up-steps": (0, "whole steps made before the measured one"),
        },
    )
    tokenizer = AutoTokenizer.from_pretrained(model_folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    prompts = build_prompts(tokenizer, workload)
    stopwatch = Stopwatch()
    completion_lengths: list[int] = []
    timer = StepTimer(stopwatch, args.warm_up_steps, completion_lengths)

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        completion_lengths.extend(len(ids) for ids in completion_ids)
        rewards = [token_reward(ids) for ids in completion_ids]
        stopwatch.mark_rollout_done()
        return rewards

    with tempfile.TemporaryDirectory() as output_dir:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=grpo_config(
                workload,
                micro_batch=args.micro_batch or workload.num_completions,
                num_steps=args.warm_up_steps + 1,
                output_dir=output_dir,
            ),
            train_dataset=Dataset.from_list([{"prompt": messages} for messages in prompts]),
            processing_class=tokenizer,
            callbacks=[timer],
        )
        before = next(model.parameters()).detach().clone()
        trainer.train()
    if torch.equal(before, next(model.parameters())):
        raise ValueError("trl: the step did not change the weights, so it is not the step to be measured")
    print_report(
        side="trl",
        workload=workload,
        stopwatch=stopwatch,
        prompt_ids=[render(tokenizer, messages) for messages in prompts],
        prompt_tokens=timer.num_tokens - sum(completion_lengths),
        completion_lengths=completion_lengths,
        threads=torch.get_num_threads(),
        packages=("torch", "transformers", "trl"),
    )


if __name__ == "__main__":
    main()
