"""Whatever bytes come in, one legal answer goes out: bytes at random, and payloads of every governed tool with values at random."""
import json

import pytest

import agy_hook
import world

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
st = hypothesis.strategies
SETTINGS = hypothesis.settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck))

TOOLS = sorted({tool for guard in agy_hook.GUARDS for tool in guard.tools} | {"search_web", ""})
NAMES = ["CommandLine", "Cwd", "WaitMsBeforeAsync", "IsDaemon", "Action", "TaskId", "DurationSeconds", "CronExpression", "Prompt", "TimerCondition", "AbsolutePath",
         "StartLine", "EndLine", "ContentOffset", "DirectoryPath", "SearchPath", "Query", "Includes", "IsRegex", "MatchPerLine", "SearchDirectory", "Pattern",
         "MaxDepth", "TargetFile", "CodeContent", "ToolName", "Arguments", "WaitDurationSeconds", "path", "paths"]
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from([
    "{SG}/logs/transcript.jsonl", "{WS}/src/big.py", "{WS}", "cat {SG}/tasks/task-8.log", "sleep 30", "rm -rf ~/.gemini", "task-8", "status", "*/1 * * * *", "-1",
    "while true; do sleep 1; done", "x > benchmarks/y", "git status", "\ud800", "a\0b", "file:///%ff", "$(", "<<E", "{WS}/pipe"]))
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
                      max_leaves=6)
PAYLOADS = st.fixed_dictionaries({
    "toolCall": VALUES | st.fixed_dictionaries({"name": st.sampled_from(TOOLS), "args": st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)}),
}, optional=dict.fromkeys(("stepIdx", "conversationId", "workspacePaths", "transcriptPath", "artifactDirectoryPath", "modelName"), VALUES))


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    return world.build(tmp_path_factory.mktemp("world"))


def check(names, event, data):
    here = agy_hook.World({"HOME": names["HOME"], "PATH": ""}, names["HOME"], 1.8e9, {})
    call, outcome = agy_hook.decide(event, data, here)
    agy_hook.remember(call, outcome, here)
    text = agy_hook.render(event, outcome.decision, here).decode("ascii")
    answer = json.loads(text)
    if event != "PreToolUse":
        assert answer == {}
        return
    assert set(answer) <= {"decision", "reason", "overwrite"} and answer["decision"] in ("allow", "deny", "ask", "force_ask")
    assert len(answer.get("reason", "").encode("utf-8", "surrogatepass")) <= 400 and not outcome.fault.startswith(event)
    assert not (answer["decision"] == "ask" and "this guard failed" in answer["reason"]), answer


@SETTINGS
@hypothesis.given(data=st.binary(max_size=200) | st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes(names, data):
    check(names, "PreToolUse", data)


@SETTINGS
@hypothesis.given(payload=PAYLOADS, event=st.sampled_from(["PreToolUse", "PreToolUse", "PostToolUse"]))
def test_any_payload(names, payload, event):
    check(names, event, json.dumps(world.fill(payload, names)).encode())
