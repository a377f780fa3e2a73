"""Calls a registered hook the way the host does, for a harness that does not load hooks.json itself.

The payload is the documented one; the command of hooks.json is run by `sh -c` in the folder that holds the file; what comes back is
applied as the host applies it: a denial with its reason, or the call with `overwrite` merged over its arguments.
"""
import asyncio
import json
import os
import re
import subprocess

from google.antigravity import types
from google.antigravity.hooks import hooks

HARNESS_NAMES = {"create_file": "write_to_file", "edit_file": "replace_file_content"}  # what this harness calls them -> what the host does


def host_name(call):
    """The tool's name as the host gives it. The harness passes an MCP call under the bare name of the server's tool."""
    name = str(getattr(call.name, "value", call.name))
    return "call_mcp_tool" if {"ServerName", "ToolName", "Arguments"} <= set(call.args) else HARNESS_NAMES.get(name, name)


def handlers(registered, event, tool):
    """The handlers of an event whose group matches the tool, from the value of a hooks.json."""
    for hook in registered.values():
        for group in hook.get(event, []):
            if group.get("matcher", "") in ("", "*") or re.search(group["matcher"], tool):
                yield from group["hooks"]


def read_answer(done):
    """The object that a finished hook printed; a hook that failed denies, as it does on the host."""
    try:
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"decision": "deny", "reason": f"the hook failed: {done.stdout[-200:]!r}"}


class Bridge(hooks.PreToolCallDecideHook):
    """answers collects (payload, answer) of every call, in order."""

    def __init__(self, hooks_file, data_folder, workspaces, env):
        self.hooks_file, self.data_folder, self.workspaces, self.env, self.answers = hooks_file, data_folder, workspaces, env, []

    def payload(self, call):
        conversation, _, step = (call.step_id or "").rpartition(":")
        brain = os.path.join(self.data_folder, "brain", conversation)
        return {"toolCall": {"name": host_name(call), "args": dict(call.args)}, "stepIdx": int(step or 0),
                "conversationId": conversation, "workspacePaths": self.workspaces, "modelName": "scripted",
                "transcriptPath": brain + "/.system_generated/logs/transcript_full.jsonl", "artifactDirectoryPath": brain}

    def ask(self, payload):
        """The answer of the registered hooks, run one after another up to the first that does not allow."""
        with open(self.hooks_file, encoding="utf-8") as file:
            registered = json.load(file)
        answer = {"decision": "allow"}
        for handler in handlers(registered, "PreToolUse", payload["toolCall"]["name"]):
            done = subprocess.run(["sh", "-c", handler["command"]], input=json.dumps(payload).encode(), stdout=subprocess.PIPE,
                                  cwd=os.path.dirname(self.hooks_file), env=self.env, timeout=handler.get("timeout", 30))
            answer = read_answer(done)
            if answer.get("decision") != "allow":
                break
        return answer

    async def run(self, context, data):
        payload = self.payload(data)
        answer = await asyncio.to_thread(self.ask, payload)
        self.answers.append((payload, answer))
        if answer.get("decision") == "deny":
            return types.HookResult(allow=False, message=answer.get("reason", ""))
        return types.HookResult(allow=True, modified_args=answer.get("overwrite"))
