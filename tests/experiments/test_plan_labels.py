"""Options are read by what they differ in, not by digests."""

from __future__ import annotations

from experiments.plan.labels import labels_of_options
from experiments.sweep import points_of

TPS = [f"llama-3.1-70b-{where}-vllm" for where in ("h100-tp4", "h100-tp8", "h200-tp4")]


def labels(**block) -> list[str]:
    found = labels_of_options(block)
    return [found.get(point.name, point.name) for point in points_of(block)]


def test_profiles_are_called_by_what_differs() -> None:
    assert labels(grid={"step_time.profile": TPS}) == [
        "profile-h100-tp4",
        "profile-h100-tp8",
        "profile-h200-tp4",
    ]
    two = labels(grid={"step_time.profile": TPS[:2], "server.slots": [8, 16]})
    assert two == [f"profile-{tp}--slots-{slots}" for tp in ("tp4", "tp8") for slots in (8, 16)]


def test_what_differs_in_nothing_else_is_called_in_full() -> None:
    longer = [TPS[0], f"{TPS[0]}-of-mine"]
    assert labels(grid={"step_time.profile": longer}) == [f"profile-{name}" for name in longer]


def test_names_that_were_not_cut_and_names_that_were_given_stay() -> None:
    assert labels(grid={"server.slots": [8, 16]}) == ["slots-8", "slots-16"]
    mine = {"small": {"server.slots": 8}, "large": {"server.slots": 16}}
    assert labels(list=mine) == ["small", "large"]
    both = labels(grid={"step_time.profile": TPS[:2]}, list=mine)
    assert both == [f"profile-{tp}--{name}" for tp in ("tp4", "tp8") for name in mine]
