"""Tasks to token ids, exactly once: SFT, sampling, training and evaluation all see the ids that these functions give.

Differs from the usual in three places: a prompt that is too long is dropped and counted, never cut; special tokens are
added by the chat template or by the tokenizer, never by both; and a demonstration ends with the end token, so that SFT
teaches the model to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from groupwise.errors import DataError
from groupwise.types import Message, Prompt, Task


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that rendering uses."""

    @property
    def chat_template(self) -> Any:
        """None where the tokenizer has no template for chat turns."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Ids of a text, with or without what the tokenizer puts before and after it."""
        ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Ids of chat turns."""
        ...


def render_prompt(task: Task, tokenizer: Tokenizer) -> Prompt:
    """The ids that the model continues.

    Chat turns go through the tokenizer's template with the generation prompt, and get only the special tokens that the
    template writes. Text gets what the tokenizer puts before a text (such as one BOS), and nothing after it: an end
    token there would tell the model that it is finished.

    Raises:
        DataError: chat turns and no template, turns that the template refuses, or no tokens at all.
    """
    ids = _encode_text(task.prompt, tokenizer) if isinstance(task.prompt, str) else _encode_turns(task, tokenizer)
    if not ids:
        raise DataError(f"task {task.id}: the prompt has no tokens; a model needs at least one to continue.")
    return Prompt(task_id=task.id, token_ids=tuple(ids))


def render_demonstration(task: Task, tokenizer: Tokenizer, end_token_id: int) -> tuple[Prompt, tuple[int, ...]]:
    """The prompt, rendered as for sampling, and the ids of the demonstration with the end token once at the end.

    The demonstration is encoded on its own, without special tokens: no token joins the last character of the prompt
    with the first of the completion, which sampling could never produce.

    Raises:
        DataError: as render_prompt, or a task without a demonstration.
    """
    if not task.demonstration:
        raise DataError(f"task {task.id} has no demonstration; set data.columns.demonstration.")
    return render_prompt(task, tokenizer), (*completion_ids(task.demonstration, tokenizer, end_token_id), end_token_id)


def completion_ids(text: str, tokenizer: Tokenizer, end_token_id: int) -> tuple[int, ...]:
    """The ids of a completion encoded on its own, without special tokens and without end tokens at its end."""
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    while ids and ids[-1] == end_token_id:
        ids.pop()
    return tuple(ids)


def drop_long(prompts: Sequence[Prompt], *, max_tokens: int) -> tuple[tuple[Prompt, ...], int]:
    """The prompts of at most `max_tokens` tokens, in order, and how many were dropped. A prompt is never cut: a cut
    could remove the system turn or a special token, and the model would answer another question.

    Raises:
        DataError: every prompt is too long.
    """
    kept = tuple(prompt for prompt in prompts if len(prompt.token_ids) <= max_tokens)
    if prompts and not kept:
        shortest = min(len(prompt.token_ids) for prompt in prompts)
        raise DataError(
            f"all {len(prompts)} prompts are longer than data.max_prompt_tokens = {max_tokens}; the shortest has "
            f"{shortest} tokens. Raise data.max_prompt_tokens, or shorten the prompts."
        )
    return kept, len(prompts) - len(kept)


def _encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    plain = list(tokenizer.encode(text, add_special_tokens=False))
    full = list(tokenizer.encode(text, add_special_tokens=True))
    num_before = next((i for i in range(len(full) - len(plain) + 1) if full[i : i + len(plain)] == plain), None)
    if num_before is None:  # a tokenizer that reads a text differently behind its special tokens: take what it says
        return full
    before = full[:num_before]
    return plain if plain[:num_before] == before else [*before, *plain]


def _encode_turns(task: Task, tokenizer: Tokenizer) -> list[int]:
    if not tokenizer.chat_template:
        raise DataError(
            f"task {task.id} is made of chat turns and the tokenizer has no chat template. Use an instruction-tuned "
            "model, or plain text: remove data.system_prompt and write the prompt with data.prompt_template."
        )
    turns: list[Message] = [dict(turn) for turn in task.prompt if not isinstance(turn, str)]
    try:
        encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
    except Exception as error:  # templates are programs: they raise whatever their engine does
        raise DataError(f"task {task.id}: the chat template refuses the turns: {error}") from error
    ids = encoded["input_ids"] if isinstance(encoded, Mapping) else encoded
    return [int(token) for token in ids]
