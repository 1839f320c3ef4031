"""What a long run will take, from a few of its steps: hours, electricity, and its price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from course_lib.attention.bias import as_whole_number

TYPICAL_WATTS = {"laptop": 45.0, "t4": 70.0, "rtx 4060": 115.0, "rtx 3070": 220.0}
"""Power of a machine that trains, in watts. "laptop" is a guess: between the 28 W that the processor of a thin one is
made to lose as heat and the 65 W of its charger. The GPUs: the TDP of the card in public tables of specifications, to
which the computer around it comes, some 50 to 100 W. A meter in the socket knows better than either."""


@dataclass(frozen=True)
class Estimate:
    """``seconds`` of the run; ``watts`` and ``price_per_kwh`` as given, None where they were not."""

    steps: int
    seconds: float
    watts: float | None
    price_per_kwh: float | None
    currency: str

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def kwh(self) -> float | None:
        """Kilowatt-hours: ``watts * hours / 1000``."""
        return None if self.watts is None else self.watts * self.hours / 1000

    @property
    def cost(self) -> float | None:
        """In the currency of the price: ``kwh * price_per_kwh``."""
        return None if self.kwh is None or self.price_per_kwh is None else self.kwh * self.price_per_kwh

    def __str__(self) -> str:
        sentence = f"{self.steps:,} steps take about {duration_text(self.seconds)}"
        if self.kwh is not None:
            sentence += f" and {_rounded(self.kwh)} kWh of electricity at {self.watts:g} W"
        if self.cost is not None:
            sentence += f", which cost {_rounded(self.cost)} {self.currency}".rstrip()
        return sentence + "."


def estimate(
    seconds_a_step: float,
    steps: int,
    *,
    watts: float | str | None = None,
    price_per_kwh: float | None = None,
    currency: str = "",
) -> Estimate:
    """``steps`` steps of ``seconds_a_step`` each: ``print(estimate(1.9, 5000, watts="laptop"))``.

    ``watts``: what the whole machine draws, or a name in ``TYPICAL_WATTS``; None leaves electricity out.
    ``price_per_kwh`` is in ``currency``, which is only repeated; None leaves the price out. It stands on
    the electricity bill: ``price_per_kwh=8, currency="taka"``.

    Raises TypeError or ValueError for what is no number over 0 (a price may be 0) and for an unknown name.
    """
    steps = as_whole_number("steps", steps, 0)
    seconds = steps * _number("seconds_a_step", seconds_a_step)
    if isinstance(watts, str):
        if watts.lower() not in TYPICAL_WATTS:
            raise ValueError(
                f"watts: expected a number or one of {', '.join(map(repr, TYPICAL_WATTS))}, got {watts!r}."
            )
        watts = TYPICAL_WATTS[watts.lower()]
    if watts is not None:
        watts = _number("watts", watts)
    if price_per_kwh is not None:
        price_per_kwh = _number("price_per_kwh", price_per_kwh, zero=True)
        if watts is None:
            raise ValueError(
                "watts: expected a number with price_per_kwh, got None. What the machine draws decides the cost; "
                "watts='laptop' is a guess."
            )
    return Estimate(steps, seconds, watts, price_per_kwh, currency)


def duration_text(seconds: float) -> str:
    """A time for a reader: 45 seconds, 12 minutes, 3.2 hours, 2.5 days."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= (2 * size if unit == "days" else size):
            return _counted(_rounded(seconds / size), unit)
    return _counted(_rounded(seconds), "seconds")


def _counted(number: str, unit: str) -> str:
    return f"{number} {unit.removesuffix('s') if number == '1' else unit}"


def _rounded(value: float) -> str:
    """Two significant digits, or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _number(name: str, value: Any, *, zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__} {value!r}.")
    if not (0 <= value < math.inf) or (value == 0 and not zero):
        raise ValueError(f"{name}: expected a number {'of at least' if zero else 'over'} 0, got {value}.")
    return float(value)
