"""The lines that both scripts need stand in both, the same to the byte, and are few."""
import ast
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
FIRST, LAST = "# ---- Shared: ", "# ---- End of the shared lines "


def shared(name):
    lines = (TOP / name).read_text(encoding="utf-8").splitlines()
    first = [i for i, line in enumerate(lines) if line.startswith(FIRST)]
    last = [i for i, line in enumerate(lines) if line.startswith(LAST)]
    assert len(first) == len(last) == 1, name
    return lines[first[0]:last[0] + 1]


def test_both_scripts_hold_the_same_lines():
    assert shared("agy_hook.py") == shared("agy_mcp.py")
    assert len(shared("agy_hook.py")) <= 90


@pytest.mark.parametrize("name", ["agy_hook.py", "agy_mcp.py"])
def test_no_top_level_name_is_defined_twice(name):
    tree = ast.parse((TOP / name).read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("given, want", [
    ("b775490f-5926-4569-8a0c-61f8d60f1aa0", "b775490f-5926-4569-8a0c-61f8d60f1aa0"),
    ("", "none"), (None, "none"), (7, "none"),
])
def test_a_conversation_id_becomes_a_file_name(given, want):
    import agy_hook
    assert agy_hook.conversation_key(given) == want


@pytest.mark.parametrize("given", ["../../etc/passwd", "a/b", "..", "x" * 300, "a\0b", "\ud800", "ünï"])
def test_an_odd_conversation_id_becomes_a_safe_one(given):
    import agy_hook
    key = agy_hook.conversation_key(given)
    assert key and len(key) <= 100 and set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    assert key != agy_hook.conversation_key(given + "x")
