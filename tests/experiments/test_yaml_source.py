"""What the YAML reader makes of text, and what it refuses."""

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments import yaml_source
from experiments.document import REFUSED
from experiments.faults import SpecError
from experiments.scalars import Exact
from experiments.yaml_source import MAX_ALIASED, MAX_BYTES, MAX_DEPTH, document_of, read_document
from experiments.yaml_write import dump_yaml

EMPTY = "f.yaml:1: is empty; an experiment needs at least name, workload, step_time and schedulers"


def faults(text: str | bytes) -> list[str]:
    """Every fault of a text, read as the file `f.yaml`."""
    try:
        return list(map(str, SpecError(document_of(text, "f.yaml").faults).faults))
    except SpecError as error:
        return list(map(str, error.faults))


def value(text: str) -> object:
    document = document_of(f"a: {text}\n", "f.yaml")
    assert document.faults == []
    return document.data()["a"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e-3", 0.001),
        ("1E6", 1e6),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("12", 12),
        ("-0", 0),
        ("+7", 7),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
    ],
)
def test_numbers_are_read_as_people_write_them(text, number):
    assert value(text) == number
    assert type(value(text)) is (
        Exact if isinstance(number, float) and math.isfinite(number) else type(number)
    )


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "2020-01-01",
        "12:30:00",
        "010",
        "0x1f",
        "1_000",
        "1e",
        "inf",
        "NaN",
    ],
)
def test_words_stay_words(text):
    assert value(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'true'", "true"),
        ("'1'", "1"),
    ],
)
def test_booleans_and_nothing_have_one_spelling_and_quotes_make_text(text, meant):
    assert value(text) is meant or value(text) == meant


def test_a_float_keeps_its_decimal_text():
    number = value("1700000000.123456789")
    assert isinstance(number, Exact)
    assert number.text == "1700000000.123456789"


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_nan_is_refused_with_its_path(text):
    assert faults(f"x:\n  rate: {text}\n") == [
        f"f.yaml:2: x.rate: {text} is not a number that anything can be set to; give a finite one"
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1e999", "'1e999' is out of reach; write .inf if infinity is meant"),
        ("9" * 5000, "a number of 5000 digits is out of reach"),
    ],
)
def test_numbers_out_of_reach_are_refused(text, what):
    assert faults(f"a: {text}") == [f"f.yaml:1: a: {what}"]


def test_a_duplicate_key_names_both_lines_and_the_first_value_stands():
    text = "server:\n  slots: 4\n  kv: paged\n  slots: 8\n"
    assert faults(text) == ["f.yaml:4: server.slots: duplicate key, first on line 2; keep one"]
    assert document_of(text, "f.yaml").data() == {"server": {"slots": 4, "kv": "paged"}}


def test_duplicates_are_found_inside_flow_mappings_and_lists():
    text = "a:\n  - {x: 1, x: 2}\n  - {y: 1}\n"
    assert faults(text) == ["f.yaml:2: a.0.x: duplicate key, first on line 2; keep one"]


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("!!python/object/apply:os.getcwd []", "!!python/object/apply:os.getcwd"),
        ("!!python/name:os.system", "!!python/name:os.system"),
        ("!!python/object/new:os.system [touch /tmp/x]", "!!python/object/new:os.system"),
        ("!!str 5", "!!str"),
        ("!!timestamp 2020-01-01", "!!timestamp"),
        ("!custom {a: 1}", "!custom"),
        ("!!set {a, b}", "!!set"),
    ],
)
def test_tags_are_refused_and_nothing_is_built(text, tag):
    assert faults(f"y: 1\nx: {text}\n") == [
        f"f.yaml:2: x: the tag {tag} is not allowed; write the plain value"
    ]
    assert document_of(f"x: {text}", "f.yaml").data() == {"x": REFUSED}


def test_aliases_repeat_values_and_keep_the_line_of_the_original():
    document = document_of("a: &x\n  slots: 1\nb: *x\n", "f.yaml")
    assert document.data() == {"a": {"slots": 1}, "b": {"slots": 1}}
    assert document.where(("b", "slots"))[:2] == ("f.yaml", 2)


def test_an_alias_bomb_is_refused_before_it_grows():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (fault,) = faults("\n".join(lines))
    assert fault.startswith("f.yaml:4: a3.")
    assert f"aliases repeat more than {MAX_ALIASED:,} values" in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: &a [*a]", "f.yaml:1: a.0: *a refers to itself; write the value out"),
        ("x: 1\na: *b", "f.yaml:2: a: *b is not defined; write the value out"),
        ("a: &k word\n*k : 1", "f.yaml:2: an alias (*k) cannot be a key; write the word"),
        (
            "a: {x: 1}\nb:\n  <<: {y: 2}",
            "f.yaml:3: b: merge keys (<<) are not read; write the keys out",
        ),
        ("? [1, 2]\n: 3", "f.yaml:1: a key must be a word, not a list"),
        ("a: 1\n---\nb: 2", "f.yaml:2: a second document starts here; one file, one experiment"),
        ('"a\\0b": 1', "f.yaml:1: the key 'a\\x00b' has characters that no editor shows"),
    ],
)
def test_odd_yaml_is_refused_with_its_line(text, fault):
    assert faults(text) == [fault]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a: 1\nb: [1, 2\n", "f.yaml:3: is not valid YAML"),
        ("a: 1\nb: c: d\n", "f.yaml:2: is not valid YAML"),
        ("a: 1\n\tb: 2\n", "f.yaml:2: is not valid YAML"),
        ("a: 'x\n", "f.yaml:2: is not valid YAML"),
        ("a: 1\nb: \x07\n", "f.yaml:2: is not valid YAML"),
        ("a: @x\n", "f.yaml:1: is not valid YAML"),
    ],
)
def test_broken_syntax_has_its_line(text, start):
    (fault,) = faults(text)
    assert fault.startswith(start)


def test_a_tab_and_a_bare_colon_get_their_remedy():
    assert faults("a: 1\n\tb: 2\n")[0].endswith("; indent with spaces, not tabs")
    assert faults("a: b: c\n")[0].endswith("; quote a text that contains ': '")


def test_a_list_left_open_names_the_line_it_starts_on():
    (fault,) = faults("a: 1\nb: [1, 2\nc: 3\n")
    assert "(it starts on line 2)" in fault


def test_depth_is_bounded():
    assert faults("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)) == []
    (fault,) = faults("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert f"is nested deeper than {MAX_DEPTH} levels" in fault
    assert len(faults("a: " + "[" * 100_000)) == 1
    assert len(faults("\n".join(" " * i + "a:" for i in range(2000)))) == 1


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", EMPTY),
        (b"# only a comment\n", EMPTY),
        (b"- a\n- b\n", "f.yaml:1: must be a mapping (`name: ...`, `workload: ...`), not a list"),
        (
            b"just words\n",
            "f.yaml:1: must be a mapping (`name: ...`, `workload: ...`), not 'just words'",
        ),
        (b"a: 1\nb: \xff\n", "f.yaml:2: byte 0xff is not UTF-8 text; save the file as UTF-8"),
        ("a: 1".encode("utf-16"), "f.yaml:1: is UTF-16 or UTF-32 text; save it as UTF-8"),
        ("a: 1".encode("utf-32"), "f.yaml:1: is UTF-16 or UTF-32 text; save it as UTF-8"),
    ],
)
def test_files_of_the_wrong_kind_say_so(raw, fault):
    assert faults(raw) == [fault]


def test_a_utf8_byte_order_mark_is_harmless():
    assert document_of(b"\xef\xbb\xbfa: 1\n", "f.yaml").data() == {"a": 1}


def test_windows_line_ends_do_not_move_lines():
    assert faults(b"a: 1\r\nb: .nan\r\n")[0].startswith("f.yaml:2: b:")


def test_a_file_too_large_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(yaml_source, "MAX_BYTES", 1000)
    file = tmp_path / "f.yaml"
    file.write_text("a: 1\n" + "#" * 1000)
    with pytest.raises(SpecError, match=r"is larger than .* keep requests in a CSV file"):
        read_document(file)
    assert MAX_BYTES == 16 * 2**20


def test_a_folder_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "lab.yaml").write_text("a: 1\n")
    for name, what in [
        (tmp_path, "is a folder; name the YAML file in it"),
        (tmp_path / "lba.yaml", f"no such file; did you mean '{tmp_path / 'lab.yaml'}'?"),
        (tmp_path / "x" / "lab.yaml", f"no such file (there is no folder {tmp_path / 'x'} either)"),
    ]:
        with pytest.raises(SpecError) as caught:
            read_document(name)
        assert str(caught.value) == f"{name}: {what}"


def test_an_impossible_file_name_is_a_fault_too():
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(SpecError):
            read_document(name)


def test_the_pure_parser_agrees_with_the_fast_one(monkeypatch):
    text = "a: &x {k: [1, 2.5, no]}\nb: *x\nc: 'quoted'\nd: |\n  long\n  text\n"
    fast = document_of(text, "f.yaml")
    monkeypatch.setattr(yaml_source, "PARSER", yaml.SafeLoader)
    pure = document_of(text, "f.yaml")
    assert fast.data() == pure.data()
    for path in [("a", "k", 1), ("b", "k", 2), ("c",), ("d",)]:
        assert fast.where(path)[:2] == pure.where(path)[:2]


@pytest.mark.parametrize("parser", ["fast", "pure"])
def test_whatever_the_bytes_only_a_spec_error_comes_out(parser, monkeypatch):
    if parser == "pure":
        monkeypatch.setattr(yaml_source, "PARSER", yaml.SafeLoader)

    @settings(max_examples=60, deadline=None)
    @example(b"a: \x00")
    @example(b'a: "\\ud800"')
    @example(b"%YAML 9.9\n---\na: 1")
    @example(b"%TAG ! tag:x:\n---\n!y a")
    @example("a: \U0010ffff".encode())
    @example(b"a: 1e99999999999999999999")
    @given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode())))
    def check(raw):
        faults(raw)

    check()


ALPHABET = "ab:-[]{}&*!|>'\"#%@`,? \n\t0.1eE~<"


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=ALPHABET, max_size=80))
def test_whatever_the_punctuation_only_a_spec_error_comes_out(text):
    faults(text)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False)
    | st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)
    | st.sampled_from(
        ["1e-3", "no", "010", ".inf", ".nan", "~", "null", "1_0", "<<", "=", "1:30", ""]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc_-. 01:#", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), plain, max_size=4))
def test_what_is_written_is_read_back_unchanged(data):
    document = document_of(dump_yaml(data) if data else "{}", "f.yaml")
    assert document.faults == []
    assert document.data() == data


def test_nothing_outside_the_document_is_touched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text("x: !!python/object/apply:os.mkdir [made]\n")
    assert len(read_document("f.yaml").faults) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["f.yaml"]
