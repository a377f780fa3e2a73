"""A server process to talk to by lines, and the Pythons to start it with."""
import contextlib
import functools
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERVER = [str(HERE / "mcp_server.py")]
PRODUCT = [str(HERE.parent / "agy_mcp.py")]
PATIENCE = 10  # seconds until a test gives up: a bound, not a measurement
INITIALIZE = '{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"%s","capabilities":{},"clientInfo":{"name":"t"}}}'
INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
LAST = '{"jsonrpc":"2.0","id":"z","method":"tools/list"}'


@functools.cache
def all_pythons():
    """Every CPython from 3.9 up that can be found here, on PATH and among pyenv's, oldest first."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(9, 20):
        path = shutil.which(f"python3.{minor}")
        pyenv = sorted(Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob(f"versions/3.{minor}.*/bin/python"))
        if path or pyenv:
            found.setdefault((3, minor), str(pyenv[-1]) if pyenv else path)
    return [path for _, path in sorted(found.items()) if subprocess.run([path, "-I", "-S", "-c", ""], stderr=subprocess.DEVNULL).returncode == 0]


def pythons():
    """The oldest and the newest of them."""
    return list(dict.fromkeys([all_pythons()[0], all_pythons()[-1]]))


def python_name(path):
    return re.sub(r".*?(3\.\d+)?[^/]*/bin/.*", r"\1", path) or Path(path).name


class Process:
    """One server. send() lines, next() a decoded message, end() the input and get the exit code."""

    def __init__(self, arguments=SERVER, python=sys.executable, home=None, shell="", **environment):
        command = [python, "-I", "-S"] + list(arguments)
        if shell:
            command = ["/bin/sh", "-c", f'exec "$0" "$@" {shell}'] + command
        env = dict(os.environ, HOME=str(home or "/nonexistent"), **environment)
        heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, and so their children, ignore it
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, preexec_fn=heed)
        self.watchdog = threading.Timer(6 * PATIENCE, self.process.kill)  # no test hangs on a pipe that nobody empties
        self.watchdog.daemon = True
        self.watchdog.start()
        self.lines = queue.Queue()
        self.reading = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def listen(self):
        def pump():
            with contextlib.suppress(ValueError):  # closed by a test that is through with it
                for line in self.process.stdout:
                    self.lines.put(line)
            self.lines.put(None)
        if not self.reading:
            self.reading = True
            threading.Thread(target=pump, daemon=True).start()

    def send(self, *lines):
        for line in lines:
            self.process.stdin.write(line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
        self.process.stdin.flush()

    def next(self, timeout=PATIENCE):
        """The next message, or None at the end of the output; queue.Empty where neither comes."""
        self.listen()
        line = self.lines.get(timeout=timeout)
        if line is None:
            return None
        assert line.endswith(b"\n") and line.isascii() and len(line) < 10 << 20, line[:200]
        return json.loads(line)

    def until(self, key):
        """All messages up to the one with that id."""
        seen = [self.next()]
        while seen[-1] is not None and (isinstance(seen[-1], list) or seen[-1].get("id") != key):
            seen.append(self.next())
        return seen

    def greet(self, version="2025-11-25"):
        self.send(INITIALIZE % version, INITIALIZED)
        return self.next()

    def call(self, tool, arguments, key="c", **params):
        self.send({"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": dict(params, name=tool, arguments=arguments)})

    def answer(self, tool, arguments, key="c", **params):
        self.call(tool, arguments, key, **params)
        return self.until(key)[-1]

    def end(self, timeout=PATIENCE):
        self.process.stdin.close()
        return self.process.wait(timeout)
