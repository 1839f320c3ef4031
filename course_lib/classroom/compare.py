"""Compare what a student's function gave with what was wanted, and put the difference in one sentence.

`difference(got, wanted)` is None where they agree; otherwise the message key and values of one sentence,
found in the order nothing, type, shape, dtype, NaN, value, so that the first thing to mend is the one named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Difference:
    """One sentence to be said: a key of the catalogue's `common` section, and its values."""

    key: str
    values: dict[str, object]


@dataclass(frozen=True)
class Tolerance:
    """Numbers agree when |got - wanted| <= atol + rtol * |wanted|. None: by the coarser dtype of the two."""

    rtol: float | None = None
    atol: float | None = None

    def between(self, got: Tensor, wanted: Tensor) -> tuple[float, float]:
        eps = max((torch.finfo(t.dtype).eps for t in (got, wanted) if not _exact(t)), default=0.0)
        loose = 500 * eps if eps < 1e-5 else 4 * eps  # float32: 6e-5, float16: 4e-3, bfloat16: 3e-2
        return (loose if self.rtol is None else self.rtol, loose if self.atol is None else self.atol)


BY_DTYPE = Tolerance()


def agree(got: Any, wanted: Any, tolerance: Tolerance = BY_DTYPE) -> bool:
    """Whether two results are the same answer. NaN agrees with NaN, an integer with an equal float."""
    return difference(got, wanted, tolerance) is None


def difference(
    got: Any, wanted: Any, tolerance: Tolerance = BY_DTYPE, place: str = "result"
) -> Difference | None:
    """What separates `got` from `wanted`, or None. `place` is how the sentence names the part
    ("result[1]")."""
    if isinstance(wanted, Tensor):
        return _tensor_difference(got, wanted, tolerance, place)
    if wanted is None:
        return None if got is None else _wrong_type(got, wanted, place)
    if got is None:
        return _missing(place)
    if isinstance(got, Tensor) and got.ndim == 0 and isinstance(wanted, int | float | complex):
        got = got.item()
    if isinstance(wanted, bool):
        return _plain_difference(_plain_scalar(got), wanted, place)
    if isinstance(wanted, int | float | complex):
        return _number_difference(got, wanted, tolerance, place)
    if isinstance(wanted, Mapping):
        return _mapping_difference(got, wanted, tolerance, place)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes):
        return _sequence_difference(got, wanted, tolerance, place)
    return _plain_difference(got, wanted, place)


def _tensor_difference(got: Any, wanted: Tensor, tolerance: Tolerance, place: str) -> Difference | None:
    if got is None:
        return _missing(place)
    if not isinstance(got, Tensor):
        return _wrong_type(got, wanted, place)
    got, wanted = got.detach().cpu(), wanted.detach().cpu()
    if got.layout != torch.strided:
        got = got.to_dense()
    if got.shape != wanted.shape:
        turned = got.ndim > 1 and sorted(got.shape) == sorted(wanted.shape)
        key = "common.axes_swapped" if turned else "common.wrong_shape"
        return Difference(
            key, {"place": place, "got": str(list(got.shape)), "wanted": str(list(wanted.shape))}
        )
    if _kind(got) != _kind(wanted):
        key = f"common.{_kind(got)}_for_{_kind(wanted)}"
        return Difference(key, {"place": place, "got": _dtype(got), "wanted": _dtype(wanted)})
    return _value_difference(got, wanted, tolerance, place)


def _value_difference(got: Tensor, wanted: Tensor, tolerance: Tolerance, place: str) -> Difference | None:
    rtol, atol = tolerance.between(got, wanted)
    exact = torch.complex128 if got.is_complex() else torch.float64
    ours, theirs = got.to(exact), wanted.to(exact)
    wrong = ~torch.isclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
    if not bool(wrong.any()):
        return None
    not_a_number = ours.isnan() & ~theirs.isnan()
    position = tuple(int(i) for i in (not_a_number if bool(not_a_number.any()) else wrong).nonzero()[0])
    values: dict[str, object] = {
        "place": f"{place}[{', '.join(map(str, position))}]" if position else place,
        "got": show(got[position].item()),
        "wanted": show(wanted[position].item()),
        "count": int(wrong.sum()),
        "total": wrong.numel(),
    }
    return Difference("common.not_a_number" if bool(not_a_number.any()) else "common.wrong_value", values)


def _number_difference(got: Any, wanted: Any, tolerance: Tolerance, place: str) -> Difference | None:
    got = _plain_scalar(got)
    if isinstance(got, bool) or not isinstance(got, int | float | complex):
        return _wrong_type(got, wanted, place)
    exact = isinstance(wanted, int) and tolerance == BY_DTYPE
    ours, theirs = complex(got), complex(wanted)
    if exact:
        same = got == wanted
    else:
        rtol = 1e-4 if tolerance.rtol is None else tolerance.rtol
        atol = 1e-6 if tolerance.atol is None else tolerance.atol
        both_nan = ours != ours and theirs != theirs
        same = ours == theirs or both_nan or abs(ours - theirs) <= atol + rtol * abs(theirs)
    if same:
        return None
    if ours != ours:
        return Difference("common.number_is_nan", {"place": place, "wanted": show(wanted)})
    return Difference("common.wrong_answer", {"place": place, "got": show(got), "wanted": show(wanted)})


def _sequence_difference(
    got: Any, wanted: Sequence[Any], tolerance: Tolerance, place: str
) -> Difference | None:
    if isinstance(got, Tensor) and not any(isinstance(item, Tensor) for item in wanted):
        got = got.detach().tolist()
    elif type(got).__module__ == "numpy" and getattr(got, "shape", ()) != ():
        got = got.tolist()
    if not isinstance(got, Sequence) or isinstance(got, str | bytes):
        return _wrong_type(got, wanted, place)
    if len(got) != len(wanted):
        return Difference("common.wrong_length", {"place": place, "got": len(got), "wanted": len(wanted)})
    for index, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        found = difference(ours, theirs, tolerance, f"{place}[{index}]")
        if found is not None:
            return found
    return None


def _mapping_difference(
    got: Any, wanted: Mapping[Any, Any], tolerance: Tolerance, place: str
) -> Difference | None:
    if not isinstance(got, Mapping):
        return _wrong_type(got, wanted, place)
    if set(got) != set(wanted):
        keys = {"got": _keys(got), "wanted": _keys(wanted)}
        return Difference("common.wrong_keys", {"place": place, **keys})
    for key in wanted:
        found = difference(got[key], wanted[key], tolerance, f"{place}[{key!r}]")
        if found is not None:
            return found
    return None


def _plain_difference(got: Any, wanted: Any, place: str) -> Difference | None:
    if type(got) is not type(wanted) and not isinstance(got, type(wanted)):
        return _wrong_type(got, wanted, place)
    if got == wanted:
        return None
    return Difference("common.wrong_answer", {"place": place, "got": show(got), "wanted": show(wanted)})


def _missing(place: str) -> Difference:
    return Difference(
        "common.returned_nothing" if place == "result" else "common.part_is_none", {"place": place}
    )


def _wrong_type(got: Any, wanted: Any, place: str) -> Difference:
    if isinstance(wanted, Tensor) and isinstance(got, list | tuple):
        key = "common.list_for_tensor"
    elif isinstance(wanted, Tensor) and type(got).__module__ == "numpy":
        key = "common.numpy_for_tensor"
    else:
        key = "common.wrong_type"
    return Difference(key, {"place": place, "got": type_name(got), "wanted": type_name(wanted)})


def _plain_scalar(value: Any) -> Any:
    """A numpy number as Python's own; anything else as it is."""
    return (
        value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value
    )


def _exact(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _kind(tensor: Tensor) -> str:
    if tensor.dtype is torch.bool:
        return "bool"
    if tensor.is_complex():
        return "complex"
    return "float" if tensor.is_floating_point() else "integer"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _keys(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(sorted(map(repr, mapping)))


def type_name(value: Any) -> str:
    """The type as a student would write it: "tensor", "list", "numpy.ndarray"."""
    if isinstance(value, Tensor):
        return "tensor"
    kind = type(value)
    return f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__


def show(value: Any) -> str:
    """A value short enough for a sentence: floats to five figures, long text cut."""
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float | complex):
        return f"{value:.5g}"
    if isinstance(value, Tensor):
        return show_tensor(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(show(item) for item in value[:8]) + (", …" if len(value) > 8 else "")
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]


def show_tensor(tensor: Tensor) -> str:
    """Its values where there are at most six in one row, its shape otherwise."""
    if tensor.ndim <= 1 and tensor.numel() <= 6:
        return show(tensor.detach().cpu().tolist())
    return f"tensor {list(tensor.shape)}"
