"""How many KV blocks a device holds."""

from fractions import Fraction

import pytest

from experiments.kv_size import RATE, bytes_of, kv_blocks, token_bytes

LLAMA_8B = {"layers": 32, "kv_heads": 8, "head_size": 128}
WEIGHTS = 2 * 8_030_261_248  # parameters of Llama-3.1-8B in bf16


def test_a_token_of_llama_3_1_8b_has_131072_bytes_in_bf16_and_half_in_fp8():
    assert token_bytes(**LLAMA_8B) == 131_072
    assert token_bytes(**LLAMA_8B, bytes_per_value=1) == 65_536


def test_blocks_fill_what_the_weights_leave_of_the_usable_share():
    blocks = kv_blocks(
        device_memory_bytes=80 * 10**9, weight_bytes=WEIGHTS, block_size=16, **LLAMA_8B
    )
    # 72 GB usable - 16.06 GB = 55.94 GB in blocks of 2 MiB
    assert blocks == (72 * 10**9 - WEIGHTS) // (131_072 * 16) == 26_674


def test_devices_add_up_and_activations_are_taken_off():
    one = {"device_memory_bytes": 2**30, "weight_bytes": 0, "block_size": 1, "utilization": 1.0}
    dims = {"layers": 1, "kv_heads": 1, "head_size": 1}
    assert kv_blocks(**one, **dims) == 2**28
    assert kv_blocks(**one, **dims, devices=3) == 3 * 2**28
    assert kv_blocks(**one, **dims, activation_bytes=5) == 2**28 - 2


def test_the_share_is_the_decimal_that_was_written():
    dims = {"layers": 1, "kv_heads": 1, "head_size": 1, "bytes_per_value": 1, "block_size": 1}
    # as a float, 0.9 x 20 would be fine but 0.07 x 100 is 7.000000000000001 and 0.29 x 100 below 29
    assert kv_blocks(device_memory_bytes=200, weight_bytes=0, utilization=0.29, **dims) == 29
    assert kv_blocks(device_memory_bytes=20, weight_bytes=0, **dims) == 9


def test_no_room_is_less_than_one_block():
    dims = {**LLAMA_8B, "block_size": 16}
    assert kv_blocks(device_memory_bytes=10**9, weight_bytes=WEIGHTS, **dims) < 1
    assert kv_blocks(device_memory_bytes=10**6, weight_bytes=0, **dims) == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80 GB", 80 * 10**9),
        ("80GB", 80 * 10**9),
        ("80 GiB", 80 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        ("16.06 GB", 16_060_000_000),
        ("0.1 kB", 100),
        ("7 B", 7),
        ("2 TiB", 2**41),
        ("1 MiB", 2**20),
        ("80", None),
        ("80 gb", None),
        ("80 Gb", None),
        ("80 kiB", None),
        ("-80 GB", None),
        ("1e3 GB", None),
        ("80  GB", None),
        ("80 GB/s", None),
        ("", None),
    ],
)
def test_sizes_are_decimal_or_binary_and_never_guessed(text, size):
    assert bytes_of(text) == size


def test_a_rate_is_a_size_per_second():
    assert bytes_of("25 GB/s", RATE) == 25 * 10**9
    assert bytes_of("0.5 B/s", RATE) == Fraction(1, 2)
    assert bytes_of("25 GB", RATE) is None
