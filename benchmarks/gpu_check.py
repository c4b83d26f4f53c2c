"""Whether tree attention on this GPU is right and what it saves: FlexAttention, blocks of queries, and a padded batch.

    python benchmarks/gpu_check.py [--size tiny|mid] [--output FILE]

Right: the last hidden states and the gradient of every weight under FlexPlan, against TreePlan in float32 on the same
random weights. In bfloat16 both plans round, so there FlexPlan is allowed twice the error of TreePlan.

Fast: forward and backward of the log-probabilities of one batch of groups, by each plan and as a padded batch, in
bfloat16. The time is the median after warming up (FlexAttention compiles then), the memory the peak of a repetition.
The models are random Llamas, made on the spot; nothing is downloaded. Ends with 1 where a check fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.models import ScoredSequence, TokenTree, padded_logprobs, tree_logprobs
from groupwise.models.flex_attention import FlexPlan
from groupwise.models.tree_attention import AttentionPlan, TreePlan, planned_forward

RESULT = Path(__file__).resolve().parent / "results" / "gpu_check.json"
SIZES = {
    # layers, width, heads, key heads, vocabulary; heads of 16 and 64
    "tiny": (2, 64, 4, 2, 512),
    "mid": (12, 768, 12, 4, 32_000),
}
FLOAT32_TOLERANCE = 1e-4
"""Relative; both sides compute in float32 proper, without TF32."""
BFLOAT16_SLACK = 2.0
"""Error of FlexPlan over error of TreePlan, both against float32."""

MakePlan = Callable[[TokenTree, torch.device], AttentionPlan]
PLANS: dict[str, MakePlan] = {
    "flex": lambda tree, device: FlexPlan(tree, device=device),
    "blocks": lambda tree, device: TreePlan(tree, device=device),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all", help="which models to check (all)")
    parser.add_argument("--repetitions", type=int, default=10, help="timed repetitions, after 3 to warm up (10)")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes (results/gpu_check.json)")
    batch = parser.add_argument_group("batch that is timed")
    batch.add_argument("--num-prompts", type=int, default=4)
    batch.add_argument("--group-size", type=int, default=8)
    batch.add_argument("--shared-tokens", type=int, default=256, help="what all prompts begin with (256)")
    batch.add_argument("--prompt-tokens", type=int, default=1024, help="a whole prompt (1024)")
    batch.add_argument("--completion-tokens", type=int, default=128)
    return parser.parse_args()


def build_model(size: str, dtype: torch.dtype, device: torch.device) -> LlamaForCausalLM:
    """The same random weights for every dtype."""
    layers, width, heads, key_heads, vocabulary = SIZES[size]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=1 << 15,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval().to(device=device, dtype=dtype)


def batch_of_groups(
    num_prompts: int, group_size: int, shared: int, prompt: int, completion: int, vocabulary: int
) -> list[ScoredSequence]:
    """Random groups under one system turn."""
    generator = torch.Generator().manual_seed(1)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())

    system = ids(shared)
    prompts = [system + ids(prompt - shared) for _ in range(num_prompts)]
    return [
        ScoredSequence(token_ids=p + ids(completion), prompt_length=len(p)) for p in prompts for _ in range(group_size)
    ]


def hidden_and_gradients(model: LlamaForCausalLM, tree: TokenTree, make_plan: MakePlan) -> dict[str, Tensor]:
    """Last hidden states, and the gradient of their weighted sum for every weight of the body; in float32."""
    device = model.device
    hidden = planned_forward(model, tree.token_ids.to(device), tree.depth.to(device), make_plan(tree, device)).float()
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2)).to(device)
    parameters = dict(model.base_model.named_parameters())
    gradients = torch.autograd.grad((hidden * weights).sum(), list(parameters.values()))
    return {"hidden states": hidden.detach()} | {n: g.float() for n, g in zip(parameters, gradients, strict=True)}


def largest_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Of all tensors, the largest |found - expected| in Frobenius norm relative to |expected|."""
    return max(float((found[n] - e).norm() / e.norm().clamp_min(1e-12)) for n, e in expected.items())


def check(size: str, device: torch.device) -> list[dict[str, Any]]:
    """One row a dtype: the errors of both plans against TreePlan in float32, and whether they pass."""
    sequences = batch_of_groups(3, 4, 40, 150, 60, SIZES[size][4])
    sequences.append(ScoredSequence(token_ids=(1, 2), prompt_length=1))  # a second root
    tree = TokenTree.build([s.token_ids for s in sequences])
    exact = hidden_and_gradients(build_model(size, torch.float32, device), tree, PLANS["blocks"])
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        model = build_model(size, dtype, device)
        errors = {name: largest_error(hidden_and_gradients(model, tree, plan), exact) for name, plan in PLANS.items()}
        allowed = FLOAT32_TOLERANCE if dtype == torch.float32 else BFLOAT16_SLACK * errors["blocks"]
        row = {"size": size, "dtype": str(dtype).removeprefix("torch."), "nodes": tree.num_nodes}
        rows.append({**row, **errors, "allowed": allowed, "passed": errors["flex"] <= allowed})
    return rows


def seconds_and_memory(run: Callable[[], Tensor], model: LlamaForCausalLM, repetitions: int) -> tuple[float, float]:
    """Median seconds of forward and backward, and the peak of allocated GiB."""
    seconds = []
    for repetition in range(3 + repetitions):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        run().sum().backward()
        torch.cuda.synchronize()
        if repetition >= 3:
            seconds.append(time.perf_counter() - started)
    return median(seconds), torch.cuda.max_memory_allocated() / 2**30


def measure(size: str, device: torch.device, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a way to compute the batch: the bodies under both plans and padded, then whole log-probabilities."""
    model = build_model(size, torch.bfloat16, device)
    sequences = batch_of_groups(
        args.num_prompts,
        args.group_size,
        args.shared_tokens,
        args.prompt_tokens,
        args.completion_tokens,
        SIZES[size][4],
    )
    tree = TokenTree.build([s.token_ids for s in sequences])
    token_ids, positions = tree.token_ids.to(device), tree.depth.to(device)
    padded_ids = torch.tensor([s.token_ids for s in sequences], device=device)

    def under(make_plan: MakePlan) -> Callable[[], Tensor]:
        return lambda: planned_forward(model, token_ids, positions, make_plan(tree, device))

    ways: dict[str, tuple[int, Callable[[], Tensor]]] = {
        f"body, {name}": (tree.num_nodes, under(make_plan)) for name, make_plan in PLANS.items()
    }
    ways["body, padded"] = (
        padded_ids.numel(),
        lambda: model.base_model(padded_ids, use_cache=False).last_hidden_state,
    )
    ways["log-probabilities, tree"] = (tree.num_nodes, lambda: tree_logprobs(model, sequences, temperature=1.0))
    ways["log-probabilities, padded"] = (
        padded_ids.numel(),
        lambda: padded_logprobs(model, sequences, temperature=1.0),
    )
    rows = []
    for name, (num_tokens, run) in ways.items():
        seconds, memory = seconds_and_memory(run, model, args.repetitions)
        rows.append({"size": size, "way": name, "tokens": num_tokens, "seconds": seconds, "peak_gib": memory})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Rows with the same keys as a Markdown table."""
    cells = [[f"{v:.2e}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    args = parse_arguments()
    if not torch.cuda.is_available():
        raise SystemExit(
            "gpu_check: torch finds no CUDA GPU here, and there is nothing to check without one.\n"
            "  Run it on a machine with an NVIDIA GPU and a torch that was built for CUDA."
        )
    device = torch.device("cuda")
    sizes = list(SIZES) if args.size == "all" else [args.size]
    checks = [row for size in sizes for row in check(size, device)]
    print(table(checks), flush=True)
    times = [row for size in sizes for row in measure(size, device, args)]
    print("\n" + table(times), flush=True)
    document = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "arguments": {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()},
        "checks": checks,
        "times": times,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if not all(row["passed"] for row in checks):
        sys.exit("gpu_check: FlexAttention differs from the exact attention; see the table.")


if __name__ == "__main__":
    main()
