"""One conversation in the real harness: a made-up home, a git workspace, the two scripts installed, the real rtk on PATH."""
import asyncio
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from google.antigravity import types
from google.antigravity.agent import Agent
from google.antigravity.connections.local.local_openai_connection_config import LocalOpenAIAgentConfig
from google.antigravity.hooks import policy

from host.bridge import Bridge
from host.scripted import ModelServer, text_of

SCRIPTS = Path(__file__).resolve().parents[2]


def real_rtk():
    """The rtk beside this Python, else the one on PATH, else None."""
    beside = os.path.join(os.path.dirname(sys.executable), "rtk")
    return beside if os.access(beside, os.X_OK) else shutil.which("rtk")


class Place:
    """Folders of one made-up user below root: home, workspace, data (the host's data folder), and rtk_log, which names every run of rtk."""

    def __init__(self, root):
        self.root, self.home, self.workspace = root, root / "home", root / "shop"
        self.data, self.bin, self.rtk_log = self.home / ".gemini/antigravity", root / "bin", root / "rtk.log"
        self.hooks_file = self.home / ".gemini/config/hooks.json"
        for folder in (self.data, self.bin, self.workspace, self.hooks_file.parent):
            folder.mkdir(parents=True)
        self.env = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "AGY_TEST_ROOT": str(root)}
        self.add_rtk()
        self.install()
        self.make_repository()

    def add_rtk(self):
        """An rtk that notes its arguments and then becomes the real one."""
        if real_rtk():
            script = self.bin / "rtk"
            script.write_text(f'#!/bin/sh\necho "$*" >> "{self.rtk_log}"\nexec "{real_rtk()}" "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def install(self):
        """Installs and registers both scripts as a person does; servers: name -> {command, args} of what is now in mcp_config.json."""
        subprocess.run([sys.executable, "-I", "-S", str(SCRIPTS / "agy_mcp.py"), "install"], env=self.env, check=True, stdout=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, cwd=str(self.home), timeout=60)
        self.servers = json.loads((self.hooks_file.parent / "mcp_config.json").read_text())["mcpServers"]

    def make_repository(self):
        (self.workspace / "big.txt").write_text("".join(f"line {n} of a long file\n" for n in range(1, 4001)))
        (self.workspace / "build.sh").write_text("for second in $(seq 20); do echo tick $second; sleep 1; done; echo built\n")
        (self.workspace / "small.py").write_text("print('small')\n")
        git = ["git", "-c", "user.name=Dev", "-c", "user.email=dev@example.com"]
        for arguments in (["init", "-q"], ["add", "big.txt"], ["commit", "-q", "-m", "first"]):
            subprocess.run(git + arguments, cwd=self.workspace, env=self.env, check=True)

    def brain(self, conversation):
        return self.data / "brain" / conversation / ".system_generated"

    def conversation(self):
        """The id of the only conversation there is."""
        return os.listdir(self.data / "brain")[0]

    def rtk_runs(self):
        return self.rtk_log.read_text().splitlines() if self.rtk_log.exists() else []

    def rows(self, conversation):
        """The rows of the full transcript, in the order of the file."""
        path = self.brain(conversation) / "logs/transcript_full.jsonl"
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]

    def processes(self):
        """The ids of the processes that were started with this place's environment and still live."""
        mark, found = f"AGY_TEST_ROOT={self.root}".encode(), []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
            except OSError:
                continue
        return found

    def left_behind(self, patience=5.0):
        """The processes that still live after `patience` seconds; they are ended, by id."""
        deadline = time.monotonic() + patience
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = self.processes()
        for number in left:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left


class Played:
    """What a conversation left: conversation (its id), script (what the model was sent), answers ((payload, answer) of each hook call)."""

    def __init__(self, place, conversation, script, answers):
        self.place, self.conversation, self.script, self.answers = place, conversation, script, answers
        self.rows = place.rows(conversation)

    def results(self):
        """(tool call, text of its result as the model got it), in the order of the calls."""
        messages = self.script.requests[-1]["messages"]
        calls = {call["id"]: call["function"] for message in messages for call in message.get("tool_calls") or []}
        return [(calls[m["tool_call_id"]], text_of(m["content"])) for m in messages if m.get("role") == "tool"]

    def result(self, tool, number):
        """What the model got for the call `number` (from 0) of a tool; an MCP tool goes by its own name."""
        return [text for call, text in self.results() if tool in (call["name"], json.loads(call["arguments"]).get("ToolName"))][number]

    def hook(self, tool, number):
        """(payload, answer) of the hook's call `number` (from 0) for a tool."""
        return [pair for pair in self.answers if pair[0]["toolCall"]["name"] == tool][number]

    def payload(self, call, step):
        """The documented payload of a call found in the transcript at `step`, with a transcript that holds only the rows before it."""
        brain = self.place.root / f"as-of-{step}" / "brain" / self.conversation
        logs = brain / ".system_generated/logs"
        logs.mkdir(parents=True, exist_ok=True)
        before = itertools.takewhile(lambda row: row["step_index"] != step, self.rows)
        (logs / "transcript_full.jsonl").write_text("".join(json.dumps(row) + "\n" for row in before))
        return {"toolCall": call, "stepIdx": step, "conversationId": self.conversation, "workspacePaths": [str(self.place.workspace)],
                "modelName": "scripted", "transcriptPath": f"{logs}/transcript_full.jsonl", "artifactDirectoryPath": str(brain)}


def configuration(place, server, bridge, mcp):
    servers = [types.McpStdioServer(name=name, command=entry["command"], args=entry.get("args", []), env={**place.env, **entry.get("env", {})})
               for name, entry in place.servers.items() if mcp]
    return LocalOpenAIAgentConfig(
        base_url=server.url, model="scripted", workspaces=[str(place.workspace)], app_data_dir=str(place.data), save_dir=str(place.root / "save"),
        policies=[policy.allow_all()], hooks=[bridge], mcp_servers=servers, env=place.env)


async def talk(config, prompts, wake, alarm):
    """Says the prompts one after another; `wake`: how many times to wait, at the end, for the host to wake the agent by itself."""
    async with Agent(config) as agent:
        for prompt in prompts:
            await asyncio.wait_for((await agent.chat(prompt)).text(), alarm)
        for _ in range(wake):
            await agent.conversation.wait_for_wakeup(timeout=alarm)
            await asyncio.wait_for(agent.conversation.wait_for_idle(), alarm)
        return agent.conversation_id


def play(place, steps, prompts=("go on",), wake=0, mcp=True, alarm=60):
    """Runs one conversation and returns what it left. `mcp`: with the registered servers attached; `alarm`: seconds that one turn may take."""
    bridge = Bridge(str(place.hooks_file), str(place.data), [str(place.workspace)], place.env)
    with ModelServer(steps) as server:
        conversation = asyncio.run(talk(configuration(place, server, bridge, mcp), prompts, wake, alarm))
    return Played(place, conversation, server.script, bridge.answers)
