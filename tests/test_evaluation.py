"""The guard evaluation: every line of tests/data/evaluation.tsv, native tools, patterns, and how a conversation becomes one that evaluates."""
import os
import time
from pathlib import Path

import pytest
import world

import agy_hook

TABLE = world.read_table("evaluation.tsv")
PATCH = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    names = world.build(tmp_path_factory.mktemp("world"))
    ws = Path(names["WS"])
    world.put(ws / "fix.patch", PATCH.format("benchmarks/task_01.json"))
    world.put(ws / "other.patch", PATCH.format("src/small.py"))
    world.put(ws / "src" / "evaluators" / "a.py", "")
    (ws / "blink").symlink_to("benchmarks")
    return names


def decide(names, payload, config=None):
    env = world.environment(names)
    here = agy_hook.World(env, names["HOME"], time.time(), config or {})
    return agy_hook.evaluation(agy_hook.make_call(payload, here), here)


def check(names, want, payload, config=None):
    found = decide(names, payload, config)
    assert (found.decision if found else "pass") == want.replace("ask", "force_ask"), (payload["toolCall"], found)
    if found:
        assert found.reason.startswith("[agy:evaluation] ") and len(found.reason.encode()) <= 400 and not found.reason.endswith("...")


@pytest.fixture
def forgetful(names):
    """No conversation has run an evaluator."""
    for marker in world.state(names, "evaluating").glob("*"):
        marker.unlink()


@pytest.mark.parametrize("mode, want, line", TABLE, ids=[f"{row[0]}-{row[2][:70]}" for row in TABLE])
def test_command(names, forgetful, mode, want, line):
    check(names, want, world.command(names, world.fill(line, names)), {"evaluation": mode})
