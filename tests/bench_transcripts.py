"""Figures of the transcript tools on generated transcripts: python3 tests/bench_transcripts.py [MB ...]   (10 100 1000 where none is given)

Each call is measured in a process of its own, so that its peak memory is its own; grep and a loop of json.loads read the same files.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES = """def parse(self, text, *, strict=False):
    \"\"\"The value of one document; ValueError where it is none.\"\"\"
    if not text.strip():
        raise ValueError(f"nothing to parse in {self.path!r}")
src/module/parser.py:42: AssertionError: assert ['a', 'b'] == ["a", "c"]
FAILED tests/test_parser.py::test_rows - AssertionError: the transcript says otherwise
\tmodified:   src/module/reader.py
4394b7a (HEAD -> master) Read naïve text and 日本語 as it stands
{"name": "index", "value": [1, 2, 3], "path": "C:\\\\work\\\\shop"}
warning: unused import `std::collections::HashMap`
 120 |     return [row for row in rows if row["kind"] != "noise"]
""".split("\n")
NEEDLE, NEVER = "tangerine", "tangelo"
ONE_CALL = """
import json, os, resource, sys, time
sys.path.insert(0, sys.argv[1])
import agy_mcp
class Context:
    conversation = None
    def check(self): pass
    def remaining(self): return 1000
    def progress(self, *told): pass
os.environ["HOME"] = sys.argv[2]
arguments, began = json.loads(sys.argv[4]), time.perf_counter()
text = getattr(agy_mcp, sys.argv[3])(arguments, Context())
took = time.perf_counter() - began
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(text.encode())]))
"""
CALLS = [  # (name, tool, arguments, word that grep looks for)
    ("read_transcript, last 3 turns", "read_transcript", {}, None),
    ("read_transcript, all turns, 100 KB", "read_transcript", {"lastTurns": 0, "maxBytes": 100000}, None),
    ("query_transcript, no match", "query_transcript", {"query": NEVER, "roles": ["all"]}, NEVER),
    ("query_transcript, few matches", "query_transcript", {"query": NEEDLE, "roles": ["all"]}, NEEDLE),
    ("query_transcript, many matches", "query_transcript", {"query": "transcript", "roles": ["all"]}, "transcript"),
    ("query_transcript, one step", "query_transcript", {"stepIndex": 7}, None),
]


def rows(dice):
    """Rows of a conversation without end: a user turn every 25 steps, a call and its result in turn."""
    blobs = ["\n".join(dice.choices(LINES, k=dice.choice((3, 10, 40, 200)))) for _ in range(200)]
    index = 0
    while True:
        row = {"step_index": index, "source": "MODEL", "type": "GENERIC", "status": "DONE", "created_at": "2026-11-01T00:16:52Z"}
        if index % 25 == 0:
            row.update(source="USER_EXPLICIT", type="USER_INPUT", content=f"<USER_REQUEST>\ndo {index}\n</USER_REQUEST>")
        elif index % 2:
            call = {"name": "run_command", "args": {"CommandLine": f"grep -n x{index} src", "Cwd": "/home/dev/w", "WaitMsBeforeAsync": 5000}}
            row.update(type="PLANNER_RESPONSE", content=f"I look at {index}.", thinking=dice.choice(blobs)[:400], tool_calls=[call])
        else:
            row["content"] = "Created At: x\nCompleted At: y\n\nThe command exited with code 0.\nOutput:\n" + dice.choice(blobs)
        if index == 902:
            row["content"] += " " + NEEDLE
        yield row
        index += 1


def compact(row):
    row = dict(row)
    if len(row.get("content", "")) > 4000:
        row.update(content=row["content"][:2000] + "\n<truncated 99 bytes>\n" + row["content"][-1900:], truncated_fields=["content"])
    if "tool_calls" in row:
        row["tool_calls"] = [{"name": c["name"], "args": {k: json.dumps(v) for k, v in c["args"].items()}} for c in row["tool_calls"]]
    return row


def write(home, megabytes):
    """Both files of one conversation, the full one of that many MB; returns their paths."""
    logs = Path(home) / ".gemini/antigravity/brain" / f"bench-{megabytes}" / ".system_generated/logs"
    logs.mkdir(parents=True)
    paths, written = [logs / "transcript_full.jsonl", logs / "transcript.jsonl"], 0
    with open(paths[0], "w", encoding="utf-8") as full, open(paths[1], "w", encoding="utf-8") as short:
        for row in rows(random.Random(1)):
            written += full.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
            short.write(json.dumps(compact(row), ensure_ascii=False, separators=(",", ":")) + "\n")
            if written >= megabytes * 1_000_000:
                return paths


def loop(paths):
    began = time.perf_counter()
    for path in paths:
        with open(path, "rb") as file:
            for line in file:
                json.loads(line)
    return time.perf_counter() - began


def grep(paths, word):
    if not shutil.which("grep"):
        return None
    took = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run(["grep", "-a", "-c", word, *map(str, paths)], stdout=subprocess.PIPE)  # not /dev/null: grep would stop at the first
        took.append(time.perf_counter() - began)
    return min(took)


def call(home, tool, arguments):
    """(seconds, peak MB, bytes of the result): the best of three."""
    command = [sys.executable, "-I", "-S", "-c", ONE_CALL, str(HERE.parent), home, tool, json.dumps(arguments)]
    return min(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(3))


def measure(megabytes):
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        paths = write(home, megabytes)
        size = sum(os.path.getsize(path) for path in paths) / 1e6
        parse = loop(paths)
        print(f"{megabytes} MB ({size:.0f} MB in both files); a loop of json.loads over every line: {parse:.2f} s", flush=True)
        for name, tool, arguments, word in CALLS:
            seconds, memory, length = call(home, tool, dict(arguments, conversationId=f"bench-{megabytes}"))
            text = f"  {name:36} {seconds * 1000:9.1f} ms  {memory:5.1f} MB  {length:6} bytes"
            if word:
                other = grep(paths, word)
                text += f"  grep x {seconds / other:.1f}" if other else ""
                text += f"  loop / {parse / seconds:.1f}"
            print(text, flush=True)


def main(sizes=(10, 100, 1000)):
    for megabytes in sizes:
        measure(megabytes)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or (10, 100, 1000))
