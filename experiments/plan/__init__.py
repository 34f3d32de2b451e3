"""Capacity planning: which server, how many of it, at what cost, and how sure that is."""
