"""The table of `pairs.py`, and its demands: medians of the turns' ratios, weir ÷ nginx, with their spread."""

import statistics

from . import compression, pairs, php_pairs, tls
from .table import Figure

WORKS = {**pairs.WORKS, **tls.WORKS, **compression.WORKS, **php_pairs.WORKS}
CPU, WORKERS, RATE, BYTES = "us_per_request", "workers_us", "per_second", "mb_per_second"

# (pair, what is compared, limit, at most?), and the server that weir is compared with, if there are several.
ASKED = (
    ("pair-fastcgi-64", CPU, 0.75, True),
    ("pair-fastcgi-4", CPU, 0.80, True),
    ("pair-static-1k", CPU, 0.85, True),
    ("pair-static-100k", CPU, 0.85, True),
    ("pair-fastcgi-64-default", CPU, 0.75, True),
    ("pair-fastcgi-64-default", RATE, 1.15, False),
    ("pair-fastcgi-4-default", CPU, 0.9, True),
    ("pair-fastcgi-4-default", RATE, 1.0, False),
    ("pair-static-1k-default", CPU, 0.75, True),
    ("pair-static-1k-default", RATE, 1.1, False),
    ("pair-static-100k-default", CPU, 0.65, True),
    ("pair-static-100k-default", RATE, 1.3, False),
    ("pair-static-100m-default", BYTES, 1.0, False),
    ("pair-tls-full", CPU, 0.75, True),
    ("pair-tls-resumed", CPU, 0.75, True),
    ("pair-tls-rsa", CPU, 0.95, True),
    ("pair-tls-keeper", CPU, 1.2, True),
    ("pair-tls-100k", CPU, 1.0, True),
    ("pair-h2-static", CPU, 1.0, True),
    ("pair-h2-fastcgi", CPU, 0.9, True),
    ("pair-compress", CPU, 0.7, True),
    ("pair-php-compute", CPU, 1.0, True),
    ("pair-php", CPU, 0.42, True),
    ("pair-php", RATE, 2.2, False),
    ("pair-php-kept", CPU, 0.6, True),
    ("pair-php-kept", RATE, 1.6, False),
    ("pair-php-fpm", CPU, 0.85, True),
    ("pair-php-fpm", RATE, 1.2, False),
    ("pair-php-fpm-kept", CPU, 0.85, True),
    ("pair-php-fpm-kept", RATE, 1.2, False),
    ("pair-php-booted", WORKERS, 0.6, True),
    ("pair-wordpress", WORKERS, 1.0, True),
    ("pair-wordpress", RATE, 1.05, False),
    ("pair-symfony", RATE, 2.5, False, php_pairs.CLASSIC),
    ("pair-symfony", RATE, 3.0, False, "nginx"),
    ("pair-laravel", RATE, 2.5, False, php_pairs.CLASSIC),
    ("pair-laravel", RATE, 3.0, False, "nginx"),
    ("pair-egress-near", CPU, 0.85, True),
    ("pair-egress-rate", CPU, 0.85, True),
)
TEXT = {CPU: "CPU per request", WORKERS: "PHP's CPU per request", RATE: "rate", BYTES: "throughput"}


def tables(samples):
    """Markdown: one table for all pairs."""
    keys = [key for key in WORKS if any(sample["work"] == key for sample in samples)]
    if not keys:
        return ""
    lines = ["### Pairs: weir ÷ nginx (or what the work names), the median of the turns (a quarter is below, a quarter above the range beside it)", "",
             "| work | turns | CPU per request | rate | throughput | failures: weir | the other |", "|---|--:|--:|--:|--:|--:|--:|"]
    for key in keys:
        first, *others = WORKS[key].names
        failures = {name: sum(sum(sample["pair"]["errors"].values()) for sample in samples if sample["work"] == key and sample["peer"] == name)
                    for name in WORKS[key].names}
        for other in others:
            ratios = [of_turns(samples, key, field, other) for field in (CPU, RATE, BYTES)]
            texts = [spread(values).text if values else "–" for values in ratios]
            title = WORKS[key].title + (f"; ÷ {other}" if len(others) > 1 else "")
            lines.append(f"| {key}: {title} | {len(ratios[0])} | {' | '.join(texts)} | {failures[first]} | {failures[other]} |")
    return "\n".join(lines) + "\n"


def asked(samples):
    """(work, demand, Figure or None, limit, at most?), as table.asked."""
    for key, field, limit, at_most, *other in ASKED:
        other = other[0] if other else WORKS[key].names[1]
        values = of_turns(samples, key, field, other)
        text = f"{TEXT[field]}, weir ÷ {other}, {'at most' if at_most else 'at least'} {limit:g}"
        yield key, text, spread(values) if values else None, limit, at_most
    added = [first - second for first, second in both_of_turns(samples, "pair-events", "p50_ms")]
    yield "pair-events", "time that compression adds to an event, at most 5 ms", spread(added) if added else None, 5, True


def of_turns(samples, key, field, other=None):
    """The ratio of each turn, the first server ÷ the other (the second)."""
    return [first / second for first, second in both_of_turns(samples, key, field, other)]


def both_of_turns(samples, key, field, other=None):
    """The figures of each turn, of the first server and of the other (the second)."""
    turns = {}
    for sample in samples:
        if sample["work"] == key:
            turns.setdefault((sample["round"], sample["pair"]["turn"]), {})[sample["peer"]] = sample["pair"].get(field)
    first, other = WORKS[key].names[0], other or WORKS[key].names[1]
    return [(turn[first], turn[other]) for turn in turns.values() if turn.get(first) and turn.get(other)]


def spread(values):
    """Their median, and in the text the middle half of them."""
    value = statistics.median(values)
    if len(values) < 2:
        return Figure(value)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(value, f"{value:.2f} ({low:.2f} to {high:.2f})")
