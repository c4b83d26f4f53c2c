"""The in-process engine: samples from the model that is being trained, sharing every prompt's prefill.

Prompts are prefilled as token trees, and all rows of all groups go through one decode batch (tree_decoder.py). A model
that the tree cannot serve falls back to its own attention and cache, one prompt at a time (use_tree=False).
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from groupwise.models.fused_forward import sampling_forward
from groupwise.models.loading import LoadedModel
from groupwise.rollout.budget import bytes_per_token, fit_cache, too_small
from groupwise.rollout.engine import Progress, Sampling, Work, group_sizes
from groupwise.rollout.prefill import trunk_length
from groupwise.rollout.rows import Drawing, Report, Row
from groupwise.rollout.sampling import uniforms
from groupwise.rollout.tree_decoder import TreeDecoder
from groupwise.types import Completion, Prompt

BYTES_PER_GB = 10**9


class TorchEngine:
    """Samples in this process. See `Engine` for the contract."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        max_rows: int = 256,
        cache_gb: float = 4.0,
        prefill_nodes: int = 2048,
        use_tree: bool = True,
    ) -> None:
        """max_rows and cache_gb bound the decode batch, prefill_nodes the prompt tokens of one prefill.

        cache_gb is what keys and values may hold, in 10**9 bytes; a running prefill holds its own beside them.
        """
        self._model: PreTrainedModel = loaded.model
        self._tokenizer = loaded.tokenizer
        self._end_ids = frozenset(loaded.end_token_ids)
        self._max_rows = max_rows
        self._cache_gb = cache_gb
        self._prefill_nodes = prefill_nodes
        self._decode = self._decode_tree if use_tree else self._decode_plain
        # transformers 5.2x renamed the keyword
        parameters = inspect.signature(self._model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._policy_version = 0
        self.last_work = Work()
        """What the newest call of generate took."""

    def set_policy_version(self, version: int) -> None:
        """See Engine."""
        self._policy_version = version

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        """See Engine.

        Raises:
            EngineError: cache_gb cannot hold one completion behind the longest prompt.
            ValueError: unless there is one group size, or one a prompt, of 1 or more.
        """
        sizes = group_sizes(len(prompts), group_size)
        rows = [
            Row(prompt=p, uniform=uniforms(seed, (p, c), sampling.max_tokens).tolist())
            for p, size in enumerate(sizes)
            for c in range(size)
        ]
        self.last_work = Work()
        drawing = Drawing(sampling=sampling, end_token_ids=self._end_ids, tokenizer=self._tokenizer)

        def report(going: Sequence[Row]) -> None:
            if progress is not None:
                ended = sum(row.stop is not None for row in rows)
                progress(ended + sum(len(row.token_ids) for row in going) / sampling.max_tokens, len(rows))

        was_training = self._model.training
        self._model.eval()
        try:
            if rows:
                self._decode([p.token_ids for p in prompts], rows, drawing, report)
        finally:
            self._model.train(was_training)
        completions = iter([self._completion(row, drawing) for row in rows])
        return [[next(completions) for _ in range(size)] for size in sizes]

    def _decode_tree(
        self,
        prompts: Sequence[tuple[int, ...]],
        rows: Sequence[Row],
        drawing: Drawing,
        report: Report,
    ) -> None:
        counts = Counter(row.prompt for row in rows)
        shape = fit_cache(
            [len(p) for p in prompts],
            [counts[p] for p in range(len(prompts))],
            drawing.sampling.max_tokens,
            trunk_tokens=trunk_length(prompts),
            max_rows=self._max_rows,
            token_budget=self._token_budget,
        )
        forward = sampling_forward(self._model, shape.num_rows)
        decoder = TreeDecoder(
            forward, prompts, drawing, shape, prefill_nodes=self._prefill_nodes, device=self._model.device
        )
        decoder.decode(rows, report)
        self.last_work = decoder.work

    @property
    def _token_budget(self) -> int:
        return int(self._cache_gb * BYTES_PER_GB) // bytes_per_token(self._model)

    def _decode_plain(
        self,
        prompts: Sequence[tuple[int, ...]],
        rows: Sequence[Row],
        drawing: Drawing,
        report: Report,
    ) -> None:
        """The fallback: rows of one prompt as a batch with the model's own attention and cache."""
        for number, prompt in enumerate(prompts):
            group = [row for row in rows if row.prompt == number]
            fitting = self._token_budget // (len(prompt) + drawing.sampling.max_tokens)
            if fitting == 0:
                raise too_small(len(prompt), drawing.sampling.max_tokens, self._token_budget)
            size = min(self._max_rows, fitting)
            for start in range(0, len(group), size):
                batch = group[start : start + size]
                ids = torch.tensor([prompt] * len(batch), device=self._model.device)
                cache = DynamicCache(config=self._model.config)
                num_steps = -1  # the first forward is the prefill
                while any(row.stop is None for row in batch):
                    output = self._model(ids, use_cache=True, **{self._cache_name: cache})
                    ids = drawing.next_tokens(output.logits[:, -1], batch)[:, None]
                    num_steps += 1
                    report([row for row in batch if row.stop is None])
                self.last_work += Work(
                    num_prefills=1,
                    num_prefill_tokens=len(prompt) * len(batch),
                    num_steps=num_steps,
                    num_row_steps=num_steps * len(batch),
                )

    def _completion(self, row: Row, drawing: Drawing) -> Completion:
        assert row.stop is not None
        return Completion(
            text=drawing.text(row),
            token_ids=tuple(row.token_ids),
            sampler_logprobs=tuple(row.logprobs),
            stop=row.stop,
            policy_version=self._policy_version,
        )
