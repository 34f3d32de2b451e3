"""Policies of admission and composition: what runs in the next iteration. No clock, no chance."""
