"""Profiles as experiments use them: each file is parsed once per process."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from calibrate.profile import Profile, load_profile
from experiments import spec_step_time
from experiments.spec_files import is_file

if TYPE_CHECKING:
    from experiments.spec import Spec


def profile_of(name_or_path: str, extrapolate: bool = True) -> Profile:
    """See `calibrate.profile.load_profile`. A file that has changed is parsed again."""
    stamp: Any = None
    if is_file(name_or_path) and os.path.isfile(name_or_path):
        there = os.stat(name_or_path)
        stamp = (there.st_ino, there.st_mtime_ns, there.st_size)
    return _loaded(name_or_path, extrapolate, stamp)


@lru_cache(maxsize=64)
def _loaded(name_or_path: str, extrapolate: bool, stamp: Any) -> Profile:
    return load_profile(name_or_path, extrapolate=extrapolate)


def profiles_of(spec: Spec) -> list[Profile]:
    """The profiles that an experiment's step times come from, each once."""
    curves = [
        variant.spec.step_time_of(scheduler)
        for variant in spec.variants()
        for scheduler in variant.spec.schedulers
    ]
    names = (one.profile for one in curves if isinstance(one, spec_step_time.Profile))
    return [profile_of(name) for name in dict.fromkeys(names)]
