"""Measures the cost of a load: CPU time and memory of a server, and which other programs used the machine."""

import os
import time

from . import machine, processes


def measured(load, gateway, workers, memory_of, others=(), every=0.25):
    """Runs `load` (a function that returns a result of lib/load.py) and adds to its result:

    gateway, workers: CPU time of these process trees; memory: peak of the trees `memory_of`, sampled at this interval
    (seconds); rate; machine: which other programs ran. `others`: trees that work for this load too, but count for no
    figure.
    """
    used, stolen = machine.busy_seconds()
    own = os.times()
    trees = [gateway, workers, *others]
    before = [processes.CpuTime(tree) for tree in trees]
    begin = time.monotonic()
    with processes.MemoryWatch(memory_of, every) as memory:
        result = load()
    elapsed = time.monotonic() - begin
    spent = [processes.CpuTime(tree).since(earlier) for tree, earlier in zip(trees, before)]
    result["gateway"], result["workers"] = spent[:2]
    result["memory"] = dict(memory.peak, shares_kb=memory.shares_kb)
    result["rate"] = result.get("in_time", result["requests"]) / result["seconds"] if result["seconds"] else 0
    now_used, now_stolen = machine.busy_seconds()
    now = os.times()
    # The load generator and the sampling run in this process and its children.
    ours = sum(now[:4]) - sum(own[:4])
    busy = sum(part["total_us"] for part in spent) / 1e6 + ours
    result["machine"] = {
        "seconds": elapsed,
        "load_generator_cores": ours / elapsed,
        "other_cores": max(0.0, now_used - used - busy) / elapsed,
        "stolen_cores": (now_stolen - stolen) / elapsed,
    }
    return result
