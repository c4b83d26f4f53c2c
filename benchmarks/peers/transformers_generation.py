"""Generation by `transformers`' own `generate`: a peer's side of `generation_vs_peers.py`.

Prompts have equal lengths, so no row is padded. Sampling is from the whole distribution, as in training: top_k is off.
"""

from __future__ import annotations

import torch
from generation import measure_calls
from transformers import AutoModelForCausalLM, AutoTokenizer
from workload import TEMPERATURE, build_prompts, parse_worker_arguments, render


def main() -> None:
    """Load, warm up, time the calls, print the report."""
    model_folder, workload, args = parse_worker_arguments(__doc__, {"calls": (3, "generation calls to time")})
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    prompt_ids = [render(tokenizer, messages) for messages in build_prompts(tokenizer, workload)]

    def generate(prompts: list[list[int]], max_tokens: int, call: int) -> list[list[int]]:
        torch.manual_seed(workload.seed + call)
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            rows = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=TEMPERATURE,
                top_k=0,
                top_p=1.0,
                num_return_sequences=workload.group_size,
                min_new_tokens=max_tokens,
                max_new_tokens=max_tokens,
                pad_token_id=tokenizer.pad_token_id or 0,
            )
        completions = rows[:, ids.shape[1] :].tolist()
        tokenizer.batch_decode(completions)  # the other sides return text too
        return completions

    measure_calls(
        generate,
        side="transformers",
        workload=workload,
        num_calls=args.calls,
        prompt_ids=prompt_ids,
        new_weights=lambda call: None,
        threads=torch.get_num_threads(),
        packages=("torch", "transformers"),
    )


if __name__ == "__main__":
    main()
