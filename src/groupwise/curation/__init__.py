"""Which prompts are worth sampling: what is known of each one's pass rate, and which ones are set aside.

Read `pass_rate` (one prompt), then `ledger` (all of them, over a whole run). No tensor library is imported here.
"""

from groupwise.curation.ledger import PromptLedger, PromptRow, PromptState
from groupwise.curation.pass_rate import PassRate

__all__ = ["PassRate", "PromptLedger", "PromptRow", "PromptState"]
