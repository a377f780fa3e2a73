"""Figures of the server, measured here and now: python3 tests/bench_mcp.py [part of a row's name | transcripts ...]

A row is one function under @row; it gets no argument and returns one figure. Figures that a row shares with others it takes from a cached helper.
"""
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_transcripts

HERE = Path(__file__).resolve().parent
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}\n'
ECHO = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}\n'
ROWS = []  # (name, unit, target as (comparison, figure) or None, function)


def row(name, unit, target=None):
    def add(function):
        ROWS.append((name, unit, target, function))
        return function
    return add


def bare_command():
    return [sys.executable, "-I", "-S", "-c", "pass"]


@functools.cache
def copied():
    """A folder with the script and its compiled copy, as the installer leaves it."""
    folder = tempfile.TemporaryDirectory(prefix="bench-")
    shutil.copy(HERE.parent / "agy_mcp.py", folder.name)
    subprocess.run(module_command(folder.name) + ["--version"], check=True, stdout=subprocess.DEVNULL)
    return folder


def module_command(folder):
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {folder!r}); import agy_mcp; sys.exit(agy_mcp.main())"]


def first_reply(command):
    """Seconds from the start of a process to its first line."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(INITIALIZE)
    process.stdin.flush()
    line = process.stdout.readline()
    took = time.perf_counter() - began
    assert b"serverInfo" in line, line
    process.stdin.close()
    process.wait()
    process.stdout.close()
    return took


def whole_run(command):
    began = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - began


@functools.cache
def starts():
    """Medians in ms, the commands taken in turn so that the machine's moods hit all alike."""
    commands = {"bare": (whole_run, bare_command()), "script": (first_reply, [sys.executable, "-I", "-S", str(HERE.parent / "agy_mcp.py")]),
                "module": (first_reply, module_command(copied().name))}
    taken = {name: [] for name in commands}
    for _ in range(25):
        for name, (measure, command) in commands.items():
            taken[name].append(measure(command) * 1000)
    return {name: statistics.median(values) for name, values in taken.items()}


class Client:
    """The plainest client: one request, one reply."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask(INITIALIZE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def status(self, key):
        """A figure in MB from /proc/<pid>/status (VmRSS: now, VmHWM: at most so far); None where there is no /proc."""
        try:
            text = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        return int(text.split(key + ":")[1].split()[0]) / 1024


@row("bare interpreter: start to end", "ms")
def bare():
    return starts()["bare"]


@row("start to first reply, as a script", "ms")
def script():
    return starts()["script"]


@row("start to first reply, as the installer registers it", "ms")
def module():
    return starts()["module"]


@row("the same against a bare interpreter", "x", ("<=", 2.5))
def ratio():
    return starts()["module"] / starts()["bare"]


@row("sequential trivial calls a second", "/s", (">=", 5000))
def calls():
    with Client([sys.executable, "-I", "-S", str(HERE / "mcp_server.py")]) as client:
        for _ in range(500):
            client.ask(ECHO)
        began = time.perf_counter()
        for _ in range(5000):
            client.ask(ECHO)
        return 5000 / (time.perf_counter() - began)


@row("memory before the first tool", "MB", ("<=", 16))
def memory():
    with Client(module_command(copied().name)) as client:
        client.ask(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
        return client.status("VmHWM")


def verdict(figure, target):
    if figure is None or target is None:
        return ""
    sign, wanted = target
    met = figure <= wanted if sign == "<=" else figure >= wanted
    return f"target {sign} {wanted:,}: {'met' if met else 'MISSED'}"


def main(words):
    print(f"Python {sys.version.split()[0]}")
    for name, unit, target, function in ROWS:
        if not words or any(word in name for word in words):
            figure = function()
            shown = "not measured" if figure is None else f"{figure:,.0f}" if figure >= 1000 else f"{figure:.1f}"
            print(f"{name:70} {shown:>12} {unit:4} {verdict(figure, target)}".rstrip(), flush=True)
    if not words or "transcripts" in words:
        bench_transcripts.main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
