#!/usr/bin/env python3
"""What the hook costs, in one table from one interleaved run: medians, and ratios to a bare interpreter start.

usage: bench_hook.py [RUNS]     (default 40; each row is started once in every round, so that a busy machine slows all alike)

Rows that need a program which is missing are left out, and named. The world is a temporary one: the stub of tests/world.py stands in for rtk in
the hook's own rows, the real rtk is measured by itself and on a cache miss.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import world

PYTHON = sys.executable


def denied_call(names):
    return world.payload(names, "view_file", {"AbsolutePath": names["SG"] + "/logs/transcript.jsonl"})


class Row:
    """One thing that is timed. prepare() runs before each start, outside the time."""

    def __init__(self, name, argv, data=b"", env=None, prepare=None, target=None):
        self.name, self.argv, self.data, self.env, self.prepare, self.target, self.times = name, argv, data, env, prepare or (lambda: None), target, []

    def run(self):
        self.prepare()
        began = time.perf_counter()
        done = subprocess.run(self.argv, input=self.data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.env)
        self.times.append((time.perf_counter() - began) * 1000)
        return done.stdout


def hook_rows(names, rtk):
    module = [PYTHON, "-I", "-S", "-c", world.MODULE_FORM.format(folder=str(world.TOP)), "PreToolUse"]
    script = [PYTHON, "-I", "-S", str(world.HOOK), "PreToolUse"]
    env = world.environment(names)
    real = {**env, "PATH": f"{os.path.dirname(rtk)}:/usr/bin:/bin"} if rtk else None
    cached, missed = (json.dumps(world.command(names, line)).encode() for line in ("git status", "git diff --stat"))
    ignored = json.dumps(world.payload(names, "search_web", {"query": "x"})).encode()
    denied = json.dumps(denied_call(names)).encode()

    def forget():
        for path in world.state(names, "").glob("rewrites.json"):
            path.unlink()

    def remember():
        world.start(names, cached)

    for form, argv, bounds in (("module", module, (1.4, 1.5, 1.5)), ("script", script, (2.4, None, None))):
        yield Row(f"hook, {form}: ignored tool", argv, ignored, env, target=bounds[0])
        yield Row(f"hook, {form}: cached command", argv, cached, env, prepare=remember, target=bounds[1])
        yield Row(f"hook, {form}: denied call", argv, denied, env, target=bounds[2])
        if rtk:
            yield Row(f"hook, {form}: cache miss, real rtk", argv, missed, real, prepare=forget)


def all_rows(names, rtk, node):
    yield Row("bare: python -I -S -c pass", [PYTHON, "-I", "-S", "-c", "pass"])
    yield from hook_rows(names, rtk)
    if rtk:
        env = {**world.environment(names), "PATH": f"{os.path.dirname(rtk)}:/usr/bin:/bin"}
        yield Row("rtk rewrite -- 'git diff --stat'", [rtk, "rewrite", "--", "git diff --stat"], env=env)
        yield Row("rtk hook antigravity", [rtk, "hook", "antigravity"], json.dumps(world.command(names, "git status")).encode(), env=env)
    if node:
        yield Row('node -e ""', [node, "-e", ""])


def table(rows):
    bare = statistics.median(rows[0].times)
    yield f"{'':40} {'median ms':>10} {'x bare':>7} {'target':>7}"
    for row in rows:
        middle = statistics.median(row.times)
        yield f"{row.name:40} {middle:10.2f} {middle / bare:7.2f} {row.target or '':>7}"
    medians = {row.name: statistics.median(row.times) for row in rows}
    alone, miss = medians.get("rtk rewrite -- 'git diff --stat'"), medians.get("hook, module: cache miss, real rtk")
    if alone and miss:
        yield f"a miss is rtk alone + {(miss - alone) / bare:.2f} bare starts (target: 1.6)"


def main(argv):
    runs = int(argv[0]) if argv else 40
    rtk = shutil.which("rtk", path=os.pathsep.join([str(Path(PYTHON).parent), os.environ.get("PATH", "")]))
    node = shutil.which("node")
    for name, found in (("rtk", rtk), ("node", node)):
        if not found:
            print(f"left out: {name} is not on PATH")
    with tempfile.TemporaryDirectory() as root:
        names = world.build(root)
        rows = list(all_rows(names, rtk, node))
        for row in rows:  # once unmeasured: compiled files, the disk's cache, and a look whether it does what it should
            shown = row.run()
            row.times.clear()
            if row.name.endswith("denied call") and b'"deny"' not in shown:
                print(f"note: {row.name}: not denied: {shown[:80]!r}")
        for _ in range(runs):
            for row in rows:
                row.run()
    print(*table(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
