"""Tests here draw large samples: a busy machine must not fail them for their time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")
