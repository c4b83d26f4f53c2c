"""What a curation ledger tells a plan: pass rates, the prompts that are kept, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from groupwise.config import Recipe
from groupwise.curation import PassRate
from groupwise.curation.curation_file import LedgerFile, read_ledger, refuse_foreign
from groupwise.curation.decision import Reason, task_key
from groupwise.errors import DataError
from groupwise.launch.plan_inputs import Lengths
from groupwise.launch.plan_stages import has_reward_model
from groupwise.launch.verifiers import build_verifier
from groupwise.planning.pass_rates import BetaRates
from groupwise.types import Task

_ADVICE = "Measure this recipe with `groupwise curate`, or plan without --ledger and curation.ledger."


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A ledger as a plan reads it: read_measured(recipe, Path("curated/ledger.jsonl"), tasks).rates."""

    ledger: LedgerFile
    rates: BetaRates
    """The distribution of pass rates that fits the counts of all sampled prompts."""
    kept: tuple[PassRate, ...]
    """Posteriors of the recipe's training prompts that are kept."""

    @property
    def source(self) -> str:
        """One sentence for the reader."""
        sampled = sum(1 for row in self.ledger.rows if row.num_samples)
        completions = sum(row.num_samples for row in self.ledger.rows)
        return (
            f"measured on {sampled} prompts with {completions} completions of {self.ledger.identity.model}; fitted "
            f"Beta({self.rates.alpha:.2f}, {self.rates.beta:.2f}); {len(self.kept)} prompts kept"
        )

    def lengths(self, counted: Lengths) -> Lengths:
        """The counted lengths, with what the ledger measured in their place."""
        given = self.ledger.summary
        completion = given.get("completion_tokens_mean")
        prompt = given.get("num_prompt_tokens_mean")
        if not completion or not prompt:
            return counted
        longest = given.get("completion_tokens_longest") or completion
        return replace(
            counted,
            prompt=float(prompt),
            trunk=min(float(prompt), float(given.get("trunk_tokens") or counted.trunk)),
            completion=float(completion),
            longest=max(float(completion), float(longest)),
            source="measured by groupwise curate",
        )


def read_measured(recipe: Recipe, path: Path, tasks: Sequence[Task]) -> Measured:
    """Reads a ledger that `groupwise curate` wrote: its ledger.jsonl, or the folder that holds it.

    tasks are the recipe's training tasks. Refused is what was measured with another model (by its name: the weights are
    not read), verifier or sampling; a reward model among the verifiers is not compared, as it would have to be loaded.

    Raises:
        DataError: if it cannot be read, was measured with something else or on other tasks, or has no samples.
    """
    ledger = read_ledger(path)
    if not any(row.num_samples for row in ledger.rows):
        raise DataError(f"{path}: no prompt of this ledger was sampled; run `groupwise curate` to its end")
    _refuse_other_origin(recipe, ledger)
    keys = {task_key(task) for task in tasks}
    rows = [(row, d) for row, d in zip(ledger.rows, ledger.decisions, strict=True) if row.key in keys]
    if tasks and not rows:
        raise DataError(
            f"{ledger.path} is about other prompts: none of the {len(tasks)} training tasks is in it, or all have "
            f"another gold now. {_ADVICE}"
        )
    prior = ledger.prior
    keeps = {Reason.KEPT, Reason.UNDECIDED} if ledger.summary.get("keep_undecided") else {Reason.KEPT}
    return Measured(
        ledger=ledger,
        rates=BetaRates(alpha=prior.alpha, beta=prior.beta),
        kept=tuple(prior.posterior(solved=r.solved, scored=r.scored) for r, d in rows if d.reason in keeps),
    )


def _refuse_other_origin(recipe: Recipe, ledger: LedgerFile) -> None:
    then, rollout = ledger.identity, recipe.rollout
    same_model = _model_name(recipe, then.model) == _model_name(recipe, recipe.model.name)
    refuse_foreign(
        ledger,
        replace(
            then,
            model=recipe.model.name,
            weights=then.weights if same_model else "not read",
            verifier=then.verifier if has_reward_model(recipe.verifier) else _verifier_version(recipe),
            sampling={
                "temperature": rollout.temperature,
                "top_p": rollout.top_p,
                "top_k": rollout.top_k,
                "max_completion_tokens": rollout.max_completion_tokens,
                "stop": list(rollout.stop),
            },
        ),
        _ADVICE,
    )


def _model_name(recipe: Recipe, name: str) -> str:
    """A hub id as it is, a folder or file by its absolute path."""
    path = recipe.resolve(name)
    return str(path.resolve()) if path.exists() else name


def _verifier_version(recipe: Recipe) -> str:
    verifier = build_verifier(recipe)
    try:
        return verifier.version
    finally:
        verifier.close()
