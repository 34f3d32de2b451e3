"""`itersim policies` knows every policy and option of the spec, and no other."""

import sys

import pytest

from experiments.__main__ import main
from experiments.models import kind_of
from experiments.policies import GROUPS, ORDERS, PREDICTORS, SCHEDULERS
from experiments.policy_list import PARTS, default_of, in_full, model_of, whole_list
from experiments.spec_order import ORDERS as ORDER_MODELS
from experiments.spec_order import OwnOrder
from experiments.spec_server import SCHEDULERS as SCHEDULER_MODELS
from experiments.spec_server import Server, StaticScheduler
from experiments.spec_workload import PREDICTORS as PREDICTOR_MODELS

NO_POLICY = {
    "kind",
    "slots",
    "max_batched_tokens",
    "block_size",
    "max_context_tokens",
    "step_time",
}
"""Keys of servers and schedulers that say what there is, not what is done with it."""
GIVING_UP = {"cancel_s", "cancel_after_tokens", "ttft_timeout_s", "timeout_s"}

ENTRIES = [(group, entry) for group in GROUPS for entry in group.entries]


def keys_of(*groups):
    return [key for group in groups for entry in group.entries for key in entry.keys]


@pytest.mark.parametrize(
    ("group", "models"),
    [(SCHEDULERS, SCHEDULER_MODELS), (ORDERS, ORDER_MODELS), (PREDICTORS, PREDICTOR_MODELS)],
    ids=["schedulers", "orders", "predictors"],
)
def test_every_kind_is_listed_and_no_other(group, models):
    names = [entry.name for entry in group.entries]
    own = ["module:Class"] if group is ORDERS else []
    assert names == [*map(kind_of, models), *own]


@pytest.mark.parametrize("group", [ORDERS, PREDICTORS])
def test_every_option_of_a_kind_is_listed_with_it_and_no_other(group):
    for entry in group.entries:
        assert set(entry.keys) == set(model_of(group, entry).model_fields) - {"kind"}, entry.name


def test_every_option_of_a_server_or_a_scheduler_is_listed_once_and_no_other():
    listed = keys_of(*(g for g in GROUPS if g not in (ORDERS, PREDICTORS)))
    plain = [key for key in listed if "." not in key]
    assert sorted(plain) == sorted(set(plain))
    known = {key for model in SCHEDULER_MODELS for key in model.model_fields}
    # an order is a group of its own
    assert set(plain) == known - NO_POLICY - {"order"}


def test_a_scheduler_names_all_its_own_options():
    for entry in SCHEDULERS.entries:
        own = set(model_of(SCHEDULERS, entry).model_fields) - set(Server.model_fields)
        assert set(entry.keys) | set(entry.also) == own - NO_POLICY, entry.name
    explained = keys_of(*GROUPS)
    assert all(key in explained for entry in SCHEDULERS.entries for key in entry.also)


@pytest.mark.parametrize("part", PARTS)
def test_every_key_of_a_mapping_within_is_listed_and_no_other(part):
    listed = {key.split(".")[1] for key in keys_of(*GROUPS) if key.startswith(f"{part}.")}
    assert listed == (GIVING_UP if part == "requests" else set(PARTS[part].model_fields))


def test_every_entry_says_what_whence_and_whose():
    for _, entry in ENTRIES:
        assert entry.says.endswith(".") and len(entry.says) < 100, entry.name
        assert entry.source and entry.mirrors, entry.name


def test_names_are_not_used_twice():
    names = [entry.name for _, entry in ENTRIES]
    assert len(names) == len(set(names))


def test_defaults_are_those_of_the_models():
    assert default_of(StaticScheduler, "drain") == "true"
    assert default_of(StaticScheduler, "kv_blocks.utilization") == "0.9"
    assert default_of(StaticScheduler, "retries.attempts") == "needed"
    assert default_of(StaticScheduler, "victim") == "none"
    assert default_of(OwnOrder, "import_from") == "none"


def test_the_list_fits_its_width_and_names_everything():
    text = whole_list()
    assert max(map(len, text.splitlines())) <= 100
    for group, entry in ENTRIES:
        assert f"\n  {entry.name} " in text
        assert f"{group.title} ({group.where})\n" in text
        for key in entry.keys:
            assert key.rpartition(".")[2] in text


def test_one_is_shown_in_full_by_its_name_or_by_an_option():
    assert in_full("skip_age") == in_full("head_of_line")
    text = in_full("edf")
    assert text.startswith("edf: Earliest deadline first")
    assert "[false]" in text
    assert "Clockwork" in text
    assert in_full("timeout_s").count("\n\n") == 1  # the batch's and the client's
    with pytest.raises(ValueError, match="did you mean 'skip_age'"):
        in_full("skip_aeg")


def test_the_command_prints_the_list_or_one(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["itersim", "policies", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    assert call() == (0, whole_list() + "\n", "")
    assert call("mlfq") == (0, in_full("mlfq") + "\n", "")
    code, out, err = call("mlqf")
    assert (code, out) == (2, "")
    assert err == "itersim: no policy or option is called 'mlqf'; did you mean 'mlfq'?\n"
