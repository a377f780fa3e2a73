#!/usr/bin/env python3
"""agy_hook.py: a PreToolUse hook for Google Antigravity. One JSON event comes in on stdin, one JSON decision goes out on stdout.

Copy this file into ~/.gemini/antigravity and name it in ~/.gemini/config/hooks.json (README.md); it needs nothing beside it.

    bytes -> Call -> guards -> Decision -> bytes

Whatever comes in, exactly one object with the keys decision, reason and overwrite goes out, and the exit code is 0: on some hosts anything
else denies every tool call (host.md §2). It runs before every tool call, so a test counts what is imported and opened: os, re, json,
subprocess and collections each cost a good part of a bare interpreter start, and are not imported on the common path.

usage: agy_hook.py [EVENT]      EVENT: PreToolUse (default), PostToolUse; any other is answered with {}
       agy_hook.py --version | --help
"""
import sys
import time
from _operator import itemgetter

try:
    import posix
except ImportError:  # Windows
    import os as posix

# ---- Shared: these lines are the same, to the byte, in agy_hook.py and agy_mcp.py (tests/test_shared.py) ------------------------------
__version__ = "0.1.0"
DATA_FOLDERS = ("antigravity", "antigravity-cli", "antigravity-ide")  # below ~/.gemini: desktop, CLI, IDE (host.md §5)
CONFIG_KEYS = {  # agy_config.json: key -> (what it must be, what it does); a key that is not here is named by `status` and else ignored
    "neutral": (("allow", "ask"), "the answer where the hook has no objection"),
    "off": (list, "ids of guards that are switched off"),
    "evaluation": (("auto", "on", "off"), "when evaluation files are protected"),
    "evaluation_paths": (list, "further patterns of evaluation files"),
    "rtk": (str, "where rtk lies, if not on PATH"),
    "prices": (dict, "model name -> USD per million tokens: input, cached_input, cache_write, output"),
}


def environment():
    """The environment as a dict of str. os is not imported for it: that costs a quarter of a bare interpreter start."""
    if "os" in sys.modules:
        return sys.modules["os"].environ
    return {k.decode("utf-8", "surrogateescape"): v.decode("utf-8", "surrogateescape") for k, v in posix.environ.items()}


def home_folder(env):
    return (env.get("HOME") or env.get("USERPROFILE") or "/").rstrip("/\\") or "/"


def data_folders(home):
    return [home + "/.gemini/" + name for name in DATA_FOLDERS]


def state_folder(home):
    return home + "/.gemini/antigravity/agy_state"


def conversation_key(value):
    """A conversation id as a safe file name: letters, digits, - and _, at most 100 long; what had to change keeps a checksum, none is "none"."""
    text = value if isinstance(value, str) else ""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text[:64])
    if safe == text:
        return safe or "none"
    import binascii  # only for ids that the host never makes
    return f"{safe}-{binascii.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def read_file(path, limit=1 << 26):
    """The first `limit` bytes of a regular file, or None where there is none that can be read. Never waits for a FIFO or a device."""
    try:
        handle = posix.open(path, posix.O_RDONLY | getattr(posix, "O_NONBLOCK", 0) | getattr(posix, "O_BINARY", 0))
    except (OSError, ValueError):
        return None
    try:
        size, parts = posix.fstat(handle), []
        while size.st_mode & 0o170000 == 0o100000 and limit > 0:
            part = posix.read(handle, min(limit, max(size.st_size + 1, 4096)))
            if not part:
                return b"".join(parts)
            parts.append(part)
            limit -= len(part)
        return b"".join(parts) if parts else None
    except OSError:
        return None
    finally:
        posix.close(handle)


def load_config(home, parse):
    """(configuration, faults): what agy_config.json holds of CONFIG_KEYS with a usable value, and a sentence on each thing that is not."""
    data = read_file(home + "/.gemini/antigravity/agy_config.json", 1 << 20)
    if not data:
        return {}, []
    try:
        value = parse(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return {}, [f"not JSON: {error}"]
    if not isinstance(value, dict):
        return {}, ["not a JSON object"]
    good, faults = {}, []
    for key, item in value.items():
        want = CONFIG_KEYS.get(key, (None,))[0]
        if want is None:
            faults.append(f"unknown key {key!r}")
        elif isinstance(item, want) if isinstance(want, type) else item in want:
            good[key] = item
        else:
            faults.append(f"{key!r} must be {want.__name__ if isinstance(want, type) else ' or '.join(want)}")
    return good, faults
# ---- End of the shared lines ----------------------------------------------------------------------------------------------------------

def record(name, fields):
    """A namedtuple class without importing collections, which costs a quarter of a bare interpreter start."""
    names = fields.split()

    def new(cls, *values, **named):
        values += tuple(named[n] for n in names[len(values):])
        return tuple.__new__(cls, values)

    body = {n: property(itemgetter(i)) for i, n in enumerate(names)}
    return type(name, (tuple,), dict(body, __slots__=(), __new__=new, fields=tuple(names)))


class JsonRules:
    """What the C scanner behind json wants to know. Control characters inside strings are let through: the host's own writer is lax."""
    strict, object_hook, object_pairs_hook, parse_float, parse_int, memo = False, None, None, float, int, {}

    def parse_constant(name):
        raise ValueError(f"{name} is not JSON")


def parse_json(text):
    """The value of one JSON document. ValueError where it is none, RecursionError where it is nested too deep."""
    try:
        from _json import make_scanner
    except ImportError:
        from json import loads
        return loads(text, strict=False)
    text = text.strip(" \t\r\n")
    try:
        value, end = make_scanner(JsonRules)(text, 0)
    except StopIteration as error:
        raise ValueError(f"no JSON value at character {error.value}") from None
    if end != len(text):
        raise ValueError(f"something follows the JSON value at character {end}")
    return value


def write_json(value):
    """ASCII JSON text of str, int, float, bool, None, lists and dicts with str keys; a lone surrogate becomes an escape."""
    if isinstance(value, str):
        return quote_json(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join([quote_json(k) + ": " + write_json(v) for k, v in value.items()]) + "}"
    return "[" + ", ".join([write_json(v) for v in value]) + "]"


def quote_json(text):
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json import dumps as encode_basestring_ascii
    return encode_basestring_ascii(text)


# A tool call as the host tells it (host.md §2): tool and conversation str, args dict, cwd str or None, workspaces list of str,
# transcript and artifacts str ("" where the host named none), step int or None, commands: a list of Command (run_command only, else []).
Call = record("Call", "tool args conversation cwd workspaces transcript artifacts step commands")
# What the host is told: decision allow, deny, ask or force_ask; reason str; overwrite dict or None; guard: the id of who decided.
Decision = record("Decision", "decision reason overwrite guard")


# ---- Reading shell commands -----------------------------------------------------------------------------------------------------------


# ---- Paths and files ------------------------------------------------------------------------------------------------------------------


class World:
    """What a decision may depend on beside the call: the environment (dict of str), the home folder, the time (epoch seconds), the
    configuration (dict). Tests make their own."""
    __slots__ = ("env", "home", "now", "config", "state")

    def __init__(self, env, home, now, config):
        self.env, self.home, self.now, self.config, self.state = env, home, now, config, state_folder(home)


def state_path(world, *names):
    """The path of a state file, its folder made (0700) where it is missing. OSError where a part of it below agy_state's parent is not a
    folder of our own: a symlink that someone planted is never followed."""
    path = world.state
    for name in ("",) + names[:-1]:
        path += "/" + name if name else ""
        try:
            posix.mkdir(path, 0o700)
        except FileExistsError:
            if posix.lstat(path).st_mode & 0o170000 != 0o040000:
                raise NotADirectoryError(20, "not a folder of our own", path)
    return path + "/" + names[-1]


def update_file(path, change, patience=1.2):
    """Lock, read, change, write to a temporary file, rename. `change` gets the bytes that are there (None: nothing) and returns the new ones,
    or None to leave them. OSError where that cannot be done, also where the lock is not had in `patience` seconds."""
    flags = posix.O_RDWR | posix.O_CREAT | getattr(posix, "O_NOFOLLOW", 0)
    lock = posix.open(path + ".lock", flags, 0o600)
    try:
        lock_file(lock, time.monotonic() + patience)
        data = change(read_file(path) if not is_symlink(path) else None)
        if data is None:
            return
        temporary = f"{path}.{posix.getpid()}.{time.monotonic_ns():x}"
        handle = posix.open(temporary, flags | posix.O_EXCL | getattr(posix, "O_BINARY", 0), 0o600)
        try:
            try:
                write_all(handle, data)
            finally:
                posix.close(handle)
            posix.replace(temporary, path)
        except OSError:
            posix.unlink(temporary)
            raise
    finally:
        posix.close(lock)


def write_all(handle, data):
    while data:
        data = data[posix.write(handle, data):]


def lock_file(handle, deadline):
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
        attempt = lambda: flock(handle, LOCK_EX | LOCK_NB)
    except ImportError:  # Windows
        from msvcrt import LK_NBLCK, locking
        attempt = lambda: locking(handle, LK_NBLCK, 1)
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.002)


def is_symlink(path):
    try:
        return posix.lstat(path).st_mode & 0o170000 == 0o120000
    except OSError:
        return False


# ---- Guards ---------------------------------------------------------------------------------------------------------------------------
# guard: internal-state
# guard: bounded-reads
# guard: evaluation
# guard: own-files


# ---- The ledger and the state of tasks ------------------------------------------------------------------------------------------------


# ---- Rewriting ------------------------------------------------------------------------------------------------------------------------


# ---- The edge -------------------------------------------------------------------------------------------------------------------------


def main(argv=None):
    return 0


if __name__ == "__main__":
    sys.exit(main())
