"""What an option's own spec leaves out of its step times. Simulates nothing."""

from __future__ import annotations

from calibrate.profile import Profile
from experiments.models import Model
from experiments.spec import Spec
from experiments.spec_step_time import Profile as Curve

NO_HOST = "no host work"
"""What a profile says of itself whose steps are sums of kernels."""
TOO_SHORT = "6 to 16 %"
"""Mean TPOT of measured vLLM deployments that was missing so, by GPUs (docs/validation.md)."""


def kernels_alone(spec: Spec, scheduler: str, curve: Curve, profile: Profile) -> str:
    """What to say where neither the profile nor the spec has what a server does between kernels;
    empty where one of them has."""
    said = spec.schedulers[scheduler]
    if not any(NO_HOST in text for text in profile.assumptions):
        return ""
    if _given(said.host) or _given(curve.overhead):
        return ""
    front = "" if _given(said.front_end) else ", nor front_end"
    return (
        f"step times are of the kernels alone, and the spec gives no host time{front}: for "
        f"measured vLLM such TPOT was {TOO_SHORT} too short (docs/validation.md)"
    )


def other_devices(spec: Spec, scheduler: str, gpus: int) -> str:
    """What to say where the KV memory is that of more or fewer GPUs than the replica has."""
    counted = spec.schedulers[scheduler].kv_devices
    if counted is None or counted == gpus:
        return ""
    return (
        f"kv_blocks counts the memory of {counted} device{'' if counted == 1 else 's'}, and a "
        f"replica has {gpus}; give kv_blocks.devices: {gpus} (and the weights of all of them)"
    )


def _given(part: Model | None) -> bool:
    return part is not None and any(value for _, value in part)
