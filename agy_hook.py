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
# scan() cuts a command line into tokens, read_commands() tells what would run, where and how often. Neither runs anything, raises, or takes
# more than linear time: what lies beyond MOST_ITEMS tokens or MOST_LEVELS of nesting is handed back as unread text.
#
# A token is (kind, raw, parts): kind "word", "op" (; & && || | |& ;; ;& ;;& ( ) newline), "redirect" (raw with its descriptor, as 2>& ; the
# next word is its target), "heredoc" (a body; comes behind the newline that ends the line of its <<), "comment". parts of a word are tuples:
#   ("text", s) quoted or escaped   ("bare", s) unquoted, so globs, braces and ~ count   ("var", name, default parts or None, quoted)
#   ("run", tokens) $( ) ` ` <( )   ("array", tokens) A=( )   ("any", tokens) arithmetic, extglob and what is only known at run time
MOST_ITEMS, MOST_LEVELS, MOST_WORDS = 6000, 24, 64
BLANKS, BREAKS = " \t", frozenset(" \t\r\n;&|<>()")
WORD_STOPS = BREAKS | frozenset("'\"\\$`{},*?[~")
QUOTED_STOPS = frozenset("\"\\$`")
REDIRECTS = ("<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">")
OPERATORS = (";;&", ";;", ";&", ";", "&&", "&", "||", "|&", "|", "(", ")")
OPENERS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "for"))
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
# In the value of a word: any text at all; any text without a slash; one character; one of a set; and what brace expansion works on.
ANY, STAR, ONE, SET, OPEN, COMMA, CLOSE = "\x00\x01\x02\x03\x04\x05\x06"
ACTIVE = {"*": STAR, "?": ONE, "[": SET, "{": OPEN, ",": COMMA, "}": CLOSE}
NO_CONTROLS = dict.fromkeys(range(7), 0x7F)


class Scanner:
    """One pass over the text of a command line; `unread` is where it gave up, or None."""
    __slots__ = ("text", "size", "items", "level", "unread", "arithmetic", "dos")

    def __init__(self, text, dos=False, level=0, items=0):
        self.text, self.size, self.dos, self.level, self.items = text, len(text), dos, level, items
        self.unread, self.arithmetic = None, True

    def tokens(self, i, closer=None):
        """The tokens from i up to the closer, or to the end: (tokens, position behind)."""
        text, out, bodies, cases, first = self.text, [], [], [], True
        while i < self.size:
            c = text[i]
            self.items += 1
            if self.items > MOST_ITEMS or self.level > MOST_LEVELS:
                self.unread = i if self.unread is None else self.unread
                return out, self.size
            if c in BLANKS or c == "\r" and text[i + 1:i + 2] in ("\n", ""):
                i += 1
            elif c == "\n":
                out.append(("op", "\n", None))
                i, first = self.heredocs(i + 1, bodies, out), True
            elif c == "\\" and (text.startswith("\n", i + 1) or text.startswith("\r\n", i + 1)):
                i = text.index("\n", i) + 1
            elif c == "#":
                end = text.find("\n", i)
                out.append(("comment", text[i:end if end >= 0 else self.size], None))
                i = end if end >= 0 else self.size
            elif c == ")" and closer == ")" and not (cases and cases[-1] == "pattern"):
                return out, i + 1
            elif c not in BREAKS or c in "<>" and text[i + 1:i + 2] == "(":
                start, (parts, i) = i, self.word(i)
                raw = text[start:i]
                if raw.isdigit() and text[i:i + 1] in ("<", ">"):
                    i = self.redirect(start, i, out, bodies)
                    continue
                out.append(("word", raw, parts))
                self.follow_case(raw, first, cases)
                first = raw in OPENERS and first
            elif c in "<>" or c == "&" and text[i + 1:i + 2] == ">":
                i = self.redirect(i, i + (c == "&"), out, bodies)
            elif c == "(" and first and text[i + 1:i + 2] == "(" and self.arithmetic:
                start, (inner, i) = i, self.arithmetics(i + 2)
                if i > start:
                    out.append(("word", text[start:i], (("any", inner),)))
                else:
                    i = start
            else:
                op = next((o for o in OPERATORS if text.startswith(o, i)), c)
                if cases and cases[-1] == "pattern" and op == ")":
                    cases[-1] = "body"
                elif cases and cases[-1] == "body" and op in (";;", ";&", ";;&"):
                    cases[-1] = "pattern"
                out.append(("op", op, None))
                i, first = i + len(op), True
        return out, i

    @staticmethod
    def follow_case(raw, first, cases):
        """Inside `case`, a closing parenthesis may end a pattern instead of a subshell."""
        if raw == "case" and first:
            cases.append("word")
        elif cases and raw == "in" and cases[-1] == "word":
            cases[-1] = "pattern"
        elif cases and raw == "esac":
            cases.pop()

    def redirect(self, start, i, out, bodies):
        """A redirect whose < or > stands at i (its descriptor or & from start on)."""
        op = next(o for o in REDIRECTS if self.text.startswith(o, i))
        if start < i and self.text[start] == "&" and self.text.startswith(">>", i):
            op = ">>"
        out.append(("redirect", self.text[start:i] + op, None))
        i += len(op)
        if op in ("<<", "<<-"):
            while self.text[i:i + 1] in ("\t", " "):
                i += 1
            begin, (parts, i) = i, self.word(i)
            out.append(("word", self.text[begin:i], parts))
            bodies.append(("".join(p[1] for p in parts if p[0] in ("text", "bare")), any(p[0] == "text" for p in parts), op == "<<-"))
        return i

    def heredocs(self, i, bodies, out):
        """The bodies of the heredocs begun on the line that ended before i."""
        for tag, quoted, dashed in bodies:
            begin, end = i, self.size
            while i < self.size:
                stop = self.text.find("\n", i)
                stop = self.size if stop < 0 else stop
                line = self.text[i:stop].rstrip("\r")
                if (line.lstrip("\t") if dashed else line) == tag:
                    end = i
                    i = stop + 1
                    break
                i = stop + 1
            inner = Scanner(self.text[begin:end], self.dos, self.level + 1, self.items)
            out.append(("heredoc", self.text[begin:end], None if quoted else inner.quoted(0, None)[0]))
            self.items = inner.items
        bodies.clear()
        return min(i, self.size)

    def word(self, i):
        """The parts of the word at i: (parts, position behind it)."""
        text, parts, start = self.text, [], i
        while i < self.size:
            c = text[i]
            if c in BREAKS:
                if c == "(" and i > start and text[i - 1] in "=?*+@!":
                    i = self.parenthesis(i, parts)
                    continue
                if c in "<>" and text[i + 1:i + 2] == "(":
                    i = self.inside(i + 2, parts, "run")
                    continue
                break
            self.items += 1
            if self.items > MOST_ITEMS:
                self.unread = i if self.unread is None else self.unread
                return parts, self.size
            if c == "'":
                end = text.find("'", i + 1)
                end = self.size if end < 0 else end
                parts.append(("text", text[i + 1:end]))
                i = end + 1
            elif c == '"':
                inner, i = self.quoted(i + 1, '"')
                parts.extend(inner or (("text", ""),))
            elif c == "\\":
                i = self.escape(i, parts)
            elif c in "$`":
                i = self.dollar(i, parts, False)
            elif c in ACTIVE or c == "~":
                parts.append(("bare", c))
                i += 1
            else:
                end = i + 1
                while end < self.size and text[end] not in WORD_STOPS:
                    end += 1
                parts.append(("bare", text[i:end]))
                i = end
        return parts, min(i, self.size)

    def escape(self, i, parts):
        """A backslash outside quotes: it quotes the next character, joins lines, or is a separator of a Windows path."""
        follow = self.text[i + 1:i + 2]
        if follow == "\n" or self.text.startswith("\r\n", i + 1):
            return i + 2 + (follow == "\r")
        if self.dos or parts and parts[0][0] == "bare" and parts[0][1][1:2] == ":":
            parts.append(("text", "\\"))
            return i + 1
        parts.append(("text", follow))
        return i + 2

    def parenthesis(self, i, parts):
        """A ( inside a word: an array behind =, else an extended glob."""
        return self.inside(i + 1, parts, "array" if self.text[i - 1] == "=" else "any")

    def inside(self, i, parts, kind):
        """Tokens up to the ) that closes what began before i, as one part."""
        self.level += 1
        inner, i = self.tokens(i, ")")
        self.level -= 1
        parts.append((kind, inner))
        return i

    def quoted(self, i, closer):
        """Text in which only \\ $ ` mean something: inside double quotes, or (closer None) a heredoc's body. (parts, position behind)."""
        text, parts = self.text, []
        while i < self.size:
            c = text[i]
            self.items += 1
            if c == closer:
                return parts, i + 1
            if self.items > MOST_ITEMS:
                self.unread = i if self.unread is None else self.unread
                return parts, self.size
            if c == "\\" and not self.dos:
                follow = text[i + 1:i + 2]
                if follow != "\n":
                    parts.append(("text", follow if follow in QUOTED_STOPS else "\\" + follow))
                i += 2
            elif c in "$`":
                i = self.dollar(i, parts, True)
            else:
                end = i + 1
                while end < self.size and text[end] not in QUOTED_STOPS:
                    end += 1
                parts.append(("text", text[i:end]))
                i = end
        return parts, min(i, self.size)

    def dollar(self, i, parts, quoted):
        """An expansion at i ($… or a backtick): its part is added, the position behind it returned."""
        text = self.text
        follow = text[i + 1:i + 2]
        if self.level > MOST_LEVELS:
            self.unread = i if self.unread is None else self.unread
            return self.size
        if text[i] == "`":
            return self.backtick(i + 1, parts)
        if follow == "'" and not quoted:
            return self.ansi(i + 2, parts)
        if follow == '"' and not quoted:
            return i + 1
        if follow == "(":
            if text.startswith("((", i + 1) and self.arithmetic:
                inner, end = self.arithmetics(i + 3)
                if end:
                    parts.append(("any", inner))
                    return end
            return self.inside(i + 2, parts, "run")
        if follow == "{":
            return self.parameter(i + 2, parts, quoted)
        end = i + 1
        while end < self.size and (text[end] == "_" or text[end].isalnum()) and text[end].isascii():
            end += 1
        if end == i + 1:
            end += follow != "" and follow in "?$#@*!-"
        elif text[i + 1:end].lower() == "env" and text[end:end + 1] == ":":  # PowerShell
            i = end
            end += 1
            while end < self.size and (text[end].isalnum() or text[end] == "_"):
                end += 1
        parts.append(("var", text[i + 1:end], None, quoted) if end > i + 1 else ("text", "$"))
        return end

    def backtick(self, i, parts):
        end = i
        while True:
            end = self.text.find("`", end)
            if end < 0 or self.text[end - 1] != "\\" or end == i:
                break
            end += 1
        end = self.size if end < 0 else end
        inner = Scanner(self.text[i:end].replace("\\`", "`"), self.dos, self.level + 8, self.items)
        parts.append(("run", inner.tokens(0)[0]))
        self.items = inner.items
        return end + 1

    def ansi(self, i, parts):
        """$'…': the escapes of C, decoded."""
        text, out = self.text, []
        while i < self.size and text[i] != "'":
            if text[i] != "\\":
                end = i
                while end < self.size and text[end] not in "\\'":
                    end += 1
                out.append(text[i:end])
                i = end
                continue
            c = text[i + 1:i + 2]
            base, most = (16, {"x": 2, "u": 4, "U": 8}[c]) if c in ("x", "u", "U") else (8, 3)
            begin = i + 2 if base == 16 else i + 1
            end = begin
            while end < begin + most and text[end:end + 1] in (tuple("0123456789abcdefABCDEF") if base == 16 else tuple("01234567")):
                end += 1
            if end > begin:
                code = int(text[begin:end], base)
                out.append(chr(code) if code < 0x110000 else "?")
                i = end
            else:
                out.append(ESCAPES.get(c, c))
                i += 2
        parts.append(("text", "".join(out)))
        return i + 1

    def parameter(self, i, parts, quoted):
        """${…} whose name begins at i: ("var", name, default) for ${A}, ${A-x} and ${A:-x}, else only what runs inside it."""
        text, end = self.text, i
        while end < self.size and (text[end] == "_" or text[end].isalnum()):
            end += 1
        name, begin = text[i:end], end
        if text[end:end + 1] == "}":
            parts.append(("var", name, None, quoted))
            return end + 1
        inner, i, self.level = [], end, self.level + 1
        while i < self.size and text[i] != "}" and self.level <= MOST_LEVELS and self.items <= MOST_ITEMS:
            i = self.parameter_piece(i, inner)
        self.level -= 1
        operator = text[begin:begin + 2] if text[begin:begin + 1] == ":" else text[begin:begin + 1]
        if name and operator in (":-", "-", ":=", "="):
            inner[0] = ("text", inner[0][1][len(operator):])
            parts.append(("var", name, inner, quoted))
        else:
            parts.append(("any", [("word", "", inner)]))
        return i + 1

    def parameter_piece(self, i, inner):
        c = self.text[i]
        self.items += 1
        if c == "'":
            end = self.text.find("'", i + 1)
            end = self.size if end < 0 else end
            inner.append(("text", self.text[i + 1:end]))
            return end + 1
        if c == '"':
            more, i = self.quoted(i + 1, '"')
            inner.extend(more)
            return i
        if c in "$`":
            return self.dollar(i, inner, True)
        end = i + 1 + (c == "\\")
        while end < self.size and self.text[end] not in "}'\"$`\\":
            end += 1
        inner.append(("text", self.text[i:end]))
        return end

    def arithmetics(self, i):
        """The inside of (( )), from i: (tokens that run inside it, position behind the closing )) ), or (None, 0) if it is not closed so."""
        parts, depth, text = [], 0, self.text
        self.level += 1
        while i < self.size and self.items <= MOST_ITEMS and self.level < 8:
            c = text[i]
            self.items += 1
            if c in "$`":
                i = self.dollar(i, parts, True)
                continue
            if c == ")":
                if depth == 0:
                    if text.startswith("))", i):
                        self.level -= 1
                        return [("word", "", parts)], i + 2
                    break
                depth -= 1
            depth += c == "("
            i += 1
        self.level -= 1
        self.arithmetic = False  # tried once: no second look, so that the time stays linear
        return None, 0


def scan(text, dos=False):
    """(tokens, unread text) of a command line as bash reads it; with dos, backslashes are separators as in cmd and PowerShell."""
    scanner = Scanner(text, dos)
    tokens = scanner.tokens(0)[0]
    return tokens, text[scanner.unread:] if scanner.unread is not None else ""


class Command:
    """One simple command, as far as static reading shows it.

    words: its argv, list of str, wrappers (env, timeout, sudo, xargs, rtk, sh -c …) taken off; ANY, STAR, ONE, SET in a word stand for what
    only the shell knows at run time. outer: the words of the wrappers. redirects: [(operator with descriptor, target word)].
    assigned: {name: value}. stdin: texts of its heredocs and here-strings. cwd: the folder it runs in, or None. times: how often it runs, inf
    in a while or until loop, a loop count in a for loop. bound: seconds that a `timeout` leaves it, or None. background: ended by &.
    source: the Command whose output is piped into it, or None. piped: its own output goes into a pipe. rtk: run through rtk.
    shell: "cmd" or "powershell" where it is one of theirs, else "sh". loop: one object for all commands of the innermost loop, None outside."""
    __slots__ = ("words", "outer", "redirects", "assigned", "stdin", "cwd", "times", "bound", "background", "source", "piped", "rtk", "shell", "loop")

    def __init__(self, words, scope):
        self.words, self.outer, self.redirects, self.assigned, self.stdin = words, [], [], {}, []
        self.cwd, self.times, self.bound, self.shell, self.loop = scope.cwd, scope.times, scope.bound, scope.shell, scope.loop
        self.background, self.source, self.piped, self.rtk = False, None, False, False

    @property
    def name(self):
        return program(self.words[0]) if self.words else ""

    def inner(self, words):
        """The command that this one wraps."""
        made = Command.__new__(Command)
        for slot in Command.__slots__:
            setattr(made, slot, getattr(self, slot))
        made.outer, made.words = self.outer + self.words[:len(self.words) - len(words)], words
        return made


def program(word):
    """The bare name of a program: no folder, no .exe, lower case."""
    name = word.replace("\\", "/").rsplit("/", 1)[-1].lower()
    return name[:-4] if name.endswith((".exe", ".cmd", ".bat")) else name


class Scope:
    """What the shell knows where a command stands: folder, variables (name -> list of values), loop count, time bound."""
    __slots__ = ("cwd", "home", "variables", "times", "bound", "shell", "loop", "stack")

    def __init__(self, cwd, home, variables, times=1, bound=None, shell="sh", loop=None, stack=()):
        self.cwd, self.home, self.variables, self.times, self.bound = cwd, home, variables, times, bound
        self.shell, self.loop, self.stack = shell, loop, list(stack)

    def copy(self, **change):
        made = Scope(self.cwd, self.home, dict(self.variables), self.times, self.bound, self.shell, self.loop, self.stack)
        for name, value in change.items():
            setattr(made, name, value)
        return made

    def values(self, name):
        if name == "PWD":
            return [self.cwd or ANY]
        return [self.home] if name == "HOME" or self.shell != "sh" and name.upper() == "USERPROFILE" else self.variables.get(name, [ANY])


def expand(parts, scope):
    """The words that a word becomes: quotes off, ~, variables, braces and simple substitutions filled in; at most MOST_WORDS."""
    if len(parts) == 1:
        kind, text = parts[0][:2]
        if kind == "text" or kind == "bare" and text not in ACTIVE and text != "~":
            return [text]
        if kind == "var" and not parts[0][3]:
            return [w for value in part_values(parts[0], scope) for w in (value.split() or [""])][:MOST_WORDS]
    words = [""]
    for n, part in enumerate(parts):
        if part[0] == "bare" and part[1] == "~" and (n == 0 or words[0].endswith(("=", ":"))):
            after = parts[n + 1][1] if n + 1 < len(parts) and parts[n + 1][0] == "bare" else "/"
            values = [scope.home if after[:1] == "/" else "~"]
        else:
            values = part_values(part, scope)
        words = [w + v for w in words for v in values][:MOST_WORDS] if values != [""] else words
    if any(OPEN in w or COMMA in w or CLOSE in w for w in words):
        words = [x for w in words for x in braces(w, [MOST_WORDS])]
    return [w if SET not in w or "]" in w else w.replace(SET, "[") for w in words[:MOST_WORDS]]


def part_values(part, scope):
    kind, text = part[:2]
    if kind == "text":
        return [text]
    if kind == "bare":
        return [ACTIVE.get(text, text)]
    if kind == "var":
        values = scope.values(text)
        return expand(part[2], scope) if part[2] is not None and values == [ANY] else values
    if kind == "run" and text and all(t[0] == "word" for t in text):
        words = [w for t in text for w in expand(t[2], scope)]
        if words[0] == "pwd":
            return [scope.cwd or ANY]
        if words[0] in ("echo", "printf") and len(words) == 2:
            return words[1:]
        if words[0] == "seq" and words[-1].isdigit():
            first = int(words[1]) if len(words) > 2 and words[1].isdigit() else 1
            return [" ".join(str(i) for i in range(first, min(int(words[-1]), first + MOST_WORDS * 10) + 1))]
    if kind == "array":
        return [" ".join(w for t in text if t[0] == "word" for w in expand(t[2], scope))]
    return [ANY]


def braces(word, left):
    """Brace expansion: a{b,c}d and a{1..3}d; left holds how many words may still be made."""
    begin = word.find(OPEN)
    while begin >= 0:
        depth, commas, end = 0, [begin], begin
        for end in range(begin, len(word)):
            depth += (word[end] == OPEN) - (word[end] == CLOSE)
            if depth == 1 and word[end] == COMMA:
                commas.append(end)
            if depth == 0:
                break
        first, dots, last = word[begin + 1:end].partition("..")
        if depth == 0 and len(commas) > 1:
            pieces = [word[a + 1:b] for a, b in zip(commas, commas[1:] + [end])]
        elif depth == 0 and dots and first.isdigit() and last.isdigit():
            pieces = [str(i) for i in range(int(first), min(int(last), int(first) + 1000) + 1)]
        else:
            begin = word.find(OPEN, begin + 1) if depth == 0 else -1
            continue
        out = []
        for piece in pieces:
            if left[0] > 0:
                left[0] -= 1
                out += braces(word[:begin] + piece + word[end + 1:], left)
        return out or [word]
    return [word.replace(OPEN, "{").replace(COMMA, ",").replace(CLOSE, "}")]


def read_commands(text, cwd, home, variables, shell="sh"):
    """(commands, unread text): every simple command of a command line in the order in which it stands, also those inside substitutions,
    sh -c, eval, find -exec and heredocs that a shell reads. variables: dict name -> str. Source of the grammar: the bash manual."""
    reader = Reader()
    scope = Scope(cwd, home, {k: [v] for k, v in variables.items()}, shell=shell)
    reader.text(text.translate(NO_CONTROLS), scope)
    return reader.commands, reader.unread


class Reader:
    """Walks tokens and gathers commands. `unread` is text that was too long or too deep to be read."""
    __slots__ = ("commands", "unread", "level")

    def __init__(self):
        self.commands, self.unread, self.level = [], "", 0

    def text(self, text, scope):
        tokens, unread = scan(text, scope.shell != "sh")
        self.unread += unread
        self.walk(tokens, scope)

    def walk(self, tokens, scope):
        """Reads one list of tokens. The command in the making is (words, redirects, heredocs to come)."""
        if self.level > 12 or len(self.commands) > MOST_ITEMS:
            self.unread += " ".join(t[1] for t in tokens)
            return
        self.level += 1
        state = Walk(scope, len(self.commands))
        for n, (kind, raw, parts) in enumerate(tokens):
            if kind == "word":
                self.word(state, raw, parts)
            elif kind == "redirect":
                state.redirect = raw
            elif kind == "heredoc":
                self.heredoc(state, raw, parts)
            elif kind == "op":
                self.operator(state, raw, tokens[n + 1][1] if n + 1 < len(tokens) else "")
        self.finish(state)
        self.level -= 1

    def word(self, state, raw, parts):
        scope = state.scope
        self.substitutions(parts, scope)
        if state.redirect is not None:
            operator, state.redirect = state.redirect, None
            values = expand(parts, scope)
            state.redirects.append((operator, values[0] if values else ""))
            return
        if state.pattern:
            return self.pop(state) if raw == "esac" else None
        if not state.words and raw in KEYWORDS and not state.assigned:
            return self.keyword(state, raw)
        if state.expects:
            return self.expected(state, raw, parts)
        if not state.words:
            name, equals, _ = raw.partition("=")
            if equals and name.rstrip("+").replace("_", "a").isalnum() and not name[0].isdigit():
                return self.assign(state, name.rstrip("+"), parts)
        state.words += expand(parts, scope)[:MOST_WORDS]

    def assign(self, state, name, parts):
        values = [v.partition("=")[2] for v in expand(parts, state.scope)]
        state.assigned[name] = values[0] if len(values) == 1 else ANY

    def substitutions(self, parts, scope):
        """Commands inside a word run as well, each in a shell of its own."""
        for part in parts:
            if part[0] == "run":
                self.walk(part[1], scope.copy(stack=[]))
            elif part[0] in ("any", "array"):
                for token in part[1] or ():
                    self.substitutions(token[2] or (), scope)
            elif part[0] == "var" and part[2]:
                self.substitutions(part[2], scope)

    def heredoc(self, state, raw, parts):
        """A heredoc's body: what runs inside it; it is the input of the newest command that waits for one."""
        if parts:
            self.substitutions(parts, state.scope)
        for command in self.commands[state.begin:]:
            waiting = sum(1 for op, _ in command.redirects if op.endswith(("<<", "<<-")))
            if len(command.stdin) < waiting:
                command.stdin.append(raw)
                for reader in [command] + [c for c in self.commands[state.begin:] if c.source is command]:
                    if reader.name in SHELLS and all(w[:1] == "-" for w in reader.words[1:]):
                        self.script(raw, state.scope.copy(cwd=reader.cwd, bound=reader.bound, stack=[]))
                return

    def keyword(self, state, raw):
        """A reserved word at the place of a command."""
        scope = state.scope
        if raw in ("while", "until", "for", "select", "if", "case", "{"):
            self.push(state)
        if raw in ("while", "until"):
            scope.times, scope.loop = float("inf"), object()
        elif raw in ("for", "select", "case", "function"):
            state.expects = raw
        elif raw in ("done", "fi", "esac", "}"):
            self.pop(state)

    def push(self, state):
        scope = state.scope
        scope.stack.append((scope.times, scope.loop, state.start, state.pattern, None))
        state.start, state.pattern = len(self.commands), False

    def pop(self, state, cwd=False):
        scope = state.scope
        if scope.stack:
            scope.times, scope.loop, state.start, state.pattern, kept = scope.stack.pop()
            if kept:
                scope.cwd, scope.variables = kept
        state.pattern = False

    def expected(self, state, raw, parts):
        """The head of a for loop, a case or a function."""
        scope = state.scope
        if state.expects == "function":
            state.expects = ""
        elif state.expects == "case":
            state.pattern, state.expects = raw == "in", "" if raw == "in" else "case"
        elif state.expects in ("for", "select"):
            scope.loop, state.expects, state.values = object(), "in", None
            state.variable = raw
            if raw.startswith("(("):
                limit = "".join(c if c.isdigit() else " " for c in raw.partition("<")[2].partition(";")[0]).split()
                scope.times = scope.times * int(limit[0][:9]) if limit else scope.times
        elif raw == "in" and state.values is None:
            state.values = []
        elif raw in ("do", "{"):
            self.loop_head(state)
        elif state.values is not None:
            state.values += [w for v in expand(parts, scope) for w in (v.split() if any(p[0] == "run" for p in parts) else [v])]

    def loop_head(self, state):
        if state.values is not None and not state.variable.startswith("(("):
            state.scope.variables[state.variable] = state.values[:MOST_WORDS] or [ANY]
            state.scope.times *= max(len(state.values), 1)
        state.expects, state.values = "", None

    def operator(self, state, op, following):
        if state.pattern:
            state.pattern = op != ")"
            return
        if state.expects == "in" and op in (";", "\n"):
            return self.loop_head(state)
        if op == "(" and len(state.words) == 1 and following == ")":  # the head of a function
            state.words, state.head = [], True
            return
        if op == ")" and state.head:
            state.head = False
            return
        self.finish(state, "|" if op in ("|", "|&") else "")
        if op == "(":
            self.push(state)
            scope = state.scope
            scope.stack[-1] = scope.stack[-1][:4] + ((scope.cwd, dict(scope.variables)),)
        elif op == ")":
            self.pop(state)
        elif op in (";;", ";&", ";;&"):
            state.pattern = True
        elif op == "&":
            for command in self.commands[state.start:]:
                command.background = True
        if op in (";", "&", "\n"):
            state.start = len(self.commands)

    def finish(self, state, pipe=""):
        """Ends the command in the making: it is kept, unwrapped, and what it does to the scope is done."""
        words, scope, source = state.words, state.scope, state.source
        if words or state.redirects or state.assigned:
            command = Command(words, scope)
            command.redirects, command.assigned, command.source, command.piped = state.redirects, state.assigned, source, bool(pipe)
            command.stdin = [t for op, t in state.redirects if op.endswith("<<<")]
            if not words:
                scope.variables.update({k: [v] for k, v in state.assigned.items()})
            elif not pipe and source is None:
                change_scope(words, scope)
            self.keep(command, scope)
            state.source = command if pipe else None
        elif not pipe:
            state.source = None
        state.words, state.redirects, state.assigned, state.redirect = [], [], {}, None

    def keep(self, command, scope):
        """Adds a command, or what it wraps, and what it hands to another shell."""
        for _ in range(16):
            inner = unwrap(command)
            if inner is None:
                break
            command = inner
        script = shell_script(command)
        if script is None and command.name in SHELLS and command.source and command.source.name in ("echo", "printf"):
            script = " ".join(command.source.words[1:]), "sh"
        if script is not None:
            command = command.inner(command.words[:1])
        self.commands.append(command)
        if script is not None:
            self.script(script[0], scope.copy(cwd=command.cwd, bound=command.bound, shell=script[1], stack=[]))
        for words in found_commands(command.words):
            self.keep(command.inner(words), scope)

    def script(self, text, scope):
        if self.level > 8:
            self.unread += text
        else:
            self.text(text, scope)


class Walk:
    """Where the reader of one list of tokens stands: the command in the making, and what the next word may be."""
    __slots__ = ("scope", "begin", "start", "words", "redirects", "assigned", "redirect", "source", "expects", "values", "variable", "pattern",
                 "head")

    def __init__(self, scope, begin):
        self.scope, self.begin, self.start, self.words, self.redirects, self.assigned = scope, begin, begin, [], [], {}
        self.redirect, self.source, self.expects, self.values, self.variable, self.pattern, self.head = None, None, "", None, "", False, False


KEYWORDS = frozenset("if then elif else fi while until do done for select case esac function { } ! time coproc".split())
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh"))
# Programs that run another one: name -> (options that take a value as the next word, words before the command).
WRAPPERS = {
    "nohup": ("", 0), "setsid": ("", 0), "nice": ("-n --adjustment", 0), "ionice": ("-c -n -p", 0), "stdbuf": ("-i -o -e", 0), "chronic": ("", 0),
    "timeout": ("-k -s --kill-after --signal", 1), "gtimeout": ("-k -s --kill-after --signal", 1), "time": ("-f -o", 0), "caffeinate": ("-t -w", 0),
    "sudo": ("-u -g -h -p -C -D -R -T -U -r -t --user --group", 0), "doas": ("-u -C", 0), "command": ("", 0), "builtin": ("", 0), "exec": ("-a", 0),
    "env": ("-u -C --unset --chdir", 0), "xargs": ("-I -i -n -P -d -L -a -s -E --max-args --max-procs --delimiter --arg-file", 0),
    "parallel": ("-j -N -n -a -S --jobs --arg-file --colsep", 0), "unbuffer": ("", 0),
    "winpty": ("", 0), "busybox": ("", 0), "watch": ("-n --interval", 0),
    "flock": ("-w -E --timeout", 1), "uv run": ("--with --python -p --extra --group --project --directory --env-file", 0), "poetry run": ("", 0),
    "pipenv run": ("", 0), "hatch run": ("", 0), "pdm run": ("", 0), "rye run": ("", 0), "npx": ("-p --package -c --call", 0), "bunx": ("", 0),
    "npm exec": ("-p --package", 0), "pnpm exec": ("", 0), "pnpm dlx": ("", 0), "yarn exec": ("", 0), "conda run": ("-n -p --name --prefix", 0),
    "direnv exec": ("", 1), "bundle exec": ("", 0), "rtk": ("", 0), "rtk run": ("", 0), "rtk bypass": ("", 0), "rtk proxy": ("", 0),
    "xvfb-run": ("", 0),
    "coproc": ("", 0), "git": ("-C -c --git-dir --work-tree", 0), "make": ("-C", 0),
}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text):
    """A duration as sleep and timeout read it ("5", "0.5", "2m") in seconds, or None."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        return float(number) * unit if number.replace(".", "", 1).isdigit() else None
    except ValueError:
        return None


def unwrap(command):
    """The command inside env, timeout, sudo, xargs, rtk and kin, or None if this is no wrapper. git and make give only their -C folder."""
    words = command.words
    name = command.name
    key = " ".join((name, words[1])) if len(words) > 1 and " ".join((name, words[1])) in WRAPPERS else name
    if key not in WRAPPERS or len(words) < 2:
        return None
    valued, positions = WRAPPERS[key]
    i, cwd, split = 1 + (" " in key), command.cwd, None
    while i < len(words) and (words[i][:1] == "-" and words[i] != "-" or key == "env" and "=" in words[i]):
        word = words[i]
        i += 1
        if word == "--":
            break
        if word in ("-C", "--chdir", "--directory") and i < len(words):
            cwd = absolute(words[i], cwd)
        if key == "env" and (word.startswith("--split-string=") or word[:2] == "-S"):
            split = word.partition("=")[2] if word[1] == "-" else word[2:] or "".join(words[i:i + 1])
            i += word == "-S"
        i += word in valued.split()
    if key in ("git", "make"):
        if cwd is command.cwd:
            return None
        inner = command.inner(words[i:])
        inner.words, inner.outer = [words[0]] + words[i:], command.outer + words[1:i]
        inner.cwd = cwd
        return inner
    if split is not None:
        words = words[:i] + [w for t in scan(split)[0] if t[0] == "word" for w in [unquoted(t[2])]] + words[i:]
    inner = command.inner(words[i + positions:])
    inner.cwd, inner.rtk = cwd, command.rtk or name == "rtk"
    if name in ("timeout", "gtimeout"):
        limit = seconds(words[i]) if i < len(words) else None
        inner.bound = min(limit, inner.bound) if inner.bound is not None and limit else limit or inner.bound
    if name in ("xargs", "parallel"):
        inner.words = [w for w in inner.words if w not in (":::", "::::", "{}")] + [ANY]
    return inner if inner.words else None


def unquoted(parts):
    return "".join(p[1] if p[0] in ("text", "bare") else ANY for p in parts)


def shell_script(command):
    """(text, shell) that sh -c, eval, cmd /c or powershell -Command would run, or None."""
    words, name = command.words, command.name
    if name in ("eval", "trap"):
        return " ".join(words[1:] if name == "eval" else words[1:2]), command.shell
    if name in SHELLS or name == "su":
        for i, word in enumerate(words[1:], 1):
            if word[:1] == "-" and word[:2] != "--" and word.endswith("c") and i + 1 < len(words):
                return words[i + 1], "sh"
            if word[:1] not in ("-", "+") and name != "su":
                return None
        return (command.stdin[0], "sh") if command.stdin else None
    if name in ("cmd", "powershell", "pwsh"):
        for i, word in enumerate(words[1:], 1):
            if word.lower() in (("/c", "/k", "//c") if name == "cmd" else ("-command", "-c", "/c")):
                return " ".join(words[i + 1:]), "cmd" if name == "cmd" else "powershell"
        if name != "cmd" and len(words) > 1 and words[-1][:1] != "-":
            return words[-1], "powershell"
    return None


def found_commands(words):
    """The argvs that `find … -exec` runs, {} standing for anything below the folders it walks."""
    if program(words[0] if words else "") not in ("find", "fd", "fdfind"):
        return []
    roots = []
    for word in words[1:]:
        if word[:1] in ("-", "(", "!"):
            break
        roots.append(word + "/" + ANY)
    out = []
    for i, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            end = next((j for j in range(i + 1, len(words)) if words[j] in (";", "+")), len(words))
            out.append([w for word in words[i + 1:end] for w in ((roots or [ANY]) if "{}" in word else [word])])
    return [argv for argv in out if argv]


def change_scope(words, scope):
    """What cd, pushd, popd, export and kin do to the commands behind them."""
    name, arguments = words[0], [w for w in words[1:] if w[:1] != "-" or w == "-"]
    if name in ("cd", "pushd", "chdir", "set-location", "sl", "Set-Location"):
        target = arguments[-1] if arguments else scope.home if name == "cd" else ""
        if name == "pushd":
            scope.variables.setdefault("\0pushd", []).append(scope.cwd)
        scope.cwd = None if target == "-" or not target else absolute(target, scope.cwd)
    elif name == "popd":
        folders = scope.variables.get("\0pushd") or [None]
        scope.cwd = folders.pop()
    elif name in ("export", "readonly", "local", "declare", "typeset"):
        for word in arguments:
            key, equals, value = word.partition("=")
            if equals:
                scope.variables[key] = [value]
    elif name == "unset":
        for word in arguments:
            scope.variables[word] = [""]


# ---- Paths and files ------------------------------------------------------------------------------------------------------------------


def absolute(path, cwd):
    """A path as written, against a folder: an absolute path without . and .. in it, or None where it needs the folder and cwd is None."""
    path = path.replace("\\", "/") if path[1:2] == ":" or path[:2] == "\\\\" else path
    if path[:1] != "/" and path[1:3] != ":/":
        if cwd is None:
            return None
        path = cwd + "/" + path
    out = []
    for name in path.split("/"):
        if name == "..":
            del out[-1:]
        elif name not in ("", "."):
            out.append(name)
    return ("" if path[1:2] == ":" else "/") + "/".join(out)


def tool_path(value, cwd, home):
    """The absolute path that a tool's argument names, or "" where it names none: file:// and percent escapes, ~, $HOME, backslashes,
    a trailing slash and .. are undone (host.md §4)."""
    if not isinstance(value, str) or not value or "\0" in value:
        return ""
    if value[:5].lower() == "file:":
        value = unescape(value[5:].split("?")[0].split("#")[0])
        value = "/" + value.lstrip("/") if value[:2] != "//" or value[2:3] == "/" else "/" + value[2:].partition("/")[2]
        value = value[1:] if value[2:3] == ":" else value
    for name in ("~", "$HOME", "${HOME}", "%USERPROFILE%", "$env:USERPROFILE"):
        if value.startswith(name) and value[len(name):len(name) + 1] in ("", "/", "\\"):
            value = home + value[len(name):]
    if "\\" in value and "/" not in value:
        value = value.replace("\\", "/")
    return absolute(value, cwd) or ""


def unescape(text):
    """Percent escapes decoded; bytes that are not UTF-8 stay as surrogates, as in a path."""
    pieces = text.split("%")
    out = [pieces[0].encode("utf-8", "surrogateescape")]
    for piece in pieces[1:]:
        try:
            out.append(bytes((int(piece[:2], 16),)) + piece[2:].encode("utf-8", "surrogateescape"))
        except ValueError:
            out.append(b"%" + piece.encode("utf-8", "surrogateescape"))
    return b"".join(out).decode("utf-8", "surrogateescape")


def real_path(path, links):
    """An absolute path with its symlinks followed as far as it exists; a loop ends where it is. links: dict, remembers what was looked up."""
    done, rest, hops = "", path.split("/")[::-1] if len(path) < 4096 else [], 0
    while rest:
        name = rest.pop()
        if name == "..":
            done = done.rpartition("/")[0]
        elif name not in ("", "."):
            here = done + "/" + name if done or path[:1] == "/" else name
            if here not in links:
                try:
                    links[here] = posix.readlink(here)
                except (OSError, ValueError):
                    links[here] = ""
            target = links[here] if hops < 40 else ""
            hops += target != ""
            done = here if not target else "" if target[:1] == "/" else done
            rest += target.split("/")[::-1]
    return done or path


class World:
    """What a decision may depend on beside the call: the environment (dict of str), the home folder, the time (epoch seconds), the
    configuration (dict); links: symlinks looked up so far. Tests make their own."""
    __slots__ = ("env", "home", "now", "config", "state", "links")

    def __init__(self, env, home, now, config):
        self.env, self.home, self.now, self.config, self.state, self.links = env, home, now, config, state_folder(home), {}


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
    return file_kind(path, posix.lstat) == "symlink"


KINDS = {0o100000: "file", 0o040000: "folder", 0o120000: "symlink"}


def file_kind(path, look=posix.stat):
    """"file", "folder", "symlink" (with posix.lstat), "other" for a FIFO or a device, "" where nothing is there or may be seen."""
    try:
        return KINDS.get(look(path).st_mode & 0o170000, "other")
    except (OSError, ValueError):
        return ""


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
