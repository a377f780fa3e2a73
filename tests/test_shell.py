"""What read_commands() sees in a command line: every line of tests/data/shell.jsonl, and that nothing makes it fail or take long."""
import json
from pathlib import Path

import pytest

import agy_hook

CASES = [json.loads(line) for line in (Path(__file__).parent / "data" / "shell.jsonl").read_text(encoding="utf-8").splitlines()]
MARKS = {"<any>": agy_hook.ANY, "<star>": agy_hook.STAR, "<one>": agy_hook.ONE, "<set>": agy_hook.SET}


def described(command):
    """A Command as the case file writes it: only what differs from the plainest."""
    def plain(text):
        for name, mark in MARKS.items():
            text = text.replace(mark, name)
        return text
    out = {"words": [plain(w) for w in command.words]}
    for name, usual in (("cwd", "/w"), ("times", 1), ("bound", None), ("background", False), ("rtk", False), ("shell", "sh")):
        value = getattr(command, name)
        if value != usual:
            out[name] = "inf" if value == float("inf") else value
    if command.redirects:
        out["redirects"] = [[op, plain(target)] for op, target in command.redirects]
    if command.assigned:
        out["assigned"] = {k: plain(v) for k, v in command.assigned.items()}
    if command.stdin:
        out["stdin"] = command.stdin
    if command.source is not None:
        out["source"] = command.source.name
    return out


@pytest.mark.parametrize("case", CASES, ids=[c["text"][:60] for c in CASES])
def test_commands(case):
    commands, unread = agy_hook.read_commands(case["text"], "/w", "/home/dev", {"USER": "dev"}, case.get("shell", "sh"))
    assert [described(c) for c in commands] == case["commands"]
    assert unread == ""


LONG = ['"', "(", '("', '"$(', "'", "$((", "${", "`", "\\", "a ", "$(", "\"'(", ")", "<(", "{", "{a,", "<<E\n", '$((`"', "a", "case x in ", "if ",
        "f()", '$(("', "x=(", "[", "*", "~", "$'", "\n", ";", "|", "&", ">", "#", "=", "${x:-", "eval ", "sh -c '", "\x00", "\ud800", "é",
        "find -exec ", "find . -exec a {} + ", "A=$A$A;", "A=$A$A;cat $A$A ", "for i in 1 2 3 4 5 6 7 8 9;do $i", "printf a | xargs ", "cat <<E|sh;",
        "cat <<E\nx\nE\n"]


@pytest.mark.parametrize("piece", LONG, ids=[ascii(p) for p in LONG])
def test_the_work_is_bounded_whatever_comes(piece, monkeypatch):
    """Counted in tokens and parts read, not in time: 130,000 bytes cost no more than the bound lets them."""
    read = []
    original = agy_hook.Scanner.tokens
    monkeypatch.setattr(agy_hook.Scanner, "tokens", lambda self, *rest: read.append(1) or original(self, *rest))
    commands, unread = agy_hook.read_commands(piece * (130_000 // len(piece)), "/w", "/home/dev", {})
    assert len(read) <= 2 * agy_hook.MOST_ITEMS
    assert len(commands) <= 2 * agy_hook.MOST_ITEMS
    assert sum(len(word) for command in commands for word in command.words) < 100_000_000


@pytest.mark.parametrize("text", ["echo $(seq \u00b2)", "echo {\u00b2..3}", "for i in $(seq " + "9" * 5000 + "); do ls; done", "sleep \u00b2", "head -\u00b2 x"])
def test_digits_that_are_no_numbers(text):
    agy_hook.read_commands(text, "/w", "/home/dev", {})


def test_what_could_not_be_read_is_handed_back():
    commands, unread = agy_hook.read_commands("ls;" * 5000 + "cat secret", "/w", "/home/dev", {})
    assert commands and "cat secret" in unread


def test_any_text_is_read_without_an_exception():
    hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
    from hypothesis import strategies as st
    pieces = st.lists(st.sampled_from(LONG + ["cat x", "for i in", "do", "done", "while", "esac", "then", "fi", "}", "EOF", " ", "'x'",
                                                   "2>&1", "env"]))

    @hypothesis.settings(max_examples=300, deadline=None, database=None)
    @hypothesis.given(st.one_of(st.text(), pieces.map("".join), pieces.map(" ".join)))
    def check(text):
        for shell in ("sh", "cmd"):
            agy_hook.read_commands(text, "/w", "/home/dev", {}, shell)

    check()
