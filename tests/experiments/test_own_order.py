"""An order of the user's own: found beside the spec, checked with it, told apart from its twins."""

import sys

import pytest

from experiments.faults import SpecError
from experiments.load import check_spec, load_spec, spec_of
from experiments.own_order import order_file
from experiments.parts import order_of, server_of
from experiments.run import run
from experiments.spec_resolved import content_hash, resolve
from experiments.yaml_write import dump_yaml
from sim.orders import Order

MODULE = """\
from sim.orders import Order


class LatestFirst(Order):
    kind = "latest_first"
    displaces = True

    def __init__(self, least: int, scale: float = 1.0, sizes=None) -> None:
        if least < 0:
            raise ValueError(f"least is {least}; it must not be negative")
        self.least, self.scale, self.sizes = least, scale, sizes

    def key(self, request, now_ns):
        return -request.arrival_ns


class Plain(Order):
    def key(self, request, now_ns):
        return 0


class Keyless(Order):
    pass


class NoOrder:
    pass
"""
SPEC = """\
name: lab
workload:
  requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 6}]
step_time: {kind: constant, step_s: 1}
server: {slots: 4}
schedulers:
  mine:
    kind: mixed
    order: ORDER
"""
ORDER = '{kind: "latest:LatestFirst", least: 3, scale: 0.5, sizes: {a: [1, 2.5]}}'


@pytest.fixture(autouse=True)
def no_traces():
    """No module or folder stays behind on the import path."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    assert sys.path == path
    for name in set(sys.modules) - modules:
        if name.split(".")[0] in ("latest", "random", "pack"):
            del sys.modules[name]


@pytest.fixture
def written(tmp_path):
    """A spec file with this order, and the module beside it."""
    (tmp_path / "latest.py").write_text(MODULE)

    def of(order=ORDER):
        (tmp_path / "f.yaml").write_text(SPEC.replace("ORDER", order))
        return tmp_path / "f.yaml"

    return of


def fault_of(file):
    with pytest.raises(SpecError) as caught:
        check_spec(file)
    (fault,) = caught.value.faults
    return str(fault).removeprefix(str(file.parent) + "/")


def test_it_is_made_with_the_options_that_are_said(written, tmp_path):
    spec, _ = check_spec(written())
    order = server_of(spec.schedulers["mine"]).order
    assert isinstance(order, Order)
    assert type(order).__name__ == "LatestFirst"
    assert (order.least, order.scale, order.sizes) == (3, 0.5, {"a": [1, 2.5]})
    assert type(order.scale) is type(order.sizes["a"][1]) is float
    assert order_file("latest:LatestFirst") == tmp_path / "latest.py"


def test_a_word_is_enough_where_nothing_is_needed(written):
    spec, _ = check_spec(written("latest:Plain"))
    assert type(order_of(spec.schedulers["mine"].order)).__name__ == "Plain"


def test_the_resolved_spec_finds_the_module_from_its_own_folder(written, tmp_path):
    spec, _ = check_spec(written())
    results = tmp_path / "results" / "lab"
    results.mkdir(parents=True)
    data = resolve(spec, results)
    assert data["schedulers"]["mine"]["order"] == {
        "kind": "latest:LatestFirst",
        "import_from": "../..",
        "least": 3,
        "scale": 0.5,
        "sizes": {"a": [1, 2.5]},
    }
    (results / "spec.yaml").write_text(dump_yaml(data))
    again, _ = check_spec(results / "spec.yaml")
    assert again == spec
    assert content_hash(again) == content_hash(spec)


def test_another_folder_may_be_named(written, tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "latest.py").write_text(MODULE)
    check_spec(written('{kind: "latest:Plain", import_from: policies}'))
    assert order_file("latest:Plain") == tmp_path / "policies" / "latest.py"


def test_modules_of_one_name_in_two_folders_are_two_modules(tmp_path):
    made = []
    for name, number in (("a", 1), ("b", 2), ("a", 1)):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "helper.py").write_text(f"NUMBER = {number}\n")
        (folder / "latest.py").write_text("from helper import NUMBER\n" + MODULE)
        (folder / "f.yaml").write_text(SPEC.replace("ORDER", "latest:Plain"))
        spec, _ = check_spec(folder / "f.yaml")
        order = order_of(spec.schedulers["mine"].order)
        made.append(sys.modules[type(order).__module__].NUMBER)
    assert made == [1, 2, 1]


def test_a_class_in_a_package_beside_the_spec_is_found(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "latest.py").write_text(MODULE)
    (tmp_path / "f.yaml").write_text(SPEC.replace("ORDER", "pack.latest:Plain"))
    spec, _ = check_spec(tmp_path / "f.yaml")
    assert type(order_of(spec.schedulers["mine"].order)).__module__ == "pack.latest"


def test_an_installed_class_needs_no_folder(tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC.replace("ORDER", "sim.orders:Srpt"))
    spec, _ = check_spec(tmp_path / "f.yaml")
    assert spec.schedulers["mine"].order.import_from is None
    assert resolve(spec)["schedulers"]["mine"]["order"]["kind"] == "sim.orders:Srpt"


def test_it_may_displace_if_its_class_says_so(written):
    data = {"displace": True, "order": {"kind": "latest:LatestFirst", "least": 1}}

    def spec(**scheduler):
        return spec_of(
            {
                "name": "lab",
                "workload": {
                    "requests": [{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 6}]
                },
                "step_time": {"kind": "constant", "step_s": 1},
                "schedulers": {"mine": {"kind": "mixed", "slots": 4, **scheduler}},
            },
            folder=written().parent,
        )

    assert spec(**data).schedulers["mine"].displace
    with pytest.raises(SpecError) as caught:
        spec(displace=True, order="latest:Plain")
    assert str(caught.value) == (
        "spec: schedulers.mine.displace: true makes no sense under latest:Plain: its class has "
        "displaces = False"
    )


@pytest.mark.parametrize(
    ("order", "fault"),
    [
        (
            "latest:LatestFrist",
            "order: latest has no class LatestFrist; did you mean 'LatestFirst'? known: "
            "LatestFirst, Plain, Keyless",
        ),
        ("lates:Plain", "order: there is no module lates in {folder}; did you mean 'latest'?"),
        (
            '{kind: "lates:Plain"}',
            "order.kind: there is no module lates in {folder}; did you mean 'latest'?",
        ),
        (
            "latest:NoOrder",
            "order: NoOrder is no order: make it a subclass of sim.orders.Order",
        ),
        ("latest:Keyless", "order: Keyless has no key(request, now_ns); write it"),
        ("latest:MODULE", "order: latest has no class MODULE; known: LatestFirst, Plain, Keyless"),
        (
            "latest.py:Plain",
            "order: there is no module latest.py in {folder}; did you mean 'latest'?",
        ),
        (
            "./latest:Plain",
            "order.kind: must be module:Class, such as my_module:MyOrder, not './latest:Plain'; "
            "say import_from: FOLDER for a module in another folder",
        ),
        (
            '{kind: "latest:LatestFirst", scale: 3}',
            "order.least: is missing; LatestFirst needs least",
        ),
        (
            '{kind: "latest:LatestFirst", least: 3, scal: 3}',
            "order.scal: LatestFirst has no such option; did you mean 'scale'? known: least, "
            "scale, sizes",
        ),
        (
            '{kind: "latest:LatestFirst", least: -3}',
            "order: LatestFirst refuses its options: least is -3; it must not be negative",
        ),
        (
            '{kind: "latest:LatestFirst", least: many}',
            "order: LatestFirst refuses its options: '<' not supported between instances of 'str' "
            "and 'int'",
        ),
        (
            '{kind: "latest:Plain", import_from: 3}',
            "order.import_from: must be a text, not 3: put it in quotes ('3')",
        ),
    ],
)
def test_a_class_that_cannot_be_used_is_a_fault_of_the_spec(written, order, fault):
    file = written(order)
    assert fault_of(file) == f"f.yaml:9: schedulers.mine.{fault.format(folder=file.parent)}"


def test_all_wrong_options_are_told_at_once(written):
    with pytest.raises(SpecError) as caught:
        check_spec(written('{kind: "latest:LatestFirst", last: 3, scal: 3}'))
    assert [fault.path for fault in caught.value.faults] == [
        f"schedulers.mine.order.{name}" for name in ("last", "scal", "least")
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("import no_such_thing\n", "No module named 'no_such_thing'"),
        ("def f(:\n", "SyntaxError: "),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(written, tmp_path, text, what):
    file = written("latest:Plain")
    (tmp_path / "latest.py").write_text(text)
    assert fault_of(file).startswith(
        f"f.yaml:9: schedulers.mine.order: importing latest fails: {what}"
    )


def test_a_module_named_like_one_that_is_loaded_is_told(written, tmp_path):
    import random

    file = written("random:Plain")
    (tmp_path / "random.py").write_text(MODULE)
    assert fault_of(file) == (
        "f.yaml:9: schedulers.mine.order: another module is called random already; give the file "
        "random.py another name"
    )
    assert sys.modules["random"] is random


ANSWERS = """\
from sim.orders import Order


class NoReturn(Order):
    def key(self, request, now_ns):
        request.arrival_ns


class TwoKinds(Order):
    def key(self, request, now_ns):
        return (1, 2) if request.index else 3


class TooFew(Order):
    def key(self, request):
        return 0


class ShortHook(Order):
    def key(self, request, now_ns):
        return 0

    def joins(self, request):
        pass


class KeepsWithoutLanes(Order):
    reserves = True

    def key(self, request, now_ns):
        return 0


class Miser(Order):
    reserves = lanes = True

    def key(self, request, now_ns):
        return 0

    def withheld(self, request):
        return 4, 0

    def keeps(self):
        return 1, 0  # less than it withholds


class NoPair(Miser):
    def withheld(self, request):
        return True


class Bound(Order):
    @staticmethod
    def key(request, now_ns):
        return 0

    def joins(self, *args):
        pass
"""
BOTH = SPEC.replace(
    "output_tokens: 6}]", "output_tokens: 6}, {arrival_s: 0, prompt_tokens: 1, output_tokens: 2}]"
)


def answers(tmp_path, name):
    (tmp_path / "answers.py").write_text(ANSWERS)
    path = tmp_path / "lab.yaml"
    text = BOTH.replace("ORDER", f"answers:{name}") + "  fcfs: {kind: mixed}\n"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("TooFew", "TooFew.key must take (self, request, now_ns), as sim.orders.Order's does"),
        ("ShortHook", "ShortHook.joins must take (self, request, waiting, now_ns)"),
        ("KeepsWithoutLanes", "says reserves = True but has no lanes"),
    ],
)
def test_a_class_that_cannot_be_asked_is_told_by_check(tmp_path, name, says):
    with pytest.raises(SpecError) as caught:
        check_spec(answers(tmp_path, name))
    assert says in str(caught.value)


def test_hooks_may_take_what_they_like_as_long_as_they_can_be_called(tmp_path):
    check_spec(answers(tmp_path, "Bound"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NoReturn", "order NoReturn: the key of request 1 is None; return what the queue"),
        ("TwoKinds", "order answers:TwoKinds: its answers lead to TypeError: '<' not supported"),
        ("NoPair", "order answers:NoPair: its answers lead to TypeError: cannot unpack"),
        (
            "Miser",
            "nobody else holds a slot: order Miser withholds 4 of 4 slots",
        ),
    ],
)
def test_a_wrong_answer_fails_its_cell_with_the_reason_and_no_other(tmp_path, name, says):
    failed = run(load_spec(answers(tmp_path, name)), tmp_path / "out").failed
    assert len(failed) == 1 and says in failed[0], failed
    assert (tmp_path / "out" / "cells" / "fcfs").is_dir()


@pytest.mark.parametrize("order", ["answers.Miser", "{kind: answers.Miser}"])
def test_a_dot_for_the_colon_is_told(tmp_path, order):
    path = tmp_path / "lab.yaml"
    path.write_text(SPEC.replace("ORDER", order))
    with pytest.raises(SpecError, match="a class of your own is module:Class, with a colon"):
        check_spec(path)
