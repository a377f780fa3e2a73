"""Real MCP clients against the server. They cannot share one environment: what this one lacks gets a small one in .venv-<client> beside .venv,
made once. Where that cannot be made, the tests are skipped with a line that says so."""
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_process import PRODUCT, SERVER, pythons

pytestmark = pytest.mark.contract
TOP = Path(__file__).resolve().parent.parent.parent
CLIENT = Path(__file__).with_name("mcp_client.py")
REQUIREMENTS = {"mcp1": ("mcp", "mcp>=1.30,<2", 1), "mcp2": ("mcp", "mcp>=2.3,<3", 2), "fastmcp": ("fastmcp", "fastmcp>=4.2,<5", 4)}
PACKAGES = {"ts1": ("@modelcontextprotocol/sdk", "1"), "ts2": ("@modelcontextprotocol/client", "2")}
MODES = {"mcp1": ["-"], "mcp2": ["auto", "legacy", "2026-07-28"], "fastmcp": ["auto", "legacy"],
         "ts1": ["-"], "ts2": ["legacy", "auto", "2026-07-28"]}
CLIENTS = [(client, mode) for client, modes in MODES.items() for mode in modes]


def has(python, package, major):
    code = f"import importlib.metadata as m; raise SystemExit(m.version({package!r}).split('.')[0] != '{major}')"
    return subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def run_all(commands, what):
    """Why one of these commands did not work, or ""."""
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{what} could not be installed here: {error}"
        if done.returncode:
            return f"{what} could not be installed here: {done.stderr.strip()[-200:]}"
    return ""


def python_client(client, folder):
    package, requirement, major = REQUIREMENTS[client]
    python = str(folder / "bin" / "python")
    if has(sys.executable, package, major):
        return [sys.executable, str(CLIENT)], ""
    if folder.exists() and has(python, package, major):
        return [python, str(CLIENT)], ""
    maker = sys.executable if sys.version_info >= (3, 10) else pythons()[-1]
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    return [python, str(CLIENT)], run_all([[maker, "-m", "venv", str(folder)], install], requirement)


def node_client(client, folder):
    package, major = PACKAGES[client]
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return [], f"{package}: there is no node and npm here"
    folder.mkdir(exist_ok=True)
    script = str(shutil.copy(CLIENT.with_suffix(".mjs"), folder))
    if (folder / "node_modules" / package / "package.json").exists():
        return [node, script], ""
    return [node, script], run_all([[npm, "install", "--silent", "--no-audit", "--prefix", str(folder), f"{package}@{major}"]], package)


@functools.cache
def environment(client):
    """The start of the command line of that client, and "" or a sentence on why it cannot be had."""
    return (python_client if client in REQUIREMENTS else node_client)(client, TOP / f".venv-{client}")


def talk(client, mode, server, plan, home):
    """What the client got for each step of the plan; first of all, what it was greeted with."""
    start, why = environment(client)
    if why:
        pytest.skip(why)
    command = start + [client, mode, sys.executable, "-I", "-S"] + server
    done = subprocess.run(command, input=json.dumps(plan), capture_output=True, text=True, timeout=120, env=dict(os.environ, HOME=str(home)))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr and "Failed to parse" not in done.stderr, done.stderr[-3000:]
    return json.loads(done.stdout)


PLAN = [
    ["tools"], ["prompts"], ["resources"], ["templates"], ["call", "echo", {"text": "a\u2028\U0001f600"}], ["call", "pair", {"text": "x"}],
    ["call", "slow", {"seconds": 0.5}], ["call", "echo", {"text": 7}], ["call", "broken", {"error": "KeyError"}], ["call", "nope", {}],
    ["call", "who", {}, {"antigravity.google/conversation_id": "ec33"}], ["prompt", "ask", {"question": "why"}], ["read", "agy://rules"],
    ["read", "agy://nope"], ["cancel", "slow", {"seconds": 30}], ["together", "deaf", {"seconds": 0.2}, {"seconds": 0.1}, {"seconds": 0}],
    ["call", "big", {"bytes": 9_000_000}], ["call", "big", {"bytes": 1_000_000}], ["ping"],
]


@pytest.mark.parametrize("client, mode", CLIENTS)
def test_a_client_can_use_everything(client, mode, tmp_path):
    greeting, *found = talk(client, mode, SERVER, PLAN, tmp_path)
    (tools, prompts, resources, templates, said, pair, slow, wrong, broken, nope, who, prompt, rules, missing, given_up, together, big, large,
     ping) = found
    if "protocolVersion" in greeting:
        assert greeting["protocolVersion"] == ("2025-11-25" if mode in ("-", "legacy") else "2026-07-28")
    assert [tool["name"] for tool in tools["tools"]][:3] == ["echo", "pair", "slow"]
    assert prompts["prompts"][0]["arguments"] == [{"name": "question", "description": "What to ask.", "required": True}]
    assert resources["resources"][0]["uri"] == "agy://rules" and templates["resourceTemplates"] == []
    assert said["content"][0]["text"] == "a\u2028\U0001f600" and said["isError"] is False
    assert pair["structuredContent"] == {"text": "x"} and pair["content"][0]["text"] == "x"
    steps = [step[0] for step in slow["progress"]]
    assert slow["content"][0]["text"] == "done" and len(steps) >= 2 and steps == sorted(set(steps))
    assert wrong["isError"] is True and "text must be a string" in wrong["content"][0]["text"]
    assert broken["isError"] is True and "KeyError" in broken["content"][0]["text"]
    assert "Unknown tool" in nope["error"]
    assert who["content"][0]["text"] == "'ec33'"
    assert prompt["messages"][0]["content"]["text"] == "Q: why"
    assert rules["contents"][0]["text"] == "# Rules"
    assert "No such resource" in missing["error"]
    assert given_up == {"given up": True} and together == ["done"] * 3
    assert big["isError"] is True and len(large["content"][0]["text"]) == 1_000_000
    assert (isinstance(ping, dict) and "error" in ping) == (mode not in ("-", "legacy"))


@pytest.mark.parametrize("client, mode", CLIENTS)
def test_a_client_can_list_what_the_product_has(client, mode, tmp_path):
    _, tools = talk(client, mode, PRODUCT, [["tools"]], tmp_path)
    assert len(tools["tools"]) <= 6
    assert list(tmp_path.iterdir()) == []
