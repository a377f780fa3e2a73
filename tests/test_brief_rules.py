"""Briefs for subagents, and the rules: their sizes, and that they name only what exists."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import agy_mcp

GOLDEN = Path(__file__).resolve().parent / "data" / "golden"
OURS = {"read_transcript": agy_mcp.READ_TRANSCRIPT, "query_transcript": agy_mcp.QUERY_TRANSCRIPT, "subagent_brief": agy_mcp.SUBAGENT_BRIEF}
OURS.update((tool.name, tool.schema) for tool in agy_mcp.TOOLS)
HOST = {  # tool of the host -> words that may stand in the rules with it: arguments, values (host.md §4)
    "run_command": ("NotificationTimeoutSeconds", "WaitMsBeforeAsync"), "manage_task": ("status", "list", "kill", "send_input"), "schedule": (),
    "view_file": ("StartLine", "EndLine"), "invoke_subagent": (), "manage_subagents": (),
}
PROGRAMS = {"rtk", "grep", "sed", "sleep", "tail", "watch"}
PLACEHOLDERS = {"FILE": "{file}", "DIR": "{folder}", "PATTERN": "needle"}


def brief(**arguments):
    arguments, faults = agy_mcp.check_arguments(agy_mcp.SUBAGENT_BRIEF, arguments)
    assert not faults
    return agy_mcp.subagent_brief(arguments, None)


def test_golden_brief():
    text = brief(objective="Find every caller of parse() and say which of them break when it returns an iterator.",
                 scopeFiles=["src/", "tests/test_parse.py"], expectedDeliverable="a table of callers with a verdict each")
    assert text == (GOLDEN / "brief.md").read_text(encoding="utf-8")


CONTRACT = ["Findings over 1 KB go to a file in the workspace", "3 to 5 sentences", "verdict table", "a link to the file", "End your turn once it is sent",
            "Never poll", "at most 150 lines", "Stay inside the scope"]
INPUTS = [  # (objective, scopeFiles, expectedDeliverable)
    ("x", [], ""), ("é" * 100_000, ["é" * 900 + str(n) for n in range(500)], "日" * 100_000), ("a b " * 9000, [f"src/f{n}.py" for n in range(3000)], "c"),
    ("short", ["a"], "d" * 5000), ("`" * 3000, ["`" * 3000], "```\n" * 900), ("\ud800" * 3000, ["\ud800"], "\0" * 3000),
    ("{objective} {0} %s", ["{scope}", "", " "], "{file}"),
]


@pytest.mark.parametrize("objective, files, deliverable", INPUTS)
def test_brief_is_bounded_and_whole(objective, files, deliverable):
    text = brief(objective=objective, scopeFiles=files, expectedDeliverable=deliverable)
    assert len(text.encode("utf-8", "replace")) <= 2048
    assert [part for part in CONTRACT if part not in text] == []
    assert text == brief(objective=objective, scopeFiles=files, expectedDeliverable=deliverable) and not agy_mcp.open_fence(text)
    if len(objective) > 2000:
        assert "left out" in text
    if len(files) > 100:
        assert re.search(r"… \d+ more, left out", text)


def test_any_brief():
    hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
    from hypothesis import strategies as st

    @hypothesis.settings(max_examples=200, deadline=None, database=None)
    @hypothesis.given(st.text(max_size=3000), st.lists(st.text(max_size=300), max_size=60), st.text(max_size=3000))
    def check(objective, files, deliverable):
        try:
            text = brief(objective=objective, scopeFiles=files, expectedDeliverable=deliverable)
        except agy_mcp.ToolError:
            assert not objective.split()
            return
        assert len(text.encode("utf-8", "replace")) <= 2048 and "End your turn once it is sent" in text
    check()


def test_short_inputs_stand_whole():
    files = [f"src/file_{n}.py" for n in range(8)]
    text = brief(objective="o" * 300, scopeFiles=files, expectedDeliverable="d" * 100)
    assert "o" * 300 in text and "d" * 100 in text and all(f"- `{name}`" in text for name in files)


def test_an_empty_objective_is_refused():
    with pytest.raises(agy_mcp.ToolError, match="objective"):
        brief(objective=" \n")
    assert "objective is missing" in agy_mcp.check_arguments(agy_mcp.SUBAGENT_BRIEF, {})[1]


def test_two_briefs_name_two_files():
    name = re.compile(r"`(findings-[a-z0-9-]+\.md)`")
    assert name.search(brief(objective="Find a"))[1] != name.search(brief(objective="Find b"))[1]


def test_sizes():
    tool = next(tool for tool in agy_mcp.TOOLS if tool.name == "subagent_brief")
    assert len(agy_mcp.write_json(tool.listing())) <= 500
    assert len(agy_mcp.write_json([tool.listing() for tool in agy_mcp.TOOLS])) < 4000
    assert len(agy_mcp.RULES.encode()) < 4000
    assert len(agy_mcp.context_shield({}, None).encode()) <= 6000


def test_one_source():
    assert agy_mcp.context_shield({}, None).endswith(agy_mcp.RULES)
    resource = next(resource for resource in agy_mcp.RESOURCES if resource.uri == "agy://rules")
    assert resource.function(None) == agy_mcp.RULES and resource.mime == "text/markdown"


def spans():
    return re.findall(r"`([^`]+)`", agy_mcp.RULES)


def test_rules_name_only_what_exists():
    words = {word for words in HOST.values() for word in words}
    tools = set(OURS) | {"check_context_health"} | set(HOST)
    unknown = [span for span in spans() if span.split()[0].lstrip("|").strip() not in tools | words | PROGRAMS and not span.startswith(
        ("{", "[agy:", ".system_generated/", "steps/", "| tail", "> FILE"))]
    assert unknown == []
    bare = re.findall(r"\b[a-z]+_[a-z_]+\b", re.sub(r"`[^`]*`", "", agy_mcp.RULES))
    assert set(bare) <= {"send_input"}


def test_calls_in_the_rules_fit_the_schemas():
    found = [(name, text) for name, text in re.findall(r"`(\w+) (\{[^`]*\})`", agy_mcp.RULES) if name in OURS]
    assert len(found) >= 6
    alone = re.findall(r"`(\{[^`]*\})`", agy_mcp.RULES)
    for name, text in found + [("query_transcript", text) for text in alone]:
        assert agy_mcp.check_arguments(OURS[name], agy_mcp.parse_json(text))[1] == ""


@pytest.mark.parametrize("command", [span for span in spans() if span.startswith(("rtk", "grep -n", "sed")) and " " in span])
def test_commands_in_the_rules_run(command, tmp_path):
    if not shutil.which(command.split()[0]):
        pytest.skip(f"{command.split()[0]} is not on PATH")
    file = tmp_path / "a.py"
    file.write_text("".join(f"needle {n}\n" for n in range(400)), encoding="utf-8")
    for word, stands in PLACEHOLDERS.items():
        command = command.replace(word, stands.format(file=file, folder=tmp_path))
    command = f"grep -n needle {file}" if command == "grep -n" else command
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode == 0 and done.stdout.strip(), (command, done.stderr)
    bound = re.search(r"-lines (\d+)|1,(\d+)p", command)
    if bound:
        assert len(done.stdout.splitlines()) == int(bound[1] or bound[2]), command
