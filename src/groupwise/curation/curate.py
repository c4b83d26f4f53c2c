"""Which prompts are worth training on: each is sampled as long as the answer is open, within limits.

Every prompt gets a few completions. One that was solved by some of them and not by others is kept, and costs nothing
more. One that all or none of them solved is sampled again, twice as often each time, until its rate is surely too high
or too low, or its limit or the budget is reached; then it stays undecided, which is said. Read `decision` first.

What comes next is a function of the counts so far and of nothing else. So a measurement that was interrupted goes on
exactly as it would have, and a later call with higher limits refines the same counts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from groupwise.curation.decision import CuratedRow, CurateOptions, Curation, Drawn, Exclusion, Reason, decide, task_key
from groupwise.curation.prior import BetaPrior
from groupwise.errors import DataError
from groupwise.types import Task

Sampler = Callable[[Sequence[int], int, int], Sequence[Drawn]]
"""sample(positions of tasks, completions of each, stream): what was drawn, in the same order. No two calls of the same
prompts have the same stream, so a seed made from it never draws the same completions again."""


def curate(
    tasks: Sequence[Task],
    sample: Sampler,
    *,
    options: CurateOptions | None = None,
    excluded: Mapping[str, Exclusion] | None = None,
    known: Sequence[CuratedRow] = (),
    notes: Mapping[str, Sequence[str]] | None = None,
    prompt_tokens: Sequence[int] | None = None,
    save: Callable[[Curation], object] = lambda curation: None,
) -> Curation:
    """Samples the tasks until each one's place is clear, or the limits are reached.

    `excluded` and `notes` are by task id; `known` are the rows of an earlier call, taken over where their task is still
    the same; `save` is called after each call of the sampler, and once before the first.

    Example:
        curation = curate(tasks, lambda places, num_samples, stream: [try_it(tasks[i], num_samples) for i in places])
        [tasks[i].id for i in curation.kept()]

    Raises:
        DataError: if two tasks have one id.
    """
    twice = [task_id for task_id, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise DataError(f"task id {twice[0]!r} occurs more than once; give every row of the data its own id")
    rows = _first_rows(tasks, excluded or {}, known)
    for place, row in enumerate(rows):
        tokens = row.prompt_tokens if prompt_tokens is None else prompt_tokens[place]
        rows[place] = replace(row, prompt_tokens=tokens, notes=tuple((notes or {}).get(row.id, ())))
    curation = Curation(rows=tuple(rows), options=options or CurateOptions())
    save(curation)
    while (visit := next_visit(curation)) is not None:
        drawn = sample(visit.places, visit.num_samples, visit.stream)
        for place, one in zip(visit.places, drawn, strict=True):
            rows[place] = curation.rows[place].with_drawn(one)
        curation = replace(curation, rows=tuple(rows))
        save(curation)
    return curation


def _first_rows(
    tasks: Sequence[Task], excluded: Mapping[str, Exclusion], known: Sequence[CuratedRow]
) -> list[CuratedRow]:
    """The row of each task, with the counts of the known row that is about the same task.

    Of equal tasks one alone has them, one that is not excluded where there is one: no completion counts twice.
    """
    counted = {row.key: row for row in known if row.num_samples}
    keys = [task_key(task) for task in tasks]
    rows: dict[int, CuratedRow] = {}
    for place in sorted(range(len(tasks)), key=lambda place: tasks[place].id in excluded):
        task_id, key = tasks[place].id, keys[place]
        row = counted.pop(key, CuratedRow(id=task_id, key=key))
        rows[place] = replace(row, id=task_id, excluded=excluded.get(task_id))
    return [rows[place] for place in range(len(tasks))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What is sampled next: Visit(places=(0, 3, 4), num_samples=4, stream=81985529216486895, num_left=12)."""

    places: tuple[int, ...]
    """Positions of the prompts."""
    num_samples: int
    """Completions of each."""
    stream: int
    """Belongs to these prompts and the completions that they have already."""
    num_left: int
    """Completions that are sure to come, these and those that other open prompts need next; within the budget."""


def next_visit(curation: Curation) -> Visit | None:
    """The open prompts with the fewest completions, as many as one call takes, or None where nothing is left to do.

    A prompt is open while it has fewer than samples_per_prompt completions, or is undecided below its limit. It gets
    the rest of samples_per_prompt, then as many as it has. Of equals, those that are most likely to turn out kept come
    first, so that a budget that ends early was well spent. Of prompts without any, a budget that is too small for all
    takes some by the hash of their content, which is as good as chance.
    """
    options, prior = curation.options, curation.prior
    wanted = {place: num for place, row in enumerate(curation.rows) if (num := _next_samples(row, prior, options)) > 0}
    in_reach = sum(wanted.values())
    left = in_reach if options.budget is None else min(in_reach, options.budget - curation.num_samples)
    if not wanted:
        return None
    fewest, num = min((curation.rows[place].num_samples, num) for place, num in wanted.items())
    same = [p for p, n in wanted.items() if (curation.rows[p].num_samples, n) == (fewest, num)]
    if fewest:
        same.sort(key=lambda place: _chance_of_keeping(curation.rows[place], prior, options), reverse=True)
    elif left < in_reach:  # a file may be sorted; the first rows of it would stand for all
        same.sort(key=lambda place: curation.rows[place].key)
    places = same[: max(1, options.completions_at_once // num)][: max(0, left) // num]
    if not places:
        return None
    text = json.dumps([(curation.rows[p].key, curation.rows[p].num_samples) for p in places])
    stream = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    return Visit(places=tuple(places), num_samples=num, stream=stream, num_left=left)


def _next_samples(row: CuratedRow, prior: BetaPrior, options: CurateOptions) -> int:
    if row.excluded is not None:
        return 0
    if row.num_samples < options.samples_per_prompt:
        return options.samples_per_prompt - row.num_samples
    if decide(row, prior, options).reason is not Reason.UNDECIDED:
        return 0
    return max(0, min(row.num_samples, options.max_samples_per_prompt - row.num_samples))


def _chance_of_keeping(row: CuratedRow, prior: BetaPrior, options: CurateOptions) -> float:
    rate = prior.posterior(solved=row.solved, scored=row.scored)
    low, high = options.rule.hopeless_below, options.rule.solved_above
    return round(rate.probability_below(high) - rate.probability_below(low), 9)
