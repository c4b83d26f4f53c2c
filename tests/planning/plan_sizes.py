"""Model shapes and machines that several tests of planning use."""

from groupwise.planning.hardware import Hardware
from groupwise.planning.model_shape import ModelShape
from groupwise.planning.workload import Workload

SMOLLM2_135M = ModelShape(
    num_layers=30,
    hidden=576,
    intermediate=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab=49152,
    tied_embeddings=True,
)
LLAMA2_7B = ModelShape(
    num_layers=32,
    hidden=4096,
    intermediate=11008,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    vocab=32000,
    tied_embeddings=False,
)
QWEN25_7B = ModelShape(
    num_layers=28,
    hidden=3584,
    intermediate=18944,
    num_heads=28,
    num_kv_heads=4,
    head_dim=128,
    vocab=152064,
    tied_embeddings=False,
    extra_params=28 * (3584 + 2 * 512),
)
QWEN3_8B = ModelShape(
    num_layers=36,
    hidden=4096,
    intermediate=12288,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab=151936,
    tied_embeddings=False,
    head_norms=True,
)
QWEN3_0_6B = ModelShape(
    num_layers=28,
    hidden=1024,
    intermediate=3072,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    vocab=151936,
    tied_embeddings=True,
    head_norms=True,
)
QWEN3_1_7B = ModelShape(
    num_layers=28,
    hidden=2048,
    intermediate=6144,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    vocab=151936,
    tied_embeddings=True,
    head_norms=True,
)
QWEN3_4B = ModelShape(
    num_layers=36,
    hidden=2560,
    intermediate=9728,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab=151936,
    tied_embeddings=True,
    head_norms=True,
)

TWO_CORES = Hardware(
    name="two cores",
    memory_bytes=16 << 30,
    bytes_per_number=4,
    train_flops=1.15e11,
    prefill_flops=1.6e11,
    decode_flops=1.0e11,
    decode_bytes_per_s=1.8e10,
    update_bytes_per_s=1.2e10,
    process_bytes=600_000_000,
    measured=True,
)
"""The machine of benchmarks/README.md, rates chosen to fit its job a."""

ROUND = Hardware(
    name="round numbers",
    memory_bytes=1000,
    bytes_per_number=2,
    train_flops=10.0,
    prefill_flops=20.0,
    decode_flops=5.0,
    decode_bytes_per_s=4.0,
    update_bytes_per_s=2.0,
    process_bytes=7,
    price_per_hour=3.6,
)

ONE_LAYER = ModelShape(
    num_layers=1,
    hidden=2,
    intermediate=3,
    num_heads=1,
    num_kv_heads=1,
    head_dim=2,
    vocab=5,
    tied_embeddings=True,
)
"""34 weights in the body (4 * 4 + 3 * 6), 10 in the LM head, 50 parameters with three norms of 2."""


def workload(
    prompts: int = 2,
    group: int = 8,
    prompt: float = 343,
    trunk: float = 0,
    completion: float = 32,
    *,
    longest: float | None = None,
    live: float = 1.0,
    reference: bool = False,
    epochs: int = 1,
    microbatch: int = 4096,
    limit: int | None = None,
    steps: int = 1,
) -> Workload:
    """A workload; completions are equally long unless `longest` says otherwise."""
    longest = completion if longest is None else longest
    return Workload(
        prompts_per_step=prompts,
        group_size=group,
        prompt_tokens=prompt,
        trunk_tokens=trunk,
        completion_tokens=completion,
        longest_completion=longest,
        live_share=live,
        has_reference=reference,
        epochs=epochs,
        tokens_per_microbatch=microbatch,
        max_completion_tokens=int(-(-longest // 1)) if limit is None else limit,
        steps=steps,
    )
