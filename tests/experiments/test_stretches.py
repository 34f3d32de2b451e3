"""Stretches say of whole runs what batch membership says cell by cell."""

from __future__ import annotations

import numpy as np
from sampled import sampled_runs

from experiments.stretches import NOBODY, stretches
from sim import Cell, membership, token_times
from sim.timeline import Timeline

PER_TOPIC = 20


def test_stretches_are_the_cells_of_batch_membership_joined() -> None:
    kinds: set[int] = set()
    stranded = 0
    for name, run in sampled_runs(PER_TOPIC):
        line = Timeline(run)
        whole = membership(run, line, 1, line.iterations)
        found = stretches(run, line)
        request = np.full_like(whole.request, -7)
        cell = np.full_like(whole.cell, -7)
        for row in range(len(found)):
            place = (found.slot[row] - 1, slice(found.first[row] - 1, found.last[row]))
            assert found.first[row] <= found.last[row], name
            assert np.all(request[place] == -7), (name, "two stretches overlap")
            stay = found.stay[row]
            request[place] = NOBODY if stay == NOBODY else found.stays.request[stay]
            cell[place] = found.cell[row]
        used = int(found.slot.max(initial=0))
        assert np.array_equal(request[:used], whole.request[:used]), name
        assert np.array_equal(cell[:used], whole.cell[:used]), name
        assert np.all(whole.cell[used:] == Cell.EMPTY), name
        kinds |= set(found.cell.tolist())
        stranded += len(run.log.strands)
    assert kinds == {int(kind) for kind in Cell}
    assert stranded > 0  # rows of requests that had ended were among them


def test_neighbours_differ() -> None:
    for name, run in sampled_runs(PER_TOPIC):
        found = stretches(run, Timeline(run))
        same = (found.slot[1:] == found.slot[:-1]) & (found.stay[1:] == found.stay[:-1])
        assert np.all(found.first[1:][same] == found.last[:-1][same] + 1), name
        strands = (found.cell[1:] == Cell.STRANDED) & (found.last[1:] == found.first[1:])
        assert np.all((found.cell[1:] != found.cell[:-1]) | ~same | strands), name


def test_tokens_so_far_are_those_whose_time_has_come() -> None:
    for name, run in sampled_runs(PER_TOPIC):
        line = Timeline(run)
        if not line.iterations:
            continue
        times = token_times(run, line)
        starts = np.concatenate([piece.start_ns for piece in line.pieces()])
        found = stretches(run, line)
        for row in np.flatnonzero(found.stay != NOBODY).tolist():
            who = int(found.stays.request[found.stay[row]])
            begun = int(starts[found.first[row] - 1])
            assert found.tokens[row] == sum(time <= begun for time in times[who]), (name, row)
