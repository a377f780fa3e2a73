"""The wire over the real process: what clients send, well and badly, and how the process ends."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from random import Random

import pytest

import agy_mcp
from mcp_process import INITIALIZE, INITIALIZED, LAST, PATIENCE, PRODUCT, SERVER, Process, all_pythons, python_name, pythons

META = "io.modelcontextprotocol/"
M = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
ALL = pytest.mark.parametrize("python", pythons(), ids=python_name)
PARSE = [{"id": None, "error": {"code": -32700}}]


def request(method, params="{}", key="1"):
    return f'{{"jsonrpc":"2.0","id":{key},"method":"{method}","params":{params}}}'


def call(tool, arguments, key="1", meta=""):
    return request("tools/call", f'{{"name":"{tool}","arguments":{arguments}{meta}}}', key)


def echo(text, key="1"):
    return call("echo", f'{{"text":"{text}"}}', key)


def error(code, key=1):
    return [{"id": key, "error": {"code": code}}]


def said(text, key=1, wrong=False):
    return [{"id": key, "result": {"content": [{"type": "text", "text": text}], "isError": wrong}}]


def wrong(*words):
    """An isError result whose text holds these words."""
    return [{"id": 1, "result": {"isError": True, "content": [{"text": lambda text: all(word in text for word in words)}]}}]


def big(size):
    return call("big", f'{{"bytes":{size}}}')


def batch(line, want):
    return [INITIALIZE % "2025-03-26", line], [{"id": "i"}, *want]


# name, lines sent, replies that must come before the reply to LAST (in any order); a dict wants its keys, a function wants to be true
LEGACY_CASES = [
    ("initialize again, version unknown", [INITIALIZE % "2099-01-01"], [{"id": "i", "result": {"protocolVersion": "2025-11-25"}}]),
    ("initialize again, modern version", [INITIALIZE % "2026-07-28"], [{"id": "i", "result": {"protocolVersion": "2025-11-25"}}]),
    ("initialize, no version", [request("initialize")], [{"id": 1, "result": {"protocolVersion": "2025-11-25", "serverInfo": {"name": any}}}]),
    *[(f"initialize {v}", [INITIALIZE % v], [{"id": "i", "result": {"protocolVersion": v}}])
      for v in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")],
    ("unknown notification", ['{"jsonrpc":"2.0","method":"notifications/whatever"}'], []),
    ("notification with bad params", ['{"jsonrpc":"2.0","method":"tools/call","params":7}'], []),
    ("cancel of nothing", ['{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
                           '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}'], []),
    ("bad json", ["{bad json"], PARSE),
    ("two values", ["{} {}"], PARSE),
    ("NaN", [echo("x", "NaN")], PARSE),
    ("Infinity", ['{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}'], PARSE),
    ("deep", ["[" * 100_000], PARSE),
    ("deep and closed", ["[" * 100_000 + "]" * 100_000], PARSE),
    ("deep objects", ['{"a":' * 100_000], PARSE),
    ("long integer", [echo("x", "1" * 5000)], PARSE),
    ("bad utf-8", [b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n'], PARSE),
    ("half a utf-8 character", [b'{"jsonrpc":"2.0","id":1,"method":"\xe2\x82"}\n'], PARSE),
    ("raw control character", [b'{"jsonrpc":"2.0","id":1,"method":"a\x01"}\n'], PARSE),
    ("utf-16", ['{"jsonrpc":"2.0"}'.encode("utf-16") + b"\n"], PARSE),
    ("blank lines", [b"\n", b"  \r\n", b"\t\n"], []),
    ("byte order mark", [b"\xef\xbb\xbf" + request("ping").encode() + b"\n"], [{"id": 1, "result": {}}]),
    ("CRLF", [echo("x").encode() + b"\r\n"], said("x")),
    ("duplicate keys", ['{"jsonrpc":"2.0","id":2,"id":1,"method":"ping"}'], [{"id": 1, "result": {}}]),
    *[(f"id {key[:12]}", [request("ping", key=key), echo("x", key)], [{"id": json.loads(key), "result": {}}] + said("x", json.loads(key)))
      for key in ('"7"', '""', "0", "-1", "7", "9223372036854775808", '"\\ud83d\\ude00"', "1" + "0" * 4000)],
    *[(f"id {key}", [request("ping", key=key)], error(-32600, None)) for key in ("null", "true", "1.5", "1.0", "{}", "[1]")],
    ("no method", ['{"jsonrpc":"2.0","id":1}'], error(-32600)),
    ("method not a string", ['{"jsonrpc":"2.0","id":1,"method":1}'], error(-32600)),
    ("version 1.0", ['{"jsonrpc":"1.0","id":1,"method":"ping"}'], error(-32600)),
    ("no version", ['{"id":1,"method":"ping"}'], error(-32600)),
    *[(f"not a request: {line}", [line], error(-32600, None)) for line in ("7", '"x"', "null", "true", "[]", f"[{request('ping')}]")],
    *[(f"params {params}", [request("tools/list", params)], error(-32602)) for params in ("[]", "7", "null", '"x"', '{"_meta":7}')],
    ("unknown method", [request("nope")], error(-32601)),
    ("logging", [request("logging/setLevel", '{"level":"info"}')], error(-32601)),
    ("ping", [request("ping")], [{"id": 1, "result": {}}]),
    ("no params at all", ['{"jsonrpc":"2.0","id":1,"method":"ping"}'], [{"id": 1, "result": {}}]),
    ("unknown tool", [call("nope", "{}")], error(-32602)),
    ("no name", [request("tools/call")], error(-32602)),
    ("name not a string", [request("tools/call", '{"name":["echo"]}')], error(-32602)),
    *[(f"arguments {value}", [call("echo", value)], error(-32602)) for value in ("[1]", "7", '"x"', "true")],
    ("arguments null", [call("who", "null")], said("None")),
    ("bad cursor", [request("tools/list", '{"cursor":"x"}')], error(-32602)),
    ("lone surrogate", [echo("x\\ud800y")], said("x\ufffdy")),
    ("surrogate pair and its escape", [echo("\\ud83d\\ude00 \\\\ud800")], said("\U0001f600 \\ud800")),
    ("line separators", [echo("a\u2028b\u0085c")], said("a\u2028b\u0085c")),
    ("NUL and other controls", [echo("a\\u0000\\u0007\\n")], said("a\0\x07\n")),
    ("structured", [call("pair", '{"text":"x\\ud800"}')], [{"id": 1, "result": {"structuredContent": {"text": "x\ufffd"}, "isError": False}}]),
    ("missing field", [call("echo", "{}")], wrong("text", "missing", "a string")),
    ("wrong type", [call("echo", '{"text":7}')], wrong("text", "a string", "7")),
    ("raises", [call("broken", '{"error":"KeyError"}')], wrong("broken", "KeyError", "why")),
    ("raises its own words", [call("broken", '{"error":"ToolError"}')], wrong("why \ufffd")),
    ("raises SystemExit", [call("broken", '{"error":"SystemExit"}')], error(-32603)),
    ("raises RecursionError", [call("broken", '{"error":"RecursionError"}')], wrong("RecursionError")),
    ("deep arguments", [call("echo", '{"text":' + "[" * 5000 + "]" * 5000 + "}")], [lambda reply: "error" in reply or reply["result"]["isError"]]),
    ("prompt that raises its own words", [request("prompts/get", '{"name":"ask","arguments":{"question":"raise"}}')], error(-32602)),
    ("resource that raises", [request("resources/read", '{"uri":"agy://broken"}')], error(-32603)),
    ("result without JSON form", [call("nan", "{}")], wrong("JSON")),
    ("too large a result", [call("big", '{"bytes":9000000}')], wrong("9000", "8000000")),
    ("a large result", [call("big", '{"bytes":7900000}')], said("x" * 7_900_000)),
    ("prints and children", [call("noise", "{}")], said("quiet")),
    ("conversation", [call("who", "{}", meta=',"_meta":{"antigravity.google/conversation_id":"ec33"}')], said("'ec33'")),
    ("conversation of a wrong type", [call("who", "{}", meta=',"_meta":{"antigravity.google/conversation_id":7}')], said("None")),
    ("prompts", [request("prompts/list")], [{"result": {"prompts": [{"name": "ask", "arguments": [{"name": "question", "required": True}]}]}}]),
    ("prompt", [request("prompts/get", '{"name":"ask","arguments":{"question":"x"}}')],
     [{"result": {"messages": [{"role": "user", "content": {"type": "text", "text": "Q: x"}}]}}]),
    ("unknown prompt", [request("prompts/get", '{"name":"nope"}')], error(-32602)),
    ("prompt without its argument", [request("prompts/get", '{"name":"ask"}')], error(-32602)),
    ("resources", [request("resources/list")], [{"result": {"resources": [{"uri": "agy://rules"}, {"mimeType": "text/plain"}]}}]),
    ("resource templates", [request("resources/templates/list")], [{"result": {"resourceTemplates": []}}]),
    ("resource", [request("resources/read", '{"uri":"agy://rules"}')], [{"result": {"contents": [{"uri": "agy://rules", "text": "# Rules"}]}}]),
    ("missing resource", [request("resources/read", '{"uri":"agy://nope"}')], error(-32002)),
    ("no uri", [request("resources/read")], error(-32602)),
    ("batch", *batch(f"[{request('ping')},{INITIALIZED},{echo('x', '2')},7,{request('nope', key='3')}]",
                     [[{"id": 1, "result": {}}, *said("x", 2), *error(-32600, None), *error(-32601, 3)]])),
    ("empty batch", *batch("[]", error(-32600, None))),
    ("batch of notifications", *batch(f"[{INITIALIZED},{INITIALIZED}]", [])),
    ("batch with initialize", *batch(f"[{INITIALIZE % '2025-03-26'}]", [error(-32600, "i")])),
    ("batch too large in all", *batch(f"[{big(5000000)},{big(3000000)}]", [[{"result": {"isError": True}}, {"result": {"isError": False}}]])),
    ("modern beside legacy", [request("tools/list", f"{{{M}}}")], [{"id": 1, "result": {"resultType": "complete"}}]),
]
MODERN_CASES = [
    ("discover", [request("server/discover", f"{{{M}}}")],
     [{"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "prompts": {}, "resources": {}}, "instructions": "Try echo.",
                  "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": {META + "serverInfo": {"name": "agy-context-saver"}}}}]),
    *[(method, [request(method, f"{{{M}}}")], [{"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                                                           "_meta": {META + "serverInfo": {"name": "agy-context-saver"}}}}])
      for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list")],
    ("call", [request("tools/call", f'{{"name":"echo","arguments":{{"text":"x"}},{M}}}')],
     [{"result": {"content": [{"text": "x"}], "isError": False, "resultType": "complete", "ttlMs": None}}]),
    ("version unknown", [request("tools/list", f"{{{M}}}".replace("2026-07-28", "1900-01-01"))],
     [{"error": {"code": -32022, "data": {"supported": ["2026-07-28"], "requested": "1900-01-01"}}}]),
    ("version legacy", [request("tools/list", f"{{{M}}}".replace("2026-07-28", "2025-11-25"))], error(-32022)),
    ("version not a string", [request("tools/list", f"{{{M}}}".replace('"2026-07-28"', "7"))], error(-32602)),
    ("no clientCapabilities", [request("tools/list", f'{{"_meta":{{"{META}protocolVersion":"2026-07-28"}}}}')], error(-32602)),
    ("discover without meta", [request("server/discover")], error(-32602)),
    *[(method, [request(method, f"{{{M}}}")], error(-32601)) for method in
      ("ping", "initialize", "logging/setLevel", "subscriptions/listen", "nope")],
    ("missing resource", [request("resources/read", f'{{"uri":"agy://nope",{M}}}')], error(-32602)),
    ("nothing negotiated", [request("tools/list"), request("nope")], error(-32602) * 2),
    ("ping before anything", [request("ping")], [{"id": 1, "result": {}}]),
]


def matches(want, got):
    if want is any:
        return got is not None
    if callable(want):
        return want(got)
    if isinstance(want, dict):
        return got == {} if want == {} else isinstance(got, dict) and all(matches(value, got.get(key)) for key, value in want.items())
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(matches(*pair) for pair in zip(want, got))
    return want == got and type(want) is type(got)


def check(want, got):
    """Each wanted reply came, and no other."""
    for item in want:
        found = next((reply for reply in got if matches(item, reply)), None)
        assert found is not None, f"missing {str(item)[:300]} in {str(got)[:600]}"
        got.remove(found)
    assert not got, str(got)[:600]


def run_case(python, lines, want, greet):
    last = LAST if greet else request("tools/list", f"{{{M}}}", '"z"')
    with Process(python=python) as server:
        if greet:
            assert server.greet()["id"] == "i"
        server.send(*lines)
        if want:
            got = [server.next() for _ in want]
            check(list(want), got)
        server.send(last)
        rest = server.until("z")
        assert len(rest) == 1 and len(rest[0]["result"]["tools"]) == 10, str(rest)[:600]
        assert server.end() == 0
        assert server.next() is None
        stderr = server.process.stderr.read()
        assert b"Traceback" not in stderr, stderr


@ALL
@pytest.mark.parametrize("lines, want", [pytest.param(*case[1:], id=case[0]) for case in LEGACY_CASES])
def test_after_initialize(python, lines, want):
    run_case(python, lines, want, True)


@ALL
@pytest.mark.parametrize("lines, want", [pytest.param(*case[1:], id=case[0]) for case in MODERN_CASES])
def test_without_initialize(python, lines, want):
    run_case(python, lines, want, False)


NOT_JSON = ["{bad", "[1,", "01", '{"a":1,}', '{"a" 1}', "{1:2}", '"x', '"\\q"', '"\\u12"', "nul", "[1}", "[1 2]", "NaN", "[" * 100_000,
            '{"a":' * 100_000, "1" * 5000, "-", "1.", "'a'", "[\x0c]", '"\t"', "{}{}", "\x00", "[-Infinity]", '{"a":' + "1" * 5000 + "}"]


@pytest.mark.parametrize("python", all_pythons(), ids=python_name)
def test_every_python_says_what_is_not_json_and_lives_on(python):
    with Process(python=python) as server:
        server.greet()
        for line in NOT_JSON:
            server.send(line)
            assert matches(PARSE[0], server.next()), line[:50]
        assert server.answer("echo", {"text": "x"})["result"]["isError"] is False
        assert server.end() == 0


@ALL
def test_a_slow_tool_holds_up_neither_ping_nor_cancel(python):
    with Process(python=python) as server:
        server.greet()
        for key in range(6):  # more than there are workers
            server.call("slow", {"seconds": 30}, key)
        server.send(request("ping", key='"p"'))
        assert server.next() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        for key in range(6):
            server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": key, "reason": "enough"}})
        assert server.answer("echo", {"text": "x"}, "after")["id"] == "after"
        assert server.end() == 0
        assert server.next() is None  # nothing about the cancelled ones, ever


@ALL
def test_a_cancelled_call_is_not_answered_though_its_tool_hears_nothing(python):
    with Process(python=python) as server:
        server.greet()
        server.call("deaf", {"seconds": 0.5}, 0)
        server.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"0"}}')  # another id
        server.call("deaf", {"seconds": 0.5}, "0")
        server.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"0"}}')
        assert server.next()["id"] == 0
        assert server.end() == 0
        assert server.next() is None


@ALL
@pytest.mark.parametrize("token", [0, 7, "", "t"])
def test_progress_rises_with_the_token_as_it_was_sent(python, token):
    with Process(python=python) as server:
        server.greet()
        server.call("slow", {"seconds": 0.6}, "c", _meta={"progressToken": token})
        *notes, reply = server.until("c")
        assert reply["result"]["content"][0]["text"] == "done"
        assert len(notes) >= 2
        assert all(note["method"] == "notifications/progress" and "id" not in note for note in notes)
        assert [type(note["params"]["progressToken"]) for note in notes] == [type(token)] * len(notes)
        assert {note["params"]["progressToken"] for note in notes} == {token}
        steps = [note["params"]["progress"] for note in notes]
        assert steps == sorted(set(steps)) and steps[-1] < notes[0]["params"]["total"] == 12
        assert server.end() == 0
        assert server.next() is None


@pytest.mark.parametrize("meta", [{}, {"progressToken": True}, {"progressToken": 1.5}, {"progressToken": None}])
def test_no_progress_without_a_token(meta):
    with Process() as server:
        server.greet()
        server.call("slow", {"seconds": 0.3}, "c", _meta=meta)
        assert [message["id"] for message in server.until("c")] == ["c"]


# how the input ends: what is sent last, without its newline
@ALL
@pytest.mark.parametrize("last", [echo("x", "9"), request("ping", key="9"), '{"jsonrpc":"2.0","method":"x"}', "{bad", " "])
def test_all_accepted_calls_are_answered_at_the_end_of_the_input(python, last):
    with Process(python=python) as server:
        server.greet()
        server.send(*[call("deaf", '{"seconds":0.05}', str(key)) for key in range(10)])
        server.send(last.encode())
        assert server.end() == 0
        got = []
        while (message := server.next()) is not None:
            got.append(message["id"])
        ends = [9] if '"id":9' in last else [None] if "bad" in last else []
        assert sorted(map(str, got)) == sorted(map(str, list(range(10)) + ends))


@ALL
@pytest.mark.parametrize("arguments", [SERVER, PRODUCT], ids=["tests", "product"])
def test_end_of_input_while_idle(python, arguments, tmp_path):
    with Process(arguments, python, tmp_path) as server:
        assert server.end() == 0
        assert server.process.stderr.read() == b""
    with Process(arguments, python, tmp_path) as server:
        server.greet()
        assert server.end() == 0
    assert list(tmp_path.iterdir()) == []  # start-up has no side effect


@ALL
@pytest.mark.parametrize("tool", ["slow", "deaf"])
def test_end_of_input_while_a_tool_runs(python, tool):
    with Process(python=python) as server:
        server.greet()
        server.call(tool, {"seconds": 30})
        assert server.end() == 0


@ALL
def test_sigterm_ends_it_while_a_tool_runs(python):
    with Process(python=python) as server:
        server.greet()
        server.call("deaf", {"seconds": 30})
        server.send(request("ping"))
        server.next()
        server.process.terminate()
        assert server.process.wait(PATIENCE) in (0, -signal.SIGTERM)
        assert server.process.stderr.read() == b""


def test_an_interrupt_ends_it_without_a_traceback():
    with Process() as server:
        server.greet()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 130
        assert server.process.stderr.read() == b""


@ALL
@pytest.mark.parametrize("sent", [[], [echo("x")], [call("deaf", '{"seconds":30}')], [echo("x")] * 50], ids=["idle", "call", "slow", "calls"])
def test_a_closed_output_ends_it(python, sent):
    with Process(python=python) as server:
        server.send(INITIALIZE % "2025-11-25")
        server.process.stdout.readline()
        server.process.stdout.close()
        try:
            server.send(*sent)
        except BrokenPipeError:
            pass  # it has gone already
        assert server.process.wait(PATIENCE) == 0
        assert server.process.stderr.read() == b""


@ALL
def test_a_line_over_the_limit_is_skipped_in_little_memory(python):
    with Process(python=python) as server:
        server.greet()
        server.answer("echo", {"text": "x"})
        before = memory(server.process.pid)
        piece = b"x" * (1 << 20)
        server.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"', *[piece] * 100)
        during = memory(server.process.pid)
        server.send(b'"}}}\n', LAST)
        first, last = server.until("z")
        assert first["id"] is None and first["error"]["code"] == -32600 and "10485760" in first["error"]["message"]
        assert before is None or during - before < 30 << 20, (before, during)


def memory(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def test_a_long_line_within_the_limit_is_served():
    with Process() as server:
        server.greet()
        assert server.answer("echo", {"text": "x" * 7_000_000})["result"]["content"][0]["text"] == "x" * 7_000_000
        assert server.answer("echo", {"text": "x" * 9_000_000})["result"]["isError"] is True
        assert server.answer("nope" * 1_000_000, {})["error"]["code"] == -32602


@ALL
def test_one_byte_at_a_time(python):
    with Process(python=python) as server:
        for byte in (INITIALIZE % "2025-11-25" + "\r\n" + echo("h\u00e9") + "\n").encode():
            server.send(bytes([byte]))
        assert [server.next()["id"], server.next()["id"]] == ["i", 1]


@ALL
@pytest.mark.parametrize("make", [echo, lambda text, key: request("tools/list", f'{{"pad":"{text}"}}', key)], ids=["calls", "lists"])
def test_2000_requests_piped_before_any_reply_is_read(python, make):
    with Process(python=python) as server:
        server.send(INITIALIZE % "2025-11-25", *[make("x" * 100, str(key)) for key in range(2000)])
        time.sleep(0.2)
        got = {server.next()["id"] for _ in range(2001)}
        assert got == {"i", *range(2000)}
        assert server.end() == 0


@ALL
@pytest.mark.parametrize("settings", [
    {"PYTHONIOENCODING": "cp932"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"shell": "2>&-"}, {"shell": "2>/dev/null"}, {"arguments": ["-X", "int_max_str_digits=0"] + SERVER},
], ids=str)
def test_odd_surroundings(python, settings):
    with Process(python=python, **settings) as server:
        server.greet()
        server.send(echo("é\u2028\\ud83d\\ude00"), call("noise", "{}", "2"), '{"jsonrpc":"2.0","id":%s,"method":"ping"}' % ("1" * 5000))
        got = {message["id"]: message for message in (server.next() for _ in range(3))}
        assert got[1]["result"]["content"][0]["text"] == "é\u2028\U0001f600"
        assert got[2]["result"]["content"][0]["text"] == "quiet"
        assert got[None]["error"]["code"] == -32700
        if os.path.isdir("/proc/self/fd"):  # where a tool's prints, children and mistakes go
            assert [os.path.exists(f"/proc/{server.process.pid}/fd/{i}") for i in range(3)] == [True] * 3
            assert os.readlink(f"/proc/{server.process.pid}/fd/0") == os.devnull
        assert server.end() == 0
        assert server.next() is None


@pytest.mark.parametrize("shell", ["<&-", ">&-", "<&- >&- 2>&-", "</dev/null"])
def test_closed_at_the_start(shell):
    with Process(shell=shell) as server:
        assert server.process.wait(PATIENCE) == 0


@ALL
def test_1000_calls_leave_no_descriptor_and_no_thread_behind(python):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc here to count descriptors and threads in")
    with Process(python=python) as server:
        count = lambda: [len(os.listdir(f"/proc/{server.process.pid}/{name}")) for name in ("fd", "task")]
        server.greet()
        server.answer("echo", {"text": "x"})
        files, threads = count()
        for key in range(1000):
            if key % 3 == 0:
                server.call("slow", {"seconds": 30}, key)
                server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": key}})
            else:
                server.call(*[("echo", {"text": "x"}), ("broken", {"error": "KeyError"})][key % 2], key)
        server.answer("echo", {"text": "x"}, "last")
        assert count()[0] == files
        assert count()[1] <= 6  # the reader, its writer and the workers


@ALL
def test_a_module_import_starts_it_as_well(python, tmp_path):
    """The registered form: it has a compiled copy to start from."""
    folder = PRODUCT[0].rsplit("/", 1)[0]
    code = f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {folder!r}); import agy_mcp; sys.exit(agy_mcp.main())"
    with Process(["-c", code], python, tmp_path) as server:
        assert server.greet()["result"]["serverInfo"]["name"] == "agy-context-saver"
        assert server.end() == 0


# arguments of main, what is printed, exit code
COMMANDS = [(["--version"], r"^\d+\.\d+\.\d+\n$", 0), (["--help"], "usage:", 0), (["-h"], "install", 0), (["nope"], "unknown command 'nope'", 2)]


@pytest.mark.parametrize("arguments, printed, code", COMMANDS)
def test_main(arguments, printed, code):
    done = subprocess.run([sys.executable, "-I", "-S"] + PRODUCT + arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == code
    assert re.search(printed, done.stdout if code == 0 else done.stderr)


def test_on_a_terminal_it_prints_its_usage():
    pty = pytest.importorskip("pty", reason="no pseudo terminals here")
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-I", "-S"] + PRODUCT, stdin=theirs, capture_output=True, text=True, timeout=PATIENCE)
    finally:
        os.close(ours), os.close(theirs)
    assert done.returncode == 0 and "usage:" in done.stdout


def test_the_tool_list_is_short(tmp_path):
    with Process(PRODUCT, home=tmp_path) as server:
        server.greet()
        server.send(LAST)
        reply = server.next()
        tools = reply["result"]["tools"]
        assert len(json.dumps(reply, separators=(",", ":"))) < 4000
        assert len(tools) <= 6
        assert all(tool["inputSchema"]["type"] == "object" and "anyOf" not in tool["inputSchema"] for tool in tools)


def test_starting_imports_little():
    """Each of these costs a tenth to a half of a bare interpreter start."""
    code = f"import sys; sys.path.insert(0, {PRODUCT[0].rsplit('/', 1)[0]!r}); import agy_mcp; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"json", "re", "threading", "typing", "enum", "collections", "subprocess", "pathlib", "dataclasses", "signal"} & set(loaded) == set()


NUMBERS = {"type": "object", "required": ["count"], "properties": {
    "count": {"type": "integer", "minimum": 0, "maximum": 10}, "ratio": {"type": "number"}, "flag": {"type": "boolean", "default": False},
    "mode": {"type": "string", "enum": ["compact", "full"]}, "lastTurns": {"type": "integer", "minimum": 1}, "name": {"type": "string"},
    "roles": {"type": "array", "items": {"type": "string", "enum": ["user", "tool"]}},
    "deep": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}}
# arguments without count -> what the tool gets beside count and flag
GOOD = [
    ({}, {}), ({"count": "3"}, {"count": 3}), ({"count": 3.0}, {"count": 3}), ({"count": 10}, {"count": 10}),
    ({"lastTurns": " 7 "}, {"lastTurns": 7}),
    ({"flag": True}, {"flag": True}), ({"flag": "true"}, {"flag": True}), ({"flag": "False"}, {"flag": False}), ({"flag": None}, {}),
    ({"ratio": 1}, {"ratio": 1}), ({"ratio": "2.5"}, {"ratio": 2.5}), ({"mode": "full"}, {"mode": "full"}), ({"roles": []}, {"roles": []}),
    ({"roles": ["user", "tool"]}, {"roles": ["user", "tool"]}), ({"deep": {"x": "1"}}, {"deep": {"x": 1}}), ({"toolAction": "x"}, {}),
    ({"lastTurns": 10 ** 18}, {"lastTurns": 10 ** 18}),
]
# arguments without count -> words of the message
BAD = [
    ({"count": None}, ["count", "missing", "integer from 0 to 10"]), ({"count": 11}, ["count must be an integer from 0 to 10", "11"]),
    ({"count": -1}, ["count", "-1"]), ({"count": True}, ["count", "true"]), ({"count": 1.5}, ["count", "1.5"]), ({"count": "x"}, ["count", '"x"']),
    ({"count": [1]}, ["count", "[1]"]), ({"count": {}}, ["count", "{}"]), ({"count": "1" * 30}, ["count"]), ({"count": "1_0"}, ["count"]),
    ({"lastTurns": 0}, ["lastTurns must be an integer of at least 1, not 0."]), ({"flag": 1}, ["flag must be true or false, not 1."]),
    ({"flag": "yes"}, ["flag", "yes"]), ({"ratio": "nan"}, ["ratio", "nan"]), ({"ratio": float("inf")}, ["ratio must be a number"]),
    ({"ratio": True}, ["ratio"]), ({"mode": "Full"}, ['mode must be one of "compact", "full", not "Full".']), ({"mode": 1}, ["mode", "1"]),
    ({"name": 7}, ["name must be a string, not 7."]), ({"roles": "user"}, ["roles must be a list, each item one of", '"user"']),
    ({"roles": ["user", 7]}, ["roles[1]", "7"]), ({"deep": {}}, ["deep.x is missing"]), ({"deep": {"x": 1, "y": 2}}, ["deep.y is not an argument"]),
    ({"last_turns": 1}, ["last_turns is not an argument.", 'Did you mean "lastTurns"?', "Valid: count, ratio"]),
    ({"Count": 1}, ['Did you mean "count"?']), ({"zzz": 1}, ["zzz is not an argument. Valid:"]), ({"mode": "x", "count": 99}, ["mode", "count"]),
    ({"roles": [7] * 100_000}, ["roles[4]", "And more."]), ({"x" * 1_000_000: 1}, ["xxx"]),
    ({str(i): 1 for i in range(50_000)}, ["And more."]), ({"name": ["x" * 10_000]}, ["name", "..."]), ({"\ud800": 1}, ["ud800"]),
]


@pytest.mark.parametrize("given, want", GOOD, ids=str)
def test_arguments_that_fit(given, want):
    clean, faults = agy_mcp.check_arguments(NUMBERS, {"count": 1, **given})
    assert faults == ""
    assert clean == {"count": 1, "flag": False, **want}
    assert {key: type(value) for key, value in clean.items()} == {key: type(value) for key, value in {"count": 1, "flag": False, **want}.items()}


@pytest.mark.parametrize("given, words", BAD, ids=lambda value: str(value)[:60])
def test_arguments_that_do_not_fit(given, words):
    _, faults = agy_mcp.check_arguments(NUMBERS, {"count": 1, **given})
    assert all(word in faults for word in words), faults
    assert len(faults) < 1000


@pytest.mark.parametrize("line", [b"", b"\xff", b"[" * 100_000, b"null", b"{}",
                                  b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":[]}}',
                                  None, b'{"jsonrpc":"2.0","id":"\\ud800","method":"\\ud800"}'])
def test_the_core_never_raises(line):
    answer = agy_mcp.Server().handle(line)
    assert answer is None or json.loads(answer)["jsonrpc"] == "2.0"


def test_lines_come_whole_however_they_are_cut():
    data = b"one\n\ntwo\r\n" + b"x" * 30 + b"\nthree\n" + b"y" * 11 + b"\nlast"
    for size in range(1, 40):
        chunks = [data[i:i + size] for i in range(0, len(data), size)] + [b""]
        assert list(agy_mcp.read_lines(iter(chunks).__next__, 10)) == [b"one", b"", b"two\r", None, b"three", None, b"last"]


WORDS = ["jsonrpc", "2.0", "id", "method", "params", "_meta", META + "protocolVersion", META + "clientCapabilities", "2026-07-28", "name", "echo",
         "arguments", "cursor", "uri", "requestId", "notifications/cancelled", "initialize", "tools/call", "server/discover", "resources/read",
         "progressToken", None, 0, -1, 1.5, True, "", [], {}, "\ud800", 2 ** 70]


def scrambled(value, random):
    """The value with some of its parts changed for others."""
    if random.random() < 0.08:
        return random.choice(WORDS)
    if isinstance(value, dict):
        items = [(key if random.random() > 0.05 else str(random.choice(WORDS)), scrambled(item, random)) for key, item in value.items()]
        return dict(items[random.random() < 0.05:])
    return [scrambled(item, random) for item in value] if isinstance(value, list) else value


def test_scrambled_requests_get_one_answer_or_none():
    random = Random(5)
    lines = [line for case in LEGACY_CASES + MODERN_CASES for line in case[1] if isinstance(line, str) and line.startswith('{"jsonrpc"')]
    bases = [json.loads(line) for line in lines if len(line) < 4000 and not re.search("deaf|slow|noise|broken|big|NaN|Infinity", line)]
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    server = agy_mcp.Server([agy_mcp.Tool("echo", "", schema, lambda arguments, context: arguments.get("text", ""))])
    for _ in range(4000):
        message = scrambled(random.choice(bases), random)
        answer = server.handle(json.dumps(message).encode())
        expected = not isinstance(message, dict) or "id" in message or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str)
        assert (answer is not None) == expected, message
        if answer is not None:
            reply = json.loads(answer)
            answers = reply if isinstance(reply, list) else [reply]
            assert all(("result" in item) != ("error" in item) and "id" in item for item in answers), message
    assert server.running == {}


def test_without_the_c_parts_of_json(tmp_path):
    """As on interpreters that lack _json, _queue and select."""
    code = f"""import sys; sys.modules.update(_json=None, _queue=None, select=None); sys.argv[0] = {SERVER[0]!r}
exec(compile(open({SERVER[0]!r}).read(), {SERVER[0]!r}, "exec"), {{"__name__": "__main__", "__file__": {SERVER[0]!r}}})"""
    with Process(["-c", code], home=tmp_path) as server:
        server.greet()
        server.send("{bad", "[" * 100_000, echo("x", "NaN"), echo("x", "1" * 5000), echo("x\\ud800\u00e9", "2"), call("nan", "{}", "3"), LAST)
        got = [server.next() for _ in range(7)]
        check(PARSE * 4 + said("x\ufffd\u00e9", 2) + [{"id": 3, "result": {"isError": True}}, {"id": "z"}], got)
        assert server.end() == 0
