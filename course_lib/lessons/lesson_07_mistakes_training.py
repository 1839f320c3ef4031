"""Wrong answers to exercises 7.3 to 7.5 of lesson 07: accumulation, the bytes of training, a checkpoint."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from course_lib.classroom.exercise import Attempt, Mistake

NONE = -100

# --- 7.3 ---------------------------------------------------------------------------------------------------------


def _grad(weight, batches, factor: Callable, reduction: str = "sum"):
    """The gradient of the sum of the losses, each times factor(its targets)."""
    total = torch.zeros_like(weight)
    for hidden, targets in batches:
        loss = F.cross_entropy(hidden @ weight.T, targets, reduction=reduction) * factor(targets)
        total += torch.autograd.grad(loss, weight)[0]
    return total


def _real(targets):
    return int((targets != NONE).sum())


def _all_real(batches):
    return sum(_real(targets) for _, targets in batches)


def _all_tokens(batches):
    return sum(len(targets) for _, targets in batches)


def accumulate_mean_of_means(weight, batches):
    return _grad(weight, batches, lambda targets: 1 / len(batches), "mean")


def accumulate_sum_of_means(weight, batches):
    return _grad(weight, batches, lambda targets: 1, "mean")


def accumulate_sum_of_sums(weight, batches):
    return _grad(weight, batches, lambda targets: 1)


def accumulate_sums_by_batches(weight, batches):
    return _grad(weight, batches, lambda targets: 1 / len(batches))


def accumulate_all_tokens(weight, batches):
    return _grad(weight, batches, lambda targets: 1 / _all_tokens(batches))


def accumulate_means_by_tokens(weight, batches):
    return _grad(weight, batches, lambda targets: len(targets) / _all_tokens(batches), "mean")


def accumulate_last_only(weight, batches):
    return _grad(weight, batches[-1:], lambda targets: 1 / _all_real(batches))


def accumulate_last_mean_only(weight, batches):
    return _grad(weight, batches[-1:], lambda targets: 1, "mean")


def accumulate_last_mean_shared(weight, batches):
    return _grad(weight, batches[-1:], lambda targets: 1 / len(batches), "mean")


def accumulate_first_only(weight, batches):
    return _grad(weight, batches[:1], lambda targets: 1 / _all_real(batches))


def accumulate_means_times_targets(weight, batches):
    return _grad(weight, batches, _real, "mean")


def accumulate_counts_the_last(weight, batches):
    return _grad(weight, batches, lambda targets: 1 / max(1, _real(batches[-1][1])))


def accumulate_running_count(weight, batches):
    seen = 0

    def share(targets):
        nonlocal seen
        seen += _real(targets)
        return 1 / max(1, seen)

    return _grad(weight, batches, share)


def accumulate_skips_word_zero(weight, batches):
    count = sum(int((targets > 0).sum()) for _, targets in batches)
    return _grad(weight, batches, lambda targets: 1 / count)


def accumulate_softmax_twice(weight, batches):
    total = torch.zeros_like(weight)
    for hidden, targets in batches:
        loss = F.cross_entropy((hidden @ weight.T).softmax(-1), targets, reduction="sum") / _all_real(batches)
        total += torch.autograd.grad(loss, weight)[0]
    return total


def accumulate_ignores_no_target(weight, batches):
    """No target taken for word 0."""
    replaced = [(hidden, targets.clamp(min=0)) for hidden, targets in batches]
    return accumulate_all_tokens(weight, replaced)


def accumulate_uphill(weight, batches):
    return -_grad(weight, batches, lambda targets: 1 / _all_real(batches))


def _is_a_loss(attempt: Attempt) -> bool:
    got = attempt.got
    return isinstance(got, float) or (isinstance(got, torch.Tensor) and got.dim() == 0)


def _is_one_for_each(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple)


def _is_the_weight(attempt: Attempt) -> bool:
    return torch.equal(attempt.got, attempt.args[0])


ACCUMULATE = [
    Mistake("a_loss", when=_is_a_loss),
    Mistake("a_list", when=_is_one_for_each),
    Mistake("the_weight", when=_is_the_weight),
    Mistake("mean_of_means", like=accumulate_mean_of_means, everywhere=False),
    Mistake("sum_of_means", like=accumulate_sum_of_means, everywhere=False),
    Mistake("sum_of_sums", like=accumulate_sum_of_sums, everywhere=False),
    Mistake("sum_of_sums", like=accumulate_sums_by_batches, everywhere=False),
    Mistake("sum_of_sums", like=accumulate_means_times_targets, everywhere=False),
    Mistake("all_tokens", like=accumulate_all_tokens, everywhere=False),
    Mistake("all_tokens", like=accumulate_means_by_tokens, everywhere=False),
    Mistake("counts_the_last", like=accumulate_counts_the_last, everywhere=False),
    Mistake("running_count", like=accumulate_running_count, everywhere=False),
    Mistake("skips_word_zero", like=accumulate_skips_word_zero, everywhere=False),
    Mistake("softmax_twice", like=accumulate_softmax_twice, everywhere=False),
    Mistake("last_only", like=accumulate_last_only, everywhere=False),
    Mistake("last_only", like=accumulate_last_mean_only, everywhere=False),
    Mistake("last_only", like=accumulate_last_mean_shared, everywhere=False),
    Mistake("first_only", like=accumulate_first_only, everywhere=False),
    Mistake("word_zero", like=accumulate_ignores_no_target, everywhere=False),
    Mistake("uphill", like=accumulate_uphill, everywhere=False),
]

# --- 7.4 ---------------------------------------------------------------------------------------------------------


def _each(attempt: Attempt) -> float:
    """Bytes that the answer gives to each parameter."""
    return round(float(attempt.got) / attempt.args[0], 6)


def _is_half(attempt: Attempt) -> bool:
    return attempt.args[1] != torch.float32


def _takes(*sizes: float, half: bool | None = None) -> Callable[[Attempt], bool]:
    """Whether the answer comes to one of ``sizes`` bytes a parameter, in a case in half precision or not."""
    return lambda attempt: _each(attempt) in sizes and (half is None or _is_half(attempt) is half)


def _per_parameter(attempt: Attempt) -> dict[str, object]:
    return {"each": f"{_each(attempt):g}"}


def _in_larger_units(attempt: Attempt) -> bool:
    units = (10**3, 2**10, 10**6, 2**20, 10**9, 2**30)
    return any(abs(float(attempt.got) * unit - attempt.wanted) <= unit for unit in units)


def _of_one_parameter(attempt: Attempt) -> bool:
    return float(attempt.got) in (16, 18)


TRAINING_BYTES = [
    Mistake("of_one", when=_of_one_parameter),
    Mistake("units", when=_in_larger_units),
    Mistake("bits", when=_takes(128, 144)),
    Mistake("weights_alone", when=_takes(4, half=False)),
    Mistake("weights_alone", when=_takes(2, 6, half=True)),
    Mistake("one_missing", when=_takes(12, half=False), values=_per_parameter),
    Mistake("no_optimiser", when=_takes(8, half=False), values=_per_parameter),
    Mistake("no_optimiser", when=_takes(10, half=True), values=_per_parameter),
    Mistake("copy_of_fp32", when=_takes(20, 18, half=False)),
    Mistake("no_copy", when=_takes(16, half=True)),
    Mistake("all_half", when=_takes(8, half=True)),
    Mistake("no_master", when=_takes(4, 12, 14, half=True), values=_per_parameter),
    Mistake("wide_copy", when=_takes(20, half=True)),
]

# --- 7.5 ---------------------------------------------------------------------------------------------------------


def _holds(key: str) -> Callable[[Attempt], bool]:
    return lambda attempt: bool(attempt.got.get(key))


def _lacks(*names: str) -> Callable[[Attempt], bool]:
    return lambda attempt: any(name in attempt.got["missing"] for name in names)


def _names(key: str) -> Callable[[Attempt], dict[str, object]]:
    return lambda attempt: {"names": ", ".join(attempt.got[key])}


CHECKPOINT = [
    Mistake("not_a_dict", when=lambda attempt: "not_a_dict" in attempt.got),
    Mistake("unknown", when=_holds("unknown"), values=_names("unknown")),
    Mistake("everything", when=lambda attempt: len(attempt.got["missing"]) == 7),
    Mistake("optimiser", when=_lacks("average"), values=_names("missing")),
    Mistake("weight", when=_lacks("weight"), values=_names("missing")),
    Mistake("scaler", when=_lacks("loss_scale"), values=_names("missing")),
    Mistake("good_steps", when=_lacks("good_steps"), values=_names("missing")),
    Mistake("data", when=_lacks("position"), values=_names("missing")),
    Mistake("generator", when=_lacks("generator"), values=_names("missing")),
    Mistake("step", when=_lacks("step"), values=_names("missing")),
    Mistake("generator_itself", when=lambda attempt: "generator" in attempt.got["moved_on"]),
    Mistake("aliased", when=_holds("moved_on"), values=_names("moved_on")),
    Mistake("no_state", when=lambda attempt: attempt.got["other"] == ["generator"]),
    Mistake("other_values", when=_holds("other"), values=_names("other")),
    Mistake("trained", when=lambda attempt: len(attempt.got["losses"]) == 9),
]
