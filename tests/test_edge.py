"""The edge: whatever comes in, exactly one object goes out, in ASCII, with exit code 0, and little is imported for it."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agy_hook
import world

NEUTRAL = {"decision": "allow"}


def pythons():
    """Every Python from 3.9 up that PATH or pyenv knows, one of each version, beside the one that runs the tests."""
    found = {sys.version_info[:2]: sys.executable}
    roots = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep)]
    roots += sorted(Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob("versions/*/bin"))
    for minor in range(9, 15):
        for folder in roots:
            path = folder / f"python3.{minor}"
            if (3, minor) not in found and path.exists():
                done = subprocess.run([path, "-I", "-S", "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
                if done.returncode == 0:
                    found[3, minor] = done.stdout.strip()
    return [pytest.param(path, id=f"{version[0]}.{version[1]}") for version, path in sorted(found.items())]


UNREADABLE = {  # sent -> neutral answer, and one line in the log
    "nothing": b"", "blanks": b" \n", "no JSON": b"garbage", "an array": b"[]", "a string": b'"x"', "a number": b"1", "null": b"null",
    "cut off": b'{"toolCall": {"name": "run_com', "two objects": b"{}{}", "a NUL": b"\0", "UTF-16": '{"a": 1}'.encode("utf-16"),
    "20,000 arrays": b"[" * 20_000 + b"]" * 20_000, "20,000 objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "NaN": b"NaN",
    "single quotes": b"{'toolCall': {}}",
}
ODD = {  # sent -> neutral answer
    "an empty object": b"{}", "no call": b'{"toolCall": null}', "a call that is text": b'{"toolCall": "x"}',
    "no arguments": b'{"toolCall": {"name": "run_command"}}',
    "null arguments": b'{"toolCall": {"name": "run_command", "args": null}}', "an array of arguments": b'{"toolCall": {"name": "run_command", "args": [1]}}',
    "a number for a name": b'{"toolCall": {"name": 5, "args": {}}}', "invalid UTF-8": b'{"toolCall": {"name": "x\xff\xfe", "args": {}}}',
    "a BOM": b'\xef\xbb\xbf{"toolCall": {"name": "search_web", "args": {}}}',
    "a lone surrogate": b'{"toolCall": {"name": "\\ud800", "args": {"a": "\\udfff"}}}',
    "a surrogate in a command": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": "git status \\ud800"}}}',
    "a NUL in a command": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": "git status \\u0000"}}}',
    "bytes in a command": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": "git status \xff"}}}',
    "a command of 10 MB": json.dumps({"toolCall": {"name": "run_command", "args": {"CommandLine": "git status " + "x" * 10_000_000}}}).encode(),
    "a file of 10 MB": json.dumps({"toolCall": {"name": "write_to_file", "args": {"CodeContent": "\u00e9" * 5_000_000}}}).encode(),
    "an empty command": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": " \\n"}}}',
    "a list for a command": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": ["git", "status"]}}}',
    "wrong types everywhere": b'{"toolCall": {"name": [], "args": 7}, "conversationId": {}, "workspacePaths": "x", "stepIdx": "y", "transcriptPath": 1}',
    "a cwd that is none": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": "git status", "Cwd": "/no/such/folder"}}}',
    "a cwd of a wrong type": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": "make", "Cwd": {}}}, "workspacePaths": [null, 5]}',
    "a NUL in the cwd": b'{"toolCall": {"name": "run_command", "args": {"CommandLine": "make", "Cwd": "/\\u0000"}}}',
    "a control character in a string": b'{"toolCall": {"name": "x", "args": {"a": "tab\there"}}}',
    "a huge number": b'{"toolCall": {"name": "run_command", "args": {"WaitMsBeforeAsync": 1e999}}, "stepIdx": 123456789012345678901234567890}',
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in UNREADABLE.items()])
def test_what_cannot_be_read_is_neutral_and_logged(data, tmp_path):
    names = world.build(tmp_path)
    assert world.answer(names, data) == NEUTRAL
    assert [line["decision"] for line in world.log_lines(names)] == ["neutral"] and world.log_lines(names)[0]["fault"]


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in ODD.items()])
def test_an_odd_payload_is_neutral(data, tmp_path):
    names = world.build(tmp_path)
    assert world.answer(names, data) == NEUTRAL
    assert not [line for line in world.log_lines(names) if "fault" in line]


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_every_python_in_both_forms(python, module, tmp_path):
    names = world.build(tmp_path)
    call = world.command(names, "git status")
    for _ in range(2):  # asked, then cached
        got = world.answer(names, call, python=python, module=module)
        assert got == {"decision": "allow", "overwrite": {"CommandLine": "rtk git status", "WaitMsBeforeAsync": 10000}}
    assert world.rtk_starts(names) == 1
    for data in [*UNREADABLE.values(), *ODD.values()]:
        assert world.answer(names, data, python=python, module=module) == NEUTRAL


@pytest.mark.parametrize("event", ["PostToolUse", "PreInvocation", "PostInvocation", "Stop", "SessionStart", "Nonsense"])
@pytest.mark.parametrize("data", [b"", b"garbage", b"{}", b'{"conversationId": "x", "toolCall": null, "error": ""}'])
def test_another_event_gets_an_empty_object(event, data, tmp_path):
    assert world.answer(world.build(tmp_path), data, event=event) == {}


def test_the_event_is_pretooluse_unless_named(tmp_path):
    names = world.build(tmp_path)
    assert world.answer(names, world.command(names, "git status"), event="")["overwrite"]["CommandLine"] == "rtk git status"


@pytest.mark.parametrize("option, text", [("--version", agy_hook.__version__), ("--help", "usage: agy_hook.py"), ("-h", "usage: agy_hook.py")])
def test_options(option, text, tmp_path):
    done = world.start(world.build(tmp_path), b"", event=option)
    assert (done.returncode, done.stderr) == (0, b"") and text in done.stdout.decode("ascii")


def test_usage_on_a_terminal(tmp_path):
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    done = subprocess.run([sys.executable, "-I", "-S", world.HOOK], stdin=child, capture_output=True, timeout=20)
    os.close(parent)
    os.close(child)
    assert done.returncode == 0 and b"usage: agy_hook.py" in done.stdout


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_handle_is_survived(closed, tmp_path):
    names = world.build(tmp_path)
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}{"<" if closed == 0 else ">"}&-', "sh", sys.executable, "-I", "-S", str(world.HOOK)],
                          input=b"{}", capture_output=True, timeout=20, env=world.environment(names))
    assert done.returncode == 0 and done.stdout == (b"" if closed == 1 else b'{"decision": "allow"}\n')


def test_stdin_that_never_ends_is_answered(tmp_path):
    names = world.build(tmp_path)
    hook = subprocess.Popen([sys.executable, "-I", "-S", world.HOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=world.environment(names))
    hook.stdin.write(b'{"toolCall"')
    hook.stdin.flush()
    assert hook.stdout.read() == b'{"decision": "allow"}\n' and hook.wait(20) == 0
    hook.stdin.close()
    hook.stdout.close()


def test_slow_stdin_is_read_to_its_end(tmp_path):
    names = world.build(tmp_path)
    hook = subprocess.Popen([sys.executable, "-I", "-S", world.HOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=world.environment(names))
    data = json.dumps(world.command(names, "git status")).encode()
    for part in (data[:20], data[20:]):
        hook.stdin.write(part)
        hook.stdin.flush()
        time.sleep(0.1)
    assert b"rtk git status" in hook.communicate(timeout=20)[0] and hook.returncode == 0


def run_changed(names, change):
    """The finished process of `git status` through a hook in which the statement `change` was run first."""
    code = f"import sys, time; sys.path.insert(0, {str(world.TOP)!r}); import agy_hook; {change}; sys.exit(agy_hook.main())"
    return subprocess.run([sys.executable, "-I", "-S", "-c", code, "PreToolUse"], input=json.dumps(world.command(names, "git status")).encode(),
                          capture_output=True, timeout=20, env=world.environment(names))


# what hangs inside the hook -> it is ended by the inner deadline, with one neutral answer
HANGS = {
    "a guard": "agy_hook.GUARDS[:] = [agy_hook.Guard('x', (), lambda call, world: time.sleep(60), [], [])]",
    "rewriting": "agy_hook.rewrite = lambda call, world: time.sleep(60)",
    "the configuration": "agy_hook.load_config = lambda home, parse: time.sleep(60)",
}


@pytest.mark.parametrize("broken", HANGS.values(), ids=HANGS)
def test_a_hang_is_answered_neutrally_once(broken, tmp_path):
    done = run_changed(world.build(tmp_path), f"agy_hook.SECONDS = 0.2; {broken}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"decision": "allow"}\n', b"")


def test_a_log_that_hangs_comes_after_the_answer(tmp_path):
    done = run_changed(world.build(tmp_path), "agy_hook.SECONDS = 1; agy_hook.append_log = lambda line, world: time.sleep(60)")
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1 and b"rtk git status" in done.stdout


CONFIGS = {  # what agy_config.json holds -> the decision of a call with nothing to object
    "{}": "allow", '{"neutral": "ask"}': "ask", '{"neutral": "deny"}': "allow", '{"neutral": 1, "nonsense": []}': "allow", "{": "allow", "[]": "allow",
    "null": "allow",
    "\ufeff{\"neutral\": \"ask\"}": "ask", '{"off": 5, "rtk": [], "neutral": "ask"}': "ask", '{"off": [1, null, {}]}': "allow",
    "[" * 9999: "allow",
}


@pytest.mark.parametrize("text, want", CONFIGS.items(), ids=[text[:30] for text in CONFIGS])
def test_configuration(text, want, tmp_path):
    names = world.build(tmp_path)
    world.put(Path(names["HOME"], ".gemini", "antigravity", "agy_config.json"), text)
    assert world.answer(names, world.payload(names, "search_web", {"query": "x"})) == {"decision": want}
    assert world.answer(names, world.command(names, "git status"))["overwrite"]["CommandLine"] == "rtk git status"


@pytest.mark.parametrize("how", [{"config": '{"off": ["rewrite"]}'}, {"env": {"AGY_OFF": "x, rewrite"}}])
def test_rewriting_can_be_switched_off(how, tmp_path):
    names = world.build(tmp_path)
    env = world.prepare(names, how)
    assert world.answer(names, world.command(names, "git status"), env=env) == NEUTRAL and world.rtk_starts(names) == 0


def call_of(args=None, tool="run_command"):
    return agy_hook.make_call({"toolCall": {"name": tool, "args": args or {}}}, agy_hook.World({}, "/home/dev", 0.0, {}))


def plain_world(tmp_path, **config):
    return agy_hook.World({}, str(tmp_path), 0.0, config)


def fails(call, world):
    raise ZeroDivisionError("by nought")


def guard(name, verdict):
    makes = {"deny": agy_hook.deny, "ask": agy_hook.ask, "force_ask": agy_hook.force_ask}
    return agy_hook.Guard(name, ("run_command",), lambda call, world: makes[verdict](name, verdict) if verdict else None, [], [])


@pytest.mark.parametrize("verdicts, want", [
    ([], None), ([None], None), (["ask", "force_ask"], "force_ask"), (["deny", "force_ask"], "deny"), (["force_ask", "ask", "deny", None], "deny"),
    (["ask"], "ask"),
])
def test_the_strictest_verdict_wins(verdicts, want, tmp_path):
    guards = [guard(f"g{i}", verdict) for i, verdict in enumerate(verdicts)]
    found = agy_hook.run_guards(call_of(), plain_world(tmp_path), guards)
    assert (found and found.decision) == want


def test_a_guard_that_fails_asks_and_names_itself(tmp_path):
    broken = agy_hook.Guard("broken", (), fails, [], [])
    found = agy_hook.run_guards(call_of(), plain_world(tmp_path), [broken])
    assert found.decision == "ask" and found.reason.startswith("[agy:broken] ") and "by nought" in found.reason
    assert agy_hook.run_guards(call_of(), plain_world(tmp_path), [broken, guard("g", "deny")]).decision == "deny"
    assert agy_hook.run_guards(call_of(), plain_world(tmp_path, off=["broken"]), [broken]) is None


def test_a_guard_sees_only_its_tools(tmp_path):
    assert agy_hook.run_guards(call_of(tool="view_file"), plain_world(tmp_path), [guard("g", "deny")]) is None


@pytest.mark.parametrize("text", ["x" * 1000, "\u00e9" * 300, "\ud800 lone", "short", ""])
def test_a_reason_is_at_most_400_bytes(text):
    found = agy_hook.deny("some-guard", text)
    assert len(found.reason.encode()) <= 400 and found.reason.startswith("[agy:some-guard] ")
    agy_hook.render("PreToolUse", found, None).decode("ascii")


def test_every_guard_in_the_table_has_examples_and_its_own_id():
    ids = [guard.id for guard in agy_hook.GUARDS]
    assert len(ids) == len(set(ids))
    assert all(guard.stops and guard.passes for guard in agy_hook.GUARDS)


def test_a_denied_call_starts_no_process(tmp_path):
    names = world.build(tmp_path)
    done = run_changed(names, "agy_hook.GUARDS.append(agy_hook.Guard('no', (), lambda call, world: agy_hook.deny('no', 'do that instead'), [], []))")
    assert json.loads(done.stdout) == {"decision": "deny", "reason": "[agy:no] do that instead"} and world.rtk_starts(names) == 0
    assert [(line["guard"], line["decision"], line["bytes"]) for line in world.log_lines(names)] == [("no", "deny", 10)]


@pytest.mark.parametrize("given, want", [
    ({"Action": '"status"', "TaskId": '"c/task-2"', "CommandLine": '"git" status', "Query": '"x"'},
     {"Action": "status", "TaskId": "c/task-2", "CommandLine": '"git" status', "Query": '"x"'}),
    ({"Action": '""status""'}, {"Action": '"status"'}), ({"Action": '"'}, {"Action": '"'}), ({"Action": None, "TaskId": 5}, {"Action": None, "TaskId": 5}),
])
def test_one_pair_of_json_quotes_is_taken_off_enums(given, want):
    assert call_of(given, tool='"manage_task"').args == want and call_of(given, tool='"manage_task"').tool == "manage_task"


@pytest.mark.parametrize("cwd, workspaces, want", [
    ("/w", ["/x"], "/w"), (None, ["/x"], "/x"), ("", ["/x", "/y"], "/x"), (None, [], None), (None, None, None), (5, [None, "/y"], "/y"),
    ("sub", ["/x"], "/x/sub"), ("sub", [], None), ("~/w", [], "/home/dev/w"), ("C:\\w", [], "C:/w"),
])
def test_the_folder_a_command_runs_in(cwd, workspaces, want):
    payload = {"toolCall": {"name": "run_command", "args": {"Cwd": cwd}}, "workspacePaths": workspaces}
    assert agy_hook.make_call(payload, agy_hook.World({}, "/home/dev", 0.0, {})).cwd == want


# ---- What a start costs: a test counts modules and files, so that the figures of bench_hook.py cannot rot ----
SPY = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)
before = set(sys.modules)
sys.path.insert(0, {folder!r})
import agy_hook
posix = agy_hook.posix
def leave(code):
    posix.write(2, repr((sorted(set(sys.modules) - before), opened)).encode())
    real(code)
real, agy_hook.posix = posix._exit, type('P', (), dict(vars(posix), _exit=staticmethod(leave)))
sys.exit(agy_hook.main())
"""
HEAVY = {"os", "re", "json", "subprocess", "collections", "typing", "enum", "dataclasses", "pathlib", "hashlib", "signal", "functools", "contextlib"}
PATHS = {  # what is sent -> (modules loaded at most, files below the home folder opened at most)
    "denied": (("view_file", {"AbsolutePath": "{SG}/logs/transcript.jsonl"}), {"agy_hook", "_json", "_blake2"}, 3),
    "ignored": (("search_web", {"query": "x"}), {"agy_hook", "_json"}, 1),
    "cached": (("run_command", {"CommandLine": "git status", "Cwd": "{WS}"}), {"agy_hook", "_json", "_blake2"}, 3),
    "miss": (("run_command", {"CommandLine": "git log -3", "Cwd": "{WS}"}), {"agy_hook", "_json", "_blake2", "select", "fcntl"}, 6),
    "no rewrite": (("run_command", {"CommandLine": "true", "Cwd": "{WS}"}), {"agy_hook", "_json", "_blake2"}, 3),
}


@pytest.mark.parametrize("call, modules, files", PATHS.values(), ids=PATHS)
def test_what_a_start_imports_and_opens(call, modules, files, tmp_path):
    names = world.build(tmp_path)
    for line in ("git status", "true"):
        world.start(names, world.command(names, line))
    tool, args = world.fill(list(call), names)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", SPY.format(folder=str(world.TOP)), "PreToolUse"], capture_output=True, timeout=20,
                          input=json.dumps(world.payload(names, tool, args)).encode(), env=world.environment(names))
    assert done.returncode == 0 and json.loads(done.stdout)["decision"] in ("allow", "deny")
    loaded, opened = eval(done.stderr)
    assert not set(loaded) & HEAVY
    assert set(loaded) <= modules | {"_operator", "time"}
    ours = [path for path in opened if path.startswith(names["HOME"])]
    assert len(ours) <= files, ours
    assert len(opened) - len(ours) <= len(loaded) * 4, opened


def test_no_compiled_file_can_be_written_and_a_stale_one_is_not_believed(tmp_path):
    names = world.build(tmp_path / "w")
    folder = tmp_path / "readonly"
    world.put(folder / "agy_hook.py", world.HOOK.read_bytes())
    os.chmod(folder, 0o555)
    call = world.command(names, "git status")
    want = {"decision": "allow", "overwrite": {"CommandLine": "rtk git status", "WaitMsBeforeAsync": 10000}}
    assert world.answer(names, call, module=True, hook=folder / "agy_hook.py") == want
    os.chmod(folder, 0o755)
    world.put(folder / "__pycache__" / f"agy_hook.{sys.implementation.cache_tag}.pyc", b"\0" * 64)
    assert world.answer(names, call, module=True, hook=folder / "agy_hook.py") == want


def test_what_lies_beside_the_script_is_not_imported(tmp_path):
    names = world.build(tmp_path)
    for name in ("json", "os", "select", "time"):
        world.put(tmp_path / "hook" / f"{name}.py", "raise SystemExit(3)")
    world.put(tmp_path / "hook" / "agy_hook.py", world.HOOK.read_bytes())
    assert world.answer(names, world.command(names, "git status"), hook=tmp_path / "hook" / "agy_hook.py")["decision"] == "allow"
