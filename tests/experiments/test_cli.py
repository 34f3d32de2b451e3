"""The command line as its user meets it: exit codes, words on stderr, nothing by mistake."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from calibrate.profile import list_profiles, load_profile
from experiments.__main__ import main
from experiments.answering import MOST_SHOWN
from experiments.painter import Painter

SPEC = """\
name: lab
workload:
  requests:
    - {arrival_s: 0, prompt_tokens: 1, output_tokens: 6}
step_time: {kind: constant, step_s: 1}
server: {slots: 4}
schedulers:
  static: {kind: static}
seeds: 2
"""

TRACE = """\
arrival_s,prompt_tokens,output_tokens
0.5,10,3
0.25,20,4
x,1,1
"""


@pytest.fixture
def itersim(monkeypatch, capsys, tmp_path):
    """Run the command in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["itersim", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def fake_run(monkeypatch):
    """Stands for the simulation; what it was called with is kept."""
    calls = []

    def run(spec, **options):
        calls.append((spec, options))
        if isinstance(run.outcome, BaseException):
            raise run.outcome
        return run.outcome

    run.outcome = types.SimpleNamespace(text="a table", failed=[])
    run.calls = calls
    monkeypatch.setitem(sys.modules, "experiments.run", types.SimpleNamespace(run=run))
    return run


def test_help_imports_nothing_heavy():
    heavy = "pandas numpy matplotlib torch pydantic simpy rich yaml scipy"
    names = f"set('{heavy}'.split())"
    code = f"import experiments.cli, experiments.__main__, sys; print(*{names} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_help_lists_every_command(itersim):
    code, out, err = itersim("--help")
    assert (code, err) == (0, "")
    for command in ("run", "report", "check", "schema", "profiles", "policies", "trace"):
        assert f"\n  {command} " in out
    assert "..." not in out.replace("[ARGS]...", "")
    for command in (
        ["run"],
        ["check"],
        ["schema"],
        ["policies"],
        ["report"],
        ["trace", "perfetto"],
    ):
        code, out, err = itersim(*command, "--help")
        assert (code, err) == (0, "")
        assert out.startswith("Usage: itersim ")


def test_an_unknown_option_or_command_is_wrong_input(itersim):
    for words in (
        ["run"],
        ["run", "f.yaml", "--sed", "3"],
        ["rnu"],
        ["run", "f.yaml", "--seed", "-1"],
    ):
        code, out, err = itersim(*words)
        assert (code, out) == (2, "")
        assert "Error: " in err


def test_run_hands_the_spec_and_the_options_over(itersim, fake_run, tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC)
    assert itersim("run", "f.yaml") == (0, "a table\n", "")
    spec, options = fake_run.calls.pop()
    assert spec.name == "lab"
    progress = options.pop("progress")
    progress(0.5, "static, seed 1")
    assert isinstance(options.pop("painter"), Painter)
    assert options == {
        "out": Path("results/lab"),
        "seeds": (1, 2),
        "iterations": False,
        "window": None,
        "overwrite": False,
    }
    words = (
        "--out o --seed 7 --iterations --overwrite --window 3:40 --set server.slots=9 --set name=x"
    )
    assert itersim("run", "f.yaml", *words.split())[0] == 0
    spec, options = fake_run.calls.pop()
    assert (spec.name, spec.schedulers["static"].slots) == ("x", 9)
    del options["progress"], options["painter"]
    assert options == {
        "out": Path("o"),
        "seeds": (7,),
        "iterations": True,
        "window": (3, 40),
        "overwrite": True,
    }


@pytest.mark.parametrize("window", ["3", "0:4", "5:4", "a:b", ":", "1:2:3", "-1:4"])
def test_a_window_that_is_none_is_wrong_input(itersim, fake_run, tmp_path, window):
    (tmp_path / "f.yaml").write_text(SPEC)
    code, _, err = itersim("run", "f.yaml", f"--window={window}")
    assert code == 2
    assert "is not a range of iterations; give A:B, such as 1:400" in err
    assert fake_run.calls == []


def test_failed_cells_are_named_on_stderr(itersim, fake_run, tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC)
    fake_run.outcome = types.SimpleNamespace(text="a table", failed=["static, seed 2: too long"])
    assert itersim("run", "f.yaml") == (1, "a table\n", "itersim: static, seed 2: too long\n")


def test_a_wrong_spec_is_told_fault_by_fault_and_nothing_is_written(itersim, fake_run, tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC.replace("slots: 4", "slots: 0").replace("seeds", "seed"))
    code, out, err = itersim("run", "f.yaml")
    assert (code, out) == (2, "")
    assert err == (
        "f.yaml:6: server.slots: must be a whole number >= 1, not 0\n"
        "f.yaml:9: seed: unknown key; did you mean 'seeds'?\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["f.yaml"]
    assert fake_run.calls == []


def test_a_spec_with_very_many_faults_is_told_in_part(itersim, tmp_path):
    rows = "    - {arrival_s: 0, prompt_tokens: 0, output_tokens: 6}\n" * 250
    (tmp_path / "f.yaml").write_text(SPEC.replace("  requests:\n", "  requests:\n" + rows))
    _, _, err = itersim("run", "f.yaml")
    assert len(err.splitlines()) == MOST_SHOWN + 1
    assert err.endswith("... and 150 more\n")


def test_a_bug_of_ours_says_so_and_ends_with_its_traceback(itersim, fake_run, tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC)
    fake_run.outcome = ZeroDivisionError("division by zero")
    code, out, err = itersim("run", "f.yaml")
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0] == "itersim: a bug in itersim: ZeroDivisionError: division by zero"
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_what_only_the_run_can_notice_is_no_bug(itersim, fake_run, tmp_path):
    from experiments.output import OutputError
    from sim.steptime import StepTimeError
    from workloads.faults import Fault, TraceError

    (tmp_path / "f.yaml").write_text(SPEC)
    for error, text in [
        (OutputError("lab cannot be written"), "itersim: lab cannot be written\n"),
        (StepTimeError("a step outside"), "itersim: a step outside\n"),
        (TraceError("t.csv", [Fault(3, "no time")]), "t.csv: row 3: no time\n"),
    ]:
        fake_run.outcome = error
        assert itersim("run", "f.yaml") == (2, "", text)
    fake_run.outcome = MemoryError()
    assert itersim("run", "f.yaml")[0] == 1


def test_interrupting_ends_with_one_line(itersim, fake_run, tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC)
    fake_run.outcome = KeyboardInterrupt()
    code, out, err = itersim("run", "f.yaml")
    assert (code, out) == (130, "")
    assert err == "itersim: interrupted; results of earlier runs are as they were\n"


def test_a_signal_ends_the_command_the_same_way(tmp_path):
    (tmp_path / "f.yaml").write_text(SPEC)
    code = (
        "import os, signal, sys, time, types\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job's may be ignored
        "def run(spec, **options):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(5)\n"
        "sys.modules['experiments.run'] = types.SimpleNamespace(run=run)\n"
        "from experiments.__main__ import main\n"
        "sys.argv = ['itersim', 'run', sys.argv[1]]\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "f.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert len(done.stderr.splitlines()) == 1


def test_check_says_ok_a_line_for_each_file(itersim, tmp_path):
    (tmp_path / "a.yaml").write_text(SPEC)
    trace = SPEC.replace(
        SPEC[SPEC.index("  requests") : SPEC.index("step_time")], "  trace: {format: azure}\n"
    )
    (tmp_path / "b.yaml").write_text(trace)
    assert itersim("check", "a.yaml", "b.yaml") == (
        0,
        "a.yaml: ok\n"
        "b.yaml: ok, but workload.trace.path: names no file yet; give it with --set "
        "workload.trace.path=FILE\n",
        "",
    )


def test_check_tells_the_faults_of_all_files(itersim, tmp_path):
    (tmp_path / "a.yaml").write_text("name: [\n")
    (tmp_path / "b.yaml").write_text(SPEC)
    (tmp_path / "c.yaml").write_text(SPEC.replace("static}", "statc}"))
    code, out, err = itersim("check", "a.yaml", "b.yaml", "c.yaml", "d.yaml")
    assert (code, out) == (2, "b.yaml: ok\n")
    a, c, d = err.splitlines()
    assert a.startswith("a.yaml:2: is not valid YAML")
    assert c.startswith("c.yaml:8: schedulers.static.kind: unknown kind 'statc'; did you mean")
    assert d.startswith("d.yaml: no such file")


def test_schema_prints_json(itersim):
    code, out, _ = itersim("schema")
    assert code == 0
    assert json.loads(out)["properties"]["server"] == {"$ref": "#/$defs/Server"}


def test_profiles_are_listed_with_what_prices_and_specs_call_them(itersim):
    code, out, err = itersim("profiles")
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert [row.split()[0] for row in rows] == list_profiles()
    (row,) = (row for row in rows if row.startswith("llama-3.1-8b-h100-vllm "))
    profile = load_profile("llama-3.1-8b-h100-vllm")
    assert row.split()[1:3] == [profile.device, profile.model] and "vllm" in row
    assert row.count("%") == 3 and head.startswith("name")


def test_the_version_is_told(itersim):
    code, out, _ = itersim("--version")
    assert code == 0
    assert out.startswith("itersim ")


def test_describe_says_what_a_trace_holds(itersim, tmp_path):
    (tmp_path / "t.csv").write_text(TRACE.replace("x,1,1\n", "0.75,0,1\n"))
    code, out, err = itersim("trace", "describe", "csv", "t.csv")
    assert (code, err) == (0, "")
    assert "kept      2 of 3 rows" in out
    assert "zero_prompt (row 3)" in out
    assert itersim("trace", "describe", "csv", "t.csv", "--strict")[0] == 2
    assert "kept      1 of 3" in itersim("trace", "describe", "csv", "t.csv", "--limit", "1")[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["csv", "t.csv"], "t.csv: row 3: "),
        (["csv", "no.csv"], "no.csv: cannot be read: No such file or directory"),
        (["csv", "."], ".: cannot be read: Is a directory"),
        (["azur", "t.csv"], "t.csv: format: unknown choice 'azur'; did you mean 'azure'?"),
        (["azure", "t.csv"], "t.csv: "),
        (
            ["csv", "t.csv", "--column", "prompt_tokens"],
            "t.csv: columns.prompt_tokens: must not be empty",
        ),
        (["csv", "t.csv", "--column", "promt=x"], "t.csv: columns: "),
        (["csv", "t.csv", "--limit", "0"], "t.csv: limit: must be a whole number >= 1, not 0"),
    ],
)
def test_a_trace_that_cannot_be_read_says_why(itersim, tmp_path, words, text):
    (tmp_path / "t.csv").write_text(TRACE)
    code, out, err = itersim("trace", "describe", *words)
    assert (code, out) == (2, "")
    assert err.startswith(text)
    assert "Traceback" not in err


def test_convert_writes_the_canonical_table_and_keeps_what_is_there(itersim, tmp_path):
    (tmp_path / "t.csv").write_text("when,p,output_tokens\n0.5,10,3\n0.25,20,4\n")
    words = [
        "trace",
        "convert",
        "csv",
        "t.csv",
        "out.csv",
        "--column",
        "arrival_s=when",
        "--column",
        "prompt_tokens=p",
    ]
    code, out, err = itersim(*words)
    assert (code, err) == (0, "")
    assert out.endswith("written   out.csv\n")
    table = (tmp_path / "out.csv").read_text()
    assert table == "arrival_s,prompt_tokens,output_tokens\n0,20,4\n0.25,10,3\n"
    code, _, err = itersim(*words)
    assert (code, err) == (
        2,
        "itersim: out.csv exists; say --overwrite to replace it, or name another file\n",
    )
    assert itersim(*words, "--overwrite")[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "t.csv"]


def test_convert_to_an_unknown_kind_of_file_is_wrong_input(itersim, tmp_path):
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    code, _, err = itersim("trace", "convert", "csv", "t.csv", "out.xlsx")
    assert code == 2
    assert err == "itersim: out.xlsx: the name must end in .csv, .jsonl or .parquet\n"
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_a_reader_that_stops_reading_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", "from experiments.__main__ import main; main()", "schema"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.stderr == ""


def test_a_report_and_a_trace_are_made_of_results(itersim, tmp_path):
    pytest.importorskip("bokeh", reason="needs bokeh: pip install 'itersim[report]'")
    (tmp_path / "f.yaml").write_text(SPEC)
    assert itersim("run", "f.yaml", "--out", "lab")[0] == 0
    assert itersim("report", "lab") == (0, "report in lab/report.html\n", "")
    assert itersim("report", "lab", "--seed", "2", "--window", "0:2.5")[0] == 0
    assert "seed-2" in (tmp_path / "lab/report.html").read_text()
    code, out, err = itersim("trace", "perfetto", "lab")
    assert (code, err) == (0, "")
    assert out.endswith(" events in lab/trace.json; open it in ui.perfetto.dev\n")
    code, _, err = itersim("trace", "perfetto", "lab")
    assert code == 2
    assert "lab/trace.json exists; say --overwrite" in err
    words = "trace perfetto lab --cell static/seed-2 --window 1:2 --gzip --out t.json"
    assert itersim(*words.split())[0] == 0
    assert (tmp_path / "t.json.gz").read_bytes().startswith(b"\x1f\x8b")


def test_what_a_report_needs_is_told(itersim, tmp_path, monkeypatch):
    (tmp_path / "f.yaml").write_text(SPEC)
    assert itersim("run", "f.yaml", "--out", "lab")[0] == 0
    for words, what in (
        (["report", "."], "itersim: . holds no results of itersim; give one that `itersim run`"),
        (["report", "lab", "--point", "x"], "has no results of point x"),
        (["trace", "perfetto", "lab", "--cell", "x"], "has no cell x; it has static/seed-1"),
        (["report", "lab", "--window", "3:1"], "'3:1' is not a range of seconds; give A:B"),
        (["report", "lab", "--window", "900:901"], "the run is over at 6.000 s; choose"),
    ):
        code, out, err = itersim(*words)
        assert (code, out) == (2, "")
        assert what in err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "experiments.report.page", raising=False)
    code, _, err = itersim("report", "lab")
    assert code == 2
    assert "needs bokeh and jinja2, which are not installed: pip install 'itersim[report]'" in err
