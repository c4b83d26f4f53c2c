"""Is one evaluation better than another on the same prompts, or can nobody tell?

What decides is the interval of `paired_difference`: where it leaves out 0 one of the two is better, else they are "not
distinguishable". It is the interval of the bake-off, so two verbs never disagree about the same numbers, and it does
not call four gains out of fifty prompts a success, as a bootstrap does. The bootstrap interval and the p value stand
beside it. Greedy and sampled answers are compared apart: a prompt has one greedy answer and several sampled ones.

With more than two evaluations each is compared with the first, and chance has more occasions: then a p value that is
corrected for their number (Holm, 1979, Scandinavian Journal of Statistics 6) must be small, too.

Everything is about new prompts of the same source. Read `compare_evaluations`, then `compare_many`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from groupwise.errors import DataError
from groupwise.pages import format_fixed
from groupwise.runs.comparison.bootstrap import bootstrap_mean, sign_flip_test
from groupwise.runs.comparison.mcnemar import McNemar, mcnemar
from groupwise.runs.comparison.paired import PairedDifference, paired_difference
from groupwise.runs.comparison.variety import PassAtKDifference, pass_at_differences, variety_sentence
from groupwise.runs.evaluation_record import Attempts, EvaluationRecord
from groupwise.runs.intervals import Interval

SETTING_NAMES = {
    "success": "rules of success",
    "temperature": "temperatures",
    "top_p": "top_p",
    "verifier_version": "versions of the verifier",
    "max_completion_tokens": "token limits of an answer",
    "samples_per_prompt": "numbers of samples a prompt",
}
"""What both sides should share, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChange:
    """One prompt on both sides: PromptChange(task_id="q17", first=Attempts(...), second=Attempts(...))."""

    task_id: str
    first: Attempts
    second: Attempts

    @property
    def change(self) -> float:
        """Rate of the second minus rate of the first, -1 to 1."""
        return self.second.rate - self.first.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RateComparison:
    """The pass rates of both sides over the prompts that both have."""

    kind: Literal["sampled", "greedy"]
    first_label: str
    second_label: str
    first_rate: float
    """Mean over the shared prompts; may differ from what the evaluation reported over all of its own."""
    second_rate: float
    difference: PairedDifference
    """Second minus first, with the interval that decides."""
    bootstrap: Interval
    """Of the same difference."""
    p_value: float
    """McNemar's exact test with one answer a prompt on both sides, else the sign-flip test."""
    mcnemar: McNemar | None
    """None where prompts have several samples."""
    prompts: tuple[PromptChange, ...]
    confidence: float = 0.95
    p_adjusted: float | None = None
    """p_value corrected for the number of comparisons; None where there is one."""

    @property
    def test(self) -> str:
        """What p_value is of."""
        return "exact test of McNemar" if self.mcnemar is not None else "sign-flip test"

    @property
    def is_distinguishable(self) -> bool:
        """The interval leaves out 0, and so does the corrected p value where there are several comparisons."""
        survives = self.p_adjusted is None or self.p_adjusted <= 1 - self.confidence
        return self.difference.is_distinguishable and survives

    @property
    def verdict(self) -> str:
        """One sentence without a full stop."""
        found = self.difference
        low, high, on = found.interval.low, found.interval.high, f"on {found.num_prompts} prompts"
        if not self.is_distinguishable:
            corrected = ", corrected for several comparisons" if found.is_distinguishable else ""
            points = f"{format_fixed(100 * found.difference, 1, signed=True)} points {_ends(low, high)}"
            return f"not distinguishable{corrected}: the difference is {points} {on}"
        if found.difference > 0:
            points = f"{100 * found.difference:.1f} points {_ends(low, high)}"
            return f"{self.second_label} is better by {points} {on}"
        points = f"{-100 * found.difference:.1f} points {_ends(-high, -low)}"
        return f"{self.first_label} is better by {points} {on}"

    @property
    def regressions(self) -> tuple[PromptChange, ...]:
        """Prompts with a lower rate on the second side, the worst first."""
        return tuple(sorted((p for p in self.prompts if p.change < 0), key=lambda p: (p.change, p.task_id)))

    @property
    def improvements(self) -> tuple[PromptChange, ...]:
        """Prompts with a higher rate on the second side, the best first."""
        return tuple(sorted((p for p in self.prompts if p.change > 0), key=lambda p: (-p.change, p.task_id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDifference:
    """Mean tokens by prompt, then over the prompts that both sides have: second minus first.

    Example:
        LengthDifference(what="right answers", first=31.0, second=44.5, interval=Interval(9.1, 18.2), num_prompts=63)
    """

    what: str
    """all answers, or right answers."""
    first: float
    second: float
    interval: Interval
    """Bootstrap over prompts."""
    num_prompts: int

    @property
    def difference(self) -> float:
        """Tokens."""
        return self.second - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two evaluations on the same prompts."""

    first: str
    second: str
    """Labels."""
    sampled: RateComparison | None
    greedy: RateComparison | None
    pass_at: tuple[PassAtKDifference, ...]
    """For k > 1, where both have the samples."""
    lengths: tuple[LengthDifference, ...]
    """Of sampled answers, or of greedy ones where there are no others."""
    only_first: tuple[str, ...]
    """Task ids that are left out, because only this side has them."""
    only_second: tuple[str, ...]
    warnings: tuple[str, ...]
    """What makes the two less comparable than they look, one sentence each."""
    prompts: Mapping[str, str]
    """The prompt's text by task id, where it was kept."""

    @property
    def main(self) -> RateComparison:
        """Sampled where there is one, as it rests on more answers; else greedy."""
        found = self.sampled or self.greedy
        assert found is not None, "a comparison has one of the two"
        return found

    @property
    def verdict(self) -> str:
        """That of `main`, with the kind of answers where both kinds are there."""
        return self.main.verdict + (f" ({self.main.kind})" if self.sampled and self.greedy else "")

    @property
    def variety(self) -> str:
        """What pass@k of the largest k says that the verdict does not, a sentence without a full stop; else empty."""
        if self.sampled is None:
            return ""
        found = self.sampled
        return variety_sentence(found.difference, self.pass_at, is_sure=found.is_distinguishable, who=self.second)


def compare_evaluations(
    first: EvaluationRecord, second: EvaluationRecord, *, confidence: float = 0.95, seed: int = 0
) -> Comparison:
    """Compares the prompts that both have, by task id; the others are named.

    Raises:
        DataError: if they share no prompt that both could score, in neither kind of answers, or only ids: every one of
            these prompts has another text.
        ValueError: if confidence is outside (0, 1).
    """
    if second.label == first.label:
        second = replace(second, label=f"{second.label} (second)")
    sampled = _rates("sampled", first, second, confidence, seed)
    greedy = _rates("greedy", first, second, confidence, seed)
    main = sampled or greedy
    if main is None:
        raise DataError(
            f"{first.label} and {second.label} share no prompt that both could score "
            f"({_count(first)} and {_count(second)} prompts); compare evaluations of the same held-out tasks"
        )
    texts = [(side.prompts or {}).get for side in (first, second)]
    if all(_differ(p.task_id, texts) for p in main.prompts):
        raise DataError(
            f"{first.label} and {second.label} share {len(main.prompts)} ids, and every one of them is another prompt; "
            "compare evaluations of the same held-out tasks"
        )
    ones, others = {*first.sampled, *first.greedy}, {*second.sampled, *second.greedy}
    return Comparison(
        first=first.label,
        second=second.label,
        sampled=sampled,
        greedy=greedy,
        pass_at=_pass_at(sampled, confidence),
        lengths=_lengths(main.prompts, confidence, seed),
        only_first=tuple(sorted(ones - others)),
        only_second=tuple(sorted(others - ones)),
        warnings=tuple(_warnings(first, second, main)),
        prompts={**(first.prompts or {}), **(second.prompts or {})},
    )


def compare_many(
    records: Sequence[EvaluationRecord], *, confidence: float = 0.95, seed: int = 0
) -> tuple[Comparison, ...]:
    """Each of the others with the first. From three on p values are corrected, sampled and greedy apart.

    Raises:
        DataError: for fewer than two, and as `compare_evaluations`.
    """
    if len(records) < 2:
        raise DataError("one evaluation alone cannot be compared; give two or more")
    found = [compare_evaluations(records[0], other, confidence=confidence, seed=seed) for other in records[1:]]
    if len(found) == 1:
        return tuple(found)
    sampled, greedy = _corrected([c.sampled for c in found]), _corrected([c.greedy for c in found])
    return tuple(
        replace(c, sampled=s, greedy=g, pass_at=_pass_at(s, confidence, len(found)))
        for c, s, g in zip(found, sampled, greedy, strict=True)
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p values corrected for their number m, in the order given.

        sorted p_(1) <= ... <= p_(m):   corrected_(i) = min(1, max over j <= i of (m - j + 1) p_(j))

    Rejecting those at most alpha is wrong anywhere with a chance of at most alpha, however the tests depend on each
    other. Source: Holm (1979), Scandinavian Journal of Statistics 6.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        corrected[i] = largest
    return corrected


def _rates(
    kind: Literal["sampled", "greedy"], first: EvaluationRecord, second: EvaluationRecord, confidence: float, seed: int
) -> RateComparison | None:
    """None where no prompt was scored on both sides."""
    ones, others = (side.sampled if kind == "sampled" else side.greedy for side in (first, second))
    shared = sorted(task for task in ones.keys() & others.keys() if ones[task].scored and others[task].scored)
    if not shared:
        return None
    prompts = tuple(PromptChange(task_id=task, first=ones[task], second=others[task]) for task in shared)
    differences = [p.change for p in prompts]
    are_single = all(p.first.scored == p.second.scored == 1 for p in prompts)
    test = _outcome_test(prompts) if are_single else None
    return RateComparison(
        kind=kind,
        first_label=first.label,
        second_label=second.label,
        first_rate=fmean(p.first.rate for p in prompts),
        second_rate=fmean(p.second.rate for p in prompts),
        difference=paired_difference(
            {p.task_id: p.first.rate for p in prompts}, {p.task_id: p.second.rate for p in prompts}, confidence
        ),
        bootstrap=bootstrap_mean(differences, bound=1.0, confidence=confidence, seed=seed),
        p_value=test.p_value if test is not None else sign_flip_test(differences, seed=seed),
        mcnemar=test,
        prompts=prompts,
        confidence=confidence,
    )


def _outcome_test(prompts: Sequence[PromptChange]) -> McNemar:
    return mcnemar(
        {p.task_id: p.first.solved == 1 for p in prompts}, {p.task_id: p.second.solved == 1 for p in prompts}
    )


def _pass_at(
    sampled: RateComparison | None, confidence: float, num_comparisons: int = 1
) -> tuple[PassAtKDifference, ...]:
    prompts = () if sampled is None else sampled.prompts
    first = {p.task_id: (p.first.solved, p.first.scored) for p in prompts}
    second = {p.task_id: (p.second.solved, p.second.scored) for p in prompts}
    return pass_at_differences(first, second, confidence=confidence, num_comparisons=num_comparisons)


def _lengths(prompts: Sequence[PromptChange], confidence: float, seed: int) -> tuple[LengthDifference, ...]:
    def tokens(attempts: Attempts, is_right: bool) -> list[int]:
        answers = (a for a in attempts.answers if not is_right or a.outcome)
        return [a.num_tokens for a in answers if a.num_tokens is not None]

    rows = []
    for what in ("all answers", "right answers"):
        pairs = [tuple(tokens(side, what == "right answers") for side in (p.first, p.second)) for p in prompts]
        both = [(one, other) for one, other in pairs if one and other]
        if not both:
            continue
        longest = float(max(1, *(n for one, other in both for n in (*one, *other))))
        changes = [fmean(other) - fmean(one) for one, other in both]
        rows.append(
            LengthDifference(
                what=what,
                first=fmean(fmean(one) for one, _ in both),
                second=fmean(fmean(other) for _, other in both),
                interval=bootstrap_mean(changes, bound=longest, confidence=confidence, seed=seed),
                num_prompts=len(both),
            )
        )
    return tuple(rows)


def _corrected(found: Sequence[RateComparison | None]) -> list[RateComparison | None]:
    known = [c for c in found if c is not None]
    corrected = iter(holm([c.p_value for c in known]))
    return [None if c is None else replace(c, p_adjusted=next(corrected)) for c in found]


def _warnings(first: EvaluationRecord, second: EvaluationRecord, main: RateComparison) -> list[str]:
    found = []
    for name, words in SETTING_NAMES.items():
        one, other = first.settings.get(name), second.settings.get(name)
        if one is not None and other is not None and one != other:
            found.append(f"Different {words}: {one} for {first.label}, {other} for {second.label}.")
    texts = [(side.prompts or {}).get for side in (first, second)]
    changed = [p.task_id for p in main.prompts if _differ(p.task_id, texts)]
    if changed:
        found.append(
            f"{len(changed)} prompts have the same id and another text, for instance {changed[0]}: "
            "these are not the same tasks."
        )
    for side in (first, second):
        if side.num_unscored:
            found.append(f"{side.label}: {side.num_unscored} answers could not be judged; they count on no side.")
    return found


def _differ(task_id: str, texts: Sequence[Callable[[str], str | None]]) -> bool:
    one, other = (text(task_id) for text in texts)
    return bool(one and other and one != other)


def _count(side: EvaluationRecord) -> int:
    return len({*side.sampled, *side.greedy})


def _ends(low: float, high: float) -> str:
    return f"[{format_fixed(100 * low, 1)}, {format_fixed(100 * high, 1)}]"
