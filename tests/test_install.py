"""Merging into hooks.json and mcp_config.json: whatever stands there stays, and uninstall gives back the same bytes."""
import json
import os
import random
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import agy_mcp

TOP = Path(__file__).resolve().parent.parent
CALL = {"toolCall": {"name": "run_command", "args": {"CommandLine": "true", "Cwd": "/"}}, "stepIdx": 1, "conversationId": "c", "workspacePaths": []}


def site_in(home, workspace=None):
    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    return agy_mcp.Site(str(home), str(workspace) if workspace else None, python, str(TOP))


def without_proof(monkeypatch):
    """Nothing is compiled or started by install: for tests of what is written."""
    monkeypatch.setattr(agy_mcp, "compile_script", lambda site: None)
    monkeypatch.setattr(agy_mcp, "prove", lambda site: ([], True))


@pytest.fixture
def site(tmp_path, monkeypatch):
    without_proof(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return site_in(tmp_path / "home")


def put(path, data):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def installed(site, **options):
    lines, good = agy_mcp.install(site, **options)
    assert good, "\n".join(lines)
    return "\n".join(lines)


def uninstalled(site, **options):
    lines, good = agy_mcp.uninstall(site, **options)
    assert good, "\n".join(lines)
    return "\n".join(lines)


def strict(path):
    """The value of a file as a reader of strict JSON sees it, keys in order."""
    return json.loads(Path(path).read_bytes(), object_pairs_hook=lambda pairs: dict(pairs))


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def command_of(site, event="PreToolUse"):
    return agy_mcp.registered_handler(site, event)


def run_registered(site, payload=CALL):
    done = subprocess.run(["sh", "-c", command_of(site)], cwd=agy_mcp.config_folder(site), input=json.dumps(payload).encode(), capture_output=True)
    assert done.returncode == 0 and not done.stderr, done
    return json.loads(done.stdout)


HOOKS = {
    "pretty": '{\n  "lint": {\n    "PreToolUse": [{"matcher": "a", "hooks": [{"type": "command", "command": "lint", "timeout": 5}]}]\n  }\n}\n',
    "one line": '{"lint": {"Stop": [{"type": "command", "command": "x"}]}, "b": {}}',
    "tabs": '{\n\t"lint": {\n\t\t"enabled": false\n\t}\n}',
    "CRLF": '{\r\n    "lint": {\r\n        "Stop": []\r\n    }\r\n}\r\n',
    "empty object": "{}",
    "empty object over lines": "{\n}\n",
    "empty object with blanks": "{ }",
    "empty file": "",
    "blanks": " \n",
    "null": "null\n",
    "duplicate keys": '{\n  "lint": {"Stop": []},\n  "lint": {"Stop": [{"type": "command", "command": "two"}]}\n}',
    "odd layout": '{"lint":\n{ "Stop" : [ ] }   ,\n\n\n "b" : 1.50e+3 }\n\n',
    "unicode and escapes": '{\n  "l\\u00efnt \\ud83d\\ude00 ü": {"Stop": [], "x": "\\/"}\n}',
    "no line end": '{\n  "lint": 1}',
    "names ours without starting it": '{"lint": {"Stop": [{"type": "command", "command": "python3 lint.py --exclude agy_hook.py"}]}}',
}
SERVERS = {
    "pretty": '{\n  "mcpServers": {\n    "git": {\n      "command": "g",\n      "args": []\n    }\n  }\n}\n',
    "other keys": '{\n  "inputs": [1],\n  "mcpServers": {\n    "git": {"command": "g", "env": {"KEY": "secret"}}\n  },\n  "z": null\n}',
    "one line": '{"mcpServers": {"git": {"command": "g"}}}',
    "no servers yet": '{"mcpServers": {}}',
    "no mcpServers": '{\n  "other": true\n}\n',
    "mcpServers null": '{"mcpServers": null, "a": 1}',
    "empty object": "{}",
    "empty file": "",
    "null": "null",
    "a byte order mark": '\ufeff{\r\n  "mcpServers": {"git": {"command": "g"}}\r\n}\r\n',
    "duplicate keys": '{"mcpServers": {"a": {"command": "1"}}, "mcpServers": {"git": {"command": "g"}}}',
    "comments": '// mine\n{\n  /* all */ "mcpServers": { // here\n    // the first\n    "git": {"command": "g"} // last\n    // end\n  } // x\n}\n// fin\n',
    "trailing commas": '{\n  "mcpServers": {\n    "git": {"command": "g", "args": ["a",],}, // why\n  },\n}\n',
    "comment in an empty object": '{\n  "mcpServers": {\n    // nothing yet\n  }\n}\n',
    "a comment with signs": '{"mcpServers": {"git": {"command": "http://x", "a": "/* no */"}} /* "x": { */}',
}


def without_comments(text):
    """What a reader of JSON with comments sees: comments and trailing commas outside strings taken out."""
    text = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda m: m.group(1) or "", text, flags=re.S)
    return re.sub(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', lambda m: m.group(1) or m.group(2), text)


def read_servers(path):
    return json.loads(without_comments(Path(path).read_text(encoding="utf-8-sig")) or "null") or {}


@pytest.mark.parametrize("case", HOOKS)
def test_hooks_json_keeps_what_others_wrote(case, site):
    text = HOOKS[case]
    path = put(agy_mcp.hooks_file(site), text)
    installed(site)
    now, before = strict(path), (json.loads(text) if text.strip() else None) or {}
    assert list(now) == [*before, agy_mcp.NAME]
    assert {key: value for key, value in now.items() if key != agy_mcp.NAME} == before
    written = path.read_bytes()
    assert (b"\r\n" in written) == ("\r\n" in text) and (b"\r\n" not in written or written.count(b"\n") == written.count(b"\r\n"))
    installed(site)
    assert path.read_bytes() == written
    uninstalled(site)
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize("case", SERVERS)
def test_mcp_config_keeps_what_others_wrote(case, site):
    text = SERVERS[case]
    path = put(agy_mcp.servers_file(site), text)
    before = read_servers(path)
    installed(site)
    now = read_servers(path)
    ours = now["mcpServers"].pop(agy_mcp.NAME)
    assert ours["command"] == site.python and not set(ours) - {"command", "args"}
    assert now["mcpServers"] == (before.get("mcpServers") or {})
    assert {k: v for k, v in now.items() if k != "mcpServers"} == {k: v for k, v in before.items() if k != "mcpServers"}
    for comment in re.findall(r"// \w+|/\* \w+ \*/", text):
        assert comment in path.read_text(encoding="utf-8")
    written = path.read_bytes()
    installed(site)
    assert path.read_bytes() == written
    uninstalled(site)
    assert path.read_bytes() == text.encode()


FILES = [("hooks", text) for text in HOOKS.values() if "lint" in text] + [("servers", text) for text in SERVERS.values() if "git" in text]


@pytest.mark.parametrize("kind, text", FILES)
def test_taking_out_gives_back_the_bytes_without_the_record_too(kind, text, site):
    """A file with an object that held something needs no memory of what it was."""
    path = put(agy_mcp.hooks_file(site) if kind == "hooks" else agy_mcp.servers_file(site), text)
    installed(site)
    os.unlink(agy_mcp.record_file(site))
    uninstalled(site)
    assert path.read_bytes() == text.encode()


def test_a_byte_order_mark_that_the_host_does_not_read_goes(site):
    path = put(agy_mcp.hooks_file(site), "\ufeff" + HOOKS["pretty"])
    installed(site)
    assert list(strict(path)) == ["lint", agy_mcp.NAME]
    uninstalled(site)
    assert path.read_text(encoding="utf-8") == "\ufeff" + HOOKS["pretty"]


def test_an_entry_in_the_file_that_the_host_never_runs_is_taken_out(site):
    entry = {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "python3 agy_hook.py"}]}]}
    path = put(agy_mcp.unread_file(site), json.dumps({"a": 1, agy_mcp.NAME: entry}))
    installed(site)
    assert strict(path) == {"a": 1}


BROKEN = [  # file, text, line and column of what is wrong
    ("hooks", '{\n  "a": 1,\n  // why\n  "b": 2\n}', (3, 3)),
    ("hooks", '{\n  "a": [1, 2,]\n}', (2, 13)),
    ("hooks", '{\n  "a": 1\n  "b": 2\n}', (3, 3)),
    ("hooks", '{"a": 1', (1, 8)),
    ("hooks", "[]", (1, 1)),
    ("hooks", '"text"', (1, 1)),
    ("hooks", "{'a': 1}", (1, 2)),
    ("hooks", '{"a": NaN}', (1, 7)),
    ("hooks", '{} {}', (1, 4)),
    ("hooks", '{"a": "\xff"}'.encode("latin-1"), (1, 8)),
    ("hooks", '{"a": 1}'.encode("utf-16"), (1, 1)),
    ("hooks", "[" * 50000, (1, 1)),
    ("hooks", '{"a": "x\ny"}', (1, 9)),
    ("servers", '{"mcpServers": []}', (1, 16)),
    ("servers", '{"mcpServers": "x"}', (1, 16)),
    ("servers", '{\n "mcpServers": {"a": }\n}', (2, 22)),
    ("servers", "[1]", (1, 1)),
    ("servers", "/* open", (1, 1)),
    ("servers", "garbage", (1, 1)),
]


@pytest.mark.parametrize("kind, text, place", BROKEN)
def test_a_file_that_cannot_be_read_is_not_touched(kind, text, place, site):
    path = put(agy_mcp.hooks_file(site) if kind == "hooks" else agy_mcp.servers_file(site), text)
    data = path.read_bytes()
    for options in ({}, {"dry_run": True}):
        lines, good = agy_mcp.install(site, **options)
        shown = "\n".join(lines)
        assert not good
        assert f"{path}, line {place[0]}, column {place[1]}: " in shown
        assert agy_mcp.NAME in shown and ("import agy_hook" in shown if kind == "hooks" else "import agy_mcp" in shown)
    assert path.read_bytes() == data
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(path.name)] == [path.name]
    agy_mcp.uninstall(site)
    assert path.read_bytes() == data


def test_the_scripts_stay_where_a_broken_file_still_names_them(site):
    installed(site)
    path = Path(agy_mcp.hooks_file(site))
    path.write_text(path.read_text() + "oops")
    lines, good = agy_mcp.uninstall(site)
    assert not good and "by hand" in "\n".join(lines)
    assert Path(agy_mcp.data_folder(site), "agy_hook.py").exists()


def test_the_scripts_stay_where_a_file_could_not_be_written(site, monkeypatch):
    installed(site)
    apply_change = agy_mcp.apply_change

    def full_disk(change, record):
        if change.kind == "config":
            raise OSError(28, "No space left on device")
        return apply_change(change, record)

    monkeypatch.setattr(agy_mcp, "apply_change", full_disk)
    lines, good = agy_mcp.uninstall(site)
    assert not good and f"{agy_mcp.hooks_file(site)} could not be written: No space left on device" in lines
    assert run_registered(site)["decision"] == "allow"
    monkeypatch.setattr(agy_mcp, "apply_change", apply_change)
    uninstalled(site)
    assert not Path(agy_mcp.hooks_file(site)).exists()


def test_only_our_entries_go_when_others_wrote_since(site):
    hooks, servers = put(agy_mcp.hooks_file(site), HOOKS["pretty"]), Path(agy_mcp.servers_file(site))
    installed(site)
    hooks.write_text(hooks.read_text().replace('"lint"', '"linter"'))
    value = json.loads(servers.read_text())
    value["mcpServers"] = {"new": {"command": "n"}, **value["mcpServers"], "late": {"command": "l"}}
    servers.write_text(json.dumps(value, indent=4))
    uninstalled(site)
    assert hooks.read_text() == HOOKS["pretty"].replace('"lint"', '"linter"')
    assert json.loads(servers.read_text()) == {"mcpServers": {"new": {"command": "n"}, "late": {"command": "l"}}}


def test_an_empty_rest_of_a_file_that_we_made_goes(site):
    installed(site)
    for path in (agy_mcp.hooks_file(site), agy_mcp.servers_file(site)):
        Path(path).write_text(json.dumps(json.loads(Path(path).read_text())))  # somebody's editor laid it out anew
    uninstalled(site)
    assert not Path(agy_mcp.hooks_file(site)).exists() and not Path(agy_mcp.servers_file(site)).exists()


def test_an_upgrade_between_does_not_lose_the_way_back(site):
    path = put(agy_mcp.hooks_file(site), HOOKS["odd layout"])
    installed(site)
    older = path.read_text().replace("PreToolUse ||", "PreToolUse --old ||")
    path.write_text(older)
    installed(site)
    assert "--old" not in path.read_text()
    uninstalled(site)
    assert path.read_text() == HOOKS["odd layout"]


DOUBLED = [  # other registrations of ours that people make
    {"agy": {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "python3 ~/.gemini/antigravity/agy_hook.py"}]}]}},
    {"agy": {"enabled": True, "PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "'/a b/python3.11' -I '/x y/agy_hook.py'"}]}]}},
    {"agy": {"Stop": [{"type": "command", "command": "/home/dev/agy_hook.py Stop"}]}},
    {agy_mcp.NAME: {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "agy_hook.py"}] * 2}]}},
]


@pytest.mark.parametrize("value", DOUBLED)
def test_a_doubled_registration_is_found_and_mended(value, site):
    value = {**value, "mine": {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "a"}, {"type": "command",
             "command": "python3 -I -S /home/dev/agy_hook.py"}, {"type": "command", "command": "b"}]}], "Stop": []}}
    path = put(agy_mcp.hooks_file(site), json.dumps(value, indent=2))
    put(agy_mcp.servers_file(site), '{"mcpServers": {"a": {"command": "x"}, "agy": {"command": "python3", "args": ["/home/dev/agy_mcp.py"]}}}')
    installed(site)
    now = strict(path)
    assert sorted(now) == sorted([agy_mcp.NAME, "mine"])
    assert now["mine"] == {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": c} for c in "ab"]}], "Stop": []}
    assert len(agy_mcp.registered_handlers(path.read_text(), "PreToolUse")) == 1
    assert list(read_servers(agy_mcp.servers_file(site))["mcpServers"]) == ["a", agy_mcp.NAME]


def test_a_name_that_stands_twice_stands_once_after(site):
    path = put(agy_mcp.hooks_file(site), '{"NAME": {}, "a": 1, "NAME": {"x": 2}}'.replace("NAME", agy_mcp.NAME))
    installed(site)
    assert path.read_text().count(json.dumps(agy_mcp.NAME)) == 1 and list(strict(path)) == [agy_mcp.NAME, "a"]


STARTS = [  # command line, whether it starts our hook
    ("python3 agy_hook.py", True), ("/usr/bin/python3.11 -I -S /a/agy_hook.py PreToolUse", True), ("agy_hook.py", True), ("~/x/agy_hook.py", True),
    ("python3 -c 'import agy_hook; agy_hook.main()'", True), (r"C:\Py\python.exe -I -S C:\u\agy_hook.py PreToolUse", True),
    (r"C:\Windows\System32\cmd.exe /c ..\antigravity\agy_hook.cmd PreToolUse", True), ("python3 '/a b/agy_hook.py'", True),
    ('python3 "$HOME/.gemini/antigravity/agy_hook.py"', True), ("python3 lint.py agy_hook.py", False), ("cat agy_hook.py", False),
    ("grep 'x agy_hook.py", False), ("python3 my_agy_hook.py", False), ("", False), ("echo import_agy_hook", False),
]


@pytest.mark.parametrize("command, ours", STARTS)
def test_what_starts_our_hook(command, ours):
    assert agy_mcp.is_our_handler({"command": command}) is ours


def test_links_are_followed_and_modes_kept(site, tmp_path):
    real = put(tmp_path / "dotfiles" / "hooks.json", HOOKS["pretty"])
    real.chmod(0o640)
    link = Path(agy_mcp.hooks_file(site))
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    installed(site)
    assert link.is_symlink() and agy_mcp.NAME in real.read_text() and stat.S_IMODE(real.stat().st_mode) == 0o640
    uninstalled(site)
    assert link.is_symlink() and real.read_text() == HOOKS["pretty"]


def test_a_read_only_file_is_reported(site):
    path = put(agy_mcp.hooks_file(site), HOOKS["pretty"])
    path.chmod(0o444)
    lines, good = agy_mcp.install(site)
    assert not good and "read-only" in "\n".join(lines) and path.read_text() == HOOKS["pretty"]


def backups(site):
    return [p for p in Path(agy_mcp.config_folder(site)).iterdir() if p.suffix == ".bak"]


def test_one_backup_before_the_first_change(site):
    path = put(agy_mcp.hooks_file(site), HOOKS["pretty"])
    path.chmod(0o600)
    installed(site)
    installed(site)
    (backup,) = backups(site)
    assert backup.read_text() == HOOKS["pretty"] and stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert re.fullmatch(r"hooks\.json\.\d{8}T\d{6}\.bak", backup.name)
    uninstalled(site)
    assert not backups(site)


def test_backups_can_be_brought_back(site):
    path = put(agy_mcp.hooks_file(site), HOOKS["pretty"])
    installed(site)
    path.write_text('{"all": "else"}')
    uninstalled(site, restore=True)
    assert path.read_text() == HOOKS["pretty"]
    (kept,) = backups(site)
    assert kept.read_text() == '{"all": "else"}'


def test_nothing_is_left_after_purge(site):
    before = tree(site.home)
    installed(site, rules=True)
    uninstalled(site, purge=True)
    assert tree(site.home) == before


def test_state_and_what_the_user_wrote_stay_without_purge(site):
    installed(site)
    config = put(agy_mcp.data_folder(site) + "/agy_config.json", "{}")
    ledger = put(agy_mcp.state_folder(site.home) + "/ledger/c.json", "{}")
    uninstalled(site)
    assert config.exists() and ledger.exists() and not list(Path(agy_mcp.data_folder(site)).rglob("*.py*"))


def test_uninstalling_nothing_is_no_error_and_writes_nothing(site):
    uninstalled(site)
    assert tree(site.home) == []


def test_a_dry_run_writes_nothing_and_shows_all(site):
    put(agy_mcp.hooks_file(site), HOOKS["pretty"])
    before = tree(site.home)
    shown = installed(site, dry_run=True, rules=True)
    assert tree(site.home) == before and Path(agy_mcp.hooks_file(site)).read_text() == HOOKS["pretty"]
    for text in ("agy_hook.py", "agy_mcp.py", '+  "agy-context-saver": {', "mcpServers", "rules/", "nothing was written"):
        assert text in shown, text
    installed(site)
    before = tree(site.home)
    assert '-  "agy-context-saver": {' in uninstalled(site, dry_run=True)
    assert tree(site.home) == before


def test_our_scripts_as_links_are_only_unlinked(site):
    folder = Path(agy_mcp.data_folder(site))
    folder.mkdir(parents=True)
    copy = put(Path(site.home) / "work" / "agy_hook.py", (TOP / "agy_hook.py").read_bytes())
    (folder / "agy_hook.py").symlink_to(copy)
    installed(site)
    uninstalled(site)
    assert copy.exists() and not os.path.lexists(folder / "agy_hook.py")


def test_other_keys_in_our_entries_are_kept(site):
    installed(site)
    servers, hooks = Path(agy_mcp.servers_file(site)), Path(agy_mcp.hooks_file(site))
    value = json.loads(servers.read_text())
    value["mcpServers"][agy_mcp.NAME].update(env={"A": "1"}, command="/gone/python")
    servers.write_text(json.dumps(value))
    value = json.loads(hooks.read_text())
    theirs = {"type": "command", "command": "theirs"}
    value[agy_mcp.NAME].update(enabled=False, Stop=[theirs], SessionStart=[{"type": "command", "command": "python3 agy_hook.py"}])
    value[agy_mcp.NAME]["PreToolUse"].append({"matcher": "x", "hooks": [theirs]})
    hooks.write_text(json.dumps(value))
    agy_mcp.install(site, enable=False)
    ours = json.loads(servers.read_text())["mcpServers"][agy_mcp.NAME]
    assert ours["env"] == {"A": "1"} and ours["command"] == site.python
    ours = json.loads(hooks.read_text())[agy_mcp.NAME]
    assert ours["enabled"] is False and ours["Stop"] == [theirs] and "SessionStart" not in ours
    assert [group["hooks"][0] == theirs for group in ours["PreToolUse"]] == [False, True]
    installed(site)
    assert "enabled" not in json.loads(hooks.read_text())[agy_mcp.NAME]


def test_what_others_put_under_our_name_outlives_us(site):
    theirs = {"Stop": [{"type": "command", "command": "theirs"}]}
    path = put(agy_mcp.hooks_file(site), json.dumps({agy_mcp.NAME: theirs}))
    installed(site)
    uninstalled(site)
    assert strict(path) == {agy_mcp.NAME: theirs}


def test_a_rule_file(site):
    path = Path(agy_mcp.rules_file(site))
    installed(site, rules=True)
    agy_mcp.RULES, now = "older rules", agy_mcp.RULES
    try:
        installed(site)
        assert path.read_text() == "older rules"  # one that nobody changed follows the version, without being asked for
    finally:
        agy_mcp.RULES = now
    put(path, "my own rules")
    installed(site)
    assert path.read_text() == "my own rules"
    installed(site, rules=True)
    assert path.read_text() == now and [p.read_text() for p in path.parent.glob("*.bak")] == ["my own rules"]
    put(path, "my own rules")
    assert "changed by hand" in uninstalled(site) and path.read_text() == "my own rules"


def test_a_planted_state_folder_is_not_followed(site, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path(agy_mcp.data_folder(site)).mkdir(parents=True)
    Path(agy_mcp.state_folder(site.home)).symlink_to(elsewhere)
    lines, good = agy_mcp.install(site)
    assert not good and "is a link" in lines[0] and not list(elsewhere.iterdir())


def test_one_installation_at_a_time(site):
    with agy_mcp.InstallLock(site, {}):
        with pytest.raises(OSError, match="another installation"):
            agy_mcp.InstallLock(site, {}, patience=0).__enter__()
    installed(site)


def test_twenty_at_once_leave_one_right_file(site):
    path = put(agy_mcp.hooks_file(site), HOOKS["pretty"])
    command = [sys.executable, "-I", "-S", str(TOP / "agy_mcp.py"), "install"]
    running = [subprocess.Popen(command, env={**os.environ, "HOME": site.home}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(20)]
    said = [(process.communicate(timeout=120)[0], process.returncode) for process in running]
    assert all(code == 0 for _, code in said), said
    assert list(strict(path)) == ["lint", agy_mcp.NAME] and len(backups(site)) == 1
    assert not [name for name in tree(site.home) if name.endswith(".new")]
    uninstalled(site)
    assert path.read_text() == HOOKS["pretty"]


# What is registered.

@pytest.mark.parametrize("name", ["plain", "with blank", "it's \"quoted\" $HOME `x` \\n", "ünï😀", "-dash", "a;b&c", "tab\there"])
def test_the_registered_command_works_in_any_home(name, tmp_path, monkeypatch):
    home = tmp_path / name
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    site = site_in(home)
    assert "proof: git status" in installed(site)
    assert run_registered(site)["decision"] == "allow"
    layers, well = agy_mcp.status(site)
    assert well, agy_mcp.status_text(layers, well)


def test_an_interpreter_with_blanks_in_its_path(tmp_path):
    python = put(tmp_path / "my py" / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    put(tmp_path / "agy_hook.py", "def main():\n    print('{\"it\": \"ran\"}')")
    done = subprocess.run(["sh", "-c", agy_mcp.hook_command(str(python), str(tmp_path), "PreToolUse")], stdin=subprocess.DEVNULL, capture_output=True)
    assert json.loads(done.stdout) == {"it": "ran"}


@pytest.mark.parametrize("event, answer", [("PreToolUse", {"decision": "allow"}), ("PostToolUse", {})])
def test_without_its_interpreter_the_hook_stands_in_nobodys_way(event, answer, tmp_path):
    command = agy_mcp.hook_command("/nowhere/python3", str(tmp_path), event)
    done = subprocess.run(["sh", "-c", command], input=b"x" * 300000, capture_output=True)
    assert done.returncode == 0 and json.loads(done.stdout) == answer


def test_the_matcher_names_exactly_the_governed_tools(site):
    import agy_hook
    installed(site)
    entry = strict(agy_mcp.hooks_file(site))[agy_mcp.NAME]
    governed = {"run_command"} | {tool for guard in getattr(agy_hook, "GUARDS", ()) for tool in guard.tools}
    (group,) = entry["PreToolUse"]
    assert set(group["matcher"].removeprefix("^(?:").removesuffix(")$").split("|")) == governed
    for tool in governed:
        assert re.search(group["matcher"], tool) and not re.search(group["matcher"], "x" + tool) and not re.search(group["matcher"], tool + "x")
    for tool in ("ask_question", "search_web", "", "send_message"):
        assert tool in governed or not re.search(group["matcher"], tool)
    for event in entry:
        for group in entry[event]:
            (handler,) = group["hooks"]
            assert handler["type"] == "command" and handler["timeout"] == 10 and type(handler["timeout"]) is int


def test_a_stale_or_unwritable_compiled_copy_changes_nothing(site):
    installed(site)
    folder = Path(agy_mcp.data_folder(site), "__pycache__")
    assert run_registered(site)["decision"] == "allow"
    for path in folder.glob("agy_hook.*.pyc"):
        path.write_bytes(b"garbage")
    assert run_registered(site)["decision"] == "allow"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    assert run_registered(site)["decision"] == "allow"
    folder.unlink()


PYTHON = r"C:\Python312\python.exe"
WINDOWS = [  # python, folder, 8.3 forms, reachable from hooks.json -> command, or None for a refusal
    (PYTHON, r"C:\Users\dev\.gemini\antigravity", {}, True, rf"{PYTHON} -I -S C:\Users\dev\.gemini\antigravity\agy_hook.py PreToolUse"),
    (PYTHON, "C:\\Users\\dev/.gemini/antigravity", {}, True, rf"{PYTHON} -I -S C:\Users\dev\.gemini\antigravity\agy_hook.py PreToolUse"),
    (r"C:\Program Files\Python\python.exe", r"C:\Users\dev\x", {r"C:\Program Files\Python\python.exe": r"C:\PROGRA~1\Python\python.exe",
     r"C:\Users\dev\x\agy_hook.py": r"C:\Users\dev\x\agy_hook.py"}, True, r"C:\PROGRA~1\Python\python.exe -I -S C:\Users\dev\x\agy_hook.py PreToolUse"),
    (PYTHON, r"C:\Users\The Dev\.gemini\antigravity", {}, True, r"C:\Windows\System32\cmd.exe /c ..\antigravity\agy_hook.cmd PreToolUse"),
    (PYTHON, r"C:\Users\The Dev\.gemini\antigravity", {}, False, None),
    (PYTHON, r"C:\Users\R&D\.gemini\antigravity", {}, True, r"C:\Windows\System32\cmd.exe /c ..\antigravity\agy_hook.cmd PreToolUse"),
]


@pytest.mark.parametrize("python, folder, short, beside, want", WINDOWS)
def test_on_windows_no_blank_and_no_quote(python, folder, short, beside, want):
    try:
        got = agy_mcp.windows_command(python, folder, "PreToolUse", lambda path: short.get(path, ""), beside)
    except ValueError:
        got = None
    assert got == want
    assert got is None or '"' not in got and "'" not in got


def test_an_interpreter_of_homebrew_is_named_by_its_lasting_path(tmp_path):
    real = put(tmp_path / "Cellar" / "python@3.12" / "3.12.4" / "bin" / "python3.12", "")
    assert agy_mcp.stable_path(str(real)) == str(real)
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt" / "python@3.12").symlink_to(real.parent.parent)
    assert agy_mcp.stable_path(str(real)) == str(tmp_path / "opt" / "python@3.12" / "bin" / "python3.12")


# Workspaces.

def test_a_workspace_has_its_own_entries(site, tmp_path):
    workspace = tmp_path / "w s"
    hooks = put(workspace / ".agents" / "hooks.json", HOOKS["one line"])
    place = site_in(site.home, workspace)
    installed(place)
    assert list(strict(hooks)) == ["lint", "b", agy_mcp.NAME] and (workspace / ".agents" / "mcp_config.json").exists()
    assert not Path(agy_mcp.hooks_file(site)).exists()
    assert run_registered(place)["decision"] == "allow"
    uninstalled(place, purge=True)
    assert hooks.read_text() == HOOKS["one line"] and tree(workspace) == [".agents", ".agents/hooks.json"]
    assert not Path(agy_mcp.data_folder(site), "agy_hook.py").exists()


def test_what_is_used_elsewhere_stays(site, tmp_path):
    place = site_in(site.home, tmp_path / "w")
    (tmp_path / "w").mkdir()
    installed(site)
    installed(place)
    layers, well = agy_mcp.status(place)
    assert not well and [layer.state for layer in layers if layer.name == "workspace"] == ["doubled"]
    uninstalled(place)
    assert run_registered(site)["decision"] == "allow"
    installed(place)
    uninstalled(site)
    assert not Path(agy_mcp.hooks_file(place)).exists() and not Path(agy_mcp.data_folder(site), "agy_hook.py").exists()


def test_a_workspace_that_is_not_there_is_refused(site, tmp_path):
    lines, good = agy_mcp.install(site_in(site.home, tmp_path / "nope"))
    assert not good and "is no folder" in lines[0] and tree(site.home) == []


@pytest.mark.parametrize("home", ["/", "/nowhere/at/all"])
def test_without_a_home_nothing_is_installed(home):
    lines, good = agy_mcp.install(site_in(home))
    assert not good and "set HOME" in lines[0]


def test_what_changes_under_our_hands_is_not_overwritten(site, monkeypatch):
    path = put(agy_mcp.hooks_file(site), HOOKS["pretty"])
    plan_install = agy_mcp.plan_install

    def slow(*given):
        plan = plan_install(*given)
        path.write_text("{}")
        return plan

    monkeypatch.setattr(agy_mcp, "plan_install", slow)
    lines, good = agy_mcp.install(site)
    assert not good and "run this again" in "\n".join(lines) and path.read_text() == "{}"


# The text work by itself, on files that nobody would think of.

def random_value(rng, depth=0):
    kinds = ["s", "n", "t"] + ["o", "l"] * (depth < 3)
    kind = rng.choice(kinds)
    if kind == "o":
        return {rng.choice(["a", "b c", 'q"', "ü", "//", "/*"]) + str(i): random_value(rng, depth + 1) for i in range(rng.randrange(4))}
    if kind == "l":
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {"s": rng.choice(["", "x", "{", "// no", "\\", "\n"]), "n": rng.choice([0, -1.5, 1e30]), "t": rng.choice([True, None])}[kind]


def random_layout(value, rng, lax):
    def blank():
        parts = ["", " ", "\n", "\n  ", "\t", "\r\n"] + ["// c\n", "/* , } */", " // x, y\r\n"] * lax
        return "".join(rng.choice(parts) for _ in range(rng.randrange(3)))

    def tail(items):
        return "," + blank() if lax and items and rng.random() < 0.3 else ""

    def write(item):
        if isinstance(item, dict):
            body = ("," .join(blank() + json.dumps(k) + blank() + ":" + blank() + write(v) + blank() for k, v in item.items())) + tail(item)
            return "{" + (body or blank()) + "}"
        if isinstance(item, list):
            return "[" + (",".join(blank() + write(v) + blank() for v in item) + tail(item) or blank()) + "]"
        return json.dumps(item)

    return blank() + write(value) + blank()


PUT_IN = [  # text, what it becomes with {"x": 1} put in at the end
    ('{"a": 2}', '{"a": 2, "x": 1}'),
    ('{}', '{\n  "x": 1\n}'),
    ('{\n\t"a": 2\n}', '{\n\t"a": 2,\n\t"x": 1\n}'),
    ('{\r\n "a": 2\r\n}', '{\r\n "a": 2,\r\n "x": 1\r\n}'),
    ('{\n  "a": 2 // two\n}', '{\n  "a": 2, // two\n  "x": 1\n}'),
    ('{\n  "a": 2, // two\n}', '{\n  "a": 2, // two\n  "x": 1,\n}'),
    ('{\n  "a": 2 /* two */ /* three */ // four\n  // five\n}', '{\n  "a": 2, /* two */ /* three */ // four\n  "x": 1\n  // five\n}'),
    ('{"a": 2, /* two */}', '{"a": 2, /* two */ "x": 1,}'),
    ('{\n  // nothing\n}', '{\n  "x": 1\n  // nothing\n}'),
]


@pytest.mark.parametrize("text, want", PUT_IN)
def test_where_a_member_is_put(text, want):
    assert agy_mcp.add_item(text, agy_mcp.parse_tolerant(text)[0], "x", 1) == want


@pytest.mark.parametrize("seed", range(300))
def test_put_in_and_taken_out_is_as_before(seed):
    rng = random.Random(seed)
    lax = seed % 2 == 1
    value = {"mcpServers": {"s": random_value(rng), **{f"t{i}": random_value(rng, 1) for i in range(rng.randrange(3))}}, "k": random_value(rng)}
    entry = {"command": "python3", "args": ["-c", "import agy_mcp"]}
    text = random_layout(value, rng, lax)
    added = agy_mcp.servers_with(text, entry)
    want = {**value, "mcpServers": {**value["mcpServers"], agy_mcp.NAME: entry}}
    assert agy_mcp.parse_tolerant(added)[0].value == want, text
    assert json.loads(without_comments(added)) == want, text
    assert agy_mcp.servers_with(added, entry) == added
    assert agy_mcp.servers_with(added, None) == text


def test_the_tools_look_and_repair_from_inside_a_session(site, monkeypatch):
    monkeypatch.setattr(agy_mcp, "this_site", lambda workspace=None: site)
    text = agy_mcp.sync_installation({"checkOnly": True}, None)
    assert "nothing was written" in text and "not all is well" in text and tree(site.home) == []
    text = agy_mcp.sync_installation({"checkOnly": False}, None)
    assert text.endswith("all is well") and "not all" not in text
    assert agy_mcp.get_installation_status({}, None).endswith("all is well")
    path = Path(agy_mcp.hooks_file(site))
    path.write_text(path.read_text().replace('"agy-context-saver": {', '"agy-context-saver": {"enabled": false, '))
    assert "switches our hooks off" in agy_mcp.sync_installation({}, None)
    path.write_text("[" * 9000 + "ü" * 9000)
    assert len(agy_mcp.sync_installation({}, None).encode()) <= 4000


def test_the_command_is_quoted_for_the_shell(site):
    installed(site)
    words = shlex.split(command_of(site))
    assert words[:4] == [site.python, "-I", "-S", "-c"] and words[5] == "PreToolUse"
