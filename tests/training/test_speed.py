"""The measure of half precision's speed."""

import torch

from course_lib.training.speed import half_speed


def test_half_speed_is_a_ratio_and_stops_within_its_budget() -> None:
    ratio = half_speed(torch.float32, size=32, pairs=5)
    assert 0 < ratio < 1000  # fp32 against itself
    assert half_speed(torch.bfloat16, size=32, pairs=10**9, budget=0.05) > 0
