"""The history of every prompt over a run, and the order in which prompts are sampled.

A prompt that every rollout solves, or none does, teaches nothing: its group is dead. One dead group is no proof (at a
pass rate of 0.05, two groups of eight in three are), so a prompt is set aside once the posterior of its pass rate is
sure enough; a group with both outcomes always keeps it. The policy moves, so older attempts count for less with every
visit, and a prompt that was set aside is tried again after a while: a mixed group then makes it active, and what was
counted before is dropped, because it belongs to a policy that could not do this.

The ledger owns the sampling order too, because "each active prompt once an epoch" depends on who is active. All of
it goes into a checkpoint: a resumed run asks for the same prompts as one that was never interrupted.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from groupwise.curation.pass_rate import PassRate
from groupwise.curation.prior import JEFFREYS, BetaPrior
from groupwise.curation.retire import PromptState, RetireRule
from groupwise.errors import DataError

SEATS_A_PROBE = 8
"""One seat in this many may go to a prompt that was set aside: most of those are dead again, and each costs a group."""
NUM_REMEMBERED = 4
"""The ledger remembers this many times the attempts that its rule needs: what is older has faded to almost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """What is known of one prompt.

    Example:
        PromptRow(solved=9, scored=16, visits=2, recent_solved=8.875, recent_scored=15.0, last_step=4)
    """

    solved: int = 0
    """Rollouts of this run that solved it."""
    scored: int = 0
    """Rollouts of this run with a verdict."""
    visits: int = 0
    """Groups with 2 or more scored rollouts."""
    recent_solved: float = 0.0
    """Attempts that solved it, from before the run too; older ones count for less."""
    recent_scored: float = 0.0
    """Attempts with a verdict, weighted in the same way."""
    state: PromptState = PromptState.ACTIVE
    since_step: int | None = None
    """The step at which it was set aside, 0 where that was known before the run; None while active."""
    last_step: int = 0
    """The step of its latest group; 0 before the first."""


class PromptLedger:
    """One row a prompt. It owns the state of prompt sampling; `record` and `next_batch` change it.

    Example:
        ledger = PromptLedger(["q1", "q2", "q3"], seed=17, rule=RetireRule(), probe_every=10, counts={"q3": (0, 32)})
        for task_id in ledger.next_batch(2, step=1):      # q1 and q2: q3 is hopeless until step 10
            ledger.record(task_id, solved=0, scored=8, step=1)
    """

    def __init__(
        self,
        task_ids: Sequence[str],
        *,
        seed: int,
        rule: RetireRule | None = None,
        probe_every: int = 0,
        prior: BetaPrior = JEFFREYS,
        counts: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Set prompts aside by `rule`; None never does.

        probe_every is the number of steps after which a prompt that was set aside is tried again; 0 never does.
        counts are (solved, scored) of attempts before the run, by task id; ids that the ledger does not hold are
        ignored. They enter the posterior, and a prompt may be set aside from the start.

        Raises:
            DataError: if task_ids is empty or names a task twice.
            ValueError: if probe_every is negative, or unless 0 <= solved <= scored in every count.
        """
        if not task_ids:
            raise DataError("the prompt ledger got no tasks; check the training file and the curation settings")
        twice = [task_id for task_id, count in Counter(task_ids).items() if count > 1]
        if twice:
            raise DataError(f"task id {twice[0]!r} occurs more than once; give every row of the data its own id")
        if probe_every < 0:
            raise ValueError(f"probe_every must be 0 (never) or more steps, got {probe_every}")
        self.seed = seed
        self.rule = rule
        self.probe_every = probe_every
        self.prior = prior
        self._window = NUM_REMEMBERED * (rule or RetireRule()).attempts_needed()
        before = counts or {}
        self._rows = {task_id: self._first_row(task_id, *before.get(task_id, (0, 0))) for task_id in task_ids}
        self._position = {task_id: position for position, task_id in enumerate(task_ids)}
        self._epoch = 0
        self._pending: deque[str] = deque()
        self._seats = 0

    @property
    def rows(self) -> Mapping[str, PromptRow]:
        """Every prompt's row by task id, in the order of the data."""
        return dict(self._rows)

    @property
    def epoch(self) -> int:
        """Shuffles begun so far; 0 before the first batch."""
        return self._epoch

    def posterior(self, task_id: str) -> PassRate:
        """What the attempts recorded so far say of a prompt's pass rate.

        Raises:
            KeyError: if the ledger does not hold task_id.
        """
        row = self._rows[task_id]
        return self.prior.posterior(solved=row.recent_solved, scored=row.recent_scored)

    def record(self, task_id: str, *, solved: int, scored: int, step: int) -> None:
        """Enter one group. With fewer than 2 scored rollouts it adds to the counts but is no visit.

        On a visit what was counted before is multiplied by 1 - scored / window, the window being four times
        `rule.attempts_needed()`: with 64 attempts, 0.875 for a group of 8, and nothing is left for one of 64.

        Raises:
            ValueError: unless 0 <= solved <= scored.
            KeyError: if the ledger does not hold task_id.
        """
        _refuse_counts(task_id, solved, scored)
        row = self._rows[task_id]
        row = replace(row, solved=row.solved + solved, scored=row.scored + scored, last_step=step)
        shown = _shown_by(solved, scored)
        kept = 1.0
        if scored >= 2:
            goes_on = row.state in (PromptState.ACTIVE, shown)
            kept = max(0.0, 1 - scored / self._window) if goes_on else 0.0
            row = replace(row, visits=row.visits + 1)
        row = replace(
            row,
            recent_solved=kept * row.recent_solved + solved,
            recent_scored=kept * row.recent_scored + scored,
        )
        state = self._judged(row, shown) if scored >= 2 and shown is not row.state else row.state
        if state is not row.state:
            row = replace(row, state=state, since_step=None if state is PromptState.ACTIVE else step)
        self._rows[task_id] = row

    def active(self, task_ids: Iterable[str]) -> list[str]:
        """Those of task_ids that are still sampled, in the given order."""
        return [task_id for task_id in task_ids if self._is_active(task_id)]

    def set_aside(self) -> dict[str, int]:
        """Prompts set aside, counted by reason: {"always_solved": 3, "never_solved": 1}."""
        counts = Counter(row.state for row in self._rows.values())
        return {state.value: counts[state] for state in PromptState if state is not PromptState.ACTIVE}

    def next_batch(self, num_prompts: int, *, step: int, without: Collection[str] = ()) -> list[str]:
        """Prompts that were set aside long enough ago, then the next active ones of a seeded shuffle.

        Every prompt that stays active comes once an epoch; the shuffle is redrawn each epoch. No batch holds a prompt
        twice or one of `without`: where a batch crosses into the next epoch, a prompt that it already holds, or that
        `without` names, waits for the batch after. With fewer than num_prompts active prompts the batch holds them all.

        With probe_every, one seat in SEATS_A_PROBE, counted over the batches, goes to a prompt that was set aside
        and not tried for that many steps, the one tried longest ago first. Where no active prompt is left, all seats
        go to such prompts, due or not: else the batch is empty.

        Raises:
            ValueError: if num_prompts < 1.
        """
        if num_prompts < 1:
            raise ValueError(f"next_batch: num_prompts must be 1 or more, got {num_prompts}")
        without = frozenset(without)
        active = self.active(self._rows)
        probes = self._probes(num_prompts, step, without, nothing_else=not active)
        size = min(num_prompts, len(probes) + sum(task_id not in without for task_id in active))
        batch = dict.fromkeys(probes)
        waiting: list[str] = []
        while len(batch) < size:
            if not self._pending:
                self._begin_epoch()
            task_id = self._pending.popleft()
            if not self._is_active(task_id):
                continue
            if task_id in batch or task_id in without:
                waiting.append(task_id)
            else:
                batch[task_id] = None
        self._pending.extendleft(reversed(waiting))
        return list(batch)

    def state(self) -> dict[str, Any]:
        """Everything, as JSON-able values, for a checkpoint."""
        return {
            "seed": self.seed,
            "rule": None if self.rule is None else asdict(self.rule),
            "probe_every": self.probe_every,
            "prior": asdict(self.prior),
            "epoch": self._epoch,
            "pending": list(self._pending),
            "seats": self._seats,
            "rows": {task_id: asdict(row) | {"state": row.state.value} for task_id, row in self._rows.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PromptLedger:
        """The ledger that `state` described; it goes on exactly as the other would have.

        Raises:
            DataError: if state is not what `state` returns.
        """
        try:
            rows = {
                task_id: PromptRow(**{**row, "state": PromptState(row["state"])})
                for task_id, row in state["rows"].items()
            }
            ledger = cls(
                list(rows),
                seed=state["seed"],
                rule=None if state["rule"] is None else RetireRule(**state["rule"]),
                probe_every=state["probe_every"],
                prior=BetaPrior(**state["prior"]),
            )
            ledger._rows = rows
            ledger._epoch = state["epoch"]
            ledger._pending = deque(state["pending"])
            if not rows.keys() >= set(ledger._pending):
                raise ValueError("pending names a task that has no row")
            ledger._seats = state["seats"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"the prompt ledger of the checkpoint cannot be read ({type(error).__name__}: {error}); "
                "resume from another checkpoint"
            ) from error
        return ledger

    def _first_row(self, task_id: str, solved: int, scored: int) -> PromptRow:
        _refuse_counts(task_id, solved, scored)
        row = PromptRow(recent_solved=float(solved), recent_scored=float(scored))
        state = self._judged(row, _shown_by(solved, scored)) if scored >= 2 else PromptState.ACTIVE
        return row if state is PromptState.ACTIVE else replace(row, state=state, since_step=0)

    def _is_active(self, task_id: str) -> bool:
        return self._rows[task_id].state is PromptState.ACTIVE

    def _judged(self, row: PromptRow, shown: PromptState) -> PromptState:
        """The state that the latest group showed, where the posterior is sure of it; else ACTIVE."""
        rate = self.prior.posterior(solved=row.recent_solved, scored=row.recent_scored)
        is_sure = self.rule is not None and self.rule.state_of(rate) is shown
        return shown if is_sure else PromptState.ACTIVE

    def _probes(self, num_prompts: int, step: int, without: Collection[str], *, nothing_else: bool) -> list[str]:
        """Prompts that were set aside and are tried again in this batch."""
        if not self.probe_every:
            return []
        seats = self._seats + num_prompts
        aside = [
            (row.last_step, self._position[task_id], task_id)
            for task_id, row in self._rows.items()
            if row.state is not PromptState.ACTIVE and task_id not in without
        ]
        if nothing_else:
            return [task_id for *_, task_id in sorted(aside)[:num_prompts]]
        due = sorted(each for each in aside if step - each[0] >= self.probe_every)
        probes = [task_id for *_, task_id in due[: seats // SEATS_A_PROBE]]
        self._seats = min(seats - SEATS_A_PROBE * len(probes), SEATS_A_PROBE - 1)
        return probes

    def _begin_epoch(self) -> None:
        """Shuffle all prompts, set aside or not: the order then depends on the seed and the epoch alone."""
        self._epoch += 1
        order = list(self._rows)
        random.Random(f"{self.seed}:{self._epoch}").shuffle(order)
        self._pending.extend(order)


def _shown_by(solved: int, scored: int) -> PromptState:
    """What one group looks like: all solved, none solved, or mixed (ACTIVE)."""
    if 0 < solved < scored:
        return PromptState.ACTIVE
    return PromptState.NEVER_SOLVED if solved == 0 else PromptState.ALWAYS_SOLVED


def _refuse_counts(task_id: str, solved: int, scored: int) -> None:
    if not 0 <= solved <= scored:
        raise ValueError(f"expected 0 <= solved <= scored, got {solved} of {scored} for {task_id!r}")
