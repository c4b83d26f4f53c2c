"""A reward model as a judge of text: an opinion with a number, where no rule knows the truth.

    text --own tokenizer--> prompt, completion, end token --reward model--> score
    reward = sigmoid((score - mean) / std), solved where that is threshold or more

It reads text with its own tokenizer, so any reward model can judge any policy. For rewards by the policy's token ids,
see reward_files.refuse_foreign_tokenizer.

    status      reason starts with
    ----------  --------------------------------------
    scored      solved | not_solved
    invalid     too_long
    unscored    prompt_too_long prompt_unusable closed

Rewards are rounded to 4 digits: forwards of other shapes differ in the last bits of a score, and that must not make two
verdicts of one text. Judged alone and in its group a text has the same reward but for a last digit now and then.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from groupwise.data.render import completion_ids, render_prompt
from groupwise.errors import DataError, VerifierError
from groupwise.models import reward_model
from groupwise.models.reward_files import LoadedReward, load_reward_model
from groupwise.types import Check, Status, Task, Verdict
from groupwise.verifiers.contract import UnusableGold, gold_text

_WEIGHTS = ("*.safetensors", "*.bin", "config.json", "reward_model.json", "tokenizer*", "chat_template*", "*.model")
"""What decides a score, as patterns of file names."""
_DIGITS = 4


class RewardModelVerifier:
    """Scores completions. Safe from many threads: one forward at a time.

    Example:
        verifier = RewardModelVerifier(path="runs/shop-1/checkpoints/reward-200")
        verifier.judge(task, "Turn it off and on again.").reward      # 0.7311, one std above the mean held-out answer

    Args: the settings of config.verifier_reward_model.RewardModelVerifierSection, under the same names. base_folder is
    where a relative path starts.

    Raises:
        EngineError: the folder holds no reward model that can be read.
    """

    def __init__(
        self,
        *,
        path: str,
        threshold: float = 0.5,
        pays: Literal["score", "outcome"] = "score",
        mean: float | None = None,
        std: float | None = None,
        max_tokens: int | None = None,
        tokens_per_forward: int = 8192,
        device: str = "auto",
        dtype: str = "auto",
        gold_column: str | None = None,
        base_folder: Path | None = None,
    ) -> None:
        self._folder = (Path() if base_folder is None else base_folder) / Path(path).expanduser()
        loaded = load_reward_model(self._folder, device=device, dtype=dtype)
        self._loaded: LoadedReward | None = loaded
        self._mean = loaded.mean if mean is None else mean
        self._std = loaded.std if std is None else std
        self._threshold = threshold
        self._pays = pays
        positions = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
        self._max_tokens: float = max_tokens or positions or math.inf
        self._tokens_per_forward = tokens_per_forward
        self._gold_column = gold_column
        self._lock = threading.Lock()
        self._version: str | None = None

    def judge(self, task: Task, completion_text: str) -> Verdict:
        """The verdict on one completion; see the module's table for what can come out."""
        return self.judge_many([(task, completion_text)])[0]

    def judge_many(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """The verdicts in the order of the pairs. Neighbours that answer the same task share the prompt's forward."""
        verdicts: list[Verdict] = []
        for _, group in itertools.groupby(pairs, key=lambda pair: pair[0].id):
            verdicts += self._judge_group(list(group))
        return verdicts

    def gold(self, task: Task) -> str:
        """The completion in gold_column.

        Raises:
            VerifierError: no column is named, or it holds no text.
        """
        if self._gold_column is None:
            raise VerifierError(
                f"gold_unknown: a reward model knows no right answer to task {task.id!r}; "
                'set gold_column to a column with one, and pays = "outcome"'
            )
        return gold_text(task, self._gold_column)

    def check(self, tasks: Sequence[Task]) -> list[UnusableGold]:
        """The tasks whose prompt cannot be read and, with a gold column, those whose gold is missing or not solved."""
        found = []
        for task in tasks:
            try:
                verdict = self.judge(task, "" if self._gold_column is None else self.gold(task))
            except VerifierError as error:
                found.append(UnusableGold(task_id=task.id, reason=str(error)))
                continue
            if verdict.status is Status.UNSCORED:
                found.append(UnusableGold(task_id=task.id, reason=verdict.reason))
            elif self._gold_column is not None and not verdict.outcome:
                found.append(UnusableGold(task_id=task.id, reason=f"gold_failed: {verdict.reason}"))
        return found

    @property
    def version(self) -> str:
        """Hash of this code, the settings, and the weights and tokenizer files."""
        if self._version is None:
            digest = hashlib.sha256()
            settings = [self._mean, self._std, self._threshold, self._pays, self._max_tokens]
            digest.update(json.dumps(settings).encode())
            for source in (__file__, reward_model.__file__):
                digest.update(Path(source).read_bytes())
            for file in sorted({file for pattern in _WEIGHTS for file in self._folder.glob(pattern)}):
                with file.open("rb") as opened:
                    digest.update(file.name.encode() + b"\0" + hashlib.file_digest(opened, "sha256").digest())
            self._version = digest.hexdigest()[:16]
        return self._version

    def close(self) -> None:
        """Frees the model; later verdicts are unscored."""
        with self._lock:
            self._loaded = None

    def _judge_group(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Pairs of one task."""
        with self._lock:
            loaded = self._loaded
            if loaded is None:
                return [_unscored("closed: the verifier was closed") for _ in pairs]
            try:
                read = [_token_ids(task, text, loaded) for task, text in pairs]
            except DataError as error:
                return [_unscored(f"prompt_unusable: {error}") for _ in pairs]
            fitting = [ids for _, ids in read if len(ids) <= self._max_tokens]
            scores = dict(zip(fitting, self._scores(loaded, fitting), strict=True))
        return [self._verdict(prompt_length, ids, scores) for prompt_length, ids in read]

    @torch.no_grad()
    def _scores(self, loaded: LoadedReward, sequences: Sequence[tuple[int, ...]]) -> list[float]:
        """Scores of sequences with one prompt, in as few forwards as tokens_per_forward allows."""
        batches: list[list[tuple[int, ...]]] = []
        for sequence in sequences:
            if batches and loaded.num_tokens([*batches[-1], sequence]) <= self._tokens_per_forward:
                batches[-1].append(sequence)
            else:
                batches.append([sequence])
        return [score for batch in batches for score in loaded.rewards(loaded.model, batch).tolist()]

    def _verdict(self, prompt_length: int, ids: tuple[int, ...], scores: Mapping[tuple[int, ...], float]) -> Verdict:
        if prompt_length >= self._max_tokens:
            return _unscored(
                f"prompt_too_long: {prompt_length} tokens, {self._max_tokens} with the completion are read"
            )
        if len(ids) > self._max_tokens:
            found = f"{len(ids)} tokens with the prompt"
            check = Check(name="length", passed=False, expected=f"at most {self._max_tokens}", found=found)
            reason = f"too_long: {found}, at most {self._max_tokens} are read"
            return Verdict(status=Status.INVALID, reward=0.0, outcome=False, reason=reason, checks=(check,))
        score = scores[ids]
        if not math.isfinite(score):
            return _unscored(f"not_finite: the score is {score}")
        squeezed = round(_sigmoid((score - self._mean) / self._std), _DIGITS)
        solved = squeezed >= self._threshold
        check = Check(
            name="score", passed=solved, expected=f"{self._threshold} or more", found=f"{squeezed}, from {score:.4g}"
        )
        return Verdict(
            status=Status.SCORED,
            reward=squeezed if self._pays == "score" else float(solved),
            outcome=solved,
            reason=f"{'solved' if solved else 'not_solved'}: {squeezed}",
            checks=(check,),
        )


def _token_ids(task: Task, text: str, loaded: LoadedReward) -> tuple[int, tuple[int, ...]]:
    """Length of the prompt, and the ids of prompt and completion as the model was trained to see them.

    Raises:
        DataError: a prompt that has no tokens, or chat turns that the template refuses.
    """
    prompt = render_prompt(task, loaded.tokenizer).token_ids
    if loaded.reads_conversations and not isinstance(task.prompt, str):
        turns = [*(dict(turn) for turn in task.prompt), {"role": "assistant", "content": text}]
        try:
            encoded: Any = loaded.tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
        except Exception as error:  # templates are programs: they raise whatever their engine does
            raise DataError(f"task {task.id}: the chat template refuses the turns: {error}") from error
        return min(len(prompt), len(encoded) - 1), tuple(encoded)
    completion = completion_ids(text, loaded.tokenizer, loaded.end_token_id)
    return len(prompt), (*prompt, *completion, loaded.end_token_id)


def _sigmoid(value: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * value))  # does not overflow


def _unscored(reason: str) -> Verdict:
    return Verdict(status=Status.UNSCORED, reward=None, outcome=None, reason=reason)
