"""Deployments read, their servers, and their benchmarks worked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate import served
from calibrate.against import Setup
from calibrate.csv_files import ReadError
from calibrate.deployment_run import Benchmark, elsewhere, error_table, missing_s, told
from calibrate.deployments import Deployment, read
from calibrate.faults import CalibrationError
from calibrate.profile import Profile, load_profile
from sim import Affine, Chunked, FrontEnd, Server

HEADER = "id,backend,model_path,system,precision,isl,osl,concurrency,tp_size,pp_size"
TIMES = "silicon_ttft_ms,silicon_tpot_ms"
GOOD = "a,vllm,meta-llama/Llama-3.1-70B,h100_sxm,fp8,1024,512,4,2.0,1.0,100,10"


def write(folder: Path, *rows: str, header: str = f"{HEADER},{TIMES}") -> Path:
    path = folder / "measured.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def deployment(**changes: object) -> Deployment:
    plain = Deployment(
        line=2,
        id="a",
        engine="vllm",
        model="meta-llama/Llama-3.1-70B",
        system="h100_sxm",
        precision="fp8",
        tensor_parallel=2,
        split={},
        prompt_tokens=4,
        output_tokens=5,
        concurrency=2,
        ttft_s=0.1,
        tpot_s=0.01,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


# --- reading --------------------------------------------------------------------------------------


def test_a_row_is_a_deployment_in_seconds(tmp_path: Path) -> None:
    (one,) = read(write(tmp_path, GOOD))
    assert one == deployment(prompt_tokens=1024, output_tokens=512, concurrency=4)


def test_every_fault_is_told_with_its_line_and_what_to_do(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        GOOD,
        GOOD.replace("1024", "10.5").replace(",100,", ",-3,"),
        GOOD.replace("vllm", ""),
        GOOD + ",7",
        GOOD.replace(",4,2.0", ",4,0"),
        GOOD.replace(",10", ",nan", 1)[:-2] + "nan",
    )
    with pytest.raises(ReadError) as told_:
        read(path)
    lines = str(told_.value).splitlines()
    assert lines[0] == (
        f"{path}:3: isl: must be a whole number >= 1, not '10.5'; correct or remove the row"
    )
    assert lines[1].startswith(f"{path}:3: silicon_ttft_ms: must be a number of ms above 0")
    assert lines[2] == f"{path}:4: backend: empty; say which"
    assert lines[3].startswith(f"{path}:5: more values than columns")
    assert lines[4].startswith(f"{path}:6: tp_size: must be a whole number >= 1, not '0'")
    assert any(line.startswith(f"{path}:7: silicon_tpot_ms") for line in lines[5:])


def test_unknown_and_missing_columns_are_refused_together(tmp_path: Path) -> None:
    header = f"{HEADER},{TIMES}".replace("backend", "bakend_version").replace("isl", "isl,isl", 1)
    with pytest.raises(ReadError) as told_:
        read(write(tmp_path, GOOD, header=header))
    said = str(told_.value)
    assert "measured.csv:1: backend: missing; add that column" in said
    assert "bakend_version: unknown column (did you mean backend_version?); known: backend" in said
    assert "isl: given twice; keep one" in said


def test_a_file_without_a_row_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"measured.csv:1: no deployment in it"):
        read(write(tmp_path))
    with pytest.raises(ReadError, match="no such file"):
        read(tmp_path / "none.csv")


def test_other_ways_to_split_a_model_are_kept(tmp_path: Path) -> None:
    (one,) = read(write(tmp_path, GOOD.replace("2.0,1.0", "2.0,4")))
    assert one.split == {"pipeline parallelism": 4}


# --- the benchmark --------------------------------------------------------------------------------

TEN_MS = Affine(base_s=0.01)
WHOLE = Benchmark(requests_per_client=2, shortest=1.0)


def setup(budget: int = 100, front_end: FrontEnd | None = None) -> Setup:
    server = Server(slots=8, max_batched_tokens=max(budget, 8), front_end=front_end)
    return Setup(name="vllm", server=server, policy=Chunked(), curve=TEN_MS)


def test_clients_that_fit_one_iteration_wait_for_one() -> None:
    answer = told(deployment(), setup(), WHOLE)
    assert (answer.ttft_s, answer.tpot_s) == pytest.approx((0.010, 0.010))


def test_the_burst_of_the_start_is_in_the_mean() -> None:
    # four prompts of 8 tokens, one an iteration: 10, 20, 30 and 40 ms; answers of one token end
    # there, so the clients stay that far apart: each of their second prompts waits for 40 ms
    four = deployment(prompt_tokens=8, output_tokens=1, concurrency=4)
    answer = told(four, setup(8), WHOLE)
    assert answer.ttft_s == pytest.approx((10 + 20 + 30 + 40 + 4 * 40) / 8 / 1e3)
    assert np.isnan(answer.tpot_s)
    assert told(four, setup(8), replace(WHOLE, requests_per_client=1)).ttft_s == (
        pytest.approx(0.025)
    )


def test_the_front_end_is_before_every_first_token_and_in_no_other() -> None:
    front = FrontEnd(constant_s=0.002, per_prompt_token_s=0.0005, delivery_s=0.001)
    answer = told(deployment(), setup(front_end=front), WHOLE)
    assert answer.ttft_s == pytest.approx(0.015)
    assert answer.tpot_s == pytest.approx(0.010)


def test_on_a_device_of_half_the_speed_everything_takes_twice_as_long() -> None:
    many = deployment(prompt_tokens=60, output_tokens=30, concurrency=7)
    answers = []
    for factor in (1, 2):
        curve = Affine(base_s=0.004 * factor, per_prefill_token_s=1e-4 * factor)
        answers.append(told(many, replace(setup(64), curve=curve), Benchmark()))
    assert answers[1].ttft_s == pytest.approx(2 * answers[0].ttft_s, rel=1e-6)
    assert answers[1].tpot_s == pytest.approx(2 * answers[0].tpot_s, rel=1e-6)


# --- the server -----------------------------------------------------------------------------------


def test_kv_memory_is_what_weights_and_reserve_leave_of_the_share() -> None:
    shape, block = served.SHAPES["llama-3.1-70b"], 16
    assert shape.parameters == 70_553_706_496
    precision = served.Precision("fp8", "bf16")
    weights = shape.parameters + 2 * shape.vocab * shape.hidden  # tables stay in two bytes
    room = 0.9 * 2 * (80 << 30) - weights - 2 * served.RESERVED_BYTES
    blocks = served.kv_blocks(deployment(), shape, precision, block)
    # norms are counted as if they were in one byte: far less than a block
    assert blocks == pytest.approx(room / (2 * 80 * 8 * 128 * 2 * block), abs=1)
    half = served.kv_blocks(deployment(), shape, served.Precision("fp8", "fp8"), block)
    assert half == pytest.approx(2 * (blocks or 0), abs=2)
    left = served.kv_blocks(deployment(engine="trtllm"), shape, precision, block)
    assert left == pytest.approx((blocks or 0) + 0.1 * weights / 5_242_880, rel=0.02)
    assert served.kv_blocks(deployment(system="mine"), shape, precision, block) is None


def test_a_model_that_does_not_fit_is_refused() -> None:
    one = deployment(precision="bf16", tensor_parallel=1)
    with pytest.raises(CalibrationError, match="does not fit 1 x h100_sxm"):
        served.kv_blocks(one, served.SHAPES["llama-3.1-70b"], served.Precision(None, "bf16"), 16)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b"),
        ("llama-3.1-70b-fp8", "llama-3.1-70b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
    ],
)
def test_variants_of_a_model_have_one_shape(name: str, short: str) -> None:
    assert served.short_name(name) == short


def profile(**changes: object) -> Profile:
    return replace(load_profile("llama-3.1-70b-fp8-h100-tp2-vllm"), **changes)  # type: ignore[arg-type]


def test_the_profile_of_the_deployments_precision_is_taken() -> None:
    fp8, bf16 = profile(), profile(name="b", model="llama-3.1-70b", precision="bf16, KV bf16")
    chosen = served.choose(deployment(), [bf16, fp8], named=False)
    assert chosen is not None and chosen.profile is fp8 and chosen.differs == ()
    other = served.choose(deployment(), [bf16], named=False)
    assert other is not None and other.differs == ("precision (bf16, KV bf16)",)


def test_another_models_profile_is_taken_only_when_it_was_named() -> None:
    other = profile(model="gpt-oss-120b")
    assert served.choose(deployment(), [other], named=False) is None
    chosen = served.choose(deployment(), [other], named=True)
    assert chosen is not None and chosen.differs == ("model (gpt-oss-120b)",)
    for wrong in ({"tensor_parallel": 4}, {"engine": "trtllm"}, {"device": "H200-SXM"}):
        assert served.choose(deployment(), [profile(**wrong)], named=True) is None


def test_two_profiles_that_fit_alike_are_refused() -> None:
    with pytest.raises(CalibrationError, match="several profiles fit: one, two; give one"):
        served.choose(deployment(), [profile(name="one"), profile(name="two")], named=False)


def test_every_deployment_finds_at_most_one_shipped_profile() -> None:
    shipped = [load_profile(name) for name in served_profiles()]
    for one in shipped:
        system = one.device.lower().replace("-", "_")
        found = deployment(
            model=one.model,
            system=system,
            engine=one.engine,
            tensor_parallel=one.tensor_parallel,
            precision=served.precision_of_profile(one).weights,
        )
        chosen = served.choose(found, shipped, named=False)
        assert chosen is not None and chosen.profile is one


def served_profiles() -> list[str]:
    from calibrate.profile import list_profiles

    return [name for name in list_profiles() if name.startswith("llama-3.1-")]


# --- tables ---------------------------------------------------------------------------------------


def rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "system": ["h100_sxm", "h100_sxm", "h200_sxm", "h200_sxm"],
            "engine": ["vllm", "vllm", "vllm", "trtllm"],
            "tensor_parallel": [2, 4, 2, 2],
            "measured_tpot_s": [0.010, 0.020, 0.010, 0.010],
            "simulated_tpot_s": [0.009, 0.019, 0.012, 0.010],
            "ttft_error": [0.1, -0.3, 0.2, 0.0],
            "tpot_error": [-0.1, -0.05, 0.2, 0.0],
        }
    )


def test_the_last_line_of_the_errors_is_all_of_them() -> None:
    table = error_table(rows())
    assert len(table) == 5
    last = table.iloc[-1]
    assert last["engine"] == "all" and last["deployments"] == 4
    assert last["ttft_mean_abs"] == pytest.approx(0.15)
    assert last["ttft_median_abs"] == pytest.approx(0.15)
    assert last["ttft_signed"] == pytest.approx(0.0)


def test_nothing_is_learnt_from_the_deployments_that_are_judged() -> None:
    table = rows()
    others = elsewhere(table, table.iloc[0])
    assert list(others.index) == [1, 2]  # another parallelism, another GPU; not another engine
    assert missing_s(table.iloc[:2], "tpot") == pytest.approx(0.001)
    assert missing_s(table.iloc[2:3], "tpot") == 0.0  # times are not taken away
    assert missing_s(table.iloc[:0], "tpot") == 0.0
