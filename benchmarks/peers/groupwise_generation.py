"""Generation by Groupwise: our side of `generation_vs_peers.py`.

`TorchEngine.generate` as the training loop calls it: laying out the weights and prefilling the prompts are inside the
time, and the engine is told of new weights before each call. The model has no end tokens, so that every row decodes to
the limit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from generation import measure_calls
from workload import TEMPERATURE, build_prompts, parse_worker_arguments, render

from groupwise.models import load_model, why_no_tree
from groupwise.rollout import Sampling, TorchEngine
from groupwise.types import Prompt


def main() -> None:
    """Load, warm up, time the calls, print the report."""
    model_folder, workload, args = parse_worker_arguments(__doc__, {"calls": (3, "generation calls to time")})
    loaded = load_model(str(model_folder), device="cpu", dtype="float32")
    prompt_ids = [render(loaded.tokenizer, messages) for messages in build_prompts(loaded.tokenizer, workload)]
    engine = TorchEngine(replace(loaded, end_token_ids=()), use_tree=why_no_tree(loaded.model) is None)

    def generate(prompts: list[list[int]], max_tokens: int, call: int) -> list[list[int]]:
        wanted = [Prompt(task_id=f"p{number}", token_ids=tuple(ids)) for number, ids in enumerate(prompts)]
        sampling = Sampling(max_tokens=max_tokens, temperature=TEMPERATURE)
        groups = engine.generate(wanted, workload.group_size, sampling, seed=workload.seed + call)
        return [list(completion.token_ids) for group in groups for completion in group]

    measure_calls(
        generate,
        side="groupwise",
        workload=workload,
        num_calls=args.calls,
        prompt_ids=prompt_ids,
        new_weights=engine.set_policy_version,
        threads=torch.get_num_threads(),
        packages=("torch", "transformers", "groupwise"),
    )


if __name__ == "__main__":
    main()
