"""The engine behind an OpenAI-compatible server, against a server in a thread."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fake_endpoint import Answer, Asked, FakeServer
from fakes import FakeVerifier, fake_task
from groupwise.errors import EngineError
from groupwise.rollout import Sampling, collect_groups
from groupwise.rollout.endpoint_engine import Endpoint, EndpointEngine
from groupwise.types import Prompt, Status, Stop

TURNS = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "chat q"})
PROMPTS = [Prompt(task_id="text", token_ids=()), Prompt(task_id="chat", token_ids=())]
SAMPLING = Sampling(max_tokens=16, stop=("END",))


def engine(server: FakeServer, **settings: Any) -> EndpointEngine:
    given = {"model": "m", "num_retries": 0, "retry_wait_s": 0.0, "time_limit_s": 5.0, **settings}
    return EndpointEngine(Endpoint(url=server.url, **given), {"text": "text q", "chat": TURNS})


def test_text_is_continued_turns_are_chat_and_settings_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    with FakeServer(lambda asked: Answer(f"says {asked.prompt}")) as server:
        found = engine(server, key_variable="MY_KEY").generate(PROMPTS, [1, 2], SAMPLING, seed=3)
    assert [[c.text for c in group] for group in found] == [["says text q"], ["says chat q"] * 2]
    assert all(c.token_ids == () and c.stop is Stop.END for group in found for c in group)
    by_path = {asked.path: asked for asked in server.asked}
    assert by_path["/v1/completions"].body["prompt"] == "text q"
    chat = by_path["/v1/chat/completions"]
    assert chat.body["messages"] == list(TURNS)
    assert {name: chat.body[name] for name in ("model", "temperature", "max_tokens", "stop")} == {
        "model": "m",
        "temperature": 1.0,
        "max_tokens": 16,
        "stop": ["END"],
    }
    assert "top_p" not in chat.body
    assert "top_k" not in chat.body
    assert {asked.key for asked in server.asked} == {"Bearer sesame"}


def test_text_as_one_turn_where_the_server_has_chat_alone() -> None:
    with FakeServer(lambda asked: Answer("yes")) as server:
        engine(server, as_chat=True).generate(PROMPTS[:1], 1, Sampling(max_tokens=4, top_p=0.5, top_k=3), seed=0)
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.body["messages"] == [{"role": "user", "content": "text q"}]
    assert (asked.body["top_p"], asked.body["top_k"]) == (0.5, 3)
    assert asked.key is None


def test_every_completion_has_its_own_seed_and_the_same_one_again() -> None:
    def seeds(seed: int, sizes: list[int]) -> dict[str, list[int]]:
        with FakeServer(lambda asked: Answer("yes")) as server:
            engine(server, num_requests=1).generate(PROMPTS, sizes, SAMPLING, seed=seed)
        return {text: [a.body["seed"] for a in server.asked if a.prompt == text] for text in ("text q", "chat q")}

    first = seeds(3, [2, 3])
    assert len({*first["text q"], *first["chat q"]}) == 5
    assert seeds(3, [1, 3]) == {"text q": first["text q"][:1], "chat q": first["chat q"]}  # not moved by the others
    assert seeds(4, [2, 3])["text q"] != first["text q"]
    assert all(0 <= seed < 2**31 for seed in first["text q"])


def test_requests_go_out_together_and_stay_in_order() -> None:
    with FakeServer(lambda asked: Answer(str(asked.body["seed"]), wait_s=0.05)) as server:
        seen: list[tuple[int, int]] = []
        how = {"seed": 1, "progress": lambda done, total: seen.append((done, total))}
        found = engine(server, num_requests=4).generate(PROMPTS, 4, SAMPLING, **how)
    assert 1 < server.most_at_once <= 4
    assert seen == [(n, 8) for n in range(1, 9)]
    one_by_one = {asked.body["seed"] for asked in server.asked}
    assert {int(c.text) for group in found for c in group} == one_by_one
    with FakeServer(lambda asked: Answer(str(asked.body["seed"]))) as server:
        assert engine(server, num_requests=1).generate(PROMPTS, 4, SAMPLING, seed=1) == found


def test_what_cannot_be_delivered_is_aborted_and_unscored_never_wrong() -> None:
    bad = itertools.cycle(
        [Answer(status=500), Answer(raw="{}"), Answer(raw="no json"), Answer("x", finish_reason="content_filter")]
    )
    with FakeServer(lambda asked: next(bad) if asked.prompt == "chat q" else Answer("right")) as server:
        client = engine(server, num_requests=1)
        verifier = FakeVerifier()
        tasks = [fake_task(0), fake_task(1)]
        groups = collect_groups(client, verifier, tasks, PROMPTS, group_size=4, sampling=SAMPLING, seed=0).groups
    assert [(g.num_solved, g.num_scored) for g in groups] == [(4, 4), (0, 0)]
    assert {r.completion.stop for r in groups[1].rollouts} == {Stop.ABORTED}
    assert {r.verdict.status for r in groups[1].rollouts} == {Status.UNSCORED}
    assert groups[1].rollouts[0].verdict.reason.startswith("engine_aborted")
    assert len(verifier.judged) == 4  # nothing was shown to the verifier for the others
    assert client.num_aborted == 4
    assert client.failure == "finish_reason 'content_filter'"


def test_cut_and_empty_answers_are_the_models_own() -> None:
    answers = iter([Answer("cut off", finish_reason="length"), Answer(None), Answer("an answer END and more")])
    with FakeServer(lambda asked: next(answers)) as server:
        client = engine(server, num_requests=1)
        ((cut, empty, stopped),) = client.generate(PROMPTS[:1], 3, SAMPLING, seed=0)
    assert (cut.text, cut.stop) == ("cut off", Stop.LENGTH)
    assert (empty.text, empty.stop) == ("", Stop.END)
    assert (stopped.text, stopped.stop) == ("an answer ", Stop.END)
    assert (client.num_prompt_tokens, client.num_completion_tokens) == (15, 2 + 0 + 5)


def test_failures_that_may_pass_are_tried_again() -> None:
    answers = iter([Answer(status=503), Answer(status=429, headers={"Retry-After": "0"}), Answer("yes")])
    with FakeServer(lambda asked: next(answers)) as server:
        ((found,),) = engine(server, num_retries=2).generate(PROMPTS[:1], 1, SAMPLING, seed=0)
    assert found.text == "yes"
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, r"environment variable MY_KEY"), (404, r"address \(up to /v1\)"), (302, "redirect, which is not followed")],
)
def test_what_every_request_would_meet_ends_the_call(status: int, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    refusal = Answer(status=status, raw="wrong key sesame", headers={"Location": "http://127.0.0.1:9/"})
    with FakeServer(lambda asked: refusal) as server, pytest.raises(EngineError, match=advice) as caught:
        engine(server, key_variable="MY_KEY").generate(PROMPTS, 8, SAMPLING, seed=0)
    assert "sesame" not in str(caught.value)


def test_a_server_that_only_fails_is_given_up_early() -> None:
    with FakeServer(lambda asked: Answer(status=500)) as server:
        with pytest.raises(EngineError, match=r"no completion in 8 requests .* HTTP status 500"):
            engine(server, num_requests=2).generate(PROMPTS, 200, SAMPLING, seed=0)
        assert len(server.asked) < 20


def test_nobody_there_and_too_slow_are_failures() -> None:
    slow = FakeServer(lambda asked: Answer("late", wait_s=0.4))
    with slow as server, pytest.raises(EngineError, match="no completion in 1 requests"):
        engine(server, time_limit_s=0.1).generate(PROMPTS[:1], 1, SAMPLING, seed=0)
    with pytest.raises(EngineError, match="URLError"):
        engine(server).generate(PROMPTS[:1], 1, SAMPLING, seed=0)


def test_a_server_without_seeds_is_asked_without_and_said_so() -> None:
    def answer(asked: Asked) -> Answer:
        return Answer(status=400, raw='{"error": "unknown field seed"}') if "seed" in asked.body else Answer("yes")

    with FakeServer(answer) as server:
        client = engine(server, num_requests=1)
        client.generate(PROMPTS, 2, SAMPLING, seed=0)
    assert len(server.asked) == 5  # one refusal, then four without
    assert client.notes == ["The server takes no seed: sampled completions differ from call to call."]


def test_a_server_that_names_the_limit_otherwise_gets_it_so() -> None:
    def answer(asked: Asked) -> Answer:
        text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return Answer(status=400, raw=text) if "max_tokens" in asked.body else Answer("yes")

    with FakeServer(answer) as server:
        engine(server, num_requests=1).generate(PROMPTS, 1, SAMPLING, seed=0)
    assert [asked.body.get("max_completion_tokens") for asked in server.asked] == [None, 16, 16]


@pytest.mark.parametrize("settings", [{"url": "file:///etc/passwd"}, {"model": ""}, {"num_requests": 0}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        Endpoint(**{"url": "http://localhost/v1", "model": "m", **settings})
