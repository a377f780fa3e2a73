"""read_transcript: the last turns as Markdown, never longer than asked for."""
import json
import re

import pytest

import agy_mcp
from transcripts import QUIRKS, SESSIONS, Context, add, add_quirk, add_sessions, asks, assert_markdown, calls_in, descriptors, result, row, user

PARENT, TASKS = SESSIONS["three_turns_parent"], SESSIONS["background_tasks"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def read(**arguments):
    return agy_mcp.read_transcript(arguments, Context(arguments.pop("current", None)))


SESSION_TEXTS = [  # (session, arguments, what the result must hold, what it must not)
    (PARENT, {}, ["## User [step 24,", "Turn three: delegate", "Turn two: run it again", "error: ValueError: the tool failed on purpose",
                  "**Assistant** [step 28]: (and again)", "Killed the sleeper.", "task-19", "[334.9 KB]", "Fixed the signature"],
     ["ADDITIONAL_METADATA", "<USER_REQUEST>", "Created At", "The following is a <SYSTEM_MESSAGE>", "toolSummary"]),
    (PARENT, {"lastTurns": 1}, ["Turn three"], ["Turn two", "Turn one"]),
    (PARENT, {"lastTurns": 0, "maxBytes": 100000}, ["Turn one: find why test_parse fails.\nUse café data ✓ 日本語", "WaitMsBeforeAsync=3000",
                                                    "exit 0: 4394b7a (HEAD -> master) init", 'AllowMultiple=false'], ["Left out"]),
    (PARENT, {"before": 13}, ["Turn one"], ["Turn two"]),
    (PARENT, {"before": 20, "lastTurns": 1}, ["Turn two", "sleep 4"], ["cancelled", "Turn one"]),
    (TASKS, {"maxBytes": 20000}, ["exit 3", "error: path file:///home/dev/work/shop/nope.txt does not exist", "notice [step 24] task-2",
                                  "in the background as task-2",
                                  "Timer: 2s, Prompt: check the task", 'CodeContent="print(\'hi\')\\n"', "EndLine=20"], ["\r"]),
]


@pytest.mark.parametrize("name, arguments, there, absent", SESSION_TEXTS, ids=range(len(SESSION_TEXTS)))
def test_session_of_the_host(name, arguments, there, absent, home):
    add_sessions(home)
    text = read(conversationId=name, **arguments)
    assert_markdown(text, arguments.get("maxBytes", 4000))
    assert [part for part in there if part not in text] == []
    assert [part for part in absent if part in text] == []


@pytest.mark.parametrize("quirk", QUIRKS)
@pytest.mark.parametrize("limit", [300, 500, 700, 1500, 4000, 200000])
def test_every_size_of_every_quirk(quirk, limit, home):
    want = add_quirk(home, quirk)
    for mode in ("compact", "full"):
        text = read(conversationId=want["conversation"], lastTurns=0, mode=mode, maxBytes=limit)
        assert_markdown(text, limit)
        assert ("unreadable line" in text) == bool(want["skipped"])
    if limit == 200000:
        for mark in want["live"]:
            assert mark in text
        for mark in want["dead"]:
            assert not re.search(rf"\b{mark}\b", text)


@pytest.mark.parametrize("limit", [300, 450, 600, 1000, 4000])
@pytest.mark.parametrize("mode", ["compact", "full"])
@pytest.mark.parametrize("name", [*SESSIONS, "plain"])
def test_what_is_left_out_is_fetched_by_the_call_that_is_named(name, mode, limit, home):
    """Following the named calls to the end shows every step once, and every one of them fits."""
    add_sessions(home)
    name = SESSIONS.get(name) or add_quirk(home, name)["conversation"]
    seen, arguments, calls = [], {"conversationId": name, "maxBytes": limit, "mode": mode}, 0
    while arguments:
        text = agy_mcp.read_transcript(arguments, Context())
        assert_markdown(text, limit)
        assert {key: arguments.get(key) for key in ("mode", "maxBytes")} == {"mode": mode, "maxBytes": limit}
        seen += [int(n) for n in re.findall(r"\[step (\d+)", text)]
        further = [given for tool, given in calls_in(text) if tool == "read_transcript"]
        if "before" in arguments and further:
            assert further[0]["before"] < arguments["before"]
        arguments = dict({"mode": "compact", "maxBytes": 4000}, **further[0]) if further else None
        calls += 1
        assert calls < 60
    with agy_mcp.Transcript(agy_mcp.find_conversation(name, str(home))) as transcript:
        pairs = list(agy_mcp.pair_results(transcript.steps()))
    shown = {s.index for s, _ in pairs if s.content or not s.calls}
    answers = {one.index for _, results in pairs for one in results if one}
    assert shown | (answers if limit > 300 else set()) <= set(seen)
    assert len(seen) == len(set(seen)) + sum(seen.count(s.index) - 1 for s, _ in pairs if s.type == "USER_INPUT" and s.index in seen)


BLOCKS = [  # (rows, arguments, what the result must hold, what it must not)
    ([user(0, "a"), row(1, "CHECK " + "x" * 5000, "CHECKPOINT", "SYSTEM")], {},
     ["checkpoint [step 1]", "the host's own summary"], []),
    ([user(0, "a")] + [row(n, "noise", kind, "SYSTEM") for n, kind in enumerate(agy_mcp.NOISE, 1)], {}, [], ["noise"]),
    ([user(0, "a"), row(1, "odd thing", "SOMETHING_NEW", "SYSTEM", status="HALTED")], {}, ["SOMETHING_NEW HALTED [step 1] odd thing"], []),
    ([user(0, "a"), row(1, "said", thinking="deep thought")], {}, ["said"], ["deep thought"]),
    ([user(0, "a"), row(1, "said", thinking="deep thought")], {"includeThinking": True},
     ["said", "> thinking [step 1]: deep thought"], []),
    ([user(0, "a"),
      row(1, tool_calls=[{"name": "write_to_file", "args": {"CodeContent": "line\n" * 3000, "Overwrite": True, "N": 5, "L": [1, "é"]}}]),
      result(2, "ok")], {}, ["CodeContent=\"line\\nline", '…" [15.0 KB]', "Overwrite=true", "N=5", 'L=[1,"é"]', "-> [step 2] ok"], []),

    ([user(0, "a"), row(1, tool_calls=[{"name": "t", "args": {"a": "x ` y `` z"}}]), result(2, "ok")], {}, ["```a=\"x ` y `` z\"```"], []),
    ([user(0, "a"), row(1, tool_calls=[{"name": "t", "args": {}}])], {}, ["**t** -> (no result)"], []),
    ([user(0, "a"), row(1, tool_calls=[{"name": "t"}]),
      row(2, "tool call denied by pre-tool hook: [agy:polling] wait 30 s", "ERROR_MESSAGE", "SYSTEM")], {},
     ["**t** -> [step 2] denied: tool call denied by pre-tool hook: [agy:polling] wait 30 s"], []),
    ([row(0, "no user yet"), row(1, "still none")], {}, ["no user yet", "still none", "steps 0-1, 1 turn"], ["Left out"]),
    ([user(0, "```py\nopen fence"), row(1, "after it")], {}, ["```py\nopen fence\n```"], []),
    ([user(0, "a"), row(1, status="ERROR", error="quota", error_code=429)], {}, ["model error [step 1]: quota"], []),
    ([user(0, "x" * 100000)], {}, ["left out"], []),
    ([user(0, "a"), row(1, tool_calls=[asks("read_transcript")])], {}, ["## User [step 0"], ["(no result)", "step 1"]),
    ([user(0, "a"), row(1, "let me see", tool_calls=[asks("read_transcript"), {"name": "ls", "args": {}}]), result(3, "b")], {},
     ["let me see", "- **ls** -> [step 3] b"], ["(no result)", "call_mcp_tool"]),
    ([user(0, "a"), row(1, tool_calls=[asks("read_transcript")]), row(3, "b")], {}, ["(no result)"], []),
    ([user(0, "a"), row(1, tool_calls=[{"name": "call_mcp_tool", "args": {"ToolName": "other"}}])], {}, ["(no result)"], []),
    ([b"broken\n", user(0, "a"), b"{\n"], {}, ["2 unreadable lines skipped"], []),
]


@pytest.mark.parametrize("rows, arguments, there, absent", BLOCKS, ids=range(len(BLOCKS)))
def test_block(rows, arguments, there, absent, home):
    add(home, rows)
    text = read(**arguments)
    assert_markdown(text, 4000)
    assert [part for part in there if part not in text] == []
    assert [part for part in absent if part in text] == []


def test_newest_turns_win(home):
    add(home, [r for n in range(0, 60, 2) for r in (user(n, f"ask {n} " + "q" * 300), row(n + 1, f"answer {n} " + "a" * 300))])
    text = read(lastTurns=0, maxBytes=2500)
    assert "ask 58" in text and "answer 58" in text and "ask 0 " not in text
    whole = re.findall(r"ask (\d+) ", text)
    assert whole == sorted(whole, key=int) and len(whole) >= 2


def test_a_turn_of_a_hundred_thousand_steps(home):
    add(home, [user(0, "the task")] + [row(n, f"step {n}") for n in range(1, 100000)])
    text = read()
    assert_markdown(text, 4000)
    assert "the task" in text and "step 99999" in text


def test_a_huge_step(home):
    add(home, [user(0, "a"), row(1, "```\n" + "é\n" * 500000)])
    for mode in ("compact", "full"):
        text = read(mode=mode)
        assert_markdown(text, 4000)
        assert len(text) > 1000


FAULTS = [  # (arguments, what the error says)
    ({"before": 0}, "no step below before=0"), ({"conversationId": "nope"}, "no conversation"), ({"conversationId": "../x"}, "outside"),
]


@pytest.mark.parametrize("arguments, said", FAULTS)
def test_fault(arguments, said, home):
    add(home, [user(0, "a")])
    with pytest.raises(agy_mcp.ToolError, match=said):
        read(**arguments)


def test_an_empty_conversation(home):
    add(home, [], [])
    assert "has no steps yet" in read()


def test_the_call_s_own_conversation(home):
    add(home, [user(0, "mine")], name="mine", changed=1000)
    add(home, [user(0, "newest")], name="newest", changed=2000)
    assert "newest" in read() and "mine" in read(current="mine") and "newest" in read(current="../mine")


def test_schema_is_small_and_its_defaults_are_those_of_the_function():
    for schema, text in ((agy_mcp.READ_TRANSCRIPT, agy_mcp.READ_TRANSCRIPT_TEXT), (agy_mcp.QUERY_TRANSCRIPT, agy_mcp.QUERY_TRANSCRIPT_TEXT)):
        assert len(json.dumps(schema, separators=(",", ":"))) + len(text) < 1500
        assert agy_mcp.check_arguments(schema, {})[0] == agy_mcp.given({}, schema)


def test_no_descriptor_stays_open_whatever_happens(home):
    add_sessions(home)
    before = descriptors()
    for n in range(300):
        try:
            agy_mcp.read_transcript({"conversationId": PARENT, "lastTurns": n % 4}, Context(stop_after=n % 7))
        except agy_mcp.Cancelled:
            pass
    assert descriptors() == before
