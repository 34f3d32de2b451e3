"""A record holds a run whole: what is told from it is what was told of the run itself."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from sampled import case, sampled_runs

from experiments.output import OutputError
from experiments.record import COLUMNS, PARTS, read_record, write_record
from sim import (
    Analysis,
    FrontEnd,
    Host,
    Mixed,
    Order,
    Server,
    Static,
    StepTimeError,
    Swap,
    membership,
    simulate,
    token_times,
)

PER_TOPIC = 8


def test_everything_that_was_told_of_a_run_is_told_of_its_record(tmp_path: Path) -> None:
    seen = {"static": 0, "asynchronous": 0, "declared": 0}
    for name, run in sampled_runs(PER_TOPIC, plain=5 * PER_TOPIC):
        path = tmp_path / "record.npz"
        write_record(Analysis(run), path)
        read = read_record(path)
        before, after = Analysis(run), Analysis(read)
        for column in COLUMNS:
            assert np.array_equal(getattr(run.log, column), getattr(read.log, column)), name
        assert read.policy == run.policy
        assert (read.slots, read.endless, read.horizon_ns) == (
            run.slots,
            run.endless,
            run.horizon_ns,
        )
        for field in fields(before.outcomes):
            one, two = getattr(before.outcomes, field.name), getattr(after.outcomes, field.name)
            assert np.array_equal(one, two), (name, field.name)
        for label in run.requests.attributes:
            if not label.startswith("hash_"):
                kept = read.requests.attributes[label]
                assert kept.tolist() == run.requests.attributes[label].tolist(), (name, label)
        pieces = zip(before.timeline.pieces(), after.timeline.pieces(), strict=True)
        for one, two in pieces:
            for field in fields(one):
                assert np.array_equal(getattr(one, field.name), getattr(two, field.name)), name
            assert np.array_equal(before.boundaries.waiting(one), after.boundaries.waiting(two))
            assert np.array_equal(before.boundaries.blocks(one), after.boundaries.blocks(two))
            stops = before.boundaries.stopped_by(one), after.boundaries.stopped_by(two)
            assert np.array_equal(*stops), name
        whole = (1, max(before.timeline.iterations, 1))
        one, two = (
            membership(run, before.timeline, *whole),
            membership(read, after.timeline, *whole),
        )
        assert np.array_equal(one.request, two.request), name
        assert np.array_equal(one.cell, two.cell), name
        assert token_times(run, before.timeline) == token_times(read, after.timeline)
        seen["static"] += isinstance(run.policy, Static)
        seen["asynchronous"] += run.server.scheduling == "asynchronous"
        seen["declared"] += "priority" in run.requests.attributes
    assert all(count > 3 for count in seen.values()), seen


def test_every_part_of_a_server_is_kept(tmp_path: Path) -> None:
    hints = get_type_hints(Server)
    settings = {
        name: kind
        for name, hint in hints.items()
        for kind in get_args(hint) or (hint,)
        if is_dataclass(kind) and not issubclass(kind, Order)
    }
    assert settings == PARTS
    parts = {
        "front_end": FrontEnd(constant_s=0.01, delivery_s=0.002),
        "host": Host(constant_s=1e-3),
    }
    for more in (parts, {"preemption": "swap", "swap": Swap(block_s=1e-3)}, {}):
        server = Server(slots=3, max_batched_tokens=64, **more)
        made = case(3)
        before = Analysis(simulate(made.trace, server, Mixed(), made.curve))
        write_record(before, tmp_path / "record.npz")
        after = Analysis(read_record(tmp_path / "record.npz"))
        assert replace(after.run.server, order=server.order) == server
        assert np.array_equal(before.outcomes.delivered_ns, after.outcomes.delivered_ns)


def a_record(path: Path) -> Path:
    made = case(3)
    write_record(Analysis(simulate(made.trace, made.server, made.policy, made.curve)), path)
    return path


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    assert a_record(tmp_path / "a").read_bytes() == a_record(tmp_path / "b").read_bytes()


def test_step_times_that_were_never_taken_are_not_made_up(tmp_path: Path) -> None:
    run = read_record(a_record(tmp_path / "record.npz"))
    with pytest.raises(StepTimeError, match="of its own batches only"):
        run.curve.decodes_ns(np.array([7_000_000]), np.array([1]))
    with pytest.raises(StepTimeError, match="has no step_ns; simulate it again"):
        run.curve.step_ns(1, 1, 0, 0, 0, 0)


def test_what_is_no_record_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "record.npz"
    with pytest.raises(OutputError, match=r"there is no .*record.npz; run the experiment again"):
        read_record(path)
    whole = a_record(path).read_bytes()
    broken = [b"", b"not a record", whole[: len(whole) // 2], whole[:-30], whole[100:]]
    middle = len(whole) // 2
    broken.append(whole[:middle] + bytes(40) + whole[middle + 40 :])
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(OutputError, match=r"cannot be read .*; run the experiment again"):
            read_record(path)


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    path = a_record(tmp_path / "record.npz")
    with np.load(path) as archive:
        data = {name: archive[name] for name in archive.files}
    said = json.loads(data["said"].tobytes())
    data["said"] = np.frombuffer(json.dumps({**said, "layout": "x"}).encode(), dtype=np.uint8)
    np.savez(path, **data)
    with pytest.raises(OutputError, match="is of another version of itersim"):
        read_record(path)


def test_nothing_in_a_record_is_run_when_it_is_read(tmp_path: Path) -> None:
    """Objects in an archive of numpy's would be: they are refused."""
    path = a_record(tmp_path / "record.npz")
    with np.load(path) as archive:
        data = {name: archive[name] for name in archive.files}
    data["segments"] = np.array([{"a": 1}], dtype=object)
    np.savez(path, **data)
    assert zipfile.is_zipfile(path)
    with pytest.raises(OutputError, match="cannot be read"):
        read_record(path)
