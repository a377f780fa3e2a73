"""install.sh, in every shell that this machine has, and as a newcomer meets it."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
SCRIPT = TOP / "install.sh"
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"], "sh": ["sh"]}
REAL = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@pytest.fixture(params=SHELLS)
def shell(request):
    if not shutil.which(SHELLS[request.param][0]):
        pytest.skip(f"skipped: no {request.param} on this machine")
    return SHELLS[request.param]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def run(shell, home, *options, script=SCRIPT, python=sys.executable, **environment):
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **({"PYTHON": python} if python else {}), **environment}
    done = subprocess.run([*shell, str(script), *options], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def program(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_in_every_shell(shell, home):
    before = tree(home)
    code, said = run(shell, home, "--dry-run")
    assert code == 0 and "dry run: nothing was written" in said and tree(home) == before, said
    code, said = run(shell, home)
    assert code == 0 and "proof: git status ->" in said, said
    code, said = run(shell, home, "--status")
    assert code == 0 and said.endswith("all is well\n"), said
    code, said = run(shell, home, "--status", "--json")
    assert code == 0 and json.loads(said)["ok"] is True
    workspace = home / "work space"
    workspace.mkdir()
    code, said = run(shell, home, "--workspace", str(workspace))
    assert code == 0 and (workspace / ".agents" / "hooks.json").exists(), said
    code, said = run(shell, home, "--uninstall", "--purge")
    assert code == 0 and tree(home) == ["work space"], said


def test_help_and_wrong_options(shell, home):
    code, said = run(shell, home, "--help")
    assert code == 0 and said.startswith("usage: sh install.sh") and tree(home) == []
    code, said = run(shell, home, "--frobnicate")
    assert code == 2 and "--frobnicate" in said and tree(home) == []


def test_every_option_of_the_usage_is_known(home):
    usage = run(["sh"], home, "--help")[1]
    for option in set(re.findall(r"--[a-z-]+", usage)):
        assert option in (TOP / "agy_mcp.py").read_text(encoding="utf-8") + "--help --status --uninstall", option


def test_a_download_that_was_cut_off_does_nothing(shell, home, tmp_path):
    for name in ("agy_hook.py", "agy_mcp.py"):
        shutil.copy(TOP / name, tmp_path / name)
    whole = SCRIPT.read_text()
    opening = whole.index("\n{\n") + 2
    words = [match.end() for match in re.finditer(r"^(?:set|find|main|run|[a-z_]+(?=\())", whole, re.M)]  # cut here, names are commands
    for cut in [*range(0, opening, 61), *range(opening, len(whole) - 9, 397), *words, *range(len(whole) - 9, len(whole) - 1)]:
        if cut < len(whole) - 1:
            (tmp_path / "cut.sh").write_text(whole[:cut])
            _code, said = run(shell, home, script=tmp_path / "cut.sh")
            assert tree(home) == [] and not re.search("(?m)^(?:HOME=|[.]/|Python:|usage)", said), whole[:cut][-60:]


def test_what_makes_the_host_drop_the_file_is_told(home):
    path = home / ".gemini/config/hooks.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"a": {"Stop": [{"type": "command", "command": "x", "timeout": 1.5}]}}')
    code, said = run(["sh"], home)
    assert code == 1 and "a: timeout 1.5 is no whole number" in said and "Restart" not in said, said


def test_it_is_short_and_clean():
    assert len(SCRIPT.read_text().splitlines()) <= 150
    if not shutil.which("shellcheck"):
        pytest.skip("skipped: no shellcheck on this machine")
    done = subprocess.run(["shellcheck", "-s", "dash", str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_from_another_folder_and_through_a_blank(shell, home, tmp_path):
    clone = tmp_path / "my clone"
    clone.mkdir()
    for name in ("install.sh", "agy_hook.py", "agy_mcp.py"):
        shutil.copy(TOP / name, clone / name)
    code, said = run(shell, home, script=clone / "install.sh")
    assert code == 0, said
    (clone / "agy_hook.py").unlink()
    code, said = run(shell, home, script=clone / "install.sh")
    assert code == 1 and "agy_hook.py has to lie beside install.sh" in said


def test_a_shim_is_resolved_to_the_real_program(shell, home, tmp_path):
    program(tmp_path / "shims", "python3", f'exec "{sys.executable}" "$@"\n')
    code, said = run(shell, home, python=None, PATH=f"{tmp_path / 'shims'}:/usr/bin:/bin")
    assert code == 0 and f"Python: {REAL}\n" in said, said
    assert str(tmp_path / "shims") not in (home / ".gemini/config/hooks.json").read_text()


@pytest.mark.parametrize("text", ["exit 1\n", "exit 127\n", "echo Python 2.7; exit 1\n", "kill -9 $$\n"])
def test_what_is_no_python_is_passed_over(text, home, tmp_path):
    program(tmp_path / "bad", "python3", text)
    program(tmp_path / "good", "python3.12", f'exec "{sys.executable}" "$@"\n')
    code, said = run(["sh"], home, python=None, PATH=f"{tmp_path / 'bad'}:{tmp_path / 'good'}:/usr/bin:/bin")
    assert code == 0 and "proof:" in said, said


def test_without_a_python_a_clear_line(shell, home, tmp_path):
    code, said = run(shell, home, python=str(program(tmp_path / "old", "python3", "exit 1\n")))
    assert code == 1 and "no Python 3.9 or newer" in said and tree(home) == []


def test_the_stores_stub_is_not_started(home, tmp_path):
    folder = tmp_path / "WindowsApps"
    program(folder, "python3", f"touch {tmp_path}/started\nexit 9\n")
    program(tmp_path / "good", "python3.12", f'exec "{sys.executable}" "$@"\n')
    assert run(["sh"], home, python=None, PATH=f"{folder}:{tmp_path / 'good'}:/usr/bin:/bin")[0] == 0
    assert not (tmp_path / "started").exists()


def test_macs_stub_is_not_started_without_its_tools(home, tmp_path):
    """Seen from outside: where uname says Darwin and xcode-select knows no tools, /usr/bin/python3 is passed over."""
    folder = tmp_path / "bin"
    program(folder, "uname", "echo Darwin\n")
    program(folder, "xcode-select", "exit 2\n")
    program(folder, "python3.12", f'exec "{sys.executable}" "$@"\n')
    code, said = run(["sh"], home, python=None, PATH=f"{folder}:/usr/bin:/bin")
    assert code == 0 and f"Python: {REAL}\n" in said, said


TOOLS = ["sh", "cat", "uname", "dirname"]


def test_a_clean_machine_with_python_alone(home, tmp_path):
    """No rtk, no git: the hook and the server work, and status says that all is well."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name))
    (folder / "python3").symlink_to(REAL)
    shell, path = [str(folder / "sh")], str(folder)
    code, said = run(shell, home, python=None, PATH=path)
    assert code == 0 and 'proof: git status -> {"decision": "allow"}' in said, said
    code, said = run(shell, home, "--status", python=None, PATH=path)
    assert code == 0 and re.search(r"^rtk +missing ", said, re.M), said
    assert run(shell, home, "--uninstall", "--purge", python=None, PATH=path)[0] == 0 and tree(home) == []


def readme_commands():
    text = (TOP / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^    \$? ?(sh install\.sh.*|sh tests/run\.sh)$", text, re.M) or re.findall(r"^(sh \S+\.sh.*)$", text, re.M)


def test_a_newcomer(home, tmp_path):
    """A clean clone, the README's first command, status, and a call through the registered command as the host would start it."""
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("install.sh", "agy_hook.py", "agy_mcp.py", "README.md"):
        shutil.copy(TOP / name, clone / name)
    before = '{"other": {"Stop": [{"type": "command", "command": "true", "timeout": 3}]}}'
    config = home / ".gemini" / "config"
    config.mkdir(parents=True)
    (config / "hooks.json").write_text(before)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHON": sys.executable}
    first = readme_commands()[0]
    assert subprocess.run(["sh", "-c", first], cwd=clone, env=env, stdin=subprocess.DEVNULL).returncode == 0, first
    shutil.rmtree(clone)
    installed = [sys.executable, str(home / ".gemini/antigravity/agy_mcp.py")]
    status = subprocess.run([*installed, "status"], env=env, capture_output=True, text=True)
    assert status.returncode == 0 and "all is well" in status.stdout, status.stdout
    registered = json.loads((config / "hooks.json").read_text())["agy-context-saver"]["PreToolUse"][0]["hooks"][0]["command"]
    call = {"toolCall": {"name": "run_command", "args": {"CommandLine": "git status", "Cwd": str(home), "WaitMsBeforeAsync": 500}}, "stepIdx": 19,
            "conversationId": "c", "workspacePaths": [str(home)], "modelName": "m", "transcriptPath": "", "artifactDirectoryPath": ""}
    done = subprocess.run(["sh", "-c", registered], cwd=config, env=env, input=json.dumps(call), capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["decision"] == "allow", done
    assert subprocess.run([*installed, "uninstall"], env=env, capture_output=True).returncode == 0
    assert (config / "hooks.json").read_text() == before and sorted(os.listdir(config)) == ["hooks.json"]
