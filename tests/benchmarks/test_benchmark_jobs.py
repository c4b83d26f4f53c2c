"""The presets of the benchmarks, and that every driver understands them."""

from __future__ import annotations

import argparse
from pathlib import Path

import cost_growth
import generation_vs_peers
import jobs
import overhead
import pytest


def read(folder: Path, *options: str) -> argparse.Namespace:
    (folder / "config.json").write_text("{}")
    parser = argparse.ArgumentParser()
    jobs.add_job_options(parser, repetitions=2, output="x.json")
    return jobs.read_job_options(parser, ["--model", str(folder), *options])


@pytest.mark.parametrize(
    ("job", "sizes"),
    [("a", (2, 8, 343, 0, 32)), ("b", (1, 16, 1000, 0, 32)), ("c", (8, 8, 660, 600, 48)), ("d", (2, 8, 40, 0, 128))],
)
def test_a_job_sets_every_size(tmp_path: Path, job: str, sizes: tuple[int, ...]) -> None:
    args = read(tmp_path, "--job", job)
    names = ("num_prompts", "group_size", "prompt_tokens", "shared_tokens", "completion_tokens")
    assert tuple(getattr(args, name) for name in names) == sizes


def test_a_size_that_is_given_replaces_the_jobs(tmp_path: Path) -> None:
    args = read(tmp_path, "--job", "c", "--shared-tokens", "0", "--group-size", "2")
    assert (args.num_prompts, args.group_size, args.shared_tokens) == (8, 2, 0)


def test_workers_are_told_every_size_and_the_seed(tmp_path: Path) -> None:
    options = jobs.workload_options(read(tmp_path, "--job", "c"), group_size=3)
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    assert pairs == {
        "--model": str(tmp_path),
        "--num-prompts": "8",
        "--group-size": "3",
        "--prompt-tokens": "660",
        "--shared-tokens": "600",
        "--completion-tokens": "48",
        "--seed": "17",
    }


@pytest.mark.parametrize("option", ["--repetitions", "--threads"])
def test_zero_of_anything_is_refused(tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read(tmp_path, option, "0")
    assert f"{option}: got 0, it must be 1 or more" in capsys.readouterr().err


def test_growth_compares_a_group_with_one_twice_as_large(tmp_path: Path) -> None:
    args = read(tmp_path, "--job", "b")
    sizes = []
    for side in cost_growth.SIDES:
        command = cost_growth.make_worker(side, args).command
        sizes.append(command[command.index("--group-size") + 1])
        assert command[-2:] == ("--warm-up-steps", "1")
    assert sizes == ["16", "32"]


def test_growth_is_taken_within_a_repetition() -> None:
    phases = {"rollout": 1.0, "update": 2.0}
    reports = [
        {"side": side, "seconds": seconds, "phases": phases}
        for side, seconds in (("once", 4.0), ("twice", 6.0), ("once", 10.0), ("twice", 13.0))
    ]
    summary = cost_growth.summarise(reports)
    assert summary["growth"] == {"median": 1.4, "min": 1.3, "max": 1.5}
    assert "| 32 | 9.50 (6.00 - 13.00) |" in cost_growth.table(summary, 16)


def test_generation_is_compared_in_tokens_a_second() -> None:
    reports = [
        {"side": side, "tokens_per_second": rate, "seconds": 1.0, "peak_rss_bytes": 2**30}
        for side, rate in (("vllm", 100.0), ("groupwise", 300.0), ("vllm", 200.0), ("groupwise", 200.0))
    ]
    summary = generation_vs_peers.summarise(reports, "vllm")
    assert summary["groupwise_over_peer"] == {"median": 2.0, "min": 1.0, "max": 3.0}
    assert "Groupwise / vllm in tokens a second, median (min - max): 2.00 (1.00 - 3.00)." in generation_vs_peers.table(
        summary, "vllm"
    )


def test_the_parts_of_a_step_come_from_the_attributed_runs_only() -> None:
    parts = {"tensors": 9.0, "sampling": 0.5, "judging": 0.2, "recording": 0.1, "other": 0.2}
    plain = {"side": "plain", "seconds": 9.5, "parts": dict.fromkeys(parts, 100.0), "share_outside": 1.0}
    attributed = {"side": "attributed", "seconds": 10.0, "parts": parts, "share_outside": 0.1}
    summary = overhead.summarise([plain, attributed])
    assert summary["share_outside"]["median"] == 0.1
    assert summary["parts"] == parts
    assert "| sampling | 0.500 | 5.0 % |" in overhead.table(summary)


def test_vllm_alone_gets_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = read(tmp_path, "--job", "c")
    args.calls, args.vllm_binding, args.vllm_openmp = 3, "0-1", "intel"
    monkeypatch.setattr(type(generation_vs_peers.VLLM), "python", lambda self: Path("python-of-vllm"))
    vllm, ours = (generation_vs_peers.make_worker(side, args) for side in ("vllm", "groupwise"))
    assert vllm.command[0] == "python-of-vllm"
    assert vllm.command[2:] == ours.command[2:]
    assert ours.environment == {}
    assert vllm.environment["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert vllm.environment["LD_PRELOAD"].endswith("libiomp5.so")
