"""A made-up home folder, workspace and rtk for the tests, and the hook started in it as the host starts it.

The names that the case files use: {HOME}, {WS} a workspace, {CONV} and {CONV2} conversations, {BRAIN} the folder of {CONV},
{SG} its .system_generated. Task 2 of {CONV} has finished, task 8 runs, step 15 spilled its result.
"""
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
HOOK = TOP / "agy_hook.py"
DATA = TOP / "tests" / "data"
CONV, CONV2 = "b775490f-5926-4569-8a0c-61f8d60f1aa0", "0c11f3d2-77aa-4e0b-9d51-5a1c2b3d4e5f"
MODULE_FORM = "import sys; sys.path.insert(0, {folder!r}); import agy_hook; sys.exit(agy_hook.main())"

# Answers like the real rtk for a few commands and counts its starts in $RTK_LOG.
RTK_STUB = r"""#!/bin/sh
if [ -n "$RTK_LOG" ]; then printf '%s\n' "$*" >>"$RTK_LOG"; fi
if [ "$1" = --version ]; then echo 'rtk 1.1.0'; exit 0; fi
if [ "$1" != rewrite ]; then exit 64; fi
shift
if [ "$1" = -- ]; then shift; fi
case $1 in
  'git status' | 'git diff'* | 'git log'* | ls* | 'grep '* | 'find '* | 'cargo test'*) printf 'rtk %s' "$1"; exit 3 ;;
  'cat '*) printf 'rtk read %s' "${1#cat }"; exit 3 ;;
  'rtk '*) printf '%s' "$1"; exit 3 ;;
esac
exit 1
"""


def pixel():
    def chunk(kind, body):
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\2\0\0\0") + chunk(b"IDAT", zlib.compress(b"\0\0\0\xff")) + chunk(b"IEND", b"")


# path below the workspace -> content
WORKSPACE = {
    "src/big.py": "".join(f"def number_{i}():\n    return {i}\n" for i in range(600)),
    "src/small.py": "".join(f"value_{i} = {i}\n" for i in range(40)),
    "src/wide.txt": ("wide " * 640 + "\n") * 20,
    "src/exact.txt": "one line\n" * 150,
    "src/over.txt": "one line\n" * 151,
    "empty.txt": "",
    "logo.png": pixel(),
    "paper.pdf": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + os.urandom(40_000),
    "latin1.txt": "caf\xe9 au lait\n".encode("latin-1") * 300,
    "data.bin": bytes(range(256)) * 256,
    "with space/it's big.txt": "a line\n" * 400,
    "AGENTS.md": "- a rule\n" * 400,
    ".agents/rules/style.md": "- a rule\n" * 400,
    "docs/notes.md": "what lies in .system_generated is the host's own\n" * 5,
    **{f"many/f{i:03}.txt": "x\n" for i in range(200)},
    **{f"few/f{i}.txt": "x\n" for i in range(5)},
    "benchmarks/task_01.json": "{}\n",
    "benchmarks/run.py": "print(1)\n",
    "evaluators/score.py": "def score():\n    return 1\n",
    "ground_truth/answers.json": "{}\n",
    "prompt_templates/judge.md": "Judge it.\n",
    "tools/eval_accuracy.py": "print(1)\n",
}
SPILLS = {
    "steps/15/output.txt": "".join(f"row {i}: some data of this row\n" for i in range(3000)),
    "steps/21/content.md": "# A page\n" + "some text\n" * 900,
    "tasks/task-2.log": "ok\r\n" * 20,
    "tasks/task-8.log": "tick\n" * 20,
}


def put(path, content):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def steps(conversation, home):
    """The rows of a transcript in which task 2 has ended and task 8 has not; the last row only quotes an end notice (transcript.md §4)."""
    logs = f"file://{home}/.gemini/antigravity/brain/{conversation}/.system_generated/tasks"

    def row(index, source, kind, status="DONE", **more):
        return {"step_index": index, "source": source, "type": kind, "status": status, "created_at": f"2026-11-29T20:32:{index + 20}Z", **more}

    def call(command):
        return [{"name": "run_command", "args": {"CommandLine": command, "Cwd": "/w", "WaitMsBeforeAsync": 1000}}]

    def started(task, command):
        return (f"Created At: 2026-11-29T20:32:30Z\nTool is running as a background task with task id: {conversation}/task-{task}\n"
                f"Task Description: {command}\nTask logs are available at: {logs}/task-{task}.log")

    ended = (f'<SYSTEM_MESSAGE>\n[Message] timestamp=2026-11-29T20:32:36Z sender={conversation}/task-2 priority=MESSAGE_PRIORITY_HIGH content='
             f'Task id "{conversation}/task-2" finished with result:\n\nThe command exited with code 0.\nOutput:\nok\n\n'
             f'Log: {logs}/task-2.log\n</SYSTEM_MESSAGE>')
    notice = "The following is a <SYSTEM_MESSAGE> not actually sent by the user. It is provided by the system as important information to pay attention to.\n\n"
    return [
        row(0, "USER_EXPLICIT", "USER_INPUT", content="<USER_REQUEST>\nbuild it, please\n</USER_REQUEST>\n"),
        row(1, "MODEL", "PLANNER_RESPONSE", tool_calls=call("make test")),
        row(2, "MODEL", "RUN_COMMAND", "RUNNING", content=started(2, "make test")),
        row(5, "SYSTEM", "SYSTEM_MESSAGE", content=notice + ended),
        row(7, "MODEL", "PLANNER_RESPONSE", tool_calls=call("make bench")),
        row(8, "MODEL", "RUN_COMMAND", "RUNNING", content=started(8, "make bench")),
        row(9, "MODEL", "PLANNER_RESPONSE", content=f'Waiting. This is only a quote: Task id "{conversation}/task-8" finished with result:'),
    ]


def put_transcripts(folder, rows):
    """transcript_full.jsonl with native arguments and transcript.jsonl with each argument as JSON text, as the host writes them."""
    texts = []
    for row in rows:
        calls = [{**c, "args": {k: json.dumps(v) for k, v in c["args"].items()}} for c in row.get("tool_calls", [])]
        texts.append({**row, "tool_calls": calls} if calls else row)
    for name, what in (("transcript_full.jsonl", rows), ("transcript.jsonl", texts)):
        put(folder / "logs" / name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in what))


def build(root):
    """Builds it all below `root` (the stub rtk in root/bin) and returns the names as a dict."""
    root = Path(root)
    home, ws = root / "home", root / "home" / "work" / "shop"
    brain = home / ".gemini" / "antigravity" / "brain" / CONV
    generated = brain / ".system_generated"
    put_transcripts(generated, steps(CONV, home))
    put_transcripts(home / ".gemini" / "antigravity-cli" / "brain" / CONV2 / ".system_generated", steps(CONV2, home))
    for folder, files in ((generated, SPILLS), (ws, WORKSPACE)):
        for name, content in files.items():
            put(folder / name, content)
    put(brain / "implementation_plan.md", "".join(f"- step {i}\n" for i in range(300)))
    put(brain / "mcp" / "agy" / "read_transcript.json", "{}")
    put(home / ".gemini" / "config" / "hooks.json", "{}\n")
    put(home / ".gemini" / "config" / "mcp_config.json", '{"mcpServers": {}}\n')
    (ws / "link.jsonl").symlink_to(generated / "logs" / "transcript.jsonl")
    (ws / "brainlink").symlink_to(brain)
    os.mkfifo(ws / "pipe")
    put_program(root / "bin" / "rtk", RTK_STUB)
    return {"ROOT": str(root), "HOME": str(home), "WS": str(ws), "CONV": CONV, "CONV2": CONV2, "SG": str(generated), "BRAIN": str(brain)}


def put_program(path, text):
    put(path, text)
    os.chmod(path, 0o755)


def fill(value, names):
    """`value` with every {NAME} in its strings replaced."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, dict):
        return {fill(k, names): fill(v, names) for k, v in value.items()}
    return [fill(v, names) for v in value] if isinstance(value, list) else value


def payload(names, tool, args, **more):
    return {"toolCall": {"name": tool, "args": args}, "stepIdx": 11, "conversationId": CONV, "workspacePaths": [names["WS"]], "modelName": "m",
            "artifactDirectoryPath": names["BRAIN"], "transcriptPath": names["SG"] + "/logs/transcript_full.jsonl", **more}


def command(names, line, **args):
    return payload(names, "run_command", {"CommandLine": line, "Cwd": names["WS"], "WaitMsBeforeAsync": 500, **args})


def environment(names, **more):
    return {"PATH": f"{names['ROOT']}/bin:/usr/bin:/bin", "RTK_LOG": names["ROOT"] + "/rtk.log", "HOME": names["HOME"], "LANG": "C.UTF-8", **more}


def start(names, data, event="PreToolUse", python=sys.executable, hook=HOOK, module=False, env=None, **options):
    """The finished process of one event: data is bytes, or what becomes JSON."""
    how = ["-c", MODULE_FORM.format(folder=str(Path(hook).parent))] if module else [str(hook)]
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return subprocess.run([python, "-I", "-S", *how, *([event] if event else [])], input=data, capture_output=True, timeout=30,
                          env=environment(names) if env is None else env, cwd=names["HOME"] + "/.gemini/config", **options)


def answer(names, data, **options):
    """The decision object, after the check that it is one line of ASCII, that the exit code is 0 and that there are no other keys."""
    done = start(names, data, **options)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert text.count("\n") == 1, text
    value = json.loads(text)
    assert set(value) <= {"decision", "reason", "overwrite"}
    return value


def rtk_starts(names):
    log = Path(names["ROOT"], "rtk.log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def state(names, name):
    return Path(names["HOME"], ".gemini", "antigravity", "agy_state", name)


def log_lines(names):
    path = state(names, "decisions.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def prepare(names, case):
    """Configuration and ledger that a case asks for, and its environment."""
    data = Path(names["HOME"], ".gemini", "antigravity")
    if case.get("config") is not None:
        put(data / "agy_config.json", case["config"] if isinstance(case["config"], str) else json.dumps(case["config"]))
    if case.get("ledger") is not None:
        ledger = dict(case["ledger"])
        if "ago" in ledger:
            ledger["last_check"] = time.time() - ledger.pop("ago")
        put(data / "agy_state" / "ledger" / f"{CONV}.json", json.dumps(ledger))
    env = environment(names, **case.get("env", {}))
    return env if case.get("rtk", True) else {**env, "PATH": "/usr/bin:/bin"}


def check(case, root):
    """Runs one case of tests/data/hook_cases/*.jsonl. The keys: name; tool and args, or raw (what is sent); event; config, ledger, rtk (false
    for none), env; want (one decision or several), exact (the whole answer), reason (texts in it), overwrite, spawns (of rtk, at most)."""
    names = build(root)
    case = fill(case, names)
    env = prepare(names, case)
    sent = case["raw"].encode("utf-8", "surrogateescape") if "raw" in case else {**payload(names, case["tool"], case["args"]), **case.get("payload", {})}
    got = answer(names, sent, event=case.get("event", "PreToolUse"), env=env)
    shown = (case, got)
    if "exact" in case:
        assert got == case["exact"], shown
        return
    assert got["decision"] in ([case["want"]] if isinstance(case["want"], str) else case["want"]), shown
    assert len(got.get("reason", "").encode()) <= 400, shown
    for text in case.get("reason", ()):
        assert text.lower() in got.get("reason", "").lower(), shown
    if "overwrite" in case:
        assert got.get("overwrite") == case["overwrite"], shown
    assert rtk_starts(names) <= case.get("spawns", 9), shown


def read_cases(path):
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]


def unescape(text):
    r"""The tables write a newline as \n, a tab as \t, a carriage return as \r and a backslash as \\."""
    names, parts, escaped = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}, [], False
    for c in text:
        if escaped or c != "\\":
            parts.append(names.get(c, "\\" + c) if escaped else c)
            escaped = False
        else:
            escaped = True
    return "".join(parts)


def read_table(name):
    """The rows of a .tsv below tests/data, unescaped; lines that begin with # and the heading left out."""
    lines = (DATA / name).read_text("utf-8").split("\n")
    return [[unescape(cell) for cell in line.split("\t")] for line in lines if line and not line.startswith("#")][1:]
