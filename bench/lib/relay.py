"""Carries packets between two tunnel devices and delays each one: `relay.py DESCRIPTOR DESCRIPTOR DELAY_MS`.

It is for kernels without netem. It delays IP packets, not connections. So TCP, with its handshake, TLS and DNS need the
time that they would need on a real link with this delay.
"""

import collections
import os
import select
import sys
import time

# The most packets under way in one direction; more are dropped, as routers do.
MOST = 100_000
LARGEST = 65_536


def main():
    ends, delay = (int(sys.argv[1]), int(sys.argv[2])), float(sys.argv[3]) / 1e3
    # It must be on time even on a busy machine. If it lacks the right to this, it runs with normal priority.
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pass
    # For each end: the packets that came in, and when each must leave at the other end.
    under_way = {end: collections.deque() for end in ends}
    while True:
        due = min((queue[0][0] for queue in under_way.values() if queue), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        for end in select.select(ends, (), (), wait)[0]:
            take(end, under_way[end], delay)
        now = time.monotonic()
        for end, other in (ends, ends[::-1]):
            queue = under_way[end]
            while queue and queue[0][0] <= now:
                try:
                    os.write(other, queue.popleft()[1])
                except BlockingIOError:
                    pass


def take(end, queue, delay):
    """All packets that wait at one end."""
    while True:
        try:
            packet = os.read(end, LARGEST)
        except BlockingIOError:
            return
        if len(queue) < MOST:
            queue.append((time.monotonic() + delay, packet))


if __name__ == "__main__":
    main()
