"""What the transcript says of a background task: each case is rows, and what the task's state then is."""
import importlib
import json
import os
import time

import pytest

agy_hook = importlib.import_module("agy_hook")

CONV = "b775490f-5926-4569-8a0c-61f8d60f1aa0"
OTHER = "0c11f3d2-77aa-4e0b-9d51-5a1c2b3d4e5f"
NOW = 1_800_000_000


def row(index, source, kind, content="", status="DONE", **more):
    return dict(step_index=index, source=source, type=kind, status=status, created_at=f"2026-11-29T20:{index // 60:02}:{index % 60:02}Z",
                content=content, **more)


def call(index, *names):
    return row(index, "MODEL", "PLANNER_RESPONSE", tool_calls=[{"name": name, "args": {}} for name in names])


def start(number, index=None, kind="RUN_COMMAND", status="RUNNING", source="MODEL", conv=CONV):
    index = number if index is None else index
    return row(index, source, kind, f"Created At: 2026-11-29T20:32:30Z\nTool is running as a background task with task id: {conv}/task-{number}\n"
               f"Task Description: make\nTask logs are available at: file:///home/dev/tasks/task-{number}.log", status)


def message(index, said, sender=f"{CONV}/task-8", source="SYSTEM", kind="SYSTEM_MESSAGE"):
    return row(index, source, kind, "The following is a <SYSTEM_MESSAGE> not actually sent by the user.\n\n<SYSTEM_MESSAGE>\n[Message] "
               f"timestamp=2026-11-29T20:32:36Z sender={sender} priority=MESSAGE_PRIORITY_HIGH content={said}\n</SYSTEM_MESSAGE>")


def end(index, how="finished", number=8, conv=CONV, **more):
    more.setdefault("sender", f"{conv}/task-{number}")
    return message(index, f'Task id "{conv}/task-{number}" {how} with result:\n\nThe command exited with code 0.', **more)


def answer(index, text, kind="GENERIC"):
    return row(index, "MODEL", kind, "Created At: 2026-11-29T20:32:31Z\nCompleted At: 2026-11-29T20:32:31Z\n" + text)


STATUS = f"Task: {CONV}/task-8\nStatus: %s\nLog: /home/dev/tasks/task-8.log\nLog output:\ntick\n"
RESTART = "[Notice] All your subagents and background tasks have been stopped due to server restart"
WAITING = "The command appears to be waiting for input"
QUOTE = f'sender={CONV}/task-8 priority=X content=Task id "{CONV}/task-8" finished with result:'

CASES = [  # name, rows, state while the log moves
    ("started", [start(8)], "running"),
    ("finished", [start(8), end(11)], "finished"),
    ("failed", [start(8), end(11, "failed")], "finished"),
    ("canceled", [start(8), end(11, "was canceled")], "finished"),
    ("the start is in a newer build's row", [start(8, kind="GENERIC"), end(11)], "finished"),
    ("the end of another task", [start(8), end(11, number=80)], "running"),
    ("the end of another conversation's task 8", [start(8), end(11, conv=OTHER)], "running"),
    ("quoted by the model", [start(8), row(9, "MODEL", "PLANNER_RESPONSE", QUOTE)], "running"),
    ("quoted by the user", [start(8), row(9, "USER_EXPLICIT", "USER_INPUT", QUOTE), end(10, source="USER_EXPLICIT")], "running"),
    ("quoted in a tool's output", [start(8), answer(9, "\nThe command exited with code 0.\nOutput:\n" + QUOTE, "RUN_COMMAND")], "running"),
    ("quoted in arguments", [start(8), row(9, "MODEL", "PLANNER_RESPONSE", tool_calls=[{"name": "run_command", "args": {"CommandLine": QUOTE}}])],
     "running"),
    ("quoted by a subagent", [start(8), message(9, QUOTE, sender=OTHER)], "running"),
    ("quoted by another task", [start(8), message(9, QUOTE, sender=f"{CONV}/task-9")], "running"),
    ("quoted in the checkpoint", [start(8), row(9, "SYSTEM", "CHECKPOINT", QUOTE)], "running"),
    ("quoted behind the first line of its own message", [start(8), message(9, "still running\n" + QUOTE)], "running"),
    ("a start quoted in a tool's output", [answer(9, start(8)["content"])], "finished"),
    ("a start at another index", [start(8, index=9)], "finished"),
    ("killed", [start(8), call(9, "manage_task"), answer(10, f'Task "{CONV}/task-8" cancelled.')], "finished"),
    ("killed by the second call of a step", [start(8), call(9, "view_file", "manage_task"), answer(11, f'Task "{CONV}/task-8" cancelled.')], "finished"),
    ("an MCP tool says killed", [start(8), call(9, "call_mcp_tool"), answer(10, f'Task "{CONV}/task-8" cancelled.')], "running"),
    ("a status of DONE", [start(8), call(9, "manage_task"), answer(10, STATUS % "DONE")], "finished"),
    ("a status of ERROR, its row before the model's", [start(8), answer(10, STATUS % "ERROR"), call(9, "manage_task")], "finished"),
    ("a status of RUNNING", [start(8), call(9, "manage_task"), answer(10, STATUS % "RUNNING")], "running"),
    ("a file that looks like a status", [start(8), call(9, "run_command"), answer(10, STATUS % "DONE")], "running"),
    ("a restart after it", [start(8), row(9, "SYSTEM", "SYSTEM_MESSAGE", RESTART)], "finished"),
    ("a restart before it", [row(7, "SYSTEM", "SYSTEM_MESSAGE", RESTART), start(8)], "running"),
    ("a restart quoted by the user", [start(8), row(9, "USER_EXPLICIT", "USER_INPUT", RESTART)], "running"),
    ("a restart quoted by a subagent", [start(8), message(9, RESTART, sender=OTHER)], "running"),
    ("it waits for input", [start(8), message(9, WAITING)], "waiting"),
    ("another task waits for input", [start(8), message(9, WAITING, sender=f"{CONV}/task-9")], "running"),
    ("it waited, and then went on", [start(8), message(9, WAITING), message(10, "still running after 60 s")], "running"),
    ("it waited, and then ended", [start(8), message(9, WAITING), end(10)], "finished"),
    ("the model says that it waits", [start(8), row(9, "MODEL", "PLANNER_RESPONSE", WAITING + f" {CONV}/task-8")], "running"),
    ("a rewind brings the number back", [start(8), end(11), start(8)], "running"),
    ("a rewind, and then the end", [start(8), end(11), start(8), end(12)], "finished"),
    ("rows in disorder", [start(8), end(11), row(10, "MODEL", "PLANNER_RESPONSE", "slow"), row(9, "MODEL", "GENERIC", "slow")], "finished"),
    ("nothing at all", [row(0, "USER_EXPLICIT", "USER_INPUT", "hello")], "finished"),
]


def jsonl(rows, compact=False):
    text = "".join(json.dumps(r, ensure_ascii=False, separators=(",", ":") if compact else None) + "\n" for r in rows)
    return text.encode("utf-8", "surrogatepass")


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / CONV / ".system_generated" / "logs"
    folder.mkdir(parents=True)
    return folder


def state(logs, number=8, now=NOW, log_path=None):
    world = agy_hook.World({}, str(logs.parents[2]), now, {})
    return agy_hook.task_state(world, str(logs), number, log_path)


def moving_log(logs, silent=0, number=8):
    path = logs.parent / "tasks" / f"task-{number}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"tick\r\n")
    os.utime(path, (NOW - silent, NOW - silent))


@pytest.mark.parametrize("name", ["transcript.jsonl", "transcript_full.jsonl", "both"])
@pytest.mark.parametrize("rows, want", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_state(logs, rows, want, name):
    for file in ["transcript.jsonl", "transcript_full.jsonl"] if name == "both" else [name]:
        (logs / file).write_bytes(jsonl(rows, compact=name == "both"))
    assert state(logs) == want


@pytest.mark.parametrize("rows, silent, want", [
    ([start(8)], 15, "running"),
    ([start(8)], 299, "running"),
    ([start(8)], 300, "finished"),
    ([start(8), message(9, WAITING)], 9999, "waiting"),
    ([], 299, "running"),
    ([], 300, "finished"),
    ([start(8)], None, "running"),
    ([], None, "finished"),
])
def test_a_silent_log(logs, rows, silent, want):
    (logs / "transcript_full.jsonl").write_bytes(jsonl(rows))
    if silent is not None:
        moving_log(logs, silent)
    assert state(logs) == want


def test_the_log_may_lie_elsewhere(logs, tmp_path):
    path = tmp_path / "other.log"
    path.write_bytes(b"")
    os.utime(path, (NOW - 400, NOW - 400))
    (logs / "transcript.jsonl").write_bytes(jsonl([start(8)]))
    assert state(logs, log_path=str(path)) == "finished"


FILLER = [row(i, "MODEL", "GENERIC", f"noise /task-81 /task-{i} \u2028 " + "x" * 700) for i in range(100, 900)]


@pytest.mark.parametrize("before, after", [(0, 0), (800, 0), (0, 800), (800, 800)])
@pytest.mark.parametrize("rows, want", [([start(8), end(11)], "finished"), ([start(8)], "running"), ([start(8), end(11), start(8)], "running"),
                                        ([start(8), row(9, "SYSTEM", "SYSTEM_MESSAGE", RESTART)], "finished")])
def test_the_notice_may_stand_far_back(logs, rows, want, before, after):
    (logs / "transcript_full.jsonl").write_bytes(jsonl(FILLER[:before] + rows + FILLER[:after]))
    moving_log(logs)
    assert state(logs) == want


def test_a_line_longer_than_a_block(logs, monkeypatch):
    monkeypatch.setattr(agy_hook, "BLOCK", 4096)
    monkeypatch.setattr(agy_hook, "TAIL", 512)
    long = row(12, "MODEL", "GENERIC", "y" * 20000)
    (logs / "transcript_full.jsonl").write_bytes(jsonl([start(8), long, end(13), long, long]))
    assert state(logs) == "finished"


FULL_AND_COMPACT = [  # name, full, compact, state
    ("the full file began anew", [row(30, "MODEL", "GENERIC", "x")], [start(8), end(11)], "finished"),
    ("the compact file began anew", [start(8), end(11)], [row(30, "MODEL", "GENERIC", "x")], "finished"),
    ("the full file lost the end", [start(8)], [start(8), end(11)], "finished"),
    ("the compact file lost the end", [start(8), end(11)], [start(8)], "finished"),
    ("the full file lost the start of the second run", [start(8), end(11)], [start(8), end(11), dict(start(8), created_at="2026-11-29T21:00:00Z")],
     "running"),
]


@pytest.mark.parametrize("full, compact, want", [c[1:] for c in FULL_AND_COMPACT], ids=[c[0] for c in FULL_AND_COMPACT])
def test_two_files_that_differ(logs, full, compact, want):
    (logs / "transcript_full.jsonl").write_bytes(jsonl(full))
    (logs / "transcript.jsonl").write_bytes(jsonl(compact))
    moving_log(logs)
    assert state(logs) == want


@pytest.mark.parametrize("data, want", [
    (jsonl([start(8)]) + jsonl([end(11)])[:-40], "running"),
    (jsonl([start(8), end(11)])[:-1], "finished"),
    (jsonl([start(8)]) + jsonl([end(11)])[30:], "running"),
    (jsonl([start(8), end(11)]).replace(b"\n", b"\r\n"), "finished"),
    (b"\xef\xbb\xbf" + jsonl([start(8)]), "running"),
    (jsonl([start(8)]) + b"\0\0\0\xff\xfe\n" + jsonl([end(11)]), "finished"),
    (jsonl([start(8)]) + b"[" * 100000 + b'/task-8 "RUNNING"\n', "running"),
    (jsonl([start(8)]) + b'["/task-8 SYSTEM_MESSAGE\\""]\n{"content": 5, "x": "/task-8 Status: "}\n'
     b'{"step_index": "8", "content": null, "y": "/task-8 Status: "}\n',
     "running"),
    (b"", "finished"),
    (b"\n\n\n", "finished"),
])
def test_damaged_files(logs, data, want):
    (logs / "transcript_full.jsonl").write_bytes(data)
    assert state(logs) == want


def test_a_long_compact_notice_is_cut_in_the_middle(logs):
    cut = end(11)
    cut["content"] = cut["content"][:400] + "x" * 3000 + "\n<truncated 2206 bytes>\n" + "y" * 900
    cut["truncated_fields"] = ["content"]
    (logs / "transcript.jsonl").write_bytes(jsonl([start(8), cut]))
    assert state(logs) == "finished"


@pytest.mark.parametrize("folder", ["", "/nowhere/at/all", "a\0b", "\ud800", "/dev/null", "x" * 5000])
def test_no_folder(folder):
    assert agy_hook.task_state(agy_hook.World({}, "/nowhere", NOW, {}), folder, 8) == "finished"


def test_what_is_no_file_is_not_opened(logs):
    (logs / "transcript.jsonl").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(logs / "transcript_full.jsonl")
    assert state(logs) == "finished"


def test_a_big_file_is_searched_as_text(logs):
    """Only for a failure that is unmistakable: parsing 60 MB of JSON takes many seconds."""
    (logs / "transcript_full.jsonl").write_bytes(jsonl([start(8)]) + jsonl(FILLER) * 90)
    moving_log(logs)
    parsed, real = [], agy_hook.parse_json
    try:
        agy_hook.parse_json = lambda text: parsed.append(1) or real(text)
        began = time.monotonic()
        assert state(logs) == "running"
        print(f"{time.monotonic() - began:.3f} s")
    finally:
        agy_hook.parse_json = real
    assert len(parsed) == 1
