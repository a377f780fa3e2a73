#!/usr/bin/env python3
"""agy_mcp.py: an MCP server over Google Antigravity's transcripts, and the commands that people type.

Copy this file into ~/.gemini/antigravity and name it in ~/.gemini/config/mcp_config.json (README.md); it needs nothing beside it.

usage: agy_mcp.py                       serve MCP on stdin and stdout
       agy_mcp.py install | uninstall | status | explain     (agy_mcp.py COMMAND --help)
       agy_mcp.py --version | --help
"""
import os
import sys

try:
    import posix
except ImportError:  # Windows
    posix = os

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

# ---- The wire: MCP over stdio ---------------------------------------------------------------------------------------------------------


# ---- Conversations and the transcript reader ------------------------------------------------------------------------------------------


# ---- Tools over transcripts: read_transcript, query_transcript ------------------------------------------------------------------------


# ---- Context health, digest, briefs, prompts, rules -----------------------------------------------------------------------------------


# ---- Installation: install, uninstall, status, explain --------------------------------------------------------------------------------


# ---- The tool table and main ----------------------------------------------------------------------------------------------------------


def main(argv=None):
    return 0


if __name__ == "__main__":
    sys.exit(main())
