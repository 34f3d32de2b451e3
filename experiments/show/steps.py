"""A run as steps: what every slot did in each iteration, and what happened around it, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.lives import LEFT, LifeWords, Lives, lives_of, preempts, seconds
from experiments.stretches import NOBODY, Stretches, stretches
from sim import Analysis, Cell, Reason

Ints = NDArray[np.int64]

EACH = 24
"""Iterations up to which every one is a step; of more, those in which nothing changes are one."""
MOST = 120
"""Steps that are shown."""
NAMED = 8
"""Requests of the queue that are called by name."""
MARKS = {Cell.EMPTY: "·", Cell.PREFILL: "P", Cell.PAUSED: "‖", Cell.STRANDED: "×"}
"""What a cell says besides its request; a decode says how many tokens there are after it."""
MEANINGS = {
    Cell.EMPTY: "nobody holds the slot",
    Cell.PREFILL: "its prompt is computed",
    Cell.DECODE: "it makes a token",
    Cell.PAUSED: "in its slot, not in this iteration",
    Cell.STRANDED: "it has ended, its slot is still held",
}


@dataclass(frozen=True, slots=True)
class Square:
    """A slot in a step: whose it is (from 0; None: nobody's), what it did, what is written there,
    and the same as a sentence."""

    request: int | None
    cell: Cell
    text: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Step:
    """Iterations ``first`` to ``last`` in which every slot did one thing, and what happened:
    (what is done, to whom) in the order of the loop. No squares: the run was over."""

    first: int
    last: int
    squares: tuple[Square, ...]
    happened: tuple[tuple[str, str], ...]

    @property
    def span(self) -> str:
        """Its iterations as a text."""
        return f"{self.first}" if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class Walk:
    """A run under one scheduler, step by step; ``left_out`` iterations are not among them."""

    name: str
    slots: int
    steps: tuple[Step, ...]
    left_out: int


def walks_of(runs: Mapping[str, Analysis], last: int | None = None) -> list[Walk]:
    """The runs in steps that lie at the same iterations in all of them, up to iteration *last*."""
    tables = {name: stretches(one.run, one.timeline) for name, one in runs.items()}
    most = max((one.timeline.iterations for one in runs.values()), default=0)
    most = most if last is None else min(most, last)
    if most <= EACH:
        begins = np.arange(1, most + 1)
    else:
        begins = np.unique(np.concatenate([np.array([1]), *(t.first for t in tables.values())]))
    begins = begins[begins <= most][: MOST + 1]
    ends = np.append(begins[1:] - 1, most)
    if len(begins) > MOST:
        begins, ends = begins[:-1], ends[:-1]
    left = most - int(ends[-1]) if len(ends) else 0
    return [_walk(name, one, tables[name], begins, ends, left) for name, one in runs.items()]


def _walk(
    name: str, analysis: Analysis, table: Stretches, begins: Ints, ends: Ints, left: int
) -> Walk:
    slots = int(table.slot.max(initial=0))
    lives = lives_of(analysis)
    told = LifeWords(analysis, lives)
    steps = []
    for first, last in zip(begins.tolist(), ends.tolist(), strict=True):
        rows = np.flatnonzero((table.first <= last) & (table.last >= first))
        if not len(rows):
            steps.append(Step(first, last, (), ()))
            continue
        squares = [_square(table, told, int(row), last) for row in rows]
        happened = _happened(analysis, lives, told, squares, first, last)
        steps.append(Step(first, last, tuple(squares), tuple(happened)))
    return Walk(name, slots, tuple(steps), left)


def _square(table: Stretches, told: LifeWords, row: int, last: int) -> Square:
    stay, cell = int(table.stay[row]), Cell(int(table.cell[row]))
    if stay == NOBODY:
        return Square(None, cell, MARKS[cell], MEANINGS[cell])
    stays = table.stays
    who = int(stays.request[stay])
    made = int(table.tokens[row])
    if cell == Cell.DECODE:
        made += last - int(table.first[row]) + 1
    done = int(stays.prompt_done[stay])
    if cell == Cell.PREFILL and int(table.first[row]) <= done <= last:
        made += 1
    whole = int(told.run.requests.output_tokens[who])
    mark = MARKS.get(cell, str(made))
    tokens = f"{made:,} of {whole:,} tokens" if made else "no token yet"
    meaning = f"{told.name(who)}: {MEANINGS[cell]}; {tokens}"
    return Square(who, cell, f"{told.name(who)} {mark}", meaning)


def _happened(
    analysis: Analysis, lives: Lives, told: LifeWords, squares: list[Square], first: int, last: int
) -> list[tuple[str, str]]:
    """The loop around one step: release, admit, compose, step, append."""
    said: list[tuple[str, str]] = []
    victim = preempts(lives)
    gone = (lives.left_iteration == first - 1) & ~victim & (first > 1)
    said.append(("release", ", ".join(_leavers(lives, told, gone)) or "nobody has ended"))
    thrown = victim & (lives.left_iteration == first)
    if thrown.any():
        said.append(("preempt", ", ".join(_leavers(lives, told, thrown))))
    came = (lives.came_iteration >= first) & (lives.came_iteration <= last)
    joined = [told.name(int(who)) for who in lives.request[came]]
    said.append(("admit", f"{', '.join(joined) or 'nobody'}; {_queue(analysis, told, first)}"))
    held = [one for one in squares if one.request is not None]
    parts = []
    for cell, what in (
        (Cell.PREFILL, "prefill"),
        (Cell.DECODE, "decode"),
        (Cell.PAUSED, "paused"),
        (Cell.STRANDED, "ended, but still in the batch"),
    ):
        mine = [one.request for one in held if one.cell == cell]
        names = [told.name(who) for who in mine if who is not None]
        if names:
            parts.append(f"{what}: {' '.join(names)}")
    idle = analysis.run.slots - sum(one.cell not in (Cell.EMPTY, Cell.STRANDED) for one in squares)
    parts.append(f"idle slots: {idle} of {analysis.run.slots}")
    said.append(("compose", "; ".join(parts)))
    line = analysis.timeline
    begin = int(line.end_of(np.array([first - 1]))[0]) if first > 1 else int(line.start_ns[0])
    end = int(line.end_of(np.array([last]))[0])
    many = "one forward pass" if first == last else f"{last - first + 1} forward passes"
    said.append(("step", f"{many}, from {seconds(begin)} to {seconds(end)}"))
    tokens = [one.meaning.partition(";")[2].strip() for one in held]
    made = [
        f"{told.name(one.request)} {text.removesuffix(' tokens')}"
        for one, text in zip(held, tokens, strict=True)
        if one.request is not None and one.cell in (Cell.PREFILL, Cell.DECODE)
    ]
    said.append(("append", ", ".join(made) or "no token"))
    return said


def _leavers(lives: Lives, told: LifeWords, which: NDArray[np.bool_]) -> list[str]:
    """Who left, and why in few words: what was done to them, or the reason where that is known."""
    found = []
    for who, why in zip(lives.request[which], lives.left[which], strict=True):
        what, _, reason = LEFT[Reason(int(why))].partition(": ")
        found.append(f"{told.name(int(who))} ({what if what == 'finished' else reason})")
    return found


def _queue(analysis: Analysis, told: LifeWords, iteration: int) -> str:
    """Who waits after the decision for *iteration*."""
    if analysis.run.endless:
        return "the queue is never empty"
    line, out = analysis.timeline, analysis.outcomes
    decided = int(line.start_ns[line.segment_of(np.array([iteration]))[0]])
    if iteration > 1:
        decided = max(decided, int(line.end_of(np.array([iteration - 1]))[0]))
    lives = told.lives
    here = (lives.came_iteration <= iteration) & (
        (lives.left_iteration < 0)
        | (lives.left_iteration > iteration)
        | ((lives.left_iteration == iteration) & ~preempts(lives))
    )
    inside = set(lives.request[here].tolist())
    over = (out.ended_ns >= 0) & (out.ended_ns <= decided)
    there = out.request[(out.arrival_ns <= decided) & ~over & ~out.refused]
    waiting = [told.name(int(who)) for who in there if int(who) not in inside]
    if not waiting:
        return "nobody waits"
    if len(waiting) > NAMED:
        return f"{len(waiting):,} wait"
    return f"waiting: {' '.join(waiting)}"
