"""Every bound of consuming, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ConsumerBounds:
    threads: int = 64
    """Of the client, each of which holds one message from its arrival to its settlement: three receives of 16, two
    that are worked on and the next. What is not handed out yet costs nobody a share: a queue is one consumer's at a
    time."""

    cached_max: int = 1000
    """Messages of a queue that the client has fetched and not handed over; the package's own default. With more it
    rests for 3 s, so this bounds both its memory and its speed: 8 queues, 2,700 messages a second."""

    pull_max: int = 32
    """Messages that the client fetches at once, in the package's code: so many come on top of the cached."""

    fifo_threads_max: int = 512
    """Of a FIFO topic each message takes a thread until its turn has come, and a group that is held up must leave the
    others some: what is cached follows from this. 8 queues have 32 each; above 15 they may hold up each other."""

    reorder_s: float = 0.2
    """A FIFO message that does not follow on the last of its queue waits so long for those before it: the client's
    threads may overtake each other on the way to us by milliseconds."""

    ping_every_s: float = 1.0
    silent_after_s: float = 5.0
    """A child that answered no ping for so long is killed: it is stopped, or its interpreter hangs."""

    orphaned_after_s: float = 15.0
    """A child that heard no ping for so long ends itself: its parent is stopped, and other processes shall have its
    queues. Above what a busy event loop is ever late."""

    probe_every_s: float = 2.0
    """How often each broker is asked whether it and the child hear each other."""

    deaf_after_s: float = 5.0
    """A child that a broker that we can ask has not known for so long is replaced. The package itself tells a broker
    that has come back of its consumers after up to 30 s; with a probe and a start it is known again within 10 s."""

    mute_after_s: float = 20.0
    """One that a broker knows and has not heard for so long, too: a connection in a black hole, which the package never
    gives up. Longer, as a machine that is too busy answers late, and a replacement makes it busier."""

    restart_pause_s: float = 0.2
    restart_pause_max_s: float = 5.0
    """Before another child: doubled for each in a row that lived for less than `deaf_after_s`."""

    def fifo_cached(self, queues: int) -> int:
        return max(1, self.fifo_threads_max // max(1, queues) - self.pull_max)

    def fifo_threads(self, queues: int) -> int:
        return min(self.fifo_threads_max, queues * (self.fifo_cached(queues) + self.pull_max))


DEFAULT = ConsumerBounds()
