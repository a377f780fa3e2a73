#!/bin/sh
# Makes two virtual environments, installs what the tests need, runs ruff and pytest; arguments go to pytest.
# Needs a Python from 3.9 up ($PYTHON where set) and the package registry. What cannot be had is skipped, with a line that says so.
#     .venv           the extras dev and contract of pyproject.toml: pytest, ruff, rtk, the harness, MCP SDK 1.x, ...
#     .venv-clients   the extra clients: MCP SDK 2.x and fastmcp, which do not go together with 1.x
set -eu

# The first Python from 3.9 up that can make a virtual environment makes the one named $1.
make_venv() {
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python3.9 python}; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
        "$python" -m venv "$1" >/dev/null 2>&1 && return
        rm -rf "$1"
    done
    echo "no Python from 3.9 up that can make a virtual environment (on Debian: apt-get install python3-venv)" >&2
    exit 1
}

# Prints the requirements of the extra $1, one a line.
requirements() {
    .venv/bin/python - "$1" <<'EOF'
import re, sys
text = open("pyproject.toml", encoding="utf-8").read()
print("\n".join(re.findall(r'"([^"]+)"', re.search(sys.argv[1] + r" = \[(.*?)\]\s*\n", text, re.S).group(1))))
EOF
}

# Installs the extra $2 into the environment $1: at one go, and where that fails each part by itself.
install() {
    list=$1/$2.txt
    requirements "$2" >"$list"
    if "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list" </dev/null; then return; fi
    while read -r requirement; do
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement" </dev/null ||
            echo "skipped: $requirement is not to be had on this machine"
    done <"$list"
}

main() {
    cd "$(dirname "$0")/.."
    for venv in .venv .venv-clients; do
        [ -x "$venv/bin/python" ] || make_venv "$venv"
    done
    if ! cmp -s pyproject.toml .venv/installed; then
        install .venv dev
        install .venv contract
        install .venv-clients clients
        cp pyproject.toml .venv/installed
    fi
    PATH=$PWD/.venv/bin:$PATH
    export PATH
    failed=0
    python -m ruff check . || failed=$?
    python -m pytest "$@" || failed=$?
    exit "$failed"
}

main "$@"
