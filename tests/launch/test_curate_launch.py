"""`groupwise curate` in this process on a tiny model: reasons, resuming, refusals, and training on what it wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_local import Lines

from groupwise.config import Recipe, load_recipe
from groupwise.curation.curation_file import read_ledger
from groupwise.data import load_tasks
from groupwise.errors import ConfigError, DataError
from groupwise.launch import local, pass_rates
from groupwise.launch.curate import CurateChoices, curate_recipe, with_samples
from groupwise.rollout import TorchEngine
from groupwise.runs import read_events
from tiny_job import GOLD, RECIPE, write_job

PLANTED = [
    {"prompt": "All of a, F", "gold": GOLD, "note": "duplicate of the first"},
    {"prompt": "all of a, g ?", "gold": "SELECT a FROM t WHERE a > 2", "note": "another gold"},
    {"prompt": "all of a,  j", "gold": GOLD, "note": "held out"},
    {"prompt": "broken", "gold": "SELECT b FROM t", "note": "broken"},
    {"prompt": "weak", "gold": "SELECT 1", "note": "weak"},
    {"prompt": "all of a " * 200, "gold": GOLD, "note": "too long"},
    {"prompt": "rows of a, f?", "gold": "select  a FROM t", "note": "fine"},
]


def without_sft(text: str) -> str:
    start, end = text.index('[[stages]]\nname = "sft"'), text.index('[[stages]]\nname = "grpo"')
    return text[:start] + text[end:]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job whose model solves its tasks sometimes: the tiny model after the job's SFT stage."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = write_job(folder, lambda text: text[: text.index('[[stages]]\nname = "grpo"')])
    directory, _ = local.train(load_recipe(recipe))
    shutil.rmtree(folder / "model")
    (directory.checkpoints / "sft-10").rename(folder / "model")
    shutil.rmtree(folder / "runs")
    (folder / "recipe.toml").write_text(without_sft(RECIPE))
    return folder


@pytest.fixture
def job(trained: Path, tmp_path: Path) -> Callable[..., Recipe]:
    """job(change) writes a copy of that folder and gives its recipe."""

    def copy(change: Callable[[str], str] = lambda text: text, planted: bool = False) -> Recipe:
        shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(change(recipe.read_text()))
        if planted:
            with (tmp_path / "train.jsonl").open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in PLANTED)
        return load_recipe(recipe)

    return copy


def ledger_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def test_every_planted_prompt_gets_its_reason_and_the_kept_ones_can_be_trained_on(job):
    recipe = job(lambda text: text.replace("[verifier]", "max_prompt_tokens = 100\n\n[verifier]"), planted=True)
    display = Lines()
    curated = curate_recipe(recipe, display)
    rows = ledger_rows(curated.folder)
    assert curated.folder == recipe.folder / "curated-job"
    assert [row["reason"] for row in rows[4:10]] == [
        "duplicate",
        "conflicting_gold",
        "leaks_into_heldout",
        "broken_gold",
        rows[8]["reason"],
        "too_long",
    ]
    assert rows[8]["notes"] == ["weak gold: same_on_all_snapshots: one and the same result on 2 snapshots"]
    assert "all of 4 prompts" not in " ".join(display.lines)
    assert any(line.startswith("4 of 11 prompts need no sampling") for line in display.lines)
    assert all(row["num_samples"] == 0 for row in rows[4:8])
    assert all(row["num_samples"] >= 4 for row in (*rows[:4], rows[8], rows[10]))
    assert any(row["kept"] for row in rows)  # otherwise the job is too easy or too hard
    assert all(0 < row["solved"] < row["scored"] for row in rows if row["kept"])
    texts = [json.loads(line) for line in (recipe.folder / "train.jsonl").read_text().splitlines()]
    kept = [json.loads(line) for line in (curated.folder / "curated.jsonl").read_text().splitlines()]
    assert kept == [text for text, row in zip(texts, rows, strict=True) if row["kept"]]
    summary = json.loads((curated.folder / "ledger.json").read_text())
    assert 10 < summary["num_prompt_tokens_mean"] < 20
    assert 10 < summary["completion_tokens_mean"] <= summary["completion_tokens_longest_mean_of_group"] <= 20
    assert summary["num_samples"] == sum(row["num_samples"] for row in rows)
    assert "Pass rates of the sampled prompts" in (curated.folder / "summary.html").read_text()
    assert curated.data_lines == ('train = "curated-job/curated.jsonl"',)
    data = recipe.data.model_copy(update={"train": "curated-job/curated.jsonl"})
    assert len(load_tasks(data, recipe.folder, recipe.seed).train) == curated.num_kept


def test_undetermined_golds_can_be_dropped_and_undecided_prompts_kept(job):
    recipe = with_samples(job(planted=True), 2, 2)
    curated = curate_recipe(recipe, choices=CurateChoices(drop_undetermined=True, keep_undecided=True))
    rows = ledger_rows(curated.folder)
    assert rows[8]["reason"] == "undetermined_gold"
    num_undecided = sum(row["reason"] == "undecided" for row in rows)
    assert curated.num_kept == sum(row["kept"] for row in rows) + num_undecided
    assert curated.summary["keep_undecided"] is True


def careful(text: str) -> str:
    return text.replace("[curation]\nenabled = false", "[curation]\nenabled = false\nretire_confidence = 0.98").replace(
        "group_size = 4", "group_size = 4\nmax_rows = 4"
    )


def test_an_interrupted_call_and_the_same_call_again_equal_one_that_was_not(job, monkeypatch):
    monkeypatch.setattr(pass_rates, "TOKENS_AT_ONCE", 1)  # one prompt a call
    recipe = job(careful)
    whole = curate_recipe(recipe, choices=CurateChoices(out=recipe.folder / "whole"))
    generate, calls = TorchEngine.generate, 0

    def interrupted(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return generate(*arguments, **named)

    display, choices = Lines(), CurateChoices(out=recipe.folder / "parts")
    with monkeypatch.context() as patch:
        patch.setattr(TorchEngine, "generate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            curate_recipe(recipe, display, choices)
    assert "the same command goes on from there" in display.lines[-1]
    assert sum(row["num_samples"] for row in ledger_rows(choices.out)) == 3 * 4
    parts = curate_recipe(recipe, display, choices)
    assert any(line.startswith("going on from 12 completions") for line in display.lines)
    for name in ("ledger.jsonl", "ledger.json", "curated.jsonl", "summary.html"):
        assert (parts.folder / name).read_text() == (whole.folder / name).read_text()
    assert parts.curation.num_samples > 16  # some prompts were open after their first visit


def test_more_samples_refine_the_ledger_and_new_rows_are_measured(job):
    recipe = job()
    first = curate_recipe(recipe)
    with (recipe.folder / "train.jsonl").open("a") as file:
        file.write(json.dumps(PLANTED[-1]) + "\n")
    second = curate_recipe(with_samples(recipe, 8, None))
    assert [row.num_samples >= 8 for row in second.curation.rows] == [True] * 5
    for old, new in zip(first.curation.rows, second.curation.rows, strict=False):
        assert new.solved >= old.solved
        assert new.scored - old.scored <= 16


@pytest.mark.parametrize("what", ["weights", "snapshots", "sampling"])
def test_a_ledger_of_something_else_is_refused_and_stays(job, what):
    recipe = job()
    curate_recipe(recipe)
    before = (recipe.folder / "curated-job" / "ledger.jsonl").read_text()
    if what == "weights":
        from groupwise.models.tiny import save_tiny_model

        shutil.rmtree(recipe.folder / "model")
        save_tiny_model(recipe.folder / "model", seed=5)
    elif what == "snapshots":
        recipe = load_recipe(write_recipe(recipe, ', "two.sqlite"]', "]"))
    else:
        recipe = load_recipe(write_recipe(recipe, "group_size = 4", "group_size = 4\ntemperature = 0.7"))
    told = {"weights": "with other weights", "snapshots": "another verifier", "sampling": "temperature = 1.0, now 0.7"}
    with pytest.raises(DataError, match=told[what]) as error:
        curate_recipe(recipe)
    assert "another --out" in str(error.value)
    assert (recipe.folder / "curated-job" / "ledger.jsonl").read_text() == before


def write_recipe(recipe: Recipe, old: str, new: str) -> Path:
    path = recipe.folder / "recipe.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_a_ledger_about_other_prompts_is_refused(job):
    recipe = job()
    curate_recipe(recipe)
    rows = [{"prompt": f"something else {i}", "gold": GOLD} for i in range(4)]
    (recipe.folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="4 of its 4 sampled prompts are not in the data"):
        curate_recipe(recipe)


def test_a_recipe_that_measures_nothing_or_has_no_training_tasks_is_refused(job):
    recipe = job()
    with pytest.raises(ConfigError, match="give --samples"):
        curate_recipe(with_samples(recipe, 0, None))
    data = recipe.data.model_copy(update={"train": None})
    with pytest.raises(DataError, match="no training tasks to curate"):
        curate_recipe(recipe.model_copy(update={"data": data}))
    assert not (recipe.folder / "curated-job").exists()


def test_training_reads_the_ledger_instead_of_sampling(job):
    recipe = job()
    curated = curate_recipe(recipe)
    lines = 'enabled = true\nledger = "curated-job/ledger.jsonl"'
    recipe = load_recipe(write_recipe(recipe, "enabled = false", lines))
    recipe = load_recipe(write_recipe(recipe, "prompts_per_step = 2", "prompts_per_step = 1"))
    recipe = load_recipe(write_recipe(recipe, '"train.jsonl"', '"curated-job/curated.jsonl"'))  # its ids are new
    display = Lines()
    directory, _ = local.train(recipe, display)
    (event,) = (e for e in read_events(directory.events) if e["event"] == "curated")
    assert event["kept"] == curated.num_kept
    assert list(event["solved"].values()) == [
        row.solved for row, d in zip(curated.curation.rows, curated.decisions, strict=True) if d.reason == "kept"
    ]
    assert not any("pass rate of" in title for title in display.titles)


def test_a_ledger_that_does_not_fit_stops_training_before_it_begins(job):
    recipe = job()
    curate_recipe(recipe)
    lines = 'enabled = true\nledger = "curated-job/ledger.jsonl"'
    recipe = load_recipe(write_recipe(recipe, "enabled = false", lines))
    (recipe.folder / "recipe.toml").write_text(RECIPE.replace("enabled = false", lines))
    with pytest.raises(DataError, match=r"starts from the weights of stage\s+'sft'"):
        local.train(load_recipe(recipe.folder / "recipe.toml"))
    ledger = read_ledger(recipe.folder / "curated-job" / "ledger.jsonl")
    text = ledger.path.with_suffix(".json").read_text()
    ledger.path.with_suffix(".json").write_text(text.replace(ledger.identity.weights, "0" * 16))
    with pytest.raises(DataError, match="with other weights"):
        local.train(recipe)
    assert not (recipe.folder / "runs").exists()


def test_a_divided_source_gets_all_of_its_sets_as_files(job):
    recipe = job()
    rows = [{"prompt": f"all of a, {x}?", "gold": GOLD} for x in "abcdefgh"]
    (recipe.folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (recipe.folder / "recipe.toml").read_text()
    start, end = text.index("demonstrations ="), text.index("[verifier]")
    text = text[:start] + 'source = "all.jsonl"\nsplit = { heldout = 3 }\n\n' + text[end:]
    (recipe.folder / "recipe.toml").write_text(text)
    curated = curate_recipe(load_recipe(recipe.folder / "recipe.toml"), choices=CurateChoices(keep_undecided=True))
    assert curated.data_lines == (
        'train = "curated-job/curated.jsonl"',
        'heldout = "curated-job/heldout.jsonl"',
    )
    heldout = [json.loads(line) for line in (curated.folder / "heldout.jsonl").read_text().splitlines()]
    assert len(heldout) == 3
    assert len(curated.curation.rows) == 5


def test_a_fresh_adapter_changes_no_fingerprint_and_a_changed_weight_does(tiny_model, tmp_path):
    import torch

    from groupwise.models import load_model
    from groupwise.models.lora import adapted_layers, add_lora
    from groupwise.models.tiny import save_tiny_model

    model = load_model(str(save_tiny_model(tmp_path / "m")), device="cpu").model
    before = pass_rates.weights_hash(model)
    add_lora(model, rank=2, alpha=4.0, seed=1, source="m")
    assert pass_rates.weights_hash(model) == before
    layer = next(iter(adapted_layers(model).values()))
    with torch.no_grad():
        layer.lora_B["default"].weight.fill_(0.1)
    assert pass_rates.weights_hash(model) != before
