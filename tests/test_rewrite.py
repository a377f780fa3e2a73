"""The check of what rtk makes of a command: what is used, what is refused and as what; and what the hook makes of rtk's exit codes."""
import json
import os
import sys
from pathlib import Path

import pytest

import agy_hook
import world

# command, rtk's answer, the kind of refusal ("" if it is used). In the folder: a.txt, b.md, c.md, latin1.txt, pipe (a FIFO), sub/.
CASES = [
    # rtk before a command word
    ("git status", "rtk git status", ""),
    ("  git   status ", "rtk git status", ""),
    ("git status&&git diff", "rtk git status && rtk git diff", ""),
    ("git status \\\n --short", "rtk git status --short", ""),
    ("git status\\\n", "rtk git status", ""),
    ("\ngit status\n\n\ngit diff\n", "rtk git status\n\n\nrtk git diff", ""),
    ("git status &&\n git diff", "rtk git status && rtk git diff", ""),
    ("git status # why", "rtk git status # why", ""),
    ("git status;;", "rtk git status;;", ""),
    ("FOO=1 BAR='a b' pytest", "FOO=1 BAR='a b' rtk pytest", ""),
    ("env -u X FOO=1 git status", "env -u X FOO=1 rtk git status", ""),
    ("timeout -k 5 10 pytest -q", "timeout -k 5 10 rtk pytest -q", ""),
    ("nice -n 10 timeout 5 pytest", "nice -n 10 timeout 5 rtk pytest", ""),
    ("2>/dev/null git status", "2>/dev/null rtk git status", ""),
    ("(cd /tmp && git status)", "(cd /tmp && rtk git status)", ""),
    ("if git status; then ls; fi", "if rtk git status; then rtk ls; fi", ""),
    ("ls -d /tmp; case x in ls) echo A;; esac", "rtk ls -d /tmp; case x in ls) echo A;; esac", ""),
    ("git log --format='%h | %s' | head -20", "rtk git log --format='%h | %s' | head -20", ""),
    ("grep -c x a | grep 0", "grep -c x a | rtk grep 0", ""),
    ("git status; if ($?) { git diff }", "rtk git status; if ($?) { git diff }", ""),
    ("PATH=/x:$PATH make", "PATH=/x:$PATH rtk make", ""),
    ("find . -name '*.py' | head", "rtk find . -name '*.py' | head", ""),
    ("git commit -am 'x'", "rtk git commit -am 'x'", ""),
    ("docker exec -it app pytest", "rtk docker exec -it app pytest", ""),
    # inside sh -c
    ("bash -c 'git status && ls'", "bash -c 'rtk git status && rtk ls'", ""),
    ('timeout 5 sh -c "make x"; ls', 'timeout 5 sh -c "rtk make x"; rtk ls', ""),
    ("bash -c 'M=\"a make b\"; ls'", "bash -c 'M=\"a rtk make b\"; rtk ls'", "quoted"),
    ('bash -c "git log $X"', 'bash -c "rtk git log $X"', "quoted"),
    ("cat x | bash -c 'npm run ask'", "cat x | bash -c 'rtk npm run ask'", "quoted"),
    ("python3 -c 'git status'", "python3 -c 'rtk git status'", "quoted"),
    ("git commit -m 'git status'", "git commit -m 'rtk git status'", "quoted"),
    # text that is no command
    ('M="a cat b" && git commit -m "$M"', 'M="a rtk read b" && rtk git commit -m "$M"', "quoted"),
    ("M=(a make b)", "M=(a rtk make b)", "quoted"),
    ("echo make", "echo rtk make", "inside"),
    ("for x in ls; do echo $x; done", "for x in rtk ls; do echo $x; done", "inside"),
    ("case x in ls) echo A;; esac", "case x in rtk ls) echo A;; esac", "pattern"),
    ("case x in a) echo A;; ls) echo B;; esac", "case x in a) echo A;; rtk ls) echo B;; esac", "pattern"),
    ("ls() { echo hi; }", "rtk ls() { echo hi; }", "pattern"),
    ("echo $(git status)", "echo $(rtk git status)", "quoted"),
    ("cat <<EOF\ngit status\nEOF", "cat <<EOF\nrtk git status\nEOF", "quoted"),
    ("# git status", "# rtk git status", "quoted"),
    ("git status # ; ls", "rtk git status #; rtk ls", "redirects"),
    ("[[ -f ls ]] && ls", "[[ -f rtk ls ]] && rtk ls", "inside"),
    # anything else that differs
    ("git status", "rtk git status; rm x", "operators"),
    ("git status > a", "rtk git status > b", "redirects"),
    ("git status 2>&1", "rtk git status", "redirects"),
    ("git status a", "rtk git status b", "other-program"),
    ("git status && ls", "rtk git status || rtk ls", "operators"),
    ("git status", "git diff", "quoted"),
    ("git status\r\ngit diff", "rtk git status\nrtk git diff", "unread"),
    ("git status\r\ngit diff", "rtk git status\r\nrtk git diff", ""),
    ("set A=1&& git status", "set A=1 && rtk git status", "cmd-set"),
    ("set -e && git status", "set -e && rtk git status", ""),
    # what would find another program, or not find rtk
    ("alias ls='ls -l'; ls", "alias ls='ls -l'; rtk ls", "shadowed"),
    ("git() { echo hi; }; git status", "git() { echo hi; }; rtk git status", "shadowed"),
    ("function ls { echo hi; }; ls", "function ls { echo hi; }; rtk ls", "shadowed"),
    ("PATH=/x make", "PATH=/x rtk make", "path-lost"),
    ("export PATH=/x; make", "export PATH=/x; rtk make", "path-lost"),
    ("export PATH=/x; PATH=$PATH:/y make", "export PATH=/x; PATH=$PATH:/y rtk make", "path-lost"),
    ("export PATH=/x; uv run ls; make", "export PATH=/x; uv run ls; rtk make", "path-lost"),
    ("ls; foo (", "rtk ls; foo (", ""),
    ("env PATH=/x make", "env PATH=/x rtk make", "wrapper"),
    ("env -i make", "env -i rtk make", "wrapper"),
    ("sudo git status", "sudo rtk git status", "inside"),
    ("npm run lint", "rtk lint", "other-program"),
    ("gradle test", "rtk gradlew test", "other-program"),
    ("bundle exec rspec", "rtk rspec", "other-program"),
    ("uv pip list", "rtk pip list", "other-program"),
    ("rails test", "rtk rake test", "other-program"),
    ("vendor/bin/phpunit", "rtk phpunit", "other-program"),
    ("npx next lint", "rtk npx next lint", "other-program"),
    ("eslint src", "rtk lint src", "other-program"),
    ("eslint src/", "rtk lint src/", ""),
    ("eslint --fix .", "rtk lint --fix .", ""),
    ("next build --debug", "rtk next --debug", ""),
    ("vitest run src", "rtk vitest src", ""),
    ("vitest watch", "rtk vitest watch", "streams"),
    ("npx tsc --noEmit", "rtk tsc --noEmit", ""),
    ("npx jest", "rtk jest", "not-installed"),
    # files that rtk cannot read
    ("cat a.txt", "rtk read a.txt", ""),
    ("cat -n a.txt", "rtk read -n a.txt", ""),
    ("cat -A a.txt", "rtk read -A a.txt", "options"),
    ("cat missing.txt", "rtk read missing.txt", ""),
    ("cat latin1.txt", "rtk read latin1.txt", "not-text"),
    ("cat 'latin1.txt'", "rtk read 'latin1.txt'", "not-text"),
    ("cat *.md", "rtk read *.md", ""),
    ("cat *.txt", "rtk read *.txt", "not-text"),
    ("cat sub/*", "rtk read sub/*", "not-text"),
    ("cat {a,latin1}.txt", "rtk read {a,latin1}.txt", "not-text"),
    ("F=a.txt; cat $F", "F=a.txt; rtk read $F", ""),
    ("cat $F", "rtk read $F", "unknown-file"),
    ("cat pipe", "rtk read pipe", "unknown-file"),
    ("cat /dev/stdin", "rtk read /dev/stdin", "unknown-file"),
    ("cat a.txt -", "rtk read a.txt -", "options"),
    ("cd sub && cat t.txt", "cd sub && rtk read t.txt", "not-text"),
    ("(cd sub; ls); cat a.txt", "(cd sub; rtk ls); rtk read a.txt", ""),
    ("cd $X && cat a.txt", "cd $X && rtk read a.txt", "unknown-file"),
    ("head a.txt", "rtk read a.txt --head-lines 10", ""),
    ("head -n20 a.txt", "rtk read a.txt --head-lines 20", ""),
    ("tail --lines=5 a.txt 2>/dev/null", "rtk read a.txt --tail-lines 5 2>/dev/null", ""),
    ("head -5 a.txt", "rtk read a.txt --head-lines 50", "options"),
    ("tail -n +5 a.txt", "rtk read a.txt --tail-lines 5", "options"),
    ("head -c 5 a.txt", "rtk read a.txt --head-lines 5", "options"),
    ("find missing -name x", "rtk find missing -name x", "missing-start"),
    ("find missing -name x 2>/dev/null", "rtk find missing -name x 2>/dev/null", ""),
    ("find $D -name x && echo y", "rtk find $D -name x && echo y", "missing-start"),
    ("find sub -name x && echo y", "rtk find sub -name x && echo y", ""),
    ("diff sub sub", "rtk diff sub sub", "folder"),
    ("diff a.txt sub || echo y", "rtk diff a.txt sub || echo y", "folder"),
    ("diff -r sub sub", "rtk diff -r sub sub", ""),
    ("diff a.txt b.md || echo y", "rtk diff a.txt b.md || echo y", ""),
    ("grep x nul", "rtk grep x nul", "not-text"),
    ("cd sub && grep x ../nul", "cd sub && rtk grep x ../nul", "not-text"),
    ("grep x a.txt && echo y", "rtk grep x a.txt && echo y", ""),
    # output that another program picks from, or that rtk does not know
    ("ls -t | head -1", "rtk ls -t | head -1", "piped-listing"),
    ("wc -l *.py | tail -1", "rtk wc -l *.py | tail -1", "piped-listing"),
    ("jest --json", "rtk jest --json", ""),
    ("npx tsc --showConfig", "rtk tsc --showConfig", "other-output"),
    ("vitest --version", "rtk vitest --version", "other-output"),
    # what would wait, or not be seen before it ends
    ("git add -p", "rtk git add -p", "interactive"),
    ("git commit", "rtk git commit", "interactive"),
    ("git stash push -p", "rtk git stash push -p", "interactive"),
    ("git stash show -p", "rtk git stash show -p", ""),
    ("npx prisma migrate dev", "rtk prisma migrate dev", "interactive"),
    ("git commit --amend --no-edit", "rtk git commit --amend --no-edit", ""),
    ("pytest --pdb", "rtk pytest --pdb", "interactive"),
    ("psql db", "rtk psql db", "interactive"),
    ("psql -At -c 'select 1'", "rtk psql -At -c 'select 1'", ""),
    ("ssh -p 22 host", "rtk ssh -p 22 host", "interactive"),
    ("ssh host ls", "rtk ssh host ls", ""),
    ("npm run dev", "rtk npm run dev", "streams"),
    ("npm run build", "rtk npm run build", ""),
    ("npm run test -- --watch", "rtk npm run test -- --watch", "streams"),
    ("make serve", "rtk make serve", "streams"),
    ("uv run dev", "rtk uv run dev", "streams"),
    ("npx prisma studio", "rtk prisma studio", "streams"),
    ("tail -f log | grep x", "tail -f log | rtk grep x", ""),
    ("docker logs -f x", "rtk docker logs -f x", ""),
    ("mvn spring-boot:run", "rtk mvn spring-boot:run", ""),
    ("ping host", "rtk ping host", "interactive"),
    ("ping -c1 host", "rtk ping -c1 host", ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("check")
    for name, content in {"a.txt": "a\n", "b.md": "b\n", "c.md": "\u00e9\n", "latin1.txt": b"caf\xe9\n", "sub/t.txt": b"\xff", "nul": b"a\0b"}.items():
        world.put(top / name, content)
    os.mkfifo(top / "pipe")
    return top


def check(folder, command, answer, word="rtk", env=None, where="", **config):
    made = agy_hook.World(env or {"PATH": "/usr/bin:/bin"}, str(folder), 0.0, config)
    return agy_hook.check_rewrite(command, answer, word, str(folder) if where == "" else where, made)


@pytest.mark.parametrize("command, answer, want", CASES, ids=[repr(case[0]) for case in CASES])
def test_what_is_used_and_what_is_refused(command, answer, want, folder):
    assert check(folder, command, answer) == (want, "" if want else answer)


@pytest.mark.parametrize("command, answer, want", [(c, a, w) for c, a, w in CASES if not w], ids=[repr(case[0]) for case in CASES if not case[2]])
def test_no_other_change_gets_through(command, answer, want, folder):
    """Each answer that is used, with a word more, a quote less or a word doubled, is not."""
    first = [answer.replace("rtk ", other, 1) for other in ("rtk rtk ", "rm ", "rtk x ")]
    for worse in (answer + " x", "x " + answer, answer + "; x", *first):
        assert check(folder, command, worse)[0], worse


@pytest.mark.parametrize("command, answer, want", [
    ("git status && ls", "rtk git status && rtk ls", "/o/rtk git status && /o/rtk ls"),
    ("git status && rtk git diff", "rtk git status && rtk git diff", "/o/rtk git status && rtk git diff"),
    ("sh -c 'ls'", "sh -c 'rtk ls'", "sh -c '/o/rtk ls'"),
    ("echo 'rtk ls'; PATH=/x ls", "echo 'rtk ls'; PATH=/x rtk ls", "echo 'rtk ls'; PATH=/x /o/rtk ls"),
    ("head -5 a.txt", "rtk read a.txt --head-lines 5", "/o/rtk read a.txt --head-lines 5"),
])
def test_rtk_outside_path_is_written_out(command, answer, want, folder):
    assert check(folder, command, answer, "/o/rtk") == ("", want)


def test_a_path_that_needs_quotes_does_not_go_into_quotes(folder):
    assert check(folder, "sh -c 'ls'", "sh -c 'rtk ls'", "'/a b/rtk'")[0] == "quoted"
    assert check(folder, "ls", "rtk ls", "'/a b/rtk'") == ("", "'/a b/rtk' ls")


@pytest.mark.parametrize("places, want", [
    ({"one/python3": "", "one/pytest": ""}, ""), ({"one/python3": "", "two/pytest": ""}, "other-program"), ({"one/python3": ""}, "other-program"),
    ({"one/pytest": "", "two/python3": "", "two/pytest": ""}, "other-program"),
])
def test_python_m_pytest_only_beside_its_python(places, want, tmp_path):
    for name in places:
        world.put_program(tmp_path / name, "#!/bin/sh\n")
    env = {"PATH": f"{tmp_path}/one:{tmp_path}/two"}
    assert check(tmp_path, "python3 -m pytest -q", "rtk pytest -q", env=env)[0] == want
    for name, used in (("setup.py", True), ("src/a.py", True), ("shop/a.py", True), ("shop/__init__.py", False), ("conftest.py", True)):
        world.put(tmp_path / name, "")  # what tests import from the folder itself pytest finds only beside a conftest.py
        assert check(tmp_path, "python3 -m pytest -q", "rtk pytest -q", env=env)[0] == (want if used else "other-program"), name
    assert check(tmp_path, ". venv/bin/activate && python3 -m pytest", ". venv/bin/activate && rtk pytest", env=env)[0] == "other-program"
    assert check(tmp_path, "uv run python3 -m pytest", "uv run rtk pytest", env=env)[0] == "other-program"


@pytest.mark.parametrize("places, want", [
    (["p/node_modules/.bin/jest"], ""), (["bin/jest"], ""), (["p/node_modules/.bin/jest", "bin/jest"], "other-program"), ([], "not-installed"),
])
def test_npx_only_where_rtk_finds_the_same(places, want, tmp_path):
    for name in places:
        world.put_program(tmp_path / name, "#!/bin/sh\n")
    assert check(tmp_path, "npx jest", "rtk jest", env={"PATH": f"{tmp_path}/bin"}, where=f"{tmp_path}/p/src")[0] == want


def test_words_that_the_user_told_rtk_to_see_through(tmp_path):
    case = ("docker exec app pytest", "docker exec app rtk pytest")
    assert check(tmp_path, *case)[0] == "inside"
    world.put(tmp_path / ".config" / "rtk" / "config.toml", '[hooks]\ntransparent_prefixes = ["docker exec app"]\n')
    assert check(tmp_path, *case)[0] == ""


def test_nothing_is_known_of_files_where_the_folder_is_not(folder):
    assert check(folder, "cat a.txt", "rtk read a.txt", where=None)[0] == "unknown-file"
    assert check(folder, "git status", "rtk git status", where=None)[0] == ""


# ---- rtk's exit codes, and the window ----
ANSWERS = {  # what rtk does -> (decision, the command that runs or None for the original, text in the reason)
    "exit 0": ("printf 'rtk git status'; exit 0", "allow", "rtk git status", ""),
    "exit 3": ("printf 'rtk git status'; exit 3", "allow", "rtk git status", ""),
    "a newline behind it": ("echo 'rtk git status'; exit 3", "allow", "rtk git status", ""),
    "stderr is for people": ("echo warning >&2; printf 'rtk git status'; exit 3", "allow", "rtk git status", ""),
    "exit 1": ("exit 1", "allow", None, ""),
    "exit 1 with text": ("printf 'rtk git status'; exit 1", "allow", None, ""),
    "exit 2 with text": ("echo 'use git diff --stat instead'; exit 2", "deny", None, "[agy:rtk] use git diff --stat instead"),
    "exit 2 with much text": ("head -c 100000 /dev/zero | tr '\\0' x; exit 2", "deny", None, "[agy:rtk] xxx"),
    "exit 2 without": ("exit 2", "ask", None, "[agy:rtk]"),
    "exit 0 without text": ("exit 0", "allow", None, ""),
    "the same text": ("printf 'git status'; exit 3", "allow", None, ""),
    "another meaning": ("printf 'rtk git status; rm x'; exit 3", "allow", None, ""),
    "a panic": ("printf 'rtk git status'; exit 101", "allow", None, ""),
    "killed": ("printf 'rtk git status'; kill -9 $$", "allow", None, ""),
    "not UTF-8": ("printf 'rtk git \\377'; exit 3", "allow", None, ""),
    "endless": ("exec yes 'rtk git status'", "allow", None, ""),
    "silent": ("sleep 60", "allow", None, ""),
    "silent, its child too": ("sleep 60 & sleep 60", "allow", None, ""),
    "it reads": ("cat; printf 'rtk git status'; exit 3", "allow", "rtk git status", ""),
}


@pytest.mark.parametrize("script, decision, command, reason", ANSWERS.values(), ids=ANSWERS)
def test_what_rtk_answers(script, decision, command, reason, tmp_path):
    names = world.build(tmp_path)
    world.put_program(tmp_path / "bin" / "rtk", f"#!/bin/sh\n{script}\n")
    got = world.answer(names, world.command(names, "git status"))
    assert got["decision"] == decision and got.get("overwrite", {}).get("CommandLine") == command and reason in got.get("reason", "")
    assert command or "overwrite" not in got


@pytest.mark.parametrize("program", ["", "\0\1\2 no program"])
def test_an_rtk_that_does_not_start(program, tmp_path):
    names = world.build(tmp_path)
    world.put_program(tmp_path / "bin" / "rtk", program)
    assert world.answer(names, world.command(names, "git status")) == {"decision": "allow"}


@pytest.mark.parametrize("args, window", [
    ({}, 10000), ({"WaitMsBeforeAsync": 0}, 10000), ({"WaitMsBeforeAsync": None}, 10000), ({"WaitMsBeforeAsync": "500"}, 10000),
    ({"WaitMsBeforeAsync": 10000}, None), ({"WaitMsBeforeAsync": 20000}, None), ({"WaitMsBeforeAsync": 9999.5}, 10000),
    ({"IsDaemon": True}, None), ({"RunPersistent": True}, None),
    ({"IsDaemon": False, "RunPersistent": None}, 10000), ({"IsDaemon": "true"}, None), ({"IsDaemon": "false"}, 10000), ({"WaitMsBeforeAsync": []}, 10000),
])
def test_the_window_goes_up_with_a_rewrite(args, window, tmp_path):
    names = world.build(tmp_path)
    want = {"CommandLine": "rtk git status", **({"WaitMsBeforeAsync": window} if window else {})}
    assert world.answer(names, world.command(names, "git status", **args))["overwrite"] == want
    assert world.answer(names, world.command(names, "true", **args)) == {"decision": "allow"}


@pytest.mark.parametrize("command", ["rtk git status", "  rtk ls", "rtk", "/opt/x/rtk git status", "'/a b/rtk' ls", "rtk.exe ls"])
def test_a_call_of_rtk_is_left_alone(command, tmp_path):
    names = world.build(tmp_path)
    assert world.answer(names, world.command(names, command)) == {"decision": "allow"} and world.rtk_starts(names) == 0


@pytest.mark.parametrize("command", ["rtk gain\nls", "rtk git status && ls", "rtk ls | head -5; ls"])
def test_what_follows_a_call_of_rtk_is_not(command, tmp_path):
    names = world.build(tmp_path)
    world.answer(names, world.command(names, command))
    assert world.rtk_starts(names)


@pytest.mark.parametrize("size, starts", [(100_000, 1), (200_000, 0)])
def test_a_long_command(size, starts, tmp_path):
    names = world.build(tmp_path)
    line = "grep " + "x " * (size // 2)
    got = world.answer(names, world.command(names, line))
    assert got["decision"] == "allow" and world.rtk_starts(names) == starts


PLACES = {  # where rtk lies below the home folder -> what is written, or None where it is not found
    "work/bin/rtk": ({"config": {"rtk": "{HOME}/work/bin/rtk"}}, "{HOME}/work/bin/rtk git status"),
    "my tools/rtk": ({"config": {"rtk": "~/my tools/rtk"}}, "'{HOME}/my tools/rtk' git status"),
    ".local/bin/rtk": ({}, "{HOME}/.local/bin/rtk git status"),
    ".cargo/bin/rtk": ({}, "{HOME}/.cargo/bin/rtk git status"),
    ".gemini/antigravity/bin/rtk": ({}, "{HOME}/.gemini/antigravity/bin/rtk git status"),
    "elsewhere/rtk": ({}, None),
}


@pytest.mark.parametrize("place", PLACES)
def test_where_rtk_is_found(place, tmp_path):
    names = world.build(tmp_path)
    case, want = world.fill(list(PLACES[place]), names)
    os.remove(tmp_path / "bin" / "rtk")
    world.put_program(Path(names["HOME"], place), world.RTK_STUB)
    got = world.answer(names, world.command(names, "git status"), env=world.prepare(names, case))
    assert got.get("overwrite", {}).get("CommandLine") == want


def test_path_goes_before_the_usual_places_and_relative_entries_do_not_count(tmp_path):
    names = world.build(tmp_path)
    world.put_program(Path(names["WS"], "rtk"), "#!/bin/sh\nprintf 'rtk rm -rf /'; exit 3\n")
    world.put_program(Path(names["HOME"], ".local/bin/rtk"), "#!/bin/sh\nexit 1\n")
    env = world.environment(names, PATH=f".::bin:{tmp_path}/bin:/usr/bin:/bin")
    assert world.answer(names, world.command(names, "git status"), env=env)["overwrite"]["CommandLine"] == "rtk git status"


def test_rtk_runs_where_the_command_would(tmp_path):
    names = world.build(tmp_path)
    world.put_program(tmp_path / "bin" / "rtk", '#!/bin/sh\npwd -P >>"$RTK_LOG"\nexit 1\n')
    folder = names["WS"] + "/few"
    world.answer(names, world.command(names, "git status", Cwd=folder))
    world.answer(names, world.command(names, "git diff", Cwd="few"))
    world.answer(names, world.command(names, "git log", Cwd=None))
    seen = Path(tmp_path, "rtk.log").read_text().splitlines()
    assert seen == [os.path.realpath(folder)] * 2 + [os.path.realpath(names["WS"])]


def test_a_hit_leaves_the_current_folder_as_it_was(tmp_path):
    names = world.build(tmp_path)
    here = os.getcwd()
    made = agy_hook.World(world.environment(names), names["HOME"], 0.0, {})
    call = agy_hook.make_call(json.loads(json.dumps(world.command(names, "git status"))), made)
    assert agy_hook.rewrite(call, made).decision.overwrite["CommandLine"] == "rtk git status" and os.getcwd() == here
    assert not agy_hook.CHILDREN and sys.executable
