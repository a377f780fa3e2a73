"""The cache of rtk's answers, counted by starts of rtk, and the log of decisions."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import agy_hook
import world

REWRITTEN = {"decision": "allow", "overwrite": {"CommandLine": "rtk git status", "WaitMsBeforeAsync": 10000}}


@pytest.fixture
def names(tmp_path):
    return world.build(tmp_path)


def starts(names, line, env=None, **args):
    """How often rtk is started for a call."""
    before = world.rtk_starts(names)
    world.answer(names, world.command(names, line, **args), env=env)
    return world.rtk_starts(names) - before


@pytest.mark.parametrize("line", ["git status", "true", "ls -la", "grep -rn 'a b' src", "git log --format='%h \u00e9'", "x" * 300])
def test_asked_once(line, names):
    assert [starts(names, line) for _ in range(3)] == [1, 0, 0]


def test_the_whole_call_is_decided_alike_from_the_cache(names):
    assert [world.answer(names, world.command(names, "git status")) for _ in range(2)] == [REWRITTEN] * 2
    assert world.answer(names, world.command(names, "git status", IsDaemon=True))["overwrite"] == {"CommandLine": "rtk git status"}


def test_the_check_is_made_of_cached_answers_too(names):
    world.put(Path(names["WS"], "page.txt"), "text\n")
    assert "overwrite" in world.answer(names, world.command(names, "cat page.txt"))
    world.put(Path(names["WS"], "page.txt"), b"caf\xe9\n")
    assert world.answer(names, world.command(names, "cat page.txt")) == {"decision": "allow"} and world.rtk_starts(names) == 1


CHANGES = {  # what changes between two calls -> how
    "the folder's settings": ("file", "{WS}/.claude/settings.json"),
    "the folder's local settings": ("file", "{WS}/.claude/settings.local.json"),
    "a folder above": ("file", "{HOME}/work/.claude/settings.json"),
    "the home folder's": ("file", "{HOME}/.claude/settings.json"),
    "rtk's configuration": ("file", "{HOME}/.config/rtk/config.toml"),
    "rtk's configuration on macOS": ("file", "{HOME}/Library/Application Support/rtk/config.toml"),
    "a PHP project": ("file", "{WS}/composer.json"),
    "an RTK_ variable": ("env", {"RTK_REWRITE_HOST": "x"}),
    "the home of configurations": ("env", {"XDG_CONFIG_HOME": "/nowhere"}),
    "the command": ("line", "git status "),
}


@pytest.mark.parametrize("kind, what", CHANGES.values(), ids=CHANGES)
def test_a_change_asks_anew(kind, what, names):
    what = world.fill(what, names)
    assert [starts(names, "git status") for _ in range(2)] == [1, 0]
    if kind != "file":
        line, more = (what, {}) if kind == "line" else ("git status", what)
        assert [starts(names, line, env=world.environment(names, **more)) for _ in range(2)] == [1, 0]
        return
    for text in ("{}", '{"a": 1}'):  # made, changed
        world.put(what, text)
        assert [starts(names, "git status") for _ in range(2)] == [1, 0]
    os.remove(what)
    assert starts(names, "git status") == 0  # as at first


def test_settings_rewritten_in_place_with_the_same_size(names):
    path = Path(names["WS"], ".claude", "settings.json")
    world.put(path, '{"a": 1}')
    assert [starts(names, "git status") for _ in range(2)] == [1, 0]
    old = os.stat(path)
    path.write_text('{"a": 2}')
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert starts(names, "git status") == 1


def test_another_rtk_asks_anew(names):
    assert [starts(names, "git status") for _ in range(2)] == [1, 0]
    world.put_program(Path(names["ROOT"], "bin", "rtk"), world.RTK_STUB + "\n")
    assert [starts(names, "git status") for _ in range(2)] == [1, 0]


def test_folders_share_answers_until_one_has_rules(names):
    assert starts(names, "git status") == 1
    assert starts(names, "git status", Cwd=names["WS"] + "/few") == 0
    world.put(Path(names["WS"], "few", ".claude", "settings.json"), "{}")
    assert [starts(names, "git status", Cwd=names["WS"] + folder) for folder in ("/few", "/few", "", "/many")] == [1, 0, 0, 0]


def test_a_linked_folder_has_the_rules_of_where_it_leads(names):
    link = Path(names["HOME"], "link")
    link.symlink_to(names["WS"])
    assert starts(names, "git status", Cwd=str(link)) == 1
    world.put(Path(names["HOME"], "work", ".claude", "settings.json"), "{}")
    assert starts(names, "git status", Cwd=str(link)) == 1


@pytest.mark.parametrize("script", ["printf x; exit 2", "exit 2", "exit 64", "exit 101", "kill -9 $$"])
def test_other_answers_are_not_kept(script, names):
    world.put_program(Path(names["ROOT"], "bin", "rtk"), f'#!/bin/sh\necho x >>"$RTK_LOG"\n{script}\n')
    assert [starts(names, "git status") for _ in range(2)] == [1, 1]


def test_at_most_500_entries_oldest_out_first(names):
    made = agy_hook.World({}, names["HOME"], 0.0, {})
    for i in range(510):
        agy_hook.store_answer((f"{i:032x}", 3, f"rtk {i}"), made)
    agy_hook.store_answer((f"{400:032x}", 1, ""), made)  # anew, so last
    entries = json.loads(world.state(names, "rewrites.json").read_text())["entries"]
    assert len(entries) == 500 and entries[0][0] == f"{10:032x}" and entries[-1] == [f"{400:032x}", 1, ""]
    assert agy_hook.cached_answer(f"{9:032x}", made) is None and agy_hook.cached_answer(f"{11:032x}", made) == (3, "rtk 11")
    assert agy_hook.cached_answer(f"{400:032x}", made) == (1, "")


BROKEN = {
    "nothing": lambda data: b"", "no JSON": lambda data: b"garbage", "cut off": lambda data: data[:-9], "another shape": lambda data: b'{"entries": 5}',
    "an array": lambda data: b"[]", "zeros": lambda data: b"\0" * 5000, "half a line": lambda data: data.replace(b", 3, ", b", "),
    "not UTF-8": lambda data: data.replace(b"rtk", b"\xff\xfe\xfd"), "deep": lambda data: b"[" * 50_000,
}


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_dropped_and_built_anew(spoil, names):
    path = world.state(names, "rewrites.json")
    assert [starts(names, line) for line in ("git status", "git diff")] == [1, 1]
    path.write_bytes(spoil(path.read_bytes()))
    for line in ("git status", "ls", "git diff"):
        assert world.answer(names, world.command(names, line))["overwrite"]["CommandLine"] == "rtk " + line
    starts(names, "git status")
    assert [starts(names, line) for line in ("git status", "ls", "git diff")] == [0, 0, 0] and json.loads(path.read_text())["entries"]


def test_eight_processes_at_once_lose_nothing(names):
    """Eight children, each storing 20 answers and looking each time that the file is whole."""
    code = (f"import sys, json; sys.path.insert(0, {str(world.TOP)!r}); import agy_hook\n"
            f"w = agy_hook.World({{}}, {names['HOME']!r}, 0.0, {{}})\n"
            "for i in range(20):\n"
            "    agy_hook.store_answer((f'{int(sys.argv[1]) * 100 + i:032x}', 3, 'rtk x'), w)\n"
            "    json.loads(open(w.state + '/rewrites.json').read())")
    children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", code, str(n)], stderr=subprocess.PIPE) for n in range(8)]
    assert [(child.communicate(timeout=60)[1], child.returncode) for child in children] == [(b"", 0)] * 8
    keys = {entry[0] for entry in json.loads(world.state(names, "rewrites.json").read_text())["entries"]}
    assert keys == {f"{n * 100 + i:032x}" for n in range(8) for i in range(20)}
    assert sorted(path.name for path in world.state(names, "").iterdir()) == ["rewrites.json", "rewrites.json.lock"]


def test_eight_hooks_at_once(names):
    calls = [world.command(names, f"git log -{n}") for n in range(8)]
    start = [sys.executable, "-I", "-S", world.HOOK]
    children = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=world.environment(names)) for _ in calls]
    for child, call in zip(children, calls):
        child.stdin.write(json.dumps(call).encode())
        child.stdin.close()
    for n, child in enumerate(children):
        assert json.loads(child.stdout.read())["overwrite"]["CommandLine"] == f"rtk git log -{n}" and child.wait(20) == 0
        child.stdout.close()
    assert [starts(names, f"git log -{n}") for n in range(8)] == [0] * 8
    assert len(world.log_lines(names)) == 16


SECRET = [
    "curl -H 'Authorization: Bearer abc' https://example.org", "gh api /x --token abc", "TOKEN=abc make", "export API_KEY='abc'; ls", "mysql --password=abc",
    "psql postgres://dev:abc@db/shop", "curl -u dev:abc https://example.org", "git clone https://abc@example.org/x.git", "PGPASSWORD=abc psql -c 'select 1'",
    "git log ghp_abcdefghijklmnopqrst", "ls AKIAABCDEFGHIJKLMNOP", "echo 9f86d081884c7d659a2feaa0c55ad015", "grep x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx",
    "git status password=abc", "ls --access-token=x", "find . -name 'client_secret: abc'", "wget --header 'Cookie: a=b' https://example.org",
]
PLAIN = [
    "git status", "grep -rn token src", "git show 70d40484725d4c3a70d40484725d4c3a70d40484", "git checkout task-1-a-very-long-name-of-a-branch",
    "ls tests/secrets", "git log --author=dev@example.org", "cargo test tokenizer::keywords", "curl https://example.org/a/b?x=1",
    "ls src/components/PasswordField.tsx",
]


@pytest.mark.parametrize("line", SECRET)
def test_what_looks_like_a_secret_leaves_no_trace(line, names):
    assert agy_hook.holds_secret(line)
    assert [starts(names, line) for _ in range(2)] == [1, 1]
    found = [path for path in Path(names["HOME"], ".gemini").rglob("*") if path.is_file() and b"abc" in path.read_bytes()]
    assert not found and not world.state(names, "rewrites.json").exists() and not world.log_lines(names)


@pytest.mark.parametrize("line", PLAIN)
def test_what_does_not_is_kept(line, names):
    assert not agy_hook.holds_secret(line)
    assert [starts(names, line) for _ in range(2)] == [1, 0]


# ---- The log, and the state folder ----
def test_a_line_says_what_was_decided_and_never_the_text(names):
    world.answer(names, world.command(names, "git status"))
    world.answer(names, world.command(names, "true"))
    world.answer(names, world.payload(names, "search_web", {"query": "x"}))
    (line,) = world.log_lines(names)
    assert {key: line[key] for key in ("conversation", "tool", "guard", "decision", "bytes")} == {
        "conversation": world.CONV, "tool": "run_command", "guard": "rewrite", "decision": "allow", "bytes": 10}
    assert line["time"] > 1e9 and len(line["hash"]) == 16 and "git status" not in json.dumps(line)


def test_a_refused_rewrite_is_logged_with_its_kind(names):
    assert world.answer(names, world.command(names, "cat logo.png")) == {"decision": "allow"}
    (line,) = world.log_lines(names)
    assert line["refused"] == "not-text" and line["decision"] == "neutral"


def test_modes_of_what_is_written(names):
    old = os.umask(0)
    try:
        world.answer(names, world.command(names, "git status"))
    finally:
        os.umask(old)
    folder = world.state(names, "")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "rewrites.json": 0o600, "rewrites.json.lock": 0o600, "decisions.jsonl": 0o600}


def test_a_full_log_is_turned_over(names):
    made = agy_hook.World({}, names["HOME"], 0.0, {})
    agy_hook.append_log({"n": 0}, made)
    world.state(names, "decisions.jsonl").write_text('{"n": 1}\n' * 120_000)
    agy_hook.append_log({"n": 2}, made)
    agy_hook.append_log({"n": 3}, made)
    assert world.log_lines(names) == [{"n": 3}]
    older = world.state(names, "decisions.1.jsonl").read_text().splitlines()
    assert len(older) == 120_001 and json.loads(older[-1]) == {"n": 2}


def test_lines_of_eight_processes_do_not_mix_and_survive_turning_over(names):
    made = agy_hook.World({}, names["HOME"], 0.0, {})
    agy_hook.append_log({"n": -1}, made)
    world.state(names, "decisions.jsonl").write_text('{"n": -1, "pad": "%s"}\n' % ("x" * 980) * 1045)
    code = (f"import sys; sys.path.insert(0, {str(world.TOP)!r}); import agy_hook\n"
            f"w = agy_hook.World({{}}, {names['HOME']!r}, 0.0, {{}})\n"
            "for i in range(40): agy_hook.append_log({'n': int(sys.argv[1]) * 100 + i, 'pad': 'y' * 100}, w)")
    children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", code, str(n)]) for n in range(8)]
    assert [child.wait(60) for child in children] == [0] * 8
    lines = [json.loads(line) for name in ("decisions.1.jsonl", "decisions.jsonl") if world.state(names, name).exists()
             for line in world.state(names, name).read_text().splitlines()]
    assert {line["n"] for line in lines} - {-1} == {n * 100 + i for n in range(8) for i in range(40)}


def plant_link(names, name):
    target = Path(names["ROOT"], "victim")
    world.put(target, "precious")
    path = world.state(names, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.symlink_to(target)
    return target


@pytest.mark.parametrize("name", ["rewrites.json", "rewrites.json.lock", "decisions.jsonl"])
def test_a_planted_link_is_not_written_through(name, names):
    target = plant_link(names, name)
    assert [world.answer(names, world.command(names, "git status")) for _ in range(2)] == [REWRITTEN] * 2
    assert target.read_text() == "precious"


def test_a_planted_folder_is_not_written_into(names):
    target = Path(names["ROOT"], "elsewhere")
    target.mkdir()
    world.state(names, "")
    Path(names["HOME"], ".gemini", "antigravity", "agy_state").symlink_to(target)
    assert world.answer(names, world.command(names, "git status")) == REWRITTEN and not list(target.iterdir())


@pytest.mark.parametrize("spoil", [
    lambda names: os.mkfifo(world.state(names, "decisions.jsonl")), lambda names: world.state(names, "rewrites.json").mkdir(),
    lambda names: world.state(names, "decisions.jsonl").mkdir(), lambda names: os.mkfifo(world.state(names, "rewrites.json")),
    lambda names: os.chmod(world.state(names, ""), 0o500),
], ids=["a FIFO for the log", "a folder for the cache", "a folder for the log", "a FIFO for the cache", "a folder without the right to write"])
def test_what_cannot_be_written_changes_no_decision(spoil, names):
    world.state(names, "").mkdir(mode=0o700)
    spoil(names)
    assert [world.answer(names, world.command(names, "git status")) for _ in range(2)] == [REWRITTEN] * 2


def test_a_file_where_the_folder_should_be(names):
    world.put(Path(names["HOME"], ".gemini", "antigravity", "agy_state"), "")
    assert world.answer(names, world.command(names, "git status")) == REWRITTEN


def test_a_full_disk_changes_no_decision(names):
    """A limit on file sizes stands in for a full disk: every write ends in an error or in SIGXFSZ's stead, as Python ignores that."""
    resource = pytest.importorskip("resource")
    for _ in range(2):
        done = world.start(names, world.command(names, "git status"), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
                           env=world.environment(names, RTK_LOG=""))
        assert json.loads(done.stdout) == REWRITTEN and done.returncode == 0


def test_no_home_at_all(names):
    env = {k: v for k, v in world.environment(names).items() if k != "HOME"}
    assert world.answer(names, world.command(names, "git status"), env={**env, "HOME": "/nowhere/at/all"}) == REWRITTEN
