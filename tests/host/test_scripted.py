"""The scripted model server by itself; needs no harness."""
import json
import urllib.request

from host import scripted


def ask(server, messages=()):
    """(what the model says, its tool call or None) of one turn."""
    body = json.dumps({"messages": list(messages), "stream": True}).encode()
    with urllib.request.urlopen(server.url + "/chat/completions", body, timeout=10) as answer:
        chunks = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: {")]
    delta = chunks[0]["choices"][0]["delta"]
    return delta.get("content"), [call["function"] for call in delta.get("tool_calls", [])]


def test_steps_come_in_order_and_end_with_done():
    with scripted.ModelServer(["hello", ("view_file", {"AbsolutePath": "/x"})]) as server:
        assert ask(server) == ("hello", [])
        assert ask(server) == (None, [{"name": "view_file", "arguments": '{"AbsolutePath": "/x"}'}])
        assert ask(server) == ("done", [])


def test_a_function_reacts_to_the_last_result():
    with scripted.ModelServer([scripted.last_result]) as server:
        assert ask(server, [{"role": "tool", "content": "old"}, {"role": "tool", "content": [{"text": "new"}]}, {"role": "user", "content": "x"}]) == ("new", [])


def test_a_fault_in_the_script_ends_the_turn_and_is_kept():
    with scripted.ModelServer([lambda messages: messages[7]]) as server:
        assert ask(server) == ("the script failed", [])
        assert "IndexError" in server.script.faults[0]


def test_the_number_of_requests_is_bounded(monkeypatch):
    monkeypatch.setattr(scripted, "LIMIT", 1)
    with scripted.ModelServer([]) as server:
        ask(server)
        try:
            ask(server)
        except OSError as error:
            assert error.code == 503
        else:
            raise AssertionError("a second request was served")
