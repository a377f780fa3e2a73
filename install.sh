#!/bin/sh
# Installs Agy-Context-Saver for the user who runs it: finds a Python, and lets agy_mcp.py beside this file do the rest.
# No network, no sudo, no questions. The shell reads from the next brace to the last one before it runs anything: a download that was cut off
# does nothing.
{
set -u

usage() {
    cat <<'TEXT'
usage: sh install.sh [--dry-run] [--workspace DIR] [--rules]
       sh install.sh --status [--json] [--workspace DIR]
       sh install.sh --uninstall [--dry-run] [--purge] [--restore-backups] [--workspace DIR]

  --dry-run          show every change, with diffs, and write nothing
  --workspace DIR    register in DIR/.agents instead of ~/.gemini/config
  --rules            also write the rules for the model as a rule file
  --status           look at every layer; the exit code is 0 only if all is well
  --json             the status for machines
  --uninstall        take out exactly what was put in
  --purge            with --uninstall: the state folder too
  --restore-backups  with --uninstall: the configuration files as they were before the first change
  --help             this text

The Python is the first of $PYTHON, python3, python3.14 ... python3.9, python and the usual places that is 3.9 or newer.
TEXT
}

say() {
    printf '%s\n' "$*"
}

err() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# Where this file lies, links followed as far as `cd -P` does.
own_folder() {
    case $0 in
        */*) CDPATH='' cd -P -- "${0%/*}" && pwd ;;
        *) pwd -P ;;
    esac
}

# Programs that only look like a Python: starting macOS's asks to install something, the Windows Store's opens a shop.
is_stub() {
    case $1 in
        */WindowsApps/*) return 0 ;;
        /usr/bin/python3) [ "$(uname -s)" = Darwin ] && ! xcode-select -p >/dev/null 2>&1 ;;
        *) return 1 ;;
    esac
}

# Prints the real program behind a Python that is new enough, shims and links resolved; fails for anything else.
real_python() {
    "$1" -I -c '
import os, sys
if sys.version_info < (3, 9) or not sys.executable:
    sys.exit(1)
print(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
' </dev/null 2>/dev/null
}

# Prints the first usable Python. $PYTHON, where it is set, is the only candidate.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        real_python "$PYTHON"
        return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python \
        /usr/bin/python3 /usr/local/bin/python3 /opt/homebrew/bin/python3; do
        found=$(command -v "$name" 2>/dev/null) || continue
        is_stub "$found" && continue
        path=$(real_python "$found") || continue
        say "$path"
        return
    done
    return 1
}

refuse_python() {
    if [ -n "${PYTHON:-}" ]; then
        err "\$PYTHON is $PYTHON, and that is no Python 3.9 or newer"
    fi
    err "no Python 3.9 or newer found; install one, or name it: PYTHON=/path/of/python3 sh install.sh"
}

# Sorts the options: `command` is what agy_mcp.py shall do, the others are handed on as they are.
choose_command() {
    for word in "$@"; do
        case $word in
            --status) command=status ;;
            --uninstall) command=uninstall ;;
            --help | -h) command=help ;;
        esac
    done
}

# Calls agy_mcp.py with every option but those that chose the command.
run() {
    python=$1 script=$2 command=$3
    shift 3
    count=$#
    while [ "$count" -gt 0 ]; do
        word=$1
        shift
        case $word in
            --status | --uninstall) ;;
            *) set -- "$@" "$word" ;;
        esac
        count=$((count - 1))
    done
    exec "$python" -I -S "$script" "$command" "$@"
}

main() {
    command=install
    choose_command "$@"
    if [ "$command" = help ]; then
        usage
        exit 0
    fi
    folder=$(own_folder) || err "the folder of this file cannot be read"
    for name in agy_hook.py agy_mcp.py; do
        [ -f "$folder/$name" ] || err "$name has to lie beside install.sh, and is not in $folder"
    done
    python=$(find_python) || refuse_python
    [ "$command" = install ] && say "Python: $python"
    run "$python" "$folder/agy_mcp.py" "$command" "$@"
}

main "$@"
exit
}
