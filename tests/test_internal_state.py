"""The guard internal-state: what it stops and what it lets pass. Every line of tests/data/internal_state.tsv, and the native tools."""
import os
import time

import pytest

import agy_hook
import world

TABLE = world.read_table("internal_state.tsv")
NATIVE = [
    ("deny", "view_file", {"AbsolutePath": "{SG}/logs/transcript.jsonl", "StartLine": 1, "EndLine": 3}),
    ("deny", "view_file", {"AbsolutePath": "file://{SG}/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "file://{BRAIN}/%2Esystem_generated/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "~/.gemini/antigravity/brain/{CONV}/.system_generated/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "$HOME/.gemini/antigravity/brain/{CONV}/.system_generated/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "{BRAIN}/.System_Generated/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "{WS}/brainlink/.system_generated/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "{WS}/link.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "StartLine": 1, "EndLine": 900}),
    ("deny", "view_file", {"AbsolutePath": "{SG}/steps/15/other.txt", "StartLine": 1, "EndLine": 9}),
    ("deny", "view_file", {"AbsolutePath": "{SG}/messages/a.json"}),
    ("deny", "list_dir", {"DirectoryPath": "{SG}"}),
    ("deny", "list_dir", {"DirectoryPath": "{SG}/"}),
    ("deny", "grep_search", {"SearchPath": "{BRAIN}", "Query": "x"}),
    ("deny", "grep_search", {"SearchPath": "{HOME}/.gemini/antigravity/brain", "Query": "x"}),
    ("deny", "find_by_name", {"SearchDirectory": "{HOME}/.gemini", "Pattern": "*.jsonl"}),
    ("deny", "write_to_file", {"TargetFile": "{SG}/logs/transcript.jsonl", "CodeContent": ""}),
    ("deny", "replace_file_content", {"TargetFile": "{SG}/steps/15/output.txt"}),
    ("deny", "read_file", {"path": "{SG}/logs/transcript.jsonl"}),
    ("deny", "read_many_files", {"paths": ["{WS}/a", "{SG}/logs/transcript.jsonl"]}),
    ("deny", "call_mcp_tool", {"ServerName": "fs", "ToolName": "read_file", "Arguments": {"path": "{SG}/logs/transcript.jsonl"}}),
    ("deny", "call_mcp_tool", {"ServerName": "fs", "ToolName": "read_file", "Arguments": '{"path": "{SG}/logs/transcript.jsonl"}'}),
    ("deny", "call_mcp_tool", {"ServerName": "fs", "ToolName": "search_files", "Arguments": {"path": "{BRAIN}", "pattern": "x"}}),
    ("deny", "read_resource", {"ServerName": "fs", "Uri": "file://{SG}/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "{BRAIN}/%2Esystem_generated/logs/transcript.jsonl"}),
    ("deny", "view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "StartLine": 1}),
    ("deny", "grep_search", {"SearchPath": "{SG}/steps/15/output.txt", "Query": "row"}),
    ("deny", "find_by_name", {"SearchDirectory": "{BRAIN}", "Pattern": "*"}),
    ("deny", "codebase_search", {"Query": "x", "TargetDirectories": ["{BRAIN}"]}),
    ("pass", "call_mcp_tool", {"ServerName": "agy", "ToolName": "read_transcript", "Arguments": {"conversationId": "{SG}/logs/transcript.jsonl"}}),
    ("pass", "call_mcp_tool", {"ServerName": "notes", "ToolName": "add", "Arguments": {"text": "see .system_generated/logs"}}),
    ("pass", "view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "StartLine": 151, "EndLine": 300}),
    ("pass", "view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "StartLine": "1", "EndLine": "100"}),
    ("pass", "view_file", {"AbsolutePath": "{SG}/tasks/task-2.log"}),
    ("pass", "view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "StartLine": 2900}),
    ("pass", "view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "EndLine": 100}),
    ("pass", "grep_search", {"SearchPath": "{SG}/steps/15/output.txt", "Query": "row 12"}),
    ("pass", "find_by_name", {"SearchDirectory": "{BRAIN}", "Pattern": "*.md"}),
    ("pass", "find_by_name", {"SearchDirectory": "{BRAIN}", "Pattern": "*", "MaxDepth": 1}),
    ("pass", "find_by_name", {"SearchDirectory": "{HOME}/.gemini", "Pattern": "mcp_config.json"}),
    ("pass", "call_mcp_tool", {"ServerName": "hub", "ToolName": "create_issue", "Arguments": {"body": "{SG}/logs/transcript.jsonl is denied"}}),
    ("pass", "call_mcp_tool", {"ServerName": "fs", "ToolName": "list_directory", "Arguments": {"path": "{BRAIN}"}}),
    ("pass", "view_file", {"AbsolutePath": "{BRAIN}/implementation_plan.md"}),
    ("pass", "view_file", {"AbsolutePath": "{BRAIN}/mcp/agy/read_transcript.json"}),
    ("pass", "list_dir", {"DirectoryPath": "{BRAIN}"}),
    ("pass", "list_dir", {"DirectoryPath": "{HOME}/.gemini"}),
    ("pass", "grep_search", {"SearchPath": "{WS}", "Query": ".system_generated"}),
    ("pass", "write_to_file", {"TargetFile": "{WS}/docs/.system_generated.md", "CodeContent": "{SG}/logs"}),
    ("pass", "view_file", {"AbsolutePath": "{WS}/.system_generated/logs/transcript.jsonl"}),
]
ODD = ["", None, 5, [], {}, "\0", "a\0b", "x/" * 50_000, "/" * 100_000, "\ud800", "file://", "file:///%", "%2e%2e", "{WS}/pipe", "/dev/zero", "{WS}/loop"]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    names = world.build(tmp_path_factory.mktemp("world"))
    os.symlink("loop", names["WS"] + "/loop")
    return names


def verdict(names, payload):
    env = world.environment(names)
    here = agy_hook.World(env, names["HOME"], time.time(), {})
    return agy_hook.internal_state(agy_hook.make_call(payload, here), here)


def check(names, want, payload):
    found = verdict(names, payload)
    assert (found.decision if found else "pass") == want, (payload["toolCall"], found)
    if found:
        assert found.reason.startswith("[agy:internal-state] ") and len(found.reason.encode()) <= 400 and not found.reason.endswith("...")


@pytest.mark.parametrize("want, line", TABLE, ids=[row[1][:70] for row in TABLE])
def test_command(names, want, line):
    check(names, want, world.command(names, world.fill(line, names)))


@pytest.mark.parametrize("want, tool, args", NATIVE)
def test_native_tool(names, want, tool, args):
    check(names, want, world.payload(names, tool, world.fill(args, names)))


@pytest.mark.parametrize("tool, name", [("view_file", "AbsolutePath"), ("list_dir", "DirectoryPath"), ("grep_search", "SearchPath")])
@pytest.mark.parametrize("value", ODD, ids=[ascii(v)[:20] for v in ODD])
def test_odd_paths_are_left_to_the_host(names, tool, name, value):
    assert verdict(names, world.payload(names, tool, {name: world.fill(value, names)})) is None


@pytest.mark.parametrize("name", ["output.txt", "content.md"])
@pytest.mark.parametrize("line", ["cat '{}'", "cp '{}' /tmp/x"])
def test_the_routes_to_a_spill_work_as_they_stand(name, line, tmp_path):
    names = world.build(tmp_path / "it's a home")
    path = f"{names['SG']}/steps/{'15' if name == 'output.txt' else '21'}/{name}"
    found = verdict(names, world.command(names, line.format(path.replace("'", "'\\''"))))
    routes = found.reason.partition("Instead: ")[2].strip("`").split("` or `")
    assert f'view_file AbsolutePath="{path}" StartLine=1 EndLine=150' == routes[0]
    check(names, "pass", world.payload(names, "view_file", {"AbsolutePath": path, "StartLine": 1, "EndLine": 150}))
    for route in routes[1:]:
        check(names, "pass", world.command(names, route))


def test_a_conversation_outside_the_data_folders_is_protected_by_its_transcript_path(names, tmp_path):
    sg = tmp_path / "brain" / "c1" / ".system_generated"
    payload = world.command(names, f"cat {sg}/logs/transcript.jsonl")
    assert verdict(names, payload) is None
    assert verdict(names, {**payload, "transcriptPath": f"{sg}/logs/transcript_full.jsonl"}).decision == "deny"


def test_a_command_in_a_protected_folder_is_stopped_whatever_it_is(names):
    assert verdict(names, world.command(names, "ls", Cwd=names["SG"])).decision == "deny"


def test_what_is_too_long_to_be_read_is_searched_as_text(names):
    found = verdict(names, world.command(names, "true;" * 4000 + f"cat {names['SG']}/logs/transcript.jsonl"))
    assert found.decision == "deny"
    assert verdict(names, world.command(names, "true;" * 4000 + "ls")) is None


WRAPS = ["env A=1 %s", "timeout 5 %s", "%s && true", "( %s )", "true; %s", "  %s  ", "{ %s; }", "if true; then %s; fi", "! %s", "nohup %s &", "sh -c '%s'",
         "x=$(%s)", "%s | cat", "%s 2>/dev/null", "nice -n 5 %s", "command %s"]


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_wrapper_never_weakens_the_verdict(names, wrap):
    for want, line in TABLE:
        alone = "%s" in wrap.split() and wrap[0] in "etn" and wrap[:2] != "tr"  # these run one program: no cd, no assignment, no keyword
        if want == "deny" and "\n" not in line and "'" not in line and not line.endswith("&") and not (alone and set(";&={!") & set(line)):
            check(names, "deny", world.command(names, world.fill(wrap % line, names)))
