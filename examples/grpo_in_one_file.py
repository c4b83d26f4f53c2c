"""GRPO in one file: sample groups, score them with a function, learn. Needs torch and transformers, nothing else.

    python examples/grpo_in_one_file.py [folder of a model]

It is algorithm 1 of DeepSeekMath (arXiv:2402.03300) with one reference, a clipped gradient and AdamW. Without a folder
the model is a random Llama of 30,000 weights that reads and writes ASCII: within seconds it learns to continue "0:"
with digits, "a:" with small letters and "A:" with capitals. The library computes the same numbers, step by step, and a
test compares them. What makes the library fast and careful is left out here. Read grpo_step first.
"""

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

Reward = Callable[[str, str], float]  # the verifier: prompt, completion -> reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The symbols of the paper, and the optimizer."""

    group_size: int = 16  # G, completions of each prompt
    max_tokens: int = 6  # of a completion
    temperature: float = 1.0
    num_updates: int = 2  # mu, updates on one batch of rollouts; with 1 every ratio is 1 and nothing is clipped
    clip: float = 0.2  # epsilon, how far a ratio may leave 1 before its gradient stops
    beta: float = 0.01  # weight of the KL to the reference, the model at the start; 0 = there is no reference
    std_eps: float = 1e-6  # keeps an advantage finite
    learning_rate: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.99)
    max_grad_norm: float = 1.0


class Group(NamedTuple):
    """G completions o[i] of one prompt q, and all that is known of them before the first update."""

    prompt_ids: list[int]
    completions: list[list[int]]  # token ids, the end token included
    rewards: Tensor  # [G] float64
    advantages: Tensor  # [G] float64
    old_logprobs: Tensor  # [G, L] nats, of pi_old, the weights that sampled; L is the longest completion
    ref_logprobs: Tensor | None  # [G, L] nats, of the reference
    mask: Tensor  # [G, L] True = a token of the completion, False = padding behind its end


class Update(NamedTuple):
    """The numbers of one update, all of the weights before it."""

    loss: float
    kl: float  # nats, the mean over all tokens; 0 without a reference
    grad_norm: float  # before it is clipped


def grpo_step(
    model: Any,
    reference: Any,  # None where beta is 0
    optimizer: torch.optim.Optimizer,
    tokenizer: Any,
    prompts: Sequence[str],
    reward: Reward,
    uniforms: Tensor,  # [P, G, max_tokens] numbers in [0, 1), all the randomness of the step
    settings: Settings,
) -> tuple[list[Group], list[Update]]:
    """The inner part of algorithm 1: sample from pi_old, score, compare inside each group, then update mu times."""
    groups = [
        sample_group(model, reference, tokenizer, prompt, reward, uniform, settings)
        for prompt, uniform in zip(prompts, uniforms, strict=True)
    ]
    if settings.beta == 0 and not any(group.advantages.any() for group in groups):
        return groups, []  # nothing has a gradient, and yet AdamW would move the weights, by the momentum it has
    return groups, [update(model, optimizer, groups, settings) for _ in range(settings.num_updates)]


def sample_group(
    model: Any, reference: Any, tokenizer: Any, prompt: str, reward: Reward, uniforms: Tensor, settings: Settings
) -> Group:
    """One prompt's completions with their rewards, advantages, and log-probabilities before the update."""
    prompt_ids = tokenizer.encode(prompt)
    completions = sample(model, prompt_ids, uniforms, settings.temperature)
    texts = [tokenizer.decode(completion, skip_special_tokens=True) for completion in completions]
    rewards = torch.tensor([reward(prompt, text) for text in texts], dtype=torch.float64)
    with torch.no_grad():
        old = logprobs(model, prompt_ids, completions, settings.temperature)
        ref = logprobs(reference, prompt_ids, completions, settings.temperature) if settings.beta > 0 else None
    mask = torch.arange(old.shape[1]) < torch.tensor([len(completion) for completion in completions])[:, None]
    return Group(prompt_ids, completions, rewards, group_advantages(rewards, settings.std_eps), old, ref, mask)


@torch.no_grad()
def sample(model: Any, prompt_ids: list[int], uniforms: Tensor, temperature: float) -> list[list[int]]:
    """A completion for each row u of uniforms: its token t is the first whose cumulative probability is above u[t]."""
    ids = torch.tensor([prompt_ids] * len(uniforms))
    for u in uniforms.T:
        logits = model(ids, use_cache=False).logits[:, -1].double()  # forwards all tokens again: slow and simple
        cumulative = torch.softmax(logits / temperature, dim=-1).cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)
        ids = torch.cat([ids, drawn], dim=1)
    drawn_ids = ids[:, len(prompt_ids) :]
    is_end = torch.isin(drawn_ids, torch.tensor(model.generation_config.eos_token_id))
    is_kept = is_end.cumsum(dim=1) - is_end.long() == 0  # the end token stays: stopping is learned too
    return [row[keep].tolist() for row, keep in zip(drawn_ids, is_kept, strict=True)]


def logprobs(model: Any, prompt_ids: list[int], completions: list[list[int]], temperature: float) -> Tensor:
    """[G, L] log pi(o[i, t] | q, o[i, <t]) in nats, at the temperature that sampled; any number in padding."""
    longest = max(map(len, completions))  # padding stands on the right, where no earlier position sees it
    ids = torch.tensor([[*prompt_ids, *row, *[0] * (longest - len(row))] for row in completions])
    logits = model(ids, use_cache=False).logits[:, len(prompt_ids) - 1 : -1]  # position t predicts token t + 1
    return torch.log_softmax(logits / temperature, dim=-1).gather(-1, ids[:, len(prompt_ids) :, None]).squeeze(-1)


def group_advantages(rewards: Tensor, std_eps: float) -> Tensor:
    """A[i] = (r[i] - mean r) / (std r + eps) over one group (section 4.1.2); this std divides by G, not by G - 1."""
    if rewards.min() == rewards.max():
        return torch.zeros_like(rewards)  # exactly, where rounding divided by a std of 0 would be a signal
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + std_eps)


def clipped_objective(policy: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """[G, L] min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon) A), ratio = pi / pi_old (arXiv:1707.06347, eq. 7)."""
    ratio = torch.exp(policy - old)
    return torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])


def kl_to_reference(policy: Tensor, ref: Tensor) -> Tensor:
    """[G, L] pi_ref / pi - log(pi_ref / pi) - 1, the estimator k3, never negative (arXiv:2402.03300, eq. 4)."""
    return torch.expm1(ref - policy) - (ref - policy)  # expm1(x) is exp(x) - 1 with all digits of a small x


def update(model: Any, optimizer: torch.optim.Optimizer, groups: list[Group], settings: Settings) -> Update:
    """One step up the objective of eq. 3: the mean over groups of 1/G sum_i 1/|o_i| sum_t (clipped - beta KL)."""
    optimizer.zero_grad()
    loss_sum = kl_sum = 0.0
    for group in groups:
        policy = logprobs(model, group.prompt_ids, group.completions, settings.temperature)
        objective = clipped_objective(policy, group.old_logprobs, group.advantages.float(), settings.clip)
        if group.ref_logprobs is not None:
            kl = kl_to_reference(policy, group.ref_logprobs)
            objective = objective - settings.beta * kl
            kl_sum += kl[group.mask].sum().item()
        by_sequence = torch.where(group.mask, objective, 0.0).sum(dim=1) / group.mask.sum(dim=1)
        loss = -by_sequence.mean() / len(groups)
        loss.backward()  # group by group: gradients add up
        loss_sum += loss.item()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm).item()
    optimizer.step()
    return Update(loss_sum, kl_sum / sum(int(group.mask.sum()) for group in groups), grad_norm)


class AsciiTokenizer:
    """One token a character, its ASCII code; 0 ends a text."""

    def encode(self, text: str) -> list[int]:
        """Text to token ids."""
        return list(text.encode("ascii"))

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        """Token ids to text."""
        return bytes(i for i in token_ids if not (skip_special_tokens and i == 0)).decode("ascii")


def load(folder: str | None) -> tuple[Any, Any]:
    """The model and its tokenizer: those of a folder, or small random ones."""
    if folder is not None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    sizes: Any = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=128, bos_token_id=None, eos_token_id=0, **sizes)), AsciiTokenizer()


def verify(prompt: str, completion: str) -> float:
    """The verifier: which share of the completion is of the prompt's kind, digits, small letters or capitals."""
    is_kind = {"0:": str.isdigit, "a:": str.islower, "A:": str.isupper}[prompt]
    return sum(map(is_kind, completion)) / max(len(completion), 1)


def main(folder: str | None = None, *, num_steps: int = 60) -> list[float]:
    """Trains and prints one line a step; returns the mean rewards."""
    torch.manual_seed(0)
    settings, prompts, rewards = Settings(), ["0:", "a:", "A:"], []
    model, tokenizer = load(folder)
    model.eval()  # no dropout: pi and pi_old must be one function of the weights
    reference = copy.deepcopy(model) if settings.beta > 0 else None
    optimizer = torch.optim.AdamW(model.parameters(), settings.learning_rate, settings.betas, weight_decay=0.0)
    for step in range(1, num_steps + 1):
        uniforms = torch.rand(len(prompts), settings.group_size, settings.max_tokens, dtype=torch.float64)
        groups, updates = grpo_step(model, reference, optimizer, tokenizer, prompts, verify, uniforms, settings)
        rewards.append(torch.stack([group.rewards for group in groups]).mean().item())
        numbers = "  ".join(f"{n} {v:8.5f}" for n, v in updates[-1]._asdict().items()) if updates else "no gradient"
        print(f"step {step:2}  reward {rewards[-1]:.3f}  {numbers}")
    return rewards


if __name__ == "__main__":
    main(*sys.argv[1:2])
