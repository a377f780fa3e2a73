"""query_transcript: finding, and showing one step whole."""
import json
import os
import re
import time

import pytest

import agy_mcp
from mcp_process import PRODUCT, Process
from transcripts import (
    QUIRKS,
    SESSIONS,
    Context,
    add,
    add_quirk,
    add_sessions,
    asks,
    assert_markdown,
    brain,
    calls_in,
    descriptors,
    result,
    row,
    user,
)

PARENT, TASKS, CHILD = SESSIONS["three_turns_parent"], SESSIONS["background_tasks"], SESSIONS["three_turns_subagent"]
ALL = ["all"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def query(context=None, **arguments):
    text = agy_mcp.query_transcript(arguments, context or Context())
    assert_markdown(text, arguments.get("maxBytes", 4000))
    return text


def hits(text):
    return [int(number) for number in re.findall(r"^\[step (\d+), ", text, re.M)]


@pytest.mark.parametrize("quirk", QUIRKS)
def test_quirk(quirk, home):
    """Every live mark is found, once, by word and some by pattern; no dead one is."""
    want = add_quirk(home, quirk)
    for mark in want["live"]:
        found = hits(query(query=mark, roles=ALL, maxResults=9))
        assert len(found) == 1 or quirk == "rewind" and mark[7:] == "" and found, mark
    for mark in want["dead"]:
        assert all(mark + "new" in line for line in query(query=mark, roles=ALL, maxResults=9).split("\n") if line.startswith("[step"))
    assert hits(query(query=rf"\b{want['live'][3]}\b", regex=True, roles=ALL)) == [3]
    for word in (want["live"][0], "nothing of it"):
        assert ("unreadable line" in query(query=word, roles=ALL)) == bool(want["skipped"])


def numbered(count, text="word", **more):
    return [row(n, f"{text} {n}.", **more) for n in range(count)]


MATCHES = [  # (query, text of a model's row, whether it matches)
    ("Needle", "a needle here", True), ("NEEDLE", "neeDle", True), ("needle", "noodle", False),
    ("café", "CAFÉ", True), ("CAFÉ", "café", True), ("é", "É", True), ("日本", "日本語", True), ("日", "本", False),
    ("привет мир", "ПРИВЕТ МИР", True), ("ПР", "при", True), ("straße", "STRASSE", True), ("STRASSE", "strasse", True), ("ω", "Ω", True),
    ('say "hi"', 'to say "hi" now', True), ("a\\b", "a\\b", True), ("\\", "\\", True), ("\\n", "line\nline", False), ("\\n", "a literal \\n", True),
    ("x\ny", "x\ny", True), ("tab\there", "tab\there", True), ("</div>", "<div></div>", True), ("a/b", "a/b", True), ("it's", "it's", True),
    ("😀", "smile 😀", True), ("😀", "smile", False), ("two words", "two words", True), ("words two", "two long words", True),
    ("two three", "two words", False),
    ('"words two"', "two words two", True), ('"words two"', "two words", False), ("  padded  ", "padded", True), ("a\u2028b", "a\u2028b", True),
    ("step_index", "plain", False), ("content", "plain", False), ("DONE", "plain", False), ("content", "the content", True),
    ("done", "all done", True),
    ("PLANNER_RESPONSE", "plain", False), ("2026", "plain", False), ("a.c", "abc", False), ("(", "f(x)", True), ("%s", "100%s", True),
]


@pytest.mark.parametrize("asked, text, matches", MATCHES, ids=[ascii(case[:2]) for case in MATCHES])
@pytest.mark.parametrize("written", ["raw", "escaped", "html"])
def test_words_match(asked, text, matches, written, home):
    line = json.dumps(row(0, text), ensure_ascii=written != "raw")
    if written == "html":
        line = line.replace("<", "\\u003c").replace(">", "\\u003e").replace("/", "\\/")
    add(home, [line.encode("utf-8") + b"\n"])
    assert hits(query(query=asked)) == ([0] if matches else [])
    assert hits(query(query=asked, conversationId="*", roles=ALL)) == ([0] if matches else [])


CALL = {"name": "run_command", "args": {"CommandLine": "beta"}}
ROWS = [user(0, "alpha from the user"), row(1, "alpha said", thinking="omega thought", tool_calls=[CALL]),
        result(2, "alpha beta gamma"), row(3, "alpha notice", "SYSTEM_MESSAGE"), row(4, "alpha refused", "ERROR_MESSAGE", "SYSTEM"),
        result(5, "alpha", status="ERROR", error="delta broke"),
        row(6, "alpha noise", "EPHEMERAL_MESSAGE", "SYSTEM"), row(7, "alpha", "NEW_THING", "SYSTEM"),
        user(8, "alpha again"), row(9, "alpha at last")]
ASKED = [  # (arguments, steps found)
    ({"query": "alpha"}, [9, 8, 1, 0]), ({"query": "alpha", "roles": ["user"]}, [8, 0]), ({"query": "alpha", "roles": ["tool"]}, [5, 2]),
    ({"query": "alpha", "roles": ["system"]}, [7, 3]), ({"query": "alpha", "roles": ["error"]}, [5, 4]),
    ({"query": "alpha", "roles": ALL, "maxResults": 50}, [9, 8, 7, 5, 4, 3, 2, 1, 0]),
    ({"query": "alpha", "roles": ["user", "tool"]}, [8, 5, 2, 0]), ({"query": "alpha", "roles": []}, [9, 8, 7, 5, 4]),
    ({"query": "alpha", "startStep": 1, "endStep": 8}, [8, 1]), ({"query": "alpha", "endStep": 0}, [0]),
    ({"query": "alpha", "startStep": 9}, [9]),
    ({"query": "alpha", "lastTurns": 1}, [9, 8]), ({"query": "alpha", "maxResults": 1}, [9]),
    ({"query": "alpha", "maxResults": 2, "offset": 1}, [8, 1]),
    ({"query": "beta"}, [1]), ({"query": "beta", "includeToolCalls": False}, []), ({"query": "run_command"}, [1]),
    ({"query": "omega"}, []), ({"query": "omega", "includeThinking": True}, [1]), ({"query": "delta", "roles": ["error"]}, [5]),
    ({"query": "alp+ha", "regex": True, "roles": ["user"]}, [8, 0]), ({"query": "^ALPHA", "regex": True}, [9, 8, 1, 0]),
    ({"query": "noise", "roles": ALL}, []), ({"query": "nothing of it"}, []),
]


@pytest.mark.parametrize("arguments, found", ASKED, ids=[json.dumps(case[0]) for case in ASKED])
def test_what_is_asked_for(arguments, found, home):
    add(home, ROWS)
    text = query(**arguments)
    assert hits(text) == found
    if found:
        assert "[step 9, assistant, 2026-11-01 00:00]" in text or found[0] != 9
        assert "may have been summarised by the host" in text
        assert [given["stepIndex"] for tool, given in calls_in(text) if tool == "query_transcript"] == found[:1]


NAME = "c0ffee00-0000-4000-8000-000000000001"
OTHER_CALL = {"name": "run_command", "args": {"CommandLine": "grep zebra"}}
IN_FLIGHT = [  # (last rows of a conversation, who calls, steps found with the word that the call itself holds)
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")])], NAME, []),
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")])], None, []),
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")])], "another", [9]),
    ([row(9, "zebra?", tool_calls=[asks("query_transcript", query="zebra")])], NAME, [9]),
    ([row(9, tool_calls=[OTHER_CALL, asks("query_transcript", query="zebra")]), result(10, "x")], NAME, [9]),
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")]), result(10, "No match")], NAME, [9]),
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")]), row(11, "went on")], NAME, [9]),
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")]), user(11, "went on")], NAME, [9]),
    ([row(9, tool_calls=[asks("query_transcript", query="zebra")]), row(10, "a notice", "SYSTEM_MESSAGE")], NAME, []),
]


@pytest.mark.parametrize("regex", [False, True])
@pytest.mark.parametrize("rows, current, found", IN_FLIGHT, ids=range(len(IN_FLIGHT)))
def test_a_search_does_not_find_itself(rows, current, found, regex, home):
    add(home, full=[user(0, "alpha")] + rows, compact=[user(0, "alpha")])
    text = query(Context(current), query="zebra", conversationId=NAME, regex=regex)
    assert hits(text) == found and "It does occur" not in text


SAYS = [  # (arguments, what a search without a hit says)
    ({"query": "omega"}, ["No match", '"omega"', "c0ffee00", "roles: user, assistant", "thinking: 1", "includeThinking: true", '"*"', "summarised"]),
    ({"query": "gamma"}, ["role tool: 1", 'roles: ["all"]']),
    ({"query": "zzz", "startStep": 2, "endStep": 5, "roles": ALL}, ["from step 2", "to step 5", "no startStep"]),
    ({"query": "zzz", "conversationId": "*"}, ["1 conversations"]),
    ({"query": "beta", "includeToolCalls": False}, ["tool calls: 1", "includeToolCalls: true"]),
    ({"query": "alpha", "offset": 50}, ["passes over all of them"]),
]


@pytest.mark.parametrize("arguments, said", SAYS, ids=[json.dumps(case[0]) for case in SAYS])
def test_no_match_says_what_was_searched_and_how_to_widen_it(arguments, said, home):
    add(home, ROWS)
    text = query(**arguments)
    assert hits(text) == [] and [part for part in said if part not in text] == []


def test_pages_of_hits_follow_one_another(home):
    add(home, numbered(40))
    found, offset = [], 0
    while True:
        text = query(query="word", maxResults=7, offset=offset)
        found += hits(text)
        more = re.search(r"`offset: (\d+)`", text)
        if not more:
            break
        offset = int(more[1])
    assert found == list(range(39, -1, -1))


@pytest.mark.parametrize("limit", [300, 500, 900, 4000])
def test_hits_fit(limit, home):
    add(home, [row(n, ("``` " if n % 3 == 0 else "") + "日本 word " * 300) for n in range(30)])
    for arguments in ({}, {"maxResults": 30}, {"summaryOnly": True}, {"query": "nothing at all " * 40}, {"stepIndex": 3}, {"roles": ["error"]}):
        arguments = arguments if "stepIndex" in arguments else {"query": "word", **arguments}
        assert len(query(maxBytes=limit, **arguments)) > 100


def test_all_conversations_newest_first(home):
    for number, data in enumerate(agy_mcp.DATA_FOLDERS * 2):
        add(home, [user(n, f"word {n}") for n in range(3)], name=f"id-{number}", data=data, changed=1000 + number)
    text = query(query="word", conversationId="*", maxResults=7)
    assert re.findall(r"id-\d", text)[:3] == ["id-5", "id-4", "id-3"] and hits(text) == [2, 1, 0, 2, 1, 0, 2]
    assert "offset: 7" in text
    assert "18 steps match" in query(query="word", conversationId="*", summaryOnly=True)


def test_a_summary_of_many_conversations(home):
    for number in range(200):
        add(home, [row(0, "word")], name=f"many-{number:03}", changed=1_000_000 + number)
    text = query(query="word", conversationId="*", summaryOnly=True, maxBytes=1000)
    assert text.startswith("200 steps match \"word\".\n- many-199 assistant: 1 (2026-11-01 00:00 to 2026-11-01 00:00), steps 0\n- many-198 ")
    assert len(text) > 800 and re.search(r"\n- 1\d\d more of such lines left out$", text)


def test_a_search_in_parts_finds_what_a_whole_reading_finds(home, monkeypatch):
    """Rewinds, disorder and gaps, searched from the end in small parts with small reads, against every live step looked at."""
    import random
    monkeypatch.setattr(agy_mcp, "SEARCH_TAILS", (1500, 4000, 20000, 1 << 62))
    monkeypatch.setattr(agy_mcp, "CHUNK", 700)
    monkeypatch.setattr(agy_mcp, "SMALL_LOG", 0)
    dice = random.Random(7)
    rows, index = [], 0
    for number in range(500):
        if dice.random() < 0.04 and index > 50:
            index -= dice.randrange(1, 50)
            rows.append(user(index, f"word{number}"))
        else:
            rows.append(row(index, f"word{number} " + dice.choice(["rare Zebra", "common", "", "x" * 400])))
        index += 1
    add(home, rows, [r for r in rows if dice.random() < 0.8])
    with agy_mcp.Transcript(agy_mcp.find_conversation(None, str(home))) as transcript:
        live = [(s.index, s.content) for s in transcript.steps()]
    for word in ("zebra", "common", "word1", "word49", "x" * 300, "nowhere"):
        for first, last in ((None, None), (100, 200)):
            want = [i for i, text in live if word in text.lower() and (first is None or first <= i <= last)][::-1]
            arguments = {} if first is None else {"startStep": first, "endStep": last}
            assert hits(query(query=word, maxResults=100, maxBytes=200000, **arguments)) == want[:100], word
            assert hits(query(query=word, maxResults=3, **arguments)) == want[:3], word


def test_what_a_rewind_killed_is_not_found_in_the_last_part(home, monkeypatch):
    """The part that is searched first holds the end of the old run and the new run, but not where the new one begins anew."""
    add(home, [row(n, "old word") for n in range(200)] + [user(165, "new word"), row(166, "new word")])
    for tail in range(600, 9000, 300):
        monkeypatch.setattr(agy_mcp, "SEARCH_TAILS", (tail, 1 << 62))
        assert hits(query(query="word", maxResults=4)) == [166, 165, 164, 163], tail


# Patterns


def children():
    if not os.path.isdir("/proc/self/task"):
        return []
    return [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]


@pytest.mark.parametrize("pattern", ["(a+)+$", r"^(\w+\s?)*$"])
def test_a_pattern_that_never_ends_is_stopped_and_named(pattern, home, monkeypatch):
    monkeypatch.setattr(agy_mcp, "PATTERN_SECONDS", 0.6)
    add(home, [row(0, "a" * 60 + "!")])
    before, context = (descriptors(), children()), Context()
    with pytest.raises(agy_mcp.ToolError, match=re.escape(pattern)):
        query(context, query=pattern, regex=True)
    assert (descriptors(), children()) == before and context.told


def test_a_cancelled_pattern_leaves_nothing_behind(home):
    add(home, [row(0, "a" * 60 + "!")])
    before = descriptors(), children()
    with pytest.raises(agy_mcp.Cancelled):
        query(Context(stop_after=2), query="(a+)+$", regex=True)
    assert (descriptors(), children()) == before


def test_the_deadline_of_a_pattern_is_within_ten_seconds():
    assert agy_mcp.PATTERN_SECONDS <= 9.5


@pytest.mark.parametrize("pattern, said", [("a(b", "position 1"), ("[", "position 0"), ("*a", "position 0"), ("(?P<n>a)(?P<n>b)", "position"),
                                           ("a{99999999999}", "pattern")])
def test_a_faulty_pattern(pattern, said, home):
    add(home, [row(0, "x")])
    with pytest.raises(agy_mcp.ToolError, match=said):
        query(query=pattern, regex=True)


def test_a_search_whose_time_is_up_says_where_to_go_on(home):
    add(home, numbered(200))
    text = query(Context(seconds=0), query="word", maxResults=100)
    assert "Time was up" in text


def command_lines():
    """The command lines of all searches in children that run now."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found.append(file.read())
        except OSError:
            continue
    return [line for line in found if agy_mcp.SEARCH_COMMAND.encode() in line.split(b"\0") and str(PRODUCT[0]).encode() in line.split(b"\0")]


def until(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


NEVER = {"query": "(a+)+$", "regex": True}


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="skipped: needs /proc")
def test_the_server_answers_while_a_pattern_runs_and_a_cancel_ends_it(home):
    add(home, [row(0, "a" * 60 + "!")])
    with Process(PRODUCT, home=home) as server:
        server.greet()
        server.call("query_transcript", NEVER, key="slow")
        assert until(command_lines)
        server.send({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
        assert server.next() == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        assert "[step 0," in server.answer("query_transcript", {"query": "aaa"}, key="other")["result"]["content"][0]["text"]
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})
        assert until(lambda: not command_lines())
        server.send({"jsonrpc": "2.0", "id": "ping2", "method": "ping"})
        assert server.next()["id"] == "ping2"


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="skipped: needs /proc")
@pytest.mark.parametrize("end", ["killed", "input closed"])
def test_a_pattern_ends_with_its_server(end, home):
    add(home, [row(0, "a" * 60 + "!")])
    with Process(PRODUCT, home=home) as server:
        server.greet()
        server.call("query_transcript", NEVER)
        assert until(command_lines)
        server.process.kill() if end == "killed" else server.process.stdin.close()
        server.process.wait()
        assert until(lambda: not command_lines())


# One step


VIEWS = [  # (session, arguments, what is shown, what is not)
    (PARENT, {"stepIndex": 0}, ["Turn one: find why", "[step 0, user, 2026-11-29 20:36]"], []),
    (PARENT, {"stepIndex": 3}, ['"name": "view_file"', '"WaitMsBeforeAsync": 3000'], []),
    (PARENT, {"stepIndex": 3, "field": "tool_args"}, ['"CommandLine": "python3 -c \'print(1)\'"'], ['"name"']),
    (PARENT, {"stepIndex": 3, "field": "tool_args:AbsolutePath"}, ["```\n/home/dev/work/shop/src/parse.py\n```"], []),
    (PARENT, {"stepIndex": 3, "field": "result"}, ["[step 4]", "[step 5]", "1: def parse(s):"], ["Created At"]),
    (PARENT, {"stepIndex": 11, "field": "result"}, ["AssertionError"], []),
    (PARENT, {"stepIndex": 15, "field": "output", "maxBytes": 1000}, ["row 0: data", "of 334902"], []),
    (PARENT, {"stepIndex": 14, "field": "output", "maxBytes": 1000, "offset": 334800}, ["334800-334902 of 334902"], ["More:"]),
    (TASKS, {"stepIndex": 2, "field": "output"}, ["tick 6\nfinished"], []),
    (TASKS, {"stepIndex": 1, "field": "output"}, ["tick 6\nfinished"], []),
    (TASKS, {"stepIndex": 20}, ["does not exist", "[step 20, error,"], []),
]


@pytest.mark.parametrize("name, arguments, there, absent", VIEWS, ids=range(len(VIEWS)))
def test_view(name, arguments, there, absent, home):
    add_sessions(home)
    text = query(conversationId=name, **arguments)
    assert [part for part in there if part not in text] == [] and [part for part in absent if part in text] == []


@pytest.mark.parametrize("limit", [300, 500, 4000])
@pytest.mark.parametrize("content", ["é日😀" * 900, "```\n`````\n" * 900, "line\r\n" * 900, "x" * 9000], ids=["wide", "fences", "crlf", "plain"])
def test_the_pages_of_a_step_make_up_the_whole(content, limit, home):
    add(home, [row(0, content)])
    arguments, whole, pages = {"stepIndex": 0, "field": "content", "maxBytes": limit}, "", 0
    while arguments:
        text = query(**arguments)
        fence = text.split("\n")[1]
        whole += text.split(fence + "\n", 1)[1].rsplit("\n" + fence, 1)[0]
        further = calls_in(text)
        arguments = further[0][1] if further else None
        pages += 1
    assert whole == content.replace("\r\n", "\n")
    assert pages >= 2


def test_bad_bytes_in_an_output(home):
    name = add(home, [row(0, tool_calls=[{"name": "t", "args": {}}]), result(1, "saved")])
    folder = brain(home) / name / ".system_generated" / "steps" / "1"
    folder.mkdir(parents=True)
    (folder / "content.md").write_bytes(b"\xff\xfe\x80" * 1000)
    text = agy_mcp.query_transcript({"stepIndex": 1, "field": "output", "maxBytes": 500}, Context())
    assert len(text.encode()) <= 500 and "of 3000" in text


def test_links_that_lead_out_are_not_followed(home, tmp_path):
    name = add(home, [row(0, tool_calls=[{"name": "t", "args": {}}]), result(1, "saved")])
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "output.txt").write_text("SECRET")
    steps = brain(home) / name / ".system_generated" / "steps"
    steps.mkdir(parents=True)
    os.symlink(secret, steps / "1")
    with pytest.raises(agy_mcp.ToolError, match="leads out"):
        query(stepIndex=1, field="output")
    (steps / "1").unlink()
    (steps / "1").mkdir()
    os.symlink(secret / "output.txt", steps / "1" / "output.txt")
    with pytest.raises(agy_mcp.ToolError, match="leads out"):
        query(stepIndex=1, field="output")


def test_the_log_of_a_running_task_is_not_shown(home):
    name = "c0ffee00-0000-4000-8000-000000000001"
    start = f"Created At: x\nTool is running as a background task with task id: {name}/task-2\nTask Description: sleep 9\nTask logs"
    rows = [user(0, "a"), row(1, tool_calls=[CALL]), row(2, start, "RUN_COMMAND", status="RUNNING")]
    add(home, rows)
    tasks = brain(home) / name / ".system_generated" / "tasks"
    tasks.mkdir()
    (tasks / "task-2.log").write_text("so far")
    with pytest.raises(agy_mcp.ToolError, match="task-2 is still running"):
        query(stepIndex=2, field="output")
    os.utime(tasks / "task-2.log", (time.time() - 400,) * 2)  # no notice, and its log has long not moved
    assert "so far" in query(stepIndex=2, field="output")
    os.utime(tasks / "task-2.log")
    end = f'[Message] sender={name}/task-2 priority=x content=Task id "{name}/task-2" finished with result:\nok'
    add(home, rows + [row(3, end, "SYSTEM_MESSAGE")])
    assert "so far" in query(stepIndex=1, field="output")


FAULTS = [  # (arguments, what the error says)
    ({}, "query .*or stepIndex"), ({"query": "  "}, "query .*or stepIndex"), ({"query": "a", "stepIndex": 1}, "exclude"),
    ({"query": "a", "field": "content"}, "field"),
    ({"stepIndex": 99}, "no step 99: its steps are 0 to 28"), ({"stepIndex": 1, "conversationId": "*"}, "one conversation"),
    ({"stepIndex": 1, "field": "nope"}, "not one of content"), ({"stepIndex": 1, "field": "tool_args:"}, "not one of"),
    ({"stepIndex": 1, "field": "tool_args:Nope"}, "There are: CommandLine, Cwd"), ({"stepIndex": 1, "field": "thinking"}, "It has: tool_calls"),
    ({"stepIndex": 0, "field": "result"}, "has nothing in result"), ({"stepIndex": 1, "field": "output"}, "nothing on disk"),
    ({"stepIndex": 0, "offset": 100000}, "past the end"), ({"query": "a", "startStep": 5, "endStep": 4}, "above"),
    ({"query": "a", "conversationId": "nope"}, "no conversation"), ({"query": "a", "conversationId": "../../x"}, "outside"),
    ({"stepIndex": 19, "field": "output"}, None), ({"query": "a", "offset": -1}, "offset must be 0 or more"), ({"stepIndex": -1}, "stepIndex must be"),
]


@pytest.mark.parametrize("arguments, said", FAULTS, ids=[json.dumps(case[0]) for case in FAULTS])
def test_fault(arguments, said, home):
    add_sessions(home)
    arguments = {"conversationId": PARENT, **arguments}
    if said is None:  # an empty log
        assert "0-0 of 0" in query(**arguments)
        return
    with pytest.raises(agy_mcp.ToolError, match=said):
        query(**arguments)


def test_no_descriptor_stays_open_whatever_happens(home):
    add_sessions(home)
    before = descriptors()
    calls = [{"query": "turn"}, {"query": "data", "conversationId": "*"}, {"stepIndex": 15, "field": "output"}, {"stepIndex": 99},
             {"query": "zz", "roles": ALL}]
    for number in range(300):
        try:
            agy_mcp.query_transcript({"conversationId": PARENT, **calls[number % 5]}, Context(stop_after=number % 11))
        except (agy_mcp.Cancelled, agy_mcp.ToolError):
            pass
    assert descriptors() == before


def test_a_long_search_tells_how_far_it_is(home):
    add(home, [row(n, "x" * 100000) for n in range(20)])
    context = Context()
    query(context, query="nothing")
    done = [told[0] for told in context.told]
    assert len(done) > 3 and done == sorted(set(done)) and done[-1] <= context.told[0][1]
