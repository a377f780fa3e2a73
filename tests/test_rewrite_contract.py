"""The real rtk, row by row of the two tables: that it still answers so, and what becomes of its answer. Skipped where there is no rtk."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agy_hook
import world

RTK = shutil.which("rtk", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
pytestmark = [pytest.mark.contract, pytest.mark.skipif(not RTK, reason="no rtk: the contract with the real one is not tested")]
ROWS = [(command, int(code), answer) for command, code, answer, *_ in world.read_table("rtk_rewrite_cases.tsv")]

# Rows that rtk rewrites and the hook does not, by kind, with the reason.
REFUSED = {
    "quoted": "text inside quotes or an array is rewritten: another message, query or prompt than was written",
    "operators": "rtk prints its help",
    "other-program": "another program, or the same name from another place: gradle and its wrapper, npm's script and eslint, bundle's rspec and PATH's; "
                     "python -m where python and the program do not lie in one folder on PATH",
    "not-installed": "rtk forbids npx to install what npx would install, except tsc",
    "unread": "a carriage return is part of the word for a POSIX shell, and the table drops it (rtk 1.1.0 keeps it)",
    "unknown-file": "a device, which rtk reads to an end that never comes",
    "missing-start": "rtk find says nothing and succeeds where find names the missing folder and fails",
    "interactive": "rtk shows the question when it is too late to answer",
    "streams": "rtk shows nothing before the end, and a server or a watch has none (docker, kubectl, mvn, pnpm and others do stream)",
    "piped-listing": "rtk ls puts folders first, so that the first line is not the newest",
}
# The rows of rtk.md's harmful kinds, which must never be used, whatever the machine holds.
HARMFUL = [
    'M="a cat b" && git commit -m "$M"', "SQL='select ls from t'; psql -c \"$SQL\"", "M=(a make b); ls", "npm run lint", "gradle test", "gradle build",
    "M='please make a cake'", "M='please make a cake' && ls", "PROMPT='use git log to find'; python x.py \"$PROMPT\"", 'X="see: npm run build"; ls',
    'T="chore(skills): make every Pocock skill model-invocable"; echo "len=${#T}"', "bash -c 'M=\"please make a cake\"; ls'", "-h", "--help",
    'DESC="see git log output" && echo ok',
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "work").mkdir()
    return home


def environment(home):
    return {"HOME": str(home), "PATH": f"{Path(RTK).parent}:/usr/bin:/bin", "RTK_TELEMETRY_DISABLED": "1"}


def ask(home, command, **env):
    done = subprocess.run([RTK, "rewrite", "--", command], cwd=home / "work", env={**environment(home), **env}, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, done.stdout.decode()


def judge(home, command, answer):
    bare = {**environment(home), "PATH": "/usr/bin:/bin"}  # no python and pytest in one folder: the fewest are used there
    return agy_hook.check_rewrite(command, answer, "rtk", str(home / "work"), agy_hook.World(bare, str(home), 0.0, {}))


def test_the_real_rtk_answers_as_the_table_says(home):
    assert len(ROWS) > 600
    asked = [row for row in ROWS if row[0] not in ("-h", "--help")]  # these two were asked without the -- before them
    differing = [(command, code, answer, got) for command, code, answer in asked
                 for got in [ask(home, command)] if (got[0], got[1].replace("\r", "").strip()) != (code, answer.strip())]
    assert not differing


def test_at_least_nine_in_ten_rewrites_are_used_and_none_that_harms(home):
    kinds = {}
    for command, code, answer in ROWS:
        if code in (0, 3) and answer and answer != command:
            kinds.setdefault(judge(home, command, answer)[0], []).append(command)
    used, total = len(kinds[""]), sum(map(len, kinds.values()))
    assert used >= 0.91 * total, (used, total, kinds)
    assert not set(kinds[""]) & set(HARMFUL)
    assert set(kinds) - {""} <= set(REFUSED), set(kinds) - set(REFUSED)


@pytest.mark.parametrize("command", HARMFUL)
def test_a_harmful_row_is_in_the_table_and_runs_as_it_is(command, home):
    row = [(code, answer) for text, code, answer in ROWS if text == command]
    assert row, command
    assert row[0][1] == command or judge(home, command, row[0][1])[0]


SETTINGS = '{"permissions": {"allow": ["Bash(git status)", "Bash(ls:*)"], "ask": ["Bash(git push:*)"], "deny": ["Bash(rm:*)", "Bash(git reset:*)"]}}'


@pytest.mark.parametrize("where, text, command, want", [
    ("work/.claude/settings.json", SETTINGS, "git status", 0), ("work/.claude/settings.json", SETTINGS, "git status && git diff", 3),
    ("work/.claude/settings.local.json", SETTINGS, "git push", 3), ("work/.claude/settings.json", SETTINGS, "rm -rf x", 2),
    ("work/.claude/settings.json", SETTINGS, "git status $(rm x)", 2), ("work/.claude/settings.json", "{ broken", "git status", 3),
    (".claude/settings.json", SETTINGS, "rm -rf x", 2), (".config/rtk/config.toml", '[hooks]\nexclude_commands = ["git"]\n', "git status", 1),
    (".config/rtk/config.toml", '[hooks]\ntransparent_prefixes = ["docker exec app"]\n', "docker exec app pytest", 3),
    (".config/rtk/config.toml", "= broken", "git status", 3),
])
def test_rules_of_folders_through_the_whole_hook(where, text, command, want, tmp_path):
    """The same call before and after the settings are there: the old answer is not used, and the hook does what the exit code says."""
    names = world.build(tmp_path)
    env = {**environment(Path(names["HOME"])), "LANG": "C.UTF-8"}
    where = where.replace("work/", "work/shop/")
    for _ in range(2):  # asked and cached before the settings are there
        world.answer(names, world.command(names, command), env=env)
    world.put(Path(names["HOME"], where), text)
    code, answer = subprocess_answer(names, command, env)
    assert code == want
    got = world.answer(names, world.command(names, command), env=env)
    assert got["decision"] == ("ask" if want == 2 else "allow")
    assert got.get("overwrite", {}).get("CommandLine") == (answer if want in (0, 3) and answer != command else None)


def subprocess_answer(names, command, env):
    done = subprocess.run([RTK, "rewrite", "--", command], cwd=names["WS"], env=env, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, done.stdout.decode()


def test_a_rewritten_command_runs_and_ends_as_the_original(tmp_path):
    """The payload in, the command that comes out run in a real repository: exit codes as without rtk."""
    git = shutil.which("git")
    if not git:
        pytest.skip("no git: the rewritten command is not run")
    names = world.build(tmp_path)
    env = {**environment(Path(names["HOME"])), "LANG": "C.UTF-8"}
    prepare = "git init -q . && git config user.email a@example.org && git config user.name a && git add src && git commit -qm x && echo 1 >> src/small.py"
    subprocess.run(["sh", "-c", prepare], cwd=names["WS"], env=env, check=True)
    for command in ("git status", "git diff --quiet", "git log -1 --format=%s", "grep -q nothing src/small.py", "cat src/exact.txt", "find few -name 'f1*'"):
        text = world.answer(names, world.command(names, command), env=env)["overwrite"]["CommandLine"]
        assert text.startswith("rtk ")
        codes = [subprocess.run(["bash", "-c", line], cwd=names["WS"], env=env, capture_output=True).returncode for line in (command, text)]
        assert codes[0] == codes[1], command
