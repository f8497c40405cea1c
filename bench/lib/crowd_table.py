"""Tables of `overload`'s kernel queues and of the works in `crowds.py`, and their demands."""

from . import crowds, overload
from .php_table import STACKS
from .table import Figure, failures, short

# Waits are normal again if they are at most this many times, or this much longer than, those of the same load before.
NORMAL, NORMAL_MS = 2, 20


def kernel_table(samples):
    """Markdown: what the kernel's queues did in `backlog`."""
    rows = [sample for sample in samples if "kernel" in sample]
    if not rows:
        return ""
    lines = ["What the kernel had to hold, and could not (TcpExt ListenOverflows and ListenDrops of a network of their own):", "",
             "| stack | most in the server's accept queue | most in PHP-FPM's | overflows | drops |", "|---|--:|--:|--:|--:|"]
    for sample in rows:
        kernel = sample["kernel"]
        behind = "–" if kernel["backend_queue"] is None else kernel["backend_queue"]
        lines.append(f"| {_name(sample, sample['phase'])} | {kernel['front_queue']} | {behind} | {kernel['overflows']:,} "
                     f"| {kernel['drops']:,} |")
    return "\n".join(lines) + "\n"


def tables(samples):
    """Markdown: one table for each work of `crowds.py`."""
    parts = []
    for work, header, rows in (
            ("flood", "| stack | capacity/s | load | good answers ÷ capacity: mean | worst 5 s | worst second | refused | failed "
                      "| refused after ms: p50 | p99 | longest | of refusals with Retry-After | PHP's CPU per good answer, ms "
                      "| waits normal again after s |", _flood),
            ("fairness", "| stack | the ten | good | refused | failed | p50 ms | p99 ms | longest ms |", _fairness),
            ("waiting", "| stack | waiting | requests/s | failed | gateway µs/request | gateway PSS MB |", _waiting),
            ("window", "| stack | asked for | probes | statuses | p50 ms | p99 ms | longest ms |", _window)):
        of_work = [sample for sample in samples if sample["work"] == work]
        if of_work:
            lines = [f"### {work}: {crowds.WORKS[work].title}", "", header, "|---" * (header.count("|") - 1) + "|"]
            for sample in of_work:
                lines += rows(sample[work], _name(sample, sample["shape"]))
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def asked(summary, samples):
    """(work, demand, Figure or None, limit, at most?), as table.asked."""
    yield from _asked_overload(summary)
    yield from _asked_backlog(summary, samples)
    mine = {work: {s["shape"]: s[work] for s in samples if s["work"] == work and s["peer"] == "weir"} for work in crowds.WORKS}
    for flooded in mine["flood"].values():
        for flood in flooded["floods"]:
            at = f"{flood['factor']:g} × capacity"
            mean, worst, _ = goodput(flooded, flood)
            yield "flood", f"weir at {at}: good answers ÷ capacity, at least 0.95", Figure(mean), 0.95, False
            yield "flood", f"weir at {at}: the same of the worst 5 s, at least 0.95", Figure(worst), 0.95, False
            refused = flood["flood"]["refused_time"]
            if refused["count"]:
                longest = refused["max"] * 1e3
                yield ("flood", f"weir at {at}: its longest refusal, at most 100 ms",
                       Figure(longest, f"{longest:,.1f} (p99 {refused['p99'] * 1e3:,.1f})"), 100, True)
            told, refusals = _told(flood)
            if refusals:
                yield ("flood", f"weir at {at}: refusals with Retry-After, all",
                       Figure(told / refusals, f"{told} of {refusals} looked at"), 1, False)
            seconds = back_to_normal(flood)
            yield ("flood", f"weir after {at}: seconds until waits are normal again, at most 1",
                   Figure(seconds, f"{seconds:g}"), 1, True)
    for fair in mine["fairness"].values():
        alone, crowded = fair["alone"]["response_time"], fair["few"]["response_time"]
        for name, text in (("p50", "median"), ("p99", "p99"), ("max", "longest")):
            if alone[name] and crowded[name]:
                yield ("fairness", f"weir: the ten's {text} wait beside a client of 1,000 ÷ alone, at most 3",
                       Figure(crowded[name] / alone[name]), 3, True)
        yield "fairness", "weir: the ten's requests refused or failed, none", _lost(fair["few"]), 0, True
    for held in mine["waiting"].values():
        more = (held["many"]["memory"]["pss_kb"] - held["before"]["pss_kb"]) / 1024
        yield "waiting", "weir with 10,000 waiting: more memory, MB, below 64", Figure(more, f"{more:.1f}"), 64, True
        if held["few"]["us_per_request"] and held["many"]["us_per_request"]:
            ratio = held["many"]["us_per_request"] / held["few"]["us_per_request"]
            yield ("waiting", f"weir's CPU per request with 10,000 waiting ÷ with 10, unchanged (at most {UNCHANGED:.2f})",
                   Figure(ratio), UNCHANGED, True)
    for seen in mine["window"].values():
        for path, probes in seen.items():
            yield ("window", f"weir: longest wait for {path} at full saturation, at most 50 ms",
                   Figure(probes["max_ms"], f"{probes['max_ms']:.1f} ({_counts(probes['statuses'])})"), 50, True)


# Ten thousand connections that take turns use the caches less well than ten, so a little more is still unchanged.
UNCHANGED = 1.1


def goodput(flooded, flood):
    """Good answers ÷ the pool's capacity: of the whole flood, of its worst 5 seconds, of its worst second."""
    seconds, capacity = flooded["seconds"], flooded["capacity"]
    moments = [0] * seconds
    for moment in flood["flood"]["series"]:
        if moment["at"] < seconds:
            moments[int(moment["at"])] += moment["good"]
    # The first answers of the first second are late by the time of one answer.
    moments = moments[1:] or moments
    sums = [sum(moments[at:at + 5]) / min(5, len(moments)) for at in range(max(1, len(moments) - 4))]
    return sum(moments) / len(moments) / capacity, min(sums) / capacity, min(moments) / capacity


def back_to_normal(flood):
    """Seconds after the end of the flood until the waits are as short as before for good, and no request is refused."""
    calm = flood["calm"]["response_time"]["max"]
    limit = max(NORMAL * calm, calm + NORMAL_MS / 1e3)
    late = [int(moment["at"]) + 1 for moment in flood["after"]["series"]
            if (moment["max"] or 0) > limit or moment["refused"] or moment["failed"]]
    return max(late, default=0)


def _asked_overload(summary):
    rows = {(peer, phase): row for (work, phase, peer), row in summary.items() if work == "overload"}
    for phase in ("siege", "clients"):
        others = [(row["rate"], _label(peer, shape)) for (peer, shape), row in rows.items()
                  if peer != "weir" and shape.split(", ")[0] == phase]
        for shape, what in ((phase, "the scenario's pool"), (f"{phase}, pm auto", "pm = \"auto\"")):
            row = rows.get(("weir", shape))
            if not row:
                continue
            if others:
                best, whose = max(others)
                yield ("overload", f"rate by {phase}, weir with {what} ÷ the best peer as set by hand, at least 1",
                       Figure(row["rate"] / best, f"{row['rate'] / best:.2f} (÷ {whose})"), 1, False)
            if row["longest_ms"]:
                limit = 2 * 100 / row["rate"] * 1e3
                yield ("overload", f"longest wait by {phase}, weir with {what}: at most 2 × (100 ÷ rate) = {limit:.1f} ms",
                       Figure(row["longest_ms"], f"{row['longest_ms']:.1f}"), limit, True)


def _asked_backlog(summary, samples):
    for (work, phase, peer), row in summary.items():
        if (work, peer) != ("backlog", "weir"):
            continue
        name = f"weir{', ' + phase if phase else ''}"
        limit = 1.3 * overload.Backlog.clients / row["rate"] * 1e3
        yield "backlog", f"{name}: failures, none", Figure(row["failed"], failures(row)), 0, True
        yield ("backlog", f"{name}: p99, at most 1.3 × (300 ÷ rate) = {limit:,.0f} ms",
               Figure(row["p99_ms"], f"{row['p99_ms']:,.0f}"), limit, True)
    for sample in samples:
        if "kernel" in sample and sample["peer"] == "weir":
            count = sample["kernel"]["overflows"] + sample["kernel"]["drops"]
            phase = f", {sample['phase']}" if sample["phase"] else ""
            yield "backlog", f"weir{phase}: overflows and drops of listen queues, none", Figure(count, f"{count}"), 0, True


def _flood(figures, name):
    lines = []
    for flood in figures["floods"]:
        report, (mean, five, one) = flood["flood"], goodput(figures, flood)
        refused = report["refused_time"]
        ms = lambda key: short(refused[key] * 1e3) if refused["count"] else "–"
        told, refusals = _told(flood)
        php = flood["workers_us_per_good"]
        lines.append(f"| {name} | {short(figures['capacity'])} | {flood['factor']:g} × for {figures['seconds']} s | **{mean:.2f}** "
                     f"| {five:.2f} | {one:.2f} | {report['refused']:,} | {report['failed']:,} | {ms('p50')} | {ms('p99')} "
                     f"| {ms('max')} | {f'{told} of {refusals}' if refusals else '–'} | {short(php / 1e3 if php else None)} "
                     f"| {back_to_normal(flood)} |")
    return lines


def _fairness(figures, name):
    lines = []
    for key, text in (("alone", "alone"), ("few", "beside the 1,000"), ("many", "(the 1,000 themselves)")):
        report = figures[key]
        ms = lambda field: short(report["response_time"][field] * 1e3) if report["response_time"][field] else "–"
        lines.append(f"| {name} | {text} | {report['transactions']:,} | {report['refused']:,} | {report['failed']:,} "
                     f"| {ms('p50')} | {ms('p99')} | {ms('max')} |")
    return lines


def _waiting(figures, name):
    lines = [f"| {name} | (before) | – | – | – | {figures['before']['pss_kb'] / 1024:.1f} |"]
    for key in ("few", "many"):
        seen = figures[key]
        waiting = seen["users"] - crowds.Waiting.shapes["weir"]["max_queue 20000"].workers
        lines.append(f"| {name} | {waiting:,} | {short(seen['rate'])} | {seen['failed'] + seen['refused']:,} "
                     f"| {short(seen['us_per_request'])} | {seen['memory']['pss_kb'] / 1024:.1f} |")
    return lines


def _window(figures, name):
    return [f"| {name} | {path} | {seen['probes']} | {_counts(seen['statuses'])} | {short(seen['p50_ms'])} "
            f"| {short(seen['p99_ms'])} | {short(seen['max_ms'])} |" for path, seen in figures.items()]


def _told(flood):
    """(refusals with Retry-After, refusals), of the refusals that were checked one by one."""
    refusals = [retry_after for status, retry_after, _ in flood["asked_by_hand"] if status == 503]
    return sum(retry_after is not None for retry_after in refusals), len(refusals)


def _lost(report):
    count = report["refused"] + report["failed"]
    return Figure(count, f"{count}")


def _name(sample, shape):
    return _label(sample["peer"], shape)


def _label(peer, shape):
    return STACKS[peer] + (f", {shape}" if shape else "")


def _counts(statuses):
    return ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
