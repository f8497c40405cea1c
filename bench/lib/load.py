"""Load generators. Each one ends by itself, or is killed after its time limit. All return the same kind of result:

requests, bytes, seconds, p50_ms, p90_ms, p99_ms, longest_ms, errors {what: count}, finished (False: it was killed)

Some add more: in_time (requests that ended within `seconds`), fewest and most (requests of one client), availability.
"""

import json
import os
import re
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def wrk(programs, url, connections, seconds, threads=1, headers=None):
    """Closed loop over kept connections for `seconds`. `headers`: of each request."""
    fields = [word for name, value in (headers or {}).items() for word in ("-H", f"{name}: {value}")]
    argv = [programs["wrk"], f"-t{threads}", f"-c{connections}", f"-d{_duration(seconds)}", "--timeout", "10s",
            "-s", os.path.join(FOLDER, "report.lua"), *fields, url]
    output, finished = _bounded(argv, seconds + 15)
    match = re.search(r"^WRK (\{.*\})$", output, re.MULTILINE)
    if not match:
        return _nothing(output, finished)
    result = json.loads(match.group(1))
    result["errors"] = {what: count for what, count in result["errors"].items() if count}
    return dict(result, finished=finished)


def h2load(programs, url, connections, streams, seconds):
    """Closed loop over HTTP/2 for `seconds`: `streams` requests at once on each of the kept connections."""
    argv = [programs["h2load"], "-t1", f"-c{connections}", f"-m{streams}", "-D", _duration(seconds), url]
    output, finished = _bounded(argv, seconds + 15)
    return h2load_result(output, finished)


def h2load_result(output, finished=True):
    """The figures that h2load prints. It has no percentiles."""
    counts = re.search(r"^requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", output, re.MULTILINE)
    seconds = _number(output, r"finished in ([\d.]+)s")
    if not counts or not seconds:
        return _nothing(output, finished)
    succeeded, failed, errored, timeout = map(int, counts.groups())
    # "failed" has the other two too.
    errors = {"errored": errored, "timeout": timeout, "failed": failed - errored - timeout,
              "status": sum(int(count) for count in re.findall(r" (\d+) [345]xx", output)),
              "not HTTP/2": int("Application protocol: h2" not in output)}
    longest = re.search(r"^time for request: +\S+ +([\d.]+)(us|ms|s) ", output, re.MULTILINE)
    return {
        "requests": succeeded, "bytes": int(_number(output, r"traffic: \S+ \((\d+)\) total") or 0), "seconds": seconds,
        "p50_ms": None, "p90_ms": None, "p99_ms": None,
        "longest_ms": float(longest[1]) * {"us": 1e-3, "ms": 1, "s": 1e3}[longest[2]] if longest else None,
        "errors": {what: count for what, count in errors.items() if count}, "finished": finished,
    }


def ab(programs, url, connections, requests, seconds):
    """`requests` requests by `connections` clients, one connection per request; stops after `seconds`."""
    argv = [programs["ab"], "-q", "-r", "-s", "30", "-n", str(requests), "-c", str(connections), url]
    output, finished = _bounded(argv, seconds)
    complete = _number(output, r"Complete requests:\s+(\d+)")
    if complete is None:
        return _nothing(output, finished)
    percent = {int(p): float(ms) for p, ms in re.findall(r"^\s+(\d+)%\s+(\d+)", output, re.MULTILINE)}
    failed = re.search(r"\(Connect: (\d+), Receive: (\d+), Length: (\d+), Exceptions: (\d+)\)", output)
    errors = dict(zip(("connect", "receive", "length", "exception"), map(int, failed.groups()))) if failed else {}
    errors["status"] = _number(output, r"Non-2xx responses:\s+(\d+)") or 0
    return {
        "requests": int(complete),
        "bytes": int(_number(output, r"Total transferred:\s+(\d+)") or 0),
        "seconds": _number(output, r"Time taken for tests:\s+([\d.]+)"),
        "p50_ms": percent.get(50), "p90_ms": percent.get(90), "p99_ms": percent.get(99),
        "longest_ms": percent.get(100),
        "errors": {what: count for what, count in errors.items() if count},
        "finished": finished,
    }


def clients(programs, url, number, seconds=None, requests=None, folder=None, **options):
    """Closed loop that checks every answer (`bench/clients`), for `seconds` or for a number of `requests`.

    `options`: close, post (True), expect (bytes), contains (text), timeout, drain (seconds).
    """
    argv = clients_argv(programs, url, number, seconds, requests, folder, **options)
    output, finished = _bounded(argv, (seconds or 600) + 60)
    return clients_result(output, finished)


def clients_argv(programs, url, number, seconds=None, requests=None, folder=None, **options):
    """The command line for `clients`. `folder`: where a body that is expected is kept."""
    argv = [programs["clients"], url, "--clients", str(number)]
    argv += ["--seconds", str(seconds)] if seconds else ["--requests", str(requests)]
    for name, value in options.items():
        if isinstance(value, bytes):
            value = _kept(value, f"{folder}/{name}")
        argv += [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]
    return argv


def _kept(content, path):
    """A file with this content; another load may be reading it already."""
    if not os.path.exists(path):
        with open(f"{path}.new", "wb") as file:
            file.write(content)
        os.rename(f"{path}.new", path)
    return path


def clients_result(output, finished=True):
    """The result in the last line of its output."""
    try:
        result = json.loads(output.strip().rpartition("\n")[2])
    except ValueError:
        return _nothing(output, finished)
    return dict(result, finished=finished)


def handshakes(programs, address, connections, seconds, authority, name, resume):
    """Closed loop of TLS handshakes (`bench/handshakes`) for `seconds`: full ones, or resumed ones."""
    argv = [programs["handshakes"], address, name, authority, "--clients", str(connections), "--seconds", str(seconds),
            "--resume", str(resume).lower()]
    output, finished = _bounded(argv, seconds + 30)
    return clients_result(output, finished)


def siege(programs, urls, users, seconds, folder, keep):
    """Users that ask for the `urls` in turn without a pause; siege prints a line for each request."""
    with open(f"{folder}/siegerc", "w", encoding="ascii") as file:
        file.write("".join(f"{name} = {value}\n" for name, value in {
            "verbose": "true", "color": "off", "quiet": "false", "json_output": "false", "show-logfile": "false",
            "logging": "false", "parser": "false", "protocol": "HTTP/1.1", "chunked": "true", "cache": "false",
            "connection": "keep-alive" if keep else "close", "benchmark": "true", "limit": "1000",
            "accept-encoding": "", "unique": "true", "timeout": "30", "failures": "1000000"}.items()))
    with open(f"{folder}/urls", "w", encoding="ascii") as file:
        file.write("\n".join(urls) + "\n")
    argv = [programs["siege"], "-R", f"{folder}/siegerc", "-f", f"{folder}/urls", "-c", str(users), "-t", f"{seconds}S"]
    # siege writes into the home folder.
    output, _ = _bounded(argv, seconds + 10, dict(os.environ, HOME=folder))
    return siege_result(output, seconds)


def siege_result(output, seconds):
    """The figures of siege's own summary; percentiles from its lines, with a resolution of 10 ms.

    siege sometimes hangs at its end: it cancels its threads while one of them holds a lock that another one needs. Then
    the result comes from its lines alone. It is as accurate.
    """
    figure = lambda name: _number(output, name + r":\s+([\d.]+)")
    waits, sizes, statuses = [], 0, {}
    for status, wait, size in re.findall(r"^HTTP/1\.[01] (\d+)\s+([\d.]+) secs:\s+(\d+) bytes", output, re.MULTILINE):
        waits.append(float(wait) * 1e3)
        sizes += int(size)
        statuses[status] = statuses.get(status, 0) + 1
    waits.sort()
    at = lambda share: waits[min(len(waits) - 1, int(len(waits) * share))] if waits else None
    errors = {f"status {status}": count for status, count in statuses.items() if not "200" <= status < "400"}
    failed = figure("Failed transactions")
    failed = len(re.findall(r"^\[error\]", output, re.MULTILINE)) if failed is None else int(failed)
    if failed > sum(errors.values()):
        errors["no answer"] = failed - sum(errors.values())
    requests = int(figure("Transactions") or len(waits))
    if not requests:
        return _nothing(output, True)
    return {
        "requests": requests, "bytes": sizes, "seconds": figure("Elapsed time") or seconds,
        "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99),
        "longest_ms": (figure("Longest transaction") or 0) * 1e3 or at(1.0),
        "availability": figure("Availability") or 100 * requests / (requests + failed), "errors": errors,
        "finished": True,
    }


def bench_argv(programs, url, seconds, rate=None, users=None, timeout=30.0, sources=(), kept=True, elsewhere=False):
    """The command line of `weir bench` for `seconds`: an open loop with a `rate`, a closed loop with `users`.
    `timeout`: how long a client waits, in seconds; `sources`: the addresses that clients connect from; `elsewhere`: the
    server is not on loopback."""
    argv = [programs["weir"], "bench", url, "-t", f"{seconds}s", "--timeout", f"{round(timeout * 1000)}ms", "--json",
            "--no-probe", "--threads", "1"]
    argv += ["-r", f"{rate:.3f}"] if rate else ["-c", str(users)]
    argv += [word for source in sources for word in ("--source", source)]
    argv += ["--yes"] if elsewhere else []
    return argv if kept else [*argv, "--no-keepalive"]


def bench(programs, url, seconds, **options):
    """`weir bench`, as bench_argv; `report` in its result is the program's own report."""
    output, finished = _bounded(bench_argv(programs, url, seconds, **options), seconds + options.get("timeout", 30) + 15)
    return bench_result(output, finished)


def bench_result(output, finished=True):
    """What `weir bench --json` printed."""
    try:
        # The program's warnings come before the report in the same output.
        report = json.loads(output[output.index("{\n"):])
    except ValueError:
        return dict(_nothing(output, finished), report=None)
    ms = lambda times, name: times[name] * 1e3 if times.get(name) is not None else None
    good = report["response_time"]
    errors = {f"status {fault['status']}" if fault["status"] else fault["reason"]: 0 for fault in report["failures"]}
    for fault in report["failures"]:
        errors[f"status {fault['status']}" if fault["status"] else fault["reason"]] += fault["count"]
    return {
        "requests": report["transactions"] + report["refused"] + report["failed"], "in_time": report["transactions"],
        "bytes": report["bytes"], "seconds": report["elapsed"], "errors": errors, "finished": finished, "report": report,
        "p50_ms": ms(good, "p50"), "p90_ms": ms(good, "p90"), "p99_ms": ms(good, "p99"), "longest_ms": ms(good, "max"),
    }


def download(url, connections, seconds, size):
    """Complete files one after another on kept connections; every byte of `size` must come."""
    argv = [sys.executable, os.path.join(FOLDER, "download.py"), url, str(connections), str(seconds), str(size)]
    output, finished = _bounded(argv, seconds + 30)
    try:
        return dict(json.loads(output), finished=finished)
    except ValueError:
        return _nothing(output, finished)


def _bounded(argv, seconds, environment=None):
    """(output, True) of a program, or (the output so far, False) if it had to be killed."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", env=environment)
    try:
        return process.communicate(timeout=seconds)[0], True
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], False
    except BaseException:
        process.kill()
        process.wait()
        raise


def _nothing(output, finished):
    return {"requests": 0, "bytes": 0, "seconds": 0, "p50_ms": None, "p90_ms": None, "p99_ms": None,
            "longest_ms": None, "errors": {"no result": 1}, "finished": finished, "output": output[-500:]}


def _number(text, pattern):
    match = re.search(pattern, text)
    return float(match.group(1)) if match else None


def _duration(seconds):
    """wrk accepts only whole seconds."""
    return f"{max(1, round(seconds))}s"
