"""What pictures of single requests and iterations show, from one run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.request_names import labels_of, name_of
from experiments.spec_figures import TimelineFigure
from sim import Analysis
from sim.catalogue import NS
from sim.membership import residencies, token_times
from sim.outcomes import NONE
from sim.request import State

Floats = NDArray[np.float64]

MOST_ITERATIONS = 20_000
"""Iterations that are drawn one by one."""
MOST_CLASSES = 5
"""Numbers that are told apart by colour; of more, thirds are."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A request's way through a server, in seconds. ``stays``: from and to, in a slot."""

    name: str
    arrival: float
    left: float | None
    stays: tuple[tuple[float, float], ...]
    tokens: Floats
    deadline: float | None
    met: bool


@dataclass(frozen=True, slots=True)
class Lanes:
    """The requests under one scheduler."""

    title: str
    lanes: tuple[Lane, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Passes:
    """A scheduler's iterations: start and end of each, in seconds, and the tokens it computes."""

    title: str
    start: Floats
    end: Floats
    decodes: Floats
    prefill: Floats


@dataclass(frozen=True, slots=True)
class Waits:
    """Requests under one scheduler: arrival and wait in seconds, class, whether still waiting."""

    title: str
    arrival: Floats
    wait: Floats
    group: NDArray[np.int64]
    waiting: NDArray[np.bool_]
    groups: tuple[str, ...]


def iteration_times(analysis: Analysis) -> tuple[Floats, Floats]:
    """Start and end of each iteration, in seconds."""
    start, end = analysis.timeline.iteration_times_ns()
    return start / NS, end / NS


def lanes_of(analysis: Analysis, scheduler: str, figure: TimelineFigure) -> Lanes | None:
    """The first requests; None where there are too many iterations to tell every token."""
    run, line, out = analysis.run, analysis.timeline, analysis.outcomes
    if line.iterations > MOST_ITERATIONS or not line.iterations:
        return None
    tokens = token_times(run, line)
    start, end = iteration_times(analysis)
    labels, deadlines = labels_of(run), analysis.attribute("deadline_ns")
    stays: dict[int, list[tuple[float, float]]] = {}
    held = residencies(run, line.iterations)
    for who, first, last in zip(
        held.request.tolist(), held.first.tolist(), held.last.tolist(), strict=True
    ):
        stays.setdefault(who, []).append((start[first - 1], end[min(last, len(end)) - 1]))
    lanes = []
    for row in range(min(figure.requests, len(out))):
        who = int(out.request[row])
        when = None if deadlines is None or deadlines[row] is None else int(deadlines[row])
        over = int(out.ended_ns[row])
        lanes.append(
            Lane(
                name=name_of(labels, who),
                arrival=int(out.arrival_ns[row]) / NS,
                left=None if over == NONE else over / NS,
                stays=tuple(stays.get(who, ())),
                tokens=np.array(tokens[who], dtype=np.float64) / NS,
                deadline=None if when is None or when == NONE else when / NS,
                met=bool(
                    when is not None
                    and out.state[row] == State.COMPLETED
                    and out.delivered_ns[row] <= when
                ),
            )
        )
    title = scheduler
    due = [lane for lane in lanes if lane.deadline is not None]
    if due:
        title += f": {sum(lane.met for lane in due)} of {len(due)} deadlines met"
    else:
        longest = float(analysis.durations_ns["itl_max_ns"].max(initial=NONE)) / 1e6
        wait = float(analysis.waited_ns.max(initial=0)) / 1e6
        stall = f"longest stall {longest:,.0f} ms, " if longest >= 0 else ""
        title += f": {stall}longest wait {wait:,.0f} ms"
    return Lanes(title, tuple(lanes), float(end[-1]))


def passes_of(analysis: Analysis, scheduler: str) -> Passes | None:
    """Every iteration of a run that has not too many."""
    line = analysis.timeline
    if line.iterations > MOST_ITERATIONS or not line.iterations:
        return None
    start, end = iteration_times(analysis)
    decodes = np.repeat(line.decodes, line.count).astype(np.float64)
    prefill = np.repeat(line.tokens, line.count).astype(np.float64)
    first, last = int(decodes[0] + prefill[0]), (end[0] - start[0]) * 1e3
    title = f"{scheduler}: {first:,} tokens in the first iteration, which lasts {last:,.0f} ms"
    return Passes(title, start, end, decodes, prefill)


def waits_of(analysis: Analysis, scheduler: str, by: str) -> Waits:
    """Everybody's wait for a slot, by class."""
    out = analysis.outcomes
    there = ~out.refused
    group, names = _classes(analysis, by)
    waiting = (out.admitted_ns == NONE)[there]
    wait = analysis.waited_ns[there] / NS
    title = f"{scheduler}: longest wait {wait.max(initial=0):.3g} s"
    return Waits(title, out.arrival_ns[there] / NS, wait, group[there], waiting, names)


def _classes(analysis: Analysis, by: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The class of each request and the names of the classes; numbers of many values in thirds."""
    out = analysis.outcomes
    if by in ("priority", "tenant"):
        found = analysis.priorities if by == "priority" else analysis.tenants
        if found is None:
            return np.zeros(len(out), dtype=np.int64), ("all requests",)
        return found.code, tuple(f"{by} {'(none)' if x is None else x}" for x in found.labels)
    values = out.output_tokens if by == "output_tokens" else out.prompt_tokens
    what = by.replace("_", " ")
    distinct, code = np.unique(values, return_inverse=True)
    if len(distinct) <= MOST_CLASSES:
        return code, tuple(f"{value} {what}" for value in distinct)
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    third = np.searchsorted([low, high], values, side="left")
    names = (f"up to {low:.0f} {what}", f"up to {high:.0f}", f"more than {high:.0f}")
    return third, names
