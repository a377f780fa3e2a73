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
# id: as in "off" and AGY_OFF. tools: names it looks at, () for all. function(call, world) -> Decision or None. stops and passes: example
# calls, (tool, args) or a command line, that the tests run. Every guard is appended to GUARDS below its function.
Guard = record("Guard", "id tools function stops passes")
GUARDS = []
STRICTNESS = {"allow": 0, "ask": 1, "force_ask": 2, "deny": 3}
REASON_BYTES = 400


def deny(guard, text):
    return decision_of("deny", guard, text)


def ask(guard, text):
    return decision_of("ask", guard, text)


def force_ask(guard, text):
    return decision_of("force_ask", guard, text)


def decision_of(verdict, guard, text):
    """A Decision whose reason begins with the guard's id and takes at most REASON_BYTES in UTF-8; what cannot be encoded becomes '?'."""
    data = f"[agy:{guard}] {text}".encode("utf-8", "replace")
    if len(data) > REASON_BYTES:
        data = data[:REASON_BYTES - 3].decode("utf-8", "ignore").encode() + b"..."
    return Decision(verdict, data.decode(), None, guard)


def switched_off(world):
    """The ids that the configuration ("off") and AGY_OFF (separated by commas or blanks) switch off."""
    named = world.env.get("AGY_OFF", "").replace(",", " ").split()
    return set(named + [item for item in world.config.get("off", ()) if isinstance(item, str)])


def run_guards(call, world, guards=None):
    """The strictest Decision of all guards, the first of equals, or None. A guard that fails asks: neither a silent pass nor a brick wall."""
    verdict, off = None, switched_off(world)
    for guard in GUARDS if guards is None else guards:
        if guard.id in off or guard.tools and call.tool not in guard.tools:
            continue
        try:
            found = guard.function(call, world)
        except Exception as error:
            found = ask(guard.id, f"this guard failed ({type(error).__name__}: {str(error)[:120]}); check the call yourself, or put"
                                  f' "off": ["{guard.id}"] into ~/.gemini/antigravity/agy_config.json')
        if found and (verdict is None or STRICTNESS[found.decision] > STRICTNESS[verdict.decision]):
            verdict = found
    return verdict


# guard: internal-state
# guard: bounded-reads
# guard: evaluation
# guard: own-files


# ---- The ledger and the state of tasks ------------------------------------------------------------------------------------------------


# ---- Rewriting ------------------------------------------------------------------------------------------------------------------------
# What became of a command. decision: Decision or None; refused: why rtk's answer is not used, or ""; fresh: (key, code, text) for the cache.
Rewriting = record("Rewriting", "decision refused fresh")
LEFT_ALONE = Rewriting(None, "", None)
WAIT_MS = 10000  # the host's ceiling (host.md §4)
RTK_SECONDS, RTK_BYTES = 1.5, 1 << 20
LONGEST_ARGUMENT = 131071  # bytes, Linux; more cannot be handed to a process (rtk.md §1)
CACHE_ENTRIES, CACHE_TEXT, CACHE_HEAD, CACHE_TAIL = 500, 4096, b'{"version": 1, "entries": [\n', b"\n]}\n"
RTK_FOLDERS = ("~/.local/bin", "~/.cargo/bin", "/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin", "~/.gemini/antigravity/bin")
RTK_CONFIGS = ("~/.config/rtk/config.toml", "~/Library/Application Support/rtk/config.toml")
RTK_VARIABLES = ("RTK_", "CLAUDE_", "GIT_", "XDG_", "APPDATA", "HOME", "PATH", "USERPROFILE")
SECRET_NAMES = ("password", "passwd", "passphrase", "token", "secret", "credential", "api_key", "apikey", "api-key", "access_key", "access-key",
                "private_key", "private-key", "cookie")
SECRET_SIGNS = ("bearer ", "authorization", "-----begin", "pass=", "--pass ", "pwd=", "sshpass")
SECRET_STARTS = ("ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-", "sk_live", "xoxb-", "xoxp-", "AKIA", "ASIA", "AIza", "eyJ",
                 "npm_", "pypi-", "hf_")


def rewrite(call, world):
    """What rtk makes of a run_command call, as a Rewriting. Asks the cache, else `rtk rewrite -- COMMAND` once (exit codes: rtk.md §1)."""
    command = call.args.get("CommandLine")
    if not isinstance(command, str) or not command.strip() or not 0 < encoded_size(command) <= LONGEST_ARGUMENT or "\0" in command:
        return LEFT_ALONE
    rtk, word = find_rtk(world)
    if not rtk or starts_with_rtk(command, word):
        return LEFT_ALONE
    try:
        back = enter_folder(expand_home(call.cwd or "~", world))
    except (OSError, ValueError):  # the command would not start there either
        return LEFT_ALONE
    try:
        secret = holds_secret(command)
        key = "" if secret else cache_key(command, rtk, posix.getcwd(), world)
        found = cached_answer(key, world) if key else None
        code, text = found or ask_rtk(rtk, command, world.env)
        fresh = (key, code, text) if key and not found and code in (0, 1, 3) and len(text) <= CACHE_TEXT else None
        decision, refused = judge_answer(call, code, text, word)
        return Rewriting(decision, refused, fresh)
    finally:
        posix.chdir(back)


def encoded_size(text):
    """Bytes in UTF-8; 0 where it holds a lone surrogate, which rtk panics on and the host would not hand on unchanged."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def starts_with_rtk(command, word):
    first = command.lstrip()
    return first.startswith(word + " ") or first.split(None, 1)[0].replace("\\", "/").rsplit("/", 1)[-1].strip("'\"") in ("rtk", "rtk.exe")


def enter_folder(folder):
    """Makes `folder` the current one and returns the one to go back to. rtk reads its rules from where it runs, symlinks resolved."""
    back = posix.getcwd()
    posix.chdir(folder)
    return back


def judge_answer(call, code, text, word):
    """(Decision or None, why the rewrite is refused or "") for rtk's exit code (-1: none) and stdout."""
    command = call.args["CommandLine"]
    if code == 2:
        if text.strip():
            return deny("rtk", text.strip()), ""
        return ask("rtk", "a deny rule in rtk's permission settings (.claude/settings.json) matches this command; approve it to run it unchanged"), ""
    if code not in (0, 3) or not text.strip() or text == command:
        return None, ""
    refused, text = check_rewrite(command, text, word, posix.getcwd() if call.cwd else None)
    if refused or text == command:
        return None, refused
    overwrite = {"CommandLine": text}
    if not (is_set(call.args.get("IsDaemon")) or is_set(call.args.get("RunPersistent")) or number(call.args.get("WaitMsBeforeAsync")) >= WAIT_MS):
        overwrite["WaitMsBeforeAsync"] = WAIT_MS
    return Decision("allow", "", overwrite, "rewrite"), ""


def is_set(value):
    return value not in (None, False, 0, "", "false", "False", "0")


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def find_rtk(world):
    """(absolute path, the word to write into a command) or ("", ""): configuration, PATH, the usual places. It is not started for that."""
    windows = sys.platform == "win32"
    name, separator = ("rtk.exe", ";") if windows else ("rtk", ":")
    told = expand_home(world.config.get("rtk", ""), world)
    if told and is_program(told):
        return told, quote_program(told, windows)
    for folder in world.env.get("PATH", "").split(separator):
        if is_program(folder + "/" + name):
            return folder + "/" + name, "rtk"
    for folder in RTK_FOLDERS:
        path = expand_home(folder, world) + "/" + name
        if is_program(path):
            return path, quote_program(path, windows)
    return "", ""


def expand_home(path, world):
    return world.home + path[1:] if path == "~" or path.startswith("~/") else path


def is_program(path):
    """Whether an absolute path is a file that may be run. A relative entry of PATH means another file in every folder: never rtk."""
    if path[:1] != "/" and path[1:2] != ":":
        return False
    try:
        return posix.stat(path).st_mode & 0o170000 == 0o100000 and posix.access(path, posix.X_OK)
    except (OSError, ValueError):
        return False


def quote_program(path, windows):
    """A path as one shell word. cmd and PowerShell quote differently: there only what needs no quotes is usable."""
    if all(c.isalnum() or c in "/._-+:\\" if windows else c.isascii() and (c.isalnum() or c in "/._-+") for c in path):
        return path
    return "" if windows else "'" + path.replace("'", "'\\''") + "'"


def ask_rtk(rtk, command, env):
    """(exit code, stdout) of one start of rtk, or (-1, "") where it fails, says nothing in time, too much, or what is not UTF-8."""
    try:
        code, data = run_process([rtk, "rewrite", "--", command], env, RTK_SECONDS, RTK_BYTES)
        text = data.decode()
    except (OSError, ValueError):
        return -1, ""
    return code, text[:-1] if text.endswith("\n") and not command.endswith("\n") else text


CHILDREN = []  # process groups that the watchdog ends with us


def run_process(argv, env, seconds, limit):
    """(exit code, stdout) of a process in the current folder, its stdin and stderr closed off. It and its children are killed after
    `seconds` or `limit` bytes: OSError then, as where it cannot be started."""
    if not hasattr(posix, "posix_spawn"):
        return run_subprocess(argv, env, seconds, limit)
    import select
    read_end, write_end = posix.pipe()
    null = (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0), (posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0)
    try:
        child = posix.posix_spawn(argv[0], argv, env, file_actions=[*null, (posix.POSIX_SPAWN_DUP2, write_end, 1)], setpgroup=0,
                                  setsigmask=(), setsigdef=(13,))  # Python ignores SIGPIPE, 13; its child must not
    except BaseException:
        posix.close(read_end)
        raise
    finally:
        posix.close(write_end)
    CHILDREN.append(child)
    code = None
    try:
        data, deadline = b"", time.monotonic() + seconds
        while select.select([read_end], [], [], max(0, deadline - time.monotonic()))[0]:
            part = posix.read(read_end, 65536)
            data += part
            if not part or len(data) > limit:
                break
        code = wait_for(child, deadline if len(data) <= limit else 0)
    finally:
        posix.close(read_end)
        if code is None:
            kill_group(child)
            posix.waitpid(child, 0)
        CHILDREN.remove(child)
    if code is None:
        raise TimeoutError(110, "killed", argv[0])
    return code, data


def wait_for(child, deadline):
    """The exit code of a child (256 + the signal that ended it), or None if it still runs at `deadline` (monotonic seconds)."""
    while True:
        done, status = posix.waitpid(child, posix.WNOHANG)
        if done:
            return 256 + (status & 0x7F) if status & 0x7F else status >> 8
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.001)


def kill_group(child):
    try:
        posix.killpg(child, 9)
    except OSError:
        pass


def run_subprocess(argv, env, seconds, limit):
    import subprocess  # Windows
    try:
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, "killed", argv[0])
    return done.returncode, done.stdout[:limit]


def holds_secret(text):
    """Whether a command looks as if it held a secret: then it is neither cached nor logged. Rather one too many than one too few."""
    low = text.lower()
    if [sign for sign in SECRET_SIGNS if sign in low] or "curl" in low and (" -u" in low or "--user" in low):
        return True
    return bool([name for name in SECRET_NAMES if name in low and is_given(low, name)]) or has_url_login(low) or has_key(text)


def is_given(low, name):
    """Whether `name` is a variable, header or option that gets a value: TOKEN=, token: or --token."""
    for piece in low.replace("'", " ").replace('"', " ").split():
        at = piece.find(name)
        if at >= 0 and (piece.startswith("-") or "=" in piece[at:] or ":" in piece[at:]):
            return True
    return False


def has_url_login(low):
    for part in low.split("://")[1:]:
        authority = part.replace("?", "/").replace(" ", "/").split("/", 1)[0]
        if "@" in authority:
            return True
    return False


def has_key(text):
    """Whether a word of 16 and more starts like the keys of well-known services, or holds a run of 24 and more letters and digits, both in it
    and in mixed case, or of 32 and more in any; 40 hexadecimal digits are a commit."""
    for word in "".join([c if c.isalnum() or c in "_-" else " " for c in text]).split() if len(text) > 15 else ():
        if len(word) > 15 and word.startswith(SECRET_STARTS):
            return True
        for run in word.replace("_", "-").split("-") if len(word) > 23 else ():
            long = len(run) > (31 if run.islower() or run.isupper() else 23) and not run.isalpha() and not run.isdigit()
            if long and (len(run) != 40 or run.strip("0123456789abcdef")):
                return True
    return False


def digest(text):
    data = text.encode("utf-8", "surrogatepass")
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    return blake2b(data, digest_size=16).hexdigest()


def cache_key(command, rtk, folder, world):
    """A digest of all that rtk's answer depends on (rtk.md §1): the command, rtk itself, its configuration, the permission rules of every
    folder upward (the git top level is one of them) and of the home folder, variables; a PHP project's composer.json, which it also reads."""
    env = world.env
    settings = [world.home + "/.claude", env.get("CLAUDE_CONFIG_DIR", ""), env.get("GIT_WORK_TREE", "") + "/.claude"]
    path = folder.rstrip("/")
    while True:
        settings.append(path + "/.claude")
        if "/" not in path:
            break
        path = path.rsplit("/", 1)[0]
    files = [rtk, folder + "/composer.json", *[expand_home(name, world) for name in RTK_CONFIGS],
             env.get("XDG_CONFIG_HOME", "") + "/rtk/config.toml", env.get("APPDATA", "") + "/rtk/config.toml"]
    for place in settings:
        if file_stamp(place):  # one look instead of two at the many folders that have none
            files += place + "/settings.json", place + "/settings.local.json"
    parts = [f"{name}={value}" for name, value in sorted(env.items()) if name.startswith(RTK_VARIABLES)]
    return digest("\0".join([command, *parts, *[name + file_stamp(name) for name in files if file_stamp(name)]]))


def file_stamp(path):
    """What changes when a file does, or "" where there is none."""
    try:
        found = posix.stat(path)
    except (OSError, ValueError):
        return ""
    return f"\0{found.st_mtime_ns} {found.st_ctime_ns} {found.st_size} {found.st_ino}"


def cached_answer(key, world):
    """(code, text) or None. An entry is one line of rewrites.json, found without parsing the others: that stays fast with 500 of them."""
    data = read_file(world.state + "/rewrites.json")
    start = data.find(b'\n["' + key.encode() + b'", ') if data else -1
    if start < 0:
        return None
    line = data[start + 1:data.find(b"\n", start + 1)].rstrip(b",")
    try:
        _, code, text = parse_json(line.decode())
    except (ValueError, TypeError, RecursionError):
        return None
    return (code, text) if code in (0, 1, 3) and isinstance(text, str) else None


def store_answer(entry, world):
    """Adds (key, code, text) to the cache, oldest out first. OSError where it cannot be written."""
    line = write_json(list(entry)).encode()

    def change(data):
        lines = [old for old in cache_lines(data) if not old.startswith(line[:36])][1 - CACHE_ENTRIES:]
        return CACHE_HEAD + b",\n".join([*lines, line]) + CACHE_TAIL

    update_file(state_path(world, "rewrites.json"), change)


def cache_lines(data):
    """The entries in a cache file, each as one line of bytes; none where the file is broken: it is built anew then."""
    if not data or not data.startswith(CACHE_HEAD) or not data.endswith(CACHE_TAIL):
        return []
    lines = data[len(CACHE_HEAD):-len(CACHE_TAIL)].split(b",\n")
    try:
        entries = parse_json(data.decode())["entries"]
    except (ValueError, RecursionError):
        return []
    return lines if len(entries) == len(lines) else []


def check_rewrite(command, answer, word, folder):
    """(why the answer is refused or "", the text to run)."""
    return "", answer


# ---- The edge -------------------------------------------------------------------------------------------------------------------------
# What one event led to. decision: Decision or None for no objection; refused and fresh as in Rewriting; fault: what was wrong with it, or "".
Outcome = record("Outcome", "decision refused fresh fault")
SECONDS = 2.0  # after which the answer is neutral, whatever hangs
LOG_BYTES = 1 << 20
UNQUOTED = ("Action", "TaskId")  # enums that models send with JSON quotes inside the string (host.md §4)


def make_call(payload):
    """The Call in a PreToolUse or PostToolUse payload (host.md §2), whatever is missing or of a wrong type in it; None where it is no object."""
    if not isinstance(payload, dict):
        return None
    call = payload.get("toolCall")
    call = call if isinstance(call, dict) else {}
    given = call.get("args")
    args = {name: unquote(value) if name in UNQUOTED else value for name, value in given.items()} if isinstance(given, dict) else {}
    workspaces = payload.get("workspacePaths")
    workspaces = [path for path in workspaces if isinstance(path, str) and path] if isinstance(workspaces, list) else []
    step = payload.get("stepIdx")
    tool, cwd = unquote(as_text(call.get("name"))), as_text(args.get("Cwd"))
    if not is_absolute(cwd):
        cwd = (workspaces[0] + "/" + cwd).rstrip("/") or "/" if workspaces else None
    return Call(tool, args, as_text(payload.get("conversationId")), cwd, workspaces, as_text(payload.get("transcriptPath")),
                as_text(payload.get("artifactDirectoryPath")), step if isinstance(step, int) else None, [])


def is_absolute(path):
    return path[:1] in ("/", "~", "\\") or path[1:2] == ":"


def as_text(value):
    return value if isinstance(value, str) else ""


def unquote(value):
    return value[1:-1] if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' else value


def pre_tool_use(call, world):
    verdict = run_guards(call, world)
    if verdict and verdict.decision != "allow" or call.tool != "run_command" or "rewrite" in switched_off(world):
        return Outcome(verdict, "", None, "")
    try:
        return Outcome(*rewrite(call, world), "")
    except Exception as error:  # the command runs as it is
        return Outcome(None, "", None, f"rewriting failed: {type(error).__name__}: {error}"[:200])


NO_OBJECTION = Outcome(None, "", None, "")
EVENTS = {"PreToolUse": pre_tool_use}  # name -> function(call, world) -> Outcome or None; any other event is answered with {}


def decide(event, data, world):
    """(Call or None, Outcome) of one event. data: the bytes of stdin. Never raises."""
    try:
        call = make_call(parse_json((data[3:] if data[:3] == b"\xef\xbb\xbf" else data).decode("utf-8", "surrogateescape")))
        if call is None:
            return None, Outcome(None, "", None, "unreadable payload: not an object")
        return call, EVENTS[event](call, world) or NO_OBJECTION
    except (ValueError, RecursionError) as error:
        return None, Outcome(None, "", None, f"unreadable payload: {error}"[:200])
    except Exception as error:
        return None, Outcome(None, "", None, f"{event} failed: {type(error).__name__}: {error}"[:200])


def render(event, decision, world):
    """The bytes for stdout. Only these three keys, and never an empty object for PreToolUse: that denies (host.md §2)."""
    if event != "PreToolUse":
        return b"{}"
    neutral = world.config.get("neutral", "allow") if world else "allow"
    if decision is None:
        return write_json({"decision": neutral}).encode()
    answer = {"decision": neutral if decision.decision == "allow" else decision.decision, "reason": decision.reason, "overwrite": decision.overwrite}
    return write_json({key: value for key, value in answer.items() if value}).encode()


def log_line(call, outcome, now):
    """What decisions.jsonl says of an event, or None where there is nothing to say. Never the command's text, and of a command that looks
    as if it held a secret neither its size nor its hash; that it was rewritten, not at all."""
    decision, command = outcome.decision, as_text(call.args.get("CommandLine")) if call else ""
    if decision is None and not outcome.refused and not outcome.fault:
        return None
    secret = holds_secret(command)
    if secret and not outcome.fault and (decision is None or decision.guard == "rewrite"):
        return None
    line = {"time": round(now, 3), "conversation": conversation_key(call.conversation) if call else "none", "tool": call.tool[:80] if call else "",
            "guard": decision.guard if decision else "rewrite" if outcome.refused else "", "decision": decision.decision if decision else "neutral"}
    if command and not secret:
        line.update(bytes=len(command.encode("utf-8", "surrogatepass")), hash=digest(command)[:16])
    line.update({name: text for name, text in (("refused", outcome.refused), ("fault", outcome.fault)) if text})
    return line


def append_log(line, world):
    """One line in one write, so that processes at the same instant do not mix. OSError where it cannot be written."""
    path = state_path(world, "decisions.jsonl")
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | getattr(posix, "O_NOFOLLOW", 0) | getattr(posix, "O_NONBLOCK", 0)
    handle = posix.open(path, flags, 0o600)
    try:
        posix.write(handle, write_json(line).encode() + b"\n")
        full = posix.fstat(handle).st_size > LOG_BYTES
    finally:
        posix.close(handle)
    if full:
        turn_over(path, state_path(world, "decisions.1.jsonl"))


def turn_over(path, older):
    """Renames a full log. Under a lock and with a second look, so that of two processes the later does not rename the new log over the old."""
    lock = posix.open(path + ".lock", posix.O_RDWR | posix.O_CREAT | getattr(posix, "O_NOFOLLOW", 0), 0o600)
    try:
        lock_file(lock, time.monotonic() + 0.2)
        if posix.stat(path).st_size > LOG_BYTES:
            posix.replace(path, older)
    finally:
        posix.close(lock)


def remember(call, outcome, world):
    """What is written after the answer is out: the cache and the log. Neither changes a decision, whatever fails."""
    line = log_line(call, outcome, world.now)
    for write, what in ((store_answer, outcome.fresh), (append_log, line)):
        try:
            if what:
                write(what, world)
        except OSError:  # a full disk, no folder, a planted link, a lock not had
            pass


def read_all(handle):
    """stdin to its end: a process that ends before can kill the host's writer (host.md §1)."""
    parts = []
    try:
        while not parts or parts[-1]:
            parts.append(posix.read(handle, 1 << 20))
    except OSError:
        pass
    return b"".join(parts)


def say(data):
    try:
        write_all(1, data + b"\n")
    except OSError:
        pass


def watch(done, turn, event):
    """Runs beside main: if it is not done in SECONDS, answers neutrally in its stead, unless it has answered, and ends the process."""
    if done.acquire(True, SECONDS):
        return
    if turn.acquire(False):
        say(render(event, None, None))
    for child in list(CHILDREN):
        kill_group(child)
    posix._exit(0)


def start_watch(event):
    """(done, turn): main releases `done` at its end and takes `turn` before it answers; who has it answers, and nobody gives it back."""
    from _thread import allocate_lock, start_new_thread
    done, turn = allocate_lock(), allocate_lock()
    done.acquire()
    try:
        start_new_thread(watch, (done, turn, event))
    except RuntimeError:  # no thread to be had: better without than no answer
        pass
    return done, turn


def handle(event):
    done, turn = start_watch(event)
    try:
        data = read_all(0)
        if event not in EVENTS:
            turn.acquire()
            return say(render(event, None, None))
        env = environment()
        home = home_folder(env)
        world = World(env, home, time.time(), load_config(home, parse_json)[0])
        call, outcome = decide(event, data, world)
        turn.acquire()
        say(render(event, outcome.decision, world))
        remember(call, outcome, world)
    finally:
        done.release()


def main(argv=None):
    """Answers one event, named by the first argument; 0 is the exit code always. The host starts it as a script, or as a module:
    python3 -I -S -c 'import sys; sys.path.insert(0, FOLDER); import agy_hook; sys.exit(agy_hook.main())' PreToolUse"""
    words = sys.argv[1:] if argv is None else argv
    event = words[0] if words else "PreToolUse"
    if event == "--version":
        say(__version__.encode())
    elif event in ("--help", "-h") or not words and is_terminal(0):
        say(__doc__.strip().encode("ascii", "replace"))
    else:
        handle(event)
    if argv is None and sys.flags.isolated and sys.flags.no_site:
        # Started by the host, nothing is buffered or open: leaving the interpreter's own clearing up out saves a tenth of a bare start.
        posix._exit(0)
    return 0


def is_terminal(handle):
    try:
        return posix.isatty(handle)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
