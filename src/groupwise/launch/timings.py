"""Times the pieces of a step on this machine, with the code that a run uses and a model of random weights.

    prefill   TorchEngine from its call to the first tokens; laying out the weights for sampling is part of it
    decode    the steps of TorchEngine between two tokens, at a few rows and at many
    train     tree_logprobs, the loss, and its backward pass over one token tree
    update    gradient clipping and AdamW

Each is run once before it is timed: first calls allocate. Rates are made of the times in hardware_rates.py.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from groupwise.models import LoadedModel, ScoredSequence, loss_mask, tree_logprobs
from groupwise.models.tiny import byte_tokenizer
from groupwise.objective import aggregate, negative_log_likelihood
from groupwise.planning.model_shape import ModelShape
from groupwise.rollout import Sampling, TorchEngine
from groupwise.training.optim import OptimOptions, build_optimizer
from groupwise.types import Prompt

SEED = 0
Note = Callable[[str], None]
"""Called with the name of a piece each time that a run of it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is computed. A decode step has few_prompts * group rows, or many_prompts * group.

    Example:
        Sizes(trunk=128, branch=24, group=8, prompts=4, completion=9, few_prompts=1, many_prompts=8, decode_tokens=24,
              repetitions=3)
    """

    trunk: int
    """Tokens that all prompts share."""
    branch: int
    """Tokens of each prompt behind them."""
    group: int
    """Completions of a prompt."""
    prompts: int
    """Prompts whose completions are trained, in one token tree."""
    completion: int
    """Tokens of a trained completion."""
    few_prompts: int
    many_prompts: int
    decode_tokens: int
    """Tokens of a sampled completion, at least 4."""
    repetitions: int
    """Timed runs of each piece but decoding, where every step is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of every run of a piece, the first left out.

    Example:
        Times(seconds=(1.31, 1.29, 1.40)).median     # 1.31
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle run."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Width of the middle half of the runs / median; 0 for a single one."""
        if len(self.seconds) < 2:
            return 0.0
        lower, _, upper = quantiles(self.seconds, n=4, method="inclusive")
        return (upper - lower) / self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """All times of one machine, for the work that Sizes describes."""

    prefill: Times
    """Of the prompts of the larger decode batch."""
    few: Times
    """Of each step of the smaller decode batch."""
    many: Times
    """Of each step of the larger one."""
    train: Times
    update: Times


def random_model(shape: ModelShape, *, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A Llama-like model of these sizes with random weights; torch's global random state is left as it was."""
    config = LlamaConfig(
        num_hidden_layers=shape.num_layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied_embeddings,
        max_position_embeddings=8192,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.to(device).eval()  # type: ignore[arg-type]
    return model


def time_pieces(model: PreTrainedModel, sizes: Sizes, note: Note) -> Timings:
    """Times everything. note is called after every run of a piece, and once for each of the two decode batches."""
    vocab: int = model.config.vocab_size
    prompts = _prompts(sizes.many_prompts, sizes, vocab)
    # No end token: a random model must not end before the number of tokens that is asked for.
    loaded = LoadedModel(model=model, tokenizer=byte_tokenizer(), end_token_ids=(), source="random")
    engine = TorchEngine(loaded)
    prefill = _repeated(lambda: _first_tokens(engine, prompts, sizes), sizes.repetitions, note, "prefill")
    few = _decode_steps(engine, prompts[: sizes.few_prompts], sizes)
    note("decoding")
    many = _decode_steps(engine, prompts, sizes)
    note("decoding")
    sequences = _sequences(sizes, vocab)
    train = _repeated(lambda: _forward_backward(model, sequences), sizes.repetitions, note, "training")
    optimizer = build_optimizer(model, OptimOptions(lr=1e-6))
    update = _repeated(lambda: _update(model, optimizer), sizes.repetitions, note, "optimizer")
    return Timings(prefill=prefill, few=few, many=many, train=train, update=update)


def _repeated(piece: Callable[[], float], repetitions: int, note: Note, name: str) -> Times:
    """A first run that is not counted, then so many that are. The piece times itself."""
    seconds = []
    for _ in range(repetitions + 1):
        seconds.append(piece())
        note(name)
    return Times(seconds=tuple(seconds[1:]))


def _prompts(count: int, sizes: Sizes, vocab: int) -> list[Prompt]:
    """Prompts that share their trunk and no more: the token behind it is each prompt's own number."""
    numbers = random.Random(SEED)
    trunk = [numbers.randrange(vocab) for _ in range(sizes.trunk)]
    return [
        Prompt(
            task_id=f"prompt-{i}",
            token_ids=(*trunk, i % vocab, *(numbers.randrange(vocab) for _ in range(sizes.branch - 1))),
        )
        for i in range(count)
    ]


def _sequences(sizes: Sizes, vocab: int) -> list[ScoredSequence]:
    """The rows that are trained: each completion begins with a token that no other one of its group begins with."""
    numbers = random.Random(SEED + 1)
    return [
        ScoredSequence(
            token_ids=(*prompt.token_ids, g % vocab, *(numbers.randrange(vocab) for _ in range(sizes.completion - 1))),
            prompt_length=len(prompt.token_ids),
        )
        for prompt in _prompts(sizes.prompts, sizes, vocab)
        for g in range(sizes.group)
    ]


def _first_tokens(engine: TorchEngine, prompts: Sequence[Prompt], sizes: Sizes) -> float:
    started = time.perf_counter()
    engine.generate(prompts, sizes.group, Sampling(max_tokens=1), seed=SEED)
    return time.perf_counter() - started


def _decode_steps(engine: TorchEngine, prompts: Sequence[Prompt], sizes: Sizes) -> Times:
    """The engine reports after the prefill and after every step, so that one call gives the time of each step."""
    reported: list[float] = []
    engine.generate(
        prompts,
        sizes.group,
        Sampling(max_tokens=sizes.decode_tokens),
        seed=SEED,
        progress=lambda _ended, _all: reported.append(time.perf_counter()),
    )
    seconds = [later - earlier for earlier, later in pairwise(reported)]
    return Times(seconds=tuple(seconds[1:]))


def _forward_backward(model: PreTrainedModel, sequences: list[ScoredSequence]) -> float:
    """As training/step.py does for one micro-batch; the gradients stay for the update."""
    model.zero_grad(set_to_none=True)
    _wait(model.device)
    started = time.perf_counter()
    mask = loss_mask(sequences, device=model.device)
    logprobs = tree_logprobs(model, sequences, temperature=1.0)
    per_token = negative_log_likelihood(logprobs, mask)
    aggregate(per_token, mask, normalize="token", denominator=float(mask.sum())).backward()
    _wait(model.device)
    return time.perf_counter() - started


def _update(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> float:
    started = time.perf_counter()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    _wait(model.device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    """Until a GPU has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
