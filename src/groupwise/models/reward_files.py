"""Reward models on disk.

A folder of ours is an ordinary Hugging Face folder, the body without an LM head and the tokenizer, with two files more:

    reward_head.safetensors    weight [1, D] float32
    reward_model.json          {"format": 1, "mean": 0.4, "std": 1.7, "end_token_id": 2, "facts": {...}}

mean and std are those of the scores of held-out pairs, both sides together: scores have no zero and no unit of their
own. Folders of transformers' AutoModelForSequenceClassification with one label are read too, where the head is a linear
layer `score` behind a causal body; their scores are taken as they are, and they are shown whole conversations.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from groupwise.errors import EngineError
from groupwise.models.loading import LoadedModel
from groupwise.models.lora import adapted_layers, merged_state_dict
from groupwise.models.reward_model import RewardFunction, RewardModel, rewards_of, tree_rewards
from groupwise.models.token_tree import count_nodes

FORMAT = 1
HEAD_FILE, FACTS_FILE = "reward_head.safetensors", "reward_model.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedReward:
    """A reward model ready to score.

    Example:
        LoadedReward(model=RewardModel(...), rewards=tree_rewards, tokenizer=..., end_token_id=2, mean=0.4, std=1.7,
                     reads_conversations=False, source="runs/shop-1/checkpoints/reward-200")
    """

    model: RewardModel
    rewards: RewardFunction
    """How it is forwarded: through a token tree where the body can be served by one."""
    tokenizer: Any
    """Its own. Only its ids mean something to it."""
    end_token_id: int
    """Behind each completion."""
    mean: float
    """Of the scores of held-out pairs; 0 where nothing is known."""
    std: float
    """The same; 1 where nothing is known."""
    reads_conversations: bool
    """True = was trained on whole conversations as the chat template writes them, False = on prompts and completions as
    this program renders them."""
    source: str
    """The folder."""

    def num_tokens(self, sequences: Sequence[Sequence[int]]) -> int:
        """What one forward of these sequences computes: nodes of their token tree, or a padded batch."""
        if self.rewards is tree_rewards:
            return count_nodes(sequences)
        return len(sequences) * max(map(len, sequences))


def save_reward_model(
    folder: Path,
    model: RewardModel,
    tokenizer: Any,
    *,
    end_token_id: int,
    mean: float = 0.0,
    std: float = 1.0,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a folder that `load_reward_model` opens; `facts` are kept for the reader and decide nothing.

    Adapters are added into the weights. Written beside and renamed into place, so that a folder under its final name is
    complete.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if adapted_layers(model.body):
        model.body.save_pretrained(partial, state_dict=merged_state_dict(model.body))
    else:
        model.body.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    write_reward_files(partial, model, end_token_id=end_token_id, mean=mean, std=std, facts=facts)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def write_reward_files(
    folder: Path,
    model: RewardModel,
    *,
    end_token_id: int,
    mean: float = 0.0,
    std: float = 1.0,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the two files that make the folder of a body and its tokenizer that of a reward model."""
    save_file({"weight": model.head.weight.detach().float().cpu().contiguous()}, folder / HEAD_FILE)
    about = {"format": FORMAT, "mean": mean, "std": std, "end_token_id": end_token_id, "facts": dict(facts or {})}
    (folder / FACTS_FILE).write_text(json.dumps(about, indent=1))


def load_reward_model(folder: Path, *, device: str = "auto", dtype: str = "auto") -> LoadedReward:
    """Loads a folder of either sort, in evaluation mode; device and dtype as in load_model.

    Raises:
        EngineError: if the folder holds no reward model, or one that cannot be read.
    """
    refuse_other_models(folder)
    target = torch.device(device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
    if dtype == "auto":
        dtype = "float32" if target.type == "cpu" else "bfloat16"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ours = (folder / FACTS_FILE).is_file()
        body, head = (_own_parts if ours else _classifier_parts)(folder, getattr(torch, dtype))
        mean, std, end_token_id = _read_facts(folder) if ours else (0.0, 1.0, _end_of(folder, tokenizer))
    except EngineError:
        raise
    except Exception as error:  # the readers of foreign files raise whatever they like, bare Exception included
        first = str(error).strip().split("\n")[0][:300]
        raise EngineError(f"reward model: {folder} cannot be read.\n  {first}") from error
    model = RewardModel(body, head.float()).to(target).eval()
    return LoadedReward(
        model=model,
        rewards=rewards_of(model),
        tokenizer=tokenizer,
        end_token_id=end_token_id,
        mean=mean,
        std=std,
        reads_conversations=not ours,
        source=str(folder),
    )


def refuse_other_models(folder: Path) -> None:
    """Looks at the configuration alone: is this a reward model of either sort? Quick, before anything is loaded.

    Raises:
        EngineError: if there is no model, or one without a score, or with several.
    """
    if not (folder / "config.json").is_file():
        raise EngineError(
            f"reward model: {folder} is not a folder with a config.json.\n"
            "  Give one that a reward_model stage wrote (checkpoints/NAME-STEP), or one of a sequence classification "
            "model with one label."
        )
    if (folder / FACTS_FILE).is_file():
        return
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = config.get("architectures") or ["an unknown architecture"]
    if not names[0].endswith("ForSequenceClassification"):
        raise EngineError(
            f"reward model: {folder} holds a {names[0]}, which gives no score.\n"
            "  Give a folder that a reward_model stage wrote, or a ...ForSequenceClassification with one label."
        )


def refuse_foreign_tokenizer(policy: LoadedModel, reward: LoadedReward) -> None:
    """A reward model that is to read the policy's token ids must mean the same by them.

    Compared are the vocabularies, added tokens included: every token of the policy must have the same id there. The
    reward model may know more tokens. Not needed where it judges text, which it tokenises itself.

    Raises:
        EngineError: with both names and the first token that differs.
    """
    theirs = reward.tokenizer.get_vocab()
    own = policy.tokenizer.get_vocab()
    differing = sorted((i, token) for token, i in own.items() if theirs.get(token) != i)
    if not differing:
        return
    number, token = differing[0]
    there = "is unknown" if token not in theirs else f"is {theirs[token]}"
    raise EngineError(
        f"reward model: {reward.source} and the policy {policy.source} do not have the same token ids.\n"
        f"  {len(differing)} of the policy's {len(own)} tokens differ, such as {token!r}, which is {number} in the "
        f"policy and {there} in the reward model.\n"
        "  Train a reward model from this policy, or use this one as a judge of text: [verifier] kind = "
        '"reward_model", where it reads the text with its own tokenizer.'
    )


def _own_parts(folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, nn.Linear]:
    body, report = AutoModel.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    _refuse_missing(folder, report)
    weight = load_file(folder / HEAD_FILE)["weight"]
    width = body.config.get_text_config().hidden_size
    if weight.shape != (1, width):
        raise EngineError(
            f"reward model: {folder / HEAD_FILE} has shape {tuple(weight.shape)}, the body needs (1, {width})."
        )
    head = nn.Linear(width, 1, bias=False)
    head.weight.data.copy_(weight)
    return body, head


def _classifier_parts(folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, nn.Linear]:
    config = AutoConfig.from_pretrained(folder)
    if config.num_labels != 1:
        raise EngineError(f"reward model: {folder} has {config.num_labels} labels; a reward model has 1.")
    model, report = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    _refuse_missing(folder, report)
    head = dict(model.named_children()).get("score")
    if not isinstance(head, nn.Linear):
        raise EngineError(
            f"reward model: the head of {type(model).__name__} in {folder} is not one linear layer `score` on the last "
            "token.\n"
            "  Give one whose body is a causal language model (Llama, Qwen, Mistral, GPT-2 ...)."
        )
    return model.base_model, head


def _refuse_missing(folder: Path, report: Mapping[str, Any]) -> None:
    if missing := sorted(report["missing_keys"]):
        raise EngineError(
            f"reward model: {folder} lacks {len(missing)} weights, such as {missing[0]}; the file is incomplete."
        )


def _read_facts(folder: Path) -> tuple[float, float, int]:
    """mean, std, end_token_id."""
    path = folder / FACTS_FILE
    try:
        about = json.loads(path.read_text())
        version, mean, std = about["format"], float(about["mean"]), float(about["std"])
        end_token_id = int(about["end_token_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"reward model: {path} cannot be read ({error!r}); write the folder again.") from error
    if version != FORMAT:
        raise EngineError(f"reward model: {path} has format {version!r}; this version reads {FORMAT}.")
    if not std > 0:
        raise EngineError(f"reward model: {path} gives std = {std}; a number above 0 is needed.")
    return mean, std, end_token_id


def _end_of(folder: Path, tokenizer: Any) -> int:
    if tokenizer.eos_token_id is None:
        raise EngineError(f"reward model: the tokenizer in {folder} names no end token; set its eos_token.")
    return int(tokenizer.eos_token_id)
