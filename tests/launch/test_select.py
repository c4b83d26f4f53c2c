"""Which training prompts a GRPO stage gets."""

from __future__ import annotations

from groupwise.launch.assemble import RenderedTasks
from groupwise.launch.select import drawn
from groupwise.types import Prompt, Task


def rendered(count: int) -> RenderedTasks:
    names = [f"q{i}" for i in range(count)]
    return RenderedTasks(
        tasks=tuple(Task(id=name, prompt=name) for name in names),
        prompts=tuple(Prompt(task_id=name, token_ids=(i, 1)) for i, name in enumerate(names)),
    )


def test_a_number_of_prompts_is_drawn_by_the_seed_in_the_order_of_the_data():
    train = rendered(40)
    chosen = drawn(train, 10, seed=1)
    ids = [task.id for task in chosen.tasks]
    assert len(set(ids)) == 10
    assert ids == sorted(ids, key=lambda name: int(name[1:]))
    assert [prompt.task_id for prompt in chosen.prompts] == ids
    assert drawn(train, 10, seed=1) == chosen
    assert drawn(train, 10, seed=2) != chosen


def test_all_prompts_stay_where_no_number_is_set_or_it_is_too_large():
    train = rendered(3)
    assert drawn(train, None, seed=1) is train
    assert drawn(train, 3, seed=1) is train
    assert drawn(train, 9, seed=1) is train
