"""What a command changes (written_paths) and the guard own-files: every line of tests/data/own_files.tsv, native tools, odd input."""
import time
from pathlib import Path

import pytest

import agy_hook
import world

TABLE = world.read_table("own_files.tsv")
NATIVE = [
    ("ask", "{HOME}/.gemini/antigravity/agy_hook.py"), ("ask", "~/.gemini/antigravity/agy_mcp.py"), ("ask", "{HOME}/.gemini/config/hooks.json"),
    ("ask", "file://{HOME}/.gemini/config/hooks.json"), ("ask", "file://{HOME}/.gemini/config/hooks%2Ejson"), ("ask", "$HOME/.gemini/config/hooks.json"),
    ("ask", "{HOME}/.gemini/config/../config/mcp_config.json"), ("ask", "{HOME}/.gemini/antigravity/agy_config.json"),
    ("ask", "{HOME}/.gemini/antigravity/agy_state/ledger/{CONV}.json"), ("ask", "{HOME}/.gemini/config/plugins/guard/hooks.json"),
    ("ask", "{HOME}/.gemini/antigravity/__pycache__/agy_mcp.cpython-39.pyc"), ("ask", "{WS}/.agents/hooks.json"), ("ask", "{WS}/clink/hooks.json"),
    ("ask", ".agents/hooks.json"), ("ask", "{WS}/.agents/agy_hook.py"), ("ask", "{HOME}/.Gemini/Config/Hooks.json"),
    ("pass", "{WS}/agy_hook.py"), ("pass", "{WS}/hooks.json"), ("pass", "{WS}/src/hooks.json"), ("pass", "{BRAIN}/hooks.json"), ("pass", "{WS}/.agents/rules/a.md"),
    ("pass", "{HOME}/.gemini/GEMINI.md"), ("pass", "{WS}/src/small.py"), ("pass", ""), ("pass", None), ("pass", 5), ("pass", ["x"]), ("pass", "a\0b"),
    ("pass", "x/" * 50_000), ("pass", "\ud800"), ("pass", "{WS}/pipe"), ("pass", "/dev/zero"), ("pass", "{WS}/loop/x"),
]
WRITTEN = [  # command line -> what it changes; * and ? stand for what only the shell knows
    ("a > b 2>&1", "b"), ("a 2>/dev/null >&2", "/dev/null"), ("a <in", ""), ("a <<< x", ""), ("a >&- 2>&1", ""), ("a > x > y", "x y"), ("tee -a a b", "a b"),
    ("sed -i s/a/b/ x y", "x y"), ("sed -ne s/a/b/ x", ""), ("sed -i -e 1d -e 2d x", "x"), ("sed -e s/i/x/ f", ""), ("sed -es/i/x/ f", ""), ("sed -ni.b p x", "x"),
    ("perl -pe s/a/b/ x", ""), ("perl -i -pe s/a/b/ x", "x"), ("perl -i -p -e 1 -e 2 x y", "x y"), ("perl -MList::Util -e 1", ""), ("perl -MIO::File -ne 1 x", ""),
    ("cp a b", "b b//a"), ("cp a/c b/", "b/ b///c"), ("mv a b", "b b//a a"), ("cp a", ""), ("rm -rf a b", "a b"), ("rm -- -x", "-x"), ("dd if=a of=b", "b"),
    ("install -m 755 a b", "b b//a"), ("ln -s a b", "b b//a"), ("git rm a b", "a b"), ("git checkout -- a", "a"), ("git -c x=y -C d checkout -- a", "a"),
    ("git stash", "."), ("git stash list", ""), ("git checkout -b x", ""), ("git diff", ""), ("chmod 600 a", "600 a"), ("tar xf a -C b", "b"), ("tar cf a b", "a"),
    ("tar -czf a b", "a"), ("tar --create --file=a b", "a"), ("tar tf a", ""), ("curl -o a u", "a"), ("find a -delete", "a/*"), ("find a b -name c -delete", "a/**/c b/**/c"),
    ("find a -name 'x*' -exec rm {} ;", "a/**/x*"), ("find a", ""), ("ls a | xargs rm b", "b a"), ("xargs rm", "*"), ("python3 x.py", ""), ("python3 x.py <<< 'open(1)'", ""),
    ("python3 -c 'open(\"a\", \"w\")'", "a"), ("python3 -c 'open(\"a\")'", ""), ("python3 -c 'x = open; x(\"a\", \"w\")'", ""), ("node -e 'fs.rmSync(`a`)'", "a"),
    ("rsync -a a h:b", ""), ("cp a 'b c'", "b c b c//a"), ("rm a*", "a*"), ("rm $X", "*"), ("x=1", ""), ("", ""),
]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    names = world.build(tmp_path_factory.mktemp("world"))
    ws, config = Path(names["WS"]), Path(names["HOME"], ".gemini", "config")
    for path in (ws / ".agents" / "hooks.json", ws / "agy_hook.py", ws / "src" / "hooks.json", config / "plugins" / "guard" / "hooks.json"):
        world.put(path, "{}")
    world.put(Path(names["HOME"], ".gemini", "antigravity", "agy_state", "ledger", "x.json"), "{}")
    (ws / "clink").symlink_to(config)
    (ws / "loop").symlink_to("loop")
    return names


def check(names, want, payload):
    here = agy_hook.World(world.environment(names), names["HOME"], time.time(), {})
    found = agy_hook.own_files(agy_hook.make_call(payload, here), here)
    assert (found.decision if found else "pass") == want.replace("ask", "force_ask"), (payload["toolCall"], found)
    if found:
        assert found.reason.startswith("[agy:own-files] ") and len(found.reason.encode()) <= 400 and not found.reason.endswith("...")


@pytest.mark.parametrize("want, line", TABLE, ids=[row[1][:70] for row in TABLE])
def test_command(names, want, line):
    check(names, want, world.command(names, world.fill(line, names)))


@pytest.mark.parametrize("want, path", NATIVE, ids=[ascii(path)[:50] for _, path in NATIVE])
@pytest.mark.parametrize("tool", ["write_to_file", "replace_file_content", "multi_replace_file_content"])
def test_native_tool(names, tool, want, path):
    check(names, want, world.payload(names, tool, {"TargetFile": world.fill(path, names) if path else path, "CodeContent": "x"}))


@pytest.mark.parametrize("line, want", WRITTEN)
def test_written_paths(line, want):
    found = [word for command in agy_hook.read_commands(line, "/w", "/home/dev", {})[0] for word, _ in agy_hook.written_paths(command)]
    assert " ".join(found).translate({0: "*", 1: "*", 2: "?"}) == want


def test_a_hook_in_a_folder_of_its_own_is_protected_there(names, tmp_path, monkeypatch):
    monkeypatch.setattr(agy_hook, "__file__", str(tmp_path / "agy_hook.py"))
    check(names, "ask", world.command(names, f"rm {tmp_path}/agy_hook.py"))
    check(names, "ask", world.command(names, f"rm {tmp_path}/__pycache__/agy_hook.cpython-312.pyc"))
    check(names, "pass", world.command(names, f"rm {tmp_path}/other.py"))
    world.put(tmp_path / ".git" / "HEAD", "")  # a checkout: its own developers' files
    check(names, "pass", world.command(names, f"rm {tmp_path}/agy_hook.py"))


@pytest.mark.parametrize("text", ["open(" * 20000, "a=" * 20000, "'" * 60000, "x.rename(" * 9000, "p = 'a'\n" * 9000, "open('a','w');" * 6000, "((((" * 20000, "x" * 100000])
@pytest.mark.parametrize("line", ["python3 - <<'EOF'\n%s\nEOF", "node -e '%s'", "rm %s", "echo > %s", "git checkout -- %s", "patch <<'EOF'\n+++ %s\nEOF"])
def test_long_text_ends_in_a_decision(names, line, text):
    here = agy_hook.World(world.environment(names), names["HOME"], time.time(), {"evaluation": "on"})
    call = agy_hook.make_call(world.command(names, line % text), here)
    for guard in (agy_hook.own_files, agy_hook.evaluation):
        guard(call, here)


PIECES = ["python3 -c ", "node -e ", "git ", "checkout ", "stash ", "apply ", "-- ", "sed -i ", "find . -delete ", "xargs -I{} ", "tar x -C ", "cp -t ", "patch ", "dd of=", "open(",
          "'w'", ")", "(", "Path", ".write_text", "=", ",", "for x in ", "\n", ";", "|", ">", "<<E\n", "E\n", "benchmarks/", "*", "$X", "${", "`", '"', "'", "~/.gemini", "\\", "\0", "é",
          "\ud800", "[", "]", "{", "}", "//", "-", "powershell -c ", "cmd /c ", "while read f; do ", "done ", "-i", "-e ", "]::Delete(", ":::", "--", "- "]


def test_any_text_leads_to_a_decision(names):
    hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
    from hypothesis import strategies

    @hypothesis.settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @hypothesis.given(strategies.lists(strategies.sampled_from(PIECES), max_size=25).map("".join) | strategies.text(max_size=60))
    def decides(text):
        here = agy_hook.World({}, names["HOME"], 0, {"evaluation": "on", "evaluation_paths": [text, "a/*"]})
        call = agy_hook.make_call(world.command(names, text), here)
        for guard in (agy_hook.evaluation, agy_hook.own_files):
            found = guard(call, here)
            assert found is None or found.decision == "force_ask" and len(found.reason.encode()) <= 400

    decides()
