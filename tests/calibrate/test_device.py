"""Devices and memory: what is not there or does not fit is told with what would do."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import SMALL  # noqa: E402

from calibrate import device  # noqa: E402
from calibrate.architecture import PRESETS  # noqa: E402
from calibrate.device import DeviceError, DeviceMemoryError, device_of, dtype_of  # noqa: E402
from calibrate.model import Llama  # noqa: E402


def test_number_formats_go_by_short_and_long_names():
    assert dtype_of("bf16") == dtype_of("bfloat16") == dtype_of(torch.bfloat16) == torch.bfloat16
    for bad in ("int8", torch.float64, "fp8"):
        with pytest.raises(DeviceError, match=r"unsupported dtype .* supported: fp32, bf16, fp16"):
            Llama(SMALL, bad)


def test_a_device_that_is_not_there_is_told():
    assert device_of("cpu") == torch.device("cpu")
    for name, told in (
        ("tpu", "no device 'tpu'; use cpu or cuda"),
        ("meta", "device 'meta' is not supported; use cpu or cuda"),
        (f"cuda:{torch.cuda.device_count()}", "sees .* CUDA devices; use --device cpu"),
    ):
        with pytest.raises(DeviceError, match=told):
            device_of(name)


def test_memory_is_known_here():
    free = device.free_bytes(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50


def test_what_does_not_fit_says_the_largest_that_does(monkeypatch):
    model = Llama(SMALL)
    monkeypatch.setattr(device, "free_bytes", lambda where: 3 * 2**30)
    with pytest.raises(
        DeviceMemoryError, match=r"take 14.96 GiB .* 3.00 GiB free; .* is llama-3.2-1b \(2.30 GiB\)"
    ):
        Llama(PRESETS["llama-3.1-8b"], "bf16")
    a_block = 4 * SMALL.kv_bytes_per_token(4)
    monkeypatch.setattr(device, "free_bytes", lambda where: 10 * a_block)
    model.cache(9, 4)
    with pytest.raises(DeviceMemoryError, match=r"11 KV blocks of 4 tokens .* at most 9 fit"):
        model.cache(11, 4)
    with pytest.raises(DeviceMemoryError, match="2 rows of 21 entries"):
        model.dense_cache(2, 21)
    monkeypatch.setattr(device, "free_bytes", lambda where: 5)
    with pytest.raises(DeviceMemoryError, match="no preset fits"):
        Llama(SMALL)
    monkeypatch.setattr(device, "free_bytes", lambda where: None)
    Llama(SMALL).cache(11, 4)
