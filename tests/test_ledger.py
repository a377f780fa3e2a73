"""The guard `polling` and its ledger: what counts as a check, when the next one is due, and what happens to the file."""
import importlib
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

agy_hook = importlib.import_module("agy_hook")
TOP = Path(__file__).resolve().parent.parent
CONV = "b775490f-5926-4569-8a0c-61f8d60f1aa0"
NOW = 1_800_000_000.25
STATUS = ("manage_task", {"Action": "status", "TaskId": f"{CONV}/task-8"})
WINDOWS = [0, 30, 75, 188, 469, 600]


class Session:
    """One conversation with a home of its own and a clock that a test moves."""

    def __init__(self, home, rows=(), conversation=CONV):
        self.home, self.now, self.step, self.conversation = Path(home), NOW, 10, conversation
        self.brain = self.home / ".gemini/antigravity/brain" / CONV
        self.file = self.home / ".gemini/antigravity/agy_state/ledger" / (agy_hook.conversation_key(conversation) + ".json")
        logs = self.brain / ".system_generated/logs"
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "transcript_full.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def payload(self, tool, args, **more):
        return dict({"toolCall": {"name": tool, "args": args}, "stepIdx": self.step, "conversationId": self.conversation,
                     "workspacePaths": [f"{self.home}/work"], "transcriptPath": f"{self.brain}/.system_generated/logs/transcript_full.jsonl",
                     "artifactDirectoryPath": str(self.brain)}, **more)

    def send(self, event, payload):
        world = agy_hook.World({"HOME": str(self.home), "PATH": "/nowhere"}, str(self.home), self.now, {})
        return agy_hook.decide(event, json.dumps(payload).encode(), world)[1].decision

    def ask(self, tool, args, **more):
        self.step += 1
        decision = self.send("PreToolUse", self.payload(tool, args, **more))
        self.reason = decision.reason if decision else ""
        return decision.decision if decision else "allow"

    def run(self, command, **args):
        return self.ask("run_command", {"CommandLine": command, "Cwd": f"{self.home}/work", "WaitMsBeforeAsync": 10000, **args})

    def ledger(self, **change):
        if change:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(change))
        return json.loads(self.file.read_text()) if self.file.exists() else None


@pytest.fixture
def session(tmp_path):
    return Session(tmp_path)


def row(index, kind, content, source="SYSTEM", status="DONE"):
    return {"step_index": index, "source": source, "type": kind, "status": status, "created_at": "2026-11-29T20:32:30Z", "content": content}


def start(number):
    return row(number, "RUN_COMMAND", f"Created At: x\nTool is running as a background task with task id: {CONV}/task-{number}\nTask Description: make",
               "MODEL", "RUNNING")


def message(index, number, said):
    return row(index, "SYSTEM_MESSAGE", f"<SYSTEM_MESSAGE>\n[Message] timestamp=x sender={CONV}/task-{number} priority=HIGH content={said}\n</SYSTEM_MESSAGE>")


def end(index, number):
    return message(index, number, f'Task id "{CONV}/task-{number}" finished with result:\nok')


# ---- What is a check ----------------------------------------------------------------------------------------------------------------------

CHECKS = [STATUS, ("manage_task", {"Action": "list"}), ("manage_task", {"Action": "STATUS"}),
          ("manage_task", {"Action": '"status"', "TaskId": '"task-8"'}),
          ("manage_task", {"Action": "status", "TaskId": "delivery-1"}), ("manage_task", {"Action": "status", "TaskId": ["task-8"]}),
          ("manage_subagents", {"Action": "list"}), ("command_status", {"CommandId": "1"}),
          ("command_status", {"CommandId": "1", "WaitDurationSeconds": 29}), ("command_status", {"CommandId": "1", "WaitDurationSeconds": "5"})]
NO_CHECKS = [("manage_task", {"Action": "kill", "TaskId": "task-8"}), ("manage_task", {"Action": "send_input", "TaskId": "task-8", "Input": "y"}),
             ("manage_task", {"Action": "restart"}), ("manage_task", {}), ("manage_task", {"Action": 5}), ("manage_subagents", {"Action": "kill_all"}),
             ("command_status", {"CommandId": "1", "WaitDurationSeconds": 30}), ("command_status", {"CommandId": "1", "WaitDurationSeconds": "300"}),
             ("send_command_input", {"CommandId": "1"}), ("read_terminal", {"Name": "t"})]


def commands(name):
    """The command lines of tests/data/NAME.txt as run_command calls."""
    return [("run_command", {"CommandLine": line}) for line in (TOP / "tests/data" / f"{name}.txt").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("tool, args", CHECKS + commands("waits"))
def test_the_second_check_is_denied(session, tool, args):
    assert session.ask(tool, args) == "allow"
    session.now += 5
    assert session.ask(tool, args) == "deny"
    assert session.reason.startswith("[agy:polling] ") and len(session.reason) <= 400 and "25 s left" in session.reason
    assert all(word in session.reason for word in ("wakes you", "kill", "send_input"))


@pytest.mark.parametrize("tool, args", NO_CHECKS + commands("no_waits"))
def test_what_is_no_check_leaves_no_trace(session, tool, args):
    assert [session.ask(tool, args) for _ in range(3)] == ["allow"] * 3
    assert session.ledger() is None


@pytest.mark.parametrize("key, value, want", [("IsDaemon", True, None), ("RunPersistent", "true", None), ("IsDaemon", False, 1)])
def test_a_daemon_may_wait(session, key, value, want):
    session.run("tail -f x.log", **{key: value})
    assert (session.ledger() or {}).get("checks") == want


def test_a_heredoc_for_an_interpreter_waits_and_a_written_script_does_not(session):
    script = "import time\nwhile True:\n    time.sleep(1)\n"
    session.run(f"cat > wait.py <<'EOF'\n{script}EOF")
    assert session.ledger() is None
    session.run(f"python3 - <<'EOF'\n{script}EOF")
    assert session.ledger()["checks"] == 1


# ---- Timers -------------------------------------------------------------------------------------------------------------------------------

PROMPTS = ["check on the background task", "Check the build", "poll job 7", "Wait for the tests to finish", "Keep watching the process", "CHECKING THE TASK",
           "see if the command is done", "See whether my build has finished", "monitor the subagents", "get the status of task-8",
           "has the test run? check", "Is the build finished?", "continue once the tests have finished", "verify that the job ended",
           "Remind the agent to poll the task", "Follow up on the running job", "look at the task output", "did the tests pass?", "check subprocess 7",
           "resume after the build completes", "Check the task and notify the user", "progress of the build",
           "Remind me to check the build", "Remind yourself to poll the task"]
HARMLESS = ["Remind the user to review the pull request", "Check on Tess", "wait for the latest news", "Remind the user to check the build", "checkout testing",
            "Continue with the docs", "Buy a watch", "Tell the user that the build needs a check", "process the mail", "", None, 5, ["check the task"],
            "Reminder for the user: check the build", "Prompt the user to check the job offers", "Remind Anna to check the tests", "see the latest build", "if the user is ready, go on", "Once done, write the summary", "the contest is over"]


CONDITIONS = [f"{CONV}/task-8", "task-8", '"task-8"', "Task-8", "task-8 finished"]


@pytest.mark.parametrize("args", [{"Prompt": p} for p in PROMPTS] + [{"Prompt": "go on", "TimerCondition": c} for c in CONDITIONS])
def test_a_timer_on_a_task(session, args):
    for checks, window in enumerate(WINDOWS + [600]):
        need = max(window, 30)
        session.ledger(checks=checks, last_check=NOW, strikes=0)
        for seconds, want in ((need, "allow"), (str(need), "allow"), (need - 1, "deny"), (str(need - 0.5), "deny"), ("-5", "deny"), (0, "deny")):
            session.ledger(checks=checks, last_check=NOW, strikes=0)
            assert session.ask("schedule", {"DurationSeconds": seconds, **args}) == want, (checks, seconds)
            assert session.ledger()["strikes"] == (want == "deny") and session.ledger()["checks"] == checks
    assert f"{need} s or more" in session.reason


@pytest.mark.parametrize("prompt", HARMLESS)
def test_other_timers_are_free(session, prompt):
    for condition in ("never", "any", "delivery-1", "multitask-8", None, 5):
        assert session.ask("schedule", {"DurationSeconds": "5", "Prompt": prompt, "TimerCondition": condition}) == "allow"
    assert session.ledger() is None


@pytest.mark.parametrize("seconds", ['"10"', "'10'", "10s", "10 s", "10 seconds", " 10 ", "1e1", "+10", 10.5, "-5"])
def test_any_way_to_write_a_short_span(session, seconds):
    assert session.ask("schedule", {"DurationSeconds": seconds, "Prompt": "check the task"}) == "deny"


@pytest.mark.parametrize("seconds", ['"30"', "30s", "1 minute", "2m", "1h", "45.5", "inf"])
def test_any_way_to_write_a_long_span(session, seconds):
    assert session.ask("schedule", {"DurationSeconds": seconds, "Prompt": "check the task"}) == "allow"


@pytest.mark.parametrize("seconds", ["soon", None, "", [], {}, True, "nan", float("inf")])
def test_a_timer_without_a_length_is_left_to_the_host(session, seconds):
    assert session.ask("schedule", {"DurationSeconds": seconds, "Prompt": "check the task"}) == "allow"


@pytest.mark.parametrize("expression, gap", [
    ("* * * * *", 60), ("*/1 * * * *", 60), ("*/5 * * * *", 300), ("*/7 * * * *", 240), ("0,1 * * * *", 60), ("0 * * * *", 3600), ("5 4 * * *", 86400),
    ("0-10/5 * * * *", 300), ("59 * * * *", 3600), ("0,50 * * * *", 600), ("10/20 * * * *", 1200), ("*/15 9-17 * * MON-FRI", 900), ("0 0,12 * * *", 43200),
    ("0,59 0,23 * * *", 60), ("0,59 0,23 * * MON", 3540), ("30 8 1 JAN ?", 86400), ("0 0 1 1 *", 86400), ("? * * * *", 60), ("*/10 * * * * *", 10), ("0 */2 * * * *", 120),
    ("0 0 0 * * ?", 86400), ("@hourly", 3600), ("@daily", 86400), ("@every 30s", 30), ("@every 1m30s", 90), ("@every 1h", 3600), ("@every 500ms", None),
    ("TZ=UTC */1 * * * *", 60), ('"*/1 * * * *"', 60), ("", None), ("soon", None), ("* * *", None), ("61 * * * *", None), ("5-1 * * * *", None),
    ("*/0 * * * *", 60), ("a b c d e", None), ("1-999999999 * * * *", None), ("*/x * * * *", None), (None, None), (5, None), ("@every", None), ("@", 86400),
])
def test_the_gap_of_a_cron_expression(expression, gap):
    assert agy_hook.cron_gap(expression) == gap


@pytest.mark.parametrize("checks, expression, want", [
    (0, "*/1 * * * *", "allow"), (1, "*/1 * * * *", "allow"), (2, "*/1 * * * *", "deny"), (2, "*/2 * * * *", "allow"), (5, "*/9 * * * *", "deny"),
    (5, "*/10 * * * *", "allow"), (0, "*/20 * * * * *", "deny")])
def test_a_cron_schedule_that_polls(session, checks, expression, want):
    session.ledger(checks=checks, last_check=NOW - 10_000, strikes=0)
    assert session.ask("schedule", {"CronExpression": expression, "Prompt": "poll the running task"}) == want
    assert session.ask("schedule", {"CronExpression": expression, "Prompt": "write the daily summary"}) == "allow"


# ---- The window ---------------------------------------------------------------------------------------------------------------------------

def test_twelve_checks_over_two_hours_each_second_accounted_for(session):
    """Between two checks every moment is tried in a copy of the ledger: denied before the window's end, with the right number of seconds."""
    windows = WINDOWS + [600] * 6
    for k, window in enumerate(windows):
        for passed in sorted({0, 1, window // 2, window - 1} & set(range(window))):
            kept = session.file.read_bytes()
            session.now += passed
            assert session.ask(*STATUS) == "deny" and f" {window - passed} s left" in session.reason, (k, passed)
            assert session.ledger() == dict(json.loads(kept), strikes=1)
            session.now -= passed
            session.file.write_bytes(kept)
        session.now += window
        assert session.ask(*STATUS) == "allow"
        assert (session.ledger()["checks"], session.ledger()["last_check"], session.ledger()["strikes"]) == (k + 1, session.now, 0)
    assert session.now - NOW == sum(windows) == 4962  # the twelfth check; two hours hold three more
    for _ in range(3):
        session.now += 600
        assert session.ask(*STATUS) == "allow"
    assert session.now - NOW < 7200 < session.now + 600 - NOW


def test_what_another_guard_denies_is_no_check(session):
    assert session.run(f"sleep 30; cat {session.brain}/.system_generated/logs/transcript_full.jsonl") == "deny"
    assert session.ledger() is None and session.ask(*STATUS) == "allow"


@pytest.mark.parametrize("checks, ago, left", [(1, 0, 30), (1, 29.5, 1), (1, 0.75, 30), (3, 180, 8), (99, 1, 599)])
def test_the_seconds_left_are_rounded_up(session, checks, ago, left):
    session.ledger(checks=checks, last_check=NOW - ago, strikes=0)
    assert session.ask(*STATUS) == "deny" and f" {left} s left" in session.reason


def test_a_denied_check_moves_no_window(session):
    session.ask(*STATUS)
    for _ in range(3):
        session.now += 9
        assert session.ask(*STATUS) == "deny"
    session.now = NOW + 30
    assert session.ask(*STATUS) == "allow"


WAYS_OUT = [("manage_task", {"Action": "status", "TaskId": f"{CONV}/task-99"}), ("manage_task", {"Action": "list"}),
            ("manage_task", {"Action": "status", "TaskId": "task-8", "toolSummary": "debug"}), ("manage_subagents", {"Action": "list"}),
            ("command_status", {"CommandId": "x"}), ("run_command", {"CommandLine": "sleep 10 # debug a hung task"}),
            ("run_command", {"CommandLine": "tail -f x"})]


@pytest.mark.parametrize("between", [[], [("view_file", {"AbsolutePath": "/nowhere"})] * 4,
                                     [("schedule", {"DurationSeconds": "600", "Prompt": "check the task"})],
                                     [("manage_task", {"Action": "kill", "TaskId": "task-8"})]])
@pytest.mark.parametrize("tool, args", WAYS_OUT)
def test_no_way_out(session, between, tool, args):
    assert session.ask(*STATUS) == "allow"
    for call in between:
        assert session.ask(*call) == "allow"
    session.now += 3
    assert session.ask(tool, args) == "deny" and " 27 s left" in session.reason


# ---- Strikes and the user -----------------------------------------------------------------------------------------------------------------

def strike_out(session):
    session.ask(*STATUS)
    assert [session.ask(*STATUS) for _ in range(5)] == ["deny"] * 4 + ["force_ask"]
    assert "Strike 5" in session.reason and session.ledger()["strikes"] == 5


def test_hung_tasks_stay_reachable_below_five_strikes(session):
    session.ledger(checks=3, last_check=NOW - 188, strikes=4)
    assert session.ask(*STATUS) == "allow"
    assert session.ledger()["strikes"] == 4


def test_from_the_fifth_strike_on_the_user_is_asked(session):
    strike_out(session)
    session.now += 10_000
    assert session.ask(*STATUS) == "force_ask" and " 0 s left" in session.reason
    assert (session.ledger()["strikes"], session.ledger()["checks"]) == (5, 1)
    assert session.ask("manage_task", {"Action": "kill", "TaskId": "task-8"}) == "allow"
    assert session.ask("schedule", {"DurationSeconds": "600", "Prompt": "check the task"}) == "allow"


POST = [  # name, what the payload of PostToolUse has otherwise, whether it is the approval
    ("the same call", {}, True),
    ("no toolCall", {"toolCall": None}, True),
    ("no step", {"stepIdx": None}, True),
    ("another step", {"stepIdx": 3}, False),
    ("another tool at the step", {"toolCall": {"name": "view_file", "args": {}}}, False),
    ("neither step nor toolCall", {"stepIdx": None, "toolCall": None}, False),
    ("no step, other arguments", {"stepIdx": None, "toolCall": {"name": "manage_task", "args": {"Action": "list"}}}, False),
    ("another conversation", {"conversationId": "other"}, False),
]


@pytest.mark.parametrize("change, approves", [p[1:] for p in POST], ids=[p[0] for p in POST])
def test_the_approval_of_a_force_ask(session, change, approves):
    strike_out(session)
    session.now += 7
    before = session.ledger()
    assert session.send("PostToolUse", session.payload(*STATUS, **change)) is None
    after = session.ledger()
    assert (after != before) == approves
    if approves:
        assert (after["strikes"], after["checks"], after["last_check"]) == (0, 2, session.now)
        assert session.send("PostToolUse", session.payload(*STATUS, **change)) is None and session.ledger() == after, "once only"
        session.now += 74
        assert session.ask(*STATUS) == "deny"
        session.now += 1
        assert session.ask(*STATUS) == "allow"


def test_a_post_tool_use_of_a_call_that_was_not_asked_about(session):
    session.ask(*STATUS)
    session.ask(*STATUS)
    before = session.ledger()
    session.send("PostToolUse", session.payload(*STATUS))
    assert session.ledger() == before and before["strikes"] == 1


def test_the_hook_answers_post_tool_use_with_an_empty_object(session):
    assert agy_hook.render("PostToolUse", None, None) == b"{}"


def test_reading_the_log_of_a_running_task_counts_as_a_strike(session):
    rows = [start(8)]
    session = Session(session.home, rows)
    log = session.brain / ".system_generated/tasks/task-8.log"
    log.parent.mkdir()
    log.write_text("tick\n")
    os.utime(log, (NOW, NOW))
    assert session.ask("view_file", {"AbsolutePath": str(log)}) == "deny" and "running" in session.reason
    assert session.run(f"rtk read {log}") == "deny"
    assert session.ledger()["strikes"] == 2 and session.ledger()["checks"] == 0
    assert session.ask(*STATUS) == "allow"


# ---- What the transcript says -------------------------------------------------------------------------------------------------------------

def test_a_status_call_on_a_finished_task_is_free_once(tmp_path):
    session = Session(tmp_path, [start(2), end(5, 2), start(8), end(9, 8), start(12)])
    session.ledger(checks=1, last_check=NOW - 1, strikes=0)
    status = lambda task: session.ask("manage_task", {"Action": "status", "TaskId": task})
    assert [status("task-2"), status(f"{CONV}/task-8"), status(f"{CONV}/task-2"), status("task-8"), status("task-12")] == ["allow"] * 2 + ["deny"] * 3
    assert status("other/task-2") == "force_ask" or session.ledger()["strikes"] == 4
    assert session.ledger()["checks"] == 1


def test_a_restart_ends_a_task_that_had_begun_and_no_other(tmp_path):
    notice = "[Notice] All your subagents and background tasks have been stopped due to server restart"
    session = Session(tmp_path, [start(8), row(9, "SYSTEM_MESSAGE", notice), start(12)])
    session.ledger(checks=1, last_check=NOW - 1, strikes=0)
    status = lambda number: session.ask("manage_task", {"Action": "status", "TaskId": f"task-{number}"})
    assert [status(8), status(7), status(12), status(8)] == ["allow"] + ["deny"] * 3


def test_a_silent_task_is_not_taken_for_finished(tmp_path):
    session = Session(tmp_path, [start(8)])
    session.ledger(checks=1, last_check=NOW - 16, strikes=0)
    assert session.ask(*STATUS) == "deny" and " 14 s left" in session.reason


WAITING = "The command appears to be waiting for input"


@pytest.mark.parametrize("tool, args", [STATUS, ("manage_task", {"Action": "list"}), ("run_command", {"CommandLine": "sleep 60"})])
@pytest.mark.parametrize("rows, waits", [([start(8), message(9, 8, WAITING)], True), ([start(8), message(9, 8, WAITING), end(10, 8)], False),
                                         ([start(8), row(9, "PLANNER_RESPONSE", WAITING, "MODEL")], False),
                                         ([start(8), message(9, 8, WAITING), message(10, 8, "still running")], False)])
def test_a_denial_says_that_a_task_waits_for_input(tmp_path, rows, waits, tool, args):
    session = Session(tmp_path, rows)
    session.ledger(checks=1, last_check=NOW, strikes=0, free=[8])
    assert session.ask(tool, args) == "deny"
    assert ("task-8 waits for input" in session.reason) == waits and len(session.reason) <= 400 and not session.reason.endswith("...")


def test_the_calls_that_a_denial_names_work_as_they_stand(session):
    session.ledger(checks=5, last_check=NOW, strikes=0)
    session.ask(*STATUS)
    _, _, call = session.reason.partition("schedule {")
    assert session.ask("schedule", json.loads("{" + call[:call.index("}") + 1])) == "allow"


# ---- The file -----------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("data", [
    b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe\0", b'{"checks": NaN}', b"{" * 5000, b'{"hello": "world"}', b'{"checks": "3", "last_check": "x"}',
    b'{"checks": -4, "last_check": -1, "strikes": -9}', b'{"checks": 1e999, "last_check": 1e999, "strikes": 1e999}', b'{"checks": true, "strikes": [1]}',
    b'{"checks": ' + b"9" * 5000 + b"}", b'{"checks": 5, "last_check": 1900000000, "strikes": 0}', b'{"free": 5, "pending": {"a": 1}}',
    b'{"free": ["x", {}], "pending": [1, [], [1, 2], [1, 2, 3], [[], {}, null]]}', b'\xef\xbb\xbf{"checks": 0}',
])
def test_a_broken_foreign_or_future_file_is_repaired(session, data):
    session.ledger(checks=0)
    session.file.write_bytes(data)
    assert session.ask(*STATUS) == "allow"
    ledger = session.ledger()
    assert 1 <= ledger["checks"] and ledger["last_check"] == NOW and 0 <= ledger["strikes"] < 5
    assert session.ask(*STATUS) == "deny" and session.ledger()["strikes"] == 1
    session.send("PostToolUse", session.payload(*STATUS))


def test_a_clock_that_runs_a_little_ahead_opens_no_window(session):
    session.ledger(checks=1, last_check=NOW + 2, strikes=0)
    assert session.ask(*STATUS) == "deny" and " 30 s left" in session.reason


def test_huge_numbers_of_strikes_are_kept(session):
    session.ledger(checks=7, last_check=NOW, strikes=10 ** 9)
    assert session.ask(*STATUS) == "force_ask" and session.ledger()["strikes"] == 10 ** 9 + 1


@pytest.mark.parametrize("conversation", ["", "../../etc/passwd", "a/b", "..", "x" * 300, "a\0b", "\ud800", None, 7, "CON"])
def test_any_conversation_id(tmp_path, conversation):
    session = Session(tmp_path, conversation=conversation)
    assert [session.ask(*STATUS), session.ask(*STATUS)] == ["allow", "deny"]
    folder = tmp_path / ".gemini/antigravity/agy_state/ledger"
    assert [p for p in folder.iterdir() if p.suffix == ".json"] == [session.file]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".gemini"]


@pytest.mark.skipif(os.name == "nt", reason="modes of files are other things on Windows")
def test_modes(session):
    session.ask(*STATUS)
    assert session.file.parent.stat().st_mode & 0o777 == session.file.parent.parent.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in session.file.parent.iterdir()} == {0o600}


def fail(*args, **named):
    raise PermissionError(13, "denied")


@pytest.mark.parametrize("name", ["state_path", "update_file"])
def test_an_unwritable_folder_lets_the_decision_stand_on_what_is_known(session, monkeypatch, name):
    monkeypatch.setattr(agy_hook, name, fail)
    assert session.ask(*STATUS) == "allow"
    session.ledger(checks=1, last_check=NOW - 5, strikes=0)
    assert session.ask(*STATUS) == "deny"
    session.ledger(checks=1, last_check=NOW - 30, strikes=4)
    assert session.ask(*STATUS) == "allow"
    session.ledger(checks=1, last_check=NOW - 5, strikes=4)
    assert session.ask(*STATUS) == "force_ask"
    session.send("PostToolUse", session.payload(*STATUS))


def test_a_planted_link_is_not_followed(session, tmp_path):
    target = tmp_path / "target.json"
    target.write_text("{}")
    session.ledger(checks=0)
    session.file.unlink()
    session.file.symlink_to(target)
    assert [session.ask(*STATUS), session.ask(*STATUS)] == ["allow", "deny"]
    assert target.read_text() == "{}" and not session.file.is_symlink()


def test_old_ledgers_are_swept_once_a_day(session):
    folder = session.file.parent
    session.ask(*STATUS)

    def make(name, days):
        (folder / name).write_text("{}")
        os.utime(folder / name, (time.time() - days * 86400,) * 2)

    def rest():
        for name, days in (("old.json", 31), ("old.json.lock", 31), ("old.json.77.ab", 31), ("young.json", 29), ("young.json.lock", 60), ("notes.txt", 60)):
            make(name, days)
        session.ask(*STATUS)
        return sorted(path.name for path in folder.iterdir() if CONV not in path.name and path.name[0] != ".")

    everything = ["notes.txt", "old.json", "old.json.77.ab", "old.json.lock", "young.json", "young.json.lock"]
    assert rest() == everything, "within a day of the last sweep"
    make(".swept", 1.01)
    assert rest() == ["notes.txt", "young.json", "young.json.lock"]
    assert rest() == everything


def start_hook(session, payload):
    process = subprocess.Popen([sys.executable, "-I", "-S", str(TOP / "agy_hook.py"), "PreToolUse"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env={"HOME": str(session.home), "PATH": "/nowhere"})
    process.stdin.write(payload)
    process.stdin.flush()
    return process


@pytest.mark.parametrize("round", range(2))
def test_of_32_processes_at_the_same_instant_one_passes_and_31_strikes_are_counted(session, round):
    payload = json.dumps(session.payload(*STATUS)).encode()
    processes = [start_hook(session, payload) for _ in range(32)]
    for process in processes:  # they all read to the end of stdin: closing it starts them together
        process.stdin.close()
    answers = [json.loads(process.stdout.read()) for process in processes]
    for process in processes:
        process.stdout.close()
        assert process.wait(30) == 0
    decisions = [answer["decision"] for answer in answers]
    assert (decisions.count("allow"), decisions.count("deny"), decisions.count("force_ask")) == (1, 4, 27)
    ledger = session.ledger()
    assert (ledger["checks"], ledger["strikes"]) == (1, 31) and math.isclose(ledger["last_check"], time.time(), abs_tol=120)
