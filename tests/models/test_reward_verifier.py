"""A reward model as a judge of text."""

from __future__ import annotations

import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from reward_folders import classifier, saved
from typer.testing import CliRunner

from groupwise.cli.main import app, main
from groupwise.config import load_scoring_recipe
from groupwise.config.verifier import ComposeVerifierSection
from groupwise.errors import ConfigError, VerifierError
from groupwise.launch.attacks import attack_plan
from groupwise.launch.audit import audit_recipe
from groupwise.launch.verifiers import verifier_of
from groupwise.models.reward_model import padded_rewards, tree_rewards
from groupwise.models.reward_verifier import RewardModelVerifier
from groupwise.rollout.collect import judge_all
from groupwise.types import Completion, GroupVerifier, Status, Task
from groupwise.verifiers.judging import judge_pairs

TASK = Task(id="q", prompt="2 + 2?", columns={"gold": "4"})
TEXTS = ("4", "5", "It is four.", "I do not know", "")


@pytest.fixture
def folder(tiny_model, tmp_path):
    return saved(tmp_path / "rm", tiny_model(), mean=0.2, std=1.5)


def verifier(folder, **options):
    return RewardModelVerifier(path=str(folder), device="cpu", **options)


def score_of(judge, task, text):
    """By hand: the text's bytes behind the prompt's, the end token, one padded forward."""
    loaded = judge._loaded
    prompt = loaded.tokenizer.encode(task.prompt)
    ids = [*prompt, *loaded.tokenizer.encode(text), loaded.end_token_id]
    with torch.no_grad():
        return padded_rewards(loaded.model, [ids]).item()


def test_the_reward_is_the_squeezed_score(folder):
    judge = verifier(folder)
    for text in TEXTS:
        expected = 1 / (1 + math.exp(-(score_of(judge, TASK, text) - 0.2) / 1.5))
        verdict = judge.judge(TASK, text)
        assert verdict.status is Status.SCORED
        assert verdict.reward == pytest.approx(expected, abs=6e-5)
        assert verdict.outcome == (verdict.reward >= 0.5)
        assert verdict.reason.startswith("solved:" if verdict.outcome else "not_solved:")
    assert len({judge.judge(TASK, text).reward for text in TEXTS}) == len(TEXTS)


def test_mean_std_and_threshold_of_the_recipe_come_first(folder):
    plain = verifier(folder)
    score = score_of(plain, TASK, "4")
    assert verifier(folder, mean=score, std=2.0).judge(TASK, "4").reward == pytest.approx(0.5, abs=1e-4)
    one_above = verifier(folder, mean=score - 2.0, std=2.0, threshold=0.73).judge(TASK, "4")
    assert one_above.reward == pytest.approx(0.7311, abs=1e-4)  # 1 / (1 + exp(-1))
    assert one_above.outcome
    assert not verifier(folder, mean=score - 2.0, std=2.0, threshold=0.74).judge(TASK, "4").outcome


def test_outcome_pays_all_or_nothing_and_the_gold_is_proved(folder):
    score = score_of(verifier(folder), TASK, "4")
    good = verifier(folder, pays="outcome", mean=score - 1, gold_column="gold")
    assert good.judge(TASK, good.gold(TASK)).reward == 1.0
    assert good.check([TASK]) == []
    bad = verifier(folder, pays="outcome", mean=score + 1, gold_column="gold")
    assert bad.judge(TASK, "4").reward == 0.0
    [finding] = bad.check([TASK, TASK][:1])
    assert finding.blocking
    assert finding.reason.startswith("gold_failed: not_solved")
    [missing] = good.check([Task(id="r", prompt="?")])
    assert missing.reason.startswith("gold_missing")


def test_without_a_gold_nothing_blocks(folder):
    judge = verifier(folder)
    assert judge.check([TASK]) == []
    with pytest.raises(VerifierError, match="gold_unknown"):
        judge.gold(TASK)


def test_a_group_is_judged_as_each_alone_in_one_forward(folder):
    judge = verifier(folder)
    other = Task(id="r", prompt="3 + 3?")
    pairs = [(task, text) for task in (TASK, other) for text in (*TEXTS, "4")]
    forwards = []

    def counted(model, sequences):
        forwards.append(len(sequences))
        return tree_rewards(model, sequences)

    alone = [judge.judge(task, text) for task, text in pairs]
    object.__setattr__(judge._loaded, "rewards", counted)
    together = judge.judge_many(pairs)
    assert forwards == [6, 6]
    assert [v.outcome for v in together] == [v.outcome for v in alone]
    assert [v.reward for v in together] == pytest.approx([v.reward for v in alone], abs=1.1e-4)
    assert together[0].reward == together[5].reward


def test_memory_is_bounded_by_the_tokens_of_a_forward(folder):
    judge = verifier(folder, tokens_per_forward=20)
    sizes = []

    def counted(model, sequences):
        sizes.append(sum(map(len, sequences)))
        return padded_rewards(model, sequences)

    object.__setattr__(judge._loaded, "rewards", counted)
    judge.judge_many([(TASK, text) for text in ("1", "2", "3", "4")])
    assert sizes == [16, 16]  # 6 bytes of prompt, 1 of text, 1 end token; padded, two fit in 20


def test_threads_get_the_verdicts_of_one_thread(folder):
    judge = verifier(folder)
    texts = [f"answer {i}" for i in range(40)]
    expected = [judge.judge(TASK, text) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: judge.judge(TASK, text), texts)) == expected


def test_collecting_and_scoring_use_the_batch_path(folder):
    judge = verifier(folder)
    assert isinstance(judge, GroupVerifier)
    expected = judge.judge_many([(TASK, text) for text in TEXTS])
    judge.judge = None  # the way of one at a time must not be taken
    assert judge_all(judge, [(TASK, Completion(text=text)) for text in TEXTS]) == expected
    assert list(judge_pairs(judge, [(TASK, text) for text in TEXTS])) == expected


def test_a_batch_that_breaks_is_judged_one_by_one(folder, monkeypatch):
    judge = verifier(folder)

    def broken(pairs):
        if len(pairs) > 1 or pairs[0][1] == "5":
            raise RuntimeError("out of memory")
        return RewardModelVerifier.judge_many(judge, pairs)

    monkeypatch.setattr(judge, "judge_many", broken)
    for verdicts in (
        judge_all(judge, [(TASK, Completion(text=text)) for text in TEXTS]),
        list(judge_pairs(judge, [(TASK, text) for text in TEXTS])),
    ):
        assert [v.status for v in verdicts].count(Status.UNSCORED) == 1
        assert verdicts[1].reason.startswith("verifier_raised")


def test_too_long_is_the_completions_fault_and_a_long_prompt_is_not(folder):
    judge = verifier(folder, max_tokens=10)
    assert judge.judge(TASK, "abc").status is Status.SCORED  # 6 + 3 + 1
    long = judge.judge(TASK, "abcd")
    assert (long.status, long.reward) == (Status.INVALID, 0.0)
    assert long.reason == "too_long: 11 tokens with the prompt, at most 10 are read"
    task = Task(id="p", prompt="0123456789")
    verdict = judge.judge(task, "1")
    assert verdict.reason.startswith("prompt_too_long")
    assert judge.check([task])[0].blocking
    assert judge.judge(Task(id="e", prompt=""), "1").reason.startswith("prompt_unusable")


def test_a_classifier_is_shown_the_whole_conversation(tmp_path):
    theirs = classifier(tmp_path)
    judge = verifier(tmp_path)
    task = Task(id="c", prompt=({"role": "user", "content": "2 + 2?"},))
    text = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
    ids = torch.tensor([judge._loaded.tokenizer.encode(text)])
    expected = torch.sigmoid(theirs(ids).logits[0, 0]).item()
    assert judge.judge(task, "4").reward == pytest.approx(expected, abs=6e-5)


def test_the_version_follows_weights_and_settings(folder):
    judge = verifier(folder)
    assert judge.version == verifier(folder).version
    assert judge.version != verifier(folder, threshold=0.6).version
    path = folder / "reward_head.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert verifier(folder).version != judge.version


def test_after_close_nobody_is_paid(folder):
    judge = verifier(folder)
    judge.close()
    judge.close()
    assert judge.judge(TASK, "4").reason.startswith("closed")


def recipe_text(folder, more=""):
    return f'[verifier]\nkind = "reward_model"\npath = "{folder.name}"\ndevice = "cpu"\n{more}'


def test_groupwise_score_reads_a_reward_model_beside_the_recipe(folder):
    recipe = folder.parent / "recipe.toml"
    recipe.write_text(recipe_text(folder))
    rows = [{"id": "q", "prompt": "2 + 2?", "columns": {}, "completion": text} for text in TEXTS]
    (folder.parent / "given.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    ran = CliRunner().invoke(app, ["score", str(recipe), str(folder.parent / "given.jsonl")])
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [line["reward"] for line in lines] == [
        v.reward for v in verifier(folder).judge_many([(TASK, t) for t in TEXTS])
    ]


def test_a_bad_folder_is_the_users_to_mend(folder, monkeypatch, capsys):
    (folder / "reward_head.safetensors").unlink()
    recipe = folder.parent / "recipe.toml"
    recipe.write_text(recipe_text(folder))
    given = folder.parent / "given.jsonl"
    given.write_text(json.dumps({"id": "q", "prompt": "?", "columns": {}, "completion": "4"}))
    monkeypatch.setattr(sys, "argv", ["groupwise", "score", str(recipe), str(given)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"EngineError: reward model: {folder} cannot be read" in capsys.readouterr().err


def test_a_gold_column_needs_outcomes(folder):
    recipe = folder.parent / "recipe.toml"
    recipe.write_text(recipe_text(folder, 'gold_column = "gold"\n'))
    with pytest.raises(ConfigError, match=r"gold_column = .gold. needs pays = .outcome"):
        load_scoring_recipe(recipe)


def composition(folder, role):
    return ComposeVerifierSection.model_validate(
        {
            "kind": "compose",
            "parts": [
                {"name": "answer", "verifier": {"kind": "math", "answer_in": "text"}, "weight": 4.0},
                {
                    "name": "style",
                    "role": role,
                    "verifier": {"kind": "reward_model", "path": folder.name, "device": "cpu"},
                },
            ],
        }
    )


def test_as_a_shaping_part_it_adds_and_blocks_no_gold(folder):
    together = verifier_of(composition(folder, "shaping"), folder.parent)
    style = verifier(folder)
    right, wrong = together.judge(TASK, "4"), together.judge(TASK, "5")
    assert right.outcome
    assert right.reward == pytest.approx(0.8 + 0.2 * style.judge(TASK, "4").reward)
    assert (wrong.outcome, wrong.reward) == (False, 0.0)
    assert together.check([TASK]) == []
    together.close()


def test_as_a_shaping_part_its_opinion_of_the_gold_is_no_reason_to_stop(folder):
    recipe = folder.parent / "recipe.toml"
    parts = '[verifier]\nkind = "compose"\n[[verifier.parts]]\nname = "answer"\nweight = 4.0\n'
    parts += '[verifier.parts.verifier]\nkind = "math"\nanswer_in = "text"\n'
    parts += '[[verifier.parts]]\nname = "style"\nrole = "shaping"\n'
    parts += f'[verifier.parts.verifier]\nkind = "reward_model"\npath = "{folder.name}"\ndevice = "cpu"\n'
    rows = [{"prompt": f"{i} + 2?", "gold": str(i + 2)} for i in range(4)]
    (folder.parent / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    recipe.write_text('[data]\nsource = "rows.jsonl"\n[data.split]\nheldout = 2\n' + parts)
    report = audit_recipe(load_scoring_recipe(recipe))
    [golds] = [finding for finding in report.findings if finding.check == "gold earns 1"]
    assert golds.go
    assert "4 are solved and earn less for an opinion" in golds.found


def test_the_audit_tries_to_please_it(folder):
    recipe = folder.parent / "recipe.toml"
    recipe.write_text(recipe_text(folder))
    plan = attack_plan(load_scoring_recipe(recipe).verifier, folder.parent)
    names = {attack.name for attack in plan.attack(TASK, "")}
    assert {"prompt_copied", "flattery", "empty_form", "to_the_grader"} <= names
    assert "gold_denied" not in names
    assert "gold_denied" in {attack.name for attack in plan.attack(TASK, "4")}
