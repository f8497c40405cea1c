"""Tables of the works that run PHP, and their demands."""

from . import overload, php_works, trials
from .table import Figure, failures, ratio, short

LOADED = {**php_works.WORKS, **overload.WORKS}
STACKS = {"weir": "weir", "nginx": "nginx + PHP-FPM", "haproxy": "HAProxy + PHP-FPM",
          "apache": "Apache event + PHP-FPM", "prefork": "Apache prefork + mod_php"}


def loaded_tables(summary, facts):
    """Markdown: one table for each work."""
    parts = []
    for work in dict.fromkeys(key[0] for key in summary if key[0] in LOADED):
        lines = [f"### {work}: {LOADED[work].title}", "",
                 "| stack | requests | failures | requests/s | p50 ms | p90 ms | p99 ms | longest ms | requests of a client, "
                 "fewest to most | CPU µs/request: gateway | workers | both | memory, PSS MB | of it PHP |",
                 "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
        for (of_work, phase, peer), row in summary.items():
            if of_work != work:
                continue
            name = STACKS[peer] + (f", {phase}" if phase else "")
            gateway = "–" if peer == "prefork" else short(row["gateway_us"])
            share = f"{row['fewest']:,.0f} to {row['most']:,.0f}" if row.get("most") else "–"
            lines.append(
                f"| {name} | {row['requests']:,} | {failures(row)} | {short(row['rate'])} | {short(row['p50_ms'])} "
                f"| {short(row['p90_ms'])} | {short(row['p99_ms'])} | {short(row['longest_ms'])} | {share} | {gateway} "
                f"| {short(row['workers_us'])} | **{short(row['both_us'])}** | {row['pss_mb']:.1f} | {row['workers_pss_mb']:.1f} |")
        if work in facts.get("engine_us", {}):
            lines += ["", f"The engine by itself (`php-cgi -T`, OPcache, no server): {facts['engine_us'][work]:.1f} µs of CPU "
                          "per run of the same script."]
            mine = [row["workers_us"] for (of_work, _, peer), row in summary.items() if (of_work, peer) == (work, "weir")]
            if mine and mine[0]:
                lines[-1] += f" weir's worker: {short(mine[0])} µs."
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def trial_tables(samples):
    """Markdown: one table for each work of `trials.py`."""
    parts = []
    for work, header, row in (
            ("burst", "| stack | workers before | until 20 are at work, ms | longest wait ms | requests | failures |", _burst),
            ("reload", "| stack | reloads | load | requests | failures | sent again | p50 ms | p99 ms | longest ms |", _loads),
            ("kill", "| stack | killed | load | requests | failures | of failed POSTs not begun | begun twice "
                     "| p50 ms | p99 ms | longest ms |", _loads),
            ("soak", "| stack | requests | failures | requests/s | longest ms | process | resident at a tenth, MB | at the end, MB "
                     "| grown by |", _soak)):
        of_work = [sample for sample in samples if sample["work"] == work]
        if of_work:
            lines = [f"### {work}: {trials.WORKS[work].title}", "", header, "|---" * (header.count("|") - 1) + "|"]
            for sample in of_work:
                lines += row(sample[work], STACKS[sample["peer"]])
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def asked(summary, samples):
    """(work, demand, Figure or None, limit, at most?), as table.asked."""
    def weir_over(peer, work, field, phase=""):
        return ratio(summary, work, field, ("weir", phase), (peer, phase))

    nginx, haproxy, apache, prefork = (STACKS[name] for name in ("nginx", "haproxy", "apache", "prefork"))
    yield ("php", f"CPU per request of gateway and workers, weir ÷ {nginx}, at most 0.5",
           weir_over("nginx", "php", "both_us"), 0.5, True)
    yield "php", f"rate, weir ÷ {nginx}, at least 1.8", weir_over("nginx", "php", "rate"), 1.8, False
    for phase in ("siege", "clients"):
        for peer, name in (("nginx", nginx), ("haproxy", haproxy)):
            yield ("overload", f"rate by {phase}, weir ÷ {name}, at least 1.5",
                   weir_over(peer, "overload", "rate", phase), 1.5, False)
    yield "wordpress", f"rate, weir ÷ {nginx}, at least 1.05", weir_over("nginx", "wordpress", "rate"), 1.05, False
    yield ("wordpress", f"memory without the database, weir ÷ {nginx}, at most 0.9",
           weir_over("nginx", "wordpress", "pss_mb"), 0.9, True)
    small = summary.get(("small-machine", "", "weir"))
    if small and small.get("availability") is not None:
        yield "small-machine", "weir's availability, 100 %", Figure(small["availability"]), 100, False
    for peer, name in (("apache", apache), ("prefork", prefork)):
        yield ("small-machine", f"rate, weir ÷ {name}, more than 1",
               weir_over(peer, "small-machine", "rate"), 1.0, False)
        yield ("small-machine", f"memory without the database, weir ÷ {name}, less than 1",
               weir_over(peer, "small-machine", "pss_mb"), 1.0, True)
    yield from _asked_of_trials(samples)


def _asked_of_trials(samples):
    mine = {work: [s[work] for s in samples if s["work"] == work and s["peer"] == "weir"] for work in trials.WORKS}
    if mine["burst"]:
        times = [burst["full_ms"] for burst in mine["burst"]]
        never = sum(time is None for time in times)
        worst = Figure(float("inf"), f"never in {never} rounds") if never else Figure(max(times), f"{max(times):,.0f}")
        yield "burst", "weir's 20 workers at work, ms in the worst round, at most 250", worst, 250, True
    for reload in mine["reload"]:
        yield "reload", "weir's failed requests, none", _failed(reload), 0, True
    for kill in mine["kill"]:
        loads = kill["loads"]
        yield "kill", "weir's failed GETs, none", _failed({"loads": {"GET": loads["GET"]}}), 0, True
        for text, count, limit in (
                ("weir's POSTs that began twice, none", kill["posts_begun_twice"], 0),
                # A worker may die after it has read a request and before the first line of the script.
                (f"of weir's {kill['posts_failed']} failed POSTs those not begun, at most 1 and 2 %",
                 kill["posts_failed_unbegun"], 1 + 0.02 * kill["posts_failed"])):
            yield "kill", text, Figure(count, f"{count}"), limit, True
    for soak in mine["soak"]:
        for role, (early, late) in _growth(soak).items():
            change = 100 * (late - early) / early if early else 0
            yield ("soak", f"{role}: resident memory at the end against a tenth of the way, % more, at most 2",
                   Figure(change, f"{change:+.2f}"), 2, True)


def _burst(figures, name):
    full = figures["full_ms"]
    return [f"| {name} | {figures['workers_before']} | {short(full) if full is not None else 'never'} "
            f"| {short(figures['longest_ms'])} | {figures['requests']:,} | {_counts(figures['errors'])} |"]


def _loads(figures, name):
    lines = []
    for load, result in figures["loads"].items():
        count = figures["reloads"] if "reloads" in figures else figures["killed"]
        posts = ""
        if "killed" in figures:
            posts = f"| {figures['posts_failed_unbegun']} | {figures['posts_begun_twice']} " if load == "POST" else "| – | – "
            posts = posts.strip() + " "
        again = f"| {result['sent_again'] or 0} " if "reloads" in figures else posts
        lines.append(f"| {name} | {count} in {figures['seconds']} s | {load} | {result['requests']:,} "
                     f"| {_counts(result['errors'])} {again}| {short(result['p50_ms'])} | {short(result['p99_ms'])} "
                     f"| {short(result['longest_ms'])} |")
    return lines


def _soak(figures, name):
    lines = []
    for role, (early, late) in _growth(figures).items():
        lines.append(f"| {name} | {figures['requests']:,} | {_counts(figures['errors'])} | {short(figures['rate'])} "
                     f"| {short(figures['longest_ms'])} | {role} | {early / 1024:.2f} | {late / 1024:.2f} "
                     f"| {100 * (late - early) / early if early else 0:+.2f} % |")
    return lines


def _growth(soak):
    """{role: (kB at a tenth, kB at the end)}"""
    if len(soak["looks"]) < 2:
        return {}
    first, last = soak["looks"][0][1], soak["looks"][-1][1]
    return {role: (first[role], last.get(role, 0)) for role in first}


def _failed(figures):
    count = sum(sum(load["errors"].values()) for load in figures["loads"].values())
    return Figure(count, f"{count}")


def _counts(errors):
    return ", ".join(f"{count} × {what}" for what, count in sorted(errors.items())) or "0"
