"""Continuous decoding: all rows of a call through one batch of row slots and prompt slots.

    waiting rows --prefill of their prompts, first token--> active rows --one token a step--> ended rows
                          prompt slots                          row slots

Rows enter in order when a quarter of the row slots is free, so that a prefill serves several; the keys of a prompt stay
until its last row has ended. Ended rows leave when they are an eighth of the batch: the last rows then move into their
places. No buffer is allocated after the first prefill.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.models.fused_forward import SamplingForward
from groupwise.models.token_tree import count_nodes
from groupwise.rollout.budget import CacheShape
from groupwise.rollout.decode import DecodeCache
from groupwise.rollout.engine import Work
from groupwise.rollout.prefill import prefill
from groupwise.rollout.rows import Drawing, Report, Row

LEAVE_AT = 1 / 8
"""Ended rows leave when they are this share of the batch: those that take their places are copied."""
ENTER_AT = 1 / 4
"""Waiting rows enter when this share of the row slots is free, or room for all that wait: a prefill costs as much as
several steps."""
MOVE_PROMPTS_AT = 1 / 4
"""When nobody waits, prompts move together once this share of the slots in use is without rows."""


@dataclass(slots=True, kw_only=True)
class _Slot:
    """A prompt whose keys are stored."""

    prompt: int
    last_hidden: Tensor
    """[D], from which the first token of each of its rows is drawn."""


class TreeDecoder:
    """Decodes the rows of one call; `work` counts what that took."""

    def __init__(
        self,
        forward: SamplingForward,
        prompts: Sequence[tuple[int, ...]],
        drawing: Drawing,
        shape: CacheShape,
        *,
        prefill_nodes: int,
        device: torch.device,
    ) -> None:
        """shape bounds the batch, prefill_nodes the prompt tokens of one prefill (one prompt may exceed it)."""
        self._forward = forward
        self._prompts = prompts
        self._drawing = drawing
        self._shape = shape
        self._prefill_nodes = prefill_nodes
        self._device = device
        self._cache = DecodeCache(
            num_rows=shape.num_rows,
            num_prompts=shape.num_prompts,
            branch_tokens=shape.branch_tokens,
            own_tokens=shape.own_tokens,
        )
        self._waiting: deque[Row] = deque()
        self._active: list[Row] = []
        self._slots: list[_Slot | None] = [None] * shape.num_prompts
        self.work = Work()

    def decode(self, rows: Sequence[Row], report: Report) -> None:
        """Samples all rows to their end."""
        self._waiting.extend(rows)
        while self._waiting or self._active:
            if self._may_enter():
                self._enter()
            else:
                self._step()
                self._leave()
            self._free_slots()
            report([row for row in self._active if row.stop is None])
        held = sum(buffer.nbytes for buffer in self._cache.buffers)
        self.work += Work(cache_bytes=held)

    def _slot_of(self, prompt: int) -> int | None:
        return next((i for i, slot in enumerate(self._slots) if slot is not None and slot.prompt == prompt), None)

    def _may_enter(self) -> bool:
        free = self._shape.num_rows - len(self._active)
        if not self._waiting or free == 0:
            return False
        is_enough = not self._active or free >= min(len(self._waiting), ENTER_AT * self._shape.num_rows)
        return is_enough and (self._slot_of(self._waiting[0].prompt) is not None or None in self._slots)

    def _enter(self) -> None:
        """Prefills the prompts of the next waiting rows and draws these rows' first tokens."""
        entering, new_prompts = self._next_rows()
        if new_prompts:
            self._prefill(new_prompts)
        used = sorted({row.prompt for row in entering})
        slots = [self._slots[self._slot_of(prompt) or 0] for prompt in used]
        logits = self._forward.head(torch.stack([slot.last_hidden for slot in slots if slot is not None]))
        numbers = torch.tensor([used.index(row.prompt) for row in entering], device=self._device)
        self._drawing.next_tokens(logits[numbers], entering)
        self._active += [row for row in entering if row.stop is None]

    def _next_rows(self) -> tuple[list[Row], list[int]]:
        """Takes rows from the queue while they and their prompts fit; returns them and the prompts to compute."""
        free_rows = self._shape.num_rows - len(self._active)
        free_prompts = self._slots.count(None)
        num_stored = self._shape.trunk_tokens if self._cache.trunk else 0
        entering: list[Row] = []
        new: list[int] = []
        while self._waiting and len(entering) < free_rows:
            prompt = self._waiting[0].prompt
            if prompt not in new and self._slot_of(prompt) is None:
                together = [self._prompts[p][num_stored:] for p in (*new, prompt)]
                if len(new) == free_prompts or (new and count_nodes(together) > self._prefill_nodes):
                    break
                new.append(prompt)
            entering.append(self._waiting.popleft())
        return entering, new

    def _prefill(self, new_prompts: Sequence[int]) -> None:
        num_trunk = self._shape.trunk_tokens
        done = prefill(self._forward, [self._prompts[p] for p in new_prompts], self._cache.trunk, device=self._device)
        num_known = num_trunk if self._cache.trunk else 0
        if num_trunk and not self._cache.trunk:
            self._cache.store_trunk(done.kept, done.paths[0][:num_trunk])
        for prompt, path, hidden in zip(new_prompts, done.paths, done.last_hidden, strict=True):
            slot = self._slots.index(None)
            self._slots[slot] = _Slot(prompt=prompt, last_hidden=hidden)
            self._cache.store(slot, done.kept, path[num_trunk - num_known :])
        self.work += Work(num_prefills=1, num_prefill_tokens=done.num_nodes)

    def _step(self) -> None:
        """One new token for every active row."""
        rows = self._active
        newest = [row.token_ids[-1] for row in rows]
        # An ended row is not read any more; counted as long as the longest, it needs no mask.
        longest = max(len(row.token_ids) for row in rows if row.stop is None)
        stored = [(len(row.token_ids) if row.stop is None else longest) - 1 for row in rows]
        positions = [len(self._prompts[row.prompt]) + n for row, n in zip(rows, stored, strict=True)]
        numbers = torch.tensor([newest, positions], device=self._device)
        slots = {slot.prompt: i for i, slot in enumerate(self._slots) if slot is not None}
        plan = self._cache.plan([slots[row.prompt] for row in rows], stored)
        hidden = self._forward(numbers[0], numbers[1], plan)
        self._drawing.next_tokens(self._forward.head(hidden), rows)
        self.work += Work(num_steps=1, num_row_steps=len(rows))

    def _leave(self) -> None:
        """Lets ended rows go once they are many; the last rows move into their places."""
        rows = self._active
        ended = [i for i, row in enumerate(rows) if row.stop is not None]
        if not ended or len(ended) < min(1.0, LEAVE_AT) * len(rows):
            return
        num_going = len(rows) - len(ended)
        places = [i for i in ended if i < num_going]
        origins = [i for i in range(num_going, len(rows)) if rows[i].stop is None]
        if origins:
            longest = max(len(rows[i].token_ids) for i in origins)
            self._cache.move_rows(origins, places, longest)
        for origin, place in zip(origins, places, strict=True):
            rows[place] = rows[origin]
        del rows[num_going:]

    def _free_slots(self) -> None:
        """Frees the slots of prompts without rows, and moves the others together when nobody waits for one."""
        needed = {row.prompt for row in self._active}
        if self._waiting:
            needed.add(self._waiting[0].prompt)
        for i, slot in enumerate(self._slots):
            if slot is not None and slot.prompt not in needed:
                self._slots[i] = None
        used = [i for i, slot in enumerate(self._slots) if slot is not None]
        if self._waiting or not used or len(used) > (1 - MOVE_PROMPTS_AT) * (used[-1] + 1):
            return
        for place in range(len(used)):
            if self._slots[place] is None:
                origin = used.pop()
                self._cache.move_branch(origin, place)
                self._slots[place], self._slots[origin] = self._slots[origin], None
