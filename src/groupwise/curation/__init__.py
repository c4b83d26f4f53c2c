"""Which prompts are worth sampling: what is known of each one's pass rate, and which ones are set aside.

Read `pass_rate` (one prompt), `prior` (all of them before any is tried), `retire` (when one is not worth it), then
`ledger` (all of them, over a whole run) and `allocate` (how many rollouts each gets). Before a run: `duplicates`,
`exclusions`, `decision` and `curate`; on disk `curation_file`, which is imported by its own name, because training may
reach no run directory. No tensor library is imported here.
"""

from groupwise.curation.allocate import allocate
from groupwise.curation.curate import Sampler, Visit, curate, next_visit
from groupwise.curation.decision import CuratedRow, CurateOptions, Curation, Decision, Drawn, Exclusion, Reason, decide
from groupwise.curation.duplicates import Question, find_duplicates
from groupwise.curation.exclusions import Screening, screen
from groupwise.curation.ledger import PromptLedger, PromptRow
from groupwise.curation.pass_rate import PassRate
from groupwise.curation.prior import JEFFREYS, BetaPrior, fit_prior
from groupwise.curation.retire import PromptState, RetireRule

__all__ = [
    "JEFFREYS",
    "BetaPrior",
    "CurateOptions",
    "CuratedRow",
    "Curation",
    "Decision",
    "Drawn",
    "Exclusion",
    "PassRate",
    "PromptLedger",
    "PromptRow",
    "PromptState",
    "Question",
    "Reason",
    "RetireRule",
    "Sampler",
    "Screening",
    "Visit",
    "allocate",
    "curate",
    "decide",
    "find_duplicates",
    "fit_prior",
    "next_visit",
    "screen",
]
