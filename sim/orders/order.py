"""What an order of the queue is, and the plainest one. Knows nothing of slots, memory or time.

Writing one: subclass `Order` and answer `key`. docs/write-a-policy.md builds one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sim.request import Request


class OrderError(ValueError):
    """An order answers what nothing can be made of."""


class Order:
    """Who waits in front of whom, and who is the least urgent of those who run.

    ``key`` is all that most orders are. An order may keep state: every simulation works on a deep
    copy of the one it is given. It sees what a scheduler may see of a request, never its true
    length. Ties of keys are broken by (arrival, position in the trace).
    """

    kind: ClassVar[str] = ""
    """Its name in reports."""
    displaces: ClassVar[bool] = False
    """Whether an urgent arrival may displace a running request under it."""
    victim: ClassVar[str] = "last_admitted"
    """Who is preempted for lack of memory unless the server says so (`sim.settings.Victim`)."""
    steady: bool = True
    """False: keys change while requests wait or run; they are then asked anew at every decision."""
    fixed: bool = False
    """Whether the key of a request never changes, whatever happens to it."""
    demotes: bool = False
    """Whether running requests become less urgent as they are served."""
    lanes: bool = False
    """Whether requests queue in lanes (`lane`, `rank`), in each of them by arrival."""
    counts: bool = False
    """Whether it wants to hear of tokens (`started`, `stopped`, `postponed`)."""
    reserves: bool = False
    """Whether it keeps slots or tokens from some (`withheld`)."""

    @property
    def called(self) -> str:
        """Its kind, or else its class."""
        return self.kind or type(self).__name__

    def key(self, request: Request, now_ns: int) -> Any:
        """What the queue is sorted by, smaller first; asked when *request* joins it, and of running
        ones when it matters who is least urgent. ``request.generated`` is up to date then.
        """
        raise NotImplementedError

    def course(self, request: Request) -> tuple[int, int | None]:
        """How the key of *request*, asked just before, goes on while it decodes: what each token
        adds to it, and how many tokens are generated when that ends (None: never).

        For ``steady`` orders, and asked only where the class itself says it: one derived from it
        may have other keys. Where nothing is said the keys of all who run are asked whenever it
        matters who is least urgent.
        """
        raise NotImplementedError

    def promoted(self, now_ns: int) -> Iterable[Request]:
        """Waiting requests whose keys have changed by *now_ns*, though the order is ``steady``."""
        return ()

    def shed_ns(self, request: Request) -> int | None:
        """From when on *request* is hopeless and is rejected if it still waits; None: never."""
        return None

    # -- lanes ---------------------------------------------------------------------------------

    def lane(self, request: Request) -> Hashable:
        """The lane that *request* queues in."""
        return None

    def rank(self, lane: Any) -> Any:
        """What lanes are sorted by at this moment, smaller first."""
        return 0

    # -- what it hears -------------------------------------------------------------------------

    def joins(self, request: Request, waiting: set[Any], now_ns: int) -> None:
        """*request* is about to join the queue; *waiting* are the lanes in which somebody waits."""

    def admitted(self, request: Request, waiting: set[Any]) -> None:
        """*request* is admitted, perhaps again; *waiting*: the lanes before that, its own too."""

    def returned(self, request: Request) -> None:
        """*request* takes a slot again without having waited in the queue: it was swapped in."""

    def emptied(self, lane: Any) -> None:
        """Nobody waits in *lane* any longer."""

    def left(self, request: Request) -> None:
        """*request* gave its slot back: finished, preempted or given up."""

    def at(self, steps: int) -> None:
        """The counter of decode iterations stands at *steps* now."""

    def started(self, request: Request, steps: int) -> None:
        """*request* decodes from now on, once whenever the counter *steps* grows by one."""

    def stopped(self, request: Request, steps: int) -> None:
        """*request* no longer decodes."""

    def postponed(self, request: Request) -> None:
        """The counter grew by one without *request*."""

    def prompted(self, request: Request) -> None:
        """The prompt of *request* (or its recompute) ended with a token."""

    # -- what it keeps back --------------------------------------------------------------------

    def withheld(self, request: Request) -> tuple[int, int]:
        """(slots, tokens) that an admission of *request*, or another of its lane, must leave."""
        return 0, 0

    def keeps(self) -> tuple[int, int]:
        """(slots, tokens) that it reserves in all."""
        return 0, 0

    def took(self, request: Request, tokens: int) -> None:
        """The admission of *request* takes *tokens* of a decision's budget; 0: a new decision."""


class Fcfs(Order):
    """First come, first served; a preempted request goes back to the front."""

    kind = "fcfs"

    def key(self, request: Request, now_ns: int) -> int:
        return 0
