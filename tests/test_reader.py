"""The reader: two files as one, whatever happened to them."""
import os
import re

import pytest

import agy_mcp
from transcripts import QUIRKS, SESSIONS, add, add_quirk, add_sessions, brain, result, row, user


def opened(home, name=None):
    return agy_mcp.Transcript(agy_mcp.find_conversation(name, str(home)))


def texts(home, name=None):
    with opened(home, name) as transcript:
        return [(step.index, step.content) for step in transcript.steps()]


@pytest.mark.parametrize("quirk", QUIRKS)
def test_quirk(quirk, tmp_path):
    want = add_quirk(tmp_path, quirk)
    with opened(tmp_path, want["conversation"]) as transcript:
        steps = list(transcript.steps())
        turns = list(transcript.turns())
        skipped = transcript.skipped
        backward = [step.index for turn in turns for step in turn.rows.steps_backward()]
        last = next(turns[0].rows.steps()).content
    assert [s.index for s in steps] == sorted({s.index for s in steps}) == backward[::-1]
    everything = "\n".join(s.content + s.thinking for s in steps)
    assert [mark for mark in want["live"] if mark not in everything] == []
    for mark in want["dead"]:
        assert not re.search(rf"\b{mark}\b", everything), mark
    assert skipped == want["skipped"]
    if want["user_turns"] is not None:
        assert sum(turn.user for turn in turns) == want["user_turns"]
        assert want["last_user"] in last


@pytest.mark.parametrize("name", SESSIONS.values())
def test_session_of_the_host(name, tmp_path):
    add_sessions(tmp_path)
    with opened(tmp_path, name) as transcript:
        steps = list(transcript.steps())
    assert [s.index for s in steps] == list(range(len(steps)))
    for step, results in agy_mcp.pair_results(steps):
        assert len(results) == len(step.calls)
        assert [r.index for r in results] == [step.index + 1 + k for k in range(len(results))]


def numbers(*indexes, text="old"):
    return [row(i, text) for i in indexes]


def new(*indexes):
    return [user(i, "new") if k == 0 else row(i, "new") for k, i in enumerate(indexes)]


OLD = range(46)
UNIONS = [  # (name, full, compact, indexes that live as old, indexes that live as new)
    ("plain rewind", numbers(*OLD) + new(27, 28, 29), None, range(27), (27, 28, 29)),
    ("rewind of both", numbers(*OLD) + new(27, 28), numbers(*OLD) + new(27, 28), range(27), (27, 28)),
    ("rewind twice, deeper", numbers(*OLD) + new(27, 28, 29) + new(10, 11), None, range(10), (10, 11)),
    ("rewind twice, shallower", numbers(*OLD) + new(20, 21, 22, 23) + new(22), None, range(20), (20, 21, 22)),
    ("rewind by one", numbers(*OLD) + new(45), None, range(45), (45,)),
    ("rewind right after a rewind", numbers(*OLD) + new(27) + new(24), None, range(24), (24,)),
    ("late first row of a new run", numbers(*OLD) + [row(28, "new"), user(27, "new"), row(29, "new")], None, range(27), (27, 28, 29)),
    ("new run grows past the old one", numbers(*OLD) + new(*range(40, 60)), None, range(40), range(40, 60)),
    ("disorder", numbers(0, 2, 1, 3, 6, 5, 4, 7), None, range(8), ()),
    ("disorder at both ends", numbers(1, 0, 2, 3, 5, 4), None, range(6), ()),
    ("gaps", numbers(0, 3, 9), None, (0, 3, 9), ()),
    ("rewind onto a gap", numbers(*[i for i in OLD if i != 27]) + new(27, 28, 29), None, range(27), (27, 28, 29)),
    ("first row of the run lost in full", numbers(*OLD) + [b'"tail"}\n'] + new(27, 28)[1:], numbers(*OLD) + new(27, 28), range(27), (27, 28)),
    ("first row of the run lost in compact", numbers(*OLD) + new(27, 28), numbers(*OLD) + new(27, 28)[1:], range(27), (27, 28)),
    ("rewind not yet in compact", numbers(*OLD) + new(27), numbers(*OLD), range(27), (27,)),
    ("rewind not yet in full", numbers(*OLD), numbers(*OLD) + new(27), range(27), (27,)),
    ("full began anew, then rewind before its start", numbers(*range(200, 300)) + new(150, 151), numbers(*range(300)) + new(150, 151),
     range(150), (150, 151)),
    ("full alone began anew, then rewind before its start", numbers(*range(200, 300)) + new(50, 51), None, (), (50, 51)),
    ("full began anew, short rewind before its start", numbers(*range(30, 46)) + new(27, 28), numbers(*OLD) + new(27, 28), range(27), (27, 28)),
    ("full began anew after the rewind", numbers(*range(28, 30), text="new"), numbers(*OLD) + new(27, 28, 29), range(27), (27, 28, 29)),
    ("both began anew", numbers(*range(20, 46)), numbers(*range(30, 46)), range(20, 46), ()),
    ("the one has what the other lacks", numbers(*range(0, 46, 2)), numbers(*range(1, 46, 2)), OLD, ()),
    ("full is far behind", numbers(*range(10)) + new(5, 6),
     numbers(*range(10)) + new(5, 6) + numbers(*range(7, 90), text="new"), range(5), range(5, 90)),
    ("only compact was rewound, and grew longer", numbers(*OLD), numbers(*OLD) + new(*range(27, 60)), range(27), range(27, 60)),
    ("rewound twice, the second not yet in compact", numbers(*OLD) + new(*range(20, 50)) + new(36, 37), numbers(*OLD) + new(*range(20, 50)),
     range(20), range(20, 38)),
    ("rewound twice, deeper, the second not yet in full", numbers(*OLD) + new(27, 28), numbers(*OLD) + new(27, 28) + new(24, 25), range(24), (24, 25)),
    ("both began anew, then a rewind before their start", numbers(*range(30, 46)) + new(18), numbers(*range(35, 46)) + new(18), (), (18,)),
    ("compact began anew in the run that was dropped", numbers(*OLD) + new(27, 28), numbers(*range(30, 46)), range(27), (27, 28)),
]


@pytest.mark.parametrize("name, full, compact, old, fresh", UNIONS, ids=[case[0] for case in UNIONS])
def test_union(name, full, compact, old, fresh, tmp_path):
    add(tmp_path, full, compact)
    want = {**dict.fromkeys(old, "old"), **dict.fromkeys(fresh, "new")}
    with opened(tmp_path) as transcript:
        assert {step.index: "new" if "new" in step.content else "old" for step in transcript.steps()} == want
    with opened(tmp_path) as transcript:
        indexes = [step.index for turn in transcript.turns() for step in turn.rows.steps_backward()]
    assert indexes == sorted(want, reverse=True)


@pytest.mark.parametrize("shuffled", range(6))
def test_the_end_is_read_as_the_whole_is(shuffled, tmp_path, monkeypatch):
    """Turns read from the end in many small parts are those of a full reading, whatever lies before."""
    import random
    dice = random.Random(shuffled)
    rows, index = [], 0
    for _ in range(400):
        if dice.random() < 0.03 and index > 60:
            index -= dice.randrange(1, 60)
            rows.append(user(index, f"rewound {len(rows)}"))
        else:
            rows.append(user(index, f"u{len(rows)}") if index % 5 == 0 else row(index, f"m{len(rows)} " + "x" * dice.randrange(300)))
        index += 1
    for at in range(1, len(rows) - 1, 9):
        if rows[at]["type"] == rows[at + 1]["type"] == "PLANNER_RESPONSE" and rows[at]["step_index"] + 1 == rows[at + 1]["step_index"]:
            rows[at], rows[at + 1] = rows[at + 1], rows[at]
    compact = [r for r in rows[150:] if dice.random() < 0.97]
    add(tmp_path, rows if shuffled % 2 else None, compact if shuffled % 3 else rows)
    whole = texts(tmp_path)
    monkeypatch.setattr(agy_mcp, "TAILS", (2000, 5000, 20000, 1 << 62))
    monkeypatch.setattr(agy_mcp, "CHUNK", 1000)
    with opened(tmp_path) as transcript:
        found = [(s.index, s.content) for turn in transcript.turns() for s in turn.rows.steps_backward()]
    assert found == whole[::-1]
    for before in (7, 100, 10 ** 9):
        with opened(tmp_path) as transcript:
            turn = next(transcript.turns(before), None)
            found = [(s.index, s.content) for s in turn.rows.steps()] if turn else []
        assert found == [item for item in whole if turn and turn.first <= item[0] < before]


def test_a_late_row_before_the_part_that_is_read_is_not_lost(tmp_path, monkeypatch):
    """Every user row is late: wherever a part begins, the row that was written before it and belongs behind it counts."""
    rows = [user(n, "u") if n % 5 == 0 else row(n, "m") for n in range(200)]
    for at in range(5, 199, 5):
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
    add(tmp_path, rows)
    for tail in range(800, 6000, 61):
        monkeypatch.setattr(agy_mcp, "TAILS", (tail, 1 << 62))
        with opened(tmp_path) as transcript:
            turns = transcript.turns()
            found = [list(next(turns).rows.indexes) for _ in range(4)]
        assert found == [[195, 196, 197, 198, 199], [190, 191, 192, 193, 194], [185, 186, 187, 188, 189], [180, 181, 182, 183, 184]], tail


def test_arguments_are_decoded_by_file(tmp_path):
    native = {"a": "12", "b": 5, "c": "true", "d": "\"x\""}
    compact = {"a": '"12"', "b": "5", "c": '"true"', "d": '"\\"x\\""', "e": '"cut off\\n<trunc', "f": '"head\n<truncated 20 bytes>', "g": "{\"k\":"}
    add(tmp_path, [row(0, tool_calls=[{"name": "t", "args": native}])], name="one")
    add(tmp_path, None, [row(0, tool_calls=[{"name": "t", "args": compact}])], name="two")
    with opened(tmp_path, "one") as transcript:
        assert transcript.step(0).calls[0].args == native
    with opened(tmp_path, "two") as transcript:
        call = transcript.step(0).calls[0]
    assert call.args == dict(native, e="cut off\n<trunc", f="head\n<truncated 20 bytes>", g="{\"k\":")
    assert call.truncated == ("e", "f", "g")


def calls(index, count):
    return row(index, tool_calls=[{"name": f"t{k}", "args": {}} for k in range(count)])


PAIRS = [  # (name, rows, model row -> indexes of results)
    ("one each", [calls(0, 2), result(1), result(2)], {0: [1, 2]}),
    ("a gap", [calls(0, 3), result(1), result(3)], {0: [1, None, 3]}),
    ("an error answers", [calls(0, 2), result(1), row(2, "bad", "ERROR_MESSAGE", "SYSTEM")], {0: [1, 2]}),
    ("a notice between", [calls(0, 2), row(1, "n", "SYSTEM_MESSAGE"), result(2), result(3)], {0: [2, 3]}),
    ("none", [calls(0, 1), row(1, "done")], {0: [None]}),
    ("two model rows", [calls(0, 1), result(1), calls(2, 1), result(3)], {0: [1], 2: [3]}),
    ("type says nothing", [calls(0, 1), result(1, type="GENERIC")], {0: [1]}),
]


@pytest.mark.parametrize("name, rows, want", PAIRS, ids=[case[0] for case in PAIRS])
def test_results_are_paired_by_position(name, rows, want, tmp_path):
    add(tmp_path, rows)
    with opened(tmp_path) as transcript:
        found = list(agy_mcp.pair_results(transcript.steps()))
    assert {s.index: [r and r.index for r in results] for s, results in found if s.calls} == want
    assert len(found) + sum(1 for _, results in found for r in results if r) == len(rows)


ENDS = [  # (name, bytes after two good lines, indexes found, skipped)
    ("half a line", b'{"step_index":2,"source":"MO', [0, 1], 0),
    ("a whole line without its newline", b'{"step_index":2,"source":"MODEL","type":"X","status":"DONE","content":"x"}', [0, 1, 2], 0),
    ("half a character", b'{"step_index":2,"content":"\xc3', [0, 1], 0),
    ("bad bytes", b'{"step_index":2,"source":"MODEL","type":"X","content":"\xff\xfe\x80"}\n', [0, 1, 2], 0),
    ("raw control characters", b'{"step_index":2,"source":"MODEL","type":"X","content":"\x00\x01\t"}\n', [0, 1, 2], 0),
    ("nothing but NULs", b"\0" * 5000 + b"\n", [0, 1], 0),
    ("NULs before a line", b'\0\0{"step_index":2}\n', [0, 1, 2], 0),
    ("other order of keys", b'{"type":"X","step_index":2}\n{ "step_index": 3 }\n', [0, 1, 2, 3], 0),
    ("indexes that are none", b'{"step_index":true}\n{"step_index":-1}\n{"step_index":1.5}\n{"step_index":99999999999}\n', [0, 1], 0),
    ("too deep", b"[" * 100000 + b"\n", [0, 1], 1),
    ("a number of 5000 digits", b'{"step_index":' + b"9" * 5000 + b"}\n", [0, 1], 1),
    ("broken in the middle", b'{"step_index":2,"source":"MODEL","type":"X","content":"a"b"}\n', [0, 1], 1),
    ("a lone surrogate", b'{"step_index":2,"source":"MODEL","type":"X","content":"\\ud800"}\n', [0, 1, 2], 0),
    ("wrong types", b'{"step_index":2,"source":5,"type":null,"content":{"a":1},"tool_calls":{"x":1},"thinking":[1]}\n', [0, 1, 2], 0),
    ("calls that are none", b'{"step_index":2,"type":"X","tool_calls":[1,null,{"name":3,"args":[1]},{"args":"x"}]}\n', [0, 1, 2], 0),
    ("a line of 3 MB", b'{"step_index":2,"source":"MODEL","type":"X","content":"' + b"y" * 3_000_000 + b'"}\n{"step_index":3}\n', [0, 1, 2, 3], 0),
]


@pytest.mark.parametrize("name, tail, want, skipped", ENDS, ids=[case[0] for case in ENDS])
@pytest.mark.parametrize("kind", ["full", "compact"])
def test_faulty_lines(name, tail, want, skipped, kind, tmp_path):
    add(tmp_path, **{kind: [row(0), row(1), tail]})
    with opened(tmp_path) as transcript:
        assert [step.index for step in transcript.steps()] == want
        assert transcript.skipped == skipped


def test_a_broken_row_is_taken_from_the_other_file(tmp_path):
    add(tmp_path, [row(0), b'{"step_index":1,"source":"MODEL","type":"X","content":"a"b"}\n', row(2)], [row(0), row(1, "whole"), row(2)])
    assert texts(tmp_path)[1] == (1, "whole")


def test_noise_is_left_out_and_unknown_types_are_not(tmp_path):
    add(tmp_path, [row(i, type=name) for i, name in enumerate((*agy_mcp.NOISE, "SOMETHING_NEW"))])
    assert [index for index, _ in texts(tmp_path)] == [3]


def test_no_descriptor_stays_open(tmp_path):
    add(tmp_path, numbers(*range(300)), numbers(*range(300)))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    class Stop(Exception):
        pass

    def stop():
        raise Stop

    for _ in range(50):
        with opened(tmp_path) as transcript:
            next(transcript.steps())
            next(transcript.turns())
        with pytest.raises(Stop), agy_mcp.Transcript(agy_mcp.find_conversation(None, str(tmp_path)), stop) as transcript:
            list(transcript.steps())
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


# Conversations


def test_conversations_are_found_in_all_data_folders(tmp_path):
    for number, data in enumerate(agy_mcp.DATA_FOLDERS):
        add(tmp_path, [row(0)], name=f"id-{number}", data=data, changed=1000 + number)
    home = str(tmp_path)
    assert [c.id for c in agy_mcp.list_conversations(home)] == ["id-2", "id-1", "id-0"]
    assert agy_mcp.find_conversation(None, home).id == "id-2"
    assert agy_mcp.find_conversation("", home, "id-0").id == "id-0"
    assert agy_mcp.find_conversation("id-1", home, "id-0").id == "id-1"
    folder = str(brain(home, "antigravity-cli") / "id-1")
    for path in (folder, folder + "/.system_generated/logs/transcript.jsonl", folder + "/notes/not there.md", "file://" + folder,
                 "~/.gemini/antigravity-cli/brain/id-1/"):
        assert agy_mcp.find_conversation(path, home).id == "id-1"


WRONG = [  # (what is asked for, what the error says)
    ("b775490f592605694807a0c61f8d60f2", "b775490f592605694807a0c61f8d60f1"),
    ("b775", "b775490f592605694807a0c61f8d60f1"),
    ("nothing like it", "newest are"),
    ("../../etc", "outside"), ("..", "outside"), (".", "outside"), ("/etc/passwd", "outside"), ("a/b", "outside"), ("a\\..\\b", "outside"),
    ("~/.gemini/antigravity/brain", "outside"), ("~/.gemini/antigravity/brain/../brain/x", "outside"), ("file:///etc", "outside"),
    ("/a\0b", "outside"),
    ("~/.gemini/antigravity/mcp_config.json", "outside"),
    ("a\0b", "outside"), ("x" * 5000, "no conversation"), ("empty", "no transcript"), ("fifo", "no transcript"),
    ("out", "leads out"), ("file-out", "leads out"),
]


@pytest.mark.parametrize("asked, said", WRONG, ids=[repr(case[0][:40]) for case in WRONG])
def test_wrong_conversation(asked, said, tmp_path):
    home = str(tmp_path / "home")
    add_sessions(home, "background_tasks")
    outside = tmp_path / "outside"
    add(outside, [row(0, "secret")], name="out")
    (brain(home) / "empty").mkdir()
    for name in ("fifo", "file-out"):
        (brain(home) / name / ".system_generated" / "logs").mkdir(parents=True)
    if hasattr(os, "mkfifo"):
        os.mkfifo(brain(home) / "fifo" / ".system_generated" / "logs" / "transcript.jsonl")
    os.symlink(brain(outside) / "out", brain(home) / "out")
    os.symlink(brain(outside) / "out" / ".system_generated" / "logs" / "transcript_full.jsonl",
               brain(home) / "file-out" / ".system_generated" / "logs" / "transcript_full.jsonl")
    with pytest.raises(agy_mcp.ToolError) as error:
        agy_mcp.find_conversation(asked, home)
    assert said in str(error.value)
    assert [c.id for c in agy_mcp.list_conversations(home)] == [SESSIONS["background_tasks"]]


def test_a_data_folder_that_is_a_link_is_read(tmp_path):
    add(tmp_path / "real", [row(0)], name="id-0")
    (tmp_path / "home" / ".gemini").mkdir(parents=True)
    os.symlink(tmp_path / "real" / ".gemini" / "antigravity", tmp_path / "home" / ".gemini" / "antigravity")
    assert agy_mcp.find_conversation(None, str(tmp_path / "home")).id == "id-0"
    assert agy_mcp.find_conversation(str(brain(tmp_path / "real") / "id-0"), str(tmp_path / "home")).id == "id-0"


# What rows say


def step(index, **row_):
    return agy_mcp.Step(index, row_, True, 0)


def test_tasks_start_and_end(tmp_path):
    add_sessions(tmp_path)
    with opened(tmp_path, SESSIONS["background_tasks"]) as transcript:
        steps = list(transcript.steps())
    starts, ends = [list(filter(None, map(f, steps))) for f in (agy_mcp.task_start, agy_mcp.task_end)]
    assert [(t.number, t.kind) for t in starts] == [(2, "command"), (8, "timer")] and starts[0].log.endswith("/tasks/task-2.log")
    assert [(t.number, t.how) for t in ends] == [(8, "fired"), (2, "finished")]
    with opened(tmp_path, SESSIONS["three_turns_parent"]) as transcript:
        assert [(t.number, t.how) for t in filter(None, map(agy_mcp.task_end, transcript.steps()))] == [(19, "canceled")] * 2


OUTCOMES = [
    ({"exit_code": 3, "content": "x"}, ("failed", 3, "")), ({"content": "The command exited with code 0.\nOutput:"}, ("ok", 0, "")),
    ({"content": "Created At: a\nCompleted At: b\n\nThe command failed with exit code: 12"}, ("failed", 12, "")),
    ({"content": "printed"}, ("ok", None, "")), ({"status": "RUNNING"}, ("running", None, "")),
    ({"status": "ERROR", "error": "no such file"}, ("error", None, "no such file")),
    ({"status": "ERROR", "content": "Created At: a\nCompleted At: b\nEncountered error in step execution: boom"}, ("error", None, "boom")),
    ({"status": "ERROR", "error": "tool call denied by pre-tool hook: [agy:polling] wait"},
     ("denied", None, "tool call denied by pre-tool hook: [agy:polling] wait")),
    ({"type": "ERROR_MESSAGE", "content": "bad arguments"}, ("error", None, "bad arguments")),
]


@pytest.mark.parametrize("given, want", OUTCOMES)
def test_outcome(given, want):
    found = agy_mcp.outcome(step(1, **given))
    assert (found.kind, found.code, found.text) == want


def test_user_text_ends_at_the_last_closing_tag():
    wrapped = "<USER_REQUEST>\na </USER_REQUEST> b\n</USER_REQUEST>\n<ADDITIONAL_METADATA>\nx"
    assert agy_mcp.user_text(step(0, content=wrapped)) == "a </USER_REQUEST> b"
    assert agy_mcp.user_text(step(0, content="plain\n<ADDITIONAL_METADATA>\nx")) == "plain"


@pytest.mark.parametrize("limit", [0, 1, 5, 30, 60, 100, 1000])
@pytest.mark.parametrize("text", ["a" * 300, "日本語" * 200, "```py\n" + "x = 1\n" * 90 + "```\nend", "> ````\n" + "é`" * 100, "a\ud800" * 100, ""])
def test_what_is_cut_stays_whole(limit, text):
    for cut in (agy_mcp.shorten(text, limit), agy_mcp.clip(text, limit)):
        assert len(agy_mcp.utf8(cut)) <= limit or cut == text and len(agy_mcp.utf8(text)) <= limit
    if limit >= 30:
        assert not agy_mcp.open_fence(agy_mcp.clip(text, limit)) or len(agy_mcp.utf8(text)) <= limit


def test_a_fence_cannot_be_closed_from_inside():
    assert agy_mcp.fence("a ``` b\n````").split("\n")[0] == "`````"
