"""Lesson 07: the exercises on accumulation, the bytes of training and a checkpoint know their wrong answers."""

import copy

import torch
import torch.nn.functional as F

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_07
from course_lib.lessons import lesson_07_mistakes_training as wrong
from course_lib.training import accumulation_weights

# --- 7.3 ---------------------------------------------------------------------------------------------------------


def accumulate_by_shares(weight, batches):
    counts = [int((targets != -100).sum()) for _, targets in batches]
    for (hidden, targets), count, share in zip(batches, counts, accumulation_weights(counts), strict=True):
        if count:
            (F.cross_entropy(F.linear(hidden, weight), targets) * share).backward()
    return weight.grad


def accumulate_means_by_shares(weight, batches):
    """A batch without targets has a loss of NaN, and a gradient of 0."""
    total = sum((targets != -100).sum() for _, targets in batches)
    for hidden, targets in batches:
        loss = F.cross_entropy(hidden @ weight.T, targets)
        (loss * (targets != -100).sum() / total).backward()
    return weight.grad


def accumulate_as_one_batch(weight, batches):
    hidden = torch.cat([hidden for hidden, _ in batches])
    targets = torch.cat([targets for _, targets in batches])
    F.cross_entropy(hidden @ weight.T, targets).backward()
    return weight.grad


def accumulate_then_divide(weight, batches):
    count = 0
    for hidden, targets in batches:
        real = targets != -100
        F.cross_entropy(hidden[real] @ weight.T, targets[real], reduction="sum").backward()
        count += real.sum()
    return weight.grad / count


def accumulate_by_hand(weight, batches):
    total, count = torch.zeros_like(weight), 0
    with torch.no_grad():
        for hidden, targets in batches:
            for h, t in zip(hidden, targets, strict=True):
                if t >= 0:
                    p = (weight @ h).softmax(0)
                    p[t] -= 1
                    total += torch.outer(p, h)
                    count += 1
    return total / count


def accumulate_with_zero_grad_inside(weight, batches):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    total = sum((targets != -100).sum() for _, targets in batches)
    for hidden, targets in batches:
        optimizer.zero_grad()
        (F.cross_entropy(hidden @ weight.T, targets, reduction="sum") / total).backward()
    return weight.grad


def accumulate_returns_inside(weight, batches):
    total = sum((targets != -100).sum() for _, targets in batches)
    for hidden, targets in batches:
        (F.cross_entropy(hidden @ weight.T, targets, reduction="sum") / total).backward()
        return weight.grad


def accumulate_loss(weight, batches):
    return sum(F.cross_entropy(hidden @ weight.T, targets, reduction="sum") for hidden, targets in batches)


def accumulate_list(weight, batches):
    found = []
    for hidden, targets in batches:
        weight.grad = None
        F.cross_entropy(hidden @ weight.T, targets).backward()
        found.append(weight.grad)
    return found


def test_exercise_7_3_names_each_wrong_answer():
    assert_exercise(
        lesson_07.LESSON,
        "7.3",
        wrong={
            "a_loss": [accumulate_loss, lambda w, b: accumulate_loss(w, b).item()],
            "a_list": [accumulate_list],
            "mean_of_means": [wrong.accumulate_mean_of_means],
            "sum_of_means": [wrong.accumulate_sum_of_means],
            "sum_of_sums": [
                wrong.accumulate_sum_of_sums,
                wrong.accumulate_sums_by_batches,
                wrong.accumulate_means_times_targets,
            ],
            "all_tokens": [wrong.accumulate_all_tokens, wrong.accumulate_means_by_tokens],
            "counts_the_last": [wrong.accumulate_counts_the_last],
            "running_count": [wrong.accumulate_running_count],
            "skips_word_zero": [wrong.accumulate_skips_word_zero],
            "softmax_twice": [wrong.accumulate_softmax_twice],
            "the_weight": [lambda w, b: w, lambda w, b: w.detach().clone()],
            "last_only": [
                wrong.accumulate_last_only,
                wrong.accumulate_last_mean_only,
                wrong.accumulate_last_mean_shared,
                accumulate_with_zero_grad_inside,
            ],
            "first_only": [wrong.accumulate_first_only, accumulate_returns_inside],
            "word_zero": [wrong.accumulate_ignores_no_target],
            "uphill": [wrong.accumulate_uphill],
            "common.axes_swapped": [lambda w, b: accumulate_as_one_batch(w, b).T],
        },
        right=[
            accumulate_by_shares,
            accumulate_means_by_shares,
            accumulate_as_one_batch,
            accumulate_then_divide,
            accumulate_by_hand,
        ],
    )


# --- 7.4 ---------------------------------------------------------------------------------------------------------


def _is_half(dtype):
    return dtype in (torch.float16, torch.bfloat16)


def bytes_by_table(parameters, dtype):
    return parameters * {torch.float32: 16, torch.float16: 18, torch.bfloat16: 18}[dtype]


def bytes_by_tensors(parameters, dtype):
    kept = [torch.empty(parameters, device="meta") for _ in range(4)]
    if dtype.itemsize == 2:
        kept.append(torch.empty(parameters, dtype=dtype, device="meta"))
    return sum(tensor.nbytes for tensor in kept)


def bytes_by_bits(parameters, dtype):
    half = torch.finfo(dtype).bits if _is_half(dtype) else 0
    return parameters * (4 * 32 + half) // 8


def _each(fp32, half):
    return lambda parameters, dtype: parameters * (half if _is_half(dtype) else fp32)


def test_exercise_7_4_names_each_wrong_answer():
    assert_exercise(
        lesson_07.LESSON,
        "7.4",
        wrong={
            "units": [
                lambda p, d, unit=unit: bytes_by_table(p, d) / unit for unit in (1e3, 2**10, 1e6, 2**30)
            ],
            "of_one": [lambda p, d: bytes_by_table(1, d), lambda p, d: 16],
            "bits": [_each(128, 144)],
            "weights_alone": [_each(4, 2), lambda p, d: p * d.itemsize, _each(16, 6)],
            "one_missing": [_each(12, 14), _each(12, 18)],
            "no_optimiser": [_each(8, 10), _each(16, 10)],
            "copy_of_fp32": [_each(20, 18), lambda p, d: p * (16 + d.itemsize)],
            "no_copy": [_each(16, 16), lambda p, d: 16 * p, _each(16, 4 + 2 + 2 + 4 + 4)],
            "all_half": [lambda p, d: 4 * p * d.itemsize],
            "no_master": [_each(16, 14), _each(16, 12), _each(16, 4)],
            "wide_copy": [_each(16, 20), _each(16, 4 + 2 + 4 + 2 + 8)],
            "common.wrong_answer": [_each(17, 19)],
        },
        right=[bytes_by_table, bytes_by_tensors, bytes_by_bits],
    )


# --- 7.5 ---------------------------------------------------------------------------------------------------------


def checkpoint_by_vars(run):
    saved = dict(vars(run))
    saved["generator"] = saved["generator"].get_state()
    return copy.deepcopy(saved)


def checkpoint_by_loop(run):
    saved = {}
    for name, value in vars(run).items():
        if isinstance(value, torch.Tensor):
            saved[name] = value.detach().clone()
        elif isinstance(value, torch.Generator):
            saved[name] = value.get_state().clone()
        else:
            saved[name] = value
    return saved


def checkpoint_by_a_copied_generator(run):
    saved = checkpoint_by_loop(run)
    twin = torch.Generator()
    twin.set_state(run.generator.get_state())
    saved["generator"] = twin
    return saved


def checkpoint_after_another_step(run):
    run.train(1)
    return checkpoint_by_loop(run)


def _without(*names):
    return lambda run: {name: value for name, value in checkpoint_by_loop(run).items() if name not in names}


def _with(**values):
    return lambda run: checkpoint_by_loop(run) | values


def test_exercise_7_5_names_each_wrong_answer():
    assert_exercise(
        lesson_07.LESSON,
        "7.5",
        wrong={
            "not_a_dict": [
                lambda run: list(checkpoint_by_loop(run).values()),
                lambda run: run.weight.clone(),
            ],
            "unknown": [_with(scaler=1.0), lambda run: checkpoint_by_loop(run) | {"optimizer": None}],
            "everything": [lambda run: {}],
            "weight": [_without("weight")],
            "optimiser": [_without("average"), lambda run: {"weight": run.weight.clone(), "step": run.step}],
            "scaler": [_without("loss_scale"), _without("loss_scale", "good_steps")],
            "good_steps": [_without("good_steps")],
            "data": [_without("position"), _without("position", "generator")],
            "generator": [_without("generator")],
            "step": [_without("step")],
            "generator_itself": [lambda run: checkpoint_by_loop(run) | {"generator": run.generator}],
            "aliased": [
                lambda run: checkpoint_by_loop(run) | {"weight": run.weight},
                lambda run: checkpoint_by_loop(run) | {"average": run.average.detach()},
            ],
            "no_state": [
                lambda run: checkpoint_by_loop(run) | {"generator": run.generator.initial_seed()},
                lambda run: checkpoint_by_loop(run) | {"generator": torch.get_rng_state()},
                lambda run: checkpoint_by_loop(run) | {"generator": torch.Generator().manual_seed(7)},
            ],
            "other_values": [
                _with(step=0),
                _with(loss_scale=1.0),
                _with(average=torch.zeros(4)),
                lambda run: checkpoint_by_loop(run) | {"weight": run.weight.tolist()},
                lambda run: checkpoint_by_loop(run) | {"weight": run.weight.numpy().copy()},
                lambda run: checkpoint_by_loop(run) | {"weight": run.weight.double()},
            ],
            "trained": [checkpoint_after_another_step],
        },
        right=[checkpoint_by_vars, checkpoint_by_loop, checkpoint_by_a_copied_generator],
    )


def test_every_attribute_of_a_practice_run_decides_its_losses():
    saved = lesson_07.PracticeRun()
    saved.train(7)
    whole = checkpoint_by_loop(saved)
    losses = lesson_07.PracticeRun().load(whole).train(9)
    for name in whole:
        other = {key: value for key, value in whole.items() if key != name}
        assert lesson_07.PracticeRun().load(other).train(9) != losses, name
