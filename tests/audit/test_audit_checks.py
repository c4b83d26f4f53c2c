"""The limits of the audit by hand."""

from __future__ import annotations

from groupwise.audit import Judged, NullAgent, null_agents
from groupwise.audit.checks import labelled_findings, latency_finding, null_finding, unscored_finding
from groupwise.types import Status, Task, Verdict


def judged(reward, text="x", prompt="?", seconds=0.0):
    outcome = None if reward is None else reward == 1.0
    status = Status.UNSCORED if reward is None else Status.SCORED
    verdict = Verdict(status=status, reward=reward, outcome=outcome, reason="so")
    return Judged(task=Task(id="q", prompt=prompt), text=text, verdict=verdict, seconds=seconds)


def test_error_rates_by_hand():
    # of 4 wrong completions 1 is paid, of 2 right ones 1 is refused; one was not judged and counts nowhere
    cases = [(judged(1.0), False), *[(judged(0.0), False)] * 3, (judged(1.0), True), (judged(0.0), True)]
    false_positives, false_negatives = labelled_findings([*cases, (judged(None), True)], max_share=0.0)
    assert (false_positives.go, false_negatives.go) == (False, True)
    # Wilson, z = 1.96, 1 of 4: center (0.25 + 0.4802) / 1.9604 = 0.3725, half width 0.3268
    assert false_positives.found == "25.0% [4.6%, 69.9%], 1 of 4 wrong completions"
    assert false_negatives.found.startswith("50.0% [")
    assert labelled_findings(cases, max_share=0.25)[0].go


def test_no_case_says_nothing():
    assert [f.found for f in labelled_findings([], max_share=0.0)] == [
        "unknown [0.0%, 100.0%], 0 of 0 wrong completions",
        "unknown [0.0%, 100.0%], 0 of 0 right completions",
    ]


def test_one_hit_in_a_sample_is_no_proof_but_in_all_tasks_it_is():
    agent = NullAgent(name="empty", answer=lambda task: "")
    hits = [judged(1.0), *[judged(0.0)] * 9]
    assert null_finding(agent, hits, max_share=0.05, num_tasks=100).go
    assert not null_finding(agent, hits, max_share=0.05, num_tasks=10).go
    assert null_finding(agent, hits, max_share=0.1, num_tasks=10).go


def test_the_smallest_input_is_shown():
    agent = NullAgent(name="empty", answer=lambda task: "")
    found = null_finding(
        agent, [judged(1.0, "long text"), judged(1.0, "ab"), judged(0.0, "")], max_share=0, num_tasks=3
    )
    assert found.example.completion == "ab"


def test_unscored_and_latency():
    ones = [judged(0.0, seconds=0.001)] * 98 + [judged(None, seconds=0.5)] * 2
    assert unscored_finding(ones, max_share=0.02).go
    assert not unscored_finding(ones, max_share=0.01).go
    assert latency_finding(ones).found == "p50 1.0 ms, p99 500.0 ms over 100 judgements"


def test_null_agents_are_made_from_the_golds():
    golds = {"a": r"\boxed{1}", "b": r"\boxed{1}", "c": r"\boxed{23}"}
    agents = {agent.name: agent for agent in null_agents(golds, constants=("0",))}
    task = Task(id="a", prompt=({"role": "system", "content": "S"}, {"role": "user", "content": "U"}))
    answers = {name: agent.answer(task) for name, agent in agents.items()}
    assert answers["echo"] == "U"
    assert answers["most_frequent_gold"] == r"\boxed{1}"
    assert answers["form_without_content"] == r"\boxed{}"
    assert answers["all_golds_at_once"] == "\\boxed{1}\n\\boxed{23}"
    assert answers["constant '0'"] == "0"
    assert agents["most_frequent_gold"].fair_share == 2 / 3
    keyed = {agent.name: agent for agent in null_agents(golds, {"a": "x", "b": "y", "c": "y"})}
    assert keyed["most_frequent_gold"].answer(task) == r"\boxed{1}"
