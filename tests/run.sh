#!/bin/sh
# Makes .venv, installs what the tests need, runs ruff and pytest. Needs a Python from 3.9 up and the package registry.
# What cannot be had is skipped, with a line that says so.
set -eu
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}"
if [ ! -x .venv/bin/python ]; then
    "$PYTHON" -m venv .venv
fi
pip() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
stamp=.venv/installed
if ! cmp -s pyproject.toml "$stamp" 2>/dev/null; then
    pip -e '.[dev]'
    pip -e '.[contract]' || {
        echo "skipped: the contract extra could not be installed as a whole; its parts are tried one by one"
        .venv/bin/python - <<'PY' | while read -r requirement; do
import re, sys
text = open("pyproject.toml", encoding="utf-8").read()
block = re.search(r"contract = \[(.*?)\]", text, re.S).group(1)
print("\n".join(re.findall(r'"([^"]+)"', block)))
PY
            pip "$requirement" || echo "skipped: $requirement is not to be had on this machine"
        done
    }
    cp pyproject.toml "$stamp"
fi
.venv/bin/python -m ruff check .
.venv/bin/python -m pytest "$@"
