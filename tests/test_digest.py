"""The digest of a transcript, and the prompt btw that is made of one."""
import json
import os
from pathlib import Path

import pytest

import agy_mcp
from transcripts import QUIRKS, SESSIONS, add, add_quirk, add_sessions, brain, result, row, user

GOLDEN = Path(__file__).resolve().parent / "data" / "golden"
NAME = "c0ffee00-0000-4000-8000-000000000001"


class Call:
    """The context of a call from no conversation in particular."""
    conversation = None

    def check(self):
        pass

    def progress(self, *_):
        pass


def digest(home, name=NAME, **arguments):
    os.environ["HOME"] = str(home)  # put back by the fixture
    return agy_mcp.read_transcript(dict(arguments, conversationId=name, view="digest"), Call())


@pytest.fixture(autouse=True)
def home_is_put_back(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))


def call(index, name, said="", **args):
    return row(index, said, tool_calls=[{"name": name, "args": args}])


def ran(index, command, code=0, output="", said=""):
    """A command and its result: two rows."""
    return [call(index, "run_command", said, CommandLine=command, Cwd="/home/dev/w"),
            result(index + 1, f"\nThe command exited with code {code}.\nOutput:\n{output}\n", exit_code=code)]


def started(index, command):
    text = (f"Created At: x\nTool is running as a background task with task id: {NAME}/task-{index + 1}\nTask Description: {command}\n"
            f"Task logs are available at: file:///home/dev/task-{index + 1}.log")
    return [call(index, "run_command", CommandLine=command, Cwd="/home/dev/w"), row(index + 1, text, "RUN_COMMAND", status="RUNNING")]


def told(index, text, sender="system"):
    return row(index, f"intro\n\n<SYSTEM_MESSAGE>\n[Message] timestamp=x sender={sender} priority=HIGH content={text}\n</SYSTEM_MESSAGE>", "SYSTEM_MESSAGE")


def ended(index, number, how="finished", text="The command exited with code 0."):
    return told(index, f'Task id "{NAME}/task-{number}" {how} with result:\n\n{text}\n\nLog: file:///home/dev/x.log', f"{NAME}/task-{number}")


def failed(index, name, error, **args):
    return [call(index, name, **args), result(index + 1, f"Encountered error in step execution: {error}", status="ERROR", error=error)]


def changed(index, path="/home/dev/w/a.py"):
    return [call(index, "replace_file_content", TargetFile=path), result(index + 1, "done", "CODE_ACTION")]


def viewed(index, path="/home/dev/w/a.py"):
    return [call(index, "view_file", AbsolutePath=path), result(index + 1, "1: x", "VIEW_FILE")]


ALL = {name: name for name in SESSIONS}
ALL.update({quirk: quirk for quirk in QUIRKS})


def golden(name, text):
    """Compares with the golden file; AGY_GOLDEN=write in the environment writes it anew, to be read by eye."""
    path = GOLDEN / f"{name}.md"
    if os.environ.get("AGY_GOLDEN") == "write":
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def said_by(function, *arguments, **more):
    try:
        return function(*arguments, **more)
    except agy_mcp.ToolError as error:
        return f"ToolError: {error}"


@pytest.mark.parametrize("name", ALL)
def test_golden(name, tmp_path):
    if name in SESSIONS:
        add_sessions(tmp_path, name)
    conversation = SESSIONS.get(name) or add_quirk(tmp_path, name)["conversation"]
    golden(f"digest_{name}", said_by(digest, tmp_path, conversation))
    golden(f"btw_{name}", said_by(agy_mcp.btw, {"question": "Which test fails, and does parse.py still need a fix?"}, Call()))


def test_the_session_with_three_turns(tmp_path):
    add_sessions(tmp_path)
    text = digest(tmp_path, SESSIONS["three_turns_parent"])
    for part in ("tests/test_parse.py::test_parse", "src/parse.py`: changed once", "task-19", "canceled (killed)", "find why test_parse fails"):
        assert part in text
    assert "delegate" not in text


STORY = [
    user(0, "Make the import faster. " + "It reads many files. " * 60 + "Never touch the schema. " + "Thanks. " * 40),
    *viewed(1), *viewed(3), *ran(5, "python3 -m pytest -q tests", 1, "FAILED tests/test_a.py::test_one - ValueError: no\n1 failed in 0.1s"),
    row(7, "The root cause is a missing index. I decided to use sqlite instead of redis."), *changed(8), *changed(10),
    *ran(12, "rtk pytest tests -v", 0, "1 passed in 0.1s"), *ran(14, "npm run lint", 2, "src/a.ts: error: bad\n\nlint failed"),
    *ran(16, "grep -n missing src", 1), *started(18, "make world"), *started(20, "npm run dev"), ended(22, 21, "was canceled", "killed"),
    *failed(23, "view_file", "file /home/dev/w/gone.py does not exist", AbsolutePath="/home/dev/w/gone.py"),
    *failed(25, "run_command", "tool call denied by pre-tool hook: [agy:polling] wait 30 s", CommandLine="sleep 60"),
    *failed(27, "run_command", "permission denied by the user", CommandLine="rm -rf build"),
    *ran(29, "cat notes.txt > out.txt", 0), *ran(31, "pytest tests/test_b.py | tail -5", 0, "FAILED tests/test_b.py::test_two - x\n2 failed in 1s"),
    row(33, "Half is done. Next steps:\n- measure the import\n- write the docs"),
    user(34, "go on"), *ran(35, "npm run build", 1, "boom"), row(37, "Waiting for the world. I'll look at the docs then."),
    user(38, "The newest turn"), ended(39, 19), *ran(40, "npm run build", 0), row(42, "All well."),
]
TOLD = [  # (what the digest of STORY says, or does not with a leading !)
    "[0] Make the import faster.", "Never touch the schema.", "!Thanks. Thanks. Thanks.", "`/home/dev/w/a.py`: changed twice, read twice",
    "The root cause is a missing index.", "I decided to use sqlite instead of redis.", "[15] `npm run lint` exit 2: src/a.ts: error: bad",
    "!test_one", "`rtk pytest tests -v` exit 0, run twice: 1 passed", "!grep -n missing src` exit 1:", "`grep -n missing src` exit 1",
    "task-19 `make world`: finished, exit 0 [39]", "task-21 `npm run dev`: canceled (killed) [22]", "gone.py does not exist", "![agy:polling]",
    "`rm -rf build` denied", "`/home/dev/w/out.txt`: changed once", "notes.txt", "FAILED tests/test_b.py::test_two", "measure the import write the docs",
    "!boom", "`npm run build` exit 1 (in the kept turns exit 0 [41])", "I'll look at the docs then.", "steps 0-37, 2 user turns", "!The newest turn", "!All well.", '"lastTurns":1',
]


@pytest.mark.parametrize("part", TOLD)
def test_story(part, tmp_path):
    add(tmp_path, STORY)
    text = digest(tmp_path, maxBytes=6000)
    assert (part[1:] not in text) if part[0] == "!" else (part in text), text


def test_a_story_of_default_size_keeps_what_matters(tmp_path):
    add(tmp_path, STORY)
    text = digest(tmp_path)
    assert len(text.encode()) <= 4000
    for part in ("Never touch the schema.", "npm run lint", "test_two", "a.py`: changed twice", "sqlite instead of redis", "measure the import"):
        assert part in text


KEEP = [  # (keepTurns, last step of the digest or a part of the error)
    (1, "steps 0-37,"), (2, "steps 0-33,"), (3, "3 user turns, keepTurns=3 keeps the newest 3"), (9, "Next: keepTurns=2, or"), (10**6, "3 user turns"),
]


@pytest.mark.parametrize("keep, want", KEEP)
def test_keep_turns(keep, want, tmp_path):
    add(tmp_path, STORY)
    assert want in said_by(digest, tmp_path, keepTurns=keep)


def test_before_moves_the_newest_turn(tmp_path):
    add(tmp_path, STORY)
    text = digest(tmp_path, before=38)
    assert "steps 0-33," in text and '"lastTurns":1,"before":38' in text


def double(index):
    return row(index, "", tool_calls=[{"name": "run_command", "args": {"CommandLine": f"make part{k}"}} for k in (1, 2)])


BETWEEN = [  # (rows, last step of the digest, what it says or does not)
    ([user(0, "one"), row(1, "fine"), double(2), result(3, "ok"), user(4, "two"), result(5, "late")], 1, "!part1"),
    ([user(0, "one"), row(1, "fine"), double(2), result(3, "ok"), result(4, "ok"), user(5, "two"), row(6, "x")], 4, "make part1"),
    ([user(0, "one"), row(1, "fine"), double(2), result(3, "ok"), user(5, "two"), row(6, "x")], 3, "make part1"),  # one has no result at all
    ([user(0, "one"), row(1, "fine"), call(2, "run_command", CommandLine="make part1"), user(3, "two"), row(4, "x"), result(5, "z")], 2, "!exit"),
    ([row(0, "before any user"), user(1, "one"), row(2, "x")], 0, "0 user turns"),
]


@pytest.mark.parametrize("rows, last, part", BETWEEN)
def test_the_window_never_ends_between_a_call_and_its_result(rows, last, part, tmp_path):
    add(tmp_path, rows)
    text = digest(tmp_path)
    assert f"-{last}, " in text
    assert (part[1:] not in text) if part[0] == "!" else (part in text)


def test_nothing_before(tmp_path):
    for rows in ([user(0, "one"), row(1, "x")], [row(0, "x")], [], [user(3, "a")]):
        add(tmp_path, rows)
        with pytest.raises(agy_mcp.ToolError, match="nothing to digest"):
            digest(tmp_path)


CHECKPOINT = [
    user(0, "the covered goal"), *ran(1, "covered command", 1, "covered output"), *changed(3, "/home/dev/w/covered.py"), *started(5, "covered task"),
    row(7, "I decided to go the covered way."), row(8, "The summary says:\n\n```py\n# never closed\n\n## user wanted speed", "CHECKPOINT", source="SYSTEM"),
    row(9, "I chose the later way."), *ran(10, "make later"), user(12, "newest"), row(13, "x"),
]


def test_a_checkpoint_stands_for_what_it_covers(tmp_path):
    add(tmp_path, CHECKPOINT)
    text = digest(tmp_path)
    assert "covered" not in text and "task-6: running [6]" in text
    assert "## The host's own summary of the steps before 8\n> The summary says:" in text and "> ## user wanted speed" in text
    assert "I chose the later way." in text and "make later" in text and "steps 0-11," in text
    for limit in range(300, 2000, 37):
        assert len(digest(tmp_path, maxBytes=limit).encode()) <= limit


def test_the_last_of_two_checkpoints_counts(tmp_path):
    add(tmp_path, [user(0, "a"), row(1, "first summary", "CHECKPOINT"), row(2, "I chose b."), row(3, "second summary " + "x" * 90_000, "CHECKPOINT"),
                   user(4, "c"), row(5, "d")])
    text = digest(tmp_path)
    assert "second summary" in text and "first summary" not in text and "I chose b." not in text and len(text.encode()) <= 4000


def test_focus_comes_first(tmp_path):
    rows = [user(0, "start")]
    for k in range(60):
        rows += ran(1 + 4 * k, f"make part{k}", 1, f"error: part{k} broke")
        rows += changed(3 + 4 * k, f"/home/dev/w/part{k}.py")
    add(tmp_path, rows + [user(300, "newest"), row(301, "x")])
    text = digest(tmp_path, focus="Part7.py")
    files = text.split("## Files changed")[1].splitlines()
    assert "part7.py" in files[1] and "part7.py" not in digest(tmp_path)
    errors = digest(tmp_path, focus="PART7 broke", maxBytes=1000).split("## Errors still open")[1].splitlines()
    assert "`make part7`" in errors[1]


def test_artifacts(tmp_path):
    add(tmp_path, STORY)
    folder = brain(tmp_path) / NAME
    (folder / "task.md").write_text("# Tasks\n- [x] one\n- [ ] two\n- [/] three\n  - [ ] four\n", encoding="utf-8")
    (folder / "implementation_plan.md").write_text("# Faster import\n## Index\ntext\n", encoding="utf-8")
    (folder / "walkthrough.md").write_text("words", encoding="utf-8")
    (tmp_path / "secret.md").write_text("- [ ] secret", encoding="utf-8")
    os.symlink(tmp_path / "secret.md", folder / "todo.md")
    os.mkfifo(folder / "plan.md")
    (folder / "sub.md").mkdir()
    text = digest(tmp_path, maxBytes=8000)
    plan = text.split("## Plan, from the artifacts as they are now\n")[1].split("\n\n")[0]
    assert plan.splitlines() == ["- task.md: 1 of 4 done", "- [/] three", "- [ ] two", "- [ ] four", "- implementation_plan.md: Faster import; Index",
                                 "- other artifacts: walkthrough.md"]
    assert "secret" not in text


def test_subagents(tmp_path):
    made = result(2, 'Created the following subagents:\n{\n "conversationId":  "kid-1"\n}\n{\n "conversationId":  "kid-2"\n}', "INVOKE_SUBAGENT")
    subagents = [{"Role": "Scout", "Prompt": "Find callers"}, {"Role": "Critic"}]
    add(tmp_path, [user(0, "a"), call(1, "invoke_subagent", Subagents=subagents), made, told(3, "Three callers found.", "kid-1"),
                   told(4, "Subagent kid-2 has gone idle. This was the subagent's most recent response: none", "system"), user(5, "b")])
    text = digest(tmp_path)
    assert "subagent kid-1 (Scout: Find callers): reported [3]: Three callers found." in text
    assert "subagent kid-2 (Critic): idle [4]: none" in text


PASSES = [  # (failed command, passed command, whether that closes it)
    ("pytest -q", "python3 -m pytest -x", True), ("pytest tests/test_a.py::test_b", "pytest tests", True), ("pytest tests", "pytest", True),
    ("pytest", "pytest tests/test_a.py", False), ("pytest tests/test_a.py", "pytest tests/test_b.py", False), ("npm test", "npm test -- --only=a", False),
    ("cd /w && make check", "make check 2>&1 | tail -5", True), ("rtk cargo test", "cargo test", True), ("git commit -m x", "git commit", False),
    ("python3 a.py --strict", "python3 a.py", False), ("make test-all", "make test", False), ("pytest -k one", "pytest -k two", False),
]


@pytest.mark.parametrize("bad, good, closed", PASSES)
def test_what_closes_an_error(bad, good, closed, tmp_path):
    add(tmp_path, [user(0, "a"), *ran(1, bad, 1, "boom"), *ran(3, good), user(5, "b")])
    assert ("## Errors still open" not in digest(tmp_path)) == closed


TELLING = [  # (output, what is told of it)
    ("", ""), ("one\ntwo\n", "two"), ("x\nfatal: not a git repository\n", "fatal: not a git repository"),
    ("error[E0308]: mismatched types\n --> src/a.rs\n\nerror: aborting", "error[E0308]: mismatched types; error: aborting"),
    ("Traceback (most recent call last):\n  File\nValueError: no\r\n", "ValueError: no"), ("sh: foo: command not found", "sh: foo: command not found"),
    ("--- FAIL: TestA (0.0s)\nok\nFAIL", "--- FAIL: TestA (0.0s); FAIL"), ("FAILED a\nFAILED b\nFAILED c\nFAILED d\nFAILED e\n5 failed", "FAILED a; FAILED b; FAILED c; (1 more); FAILED e; 5 failed"),
]


@pytest.mark.parametrize("output, want", TELLING)
def test_telling_lines(output, want):
    assert agy_mcp.telling(output) == want


FILES = [  # (command, files read, files changed)
    ("rtk read -n --head-lines 150 src/a.py", ["/w/src/a.py"], []), ("cat a.txt /b.txt | head -5", ["/w/a.txt", "/b.txt"], []),
    ("echo 'a > b.txt'", [], []), ("echo a >> log.txt 2>/dev/null", [], ["/w/log.txt"]), ("sed -i 's/a/b/' src/a.py", [], ["/w/src/a.py"]),
    ("sed -n '1,5p' a.py", [], []), ("cat > new.py <<'EOF'\nprint(1) > x.py\nEOF", [], ["/w/new.py"]), ("cat *.py", [], []), ("echo \"unclosed", [], []),
    ("make 2>&1 > build.log", [], ["/w/build.log"]), ("ls src/a.py", [], []), ("head -20 src/a.py && tail -5 b.md", ["/w/src/a.py", "/w/b.md"], []),
]


@pytest.mark.parametrize("command, reads, changes", FILES)
def test_files_of_a_command(command, reads, changes):
    found = agy_mcp.shell_files(command, "/w")
    assert [path for written, path in found if not written] == reads
    assert [path for written, path in found if written] == changes


def is_valid(text, limit):
    return len(text.encode("utf-8", "replace")) <= limit and text.startswith("# ") and not agy_mcp.open_fence(text)


@pytest.mark.parametrize("limit", [300, 301, 333, 400, 500, 599, 600, 601, 800, 1000, 1500, 2500, 4000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("rows", [STORY, CHECKPOINT], ids=["story", "checkpoint"])
def test_sizes(rows, limit, tmp_path):
    add(tmp_path, rows)
    text = digest(tmp_path, maxBytes=limit)
    assert is_valid(text, limit) and text == digest(tmp_path, maxBytes=limit)
    assert "[0] " in text or rows is CHECKPOINT


MAKE = {
    "user": lambda i, t: [user(i, t)], "said": lambda i, t: [row(i, t)], "ran": lambda i, t: ran(i, t, len(t) % 3, t),
    "failed": lambda i, t: failed(i, "view_file", t, AbsolutePath=t), "view": lambda i, t: viewed(i, t), "change": lambda i, t: changed(i, t),
    "task": lambda i, t: started(i, t), "end": lambda i, t: [ended(i, i - 2, "finished", t)], "checkpoint": lambda i, t: [row(i, t, "CHECKPOINT")],
    "odd": lambda i, t: [row(i, "", tool_calls=[{"name": "run_command", "args": {"CommandLine": [t], "Cwd": 7}}, {"name": "invoke_subagent", "args": {
        "Subagents": [t]}}, {"name": None, "args": t}]), result(i + 1, t), result(i + 2, t)],
}


def test_any_transcript(tmp_path_factory, monkeypatch):
    hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
    from hypothesis import strategies as st
    words = st.text(st.sampled_from("ab \n`~#-*>.:|[]\xe9\u65e5\ud800\0\u2028\r") | st.characters(), max_size=300)

    @hypothesis.settings(max_examples=60, deadline=None, database=None)
    @hypothesis.given(st.lists(st.tuples(st.sampled_from(sorted(MAKE)), words), max_size=25), st.integers(300, 3000), words)
    def check(parts, limit, focus):
        home, rows, index = tmp_path_factory.mktemp("home"), [], 0
        for kind, text in parts:
            rows += MAKE[kind](index, text)
            index = rows[-1]["step_index"] + 1
        add(home, [json.dumps(one).encode() + b"\n" for one in rows + [user(index, "the newest")]])
        monkeypatch.setenv("HOME", str(home))
        text = said_by(digest, home, maxBytes=limit, focus=focus)
        assert is_valid(text, limit) or "nothing to digest" in text
        assert text == said_by(digest, home, maxBytes=limit, focus=focus)
        asked = said_by(agy_mcp.btw, {"question": focus}, Call())
        assert len(asked.encode("utf-8", "replace")) <= 6000 and not agy_mcp.open_fence(asked)
    check()


def test_what_is_remembered_is_bounded(tmp_path):
    record = agy_mcp.Record()
    for k in range(3000):
        for step, results in agy_mcp.pair_results(agy_mcp.Step(one["step_index"], one, True, 0) for one in [
                user(9 * k, "goal " * 2000), row(9 * k + 1, f"I chose {k}. " + "x" * 9000), *ran(9 * k + 2, f"make {k}", 1, "e" * 9000),
                *changed(9 * k + 4, f"/home/dev/{k}.py"), *started(9 * k + 6, f"make bg{k}")]):
            record.take(step, results)
    kept = [record.goals, record.turns, record.decisions, record.reads, record.changes, record.commands, record.errors, record.tasks, record.children]
    assert max(map(len, kept)) == agy_mcp.MOST_KEPT
    assert max(len(fact.text) + len(fact.detail) for part in kept for fact in part.values()) <= 2 * agy_mcp.LONGEST_KEPT
    assert record.first_goal.index == 0


def test_a_cancelled_call_stops(tmp_path):
    class Cancelled(Call):
        def check(self):
            raise agy_mcp.Cancelled
    add(tmp_path, STORY)
    with pytest.raises(agy_mcp.Cancelled):
        agy_mcp.read_transcript({"conversationId": NAME, "view": "digest"}, Cancelled())
    with pytest.raises(agy_mcp.Cancelled):
        agy_mcp.btw({"question": "what?"}, Cancelled())


def test_btw(tmp_path):
    add(tmp_path, STORY)
    text = agy_mcp.btw({"question": "Why sqlite instead of redis?"}, Call())
    assert '## Question\n"Why sqlite instead of redis?"' in text and "Change nothing" in text and "leave the task where it is" in text
    assert text.split("## Passages\n")[1].startswith("- [step 7, assistant]") and "# Digest of conversation" in text
    assert "The newest turn" in text  # all of the conversation
    with pytest.raises(agy_mcp.ToolError, match="question"):
        agy_mcp.btw({"question": " \n"}, Call())
    assert len(agy_mcp.btw({"question": "why " * 100_000}, Call()).encode()) <= 6000


def test_btw_asks_about_the_conversation_it_is_called_from(tmp_path):
    add_sessions(tmp_path)
    context = Call()
    context.conversation = SESSIONS["three_turns_parent"]
    assert SESSIONS["three_turns_parent"] in agy_mcp.btw({"question": "Which test?"}, context)
