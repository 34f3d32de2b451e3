"""GPUs by the names of AIConfigurator: memory, bandwidth and peak rates, as data sheets have them.

AIConfigurator 0.12, ``systems/*.yaml`` (mem_capacity, mem_bw, *_tc_flops).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes of memory and bytes per second of it; operations per second in 16, 8 and 4 bits.

    A GPU without units for so few bits multiplies in the next wider ones.
    """

    memory_bytes: int
    bandwidth: float
    flops_16: float
    flops_8: float
    flops_4: float

    def flops(self, bits: float) -> float:
        """Operations per second on values of so many bits."""
        return self.flops_16 if bits > 8 else self.flops_8 if bits > 4.5 else self.flops_4


GPUS = {
    "a100_pcie": Gpu(80 << 30, 1.935e12, 312e12, 312e12, 312e12),
    "a100_sxm": Gpu(80 << 30, 2.039e12, 312e12, 312e12, 312e12),
    "b200_sxm": Gpu(180 << 30, 7.7e12, 2250e12, 4500e12, 9000e12),
    "b300_sxm": Gpu(275_040 << 20, 7.75e12, 2250e12, 4500e12, 14_000e12),
    "gb200": Gpu(189_471 << 20, 8.0e12, 2500e12, 5000e12, 10_000e12),
    "h100_pcie": Gpu(80 << 30, 2.0e12, 756.5e12, 1513e12, 1513e12),
    "h100_sxm": Gpu(80 << 30, 3.35e12, 989e12, 1978e12, 1978e12),
    "h200_sxm": Gpu(141 << 30, 4.8e12, 989e12, 1978e12, 1978e12),
    "l40s": Gpu(46_068 << 20, 0.864e12, 362e12, 733e12, 733e12),
    "rtx_pro_6000_server": Gpu(97_887 << 20, 1.792e12, 467.8e12, 935.6e12, 1871.2e12),
}
