"""bash itself is the judge: the words that read_commands() finds in a line are those that bash gives to a program."""
import random
import shutil
import subprocess

import pytest

import agy_hook

PIECES = ["a", "b c", "'x y'", '"x y"', "\\ ", "\\'", '\\"', "$'t\\tq'", '"$V"', "$V", "${V}", "${N:-de f}", '"${N:-d}"', "~", "~/x", "{1,2}", "{a..c}", "{x}",
          "{p,q{r,s}}", "=", "#", "a#b", "''", '""', "$HOME", '"\\$V"', '"\\a"', "\\\n", "'a\nb'", '"a\\\nb"', "1", "{1..3}", "$(echo hi)", '"$(echo "q r")"',
          "`echo z`", ":", ",", "%", "@", "+", "-x", "--o=v", "[", "]", "!", "é", "\t", "$((1))", '"\'"', "'\"'"]
ENDS = ["", " ;:", " && :", " # c", " >/dev/null", " 2>&1", "\n", " | cat", " </dev/null"]


def lines(count):
    made = random.Random(7)
    for _ in range(count):
        words = ["".join(made.choice(PIECES) for _ in range(made.randint(1, 4))) for _ in range(made.randint(1, 3))]
        line = "args " + " ".join(words) + made.choice(ENDS)
        if "$V{" not in line and "$HOME{" not in line:  # bash expands the braces first and then finds other names: nobody writes that
            yield line


def in_bash(bash, line):
    """The words that `args` gets in bash, or None where bash does not accept the line."""
    script = "cd / && HOME=/home/dev V='v w'\nunset N\nargs() { [ $# = 0 ] || printf '%s\\0' \"$@\" >&3; }\n" + line + "\n"
    done = subprocess.run([bash, "--norc", "-c", "exec 3>&1 >/dev/null\n" + script], capture_output=True, timeout=20, env={"LANG": "C.UTF-8"})
    if done.returncode or done.stderr:
        return None
    return done.stdout.decode().split("\0")[:-1]


def test_words_are_those_of_bash():
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("bash is not on this machine")
    compared = 0
    for line in lines(600):
        wanted = in_bash(bash, line)
        commands, unread = agy_hook.read_commands(line, "/", "/home/dev", {"V": "v w"})
        found = [c.words[1:] for c in commands if c.name == "args"]
        if wanted is None or not found or any(mark in word for word in found[0] for mark in agy_hook.ANY + agy_hook.STAR + agy_hook.SET):
            continue
        assert found[0] == wanted, (line, commands[0].words)
        compared += 1
    assert compared > 300
