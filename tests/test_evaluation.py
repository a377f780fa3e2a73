"""The guard evaluation: every line of tests/data/evaluation.tsv, native tools, patterns, and how a conversation becomes one that evaluates."""
import time
from pathlib import Path

import pytest

import agy_hook
import world

TABLE = world.read_table("evaluation.tsv")
PATCH = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    names = world.build(tmp_path_factory.mktemp("world"))
    ws = Path(names["WS"])
    world.put(ws / "fix.patch", PATCH.format("benchmarks/task_01.json"))
    world.put(ws / "other.patch", PATCH.format("src/small.py"))
    world.put(ws / "src" / "evaluators" / "a.py", "")
    (ws / "blink").symlink_to("benchmarks")
    return names


def decide(names, payload, config=None):
    env = world.environment(names)
    here = agy_hook.World(env, names["HOME"], time.time(), config or {})
    return agy_hook.evaluation(agy_hook.make_call(payload, here), here)


def check(names, want, payload, config=None):
    found = decide(names, payload, config)
    assert (found.decision if found else "pass") == want.replace("ask", "force_ask"), (payload["toolCall"], found)
    if found:
        assert found.reason.startswith("[agy:evaluation] ") and len(found.reason.encode()) <= 400 and not found.reason.endswith("...")


@pytest.fixture
def forgetful(names):
    """No conversation has run an evaluator."""
    for marker in world.state(names, "evaluating").glob("*"):
        marker.unlink()


@pytest.mark.parametrize("mode, want, line", TABLE, ids=[f"{row[0]}-{row[2][:70]}" for row in TABLE])
def test_command(names, forgetful, mode, want, line):
    check(names, want, world.command(names, world.fill(line, names)), {"evaluation": mode})


NATIVE = [
    ("ask", "{WS}/benchmarks/task_01.json"), ("ask", "{WS}/benchmarks/new/deep.json"), ("ask", "benchmarks/task_01.json"), ("ask", "file://{WS}/benchmarks/task_01.json"),
    ("ask", "file://{WS}/bench%6Darks/task_01.json"), ("ask", "~/work/shop/benchmarks/x"), ("ask", "{WS}/src/../benchmarks/x"), ("ask", "{WS}/BENCHMARKS/x"),
    ("ask", "{WS}/blink/task_01.json"), ("ask", "{WS}/benchmark/x.py"), ("ask", "{WS}/evaluator/x.py"), ("ask", "{WS}/evaluation/x.py"), ("ask", "{WS}/evaluations/x"),
    ("ask", "{WS}/scoring/x"), ("ask", "{WS}/ground_truth/x"), ("ask", "{WS}/ground-truth/x"), ("ask", "{WS}/prompt_templates/x.md"), ("ask", "{WS}/eval_loop.py"),
    ("ask", "{WS}/data/bench_set.csv"), ("ask", "{WS}/tools/eval_accuracy.py"), ("ask", "{HOME}/elsewhere/benchmarks/x"), ("ask", "{HOME}/elsewhere/eval_x.py"),
    ("pass", "{WS}/src/small.py"), ("pass", "{WS}/benchmarking/x"), ("pass", "{WS}/src/benchmarks.py"), ("pass", "{WS}/src/evaluate.py"), ("pass", "{WS}/src/re_eval_x.py"),
    ("pass", "{WS}/node_modules/x/benchmark/index.js"), ("pass", "{WS}/benchmarks/__pycache__/run.cpython-312.pyc"), ("pass", "{BRAIN}/scratch/eval_x.py"),
    ("pass", "/tmp/eval_x.py"), ("pass", "{WS}/my_benchmarks/x"), ("pass", "{WS}/evaluation.py"), ("pass", ""), ("pass", None), ("pass", 5), ("pass", []), ("pass", "a\0b"),
    ("pass", "x/" * 50_000), ("pass", "\ud800"), ("pass", "{WS}/pipe"), ("pass", "/dev/zero"), ("pass", "/"),
]
MCP = [("ask", "write_file", {"path": "{WS}/benchmarks/x"}), ("ask", "edit_file", {"path": "benchmarks/x"}), ("pass", "read_file", {"path": "{WS}/benchmarks/x"}),
       ("ask", "move_file", {"source": "{WS}/benchmarks/x", "destination": "/tmp/x"}), ("pass", "write_file", {"path": "{WS}/src/x"}), ("pass", "write_file", "x"),
       ("pass", "write_file", '{"path"'), ("ask", "replace_symbol_body", {"relative_path": "evaluators/score.py"}),
       ("pass", None, None), ("pass", "write_file", {"path": 5})]
EVALUATORS = [
    "python3 benchmarks/run.py", "python3 ./benchmarks/run.py --n 5 > /tmp/x 2>&1", "python -u evaluators/score.py", "./benchmarks/run.sh", "bash benchmarks/run.sh",
    "{WS}/benchmarks/run.py", "cd benchmarks && python3 run.py", "pytest benchmarks -q", "pytest benchmarks/test_x.py::test_a", "python -m pytest benchmarks",
    "python3 -m evaluation.run", "uv run python benchmarks/run.py", "poetry run pytest benchmarks", "timeout 60 python3 benchmarks/run.py", "nohup python3 benchmarks/run.py &",
    "time python3 benchmarks/run.py", "python3 tools/eval_accuracy.py", "node evaluators/score.mjs", "lm_eval --model hf", "lm-eval --tasks x", "python -m lm_eval --model hf",
    "python -m swebench.harness.run_evaluation --x", "inspect eval x.py", "npx promptfoo eval", "promptfoo eval -c x.yaml", "deepeval test run x.py", "tb run --agent x",
    "helm-run --suite x", "make bench", "make eval", "npm run bench", "npm run eval:all", "cargo bench", "pytest --benchmark-only", "sh -c 'python3 benchmarks/run.py'",
    "python3 benchmarks/run.py | tail -3", "if true; then python3 benchmarks/run.py; fi", "go run evaluators/main.go", "torchrun evaluation/main.py",
]
NO_EVALUATORS = ["cat benchmarks/run.py", "python3 src/small.py", "pytest tests", "ls benchmarks", "echo python3 benchmarks/run.py", "git add benchmarks/run.py", "make",
                 "python3 -m json.tool benchmarks/task_01.json", "inspect x", "tb", "grep lm_eval README.md", "pip install lm_eval", "npm test", "cargo build", "vim benchmarks"]
CHANGE = "echo x > benchmarks/task_01.json"


@pytest.mark.parametrize("want, path", NATIVE, ids=[ascii(path)[:50] for _, path in NATIVE])
@pytest.mark.parametrize("tool", ["write_to_file", "replace_file_content", "multi_replace_file_content"])
def test_native_tool(names, tool, want, path):
    check(names, want, world.payload(names, tool, {"TargetFile": world.fill(path, names) if path else path, "CodeContent": "x"}), {"evaluation": "on"})


@pytest.mark.parametrize("want, tool, args", MCP)
def test_mcp_tool(names, want, tool, args):
    payload = world.payload(names, "call_mcp_tool", {"ServerName": "fs", "ToolName": tool, "Arguments": world.fill(args, names)})
    check(names, want, payload, {"evaluation": "on"})


@pytest.mark.parametrize("line", EVALUATORS)
def test_after_an_evaluator_ran_all_is_protected_in_that_conversation(names, forgetful, line):
    check(names, "pass", world.command(names, CHANGE))
    check(names, "pass", world.command(names, world.fill(line, names)))
    check(names, "ask", world.command(names, CHANGE))
    check(names, "pass", {**world.command(names, CHANGE), "conversationId": "another"})
    check(names, "pass", world.command(names, CHANGE), {"evaluation": "off"})
    check(names, "pass", world.command(names, "cat benchmarks/task_01.json"))


@pytest.mark.parametrize("line", NO_EVALUATORS)
def test_what_is_no_evaluator(names, forgetful, line):
    check(names, "pass", world.command(names, line))
    check(names, "pass", world.command(names, CHANGE))


def test_the_marker_is_a_private_file_and_never_follows_a_link(names, forgetful):
    folder = world.state(names, "evaluating")
    check(names, "pass", world.command(names, EVALUATORS[0]))
    marker = folder / world.CONV
    assert marker.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700 and not marker.read_bytes()
    marker.unlink()
    target = folder.parent / "target"
    marker.symlink_to(target)
    check(names, "pass", world.command(names, EVALUATORS[0]))
    assert not target.exists()
    check(names, "pass", world.command(names, CHANGE))  # a link is no marker
    marker.unlink()
    folder.rmdir()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    check(names, "pass", world.command(names, EVALUATORS[0]))
    assert not list(elsewhere.iterdir())
    folder.unlink()
    folder.write_text("not a folder")
    check(names, "pass", world.command(names, EVALUATORS[0]))
    check(names, "ask", world.command(names, EVALUATORS[0] + " && " + CHANGE))
    folder.unlink()


def test_a_workspace_below_a_folder_named_benchmarks_is_not_protected_as_a_whole(names, tmp_path):
    ws = tmp_path / "benchmarks" / "shop"
    world.put(ws / "src" / "a.py", "")
    payload = {**world.command({**names, "WS": str(ws)}, "echo x > src/a.py"), "workspacePaths": [str(ws)]}
    check(names, "pass", payload, {"evaluation": "on"})
    check(names, "ask", {**payload, "workspacePaths": [names["WS"]]}, {"evaluation": "on"})
    check(names, "ask", {**world.command({**names, "WS": str(ws)}, "echo x > scoring/a.py"), "workspacePaths": [str(ws)]}, {"evaluation": "on"})
    link = tmp_path / "link"
    link.symlink_to(ws)
    check(names, "pass", {**payload, "workspacePaths": [str(link)]}, {"evaluation": "on"})
    check(names, "pass", {**world.command({**names, "WS": str(link)}, "echo x > src/a.py"), "workspacePaths": [str(link)]}, {"evaluation": "on"})


@pytest.mark.parametrize("pattern, line, want", [
    ("data/gold", "echo x > data/gold/a.json", "ask"), ("data/gold/", "rm -rf data/gold", "ask"), ("data/gold/*", "echo x > data/gold/a.json", "ask"),
    ("data/**/gold.json", "echo x > data/a/b/gold.json", "ask"), ("data/**/gold.json", "echo x > data/gold.json", "ask"), ("./data/gold", "echo x > data/gold/a", "ask"),
    ("*.gold.json", "echo x > src/a.gold.json", "ask"), ("*.GOLD.json", "echo x > src/a.gold.json", "ask"), ("golden", "echo x > src/golden/a", "ask"),
    ("set_[ab].csv", "echo x > set_a.csv", "ask"), ("set_?.csv", "echo x > set_z.csv", "ask"), ("{WS}/data", "echo x > data/a", "ask"), ("~/work/shop/data", "echo x > data/a", "ask"),
    ("data/gold", "echo x > data/golden.json", "pass"), ("data/gold", "echo x > src/data/gold/a", "pass"), ("*.gold.json", "echo x > src/a.json", "pass"),
    ("*.gold.json", "cat src/a.gold.json", "pass"), ("set_[ab].csv", "echo x > set_cc.csv", "pass"), ("", "echo x > a", "pass"), (5, "echo x > a", "pass"), ("[", "echo x > a", "pass"),
    ("*" * 5000, "echo x > " + "a" * 3000, "ask"),
])
def test_configured_patterns(names, forgetful, pattern, line, want):
    check(names, want, world.command(names, line), {"evaluation_paths": [world.fill(pattern, names) if isinstance(pattern, str) else pattern]})


def test_where_the_folder_is_not_known_the_words_count(names):
    payload = {**world.command(names, "rm benchmarks/x", Cwd=""), "workspacePaths": None}
    check(names, "ask", payload, {"evaluation": "on"})
    check(names, "pass", {**world.command(names, "rm src/x", Cwd=""), "workspacePaths": None}, {"evaluation": "on"})


def test_what_is_too_long_to_be_read_is_read_from_its_end(names):
    check(names, "ask", world.command(names, "true;" * 4000 + CHANGE), {"evaluation": "on"})
    check(names, "pass", world.command(names, "true;" * 4000 + "cat benchmarks/x"), {"evaluation": "on"})


WRAPS = ["env A=1 %s", "timeout 5 %s", "%s && true", "( %s )", "true; %s", "  %s  ", "{ %s; }", "if true; then %s; fi", "! %s", "nohup %s &", "sh -c '%s'", "x=$( %s )",
         "%s | cat", "nice -n 5 %s", "command %s", "sudo -E %s", "%s || true", "%s # rm", "while true; do %s; done", "eval '%s'", "rtk proxy %s", "A=1 %s", "%s;"]


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_wrapper_never_weakens_the_verdict(names, wrap):
    for mode, want, line in TABLE:
        single = wrap[0] in "etncsrA" and not wrap.startswith(("true", "eval", "sh "))  # these run one program: no cd, no assignment, no keyword
        if mode == "on" and want == "ask" and "\n" not in line and "'" not in line and not line.endswith("&") and not (single and set(";&={!()") & set(line)) and (
                line.split()[0] not in (":", ">", "if", "for", "exec", "eval", "command") or not single):
            check(names, "ask", world.command(names, world.fill(wrap % line, names)), {"evaluation": "on"})
