"""Load generators. Each ends by itself, is killed if it does not, and gives the same kind of result:

requests, bytes, seconds, p50_ms, p90_ms, p99_ms, longest_ms, errors {what: count}, finished (False: it was killed)
"""

import json
import os
import re
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def wrk(programs, url, connections, seconds, threads=1):
    """Closed loop over kept connections for `seconds`."""
    argv = [programs["wrk"], f"-t{threads}", f"-c{connections}", f"-d{_duration(seconds)}", "--timeout", "10s",
            "-s", os.path.join(FOLDER, "report.lua"), url]
    output, finished = _bounded(argv, seconds + 15)
    match = re.search(r"^WRK (\{.*\})$", output, re.MULTILINE)
    if not match:
        return _nothing(output, finished)
    result = json.loads(match.group(1))
    result["errors"] = {what: count for what, count in result["errors"].items() if count}
    return dict(result, finished=finished)


def ab(programs, url, connections, requests, seconds):
    """So many requests by so many clients, a connection each; given up after `seconds`."""
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


def download(url, connections, seconds, size):
    """Whole files one after the other on kept connections; every byte of `size` has to come."""
    argv = [sys.executable, os.path.join(FOLDER, "download.py"), url, str(connections), str(seconds), str(size)]
    output, finished = _bounded(argv, seconds + 30)
    try:
        return dict(json.loads(output), finished=finished)
    except ValueError:
        return _nothing(output, finished)


def _bounded(argv, seconds):
    """(output, True) of a program, or (what it wrote so far, False) when it had to be killed."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace")
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
    """wrk takes whole seconds only."""
    return f"{max(1, round(seconds))}s"
