"""Real MCP clients against the digest, the brief, the prompts and the rules of the product."""
import pytest
from test_mcp_clients import CLIENTS, talk

import agy_mcp
from mcp_process import PRODUCT
from transcripts import SESSIONS, add_sessions

pytestmark = pytest.mark.contract
PARENT = SESSIONS["three_turns_parent"]
META = {agy_mcp.CONVERSATION_META: PARENT}
PLAN = [
    ["tools"], ["prompts"], ["resources"], ["read", "agy://rules"], ["prompt", "context_shield", {}], ["prompt", "btw", {"question": "Which test fails?"}],
    ["call", "read_transcript", {"view": "digest"}, META], ["call", "read_transcript", {"view": "digest", "conversationId": SESSIONS["background_tasks"]}],
    ["call", "read_transcript", {"view": "digest", "keepTurns": 0}], ["call", "subagent_brief", {"objective": "Find it", "scopeFiles": ["src/"]}],
    ["call", "subagent_brief", {"scopeFiles": "src/"}], ["prompt", "btw", {}],
]


@pytest.mark.parametrize("client, mode", CLIENTS)
def test_a_client_gets_digests_briefs_prompts_and_rules(client, mode, tmp_path):
    add_sessions(tmp_path)
    _, *found = talk(client, mode, PRODUCT, PLAN, tmp_path)
    tools, prompts, resources, rules, shield, btw, digest, single, zero, brief, wrong, unasked = found
    assert "subagent_brief" in [tool["name"] for tool in tools["tools"]]
    assert [prompt["name"] for prompt in prompts["prompts"]] == ["context_shield", "btw"]
    assert [resource["uri"] for resource in resources["resources"]] == ["agy://rules"]
    assert rules["contents"][0]["text"] == agy_mcp.RULES and agy_mcp.RULES in shield["messages"][0]["content"]["text"]
    assert "Which test fails?" in btw["messages"][0]["content"]["text"]
    assert digest["content"][0]["text"].startswith(f"# Digest of conversation {PARENT}: steps 0-23") and not digest["isError"]
    assert single["isError"] and "nothing to digest" in single["content"][0]["text"]
    assert zero["isError"] and "keepTurns must be an integer of at least 1" in zero["content"][0]["text"]
    assert "Objective: Find it" in brief["content"][0]["text"]
    assert wrong["isError"] and "objective is missing" in wrong["content"][0]["text"] and "scopeFiles must be a list" in wrong["content"][0]["text"]
    assert "question" in unasked["error"]
