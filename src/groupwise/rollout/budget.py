"""How many rows and prompts may be in a decode batch at once, within a number of bytes for keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from groupwise.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """The slots of one call.

    Example:
        CacheShape(num_rows=64, num_prompts=8, trunk_tokens=300, branch_tokens=43, own_tokens=31)
    """

    num_rows: int
    num_prompts: int
    trunk_tokens: int
    branch_tokens: int
    """Room of a prompt slot: the longest prompt of the call behind the trunk."""
    own_tokens: int
    """Room of a row slot. The last token of a completion is never read again, so it is one less than may be sampled."""

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values are stored."""
        return self.trunk_tokens + self.num_prompts * self.branch_tokens + self.num_rows * self.own_tokens


def bytes_per_token(model: PreTrainedModel) -> int:
    """Keys and values of one token in all layers."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * key_heads * width * model.dtype.itemsize)


def fit_cache(
    prompt_lengths: Sequence[int],
    group_sizes: Sequence[int],
    max_tokens: int,
    *,
    trunk_tokens: int,
    max_rows: int,
    token_budget: int,
) -> CacheShape:
    """The most rows, at most max_rows, whose keys fit beside those of their prompts into token_budget tokens.

    Prompt p of prompt_lengths[p] tokens has group_sizes[p] rows. Where all rows of the call fit, every prompt has a
    slot. Otherwise prompts have half as many slots again as full groups of the mean size need. Fewer slots than the
    rows could use cost forwards, never a row.

    Raises:
        EngineError: not even one row of the longest prompt fits.
    """
    num_prompts, num_rows = len(group_sizes), sum(group_sizes)
    for rows, slots in [
        *((rows, _num_slots(rows, num_rows, num_prompts)) for rows in range(min(num_rows, max_rows), 0, -1)),
        (1, 1),
    ]:
        shape = CacheShape(
            num_rows=rows,
            num_prompts=slots,
            trunk_tokens=trunk_tokens,
            branch_tokens=max(prompt_lengths) - trunk_tokens,
            own_tokens=max(1, max_tokens - 1),
        )
        if shape.num_tokens <= token_budget:
            return shape
    raise too_small(max(prompt_lengths), max_tokens, token_budget)


def _num_slots(rows: int, all_rows: int, num_prompts: int) -> int:
    """Prompts beside so many rows: a prompt keeps its slot until its last row ends, so there are spare ones."""
    groups = -(-rows * num_prompts // all_rows)
    return num_prompts if rows == all_rows else min(num_prompts, groups + -(-groups // 2))


def too_small(prompt_tokens: int, max_tokens: int, token_budget: int) -> EngineError:
    """The error for a budget that not even one completion fits into."""
    return EngineError(
        f"rollout.cache_gb has room for the keys of {token_budget} tokens; one completion of at most {max_tokens} "
        f"tokens behind the longest prompt of {prompt_tokens} needs {prompt_tokens + max_tokens}.\n"
        "  Raise rollout.cache_gb, or lower rollout.max_completion_tokens or data.max_prompt_tokens."
    )
