"""explain: what the installed hook would decide, why, and nothing written."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test_install import put

TOP = Path(__file__).resolve().parent.parent
RTK = """#!/bin/sh
shift 2
case $1 in
    "git status") echo "rtk git status"; exit 3 ;;
    forbidden*) exit 2 ;;
esac
exit 1
"""


@pytest.fixture
def home(tmp_path):
    put(tmp_path / "bin" / "rtk", RTK).chmod(0o755)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def explain(home, *words, data=b"", rtk=True):
    path = "/usr/bin:/bin" if not rtk else f"{home.parent}/bin:/usr/bin:/bin"
    done = subprocess.run([sys.executable, "-I", "-S", str(TOP / "agy_mcp.py"), "explain", *words], input=data, capture_output=True, cwd=home,
                          env={"HOME": str(home), "PATH": path})
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout.decode()


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


CASES = [  # words, what stands in the text
    (["git status"], ["decision   allow, by rewrite", 'CommandLine = "rtk git status"', "rtk        said: rtk git status", "rtk        exit: 3"]),
    (["true"], ["decision   allow, no guard objects", "rtk        exit: 1"]),
    (["sed -i s/a/b/ notes.txt && rm x"], ["decision   allow, no guard objects"]),
    (["rm agy_hook.py ~/.gemini/antigravity/agy_hook.py"], ["decision   force_ask, by own-files"]),
    (["forbidden thing"], ["decision   ask", "rtk"]),
    (["cd /tmp && FOO=1 timeout 5 cat src/*.py > out.txt"], ["reads      cat src/*.py   in /tmp", "path       src/*.py -> /tmp/src/*.py"]),
    (["cat ~/.gemini/antigravity/brain/c/.system_generated/logs/transcript.jsonl"], ["decision   deny, by internal-state", "reason     [agy:internal-state]",
     "path       ", "/home/.gemini/antigravity/brain/c/.system_generated/logs/transcript.jsonl"]),
]


@pytest.mark.parametrize("words, texts", CASES)
def test_a_command_line(words, texts, home):
    said = explain(home, *words)
    for text in texts:
        assert text in said, said
    assert tree(home) == {}


def test_a_pager_that_closes_early(home):
    command = f'"{sys.executable}" -I -S "{TOP}/agy_mcp.py" explain "seq 1 9" | true'
    done = subprocess.run(["sh", "-c", command], capture_output=True, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert not done.stderr, done.stderr


def test_without_rtk(home):
    assert "rtk        not found on this machine" in explain(home, "git status", rtk=False)


def test_a_payload_on_stdin(home):
    payload = {"toolCall": {"name": "search_web", "args": {}}, "conversationId": "c", "workspacePaths": [str(home)]}
    found = json.loads(explain(home, "--json", data=json.dumps(payload).encode()))
    assert found["decision"] == "allow" and found["tool"] == "search_web" and found["guard"] is None


def test_a_native_call_on_stdin(home):
    payload = {"toolCall": {"name": "view_file", "args": {"AbsolutePath": "file:///a/./b%20c"}}}
    assert "path       /a/b c" in explain(home, data=json.dumps(payload).encode())


def test_the_polling_ledger_is_read_and_not_written(home):
    ledger = put(home / ".gemini/antigravity/agy_state/ledger/c.json", '{"checks": 1, "last_check": 99999999999, "strikes": 0}')
    payload = {"toolCall": {"name": "manage_task", "args": {"Action": "status", "TaskId": "c/task-1"}}, "conversationId": "c"}
    before = ledger.read_bytes()
    explain(home, data=json.dumps(payload).encode())
    assert ledger.read_bytes() == before and len(list(ledger.parent.iterdir())) == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"toolCall": null}', b"git status"])
def test_whatever_stands_on_stdin(data, home):
    assert "decision   allow" in explain(home, data=data)


def test_the_installed_hook_is_the_one_that_is_asked(home):
    folder = home / ".gemini" / "antigravity"
    folder.mkdir(parents=True)
    shutil.copy(TOP / "agy_hook.py", folder)
    state = put(folder / "agy_state" / "ledger" / "c.json", "{}")
    os.utime(state, (1, 1))
    before = tree(home)
    assert f"hook       {folder}/agy_hook.py" in explain(home, "git status")
    assert tree(home) == before
