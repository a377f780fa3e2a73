"""Conversations in the real Antigravity harness, with a scripted model, the hook bridged and the MCP server attached."""
