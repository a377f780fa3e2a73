"""The guard table: every example of every guard, in every order of the table; switching off; a guard that fails; the strictest verdict."""
import json
import random
import time

import pytest

import agy_hook
import world

EXAMPLES = [(guard.id, kind, example) for guard in agy_hook.GUARDS for kind in ("stops", "passes") for example in getattr(guard, kind)]


@pytest.fixture
def names(tmp_path):
    return world.build(tmp_path)


def call_and_world(names, example, config=None, env=None):
    tool, args = ("run_command", {"CommandLine": example, "Cwd": names["WS"]}) if isinstance(example, str) else example
    here = agy_hook.World({**world.environment(names), **(env or {})}, names["HOME"], time.time(), config or {})
    return agy_hook.make_call(world.payload(names, tool, world.fill(args, names)), here), here


def run(names, example, **more):
    return agy_hook.run_guards(*call_and_world(names, example, **more))


@pytest.mark.parametrize("guard, kind, example", EXAMPLES, ids=[f"{g}-{k}-{json.dumps(e)[:60]}" for g, k, e in EXAMPLES])
def test_example(guard, kind, example, names):
    if kind == "stops":  # by itself: a stricter guard may stop it as well
        found = agy_hook.run_guards(*call_and_world(names, example), [g for g in agy_hook.GUARDS if g.id == guard])
        assert found and found.guard == guard and found.decision in ("deny", "force_ask"), found
        assert found.reason.startswith(f"[agy:{guard}] ") and len(found.reason.encode()) <= 400
    else:
        assert run(names, example) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_table_changes_no_verdict(seed, names):
    for _, _, example in EXAMPLES:
        call, here = call_and_world(names, example)
        verdicts = []
        for guards in (list(agy_hook.GUARDS), random.Random(seed).sample(list(agy_hook.GUARDS), len(agy_hook.GUARDS))):
            world.put(world.state(names, f"ledger/{world.CONV}.json"), json.dumps({"checks": 0, "last_check": 0, "strikes": 0}))
            found = agy_hook.run_guards(call, here, guards)
            verdicts.append(found and (found.decision, found.guard))
        assert verdicts[0] == verdicts[1], example


@pytest.mark.parametrize("guard", [guard.id for guard in agy_hook.GUARDS])
def test_a_guard_is_switched_off_by_configuration_and_by_environment(guard, names):
    example = next(e for g, kind, e in EXAMPLES if g == guard and kind == "stops")
    assert run(names, example).guard == guard
    for more in ({"config": {"off": [guard]}}, {"env": {"AGY_OFF": guard}}, {"env": {"AGY_OFF": f"other, {guard}"}}):
        found = run(names, example, **more)
        assert found is None or found.guard != guard, more


def made(decision):
    return agy_hook.Guard(decision, (), lambda call, here: agy_hook.Decision(decision, f"[agy:{decision}] x", None, decision), (), ())


@pytest.mark.parametrize("verdicts, want", [
    (("allow", "ask"), "ask"), (("ask", "force_ask"), "force_ask"), (("force_ask", "deny", "ask"), "deny"), (("deny", "allow"), "deny"), (("allow",), "allow"),
])
def test_the_strictest_verdict_wins(verdicts, want, names):
    call, here = call_and_world(names, "ls")
    for order in (verdicts, verdicts[::-1]):
        assert agy_hook.run_guards(call, here, [made(v) for v in order]).decision == want


def test_a_guard_that_fails_asks_and_is_named(names):
    call, here = call_and_world(names, "ls")
    broken = agy_hook.Guard("broken", (), lambda call, here: 1 // 0, (), ())
    found = agy_hook.run_guards(call, here, [broken])
    assert found.decision == "ask" and "[agy:broken]" in found.reason and "ZeroDivisionError" in found.reason
    assert agy_hook.run_guards(call, here, [broken, made("deny")]).decision == "deny"


def test_a_denied_command_starts_no_process(names):
    for _, kind, example in EXAMPLES:
        if kind == "stops" and isinstance(example, str):
            world.answer(names, world.command(names, world.fill(example, names)))
    assert world.rtk_starts(names) == 0
