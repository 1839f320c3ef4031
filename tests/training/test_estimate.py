"""Hours, electricity and its price: sums that a student can check by hand."""

import math

import pytest

from course_lib.training.estimate import TYPICAL_WATTS, duration_text, estimate


def test_an_hour_at_a_thousand_watts_is_a_kilowatt_hour():
    found = estimate(3.6, 1000, watts=1000, price_per_kwh=7.59, currency="taka")
    assert (found.hours, found.kwh, found.cost) == (1.0, 1.0, 7.59)


def test_the_sentence_says_the_time_the_electricity_and_the_price():
    found = estimate(1.9, 5000, watts="laptop", price_per_kwh=7.59, currency="taka")
    assert str(found) == (
        "5,000 steps take about 2.6 hours and 0.12 kWh of electricity at 45 W, which cost 0.9 taka."
    )


def test_what_was_not_given_is_not_guessed():
    found = estimate(2.0, 60)
    assert (found.kwh, found.cost) == (None, None)
    assert str(found) == "60 steps take about 2 minutes."
    assert estimate(2.0, 60, watts=100).cost is None


def test_a_machine_may_be_named():
    assert estimate(1, 1, watts="T4").watts == TYPICAL_WATTS["t4"] == 70


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.04 seconds"), (45, "45 seconds"), (60, "1 minute"), (720, "12 minutes"), (3600, "1 hour"),
     (11520, "3.2 hours"), (40 * 3600, "40 hours"), (216000, "2.5 days")],
)  # fmt: skip
def test_a_time_is_written_in_the_unit_that_suits_it(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.error_messages
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(seconds_a_step=0), ValueError, "seconds_a_step: expected a number over 0, got 0"),
        (dict(seconds_a_step=math.nan), ValueError, "seconds_a_step: expected a number over 0, got nan"),
        (dict(seconds_a_step="2"), TypeError, "seconds_a_step: expected a number, got str '2'"),
        (dict(steps=1.5), TypeError, "steps: expected a whole number, got float 1.5"),
        (dict(steps=-1), ValueError, "steps: expected a whole number of at least 0, got -1"),
        (
            dict(watts="toaster"),
            ValueError,
            "watts: expected a number or one of 'laptop', 't4'.*got 'toaster'",
        ),
        (dict(watts=-5), ValueError, "watts: expected a number over 0, got -5"),
        (
            dict(watts=5, price_per_kwh=-1),
            ValueError,
            "price_per_kwh: expected a number of at least 0, got -1",
        ),
        (dict(price_per_kwh=7.59), ValueError, "watts: expected a number with price_per_kwh, got None"),
    ],
)
def test_what_makes_no_sense_is_named(change, error, words):
    with pytest.raises(error, match=words):
        estimate(**({"seconds_a_step": 2.0, "steps": 10} | change))
