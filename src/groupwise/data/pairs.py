"""Rows to preference pairs: one prompt, and two completions of which one is better. For DPO and for reward models.

    prompt               chosen, rejected
    "text"               "text"
    [system, user, ...]  [assistant]
    (missing)            [system, user, ..., assistant]: both begin with the same turns, which are the prompt

These are the forms that TRL reads. The prompt is built as that of every other set, so that it is the one that is
sampled; a row with complete_prompt = true brings it as it is (`groupwise pairs` writes such rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import DataError
from groupwise.types import Message, Prompt, Task

from .messages import read_completion, read_conversation, read_messages, read_prompt
from .options import DataOptions
from .render import Tokenizer, completion_ids, render_prompt
from .sources import Row, read_rows
from .splits import prompt_key
from .tasks import passes, read_task_row

COMPLETE = "complete_prompt"
"""Column that is true where the columns prompt, chosen and rejected are final: nothing is added, nothing filtered."""
REJECTED_TRUNCATED = "rejected_truncated"
"""Column that is true where the rejected completion was cut: it gets no end token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """Two completions of one prompt.

    Example:
        PreferencePair(task=Task(id="pairs-0001", prompt="2 + 2?"), chosen="4", rejected="5")
    """

    task: Task
    """The prompt, and every column that is left; its id is the pair's."""
    chosen: str
    """The better one."""
    rejected: str
    """The worse one; never equal to the better one."""
    rejected_truncated: bool = False
    """True where the worse one was cut while it was sampled, so that no end token belongs to it."""

    @property
    def id(self) -> str:
        """Unique in its set: the number of the row ("pairs-0012")."""
        return self.task.id


class RenderedPair(NamedTuple):
    """The ids of a pair: RenderedPair(prompt=Prompt(...), chosen=(19, 2), rejected=(20, 2))."""

    prompt: Prompt
    chosen: tuple[int, ...]
    """The end token included."""
    rejected: tuple[int, ...]
    """The end token included, unless it was cut."""


def load_pairs(options: DataOptions, folder: Path) -> tuple[PreferencePair, ...]:
    """The pairs of data.pairs in the order of the file; none where it is not set. `folder` is where paths start.

    Raises:
        DataError: a file, column or value that cannot be used, an empty side, two equal sides, or no pair at all.
    """
    if options.pairs is None:
        return ()
    rows = read_rows(options.pairs, folder)
    kept = [row for row in rows if _is_complete(row) or passes(row, options)]
    if not kept:
        raise DataError(f"{options.pairs}: none of {len(rows)} rows passes data.where and data.where_not; loosen them.")
    schemas: dict[Path, str] = {}
    return tuple(_complete_pair(row) if _is_complete(row) else _pair(row, options, folder, schemas) for row in kept)


def refuse_leaked_pairs(pairs: Sequence[PreferencePair], heldout: Sequence[Task]) -> None:
    """Held-out prompts that are trained on measure memory; equal as in splits.refuse_leaks.

    Raises:
        DataError: with the number of pairs concerned, and one of them with the held-out task that it repeats.
    """
    held = {prompt_key(task): task.id for task in heldout}
    leaked = [pair for pair in pairs if prompt_key(pair.task) in held]
    if leaked:
        first = leaked[0]
        prompt = first.task.prompt
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        raise DataError(
            f"{len(leaked)} of {len(pairs)} pairs have a held-out prompt, for instance {first.id} = "
            f"{held[prompt_key(first.task)]}: {text[-120:]!r}.\n"
            "  Remove these pairs from data.pairs, or these tasks from the held-out set."
        )


def render_pair(pair: PreferencePair, tokenizer: Tokenizer, end_token_id: int) -> RenderedPair:
    """The prompt as it is rendered for sampling, and both completions, each encoded on its own.

    Raises:
        DataError: as render_prompt, or sides that are empty or equal as token ids.
    """
    chosen = completion_ids(pair.chosen, tokenizer, end_token_id)
    rejected = completion_ids(pair.rejected, tokenizer, end_token_id)
    for name, ids, text in (("chosen", chosen, pair.chosen), ("rejected", rejected, pair.rejected)):
        if not ids:
            raise DataError(f"pair {pair.id}: the {name} completion {text!r} has no token before the end token.")
    if chosen == rejected and not pair.rejected_truncated:
        raise DataError(
            f"pair {pair.id}: chosen {pair.chosen[:60]!r} and rejected {pair.rejected[:60]!r} are the same tokens; "
            "remove the pair."
        )
    end = () if pair.rejected_truncated else (end_token_id,)
    return RenderedPair(render_prompt(pair.task, tokenizer), (*chosen, end_token_id), (*rejected, *end))


def _is_complete(row: Row) -> bool:
    return row.columns.get(COMPLETE) is True


def _complete_pair(row: Row) -> PreferencePair:
    """A row in its final form; its columns have these names whatever data.columns says."""
    chosen, rejected = (read_completion(row.value(side), row.place, side) for side in ("chosen", "rejected"))
    return _checked(row, read_prompt(row.value("prompt"), row.place, "prompt"), chosen, rejected, row.columns)


def _pair(row: Row, options: DataOptions, folder: Path, schemas: dict[Path, str]) -> PreferencePair:
    names = options.columns
    chosen_turns, chosen = _side(row, names.chosen, "data.columns.chosen")
    rejected_turns, rejected = _side(row, names.rejected, "data.columns.rejected")
    if chosen_turns != rejected_turns:
        raise DataError(
            f"{row.place}: columns {names.chosen!r} and {names.rejected!r} do not begin with the same turns; "
            "two completions can be compared where they answer the same prompt."
        )
    if chosen_turns:
        _refuse_second_prompt(row, chosen_turns, options)
        row = replace(row, columns={**row.columns, names.prompt: chosen_turns})
    prompt, _, columns = read_task_row(row, options, folder, schemas)
    return _checked(row, prompt, chosen, rejected, columns, (names.chosen, names.rejected))


def _side(row: Row, column: str, setting: str) -> tuple[tuple[Message, ...], str]:
    """The turns before a completion (of a whole conversation; else none) and its text."""
    try:
        value = row.value(column)
    except DataError as error:
        raise DataError(f"{error} A pair needs both sides; set {setting}.") from error
    if isinstance(value, str) or len(read_messages(value, row.place, column)) == 1:
        return (), read_completion(value, row.place, column)
    turns, text = read_conversation(value, row.place, column)
    if text is None:
        raise DataError(f"{row.place}: column {column!r} does not end with the assistant's message, which is compared.")
    return turns, text


def _refuse_second_prompt(row: Row, turns: tuple[Message, ...], options: DataOptions) -> None:
    """Whole conversations say what the prompt is; another one beside them must be the same."""
    name = options.columns.prompt
    if options.prompt_template is not None:
        raise DataError(
            f"{row.place}: column {options.columns.chosen!r} holds a whole conversation, and data.prompt_template "
            "builds another prompt; give the answers alone, or remove the template."
        )
    given = row.columns.get(name)
    if given is None:
        return
    same = given == turns[-1]["content"] if isinstance(given, str) else read_messages(given, row.place, name) == turns
    if not same:
        raise DataError(
            f"{row.place}: column {name!r} is another prompt than the turns before the completions in "
            f"{options.columns.chosen!r}; remove one of them."
        )


def _checked(
    row: Row,
    prompt: str | tuple[Message, ...],
    chosen: str,
    rejected: str,
    columns: Any,
    used: tuple[str, ...] = ("prompt", "chosen", "rejected"),
) -> PreferencePair:
    for name, text in (("chosen", chosen), ("rejected", rejected)):
        if not text.strip():
            raise DataError(f"{row.place}: the {name} completion is empty; a pair needs text on both sides.")
    if chosen.strip() == rejected.strip():
        raise DataError(
            f"{row.place}: chosen and rejected are the same text, {chosen.strip()[:60]!r}; a pair needs two."
        )
    left = {name: value for name, value in columns.items() if name not in used}
    return PreferencePair(
        task=Task(id=f"pairs-{row.number:04d}", prompt=prompt, columns=left),
        chosen=chosen,
        rejected=rejected,
        rejected_truncated=row.columns.get(REJECTED_TRUNCATED) is True,
    )
