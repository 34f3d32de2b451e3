"""Parts of a `server:` that are mappings of their own: KV size, swap space, host time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from experiments.faults import shown
from experiments.fields import (
    Boolean,
    Bytes,
    Count,
    NotNegative,
    Real,
    Whole,
    detail,
    faults,
)
from experiments.kv_size import kv_blocks, token_bytes
from experiments.models import Kinds, Model, Rule, Values
from workloads.checks import exactly


class KvMemory(Model):
    """KV memory by what the model and the devices are; see `experiments.kv_size`. `weight_bytes`
    and `activation_bytes` are those of all `devices` together."""

    device_memory_bytes: Annotated[int, Bytes(low=1)]
    weight_bytes: Annotated[int, Bytes()]
    layers: Count
    kv_heads: Count
    head_size: Count
    bytes_per_value: Count = 2
    devices: Count = 1
    utilization: Annotated[float, Real(above=0, high=1)] = 0.9
    activation_bytes: Annotated[int, Bytes()] = 0

    def blocks(self, block_size: int) -> int:
        """Whole blocks of *block_size* tokens; below 1 where there is no room."""
        return kv_blocks(block_size=block_size, **dict(self))

    def lacks_bytes(self, block_size: int) -> int:
        """How many bytes are missing for a first block."""
        block = block_size * token_bytes(
            self.layers, self.kv_heads, self.head_size, self.bytes_per_value
        )
        usable = self.device_memory_bytes * self.devices * exactly(self.utilization)
        return -int((usable - self.weight_bytes - self.activation_bytes - block) // 1)


class BlockCount(Kinds):
    """A number of blocks, or the mapping that it follows from; None: unlimited."""

    number: ClassVar = Whole()

    def pick(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            return KvMemory.model_validate(data)
        if data is None or isinstance(data, KvMemory):
            return data
        try:
            return self.number.check(data)
        except ValueError as error:
            what = str(error)
            if isinstance(data, str):
                what = (
                    "must be a number of blocks, or a mapping with device_memory_bytes, "
                    f"weight_bytes, layers, kv_heads, head_size, not {shown(data)}"
                )
            raise faults([detail(what, data)]) from None


KvBlocks = Annotated[Count | KvMemory | None, BlockCount((KvMemory,))]


NO_ROOM = "leaves no room"
"""How the fault of a memory that is too small begins."""


def no_room_for_blocks(v: Values) -> str | None:
    """The fault of a memory that holds no block, or that has more than can be counted."""
    if not isinstance(v["kv_blocks"], Mapping | KvMemory):
        return None
    memory = KvMemory.model_validate(v["kv_blocks"])
    blocks = memory.blocks(v["block_size"])
    if blocks < 1:
        return (
            f"{NO_ROOM} for a block of {v['block_size']} tokens: {memory.utilization:.15g} of "
            f"{memory.devices} × {memory.device_memory_bytes} bytes, less "
            f"{memory.weight_bytes + memory.activation_bytes} of weights and activations, is "
            f"{memory.lacks_bytes(v['block_size'])} bytes short; raise devices, "
            "device_memory_bytes or utilization"
        )
    try:
        BlockCount.number.check(blocks)
    except ValueError as error:
        return f"makes {blocks} blocks, which {error}"
    return None


def _one_speed(v: Values) -> str | None:
    by_bytes = [name for name in ("bytes_per_s", "bytes_per_token") if v[name] is not None]
    if v["block_s"] is not None and by_bytes:
        return "says how fast blocks move, as bytes_per_s does; give one of them"
    if v["block_s"] is None and not by_bytes:
        return "is missing; give block_s, or bytes_per_s and bytes_per_token"
    return None


def _both_bytes(v: Values) -> str | None:
    for given, other in (("bytes_per_s", "bytes_per_token"), ("bytes_per_token", "bytes_per_s")):
        if v["block_s"] is None and v[given] is not None and v[other] is None:
            return f"needs {other} too: a block moves in block_size × bytes_per_token / bytes_per_s"
    return None


class SwapSpace(Model):
    """Host memory for the blocks of preempted requests. A block takes `block_s` seconds each way,
    or block_size × `bytes_per_token` / `bytes_per_s`. `host_blocks` none: unlimited."""

    block_s: NotNegative | None = None
    bytes_per_s: Annotated[float, Bytes(low=1, rate=True)] | None = None
    bytes_per_token: Annotated[int, Bytes(low=1)] | None = None
    host_blocks: Annotated[int, Whole(low=0)] | None = None
    overlap: Boolean = False

    rules: ClassVar = (
        Rule("block_s", ("block_s", "bytes_per_s", "bytes_per_token"), _one_speed),
        Rule("bytes_per_s", ("block_s", "bytes_per_s", "bytes_per_token"), _both_bytes),
    )

    def seconds_per_block(self, block_size: int) -> float:
        """How long one block takes to move."""
        if self.block_s is not None:
            return self.block_s
        assert self.bytes_per_s is not None and self.bytes_per_token is not None
        return block_size * self.bytes_per_token / self.bytes_per_s


class FrontEndTime(Model):
    """What lies between clients and the queue: a request joins it `constant_s` and
    `per_prompt_token_s` per token after it was sent; a token is delivered `delivery_s` after it
    was made."""

    constant_s: NotNegative = 0.0
    per_prompt_token_s: NotNegative = 0.0
    delivery_s: NotNegative = 0.0


class HostTime(Model):
    """The host's work for an iteration: `constant_s`, and for each running sequence, token and
    admission."""

    constant_s: NotNegative = 0.0
    per_sequence_s: NotNegative = 0.0
    per_token_s: NotNegative = 0.0
    per_admission_s: NotNegative = 0.0
