"""What training will cost and teach, worked out before anything is spent. No tensor library is imported here.

Group size: `pass_rates` (what is known of the prompts), `groups` (closed forms), `simulation` (the same, drawn),
`advantage_weights` (what each estimator makes of a prompt's pass rate). Held-out data: `evaluation_size`.
Cost: `model_shape`, `workload` and `hardware` (what is planned, and on what), `step_tokens` (nodes, pairs of a step),
`compute` (operations, seconds, price), `activations` and `memory` (bytes).
Method: `method_facts` (the comparison), `method` (which one fits).
"""

from groupwise.planning.activations import logits_bytes
from groupwise.planning.advantage_weights import Estimator, difficulty_weight, largest_advantage
from groupwise.planning.compute import ComputeEstimate, Phase, estimate_compute, training_flops
from groupwise.planning.evaluation_size import (
    EvaluationDesign,
    compare_samples_per_prompt,
    difference_shown,
    expected_flips,
    greedy_difference_shown,
    greedy_prompts_needed,
    pass_rate_interval_width,
    prompts_needed,
    samples_needed,
)
from groupwise.planning.groups import (
    GroupOutlook,
    SamplingCost,
    all_fail_probability,
    all_pass_probability,
    best_group_size,
    dynamic_sampling_cost,
    expected_pass_at_k,
    group_outlook,
    informative_fraction,
    smallest_group_size,
    zero_variance_probability,
)
from groupwise.planning.hardware import Hardware, hardware_names, named_hardware, read_hardware, write_hardware
from groupwise.planning.memory import MemoryEstimate, estimate_memory
from groupwise.planning.method import LeftOut, MethodChoice, Situation, Start, Step, choose_method
from groupwise.planning.method_facts import COMPARISON_COLUMNS, METHOD_FACTS, MethodFacts, comparison_rows
from groupwise.planning.model_shape import ModelShape, from_config
from groupwise.planning.pass_rates import BetaRates, PassRates
from groupwise.planning.simulation import simulate_group_sizes
from groupwise.planning.workload import Workload

__all__ = [
    "COMPARISON_COLUMNS",
    "METHOD_FACTS",
    "BetaRates",
    "ComputeEstimate",
    "Estimator",
    "EvaluationDesign",
    "GroupOutlook",
    "Hardware",
    "LeftOut",
    "MemoryEstimate",
    "MethodChoice",
    "MethodFacts",
    "ModelShape",
    "PassRates",
    "Phase",
    "SamplingCost",
    "Situation",
    "Start",
    "Step",
    "Workload",
    "all_fail_probability",
    "all_pass_probability",
    "best_group_size",
    "choose_method",
    "compare_samples_per_prompt",
    "comparison_rows",
    "difference_shown",
    "difficulty_weight",
    "dynamic_sampling_cost",
    "estimate_compute",
    "estimate_memory",
    "expected_flips",
    "expected_pass_at_k",
    "from_config",
    "greedy_difference_shown",
    "greedy_prompts_needed",
    "group_outlook",
    "hardware_names",
    "informative_fraction",
    "largest_advantage",
    "logits_bytes",
    "named_hardware",
    "pass_rate_interval_width",
    "prompts_needed",
    "read_hardware",
    "samples_needed",
    "simulate_group_sizes",
    "smallest_group_size",
    "training_flops",
    "write_hardware",
    "zero_variance_probability",
]
