"""Tables of the works in `egress.py`, and their demands."""

import statistics

from . import egress, sidecars
from .origins import CERTIFICATES, TROUBLE
from .table import Figure, short

# The time that a call may take in addition to its round trip.
OVERHEAD_MS = 5
# Misbehaving origins do not affect a good one if its p99 is at most this many times, or this much longer than, the p99
# before: the load generators of the others take processor time too.
UNAFFECTED, UNAFFECTED_MS = 1.5, 2


def tables(samples):
    """Markdown: one table for each work."""
    parts = []
    for key, header, rows in (
            ("egress-delay", "| calls | first ms | the others: median | longest | total ms | ÷ direct (TLS 1.2) | ÷ direct (TLS 1.3) "
                             "| ÷ direct (TLS 1.3, name known) | connections | first after an idle time, ms |", _delay),
            ("egress-workers", "| calls | batch | calls | most at once, by origin | connections accepted | of these used | resumed "
                               "| p50 ms | longest ms |", _workers),
            ("egress-near", "| sidecar | page ms, direct | through | ÷ (rounds) | p95 ms, direct | through | CPU µs/call: PHP, direct "
                            "| PHP, through | sidecar | alone: calls/s | p99 ms | CPU µs/call | PSS MB |", _near),
            ("egress-rate", "| sidecar | calls/s | failures | p50 ms, direct | through | p99 ms, direct | through | added "
                            "| p99.9 ms, direct | through | its core used | CPU µs/call | RSS MB | PSS MB |", _rate),
            ("egress-trouble", "| origin | sidecar | status | Proxy-Status | ms | in a crowd: calls | answers | longest ms |", _trouble)):
        groups = _groups(samples, key)
        if groups:
            lines = [f"### {key}: {egress.WORKS[key].title}", "", header, "|---" * (header.count("|") - 1) + "|", *rows(groups)]
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def asked(samples):
    """(work, demand, Figure or None, limit, at most?), as table.asked."""
    for way, seen in _mine(samples, "egress-delay"):
        yield from _asked_delay(way, seen)
    for way, seen in _mine(samples, "egress-workers"):
        for one in seen[:1]:
            first, second = one["batches"]
            needed = sum(first["at_once"].values())
            if "HTTP/2" not in way:
                yield ("egress-workers", f"{way}: connections ÷ most calls at once, at most 1",
                       Figure(first["accepted"] / needed, f"{first['accepted']} ÷ {needed}"), 1, True)
            else:
                yield ("egress-workers", f"{way}: connections, one an origin", Figure(first["accepted"], f"{first['accepted']}"),
                       len(first["at_once"]), True)
            yield ("egress-workers", f"{way}: connections within the idle time, none",
                   Figure(second["accepted"], f"{second['accepted']}"), 0, True)
    for way, seen in _mine(samples, "egress-near"):
        yield ("egress-near", f"{way}: page's mean ÷ direct, at most 0.92",
               _spread([one["through"]["mean_ms"] / one["direct"]["mean_ms"] for one in seen]), 0.92, True)
        for other, theirs in _others(samples, "egress-near"):
            pairs = [a["alone"]["us_per_call"] / b["alone"]["us_per_call"] for a, b in zip(seen, theirs)
                     if a["alone"]["us_per_call"] and b["alone"]["us_per_call"]]
            if pairs and other.startswith("nginx"):
                yield "egress-near", f"CPU per call alone, {way} ÷ {other}, at most 1", _spread(pairs), 1, True
            pairs = [_sidecar_us(a, way) / _sidecar_us(b, other) for a, b in zip(seen, theirs) if _sidecar_us(b, other)]
            if pairs and other.startswith("nginx"):
                yield "egress-near", f"CPU per call below PHP, {way} ÷ {other}, at most 1", _spread(pairs), 1, True
    for way, seen in _mine(samples, "egress-rate"):
        yield ("egress-rate", f"{way}: p99 added, ms, below 2",
               _spread([one["through"]["p99_ms"] - one["direct"]["p99_ms"] for one in seen]), 2, True)
        least = min(one["through"]["rate"] / one["rate"] for one in seen)
        yield "egress-rate", f"{way}: answers ÷ asked, at least 0.999", Figure(least, f"{least:.4f}"), 0.999, False
        most = max(one["through"]["pss_mb"] for one in seen)
        yield "egress-rate", f"{way}: memory, PSS MB, below 64", Figure(most, f"{most:.1f}"), 64, True
    for way, seen in _mine(samples, "egress-trouble"):
        yield from _asked_trouble(way, seen[0])


def _asked_delay(way, seen):
    for one in seen[:1]:
        limit = one["round_trip_ms"] + OVERHEAD_MS
        times = [call["ms"] for call in one["calls"]["calls"]]
        if "preconnect" in way:
            yield ("egress-delay", f"{way}: the longest call, the first one too, at most a round trip + 5 ms = {limit:.1f}",
                   Figure(max(times), f"{max(times):.1f}"), limit, True)
        else:
            yield ("egress-delay", f"{way}: the longest call but the first, at most a round trip + 5 ms = {limit:.1f}",
                   Figure(max(times[1:]), f"{max(times[1:]):.1f}"), limit, True)
        if "after_idle" in one:
            idle = one["after_idle"]["calls"][0]["ms"]
            yield ("egress-delay", f"{way}: the first call after an idle time beyond keepalive_timeout, at most {limit:.1f} ms",
                   Figure(idle, f"{idle:.1f}"), limit, True)
        if "preconnect" in way:
            for name, direct in one["direct"].items():
                trips = direct["ms"] / len(direct["calls"]) / one["round_trip_ms"]
                ratio = one["calls"]["ms"] / direct["ms"]
                # One round trip per call is the least that any proxy needs: if that is already a quarter, the result
                # proves nothing.
                if 1 / trips <= 0.24:
                    yield ("egress-delay", f"{way}: total ÷ direct ({name}, {trips:.1f} round trips a call), at most 0.25",
                           Figure(ratio, f"{ratio:.3f}"), 0.25, True)


def _asked_trouble(way, seen):
    for kind, call in seen["calls"].items():
        wanted = WANTED[kind]
        right = not call["whole"] if wanted is None else call["status"] in wanted and bool(call["said"])
        asked = "cut off" if wanted is None else f"{' or '.join(map(str, wanted))} with Proxy-Status"
        yield "egress-trouble", f"{way}, origin that {_what(kind)}: {asked}", Figure(right, _told(call)), 1, False
    alone, beside = (seen[which]["response_time"]["p99"] * 1e3 for which in ("alone", "beside"))
    limit = max(UNAFFECTED * alone, alone + UNAFFECTED_MS)
    yield ("egress-trouble", f"{way}: p99 of a good origin beside them, as alone (at most {limit:.1f} ms)",
           Figure(beside, f"{beside:.1f} (alone {alone:.1f})"), limit, True)
    lost = seen["beside"]["failed"] + seen["beside"]["refused"]
    yield "egress-trouble", f"{way}: failures of a good origin beside them, none", Figure(lost, f"{lost}"), 0, True


# Statuses of the table of errors; None: an answer that has begun is cut off.
WANTED = {"silent": (504,), "no-answer": (504,), "reset": (502,), "half": None, "endless-head": (502,), "closed": (502, 503),
          **{kind: (502,) for kind in CERTIFICATES}}


def _delay(groups):
    lines = []
    first = next(iter(groups.values()))[0]
    for name, direct in first["direct"].items():
        lines.append(_calls_row(f"direct, {name}", direct, first["direct"], len(direct["calls"]), "–"))
    for way, seen in groups.items():
        for one in seen[:1]:
            idle = short(one["after_idle"]["calls"][0]["ms"]) if "after_idle" in one else "–"
            lines.append(_calls_row(way, one["calls"], one["direct"], one["connections"], idle))
    lines += ["", f"A round trip took {first['round_trip_ms']:.1f} ms ({first['how']})."]
    return lines


def _calls_row(name, page, direct, connections, idle):
    times = [call["ms"] for call in page["calls"]]
    ratios = " | ".join(f"{page['ms'] / other['ms']:.3f}" for other in direct.values())
    return (f"| {name} | {times[0]:.1f} | {statistics.median(times[1:]):.1f} | {max(times[1:]):.1f} | {page['ms']:,.1f} | {ratios} "
            f"| {connections} | {idle} |")


def _workers(groups):
    lines = []
    first = next(iter(groups.values()))[0]
    for name, seen in (("direct", first["direct"]), *((way, seen[0]) for way, seen in groups.items())):
        for number, batch in enumerate(seen["batches"]):
            lines.append(f"| {name} | {'second' if number else 'first'} | {batch['calls']} "
                         f"| {' + '.join(map(str, batch['at_once'].values()))} | **{batch['accepted']}** | {batch['new']} "
                         f"| {batch['resumed']} | {batch['p50_ms']:.1f} | {batch['longest_ms']:.1f} |")
    return lines


def _near(groups):
    lines = []
    for way, seen in groups.items():
        middle = lambda pick: statistics.median(pick(one) for one in seen)
        calls = egress.Near.calls
        both = lambda field, each=1: " | ".join(short(middle(lambda one: one[which][field] / each)) for which in ("direct", "through"))
        ratio = _spread([one["through"]["mean_ms"] / one["direct"]["mean_ms"] for one in seen])
        alone = lambda field: short(middle(lambda one: one["alone"][field]))
        lines.append(f"| {way} | {both('mean_ms')} | **{ratio.text}** | {both('p95_ms')} | {both('workers_us', calls)} "
                     f"| {short(middle(lambda one: _sidecar_us(one, way)))} | {alone('rate')} | {alone('p99_ms')} "
                     f"| **{alone('us_per_call')}** | {alone('pss_mb')} |")
    return lines


def _sidecar_us(one, way):
    """CPU time of a call on a page: that of the sidecar's processes, or for weir the additional time compared with the
    same page and direct calls."""
    if way.startswith("weir"):
        spent = one["through"]["gateway_us"] - one["direct"]["gateway_us"]
    else:
        spent = one["through"]["sidecar_us"]
    return spent / egress.Near.calls


def _rate(groups):
    lines = []
    for way, seen in groups.items():
        middle = lambda pick: statistics.median(pick(one) for one in seen)
        both = lambda field: " | ".join(short(middle(lambda one: one[which][field])) for which in ("direct", "through"))
        most = lambda field: f"{max(one['through'][field] for one in seen):.1f}"
        added = _spread([one["through"]["p99_ms"] - one["direct"]["p99_ms"] for one in seen])
        failures = {}
        for one in seen:
            for what, count in one["through"]["errors"].items():
                failures[what] = failures.get(what, 0) + count
        lines.append(f"| {way} | {short(middle(lambda one: one['through']['rate']))} | {_counts(failures)} | {both('p50_ms')} "
                     f"| {both('p99_ms')} | **{added.text}** | {both('p99_9_ms')} | {middle(lambda one: one['through']['cores']):.2f} "
                     f"| {short(middle(lambda one: one['through']['us_per_call']))} | {most('rss_mb')} | {most('pss_mb')} |")
    return lines


def _trouble(groups):
    lines = []
    for kind in egress.Misbehaving.hosts:
        for way, seen in groups.items():
            call, crowd = seen[0]["calls"][kind], seen[0]["crowd"][kind]
            answers = dict(crowd["errors"], **({"whole": crowd["good"]} if crowd["good"] else {}))
            said = f"`{call['said']}`" if call["said"] else "–"
            lines.append(f"| {_what(kind)} | {way} | {_status(call)} | {said} "
                         f"| {call['ms']:,.0f} | {crowd['requests']} | {_counts(answers)} | {short(crowd['longest_ms'])} |")
    for way, seen in groups.items():
        for which, text in (("alone", "a good one, alone"), ("beside", "a good one, beside them")):
            report = seen[0][which]
            times = report["response_time"]
            lines.append(f"| {text} | {way} | | p50 {times['p50'] * 1e3:.2f} ms, p99 {times['p99'] * 1e3:.2f} ms | | "
                         f"{report['transactions'] + report['failed'] + report['refused']} | {report['failed'] + report['refused']} failed "
                         f"| {times['max'] * 1e3:.1f} |")
    return lines


def _what(kind):
    if kind in CERTIFICATES:
        return f"has a {CERTIFICATES[kind]}" if kind != "expired" else "has a certificate that has expired"
    return TROUBLE[kind][1] if kind in TROUBLE else "does not listen"


def _told(call):
    return f"{_status(call)} after {call['ms']:,.0f} ms" + (f", `{call['said']}`" if call["said"] else "")


def _status(call):
    if not call["status"]:
        return "no answer"
    return f"{call['status']}{'' if call['whole'] else ', cut off'}"


def _groups(samples, key):
    """{way's name: [what was seen in each round]}"""
    groups = {}
    for sample in samples:
        if sample["work"] == key:
            name = ", ".join(filter(None, (sidecars.NAMES[sample["peer"]], sample["shape"])))
            groups.setdefault(name, []).append(sample["egress"])
    return groups


def _mine(samples, key):
    return [(way, seen) for way, seen in _groups(samples, key).items() if way.startswith("weir")]


def _others(samples, key):
    return [(way, seen) for way, seen in _groups(samples, key).items() if not way.startswith("weir")]


def _spread(values):
    """Their median, and in the text their range."""
    value = statistics.median(values)
    return Figure(value, f"{value:.2f}" + (f" (rounds {min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""))


def _counts(counts):
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "0"
