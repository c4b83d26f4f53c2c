"""The in-process engine: samples from the model that is being trained, sharing every prompt's prefill.

The prompts of one call are a token tree: each distinct prefix is prefilled once. Then all rows of all groups decode
in one batch, one token a forward, until each has ended. A model that the tree cannot serve falls back to
the model's own attention and cache, one prompt at a time (use_tree=False).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from groupwise.models.fused_forward import SamplingForward, sampling_forward
from groupwise.models.loading import LoadedModel
from groupwise.models.token_tree import TokenTree, count_nodes
from groupwise.models.tree_attention import TreePlan
from groupwise.rollout.decode import DecodePlan
from groupwise.rollout.engine import Progress, Sampling
from groupwise.rollout.sampling import draw, uniforms
from groupwise.types import Completion, Prompt, Stop

COMPACT_AT = 1 / 8
"""Finished rows leave the batch when they are this share of it: leaving copies the keys of those that stay."""


@dataclass(slots=True)
class _Row:
    """One completion while it is being sampled."""

    prompt: int
    """Number of its prompt within the call."""
    uniform: Tensor
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: Stop | None = None


class TorchEngine:
    """Samples in this process. See `Engine` for the contract."""

    def __init__(
        self, loaded: LoadedModel, *, max_rows: int = 256, prefill_nodes: int = 2048, use_tree: bool = True
    ) -> None:
        """max_rows bounds the decode batch, prefill_nodes the tokens of one prefill; both bound memory."""
        self._model: PreTrainedModel = loaded.model
        self._tokenizer = loaded.tokenizer
        self._end_ids = loaded.end_token_ids
        self._max_rows = max_rows
        self._prefill_nodes = prefill_nodes
        self._use_tree = use_tree
        self._decode = self._decode_tree if use_tree else self._decode_plain
        self._forward: SamplingForward | None = None
        # transformers 5.2x renamed the keyword
        parameters = inspect.signature(self._model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._policy_version = 0

    def set_policy_version(self, version: int) -> None:
        """See Engine."""
        self._policy_version = version

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: Sampling,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        """See Engine."""
        was_training = self._model.training
        self._model.eval()
        rows = [
            _Row(prompt=p, uniform=uniforms(seed, (p, c), sampling.max_tokens))
            for p in range(len(prompts))
            for c in range(group_size)
        ]
        try:
            if self._use_tree:
                self._forward = sampling_forward(self._model, min(len(rows), self._max_rows))
            self._decode_waves([p.token_ids for p in prompts], rows, sampling, progress)
        finally:
            self._forward = None  # it holds a copy of the weights, which are about to change
            self._model.train(was_training)
        completions = iter([self._completion(row, sampling) for row in rows])
        return [[next(completions) for _ in range(group_size)] for _ in prompts]

    def _decode_waves(
        self, prompts: Sequence[tuple[int, ...]], rows: list[_Row], sampling: Sampling, progress: Progress | None
    ) -> None:
        finished = 0
        for wave in self._waves(prompts, rows):
            before = finished

            def report(num: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + num, len(rows))

            self._decode([prompts[i] for i in sorted({r.prompt for r in wave})], wave, sampling, report)
            finished += len(wave)

    def _waves(self, prompts: Sequence[tuple[int, ...]], rows: list[_Row]) -> Iterator[list[_Row]]:
        """Cuts the rows, in order, into decode batches within max_rows and prefill_nodes."""
        wave: list[_Row] = []
        for row in rows:
            wanted = sorted({r.prompt for r in wave} | {row.prompt})
            is_new = not wave or wave[-1].prompt != row.prompt
            too_wide = is_new and count_nodes([prompts[i] for i in wanted]) > self._prefill_nodes
            if wave and (len(wave) >= self._max_rows or too_wide):
                yield wave
                wave = []
            wave.append(row)
        if wave:
            yield wave

    def _decode_tree(
        self, prompts: list[tuple[int, ...]], rows: list[_Row], sampling: Sampling, report: Callable[[int], None]
    ) -> None:
        """One decode batch: prefill the prompts as a tree, then one forward a token for all unfinished rows."""
        device = self._model.device
        forward = self._forward
        assert forward is not None
        tree = TokenTree.build(prompts)
        prefill = TreePlan(tree, device=device, dtype=self._model.dtype, keep_keys=True)
        hidden = forward(tree.token_ids.to(device), tree.depth.to(device), prefill)
        number = {prompt: n for n, prompt in enumerate(sorted({r.prompt for r in rows}))}
        prompt_of_row = [number[r.prompt] for r in rows]
        plan = DecodePlan(prefill.kept, tree, prompts, prompt_of_row, sampling.max_tokens)
        last = torch.tensor([int(tree.paths[p][-1]) for p in prompt_of_row], device=device)
        positions = torch.tensor([len(prompts[p]) for p in prompt_of_row], device=device)
        logits = forward.head(hidden[last])
        del hidden, prefill
        active = rows
        while True:
            newest = self._draw(logits, active, sampling)
            going = [i for i, row in enumerate(active) if row.stop is None]
            report(len(rows) - len(going))
            if not going:
                return
            if len(active) - len(going) >= COMPACT_AT * len(active):
                keep = torch.tensor(going, device=device)
                plan.keep_rows(keep)
                active = [active[i] for i in going]
                newest, positions = newest[keep], positions[keep]
            hidden = forward(newest, positions, plan)
            plan.num_new += 1
            positions = positions + 1
            logits = forward.head(hidden)

    def _decode_plain(
        self, prompts: list[tuple[int, ...]], rows: list[_Row], sampling: Sampling, report: Callable[[int], None]
    ) -> None:
        """The fallback: one prompt at a time, its rows as a batch with the model's own attention and cache."""
        numbers = sorted({r.prompt for r in rows})
        for number, prompt in zip(numbers, prompts, strict=True):
            own = [r for r in rows if r.prompt == number]
            ids = torch.tensor([prompt] * len(own), device=self._model.device)
            cache = DynamicCache(config=self._model.config)
            while any(r.stop is None for r in own):
                output = self._model(ids, use_cache=True, **{self._cache_name: cache})
                ids = self._draw(output.logits[:, -1], own, sampling)[:, None]
                report(sum(r.stop is not None for r in rows))

    def _draw(self, logits: Tensor, rows: list[_Row], sampling: Sampling) -> Tensor:
        """Samples one token for each row and appends it to the rows that have not ended. Returns the ids [R]."""
        position = max(len(r.token_ids) for r in rows)
        uniform = torch.stack([r.uniform[position] for r in rows])
        token_ids, logprobs = draw(
            logits.float(),
            uniform.to(logits.device),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        for row, token_id, logprob in zip(rows, token_ids.tolist(), logprobs.tolist(), strict=True):
            if row.stop is not None:
                continue
            row.token_ids.append(token_id)
            row.logprobs.append(logprob)
            if token_id in self._end_ids or self._has_stop_text(row, sampling):
                row.stop = Stop.END
            elif len(row.token_ids) == sampling.max_tokens:
                row.stop = Stop.LENGTH
        return token_ids

    def _has_stop_text(self, row: _Row, sampling: Sampling) -> bool:
        if not sampling.stop:
            return False
        text = self._tokenizer.decode(row.token_ids)
        return any(stop in text for stop in sampling.stop)

    def _completion(self, row: _Row, sampling: Sampling) -> Completion:
        text = self._tokenizer.decode(row.token_ids, skip_special_tokens=True)
        for stop in sampling.stop:
            text = text.partition(stop)[0]
        assert row.stop is not None
        return Completion(
            text=text,
            token_ids=tuple(row.token_ids),
            sampler_logprobs=tuple(row.logprobs),
            stop=row.stop,
            policy_version=self._policy_version,
        )
