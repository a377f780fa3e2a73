"""What the tests of the transcript tools share: a home folder with conversations in it, and lines made up for them."""
import json
import os
import shutil
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
QUIRKS = sorted(path.name for path in (DATA / "quirks").iterdir())
SESSIONS = {"background_tasks": "b775490f592605694807a0c61f8d60f1", "three_turns_parent": "7524a5f4c115ee97f072c9b0887a4fb4",
            "three_turns_subagent": "3512141f796bb505fb7af093b6205020"}
LOGS = ".system_generated/logs"


def brain(home, data="antigravity"):
    return Path(home) / ".gemini" / data / "brain"


def add_quirk(home, name, data="antigravity"):
    """Copies the conversation of a quirk into the home; returns what is expected of it."""
    shutil.copytree(DATA / "quirks" / name / "brain", brain(home, data), dirs_exist_ok=True)
    return json.loads((DATA / "quirks" / name / "expected.json").read_text(encoding="utf-8"))


def add_sessions(home, *names):
    for name in names or SESSIONS:
        shutil.copytree(DATA / "host_sessions" / name, brain(home), dirs_exist_ok=True)


def row(index, text="", type="PLANNER_RESPONSE", source=None, **more):
    source = source or {"USER_INPUT": "USER_EXPLICIT", "SYSTEM_MESSAGE": "SYSTEM"}.get(type, "MODEL")
    created = f"2026-11-01T00:{index // 60 % 60:02}:{index % 60:02}Z"
    value = {"step_index": index, "source": source, "type": type, "status": "DONE", "created_at": created}
    return dict(value, content=text, **more)


def user(index, text):
    return row(index, f"<USER_REQUEST>\n{text}\n</USER_REQUEST>\n<ADDITIONAL_METADATA>\nx\n</ADDITIONAL_METADATA>", "USER_INPUT")


def result(index, text="", type="RUN_COMMAND", **more):
    return row(index, f"Created At: 2026-11-01T00:00:00Z\nCompleted At: 2026-11-01T00:00:01Z\n{text}", type, **more)


def asks(tool, **arguments):
    """The call by which the host's model calls one of our tools."""
    return {"name": "call_mcp_tool", "args": {"ServerName": "agy", "ToolName": tool, "Arguments": arguments}}


def line(value, end=b"\n"):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + end if isinstance(value, dict) else value


def add(home, full=None, compact=None, name="c0ffee00-0000-4000-8000-000000000001", data="antigravity", changed=None):
    """A conversation of these rows (dicts, or bytes as they are)."""
    logs = brain(home, data) / name / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    for file, rows in (("transcript_full.jsonl", full), ("transcript.jsonl", compact)):
        if rows is not None:
            (logs / file).write_bytes(b"".join(line(item) for item in rows))
            if changed:
                os.utime(logs / file, (changed, changed))
    return name


class Context:
    """What the wire gives a tool (agy_mcp.Context), without a wire."""

    def __init__(self, conversation=None, stop_after=None, seconds=50):
        self.conversation, self.stop_after, self.seconds, self.told, self.asked = conversation, stop_after, seconds, [], 0

    def check(self):
        self.asked += 1
        if self.stop_after is not None and self.asked > self.stop_after:
            import agy_mcp
            raise agy_mcp.Cancelled

    def cancelled(self):
        return False

    def remaining(self):
        return self.seconds

    def progress(self, done, total=None, message=None):
        self.told.append((done, total, message))


def assert_markdown(text, limit):
    """At most so many bytes, whole characters, every fenced block closed, every link of a call whole."""
    import agy_mcp
    assert len(text.encode("utf-8")) <= limit, (len(text.encode("utf-8")), limit)
    assert "\ufffd" not in text
    assert agy_mcp.open_fence(text) == ""


def calls_in(text):
    """The calls that a result names, as (tool, arguments)."""
    import re
    return [(tool, json.loads(arguments)) for tool, arguments in re.findall(r"`((?:read|query)_transcript) (\{.*?\})`", text)]


def descriptors():
    return sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []
