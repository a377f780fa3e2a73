"""Every line of tests/data/hook_cases/*.jsonl: one payload, the decision wanted, in a world of its own."""
import pytest

import world

CASES = [pytest.param(case, id=f"{path.stem}-{case['name']}") for path in sorted((world.DATA / "hook_cases").glob("*.jsonl"))
         for case in world.read_cases(path)]


@pytest.mark.parametrize("case", CASES)
def test_hook_case(case, tmp_path):
    world.check(case, tmp_path)
