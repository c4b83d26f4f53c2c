"""Measuring with a tiny model: the whole way, and what is refused. No speed is asserted."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.launch import machine, measure_hardware, timings
from groupwise.launch.display import Quiet
from groupwise.launch.hardware_choice import chosen_hardware
from groupwise.launch.measure_hardware import (
    QUICK_SIZES,
    WEIGHTS,
    machine_name,
    measure_machine,
    profile_json,
    profile_table,
)
from groupwise.launch.shapes_to_measure import QUICK_SHAPE, SHAPES
from groupwise.launch.timings import Sizes, random_model
from groupwise.models import tree_logprobs
from groupwise.models.token_tree import count_nodes
from groupwise.planning.hardware import read_hardware, write_hardware
from groupwise.rollout.engine import Work
from tiny_job import write_job

RATES = ("train_flops", "prefill_flops", "decode_flops", "decode_bytes_per_s", "update_bytes_per_s")


class Recording(Quiet):
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.progress: list[tuple[int, int]] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def working(self, title: str):
        outer = self

        class Context:
            def __enter__(self):
                return lambda done, total, note="": outer.progress.append((done, total))

            def __exit__(self, *_: object) -> None:
                pass

        return Context()


def test_a_quick_measurement_is_written_and_read_back(tmp_path: Path) -> None:
    out = tmp_path / "new" / "hardware.json"
    display = Recording()
    profile = measure_machine(quick=True, out=out, display=display)
    hardware = read_hardware(out)
    assert hardware == profile.hardware
    assert chosen_hardware(str(out)) == hardware
    for name in RATES:
        assert 0 < getattr(hardware, name) < math.inf
    assert hardware.measured
    assert hardware.bytes_per_number == 4
    assert 0 < hardware.process_bytes < hardware.memory_bytes
    assert [rate.field for rate in profile.rates] == list(RATES)
    assert json.loads(profile_json(profile))["hardware"] == json.loads(out.read_text())
    assert profile.previous is None
    assert display.progress[-1][0] == display.progress[-1][1]  # the bar ends full
    assert [done for done, _ in display.progress] == sorted(done for done, _ in display.progress)
    assert any(str(out) in line for line in display.lines)


def test_a_second_measurement_shows_the_change_and_keeps_the_price(tmp_path: Path) -> None:
    out = tmp_path / "hardware.json"
    first = measure_machine(quick=True, out=out).hardware
    write_hardware(out, dataclasses.replace(first, price_per_hour=2.5, train_flops=1e3))
    second = measure_machine(quick=True, out=out)
    assert second.hardware.price_per_hour == 2.5
    assert second.previous is not None
    assert second.previous.train_flops == 1e3
    headers = [str(column.header) for column in profile_table(second).columns]
    assert headers[-1] == "before"
    assert "%)" in str(next(iter(profile_table(second).columns[-1].cells)))


def test_a_broken_profile_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "hardware.json"
    out.write_text("{}")
    assert measure_machine(quick=True, out=out).previous is None
    assert read_hardware(out).measured


def test_the_rates_of_a_tiny_model_are_not_kept_where_plans_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path))
    display = Recording()
    assert measure_machine(quick=True, display=display).path is None
    assert not list(tmp_path.iterdir())
    assert any(line.startswith("Not kept") for line in display.lines)


def test_a_real_measurement_is_kept_where_plans_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))
    monkeypatch.setattr(measure_hardware, "CPU_SIZES", QUICK_SIZES)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(measure_hardware.SHAPES, "smollm2-135m", QUICK_SHAPE)
    profile = measure_machine(display=Quiet())
    assert profile.path == tmp_path / "cache" / machine.HARDWARE_FILE
    assert chosen_hardware() == profile.hardware


def test_the_shape_is_asked_of_a_recipe(tmp_path: Path) -> None:
    recipe = write_job(tmp_path)
    profile = measure_machine(recipe=recipe, quick=True)
    config = json.loads(next(tmp_path.rglob("config.json")).read_text())
    assert profile.shape.num_layers == config["num_hidden_layers"]
    assert profile.shape.vocab == config["vocab_size"]


def test_impossible_wishes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'abacus'.*\n.*smollm2-135m.*--recipe"):
        measure_machine(shape="abacus")
    with pytest.raises(ConfigError, match="give one of them"):
        measure_machine(shape="smollm2-135m", recipe=tmp_path / "recipe.toml")
    with pytest.raises(ConfigError):
        measure_machine(recipe=tmp_path / "none.toml")


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_named_shapes_have_the_sizes_of_their_names(name: str) -> None:
    millions = {"smollm2-135m": 134.5, "smollm2-360m": 361.8, "qwen2.5-0.5b": 494.0, "qwen3-0.6b": 596.0}
    assert SHAPES[name].num_params / 1e6 == pytest.approx(millions[name], rel=0.001)


def test_the_random_model_has_the_shape_and_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    model = random_model(QUICK_SHAPE, device=torch.device("cpu"), dtype=torch.float32)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert sum(p.numel() for p in model.parameters()) == QUICK_SHAPE.num_params


def test_the_timed_work_is_the_work_that_sizes_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of the tree, rows and steps of the decode batches; nothing ends early."""
    sizes = Sizes(
        trunk=200,
        branch=5,
        group=3,
        prompts=2,
        completion=4,
        few_prompts=1,
        many_prompts=4,
        decode_tokens=7,
        repetitions=2,
    )
    model = random_model(QUICK_SHAPE, device=torch.device("cpu"), dtype=torch.float32)
    sequences = timings._sequences(sizes, QUICK_SHAPE.vocab)
    assert count_nodes([s.token_ids for s in sequences]) == 200 + 2 * 5 + 6 * 4
    assert sum(s.num_trained for s in sequences) == 24
    works: list[Work] = []
    generate = timings.TorchEngine.generate

    def watched(engine, *arguments, **options):
        completions = generate(engine, *arguments, **options)
        works.append(engine.last_work)
        return completions

    calls: list[str] = []
    monkeypatch.setattr(timings.TorchEngine, "generate", watched)
    monkeypatch.setattr(timings, "tree_logprobs", lambda *a, **k: calls.append("train") or tree_logprobs(*a, **k))
    notes: list[str] = []
    timed = timings.time_pieces(model, sizes, notes.append)
    prefills, (few, many) = works[:3], works[3:]
    assert all(work.num_prefill_tokens == 200 + 4 * 5 for work in prefills)
    assert all(work.num_steps == 0 for work in prefills)
    assert (few.num_steps, few.num_row_steps) == (6, 6 * 3)
    assert (many.num_steps, many.num_row_steps) == (6, 6 * 12)
    assert len(timed.many.seconds) == 5  # of six steps the first is left out
    assert [len(t.seconds) for t in (timed.prefill, timed.train, timed.update)] == [2, 2, 2]
    assert len(calls) == 3
    assert set(notes) == set(WEIGHTS)


def test_an_update_changes_weights_and_a_backward_pass_leaves_gradients() -> None:
    model = random_model(QUICK_SHAPE, device=torch.device("cpu"), dtype=torch.float32)
    timings._forward_backward(model, timings._sequences(QUICK_SIZES, QUICK_SHAPE.vocab))
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_the_name_of_a_cpu_says_how_many_threads_were_used() -> None:
    assert machine_name(torch.device("cpu")).startswith(f"{torch.get_num_threads()} thread")
