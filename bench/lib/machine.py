"""The machine: its description for the record, and how busy it is with other work."""

import os
import platform
import re
import subprocess


def describe(programs):
    """A dict for the head of a report. `programs`: name → argv that prints a version."""
    return {
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "cpu": _field("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.machine(),
        "memory_mb": int(_field("/proc/meminfo", r"MemTotal:\s*(\d+)") or 0) // 1024,
        "kernel": platform.release(),
        "system": _field("/etc/os-release", r'PRETTY_NAME="?([^"\n]+)') or "",
        "virtual": bool(_field("/proc/cpuinfo", r"\b(hypervisor)\b")),
        "somaxconn": int(_read("/proc/sys/net/core/somaxconn") or 0),
        "versions": {name: _version(argv) for name, argv in programs.items()},
    }


def busy_seconds():
    """(used, stolen): CPU seconds that all processes used since boot, and that the hypervisor took."""
    values = [int(v) for v in _read("/proc/stat").split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = values[:8]
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


def _version(argv):
    try:
        result = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    return lines[0] if lines else ""


def _field(path, pattern):
    match = re.search(pattern, _read(path))
    return match.group(1).strip() if match else None


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
