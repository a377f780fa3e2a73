"""A real background task, polled four times: the decisions of the hook, driven by the conversation's own transcript.

manage_task does not pass the harness's hook, so the payloads are rebuilt from the transcript, each with the time of the call
and with the rows that stood there before it.
"""
import calendar
import importlib
import json
import time

import pytest

pytest.importorskip("google.antigravity", reason="the harness is missing here: pip install google-antigravity==0.1.22 (Linux x86-64, Python 3.10+)")
harness = importlib.import_module("host.harness")
agy_hook = importlib.import_module("agy_hook")
pytestmark = pytest.mark.host

PAUSES = (1, 4, 4, 4)  # seconds before each poll; the task runs for 20


def poll(pause):
    def step(messages):
        time.sleep(pause)
        return "manage_task", {"Action": "status", "TaskId": "task-2"}
    return step


def steps(place):
    started = "run_command", {"CommandLine": "sh build.sh", "Cwd": str(place.workspace), "WaitMsBeforeAsync": 500}
    return [started, *map(poll, PAUSES), "I will wait for the task.", poll(0), "It has finished."]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = harness.Place(tmp_path_factory.mktemp("polling"))
    try:
        yield harness.play(place, steps(place), wake=1, mcp=False)
    finally:
        assert place.left_behind() == [], "a process outlived the conversation"


def polls(played):
    """(payload, epoch seconds) of each manage_task call, with a transcript that ends before the call. A model's row bears the time at which
    the host asked the model, so the time of the call is that of its result: the row with the next index."""
    times = {row["step_index"]: row["created_at"] for row in played.rows}
    for row in played.rows:
        for call in row.get("tool_calls", []):
            if call["name"] == "manage_task":
                written = time.strptime(times[row["step_index"] + 1], "%Y-%m-%dT%H:%M:%SZ")
                yield played.payload(call, row["step_index"]), calendar.timegm(written)


def decide(payload, now, home):
    """The hook's Decision on a payload at `now`, or None for no objection."""
    world = agy_hook.World({"HOME": home, "PATH": "/usr/bin:/bin"}, home, now, {})
    return agy_hook.decide("PreToolUse", json.dumps(payload).encode(), world)[1].decision


def test_the_host_answered_every_poll(played):
    answers = [text for call, text in played.results() if call["name"] == "manage_task"]
    assert [("RUNNING" in text) for text in answers] == [True] * 4 + [False], answers


def test_exactly_the_first_poll_passes(played, tmp_path):
    (tmp_path / ".gemini/antigravity").mkdir(parents=True)
    decisions = [decide(payload, now, str(tmp_path)) for payload, now in polls(played)]
    assert [d.decision if d else "allow" for d in decisions] == ["allow", "deny", "deny", "deny", "allow"], decisions
    assert all(d.reason.startswith("[agy:polling]") for d in decisions[1:4]), decisions
    ledger = json.loads((tmp_path / f".gemini/antigravity/agy_state/ledger/{played.conversation}.json").read_text())
    assert (ledger["checks"], ledger["strikes"]) == (1, 3)
