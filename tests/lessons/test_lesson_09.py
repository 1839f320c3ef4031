"""Lesson 09: the exercises on positions, on bytes and seconds, and the question know their wrong answers."""

import pytest
import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_09
from course_lib.lessons import lesson_09_mistakes as wrong
from course_lib.lessons import lesson_09_mistakes_cost as wrong_cost
from course_lib.models import GPT, OPT, GPTConfig, OPTConfig, generate

from .known_mistakes import known_mistakes

# --- 9.1 ---------------------------------------------------------------------------------------------------------


def positions_by_loop(attention_mask):
    found = torch.full(attention_mask.shape, 7)
    for row in range(len(attention_mask)):
        count = 0
        for column in range(attention_mask.shape[1]):
            if attention_mask[row, column]:
                found[row, column] = count
                count += 1
    return found


def positions_as_transformers(attention_mask):
    return (torch.cumsum(attention_mask.int(), dim=1) * attention_mask.int()).int() - 1


def positions_filled(attention_mask):
    return (attention_mask.long().cumsum(-1) - 1).masked_fill(attention_mask == 0, 1)


def positions_by_product(attention_mask):
    length = attention_mask.shape[1]
    return (attention_mask.float() @ torch.ones(length, length).triu(1)).long()


def positions_written_into(attention_mask):
    attention_mask *= 0
    return attention_mask


def test_exercise_9_1_names_each_wrong_answer():
    known = known_mistakes(lesson_09.LESSON, "9.1")
    assert_exercise(
        lesson_09.LESSON,
        "9.1",
        wrong={
            **known,
            "bools": [lambda mask: (mask.cumsum(1) - 1) * mask - (1 - mask)],
            "several_rows": [lambda mask: torch.arange(mask.sum(1).item()), lambda mask: 0 if mask else 1],
            "lengths": [lambda mask: mask.long().sum(1), lambda mask: mask.long().sum(1, keepdim=True)],
            "one_row": [
                *known["one_row"],
                lambda mask: torch.arange(mask.shape[1]),
                lambda mask: torch.arange(mask.shape[1])[None],
            ],
            "only_real": [lambda mask: wrong.positions_right(mask)[mask.bool()], lambda mask: mask.nonzero()],
            "by_column": [
                *known["by_column"],
                lambda mask: torch.arange(mask.shape[1]).expand(mask.shape),
                lambda mask: torch.arange(mask.shape[1]) * mask.long(),
            ],
            "in_place": [positions_written_into],
        },
        right=[positions_by_loop, positions_as_transformers, positions_filled, positions_by_product],
    )


@pytest.mark.parametrize("answer", [lambda mask: (mask.cumsum(1) - 1).float(), lambda mask: 3])
def test_positions_that_are_no_integers_of_a_tensor_are_refused(answer):
    assert lesson_09.LESSON.examine("9.1", answer).status == "not yet"


def test_the_positions_of_the_solution_are_those_that_opt_takes():
    model = OPT(OPTConfig(vocab_size=30, dim=16, num_layers=2, num_heads=2, init_std=0.5), seed=1)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    tokens = torch.arange(15).view(3, 5)
    with torch.no_grad():
        given = model(tokens, attention_mask=mask, positions=lesson_09.LESSON.exercises["9.1"].solution(mask))
        own = model(tokens, attention_mask=mask)
    assert torch.equal(given[mask.bool()], own[mask.bool()])


# --- 9.3 ---------------------------------------------------------------------------------------------------------


def bytes_by_layers(config, batch, length, bytes_per_value):
    total = 0
    for _ in range(config.num_layers):
        keys = batch * length * config.kv_heads * config.head_width * bytes_per_value
        total += keys + keys
    return total


def bytes_of_tensors(config, batch, length, bytes_per_value):
    with torch.device("meta"):
        keys = torch.empty(config.num_layers, batch, length, config.kv_heads, config.head_width)
    return 2 * keys.numel() * bytes_per_value


def bytes_as_float(config, batch, length, bytes_per_value):
    return 2.0 * config.num_layers * config.kv_heads * config.head_width * batch * length * bytes_per_value


def test_exercise_9_3_names_each_wrong_answer():
    known = known_mistakes(lesson_09.LESSON, "9.3")
    right = lesson_09.LESSON.exercises["9.3"].solution
    assert_exercise(
        lesson_09.LESSON,
        "9.3",
        wrong={
            **known,
            "other_config": [lambda config, *rest: config.num_key_value_heads],
            "subscripted": [lambda config, *rest: config["num_layers"]],
            "not_a_count": [lambda *args: [right(*args)], lambda *args: {"bytes": right(*args)}],
            "common.wrong_type": [lambda *args: str(right(*args)), lambda *args: torch.ones(2, 2)],
            "other_unit": [lambda *args: right(*args) / 2**20, lambda *args: right(*args) / 1e9],
            "too_few": [lambda *args: right(*args) / 36],
            "too_many": [lambda *args: right(*args) * 36],
        },
        right=[bytes_by_layers, bytes_of_tensors, bytes_as_float],
    )


@pytest.mark.parametrize(
    "model",
    [
        OPT(OPTConfig(vocab_size=30, dim=12, num_layers=3, num_heads=2)),
        GPT(GPTConfig(vocab_size=30, dim=24, num_layers=2, num_heads=6, num_kv_heads=2)),
    ],
    ids=["opt", "gpt"],
)
def test_the_bytes_of_the_solution_are_those_that_caches_take(model):
    from course_lib.gqa import KVCache

    cache = [KVCache(max_length=7) for _ in model.layers]
    with torch.no_grad():
        model(torch.zeros(3, 7, dtype=torch.int64), cache=cache)
    counted = lesson_09.LESSON.exercises["9.3"].solution(model.config, 3, 7, 4)
    assert counted == sum(layer.nbytes for layer in cache)


# --- 9.4 ---------------------------------------------------------------------------------------------------------


def seconds_with_if(weight_bytes, kv_bytes_per_row, flops_per_token, batch, bandwidth, flops_per_second):
    moving = weight_bytes / bandwidth + batch * kv_bytes_per_row / bandwidth
    computing = batch * flops_per_token / flops_per_second
    if moving > computing:
        return moving
    return computing


def seconds_by_torch(weight_bytes, kv_bytes_per_row, flops_per_token, batch, bandwidth, flops_per_second):
    moving = torch.tensor(float(weight_bytes + batch * kv_bytes_per_row), dtype=torch.float64) / bandwidth
    return torch.maximum(
        moving, torch.tensor(flops_per_token * batch / flops_per_second, dtype=torch.float64)
    )


def seconds_by_sorting(*given):
    weights, row, work, batch, bandwidth, speed = given
    return sorted([(weights + row * batch) / bandwidth, batch * (work / speed)])[-1]


def test_exercise_9_4_names_each_wrong_answer():
    known = known_mistakes(lesson_09.LESSON, "9.4")
    right = wrong_cost.step_right
    assert_exercise(
        lesson_09.LESSON,
        "9.4",
        wrong={
            **known,
            "several": [lambda *args: [right(*args)], lambda *args: (right(*args), 0.0)],
            "a_token": [*known["a_token"], lambda *args: right(*args) / args[3]],
        },
        right=[seconds_with_if, seconds_by_torch, seconds_by_sorting],
    )


# --- 9.6 ---------------------------------------------------------------------------------------------------------


def test_question_9_6_names_each_wrong_answer():
    both = ["bloom-560m", "lean-opt-5m"]
    assert_exercise(
        lesson_09.LESSON,
        "9.6",
        wrong={
            "no_such_model": [["gpt-2"], 3],
            "opt": [
                ["opt-125m"],
                ["opt-125m", *both],
                "all: opt-125m, bloom-560m, lean-opt-5m".removeprefix("all: "),
            ],
            "none": [[], ""],
            "bloom_missing": [["lean-opt-5m"], "lean-opt-5m"],
            "own_missing": [["bloom-560m"], {"bloom-560m"}],
        },
        right=[
            both,
            tuple(reversed(both)),
            set(both),
            "bloom-560m and lean-opt-5m",
            ["BLOOM-560m", "lean-opt"],
        ],
    )


# --- 9.2 stands beside generate ----------------------------------------------------------------------------------


def test_the_loop_of_the_solution_writes_what_generate_writes():
    model = OPT(OPTConfig(vocab_size=30, dim=16, num_layers=2, num_heads=2, init_std=0.5), seed=2)
    tokens = torch.tensor([[3, 4, 5, 6], [9, 8, 7, 2]])
    own = lesson_09.LESSON.exercises["9.2"].solution(model, tokens, 9)
    assert torch.equal(own, generate(model, tokens, max_new_tokens=9, stop=())[:, 4:])
