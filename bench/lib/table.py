"""Medians over the rounds, the tables, and the demands with the measured values."""

import statistics


def summarise(samples):
    """{(work, phase, peer): medians} in the order of the samples."""
    groups = {}
    for sample in samples:
        groups.setdefault((sample["work"], sample.get("phase", ""), sample["peer"]), []).append(sample)
    return {key: _median(group) for key, group in groups.items()}


def results_table(summary, titles):
    """Markdown: one table for each work that is in `titles`."""
    lines = []
    for work in dict.fromkeys(key[0] for key in summary if key[0] in titles):
        lines += ["", f"### {titles[work]}", "",
                  "| server | requests | failures | requests/s | MB/s | p50 ms | p90 ms | p99 ms | longest ms "
                  "| gateway µs/request (user + kernel) | workers µs/request | gateway RSS MB | PSS MB |",
                  "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
        for (of_work, phase, peer), row in summary.items():
            if of_work != work:
                continue
            name = f"{peer}, {phase} idle clients" if phase else peer
            lines.append(
                f"| {name} | {row['requests']:,} | {failures(row)} | {short(row['rate'])} "
                f"| {row['mb_per_second']:,.0f} | {short(row['p50_ms'])} | {short(row['p90_ms'])} "
                f"| {short(row['p99_ms'])} | {short(row['longest_ms'])} | **{short(row['gateway_us'])}** "
                f"({short(row['gateway_user_us'])} + {short(row['gateway_system_us'])}) "
                f"| {short(row['workers_us'])} | {row['rss_mb']:.1f} "
                f"| {row['pss_mb']:.1f} |")
    return "\n".join(lines).strip() + "\n"


def idle_table(summary):
    """Markdown: what an idle connection costs."""
    rows = [(peer, row) for (work, phase, peer), row in summary.items() if work == "idle" and phase == "with"]
    if not rows:
        return ""
    lines = ["| server | idle connections | answered | still open afterwards | bytes per connection (PSS) "
             "| CPU with ÷ without | rate with ÷ without |", "|---|--:|--:|--:|--:|--:|--:|"]
    for peer, row in rows:
        cpu, rate = (ratio(summary, "idle", field, (peer, "with"), (peer, "without"))
                     for field in ("gateway_us", "rate"))
        lines.append(f"| {peer} | {row['idle_connections']:,} | {row['idle_answered']:,} | {row['idle_open']:,} "
                     f"| {row['idle_bytes']:,.0f} | {cpu.text} | {rate.text} |")
    return "\n".join(lines) + "\n"


def asked_table(demands):
    """A table in Markdown with the columns asked, measured, reached. It has only what this run could measure.

    `demands`: (work, what is asked, Figure or None, limit, at most?)
    """
    lines = ["| work | asked | measured | reached |", "|---|---|---|---|"]
    for work, text, figure, limit, at_most in demands:
        if figure is None:
            continue
        reached = figure.value <= limit if at_most else figure.value >= limit
        lines.append(f"| {work} | {text} | {figure.text} | {'yes' if reached else '**no**'} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


class Figure:
    """A value, and its text with the spread over the rounds."""

    def __init__(self, value, text=None):
        self.value, self.text = value, text or f"{value:,.2f}"


# The difference that noise may cause between two equal sides.
NOISE = 0.05


def asked(summary):
    """The demands on the works of `works.py`."""
    def weir_over(peer, work, field):
        return ratio(summary, work, field, ("weir", ""), (peer, ""))

    def weir(work, field, phase="", digits=1):
        row = summary.get((work, phase, "weir"))
        return Figure(row[field], f"{row[field]:,.{digits}f}") if row and row.get(field) is not None else None

    cpu = "gateway CPU per request, weir ÷ "
    yield "fastcgi-64", cpu + "nginx, at most 0.85", weir_over("nginx", "fastcgi-64", "gateway_us"), 0.85, True
    yield "fastcgi-64", cpu + "HAProxy, at most 0.65", weir_over("haproxy", "fastcgi-64", "gateway_us"), 0.65, True
    yield "fastcgi-4", cpu + "nginx, at most 0.9", weir_over("nginx", "fastcgi-4", "gateway_us"), 0.9, True
    yield "static-1k", cpu + "nginx, at most 1.0", weir_over("nginx", "static-1k", "gateway_us"), 1.0, True
    for work in ("static-100k", "static-100m"):
        yield work, "throughput, weir ÷ nginx, at least 1.0", weir_over("nginx", work, "mb_per_second"), 1.0, False
        yield work, "weir's resident memory, below 64 MB", weir(work, "rss_mb"), 64, True
    yield "php-fpm", "weir's failures, none", weir("php-fpm", "failed", digits=0), 0, True
    yield "php-fpm", "weir's longest ÷ median, at most 3", weir("php-fpm", "longest_over_p50", digits=2), 3, True
    yield ("php-fpm", "rate, weir ÷ nginx (a connection per request), at least 1.0",
           weir_over("nginx", "php-fpm", "rate"), 1.0, False)
    yield ("idle", f"weir's CPU per request with 10,000 idle clients ÷ without, 1.0 (at most {1 + NOISE:.2f})",
           ratio(summary, "idle", "gateway_us", ("weir", "with"), ("weir", "without")), 1 + NOISE, True)
    yield ("idle", f"weir's rate with 10,000 idle clients ÷ without, 1.0 (at least {1 - NOISE:.2f})",
           ratio(summary, "idle", "rate", ("weir", "with"), ("weir", "without")), 1 - NOISE, False)
    yield "idle", "weir's idle clients still connected, all 10,000", weir("idle", "idle_open", "with", 0), 10_000, False


def ratio(summary, work, field, top, bottom):
    """Ratio of two medians, (peer, phase) each; the text tells the spread of the rounds' own ratios."""
    above, below = summary.get((work, top[1], top[0])), summary.get((work, bottom[1], bottom[0]))
    if not above or not below or not below[field]:
        return None
    value = above[field] / below[field]
    rounds = [a / b for a, b in zip(above["each"][field], below["each"][field]) if b]
    return Figure(value, f"{value:.2f} (rounds {min(rounds):.2f} to {max(rounds):.2f})")


def _median(samples):
    each = [_figures(sample) for sample in samples]
    row = {}
    for field in each[0]:
        values = [figures[field] for figures in each if figures[field] is not None]
        if field in ("rss_mb", "pss_mb", "workers_pss_mb", "failed"):
            row[field] = max(values, default=0)
        elif field in ("longest_ms", "most"):
            row[field] = max(values, default=None)
        elif field in ("fewest", "availability"):
            row[field] = min(values, default=None)
        elif field == "requests":
            row[field] = sum(values)
        else:
            row[field] = statistics.median(values) if values else None
    row["each"] = {field: [figures[field] or 0 for figures in each] for field in ("gateway_us", "both_us", "rate", "mb_per_second", "pss_mb")}
    row["statuses"], row["errors"] = {}, {}
    for sample in samples:
        for status, count in sample.get("statuses", {}).items():
            row["statuses"][int(status)] = row["statuses"].get(int(status), 0) + count
        for what, count in sample["errors"].items():
            row["errors"][what] = row["errors"].get(what, 0) + count
        if not sample["finished"]:
            row["errors"]["never ended"] = row["errors"].get("never ended", 0) + 1
    return row


def _figures(sample):
    per_request = lambda spent: spent / sample["requests"] if sample["requests"] else None
    figures = {
        "requests": sample["requests"],
        "rate": sample["rate"],
        "mb_per_second": sample["bytes"] / sample["seconds"] / 1e6 if sample["seconds"] else 0,
        "gateway_us": per_request(sample["gateway"]["total_us"]),
        "gateway_user_us": per_request(sample["gateway"]["user_us"]),
        "gateway_system_us": per_request(sample["gateway"]["system_us"]),
        "workers_us": per_request(sample["workers"]["total_us"]),
        "both_us": per_request(sample["gateway"]["total_us"] + sample["workers"]["total_us"]),
        "rss_mb": sample["memory"]["rss_kb"] / 1024,
        "pss_mb": sample["memory"]["pss_kb"] / 1024,
        "workers_pss_mb": sample["memory"]["shares_kb"][-1] / 1024,
        "failed": sum(sample["errors"].values()) + (0 if sample["finished"] else 1),
        "other_cores": sample["machine"]["other_cores"],
    }
    for field in ("p50_ms", "p90_ms", "p99_ms", "longest_ms", "fewest", "most", "availability"):
        figures[field] = sample.get(field)
    if sample["p50_ms"] and sample["longest_ms"]:
        figures["longest_over_p50"] = sample["longest_ms"] / sample["p50_ms"]
    else:
        figures["longest_over_p50"] = None
    if "idle" in sample:
        held = sample["idle"]
        figures["idle_connections"] = held.get("connections", 0)
        figures["idle_answered"] = held.get("answered", 0)
        figures["idle_open"] = held["still_open"]
        figures["idle_bytes"] = held.get("bytes_per_connection", {}).get("pss_kb", 0)
    return figures


def failures(row):
    parts = [f"{count} × {status}" for status, count in sorted(row["statuses"].items()) if not 200 <= status < 400]
    parts += [f"{count} {what}" for what, count in sorted(row["errors"].items()) if what != "status" or not parts]
    return ", ".join(parts) or "0"


def short(value):
    """About three digits; an empty text if nothing was measured."""
    if value is None:
        return "–"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
