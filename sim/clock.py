"""The clock: whole nanoseconds from 0 on."""

NEVER = 1 << 62
"""A moment that does not come; also more iterations than there will be."""

NS_PER_S = 1_000_000_000

NS = 1e9
"""The same for seconds in floating point: a whole number beyond 2⁵³ divided by it is rounded first,
as a column of such numbers is."""
