"""status: one case a fault, with the layer that shows it and the state it is in; what it names as the remedy does mend it."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import agy_mcp
from test_install import installed, put, site_in, without_proof


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    without_proof(monkeypatch)
    (tmp_path / "home").mkdir()
    place = site_in(tmp_path / "home")
    installed(place)
    return place


def states(site):
    layers, well = agy_mcp.status(site)
    assert all(layer.state in ("ok", "note", "missing", "stale", "doubled", "disabled", "broken", "slow") for layer in layers)
    return {layer.name: layer for layer in layers}, well


def edit(path, change):
    value = json.loads(Path(path).read_text())
    change(value)
    Path(path).write_text(json.dumps(value))


def hooks(change):
    return lambda site: edit(agy_mcp.hooks_file(site), change)


def servers(change):
    return lambda site: edit(agy_mcp.servers_file(site), lambda value: change(value["mcpServers"]))


def handler(value):
    return value[agy_mcp.NAME]["PreToolUse"][0]["hooks"][0]


def remove(name):
    return lambda site: os.unlink(agy_mcp.data_folder(site) + "/" + name)


def command(text, event="PreToolUse"):
    """Registers another command line; {folder}, {python} and {now} stand for ours."""
    def change(site):
        def put_in(value):
            entry = value[agy_mcp.NAME][event][0]["hooks"][0]
            entry["command"] = text.format(folder=agy_mcp.data_folder(site), python=site.python, now=entry["command"])
        edit(agy_mcp.hooks_file(site), put_in)
    return change


def shim(site):
    path = put(site.home + "/shims/python3", f'#!/bin/sh\nexec {site.python} "$@"\n')
    path.chmod(0o755)
    edit(agy_mcp.hooks_file(site), lambda value: handler(value).update(command=handler(value)["command"].replace(site.python, str(path))))


def read_only(name, text):
    def change(site):
        path = put(agy_mcp.config_folder(site) + "/" + name, text)
        path.chmod(0o444)
    return change


def state(change):
    return lambda site: change(agy_mcp.state_folder(site.home))


def no_folder(path):
    shutil.rmtree(path)
    put(path, "")


def a_link(path):
    os.rename(path, path + "2")
    os.symlink(path + "2", path)


def write(name, text):
    return lambda site: put(agy_mcp.data_folder(site) + "/" + name, text)


OURS = {"PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": "python3 agy_hook.py"}]}]}
FAULTS = [  # what happens, which layer shows it, its state, a word of its detail, whether `install` mends it
    ("script gone", remove("agy_hook.py"), "agy_hook.py", "missing", "", True),
    ("server gone", remove("agy_mcp.py"), "agy_mcp.py", "missing", "", True),
    ("old script", write("agy_hook.py", '__version__ = "0.0.1"\n'), "agy_hook.py", "stale", "0.0.1", True),
    ("two versions", write("agy_hook.py", '__version__ = "0.0.1"\n'), "versions", "stale", "different versions", True),
    ("script that does not start", write("agy_hook.py", "import nothing_of_that_name\n"), "hooks.json", "broken", "ModuleNotFoundError", True),
    ("the same, started", write("agy_hook.py", "import nothing_of_that_name\n"), "hook start", "broken", "nothing_of_that_name", True),
    ("hooks.json gone", lambda site: os.unlink(agy_mcp.hooks_file(site)), "hooks.json", "missing", "no entry", True),
    ("entry gone", hooks(lambda v: v.pop(agy_mcp.NAME)), "hooks.json", "missing", "no entry", True),
    ("switched off", hooks(lambda v: v[agy_mcp.NAME].update(enabled=False)), "hooks.json", "disabled", "enabled", True),
    ("doubled", hooks(lambda v: v.update(agy=OURS)), "hooks.json", "doubled", "more than once", True),
    ("another name", hooks(lambda v: v.update(agy=v.pop(agy_mcp.NAME))), "hooks.json", "stale", "another name", True),
    ("matcher", hooks(lambda v: v[agy_mcp.NAME]["PreToolUse"][0].update(matcher="^(?:x)$")), "hooks.json", "stale", "matcher of PreToolUse does not name", True),
    ("another copy", hooks(lambda v: handler(v).update(command="python3 /home/dev/agy_hook.py")), "hooks.json", "stale", "another copy", True),
    ("after the call", hooks(lambda v: v[agy_mcp.NAME].pop("PostToolUse")), "hooks.json", "stale", "nothing is registered for PostToolUse", True),
    ("no handlers", hooks(lambda v: v[agy_mcp.NAME].update(PostToolUse=[{"matcher": ""}])), "hooks.json", "stale", "PostToolUse", True),
    ("interpreter gone", hooks(lambda v: handler(v).update(command=handler(v)["command"].replace("/", "/nowhere/", 1))), "hooks.json", "stale", "", True),
    ("the hook's python is a shim", shim, "hook start", "slow", "looks for a Python at each call", True),
    ("script form", command("{python} -I -S {folder}/agy_hook.py PreToolUse"), "hook start", "slow", "works, but slow", True),
    ("script form after a call", command("{python} -I -S ~/.gemini/antigravity/agy_hook.py PostToolUse", "PostToolUse"), "hook start", "slow", "", True),
    ("python through PATH", command("python3 ~/.gemini/antigravity/agy_hook.py"), "hooks.json", "stale", "through PATH", True),
    ("another event", command("{python} -I -S {folder}/agy_hook.py PreToolUse", "PostToolUse"), "hooks.json", "stale", "for PreToolUse", True),
    ("no matcher at all", hooks(lambda v: v[agy_mcp.NAME]["PreToolUse"][0].update(matcher="(")), "hooks.json", "stale", "matcher", True),
    ("a number for a matcher", hooks(lambda v: v[agy_mcp.NAME]["PreToolUse"][0].update(matcher=5)), "hooks.json", "stale", "matcher", True),
    ("our float", hooks(lambda v: handler(v).update(timeout=1.5)), "hooks.json", "broken", "1.5", True),
    ("no time", hooks(lambda v: handler(v).update(timeout=0)), "hooks.json", "stale", "timeout of 0 s", True),
    ("another type", hooks(lambda v: handler(v).update(type="x")), "hooks.json", "stale", "type", True),
    ("read-only", read_only("hooks.json", "{}"), "hooks.json", "missing", "no entry", True),
    ("a folder for a file", lambda site: (os.unlink(agy_mcp.hooks_file(site)), os.mkdir(agy_mcp.hooks_file(site))), "hooks.json", "broken", "no file", True),
    ("comment", lambda site: put(agy_mcp.hooks_file(site), "{ // no\n}"), "hooks.json", "broken", "line 1, column 3", False),
    ("not JSON", lambda site: put(agy_mcp.hooks_file(site), "{]"), "hooks.json", "broken", "line 1, column 2", False),
    ("mark", lambda site: put(agy_mcp.hooks_file(site), "\ufeff" + Path(agy_mcp.hooks_file(site)).read_text()), "hooks.json", "broken", "byte order", True),
    ("a float", hooks(lambda v: v.update(x={"Stop": [{"type": "command", "command": "x", "timeout": 1.5}]})), "hooks.json", "broken", "1.5", False),
    ("text for a number", hooks(lambda v: v.update(x={"Stop": [{"command": "x", "timeout": "5"}]})), "hooks.json", "broken", '"5"', False),
    ("a group", hooks(lambda v: v.update(x={"Stop": [{"matcher": "", "hooks": []}]})), "hooks.json", "broken", "flat list", False),
    ("a file the host never runs", lambda site: put(agy_mcp.unread_file(site), json.dumps({"a": OURS})), "unread hooks", "stale", "antigravity-cli", True),
    ("mcp gone", lambda site: os.unlink(agy_mcp.servers_file(site)), "mcp_config.json", "missing", "", True),
    ("mcp broken", lambda site: put(agy_mcp.servers_file(site), "{\n,}"), "mcp_config.json", "broken", "line 2, column 1", False),
    ("mcp disabled", servers(lambda v: v[agy_mcp.NAME].update(disabled=True)), "mcp_config.json", "disabled", "", True),
    ("mcp doubled", servers(lambda v: v.update(x=dict(v[agy_mcp.NAME]))), "mcp_config.json", "doubled", "x", True),
    ("mcp stale", servers(lambda v: v[agy_mcp.NAME].update(args=["/x/agy_mcp.py"])), "mcp_config.json", "stale", "", True),
    ("mcp does not start", servers(lambda v: v[agy_mcp.NAME].update(args=["-c", "import agy_mcp"])), "server start", "broken", "", True),
    ("mcp's python gone", servers(lambda v: v[agy_mcp.NAME].update(command="/nowhere/python3")), "server start", "broken", "FileNotFound", True),
    ("mcp without arguments", servers(lambda v: v[agy_mcp.NAME].update(args=None)), "mcp_config.json", "broken", "does not start", True),
    ("mcp's python through PATH", servers(lambda v: v[agy_mcp.NAME].update(command="python3")), "mcp_config.json", "stale", "through PATH", True),
    ("mcpServers is a list", lambda site: put(agy_mcp.servers_file(site), '{"mcpServers": []}'), "mcp_config.json", "broken", "column 16", False),
    ("state is a file", state(no_folder), "state", "broken", "no folder", True),
    ("state is a link", state(a_link), "state", "broken", "link", True),
    ("state is open", state(lambda path: os.chmod(path, 0o777)), "state", "broken", "open to others", True),
    ("a guard that is none", write("agy_config.json", '{"off": ["boundedreads"]}'), "configuration", "broken", "boundedreads", False),
    ("rtk that is none", write("agy_config.json", '{"rtk": "/nowhere/rtk"}'), "configuration", "broken", "/nowhere/rtk", False),
    ("configuration", write("agy_config.json", '{"offf": []}'), "configuration", "broken", "offf", False),
    ("configuration broken", write("agy_config.json", "{"), "configuration", "broken", "not JSON", False),
]


@pytest.mark.parametrize("happens, layer, state, word, mended", [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_each_fault_is_named_and_mended(happens, layer, state, word, mended, site):
    assert states(site)[1]
    happens(site)
    found, well = states(site)
    assert not well and found[layer].state == state and word in found[layer].detail, agy_mcp.status_text(found.values(), well)
    assert found[layer].fix
    if mended:
        subprocess.run(["sh", "-c", found[layer].fix], check=True, capture_output=True)
        assert states(site)[1]


def test_all_layers_of_a_whole_installation(site):
    found, well = states(site)
    assert well
    for name in ("agy_hook.py", "agy_mcp.py", "hooks.json", "hook start", "mcp_config.json", "server start", "state", "configuration"):
        assert found[name].state == "ok", name
    assert found["rtk"].state == "missing" and found["last decision"].state == "note" and "none yet" in found["last decision"].detail


def test_the_installed_copy_mends_itself_from_where_it_came(site, tmp_path):
    """A session's status runs the installed copy, which can copy nothing but itself."""
    clone = tmp_path / "clone"
    for name in agy_mcp.SCRIPTS:
        put(clone / name, Path(site.source, name).read_bytes())
    installed(site.changed(source=str(clone)))
    own = site.changed(source=os.path.realpath(agy_mcp.data_folder(site)))
    for damage in (remove("agy_hook.py"), write("agy_hook.py", "(("), write("agy_mcp.py", '__version__ = "0.0.1"')):
        damage(site)
        assert not states(own)[1]
        assert agy_mcp.install(own)[1] and states(own)[1]
    (clone / "agy_hook.py").unlink()
    remove("agy_hook.py")(site)
    assert "sh install.sh" in states(own)[0]["agy_hook.py"].fix and "sh install.sh" in agy_mcp.install(own)[0][-1]


def test_what_is_switched_off_is_named(site, monkeypatch):
    write("agy_config.json", '{"off": ["rewrite"]}')(site)
    monkeypatch.setenv("AGY_OFF", "polling, evaluation")
    found, well = states(site)
    assert well and "switched off: evaluation, polling, rewrite" in found["configuration"].detail


def test_nothing_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found, well = states(site_in(tmp_path))
    assert not well and found["hooks.json"].state == found["mcp_config.json"].state == found["agy_hook.py"].state == "missing"
    assert not list(tmp_path.iterdir())


RTK = [  # what stands in for rtk, where it lies, state, a word
    ('[ "$1" = --version ] && echo rtk 9.9 || { echo rtk git status; exit 3; }', "bin", "ok", "9.9"),
    ('[ "$1" = --version ] && echo rtk 9.9 || { echo rtk git status; exit 3; }', "home/.local/bin", "ok", "not on PATH"),
    ("exit 101", "bin", "broken", "does not rewrite"),
]


@pytest.mark.parametrize("text, folder, state, word", RTK)
def test_rtk(text, folder, state, word, site, tmp_path, monkeypatch):
    path = put(tmp_path / folder / "rtk", "#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/usr/bin:/bin")
    found, well = states(site)
    assert found["rtk"].state == state and word in found["rtk"].detail and well is (state == "ok")


def test_another_rewriting_hook_is_noted(site):
    plugin = {"rtk": {"PreToolUse": [{"matcher": "run_command", "hooks": [{"type": "command", "command": "rtk hook antigravity"}]}]}}
    put(agy_mcp.config_folder(site) + "/plugins/rtk/hooks.json", json.dumps(plugin))
    put(agy_mcp.config_folder(site) + "/plugins/odd/hooks.json", "[")
    found, well = states(site)
    assert well and found["other hooks"].state == "note" and "plugins/rtk/hooks.json" in found["other hooks"].detail


def test_the_last_decision_of_a_session_is_shown(site):
    log = put(agy_mcp.state_folder(site.home) + "/decisions.jsonl", "".join(json.dumps(line) + "\n" for line in [
        {"time": 1700000000.0, "conversation": "a", "tool": "view_file", "guard": "bounded-reads", "decision": "deny"},
        {"time": 1700000001.0, "conversation": agy_mcp.PROBE, "tool": "run_command", "guard": "rewrite", "decision": "allow"}]) + "{half")
    found, well = states(site)
    assert well and "deny by bounded-reads on view_file" in found["last decision"].detail
    log.write_text("[]\n7\n\n")
    assert states(site)[1]


def test_a_state_folder_that_is_none(site):
    folder = Path(agy_mcp.state_folder(site.home))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("")
    found, well = states(site)
    assert not well and found["state"].state == "broken"


def test_the_command_and_its_exit_code(site, capsys):
    assert agy_mcp.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["name"] == "agy_hook.py"
    os.unlink(agy_mcp.hooks_file(site))
    assert agy_mcp.main(["status"]) == 1
    assert "not all is well: hooks.json" in capsys.readouterr().out
