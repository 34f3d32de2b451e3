"""A finished run, and the errors that end one: all that those who only read a run need of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.executor import Measured
from sim.log import Log
from sim.settings import Policy, Server, Static
from sim.steptime import StepTime
from sim.trace import Trace


class UnservableError(ValueError):
    """Requests keep coming and every one is refused: the server can serve none of them."""


class InvariantError(RuntimeError):
    """The simulator contradicts itself: a defect of itersim, never of the input."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished simulation: what was offered, what happened, and what it was evaluated on.

    ``requests`` are the requests taken in, ``offered`` masks those that count as offered (all of
    them, but for an endless backlog only those admitted or refused). ``leaked_blocks`` are KV
    blocks held by nobody at the end; anything but 0 is a defect. ``plain``: what stopped admission
    is told by the log only up to `head_of_line`, which is derived (`sim.headofline`).
    ``evicted_blocks``: blocks that the prefix cache knew and that were taken for something else.
    """

    requests: Trace
    offered: NDArray[np.bool_]
    log: Log
    curve: StepTime
    server: Server
    policy: Policy
    endless: bool
    horizon_ns: int | None
    leaked_blocks: int
    plain: bool
    evicted_blocks: int = 0

    @property
    def static(self) -> bool:
        """Whether this was request-level scheduling."""
        return isinstance(self.policy, Static)

    @property
    def streamed(self) -> bool:
        """Whether clients see each token as it is made."""
        return not isinstance(self.policy, Static) or self.policy.delivery == "streamed"

    @property
    def measured(self) -> bool:
        """Whether a real engine computed it: its durations are no curve's."""
        return isinstance(self.curve, Measured)

    @property
    def slots(self) -> int:
        """Slots of the replica."""
        return self.server.slots
