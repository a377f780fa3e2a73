"""Faults that must neither be hidden nor stop what does not depend on them."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

import agy_mcp
from test_install import installed, put, site_in, uninstalled, without_proof
from transcripts import add, result, row, user

TOP = Path(__file__).resolve().parent.parent


@pytest.fixture
def site(tmp_path, monkeypatch):
    without_proof(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return site_in(tmp_path)


def test_uninstall_goes_on_where_a_backup_was_taken_away(site):
    put(agy_mcp.rules_file(site), "my own rules\n")
    said = installed(site, rules=True)
    backup = Path(said.split(".md: rules for the model, written; as it was: ")[1].split("\n")[0])
    backup.unlink()
    assert f"{agy_mcp.rules_file(site)}: removed" in uninstalled(site)
    assert not Path(agy_mcp.rules_file(site)).exists() and not Path(agy_mcp.data_folder(site) + "/agy_mcp.py").exists()


DECISION = {"time": 1700000000.0, "conversation": "a", "tool": "view_file", "guard": "bounded-reads", "decision": "deny"}
LOGS = [  # decisions.1.jsonl, decisions.jsonl
    ([DECISION], []),
    ([], [DECISION, dict(DECISION, time=1e300), dict(DECISION, time=float("inf"))]),
    ([DECISION], [dict(DECISION, conversation=agy_mcp.PROBE)]),
]


@pytest.mark.parametrize("logs", LOGS)
def test_the_last_decision_is_found(site, logs):
    for name, lines in zip(("decisions.1.jsonl", "decisions.jsonl"), logs):
        put(f"{agy_mcp.state_folder(site.home)}/{name}", "".join(json.dumps(line) + "\n" for line in lines) + "[" * 100_000 + "\n")
    layer, = agy_mcp.decision_layers(site)
    assert layer.state == "ok" and "deny by bounded-reads on view_file" in layer.detail


def test_a_known_kind_is_counted_as_itself_however_many_there_are():
    table = {}
    for key in [*"abcd", *"abcd"]:
        key = agy_mcp.key_within(table, key, 2, "others")
        table[key] = table.get(key, 0) + 1
    assert table == {"a": 2, "b": 2, "others": 4}


class Hook:
    """A hook that finds rtk and fails at what is named."""

    def __init__(self, failing):
        self.failing = failing

    def World(self, *_):
        return self

    def switched_off(self, _):
        return ()

    def find_rtk(self, _):
        return self.fail("find_rtk") or ("/bin/true", "rtk")

    def holds_secret(self, _):
        return self.fail("holds_secret") or False

    def read_commands(self, *_):
        return [[]]

    def fail(self, name):
        if name == self.failing:
            raise LookupError("odd `thing`")


@pytest.mark.parametrize("failing", ["find_rtk", "holds_secret"])
def test_a_fault_of_the_hook_is_told_on_the_page(site, monkeypatch, failing):
    monkeypatch.setattr(agy_mcp, "own_hook", lambda: Hook(failing))
    run = {"name": "run_command", "args": {"CommandLine": "git status", "Cwd": "/"}}
    add(Path(site.home), full=[user(0, "go"), row(1, "PLANNER_RESPONSE", tool_calls=[run]), result(2, "ok")])
    context = agy_mcp.Context(agy_mcp.Server(), {})
    text = agy_mcp.check_context_health({}, context)
    assert "- rtk was not asked about all commands: agy_hook.py failed: LookupError: odd 'thing'" in text and "not on this machine" not in text


@pytest.mark.parametrize("hook", [None, "def broken("])
def test_explain_says_what_is_wrong_with_the_hook(tmp_path, hook):
    put(tmp_path / "agy_mcp.py", (TOP / "agy_mcp.py").read_bytes())
    if hook:
        put(tmp_path / "agy_hook.py", hook)
    done = subprocess.run([sys.executable, "-I", "-S", str(tmp_path / "agy_mcp.py"), "explain", "ls"], capture_output=True, text=True, cwd=tmp_path,
                          env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 1 and done.stdout.startswith("not explained: ") and not done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no posix module: os it is")
def test_a_first_reply_does_without_os():
    code = f"import sys; sys.path.insert(0, {str(TOP)!r}); import agy_mcp; server = agy_mcp.Server(agy_mcp.TOOLS); " \
           "server.handle(b'{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}'); print('os' in sys.modules, agy_mcp.os.sep)"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "/"]
