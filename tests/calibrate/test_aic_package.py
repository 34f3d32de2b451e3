"""AIConfigurator through its package: the same tables, asked for instead of read."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from calibrate.csv_files import ReadError
from calibrate.fit import predict
from calibrate.published import aic, aic_package
from calibrate.published.aic_profiles import fit_profile


class Engine:
    """A device that is exactly the sum of its operators, in milliseconds."""

    def decode_step_latency(self, n: int, context: int, osl: int) -> float:
        return self.dense(n) + 4e-5 * n * context

    def predict_prefill_latency(self, n: int, length: int) -> float:
        return self.dense(n * length) + 1e-6 * n * length**2

    def mixed_step_breakdown(
        self, chunk: int, n: int, length: int, osl: int
    ) -> tuple[float, float, float, float]:
        prompts = max(chunk // length, 1)
        share = min(chunk / length, 1.0)
        parts = self.dense(chunk + n), 1e-6 * prompts * length**2 * share, 4e-5 * n * length
        return sum(parts), *parts

    @staticmethod
    def dense(tokens: int) -> float:
        return 6.0 + 0.02 * max(0, tokens - 192)

    asked: ClassVar[dict[str, Any]] = {}

    @classmethod
    def compile(cls, model: str, system: str, backend: str, **more: Any) -> Engine:
        if model == "nobody":
            raise RuntimeError("no such model")
        cls.asked.update(more)
        return cls()


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = ModuleType("aiconfigurator_core.sdk")
    sdk.EngineHandle = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", ModuleType("aiconfigurator_core"))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)


def test_the_tables_are_those_that_the_files_hold(package: None) -> None:
    measured = aic_package.measured("some", "h100_sxm", "vllm", 2)
    table = aic.samples(measured, "h100_sxm", 2)
    assert set(table["region"]) == {"decode", "prefill", "mixed"}
    choice = fit_profile(table)
    off = np.abs(predict(choice.curve, table) / table["seconds"] - 1)
    assert off.mean() < 0.01


def test_the_modes_of_weights_and_kv_cache_are_asked_for(package: None) -> None:
    modes = {"gemm_quant_mode": "fp8_static", "kvcache_quant_mode": "bfloat16"}
    aic_package.measured("some", "h100_sxm", "vllm", 4, None, modes)
    assert Engine.asked.items() >= {**modes, "tp_size": 4}.items()


def test_what_the_package_does_not_know_is_told(package: None) -> None:
    with pytest.raises(ReadError, match="no answer for nobody on h100_sxm under vllm: no such"):
        aic_package.measured("nobody", "h100_sxm", "vllm")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", None)
    with pytest.raises(ImportError, match=r"pip install 'itersim\[aic\]'"):
        aic_package.measured("some", "h100_sxm", "vllm")
