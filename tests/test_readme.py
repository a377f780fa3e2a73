"""What README.md says is so: every id, key, tool, command and option is in it, and its examples answer as it shows."""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agy_hook
import agy_mcp
from test_install import put

TOP = Path(__file__).resolve().parent.parent
TEXT = (TOP / "README.md").read_text(encoding="utf-8")
NAMES = [*[guard.id for guard in agy_hook.GUARDS], *agy_hook.CONFIG_KEYS, *[tool.name for tool in agy_mcp.TOOLS], *[p.name for p in agy_mcp.PROMPTS]]


@pytest.mark.parametrize("name", NAMES)
def test_it_knows_each_guard_key_tool_and_prompt(name):
    assert f"`{name}`" in TEXT


@pytest.mark.parametrize("name", [name for name in agy_mcp.COMMANDS if not name.endswith("-child")])  # those are for ourselves
def test_it_knows_each_command(name):
    assert re.search(rf"agy_mcp\.py {name}\b|--{name}\b", TEXT)


def test_each_option_it_shows_is_one():
    known = (TOP / "install.sh").read_text() + "--head-lines"
    assert all(option in known for option in set(re.findall(r"--[a-z][a-z-]+", TEXT)))


def test_the_first_screen():
    screen = TEXT.splitlines()[:25]
    assert screen[0].startswith("# ") and "    sh install.sh" in screen and "    sh tests/run.sh" in screen and any(line.startswith("    $ ") for line in screen)


@pytest.mark.parametrize("rtk", [True, False])
def test_the_call_that_it_shows(rtk, tmp_path):
    command, answer = re.search(r"^    \$ (.*)\n    (.*)$", TEXT, re.M).groups()
    if rtk:
        put(tmp_path / "bin" / "rtk", "#!/bin/sh\necho rtk git status\nexit 3\n").chmod(0o755)
    else:
        answer = re.search(r"Without RTK on the machine: `(.*?)`", TEXT).group(1)
    put(tmp_path / "bin" / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n').chmod(0o755)
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", command], cwd=TOP, env=env, capture_output=True, text=True)
    assert json.loads(done.stdout) == json.loads(answer) and not done.stderr


def test_what_is_to_be_pasted_works(tmp_path, monkeypatch):
    """The snippets, with the paths of this machine in place of the example's, are an installation that status finds well."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    hooks, servers = re.findall(r"```json\n(.*?)```", TEXT, re.S)
    site = agy_mcp.Site(str(tmp_path), None, sys.executable, str(TOP))
    for name in agy_mcp.SCRIPTS:
        put(agy_mcp.data_folder(site) + "/" + name, "")
        shutil.copy(TOP / name, agy_mcp.data_folder(site))
    put(agy_mcp.hooks_file(site), hooks.replace("/usr/bin/python3", sys.executable))
    put(agy_mcp.servers_file(site), servers.replace("/usr/bin/python3", sys.executable).replace("/home/dev", str(tmp_path)))
    layers, well = agy_mcp.status(site)  # that it is not slow is part of it: the form to paste is the fast one
    assert well, agy_mcp.status_text(layers, well)


def test_what_is_to_be_pasted_answers_without_its_python(tmp_path):
    """Pasted as it stands where there is no such Python or no script, it denies nothing."""
    for event, answer in (("PreToolUse", {"decision": "allow"}), ("PostToolUse", {})):
        command = json.loads(re.search(r"```json\n(.*?)```", TEXT, re.S).group(1))[agy_mcp.NAME][event][0]["hooks"][0]["command"]
        for python in ("/nowhere/python3", sys.executable):
            done = subprocess.run(["sh", "-c", command.replace("/usr/bin/python3", python)], input=b"{}", capture_output=True, env={"HOME": str(tmp_path)})
            assert done.returncode == 0 and json.loads(done.stdout) == answer


def test_its_example_of_a_configuration_is_valid(tmp_path):
    example = re.search(r"For example: `(.*?)`", TEXT).group(1)
    put(tmp_path / ".gemini" / "antigravity" / "agy_config.json", example)
    assert agy_hook.load_config(str(tmp_path), agy_hook.parse_json) == (json.loads(example), [])
