"""Writes times of many schedules, as croniter finds them, an implementation of cron in Python: python3 make.py >times.txt

Each line: the schedule, a time, and the next three times after it (minutes since 1970, without time zone)."""

import random
from datetime import datetime, timedelta

from croniter import croniter

random.seed(7)
EPOCH = datetime(1970, 1, 1)
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
DAYS = "sun mon tue wed thu fri sat".split()


def part(least, most, names):
    kind = random.randrange(5)
    if kind == 0 and most - least > 2:
        return "*/%d" % random.randint(2, min(most - least, 20))
    if kind <= 2:
        value = random.randint(least, most)
        return names[value - least] if names and random.random() < 0.4 else str(value)
    begin = random.randint(least, most - 1)
    end = random.randint(begin + 1, most)
    if names and random.random() < 0.4:
        return "%s-%s" % (names[begin - least], names[end - least])
    if kind == 3 and end - begin > 1:
        return "%d-%d/%d" % (begin, end, random.randint(1, end - begin))
    return "%d-%d" % (begin, end)


def field(least, most, names=None, star=0.4):
    if random.random() < star:
        return "*"
    parts = [part(least, most, names) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    # A star between others says the same as a star alone, but programs differ in what it means for days.
    plain = [one for one in parts if not one.startswith("*")]
    return ",".join(plain if len(parts) > 1 and plain else parts[:1])


count = 0
while count < 400:
    text = " ".join([field(0, 59), field(0, 23), field(1, 31, star=0.6), field(1, 12, MONTHS, 0.6), field(0, 6, DAYS, 0.6)])
    begin = datetime(2020, 1, 1) + timedelta(minutes=random.randrange(10 * 366 * 24 * 60))
    # As cron: with a star at its beginning, a day does not count as limited.
    times = croniter(text, begin, implement_cron_bug=True, max_years_between_matches=8)
    try:
        found = [times.get_next(datetime) for _ in range(3)]
    except Exception:
        continue
    minutes = [int((time - EPOCH).total_seconds()) // 60 for time in [begin] + found]
    print(text, *minutes, sep="\t")
    count += 1
