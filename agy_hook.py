#!/usr/bin/env python3
"""agy_hook.py: a PreToolUse hook for Google Antigravity. One JSON event comes in on stdin, one JSON decision goes out on stdout.

Copy this file into ~/.gemini/antigravity and name it in ~/.gemini/config/hooks.json (README.md); it needs nothing beside it.

    bytes -> Call -> guards -> Decision -> bytes

Sections, from top to bottom: what both scripts share; records and JSON; reading shell commands; paths and files; the guards' functions; the
ledger and the state of tasks; the guard table; rewriting through RTK and the check of its answers; the edge and main.

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
        values += tuple(named.get(n) for n in names[len(values):])
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
    except SystemError:  # 3.10 and 3.11: the scanner finds no json.decoder to take its exception from
        raise ValueError("malformed JSON") from None
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
# transcript and artifacts str ("" where the host named none), step int or None, commands: a list of Command (run_command only, else []),
# unread: what of the command line could not be read.
Call = record("Call", "tool args conversation cwd workspaces transcript artifacts step commands unread")
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
MOST_ITEMS, MOST_LEVELS, MOST_WORDS, MOST_VALUE = 3000, 24, 64, 8192
BLANKS, BREAKS = " \t", frozenset(" \t\r\n;&|<>()")
WORD_STOPS = BREAKS | frozenset("'\"\\$`{},*?[~")
QUOTED_STOPS = frozenset("\"\\$`")
PARAMETER_STOPS = QUOTED_STOPS | frozenset("'}")
REDIRECTS = ("<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">")
OPERATORS = (";;&", ";;", ";&", ";", "&&", "&", "||", "|&", "|", "(", ")")
OPENERS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "{", "!", "time", "for"))
HEX_DIGITS, CODE_SIZES = "0123456789abcdefABCDEF", {"x": 2, "u": 4, "U": 8}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
# In the value of a word: any text at all; any text without a slash; one character; one of a set; and, on the way, what brace expansion works on
# and where an unquoted variable's value is split.
ANY, STAR, ONE, SET, OPEN, COMMA, CLOSE, SPLIT = "\x00\x01\x02\x03\x04\x05\x06\x07"
ACTIVE = {"*": STAR, "?": ONE, "[": SET, "{": OPEN, ",": COMMA, "}": CLOSE}
GLOB_MARKS = str.maketrans("*?[", STAR + ONE + SET)  # for globs that a program reads, not the shell
NO_CONTROLS = dict.fromkeys(range(8), 0x7F)


class Scanner:
    """One pass over the text of a command line; `unread` is where it gave up, or None."""
    __slots__ = ("text", "size", "items", "level", "unread", "arithmetic", "dos")

    def __init__(self, text, dos=False, level=0, items=0):
        self.text, self.size, self.dos, self.level, self.items = text, len(text), dos, level, items
        self.unread, self.arithmetic = None, True

    def tokens(self, i, closer=None):
        """The tokens from i up to the closer, or to the end: (tokens, position behind)."""
        text, out, bodies, cases, first, opened = self.text, [], [], [], True, 0
        while i < self.size:
            c = text[i]
            self.items += 1
            if self.items > MOST_ITEMS or self.level > MOST_LEVELS:
                return out, self.give_up(i)
            behind = self.skip(i, out) if c != "(" or not first else self.arithmetic_command(i, out)
            if behind > i:
                i = behind
            elif c == "\n":
                out.append(("op", "\n", None))
                i, first = self.heredocs(i + 1, bodies, out), True
            elif c == ")" and closer == ")" and not opened and not (cases and cases[-1] == "pattern"):
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
            else:
                op = next((o for o in OPERATORS if text.startswith(o, i)), c)
                out.append(("op", op, None))
                opened += self.follow_operator(op, cases)
                i, first = i + len(op), True
        return out, i

    def give_up(self, i):
        """What lies from i on stays unread: the place to go on from is the end."""
        self.unread = i if self.unread is None else self.unread
        return self.size

    def find(self, text, i):
        end = self.text.find(text, i)
        return end if end >= 0 else self.size

    def until(self, i, stops):
        """Where the first of these characters stands, from i on."""
        while i < self.size and self.text[i] not in stops:
            i += 1
        return i

    def name(self, i):
        """Behind the name of a variable at i."""
        while i < self.size and self.text[i].isascii() and (self.text[i].isalnum() or self.text[i] == "_"):
            i += 1
        return i

    def skip(self, i, out):
        """Behind the blank, joined line or comment at i; i itself where there is none."""
        text = self.text
        if text[i] == "#":
            end = self.find("\n", i)
            out.append(("comment", text[i:end], None))
            return end
        if text[i] in BLANKS or text[i] == "\r" and text[i + 1:i + 2] in ("\n", ""):
            return i + 1
        if text[i] == "\\" and (text.startswith("\n", i + 1) or text.startswith("\r\n", i + 1)):
            return text.index("\n", i) + 1
        return i

    def arithmetic_command(self, i, out):
        """Behind the (( )) at i, which is kept as one word; i itself where these are two subshells."""
        parts = []
        end = self.arithmetics(i, parts)
        if end:
            out.append(("word", self.text[i:end], parts))
        return end or i

    @staticmethod
    def follow_operator(op, cases):
        """By how many the open subshells change. In `case`, a closing parenthesis ends a pattern, and ;; begins one."""
        inside = cases[-1] if cases else ""
        if inside == "pattern" and op == ")":
            cases[-1] = "body"
        elif inside == "body" and op in (";;", ";&", ";;&"):
            cases[-1] = "pattern"
        elif inside != "pattern":
            return {"(": 1, ")": -1}.get(op, 0)
        return 0

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
                start, stop = i, self.find("\n", i)
                line, i = self.text[start:stop].rstrip("\r"), stop + 1
                if (line.lstrip("\t") if dashed else line) == tag:
                    end = start
                    break
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
                    i = self.inside(i + 1, parts, "array" if text[i - 1] == "=" else "any")  # else an extended glob
                    continue
                if c in "<>" and text[i + 1:i + 2] == "(":
                    i = self.inside(i + 2, parts, "run")
                    continue
                break
            self.items += 1
            if self.items > MOST_ITEMS:
                return parts, self.give_up(i)
            if c == "'":
                i = self.single(i + 1, parts)
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
                end = self.until(i + 1, WORD_STOPS)
                parts.append(("bare", text[i:end]))
                i = end
        return parts, min(i, self.size)

    def single(self, i, parts):
        """'…' whose text begins at i."""
        end = self.find("'", i)
        parts.append(("text", self.text[i:end]))
        return end + 1

    def escape(self, i, parts):
        """A backslash outside quotes: it quotes the next character, joins lines, or is a separator of a Windows path."""
        follow = self.text[i + 1:i + 2]
        if follow == "\n" or self.text.startswith("\r\n", i + 1):
            return i + 2 + (follow == "\r")
        first = parts[0][1][:13].upper() if parts and parts[0][0] in ("bare", "var") else ""
        if self.dos or first[1:2] == ":" or first in ("USERPROFILE", "%USERPROFILE%"):
            parts.append(("text", "\\"))
            return i + 1
        parts.append(("text", follow))
        return i + 2

    def inside(self, i, parts, kind):
        """Tokens up to the ) that closes what began before i, as one part."""
        self.level += 1
        inner, i = self.tokens(i, ")")
        self.level -= 1
        parts.append((kind, inner))
        return i

    def quoted(self, i, closer):
        """Text in which only \\ $ ` mean something: inside double quotes, or (closer None) a heredoc's body; in ${…} quotes do as well.
        (parts, position behind)."""
        text, parts, stops = self.text, [], PARAMETER_STOPS if closer == "}" else QUOTED_STOPS
        while i < self.size:
            c = text[i]
            self.items += 1
            if c == closer:
                return parts, i + 1
            if self.items > MOST_ITEMS:
                return parts, self.give_up(i)
            if c == "\\" and not self.dos:
                follow = text[i + 1:i + 2]
                if follow != "\n":
                    parts.append(("text", follow if follow in QUOTED_STOPS else "\\" + follow))
                i += 2
            elif c in "$`":
                i = self.dollar(i, parts, True)
            elif c == "'" and closer == "}":
                i = self.single(i + 1, parts)
            elif c == '"' and closer == "}":
                more, i = self.quoted(i + 1, '"')
                parts += more
            else:
                end = self.until(i + 1, stops)
                parts.append(("text", text[i:end]))
                i = end
        return parts, min(i, self.size)

    def dollar(self, i, parts, quoted):
        """An expansion at i ($… or a backtick): its part is added, the position behind it returned."""
        text = self.text
        follow = text[i + 1:i + 2]
        if self.level > MOST_LEVELS:
            return self.give_up(i)
        if text[i] == "`":
            return self.backtick(i + 1, parts)
        if follow == "'" and not quoted:
            return self.ansi(i + 2, parts)
        if follow == '"' and not quoted:
            return i + 1
        if follow == "(":
            return self.arithmetics(i + 1, parts) or self.inside(i + 2, parts, "run")
        if follow == "{":
            return self.parameter(i + 2, parts, quoted)
        begin, end = i + 1, self.name(i + 1)
        if end == begin:
            end += follow != "" and follow in "?$#@*!-"
        elif text[begin:end].lower() == "env" and text[end:end + 1] == ":":  # PowerShell
            begin, end = end + 1, self.name(end + 1)
        parts.append(("var", text[begin:end], None, quoted) if end > i + 1 else ("text", "$"))
        return end

    def backtick(self, i, parts):
        end = self.find("`", i)
        while i < end < self.size and self.text[end - 1] == "\\":
            end = self.find("`", end + 1)
        inner = Scanner(self.text[i:end].replace("\\`", "`"), self.dos, self.level + 8, self.items)
        parts.append(("run", inner.tokens(0)[0]))
        self.items = inner.items
        return end + 1

    def ansi(self, i, parts):
        """$'…': the escapes of C, decoded."""
        text, out = self.text, []
        while True:
            end = self.until(i, "\\'")
            out.append(text[i:end])
            if text[end:end + 1] != "\\":
                parts.append(("text", "".join(out)))
                return end + 1
            c = text[end + 1:end + 2]
            base, digits, most = (16, HEX_DIGITS, CODE_SIZES[c]) if c in CODE_SIZES else (8, "01234567", 3)
            begin = i = end + 1 + (base == 16)
            while i < min(begin + most, self.size) and text[i] in digits:
                i += 1
            if i > begin:
                code = int(text[begin:i], base)
                out.append(chr(code) if code < 0x110000 else "?")
            else:
                out.append(ESCAPES.get(c, c))
                i = end + 2

    def parameter(self, i, parts, quoted):
        """${…} whose name begins at i: ("var", name, default) for ${A}, ${A-x} and ${A:-x}, else only what runs inside it."""
        text, end = self.text, self.name(i)
        name = text[i:end]
        if text[end:end + 1] == "}":
            parts.append(("var", name, None, quoted))
            return end + 1
        self.level += 1
        inner, i = self.quoted(end, "}")
        self.level -= 1
        operator = text[end:end + 2] if text[end:end + 1] == ":" else text[end:end + 1]
        if name and operator in (":-", "-", ":=", "="):
            inner[:1] = [("text", inner[0][1][len(operator):])] if inner else []
            parts.append(("var", name, inner, quoted))
        else:
            parts.append(("any", [("word", "", inner)]))
        return i

    def arithmetics(self, i, parts):
        """Behind the (( )) at i, what runs inside it added as one part; 0 where there is none, or where it is not closed so."""
        inner, depth, text, i = [], 0, self.text, i + 2
        if not self.arithmetic or not text.startswith("((", i - 2):
            return 0
        self.level += 1
        while i < self.size and self.items <= MOST_ITEMS and self.level < 8:
            c = text[i]
            self.items += 1
            if c in "$`":
                i = self.dollar(i, inner, True)
                continue
            if c == ")" and depth == 0:
                break
            depth += (c == "(") - (c == ")")
            i += 1
        closed = self.level < 8 and self.items <= MOST_ITEMS and text.startswith("))", i)
        self.level -= 1
        if not closed:
            self.arithmetic = False  # tried once: no second look, so that the time stays linear
            return 0
        parts.append(("any", [("word", "", inner)]))
        return i + 2


def scan(text, dos=False, items=0):
    """(tokens, unread text, tokens in all) of a command line as bash reads it; with dos, backslashes are separators as in cmd and PowerShell.
    items: the tokens that were read before it."""
    scanner = Scanner(text, dos, items=items)
    tokens = scanner.tokens(0)[0]
    return tokens, text[scanner.unread:] if scanner.unread is not None else "", scanner.items


class Command:
    """One simple command, as far as static reading shows it.

    words: its argv, list of str, wrappers (env, timeout, sudo, xargs, rtk, sh -c …) taken off; ANY, STAR, ONE, SET in a word stand for what
    only the shell knows at run time. outer: the words of the wrappers. redirects: [(operator with descriptor, target word)].
    assigned: {name: value}. stdin: texts of its heredocs and here-strings. cwd: the folder it runs in, or None. times: how often it runs, inf
    in a while or until loop, a loop count in a for loop. bound: seconds that a `timeout` leaves it, or None. background: ended by &.
    source, sink: the Commands before and behind it in a pipeline, or None. rtk: run through rtk.
    shell: "cmd" or "powershell" where it is one of theirs, else "sh". loop: one object for all commands of the innermost loop, None outside."""
    __slots__ = ("words", "outer", "redirects", "assigned", "stdin", "cwd", "times", "bound", "background", "source", "sink", "rtk", "shell",
                 "loop", "known")

    def __init__(self, words, scope):
        self.words, self.outer, self.redirects, self.assigned, self.stdin = words, [], [], {}, []
        self.cwd, self.times, self.bound, self.shell, self.loop = scope.cwd, scope.times, scope.bound, scope.shell, scope.loop
        self.background, self.source, self.sink, self.rtk, self.known = False, None, None, False, ("", "")

    @property
    def name(self):
        first = self.words[0] if self.words else ""
        if first is not self.known[0]:
            self.known = first, program(first)
        return self.known[1]

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
    __slots__ = ("cwd", "home", "variables", "times", "bound", "shell", "loop")

    def __init__(self, cwd, home, variables, times=1, bound=None, shell="sh", loop=None):
        self.cwd, self.home, self.variables, self.times, self.bound, self.shell, self.loop = cwd, home, variables, times, bound, shell, loop

    def inner(self, command=None, shell=None):
        """The scope of a shell that is started here, or for a Command: it knows the variables, and its own do not come back."""
        cwd, bound = (command.cwd, command.bound) if command else (self.cwd, self.bound)
        return Scope(cwd, self.home, dict(self.variables), self.times, bound, shell or self.shell, self.loop)

    def values(self, name):
        if name == "PWD":
            return [self.cwd or ANY]
        return [self.home] if name == "HOME" or name.upper() == "USERPROFILE" else self.variables.get(name, [ANY])


def expand(parts, scope):
    """The words that a word becomes: quotes off, ~, variables, braces and simple substitutions filled in; at most MOST_WORDS."""
    if len(parts) == 1:
        kind, text = parts[0][:2]
        if kind == "text" or kind == "bare" and text not in ACTIVE and text != "~":
            return [text]
    words = [""]
    for n, part in enumerate(parts):
        if part[0] == "bare" and part[1] == "~" and (n == 0 or words[0].endswith(("=", ":"))):
            values = [scope.home if n + 1 == len(parts) or parts[n + 1][0] == "bare" and parts[n + 1][1][:1] in "/:" else "~"]
        else:
            values = part_values(part, scope) if part[0] != "var" or len(words[0]) < MOST_VALUE else [ANY]
        words = [w + v for w in words for v in values[:MOST_WORDS // len(words) or 1]] if values != [""] else words
    if any(OPEN in w or COMMA in w or CLOSE in w for w in words):
        words = [x for w in words for x in braces(w, [MOST_WORDS])]
    if any(SPLIT in w for w in words):
        words = [x for w in words for x in w.split(SPLIT)]
    return [w if SET not in w or "]" in w else w.replace(SET, "[") for w in words[:MOST_WORDS]]


def part_values(part, scope):
    kind, text = part[:2]
    if kind == "text":
        return [text]
    if kind == "bare":
        return [ACTIVE.get(text, text)]
    if kind == "var":
        values = scope.values(text)
        values = expand(part[2], scope) if part[2] is not None and values in ([ANY], [""]) else values
        return values if part[3] else [SPLIT.join(value.split()) for value in values]
    if kind == "run" and text and all(t[0] == "word" for t in text):
        words = [w for t in text for w in expand(t[2], scope)]
        if words[0] == "pwd":
            return [scope.cwd or ANY]
        if words[0] in ("echo", "printf") and len(words) == 2:
            return words[1:]
        if words[0] == "seq" and words[-1].isdecimal():
            first = int(words[1][:9]) if len(words) > 2 and words[1].isdecimal() else 1
            return [" ".join(map(str, range(first, int(words[-1][:9]) + 1)[:MOST_WORDS * 10]))]
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
        else:
            pieces = counted(first, last) if depth == 0 and dots else []
        if not pieces:
            begin = word.find(OPEN, begin + 1) if depth == 0 else -1
            continue
        out = []
        for piece in pieces:
            if left[0] > 0:
                left[0] -= 1
                out += braces(word[:begin] + piece + word[end + 1:], left)
        if out:
            return out
        break
    return [word.replace(OPEN, "{").replace(COMMA, ",").replace(CLOSE, "}")]


def counted(first, last):
    """The words of {first..last}, at most 1,000: numbers, with leading zeros where one has them, or letters. None of another kind."""
    if first.isdecimal() and last.isdecimal():
        begin, end, padded = int(first[:9]), int(last[:9]), any(text[0] == "0" and len(text) > 1 for text in (first, last))
        width = min(max(len(first), len(last)), 9) if padded else 0
        words = lambda numbers: [str(i).zfill(width) for i in numbers]
    elif len(first) == len(last) == 1 and first.isalpha() and last.isalpha():
        begin, end, words = ord(first), ord(last), lambda numbers: [chr(i) for i in numbers]
    else:
        return []
    step = 1 if begin <= end else -1
    return words(range(begin, end + step, step)[:1000])


def read_commands(text, cwd, home, variables, shell="sh"):
    """(commands, unread text): every simple command of a command line in the order in which it stands, also those inside substitutions,
    sh -c, eval, find -exec and heredocs that a shell reads. variables: dict name -> str. Source of the grammar: the bash manual."""
    reader = Reader()
    scope = Scope(cwd, home, {k: [v] for k, v in variables.items()}, shell=shell)
    reader.text(text.translate(NO_CONTROLS), scope)
    return reader.commands, reader.unread


class Reader:
    """Walks tokens and gathers commands. `unread` is text that was too long or too deep to be read."""
    __slots__ = ("commands", "unread", "level", "items")

    def __init__(self):
        self.commands, self.unread, self.level, self.items = [], "", 0, 0

    def text(self, text, scope):
        if self.level > 8:
            self.unread += text
            return
        tokens, unread, self.items = scan(text, scope.shell != "sh", self.items)
        self.unread += unread
        self.walk(tokens, scope)

    def walk(self, tokens, scope):
        """Reads one list of tokens; a Walk holds the command in the making."""
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
        if raw == "-p" and not state.words:  # of the keyword time
            return None
        if not state.words and raw in KEYWORDS and not state.assigned:
            return self.keyword(state, raw)
        if state.expects:
            return self.expected(state, raw, parts)
        if not state.words:
            name, equals, _ = raw.partition("=")
            if equals and name.rstrip("+").replace("_", "a").isalnum() and not name[0].isdigit():
                values = [v.partition("=")[2] for v in expand(parts, scope)]
                state.assigned[name.rstrip("+")] = values[0] if len(values) == 1 and len(values[0]) < MOST_VALUE else ANY
                return None
        state.words += expand(parts, scope)[:MOST_WORDS]

    def substitutions(self, parts, scope):
        """Commands inside a word run as well, each in a shell of its own."""
        for part in parts:
            if part[0] == "run":
                self.walk(part[1], scope.inner())
            elif part[0] in ("any", "array"):
                for token in part[1] or ():
                    self.substitutions(token[2] or (), scope)
            elif part[0] == "var" and part[2]:
                self.substitutions(part[2], scope)

    def heredoc(self, state, raw, parts):
        """A heredoc's body: what runs inside it; it is the input of the newest command that waits for one."""
        if parts:
            self.substitutions(parts, state.scope)
        while state.begin < len(self.commands):
            command = self.commands[state.begin]
            waiting = sum(1 for op, _ in command.redirects if op.endswith(("<<", "<<-")))
            if len(command.stdin) < waiting:
                command.stdin.append(raw)
                for reader in (command, command.sink):
                    if reader and reader.name in SHELLS and not script_file(reader.words):
                        self.text(raw, state.scope.inner(reader))
                return
            state.begin += 1

    def keyword(self, state, raw):
        """A reserved word at the place of a command."""
        scope = state.scope
        if raw in ("while", "until", "for", "select", "if", "case", "{") or raw == "do" and scope.shell == "powershell":
            self.push(state)
        if raw in ("while", "until") or scope.shell == "powershell" and raw in ("do", "for"):
            scope.times, scope.loop = float("inf"), object()
        elif raw in ("for", "select", "case", "function"):
            state.expects = raw
        elif raw in ("done", "fi", "esac", "}"):
            self.pop(state)

    def push(self, state, cwd_and_variables=None):
        """A loop, a branch or a group begins; a subshell gives back the folder and the variables at its end."""
        state.stack.append((state.scope.times, state.scope.loop, state.start, cwd_and_variables))
        state.start, state.pattern = len(self.commands), False

    def pop(self, state):
        scope = state.scope
        if state.stack:
            scope.times, scope.loop, state.start, kept = state.stack.pop()
            scope.cwd, scope.variables = kept or (scope.cwd, scope.variables)
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
                numbers = [int(n[:9]) for n in "".join(c if c.isdigit() and c.isascii() else " " for c in raw).split()]
                scope.times *= max(numbers) if numbers else float("inf") if raw.replace(" ", "") == "((;;))" else 1
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
            self.push(state, (state.scope.cwd, dict(state.scope.variables)))
        elif op == ")":
            self.pop(state)
        elif op in (";;", ";&", ";;&"):
            state.pattern = True
        elif op == "&" and state.scope.shell == "sh":
            for command in self.commands[state.start:]:
                command.background = True
        if op in (";", "&", "\n"):
            state.start = len(self.commands)

    def finish(self, state, pipe=""):
        """Ends the command in the making: it is kept, unwrapped, and what it does to the scope is done."""
        words, scope, source = state.words, state.scope, state.source
        if words or state.redirects or state.assigned:
            command = Command(words, scope)
            command.redirects, command.assigned, command.source = state.redirects, state.assigned, source
            command.stdin = [t for op, t in state.redirects if op.endswith("<<<")]
            if not words:
                scope.variables.update({k: [v] for k, v in state.assigned.items()})
            elif not pipe and source is None:
                change_scope(words, scope)
            kept = self.keep(command, scope)
            state.source = kept if pipe else None
        elif not pipe:
            state.source = None
        state.words, state.redirects, state.assigned, state.redirect = [], [], {}, None

    def keep(self, command, scope):
        """Adds a command, or what it wraps, and what it hands to another shell; returns what was added."""
        for _ in range(16):
            inner = unwrap(command)
            if inner is None:
                break
            command = inner
        if command.words[-1:] == [ANY] and "xargs" in command.outer[:1] and command.source and command.source.name in ("echo", "printf"):
            command.words[-1:] = command.source.words[1:9]
        script = shell_script(command)
        if script is None and command.name in SHELLS and command.source and command.source.name in ("echo", "printf"):
            script = " ".join(command.source.words[1:]), "sh"
        if script is not None:
            command = command.inner(command.words[:1])
        self.commands.append(command)
        if command.source is not None:
            command.source.sink = command
        if script is not None:
            self.text(script[0], scope.inner(command, script[1]))
        for words in found_commands(command.words) if "-exec" not in command.outer else ():
            self.keep(command.inner(words), scope)
        return command


class Walk:
    """Where the reader of one list of tokens stands: the command in the making, and what the next word may be."""
    redirect, source, expects, values, variable, pattern, head = None, None, "", None, "", False, False

    def __init__(self, scope, begin):
        self.scope, self.begin, self.start, self.words, self.redirects, self.assigned, self.stack = scope, begin, begin, [], [], {}, []


KEYWORDS = frozenset("if then elif else fi while until do done for select case esac function { } ! time coproc".split())
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh"))
# Programs that run another one: names, options that take a value as the next word, words before the command.
WRAPPERS = {name: (valued, before) for names, valued, before in (
    ("nohup, setsid, chronic, command, builtin, unbuffer, winpty, busybox, xvfb-run, coproc, bunx, poetry run, pipenv run, hatch run, pdm run, rye run,"
     " pnpm exec, pnpm dlx, yarn exec, bundle exec, rtk, rtk run, rtk bypass, rtk proxy", "", 0),
    ("timeout, gtimeout", "-k -s --kill-after --signal", 1), ("flock", "-w -E --timeout", 1), ("direnv exec", "", 1), ("nice", "-n --adjustment", 0),
    ("ionice", "-c -n -p", 0), ("stdbuf", "-i -o -e", 0), ("time", "-f -o", 0), ("caffeinate", "-t -w", 0), ("exec", "-a", 0), ("doas", "-u -C", 0),
    ("watch", "-n --interval", 0), ("sudo", "-u -g -h -p -C -D -R -T -U -r -t --user --group", 0), ("env", "-u -C --unset --chdir", 0),
    ("xargs", "-I -i -n -P -d -L -a -s -E --max-args --max-procs --delimiter --arg-file", 0),
    ("parallel", "-j -N -n -a -S --jobs --arg-file --colsep", 0), ("conda run", "-n -p --name --prefix", 0), ("uvx", "--from --with --python -p", 0),
    ("uv run", "--with --python -p --extra --group --project --directory --env-file", 0), ("npx", "-p --package -c --call", 0),
    ("npm exec", "-p --package", 0), ("git", "-C -c --git-dir --work-tree", 0), ("make", "-C", 0),
) for name in names.split(", ")}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text):
    """A duration as sleep and timeout read it ("5", "0.5", "2m") in seconds, or None."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        value = float(number) * unit
    except ValueError:
        return None
    return value if value == value else None


def unwrap(command):
    """The command inside env, timeout, sudo, xargs, rtk and kin, or None if this is no wrapper. git and make give only their -C folder."""
    words = command.words
    name = command.name
    key = " ".join((name, words[1])) if len(words) > 1 and " ".join((name, words[1])) in WRAPPERS else name
    if key not in WRAPPERS or len(words) < 2:
        return None
    valued, positions = WRAPPERS[key]
    i, cwd, split = 1 + (" " in key), command.cwd, None
    while i < len(words) and (words[i][:1] == "-" and words[i] != "-" or key in ("env", "sudo") and "=" in words[i]):
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
        mark = next((w[2:] or words[n + 1] for n, w in enumerate(words[:-1]) if w[:2] == "-I"), "{}")
        filled = [w.replace(mark, ANY) for w in inner.words if w not in (":::", "::::")]
        inner.words = filled + [ANY] * (mark not in "".join(inner.words))
    return inner if inner.words else None


def unquoted(parts):
    return "".join(p[1] if p[0] in ("text", "bare") else ANY for p in parts)


def script_file(words):
    """Where the first word of a shell's argv stands that is neither an option nor the value of -o or +O; 0: it reads its input."""
    return next((i for i in range(1, len(words)) if words[i][:1] not in ("-", "+")
                 and not (words[i - 1][:1] in ("-", "+") and words[i - 1][-1:] in ("o", "O"))), 0)


POWERSHELL_VALUED = ("-executionpolicy", "-ep", "-ex", "-version")


def shell_script(command):
    """(text, shell) that sh -c, eval, cmd /c or powershell -Command would run, or None."""
    words, name = command.words, command.name
    if command.outer and (len(words) == 1 and " " in words[0] or len(words) == 2 and words[0] == "-c"):  # watch "a b", flock lock -c "a b"
        return words[-1], "sh"
    if name in ("eval", "trap"):
        return " ".join(words[1:] if name == "eval" else words[1:2]), command.shell
    if name in SHELLS or name in ("su", "script"):
        file = script_file(words) if name in SHELLS else 0
        for i, word in enumerate(words[1:file or None], 1):
            if word[:1] == "-" and word[:2] != "--" and word.endswith("c") and i + 1 < len(words):
                return words[i + 1], "sh"
        return (command.stdin[0], "sh") if command.stdin and not file else None
    if name in ("cmd", "powershell", "pwsh"):
        for i, word in enumerate(words[1:], 1):
            if word.lower() in (("/c", "/k", "//c") if name == "cmd" else ("-command", "-c", "/c")):
                return " ".join(words[i + 1:]), "cmd" if name == "cmd" else "powershell"
        low = [word.lower() for word in words]
        first = next((i for i in range(1, len(low)) if low[i][:1] not in ("", "-") and low[i - 1] not in POWERSHELL_VALUED), 0)
        if name != "cmd" and first and "-file" not in low and "-f" not in low:
            return " ".join(words[first:]), "powershell"
    return None


def found_commands(words):
    """The argvs that `find … -exec` runs, {} standing for anything below the folders it walks."""
    if program(words[0] if words else "") not in ("find", "fd", "fdfind"):
        return []
    roots, out, argv = found_paths(words), [], None
    for word in words:
        if argv is None and word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            argv = []
            out.append(argv)
        elif word in (";", "+"):
            argv = None
        elif argv is not None:
            argv += [word.replace("{}", root) for root in roots] if "{}" in word and len(argv) < MOST_WORDS else [word]
    return [argv for argv in out[:MOST_WORDS] if argv]


FILTERS = frozenset("! -not -prune -maxdepth -newer -mtime -mmin -ctime -size -empty -user -regex".split())


def found_paths(words):
    """What `find` comes upon, as patterns: anything below its roots, of the names that it looks for. ANY stands twice where names alone decide:
    what is there can be looked up then."""
    roots, names, below = find_roots(words)[:MOST_WORDS] or ["."], [], "/" + (ANY if FILTERS.intersection(words) else ANY + ANY) + "/"
    for i, word in enumerate(words[:-2] if "-prune" in words else words[:-1]):
        if word in ("-name", "-iname", "-path", "-ipath", "-wholename") and words[i - 1] not in ("!", "-not") and "-prune" not in words[i + 2:i + 3]:
            pattern = words[i + 1].translate(GLOB_MARKS)
            names.append(pattern.replace(STAR, ANY) if "path" in word or "/" in pattern else pattern)
    if not names:
        return [root + "/" + ANY for root in roots]
    return [name if "/" in name else root + below + name for root in roots for name in names][:MOST_WORDS]


def find_roots(words):
    """The folders that `find` is told to walk: the words before its first test."""
    begin = next((i for i, w in enumerate(words) if i and w not in ("-L", "-P", "-H")), len(words))
    return words[begin:next((i for i, w in enumerate(words) if i >= begin and w[:1] in ("-", "(", "!")), len(words))]


def change_scope(words, scope):
    """What cd, pushd, popd, export and kin do to the commands behind them."""
    words = words[1:] if words[0] in ("command", "builtin") and len(words) > 1 else words
    name, arguments = words[0], [w for w in words[1:] if w[:1] != "-" or w == "-"]
    if name in ("cd", "pushd", "chdir", "set-location", "sl", "Set-Location"):
        target = arguments[-1] if arguments else scope.home if name == "cd" else ""
        if name == "pushd":
            scope.variables["\0pushd"] = [*scope.variables.get("\0pushd", ()), scope.cwd]
        scope.cwd = None if target == "-" or not target else absolute(target, scope.cwd)
    elif name == "popd":
        *kept, scope.cwd = scope.variables.get("\0pushd") or [None]
        scope.variables["\0pushd"] = kept
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
    if not isinstance(value, str) or not value or "\0" in value or len(value) > 1 << 16:
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
    """An absolute path with its symlinks followed as far as it exists; a loop ends where it is. links: dict, remembers what was looked up
    (path -> target or "") and what came out (("real", path) -> path)."""
    folder, _, name = path.rpartition("/")
    known = links.get(("real", path)) or name and name not in (".", "..") and links.get(("real", folder))
    if known and ("real", path) in links or len(path) >= 4096:
        return known or path
    done, rest, hops = known or "", [name] if known else path.split("/")[::-1], 0
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
    links["real", path] = done or path
    return done or path


def spellings(path, links):
    """A path as written and, where that is another one, with its symlinks followed."""
    return list(dict.fromkeys((path, real_path(path, links))))


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
        data = change(read_file(path) if file_kind(path, posix.lstat) != "symlink" else None)
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


def quote_shell(word):
    """A word quoted for a POSIX shell, unless it needs no quotes."""
    return word if word and all(c.isascii() and (c.isalnum() or c in "/._-+:@,") for c in word) else "'" + word.replace("'", "'\\''") + "'"


KINDS = {0o100000: "file", 0o040000: "folder", 0o120000: "symlink"}


def file_kind(path, look=posix.stat):
    """"file", "folder", "symlink" (with posix.lstat), "other" for a FIFO or a device, "" where nothing is there or may be seen."""
    try:
        return KINDS.get(look(path).st_mode & 0o170000, "other")
    except (OSError, ValueError):
        return ""


# ---- Guards ---------------------------------------------------------------------------------------------------------------------------
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


# guard: internal-state
# What is protected: .system_generated/ of every conversation below the brain folder of the three data folders, and of the folder that the
# payload's transcriptPath lies in. Paths are compared as text and with their symlinks followed, in lower case.
INSIDE = ("logs", "tasks", "steps", "messages")
INTERNAL_NAMES = ("transcript.jsonl", "transcript_full.jsonl", ".system_generated", "00000001.jsonl", "task-1.log", "logs", "chunks", "tasks",
                  "steps")  # from far above, only the first three are what a search is about
PATH_ARGUMENTS = ("AbsolutePath", "DirectoryPath", "SearchPath", "SearchDirectory", "TargetFile", "TargetDirectories", "File", "Url", "Uri",
                  "path", "paths", "absolute_path", "file_path", "include")
OWN_TOOLS = ("read_transcript", "query_transcript", "check_context_health", "subagent_brief", "get_installation_status", "sync_installation")
INTERPRETERS = frozenset("python node nodejs deno bun perl php lua awk gawk mawk osascript sqlite duckdb ruby".split())  # without a version
# Programs that go below the folders they are given: name -> the options that make them do so, "" for always. See descends().
WALKERS = {name: options for options, names in (
    ("", "find rg ag ack fd fdfind tree zip 7z rsync mv select-string robocopy xcopy ditto ln"), ("rR", "rm grep egrep fgrep zgrep"), ("rRa", "cp"),
    ("cru", "tar"), ("R", "ls"), ("r", "scp diff"), ("a", "du"), ("TR", "eza exa"), ("-recurse", "get-childitem gci dir copy-item remove-item"),
) for name in names.split()}
SEARCHERS = ("rg", "ag", "ack", "fd", "fdfind")  # recursive without being told; they leave hidden folders out
RECURSIVE = ("--recursive", "--dereference-recursive", "--archive", "--all", "--tree", "--recurse", "/s", "--create", "--append", "--update")
COPIERS = frozenset(("cp", "mv", "rsync", "scp", "ln", "ditto", "copy-item", "robocopy", "xcopy"))
LISTERS = frozenset("ls dir find tree rg ag ack fd du eza exa get-childitem gci".split())  # without a folder, where they run
VIEWERS = frozenset("head tail sed grep rg egrep fgrep wc read stat test [ file smart awk jq cut ls log".split())
READERS = frozenset("cat nl sort uniq tac rev tr fold strings bat less more python python3 tail head".split())  # bounded by what they are piped into


class Area:
    """Where the protected folders lie. holders: the brain folders, as text and with symlinks followed, in lower case.
    guessed: the folder that commands run in, where the call does not name it."""
    __slots__ = ("holders", "guessed", "home", "links", "known")

    def __init__(self, call, world):
        self.home, self.links, self.guessed = world.home, world.links, call.cwd if not as_text(call.args.get("Cwd")) else ""
        brains = [folder + "/brain" for folder in data_folders(world.home)]
        found = call.transcript.lower().rfind("/.system_generated/")
        own = tool_path(call.transcript[:found], None, world.home) if found >= 0 else ""
        if own and own.rpartition("/")[0] not in brains:
            brains.append(own.rpartition("/")[0])
        self.holders, self.known = {p.lower() for brain in brains for p in spellings(brain, world.links)}, {"": None}

    def rest(self, path):
        """What follows .system_generated in a protected path (parts, the conversation's first), or None. Symlinks are followed."""
        if path not in self.known:
            self.known[path] = self.find_rest(path)
        return self.known[path]

    def find_rest(self, path):
        for form in spellings(path, self.links) + ([unescape(path)] if "%" in path else []):
            lower = form.lower().replace("\\", "/")
            at = lower.find("/.system_generated")
            if at < 0 or lower[at + 18:at + 19] not in ("", "/"):
                continue
            conversation = lower[:at]
            if conversation.rpartition("/")[0] in self.holders:
                return [form[:at]] + [p for p in form[at + 18:].replace("\\", "/").split("/") if p]
        return None

    def above(self, path):
        """How many folders lie between a path and a .system_generated below it (1: a conversation's folder), or 0 where none can."""
        for form in spellings(path, self.links) if path else ():
            parts = form.lower().replace("\\", "/").rstrip("/").split("/")
            depths = [len(wanted) + 2 - len(parts) for wanted in [holder.split("/") for holder in self.holders]
                      if len(parts) < len(wanted) + 2 and all(a == b or ANY not in a and is_pattern(a) and glob_fits(a, b) for a, b in zip(parts, wanted))]
            if depths:
                return min(depths)
        return 0

    def near(self, path):
        """Whether a folder above is one of the host's own: ~/.gemini or further in. Above that, a walk is about other things."""
        return any("/.gemini" in form.replace("\\", "/") or form in self.holders or form.rpartition("/")[0] in self.holders
                   for form in map(str.lower, spellings(path, self.links)))


def glob_fits(pattern, text):
    """Whether a word with ANY, STAR, ONE, SET matches a name. A leading dot wants a dot, as in the shell."""
    if text[:1] == "." and pattern[:1] in (STAR, ONE, SET):
        return False
    star, mark, i, j = -1, 0, 0, 0
    while j < len(text):
        c = pattern[i:i + 1]
        if c in (STAR, ANY) and c:
            star, mark, i = i, j, i + 1
        elif c == SET:
            i, j = pattern.find("]", i + 2) + 1 or len(pattern), j + 1
        elif c == ONE or c == text[j]:
            i, j = i + 1, j + 1
        elif star >= 0:
            mark += 1
            i, j = star + 1, mark
        else:
            return False
    return not pattern[i:].strip(STAR + ANY)


def is_pattern(word):
    return ANY in word or STAR in word or ONE in word or SET in word


def pattern_rest(word, area):
    """Like Area.rest for an absolute word with patterns in it: the parts behind .system_generated where it can match one, else None."""
    parts = [p for p in word.lower().split("/") if p]
    for holder in area.holders:
        wanted = [p for p in holder.split("/") if p]
        head, tail = parts[:len(wanted)], parts[len(wanted):]
        if len(tail) < 2 or not all(glob_fits(a, b) for a, b in zip(head, wanted)):
            continue
        sure = tail[1].strip(STAR + ANY) or len(tail) > 2 and tail[2] in INSIDE
        if sure and glob_fits(tail[1], ".system_generated"):
            return ["/" + "/".join(wanted + tail[:1])] + tail[2:]
    return None


def spelled_path(word):
    """The part of a word that may be a path: behind --option=, name=, @, host: and file://."""
    lower = word.lower()
    at = lower.find("file:")
    if at >= 0 and "/" in word[at:at + 6]:
        return word[at:]
    for mark in ("=/", "=~", "@/", "@~", ":/", ":~"):
        at = word.find(mark)
        if at >= 0 and word[at:at + 3] != "://" and word[1:2] != ":":
            return word[at + 1:]
    if word[:1] == "-" and "/" in word:
        return word[word.index("/"):]
    return word


def word_rest(word, cwd, area):
    """Area.rest of a word of a command, however it spells the path; None where it is none."""
    if not word or len(word) > 8192:
        return None
    path = spelled_path(word)
    if path[:5].lower() != "file:" and is_pattern(path):
        at = path.lower().find(".system_generated")
        whole = absolute(path, cwd)
        if whole and not whole.startswith("/" + ANY) and (ANY not in whole[:whole.lower().find("/.system")] or at < 0):
            return pattern_rest(whole, area)
        inside = at >= 0 and path[at - 1:at] in ("/", "\\", ANY) and " " not in path
        return [path[:at - 1]] + [p for p in path[at + 17:].replace("\\", "/").split("/") if p] if inside else None
    if (cwd is None or cwd == area.guessed) and (path.lower() + "/").startswith((".system_generated/", "./.system_generated/")):
        return [""] + path.partition("ystem_generated")[2].split("/")[1:]
    return area.rest(tool_path(path, cwd, area.home))


def mentioned(text, cwd, area):
    """(Area.rest, path) of a path inside a program's text (python -c, a heredoc for an interpreter, text that could not be read), or (None, "")."""
    lower, at = text.lower(), -1
    for _ in range(MOST_WORDS * 4):
        at = lower.find(".system_generated", at + 1)
        if at < 0:
            break
        before, after = text[max(0, at - 1024):at], text[at:at + 1024]
        path = before[max(before.rfind(mark) for mark in "\"'`( =,\n\t;") + 1:]
        joined = not path and before[:-1].rstrip()[-1:] in (",", "/", "+") and any(h in before[-120:].lower() for h in ("brain", "gemini"))
        path += after[:min(e for e in [after.find(mark) for mark in "\"'`) ,\n\t;"] + [len(after)] if e >= 0)]
        path = "~/" + path.lstrip("/") if path.lstrip("/").startswith(".gemini/") else path.replace("$HOME", area.home)
        rest = area.rest(tool_path(path, cwd, area.home))
        if rest is not None or joined:
            return rest or [""], path
    return None, ""


def internal_state(call, world):
    """Keeps the agent out of the host's own files: raw transcripts cost more context than all else (design.md §1, host.md §5)."""
    area = Area(call, world)
    if call.tool == "run_command":
        return internal_in_commands(call, world, area)
    for path in argument_paths(call, area):
        rest = area.rest(path)
        if rest is not None:
            return internal_verdict(rest, path, viewed_slice(call, path, world), call, world)
        if searches_below(call, path, area):
            return deny_internal([path], call)
    return None


def searches_below(call, path, area):
    """Whether a native search, or one of an MCP server's, comes from a folder to a protected one: judged like a `find` of the same."""
    tool = as_text(call.args.get("ToolName")) if call.tool == "call_mcp_tool" else call.tool
    if not area.near(path) or not any(word in tool.lower() for word in ("search", "find", "grep", "tree", "glob")):
        return False
    names, depth = listed(call.args.get("Includes")) + listed(call.args.get("Pattern")), whole_number(call.args.get("MaxDepth")) or 99
    words = ["find", path, "-maxdepth", str(depth)] + [word for name in names if name[:1] != "!" for word in ("-name", name)]
    return descends(Command(words, Scope(None, area.home, {})), path, area)


def argument_paths(call, area):
    """The absolute paths in a native tool's arguments; of an MCP call, of every argument that is one, unless the tool is ours."""
    values = [call.args.get(name) for name in PATH_ARGUMENTS]
    if call.tool == "call_mcp_tool":
        values = [] if call.args.get("ToolName") in OWN_TOOLS else [call.args.get("Arguments")]
    out = []
    while values and len(out) < 200:
        value = values.pop(0)
        if isinstance(value, dict):
            values += list(value.values())
        elif isinstance(value, list):
            values += value[:200]
        elif isinstance(value, str) and call.tool == "call_mcp_tool" and value[:1] in ("{", "["):
            try:
                values.append(parse_json(value))
            except (ValueError, RecursionError):
                pass
        elif isinstance(value, str) and (call.tool != "call_mcp_tool" or (value[:1] in ("/", "~", "$") or value[:5].lower() == "file:") and not
                                         set(" \n") & set(value.partition(".system_generated")[2])):  # else it is text that begins with a path
            out.append(tool_path(value, call.cwd, area.home))
    return [path for path in out if path]


def viewed_slice(call, path, world):
    """Whether a native call shows a bounded part of a file, as the guard bounded-reads measures it."""
    try:
        return call.tool in LINE_ARGUMENTS and not asks_much(call) or call.tool in (*LINE_ARGUMENTS, "grep_search") and \
            file_kind(path) == "file" and not MEASURES[call.tool][2](path, call, world)
    except OSError:
        return False


def whole_number(value):
    """An integer argument, also where it came as text or as a float; None where it is none."""
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def internal_in_commands(call, world, area):
    """The first path into a protected folder, in any word, redirect, substitution or inline program of a command line."""
    verdict, written = None, {}
    for command in call.commands:
        found = {path: rest for rest, path in internal_words(command, area, written)} if verdict is None else {}
        bounded = found and bounded_view(command)
        for path, rest in found.items():
            verdict = verdict or internal_verdict(rest, path, bounded, call, world)
        targets = [target for op, target in command.redirects if ">" in op] + (command.words[1:] if command.name == "tee" else [])
        written.update({absolute(target, command.cwd): command.stdin for target in targets if command.stdin})
        if verdict is None and walks_into(command, area):
            verdict = deny("internal-state", "This goes through the host's .system_generated/ folders. Name a narrower folder, or leave them out "
                           "(--exclude-dir=.system_generated, or find … -not -path '*/.system_generated/*'). To search conversations: the MCP tool "
                           'query_transcript {"conversationId": "*", "query": "WORD"}.')
    if verdict is None and call.unread and mentioned(call.unread, call.cwd, area)[0] is not None:
        verdict = deny_internal([""], call)
    return verdict


def internal_words(command, area, written):
    """(rest, path) of each protected path in one command, also in a program that it is given or that an earlier one wrote (path -> texts)."""
    words = command.words + command.outer + [target for op, target in command.redirects if not op.endswith(("<<", "<<-", "<<<"))]
    for word in words + list(command.assigned.values()):
        rest = word_rest(word, command.cwd, area)
        if rest is not None:
            yield rest, tool_path(spelled_path(word), command.cwd, area.home) or word
    if command.cwd and area.rest(command.cwd) is not None and command.words:
        yield area.rest(command.cwd), command.cwd
    name = command.name.rstrip("0123456789.")
    runs, texts = name in INTERPRETERS or command.shell == "powershell", []
    if runs:  # awk and databases take their program as a word, the others behind an option
        texts = [w for last, w in zip(command.words, command.words[1:]) if last in ("--eval", "--print") or last[:1] == "-" != last[1:2] or
                 name in ("awk", "gawk", "mawk", "sqlite", "duckdb") or command.shell == "powershell"] + command.stdin
        texts += command.source.words[1:] + command.source.stdin if command.source else []
    for word in command.words if written else ():
        if runs or command.name in SHELLS or word is command.words[0]:
            texts += written.get(absolute(word, command.cwd), [])
    for text in dict.fromkeys(texts):
        rest, path = mentioned(text, command.cwd, area)
        if rest is not None:
            yield rest, path


def walks_into(command, area):
    """Whether a command goes below a folder that holds protected ones: find, grep -r, ls -R, tar, cp -r and kin (design.md §1)."""
    name, words = command.name, command.words
    if name == "git" and words[1:2] == ["grep"] and "--no-index" in words:
        name, words = "rg", words[1:]
    if name not in WALKERS or command.rtk and name == "ls" or not (command.rtk and name == "grep" or recurses(name, words)):
        return False  # rtk's ls shows one folder, its grep always goes below
    if any(("gemini" in w or "system_generated" in w) and ("exclude" in last + w or w[:1] == "!" or last == "-x")
           for last, w in zip([""] + words, words)):
        return False
    roots = find_roots(words) if name == "find" else [w for w in words[1:] if w[:1] != "-" or w == "-"]
    if (name[-4:] == "grep" or name in SEARCHERS) and not any(w in ("-e", "-f", "--files") for w in words):
        roots = roots[1:]  # the first is what is looked for
    elif name in COPIERS and "--delete" not in words:
        roots = roots[:-1] or roots  # the last is where it goes to
    elif name == "tar" and "-C" in words[:-1]:
        folder = words[words.index("-C") + 1]
        roots = [absolute(root, absolute(folder, command.cwd)) or "" for root in roots if root is not folder]
    for root in roots or (["."] if name in LISTERS or name == "grep" else []):
        path = tool_path(root, command.cwd, area.home) or absolute(root, command.cwd)
        if path and (descends(command, path, area) or name == "tar" and area.rest(path)):
            return True
        if is_pattern(root) and not root.startswith(ANY) and area.above(tool_path(root.rpartition("/")[0] or ".", command.cwd, area.home)) == 1 \
                and glob_fits(root.rpartition("/")[2], ".system_generated"):
            return True
    return False


def recurses(name, words):
    """Whether one of the WALKERS is told to go below its folders, or always does."""
    options = WALKERS[name]
    letters = "".join([w for i, w in enumerate(words) if i and w[:1] == "-" and w[:2] != "--" or i == 1 and name == "tar"])
    if not options or options[0] != "-" and set(options) & set(letters):
        return True
    return any(w.lower() in RECURSIVE or len(w) > 1 and options.startswith(w.lower()) for w in words[1:])


def descends(command, path, area):
    """Whether a walk that begins at a folder comes to a protected one. What is said to be left out, too deep or of another name is not read."""
    depth, near, words = area.above(path), area.near(path), command.words
    if not depth:
        return False
    limits = [value for i, w in enumerate(words) for option in ("-maxdepth", "--max-depth", "--maxdepth", "-L", "-d", "--level") if w.startswith(option)
              for value in (words[i + 1:i + 2] if w == option else [w[len(option):].lstrip("=")])]
    if command.name in ("find", "tree", "du", "fd", "rg") and any(value.isdecimal() and int(value[:9]) <= depth for value in limits):
        return False
    if command.name in ("du", "ln"):  # names and sizes, or a link
        return near
    if command.name in SEARCHERS or command.name == "tree":
        return near or any(w in ("--hidden", "--no-ignore", "-uu", "-uuu", "-a", "-H", "-.", "-u", "--all") for w in words)
    if command.name != "find":
        return True
    if any(("system_generated" in w or w in ("*/.*", "*/.*/*", ".*")) and words[i - 2] in ("!", "-not") or w == "-prune" for i, w in enumerate(words)):
        return False
    wanted = [words[i + 1].lower().replace(".*", "*") if "regex" in w else words[i + 1].lower() for i, w in enumerate(words[:-1])
              if w in ("-name", "-iname", "-path", "-wholename", "-ipath", "-regex", "-iregex") and words[i - 1] not in ("!", "-not")]
    if not wanted and not near and not any(w in ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint") for w in words):
        return False  # a list of names from far above, by size or age: nothing of a transcript is read
    globs = [w.translate(GLOB_MARKS).rpartition("/")[2] for w in wanted]
    names = INTERNAL_NAMES if near else INTERNAL_NAMES[:3]
    return not globs or any(g in ("output.txt", "content.md") and near or glob_fits(g, n) or n[:1] == "." and g[:1] in (STAR, ONE)
                            and glob_fits(ANY + g[1:], n) for g in globs for n in names)


def bounded_view(command):
    """Whether a command, or what it is piped into, shows a bounded part of a file or searches it: so spills and logs of finished tasks may be read."""
    name, words = command.name, command.words
    if [target for op, target in command.redirects if ">" in op and not target.isdigit() and target != "/dev/null"]:
        return False
    if command.sink is not None and (name in READERS or name in VIEWERS) and bounded_view(command.sink):
        return True
    if name == "sed":
        return not any(w.startswith(("-i", "--in-place")) for w in words) and any(w[-1:] in "pq" and w[:1].isdigit() for w in words[1:])
    if name in ("head", "tail"):
        counts, most = [w[len(w.rstrip("0123456789")):] for w in words[1:]], 1 << 14 if any(w.startswith(("-c", "--bytes")) for w in words) else 500
        return not any(w in ("-f", "-F", "--follow") or w[:1] in "-+" and "+" in w for w in words) and all(int(c[:9]) <= most for c in counts if c)
    return name in VIEWERS and (name != "read" or command.rtk)


def internal_verdict(rest, path, bounded, call, world):
    """None where a protected path may be read so, else the denial. rest: the conversation's folder and the parts behind .system_generated."""
    parts, brain = rest[1:], rest[0]
    if len(parts) == 3 and parts[0] == "steps" and parts[2] in ("output.txt", "content.md"):
        return None if bounded else route_slice(f"{parts[2]} of step {parts[1]} is large: read a part of it", path, call, world)
    if len(parts) == 2 and parts[0] == "tasks" and parts[1].startswith("task-") and parts[1].endswith(".log") and parts[1][5:-4].isdecimal():
        state = task_state(world, brain + "/.system_generated/logs", int(parts[1][5:-4][:9]), path)
        if state == "finished":
            return None if bounded else route_slice("The log of a finished task: read a part of it", path, call, world)
        add_strike(call, world)
        wants = " It waits for input: manage_task send_input or kill." if state == "waiting" else ""
        return deny("internal-state", f"task-{parts[1][5:-4]} is still running; its log grows and is not for polling.{wants} End your turn: the host "
                                      "wakes you when the task ends. manage_task kill and send_input are free.")
    return deny_internal(rest, call)


def route_slice(text, path, call, world):
    rtk = find_rtk(world)[1]
    return routed("internal-state", text, [f"view_file AbsolutePath={quote_argument(path)} StartLine=1 EndLine=150", rtk and
                                           f"{rtk} read -n --head-lines 150 {quote_shell(path)}"], 'query_transcript {"stepIndex": N, "field": "output"}')


def deny_internal(rest, call):
    conversation = rest[0].rpartition("/")[2] if len(rest) > 1 else call.conversation
    named = f'"conversationId": "{conversation}", ' if conversation and conversation != call.conversation and not is_pattern(conversation) else ""
    return deny("internal-state", "Raw transcripts and .system_generated/ are the host's and flood the context. Use the MCP tools read_transcript "
                                  f'{{{named}"lastTurns": 3}} or query_transcript {{{named}"query": "WORD"}}; a spilled result: query_transcript '
                                  '{"stepIndex": N, "field": "output"}.')


# guard: bounded-reads
# What a native read or search would show is measured before it is denied. What the host makes of the arguments was seen on its harness:
# EndLine alone begins at line 1, line 0 is line 1, a line behind the end is the last one, ContentOffset counts bytes; a negative number, a
# word, a start behind the end, a folder, and text that is not UTF-8 are errors of its own and left to it.
MOST_LINES, MOST_BYTES, MOST_ENTRIES = 150, 16384, 60
MOST_COUNTED, MOST_SEARCHED, MOST_WALKED = 1 << 24, 1 << 22, 2000  # bytes before a slice, bytes searched, entries looked at
GUIDES = ("skill.md", "agents.md", "gemini.md", "claude.md")
NOT_SEARCHED = ("node_modules", "__pycache__")  # and hidden ones: the host's searches leave them out
GLOBS, REGEXES = frozenset("*?[{"), frozenset("\\.[]{}()*+?^$|")


def bounded_reads(call, world):
    """Denies what would put more than a page into the context, and names a way to the same thing that is bounded (design.md §1)."""
    names, kinds, judge = MEASURES[call.tool]
    path = next((found for found in [tool_path(call.args.get(name), call.cwd, world.home) for name in names] if found), "")
    if not path or len(path) > 4095 or call.tool in LINE_ARGUMENTS and not asks_much(call) or file_kind(path) not in kinds or is_free(path, call, world):
        return None
    try:
        found = judge(path, call, world)
    except OSError:  # unreadable, or gone by now: the host's own error says it best
        return None
    return found and routed("bounded-reads", *found)


def is_free(path, call, world):
    """Whether a path is one that the host or the user wants read: instructions, configuration, artifacts, schemas. Or not ours to judge:
    .system_generated has a guard of its own."""
    brains = [folder.lower() + "/brain/" for folder in data_folders(world.home)]
    artifacts = call.artifacts.lower().rstrip("/") + "/"
    for one in map(str.lower, spellings(path, world.links)):
        inside = [one[len(brain):].split("/")[1:2] for brain in brains if one.startswith(brain)]
        inside += [one[len(artifacts):].split("/")[:1]] if artifacts != "/" and (one + "/").startswith(artifacts) else []
        if one.rpartition("/")[2] in GUIDES or "/.agents/" in one + "/" or "/.system_generated/" in one + "/" \
                or [part for part in inside if part != ["scratch"]] or (one + "/").startswith(world.home.lower() + "/.gemini/config/"):
            return True
    return False


def asked_lines(call):
    """(first line, last line or None for the end) that a read asks for; None where the host answers with an error of its own."""
    given = [call.args.get(name) for name in LINE_ARGUMENTS[call.tool]]
    first, last = [whole_number(value) for value in given]
    if (first or 0) < 0 or (last or 0) < 0 or [first, last].count(None) > given.count(None):
        return None
    if call.tool == "read_file":  # lines from 0 on, and how many
        return (first or 0) + 1, None if last is None else (first or 0) + last
    return max(first or 1, 1), None if last is None else max(last, 1)


def asks_much(call):
    lines = asked_lines(call)
    return lines is not None and (lines[1] is None or lines[1] - lines[0] >= MOST_LINES)


def judge_read(path, call, world):
    """The last arguments of routed(), or None. MOST_BYTES + 1 bytes tell whether a whole file is too long, whatever its size."""
    head, first = read_file(path, MOST_BYTES + 1), asked_lines(call)[0]
    if not head or is_binary(head):
        return None
    fitting, offset, size = MOST_LINES, whole_number(call.args.get("ContentOffset")) or 0, posix.stat(path).st_size
    if first == 1:
        if head.count(b"\n") + (head[-1:] != b"\n") <= MOST_LINES and len(head) <= MOST_BYTES or offset > 0 and size - offset <= MOST_BYTES:
            return None
        fitting = min(MOST_LINES, head[:MOST_BYTES].count(b"\n"))
    elif lines_from(path, first) <= MOST_LINES:
        return None
    last, word, rtk = first + fitting - 1, quote_shell(path), find_rtk(world)[1]
    routes = [ask_waymark(world, "what is in " + path.rpartition("/")[2])]
    if not fitting:  # the first line alone is too long
        routes += [f"head -c 4000 {word}"]
    else:
        routes += [f"view_file AbsolutePath={quote_argument(path)} StartLine={first} EndLine={last}" if call.tool == "view_file" else
                   f"read_file absolute_path={quote_argument(path)} offset={first - 1} limit={fitting}"]
        if rtk and size <= MOST_COUNTED:  # rtk reads a file to its end and keeps all of it: seconds and gigabytes for a huge one
            routes += [f"{rtk} read -n --head-lines {last} {word}" + (f" | tail -n {fitting}" if first > 1 else "")]
        else:
            routes += [f"sed -n '{first},{last}p{f';{last}q' if size > MOST_COUNTED else ''}' {word}"]
    return f"more than {MOST_LINES} lines or {MOST_BYTES >> 10} KB at once", routes, f"the same call for at most {MOST_LINES} lines"


def is_binary(head):
    """Whether the first bytes of a file are no UTF-8 text: the host shows an image or a document as such, and refuses what is neither."""
    if b"\0" in head or head.startswith(b"%PDF-"):
        return True
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start < len(head) - 3  # else it may be the cut
    return False


def lines_from(path, first):
    """How many lines a file has from line `first` on, counted up to MOST_LINES + 1; that many too where it is too far to tell."""
    count, seen, end = 0, 0, b"\n"
    handle = posix.open(path, posix.O_RDONLY | getattr(posix, "O_NONBLOCK", 0) | getattr(posix, "O_BINARY", 0))
    try:
        while count < first + MOST_LINES and seen < MOST_COUNTED:
            part = posix.read(handle, 1 << 20 if seen else 1 << 14)
            if not part:
                return max(0, count + (end != b"\n") - first + 1)
            count, seen, end = count + part.count(b"\n"), seen + len(part), part[-1:]
    finally:
        posix.close(handle)
    return MOST_LINES + 1


def judge_list(path, call, world):
    with posix.scandir(path) as entries:
        if sum(1 for _ in zip(range(MOST_ENTRIES + 1), entries)) <= MOST_ENTRIES:
            return None
    rtk, word = find_rtk(world)[1], quote_shell(path)
    return f"more than {MOST_ENTRIES} entries", [
        ask_waymark(world, "what is in the folder " + path.rpartition("/")[2]), f"{rtk} ls {word}" if rtk else f"ls -A {word} | head -n {MOST_ENTRIES}",
        f"find {word} -maxdepth 1 -name '*WORD*' | head -n 50"], "a folder further in"


def judge_find(path, call, world):
    """find_by_name in more than MOST_ENTRIES, unless it asks for one name that is not found too often."""
    pattern, depth = as_text(call.args.get("Pattern")), whole_number(call.args.get("MaxDepth")) or 0
    plain = pattern and not GLOBS & set(pattern)
    found = walk(path, depth if depth > 0 else MOST_WALKED, MOST_WALKED if plain else MOST_ENTRIES)
    if found is not None and (not plain or len([one for one in found if pattern in one[len(path):]]) <= MOST_ENTRIES):
        return None
    rtk, tests = find_rtk(world)[1], f" -maxdepth {depth}" if depth > 0 else ""
    tests += {"file": " -type f", "directory": " -type d"}.get(as_text(call.args.get("Type")), "")
    extensions = ["-name " + quote_shell("*." + one.lstrip(".")) for one in listed(call.args.get("Extensions"))]
    if pattern in ("", "*") and extensions:
        tests += " '(' " + " -o ".join(extensions) + " ')'"
    elif "/" in pattern or call.args.get("FullPath") is True:
        tests += " -path " + quote_shell("*" + pattern.replace("**/", "*").lstrip("*"))
    else:
        tests += " -name " + quote_shell(pattern or "*")
    tests += "" if rtk else " -not -path '*/.git/*' -not -path '*/node_modules/*'"
    return f"a find among more than {MOST_ENTRIES} entries", [
        ask_waymark(world, "where is " + pattern), f"{rtk} find {quote_shell(path)}{tests} | head -n 50".lstrip()], "a folder further in, or MaxDepth=1"


def judge_grep(path, call, world):
    """grep_search: a file or a small folder is searched here, as far as it decides. File names only (MatchPerLine false) are few bytes."""
    query, includes, regex, folded = as_text(call.args.get("Query")), listed(call.args.get("Includes")), *[
        is_set(call.args.get(name)) for name in ("IsRegex", "CaseInsensitive")]
    if not query or call.args.get("MatchPerLine") in (False, "false"):
        return None
    files = [path] if file_kind(path) == "file" else walk(path, MOST_WALKED, MOST_WALKED if includes else MOST_ENTRIES)
    if files is not None and files != [path] and includes:
        globs = [one.rpartition("/")[2].translate(GLOB_MARKS) for one in includes if one[:1] != "!" and "{" not in one]
        files = [one for one in files if any(glob_fits(glob, one.rpartition("/")[2]) for glob in globs)] if len(globs) == len(includes) else files
    if files is not None and len(files) <= MOST_ENTRIES and matches_fit(files, query, regex and bool(REGEXES & set(query)), folded):
        return None
    return "matches without a bound", [
        ask_waymark(world, query), grep_route(path, query, includes, regex, folded, world),
        f"grep_search SearchPath={quote_argument(path)} Query={quote_argument(query)} MatchPerLine=false",
    ], "the same grep_search with MatchPerLine=false, or in a folder further in"


def grep_route(path, query, includes, regex, folded, world):
    rtk, word, fold = find_rtk(world)[1], quote_shell(query), " -i" if folded else ""
    only = [quote_shell(one) for one in includes if not {"/", "!", "{"} & set(one)]
    if not rtk and [1 for folder in world.env.get("PATH", "").split(":") if is_program(folder + "/rg")]:
        command = f"rg -n -m 20{fold}{'' if regex else ' -F'} -e {word}" + "".join([" -g " + one for one in only])
    else:  # GNU grep has no \d and no (?: outside -P, and other greps have no -P
        kind = "-F" if not regex else "-P" if sys.platform == "linux" and ("\\" in query or "(?" in query) else "-E"
        command = f"{rtk} grep -rnI -m 20{fold} {kind} -e {word}".lstrip()
        command += "".join([" --include=" + one for one in only]) + " --exclude-dir=.git --exclude-dir=node_modules"
    return f"{command} {quote_shell(path)} | cut -c1-300 | head -n 50"


def matches_fit(files, query, regex, folded):
    """Whether the lines of these files that hold a text are at most MOST_LINES and MOST_BYTES; of a real regex, whether all lines are."""
    lines = size = searched = 0
    wanted = (query.lower() if folded else query).encode("utf-8", "surrogatepass") if not regex else b""
    for path in files:
        data = read_file(path, MOST_SEARCHED + 1 - searched) or b"" if file_kind(path) == "file" else b""
        searched += len(data)
        data = b"" if b"\0" in data[:1024] else data.lower() if folded else data
        at = data.find(wanted) if data else -1
        while at >= 0:
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            lines, size = lines + 1, size + end - data.rfind(b"\n", 0, at)
            if lines > MOST_LINES or size > MOST_BYTES:
                return False
            at = data.find(wanted, end + 1)
        if searched > MOST_SEARCHED:
            return False
    return True


def walk(path, depth, most):
    """The paths of what lies below a folder, down to a depth, as the host's searches see it; None where there is more than `most`."""
    found, folders, seen = [], [(path, depth)], 0
    while folders:
        folder, left = folders.pop()
        try:
            with posix.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MOST_WALKED or len(found) > most:
                        return None
                    if entry.name[:1] == "." or entry.name in NOT_SEARCHED:
                        continue
                    found.append(folder + "/" + entry.name)
                    if left > 1 and entry.is_dir(follow_symlinks=False):
                        folders.append((found[-1], left - 1))
        except OSError:  # unreadable, or gone
            continue
    return found if len(found) <= most else None


def listed(value):
    return [one for one in (value[:50] if isinstance(value, list) else [value]) if isinstance(one, str) and one]


def quote_argument(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def ask_waymark(world, question):
    """A question to the code index where one is configured, else ""."""
    data = read_file(world.home + "/.gemini/config/mcp_config.json", 1 << 20) or b""
    try:
        servers = parse_json(data.decode("utf-8-sig"))["mcpServers"] if b"waymark" in data.lower() else {}
        there = [name for name, value in servers.items() if "waymark" in name.lower() and not (isinstance(value, dict) and value.get("disabled"))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        there = []
    return f"waymark_ask({quote_argument(question)}, plain: true)" if there else ""


def routed(guard, what, routes, otherwise):
    """The denial, with as many of the routes as fit, each whole or not at all; `otherwise` where none does."""
    text, used = what + ". Instead: ", []
    room = REASON_BYTES - len(f"[agy:{guard}] ") - len(text)
    for route in routes:
        size = len((route or "").encode("utf-8", "replace")) + 6
        native = (route or "").startswith(("view_file ", "read_file ", "grep_search ", "waymark_ask("))
        if route and size <= room and (native or sys.platform != "win32") and not [c for c in route if c == "\0" or "\ud800" <= c <= "\udfff"]:
            used.append(f"`{route}`")
            room -= size
    return deny(guard, text + (" or ".join(used) or otherwise))


LINE_ARGUMENTS = {"view_file": ("StartLine", "EndLine"), "read_file": ("offset", "limit")}
MEASURES = {"view_file": (("AbsolutePath",), ("file",), judge_read), "read_file": (("absolute_path", "file_path", "path"), ("file",), judge_read),
            "list_dir": (("DirectoryPath",), ("folder",), judge_list), "find_by_name": (("SearchDirectory",), ("folder",), judge_find),
            "grep_search": (("SearchPath", "SearchDirectory"), ("file", "folder"), judge_grep)}


# Which files a call changes: for the guards evaluation and own-files. The hows: "writes", "deletes", "moves" (gone from there), "reverts" (a
# folder: anything in it may change), "unpacks" (into a folder, names unknown), "modes" (permissions).
# programs, how, which arguments ("out": the values of the options), options that take a word, some of which are needed, none of which may be
WRITERS = {name: row for names, *row in (
    ("tee sponge touch ed ex vi vim nvim nano dos2unix rustfmt", "writes", "all", "-d -r -t -c -u -S --date --reference", "", "-R --check"),
    ("truncate shred", "writes", "all", "-s -r -n --size --reference --iterations", "", ""),
    ("rm rmdir unlink del erase rd remove-item ri trash", "deletes", "all", "-include -exclude -filter", "", ""),
    ("cp ln copy copy-item cpi xcopy robocopy", "writes", "last", "-t --target-directory -S -destination -filter", "", ""),
    ("install", "writes", "last", "-t --target-directory -m -o -g -S", "", "-d"),
    ("rsync", "writes", "last", "-e -f -T --exclude --include --files-from", "", "--dry-run -n"), ("scp", "writes", "last", "-i -o -P -F -J", "", ""),
    ("mv move move-item mi", "moves", "last", "-t --target-directory -S -destination -filter", "", "-n --dry-run"),
    ("ren rename-item rni", "moves", "first", "-newname", "", ""), ("rename prename sd", "moves", "rest", "", "", "-n"),
    ("set-content add-content out-file clear-content tee-object sc new-item ni mklink zip", "writes", "first", "-value -encoding -itemtype -width -inputobject",
     "", ""),
    ("chmod chown chgrp chattr attrib icacls", "modes", "all", "", "", ""),
    ("gzip gunzip bzip2 bunzip2 xz unxz zstd", "deletes", "all", "", "", "-c -k -l -t --stdout --keep"),
    ("black isort", "writes", "all", "-l --line-length --config", "", "--check --diff --check-only -c"),
    ("prettier gofmt goimports shfmt clang-format autopep8 autoflake yapf yq ruff eslint", "writes", "all", "--config",
     "-w --write -i --in-place --inplace --fix format", "--check --diff"),
    ("curl", "writes", "out", "-o --output", "", ""), ("wget", "writes", "out", "-O --output-document -P --directory-prefix", "", ""),
    ("sort pandoc shuf iconv", "writes", "out", "-o --output", "", ""),
    ("invoke-webrequest iwr invoke-restmethod irm expand-archive", "writes", "out", "-outfile -o -destinationpath", "", ""),
    ("unzip", "unpacks", "out", "-d", "", "-l -p -t"),
) for name in names.split()}
# verb -> how, options of which one is needed, options of which none may be, what it works on without a path: the whole tree ("top"), or the folder
GIT_WRITERS = {
    "restore": ("reverts", "", "--staged -S", ""), "rm": ("deletes", "", "--cached -n --dry-run", ""), "clean": ("reverts", "", "-n --dry-run", "."),
    "reset": ("reverts", "--hard --merge --keep", "", "top"), "checkout": ("reverts", "", "-b -B --orphan --detach -t --track", ""),
    "stash": ("reverts", "", "", "top"), "mv": (), "apply": (), "am": (),
}
INLINE = {"python": "-c", "py": "-c", "pypy": "-c", "ipython": "-c", "node": "-e -p --eval --print", "bun": "-e --eval", "deno": "eval", "perl": "-e -E",
          "ruby": "-e", "php": "-r", "rscript": "-e", "lua": "-e"}
# Calls that change files in inline code: which arguments name them; "." is the object whose method it is.
CODE_CALLS = {name: where for names, where in (
    ("write_text write_bytes symlink_to", "."), ("unlink touch rmdir", ".0"), ("rename", ".01"), ("renameSync os.replace move mv", "01"),
    ("remove rmtree removedirs truncate unlinkSync writeFile writeFileSync appendFile appendFileSync rmSync rm rmdirSync truncateSync createWriteStream"
     " delete extractall rm_f rm_r rm_rf File.write IO.write File.binwrite file_put_contents to_csv to_json to_parquet to_excel to_pickle"
     " savetxt np.save fileinput.input Bun.write Deno.writeTextFile Deno.writeTextFileSync Deno.remove", "0"),
    ("copy copy2 copyfile copytree copyFile copyFileSync cp cpSync cp_r symlink symlinkSync link linkSync torch.save urlretrieve", "1"),
    ("open openSync fopen ZipFile", "mode"),
    ("system popen Popen run call check_call check_output getoutput exec execSync execFileSync spawn spawnSync", "run"),
) for name in names.split()}
POWERSHELL_CALLS = frozenset("writealltext writealllines writeallbytes appendalltext appendalllines delete move create openwrite".split())
CODE_BREAKS = frozenset("\n ; : = { } with await return if for const let var my not".split(" ") + ["\n"])


def written_paths(command, source=None):
    """[(path word, how)]: the files that a Command changes, as far as static reading shows; words may hold ANY, STAR, ONE, SET. What comes through
    a pipe (xargs; source: the Command that feeds a `while read`) is replaced by the paths that the commands before the pipe name."""
    name = command.name
    found = [(word, "writes") for op, word in command.redirects if ">" in op and name != "[[" and (op[-1] != "&" or word.strip("0123456789-"))]
    if name in WRITERS:
        found += table_writes(command, *WRITERS[name])
    elif name in SPECIAL_WRITERS:
        found += SPECIAL_WRITERS[name](command)
    language = name.rstrip("0123456789.")
    if language in INLINE:
        found += code_writes(inline_code(command, INLINE[language].split()), command)
    if [word for word, _ in found if word in (ANY, "")]:
        fed = fed_paths(command.source or source)
        found = [(path, how) for word, how in found for path in (fed if fed and word in (ANY, "") else [word])]
    return [(word.replace("\\", "/") if command.shell != "sh" else word, how) for word, how in found if word]


def split_options(command, valued="", start=1):
    """(arguments, {option: value or ""}) of a command; valued: the options that take the next word. PowerShell's are in lower case; -sSLo X is
    -s -S -L -o X."""
    arguments, options, valued, words = [], {}, valued.split(), iter(command.words[start:])
    for word in words:
        if word == "--":
            arguments += words
        elif word[:1] == "-" and len(word) > 1:
            name = (word.lower() if command.shell == "powershell" else word).partition("=")[0]
            if command.shell != "sh" or name[:2] == "--" or name in valued:
                options[name] = word[len(name) + 1:] or (next(words, "") if name in valued else "")
                continue
            for n, letter in enumerate(word[1:], 2):
                options["-" + letter] = (word[n:] or next(words, "")) if "-" + letter in valued else ""
                if "-" + letter in valued or not letter.isalnum():
                    break
        elif command.shell != "cmd" or word[:1] != "/" or len(word) > 3:
            arguments += word.split(",") if command.shell == "powershell" else [word]
    return arguments, options


def table_writes(command, how, which, valued, needs, unless, start=1):
    arguments, options = split_options(command, valued, start)
    given = options.keys() | set(arguments[:1])
    if needs and not given & set(needs.split()) or given & set(unless.split()):
        return []
    if which == "out":
        named = [options[o] for o in valued.split() if o in options]  # else curl -O and wget take the name from the address
        fetched = arguments if command.name == "wget" and not named or command.name == "curl" and options.keys() & {"-O", "--remote-name"} else []
        return [(word, how) for word in named + ["./" + url.rpartition("/")[2] for url in fetched]]
    if which != "last":
        return [(word, how) for word in {"all": arguments, "first": arguments[:1], "rest": arguments[1:]}[which] or [""]]
    into = [options[o] for o in ("-t", "--target-directory", "-destination") if options.get(o)]
    into, sources = (into, arguments) if into else (arguments[1:][-1:], arguments[:-1])
    if command.name in ("scp", "rsync") and ":" in (into or [""])[0].split("/")[0]:
        return []  # on another machine
    # A folder takes the names of the sources; // marks what is only so if it is one.
    inside = [t + "//" + s.rstrip("/").replace("\\", "/").rpartition("/")[2] for t in into for s in sources]
    return [(word, "writes") for word in into + inside] + [(word, how) for word in (sources or [""]) if how == "moves"]


def fed_paths(source):
    """The paths named by the commands before a pipe, which xargs and kin get; what grep looks for is none."""
    out = []
    for _ in range(MOST_WORDS):
        if not source:
            break
        arguments = split_options(source)[0][source.name == "git":]
        if source.name in ("find", "fd", "fdfind"):
            out += found_paths(source.words)
        elif source.name in ("ls", "dir", "echo", "printf", "git", "get-childitem", "gci", "grep", "rg", "egrep"):
            out += arguments[source.name[-4:] == "grep" or source.name == "rg" or "grep" in source.words:]
        source = source.source
    return out


def find_writes(command):
    words = command.words
    found = [(words[i + 1], "writes") for i, word in enumerate(words[:-1]) if word[:7] == "-fprint"]
    return found + [(path, "deletes") for path in (found_paths(words) if "-delete" in words else ())]


def inplace_writes(command):
    """sed, perl, ruby and awk with -i change every argument but the program, which may also come by -e or -f."""
    awk, sed = command.name[-3:] == "awk", command.name[-3:] == "sed"
    inplace, scripts = awk and "inplace" in command.words, []
    tokens = [token for word in command.words[1:] if awk and ">" in word for token in code_tokens(word)]
    printed = [text for before, (kind, text) in zip(tokens, tokens[1:]) if kind == "s" and before[0] == ">"]
    for word in command.words[1:]:
        if word[:1] == "-" and word[:2] != "--" and not awk:
            cut = min([word.find(c) for c in ("efl" if sed else "eEMI") if c in word] or [len(word)])
            inplace = inplace or "i" in word[:cut] or sed and "I" in word[:cut]
            scripts += [word] if cut < len(word) and word[cut] in "eEf" else []
        inplace = inplace or word[:10] == "--in-place"
        scripts += [word] if word[:6] in ("--expr", "--file") or awk and word == "-f" else []
    files = [w for w in split_options(command, " ".join([w for w in scripts if "=" not in w] + ["-i -v"] * awk))[0] if w]  # BSD: sed -i '' …
    return [(word, "writes") for word in printed + (files[not scripts:] if inplace else [])]


def tar_writes(command):
    arguments, options = split_options(command, "-C -f --directory --file")
    letters = "".join([w for n, w in enumerate(command.words[1:]) if n == 0 and w[:1] != "-" or w[:1] == "-" and w[:2] != "--" and w != "-C"])
    if "x" in letters or options.keys() & {"--extract", "--get"}:
        return [(options.get("-C") or options.get("--directory") or ".", "unpacks")]
    creates = [c for c in "cru" if c in letters] or "--create" in options
    return [(options.get("-f") or options.get("--file") or "".join(command.words[2:3]), "writes")] if creates else []


def git_writes(command):
    """What git does to working files. What works on a whole tree (stash, reset --hard, checkout .) "reverts" its folder: that counts where it
    holds a protected file, as nobody but git sees whether that one differs, and only while an evaluation is active. To change branches, to
    merge and to pull is free."""
    words, i = command.words, 1
    while i < len(words) and words[i][:1] == "-":
        i += 1 + (words[i] in WRAPPERS["git"][0].split())
    verb = "".join(words[i:i + 1])
    if verb not in GIT_WRITERS:
        return []
    if verb in ("apply", "am"):
        return patch_writes(command, i + 1)
    if verb == "mv":
        return table_writes(command, *WRITERS["mv"], i + 1)
    how, needs, unless, bare = GIT_WRITERS[verb]
    arguments, options = split_options(command, "-s --source -m --message -b -B --orphan", i + 1)
    if verb == "stash":
        action = arguments.pop(0) if arguments and "--" not in words[i + 1:i + 2] else "push"
        if action not in ("push", "save", "pop", "apply"):
            return []
        arguments = arguments if action == "push" else []
    if needs and not options.keys() & set(needs.split()) or options.keys() & set(unless.split()) and not options.keys() & {"--worktree", "-W"}:
        return []
    if verb == "checkout":
        arguments = words[words.index("--") + 1:] if "--" in words else [word for word in arguments if stands(word, command.cwd)]
        bare = "top" if options.keys() & {"-f", "--force"} else ""
    arguments = [] if verb == "reset" else arguments
    return [(git_top(command.cwd) if path in ("top", ":/") else path, how) for path in arguments or [bare]]


def stands(word, cwd):
    """Whether a word that may also be a branch is a path: it is there, or, where it has folders, its folder is."""
    path = absolute(word, cwd) or ""
    return word == ":/" or bool(file_kind(path) or "/" in word.strip("/") and file_kind(path.rpartition("/")[0]))


def git_top(cwd):
    top = cwd or ""
    while top and not file_kind(top + "/.git"):
        top = top.rpartition("/")[0]
    return top or "."


def patch_writes(command, start=1):
    """The files that a patch names. Where it cannot be read (a pipe, a file to come), anything in the folder may change."""
    arguments, options = split_options(command, "-i -d -o -p --input --directory --output", start)
    if options.keys() & {"--dry-run", "--check", "--stat", "--numstat", "--summary", "--cached", "--abort", "--quit"}:
        return []
    folder, source = options.get("-d") or options.get("--directory") or ".", command.source
    named, files = ([], arguments) if start > 1 else (arguments[:1], arguments[1:])
    files = files + [options[o] for o in ("-i", "--input") if o in options] + [word for op, word in command.redirects if op == "<"]
    files += source.words[1:] if source and source.name == "cat" else []
    texts = command.stdin + (source.stdin if source else [])
    for path in [absolute(word, absolute(folder, command.cwd)) for word in files[:20]]:
        texts.append((read_file(path, 1 << 20) or b"").decode("utf-8", "replace") if path else "")
    names = [line.split(" ", 1 if line[0] in "+-" else 2)[-1].partition("\t")[0].strip() for text in texts for line in text.split("\n")
             if line.startswith(("+++ ", "--- ", "rename from ", "rename to "))]
    named += [folder + "/" + (name[2:] if name[:2] in ("a/", "b/") else name) for name in names if name != "/dev/null"]
    named += source.words[source.words.index("--") + 1:] if source and "--" in source.words else []
    return [(word, "writes") for word in named] or [(folder, "reverts")]


SPECIAL_WRITERS = {"find": find_writes, **dict.fromkeys(("sed", "gsed", "perl", "ruby", "awk", "gawk"), inplace_writes), "tar": tar_writes,
                   "bsdtar": tar_writes, "git": git_writes, "patch": patch_writes,
                   "dd": lambda command: [(word[3:], "writes") for word in command.words if word[:3] == "of="]}


def inline_code(command, flags):
    """The program text of `python -c`, `node -e`, a heredoc or `echo … |` into an interpreter, or ""."""
    for i, word in enumerate(command.words[1:], 2):
        if word in flags or word[:1] == "-" and word[:2] != "--" and "-" + word[-1:] in flags:
            return "".join(command.words[i:i + 1])
        if word[:2] in flags:
            return word[2:]
        if word[:1] != "-":
            return ""
    source = command.source
    return "\n".join(command.stdin or (source.stdin or source.words[1:] if source and source.name in ("echo", "printf", "cat") else []))


STRING_PREFIXES = ("f", "r", "b", "u", "fr", "rf")


def code_tokens(text):
    """Python, JavaScript, Ruby or Perl as [(kind, text)]: "s" a string, "n" a name with its dots, else a sign or the end of a line."""
    out, i, size = [], 0, min(len(text), 1 << 17)
    while i < size and len(out) < MOST_ITEMS:
        c, end = text[i], i + 1
        if c in "'\"`":
            quote = c * 3 if c != "`" and text.startswith(c * 3, i) else c
            begin = end = i + len(quote)
            while end < size and not text.startswith(quote, end) and (text[end] != "\n" or quote not in ("'", '"')):
                end += 1 + (text[end] == "\\")
            prefix = out.pop()[1].lower() if text[i - 1].isalpha() and out and out[-1][1].lower() in STRING_PREFIXES else ""
            pieces = text[begin:end].replace("\\\\", "/").split("{" if c == "`" or "f" in prefix else "\0")
            out.append(("s", pieces[0].rstrip("$") + "".join([ANY + piece.partition("}")[2] for piece in pieces[1:]])))
            end += len(quote)
        elif c.isalnum() or c in "_.$@":
            while end < size and (text[end].isalnum() or text[end] in "_.$@"):
                end += 1
            out.append(("n", text[i:end]))
        elif c == "#" or c == "/" and text[end:end + 1] == "/":
            end = text.find("\n", i) % (size + 1)
        elif c not in " \t\r":
            out.append((c, c))
        i = end
    return out


def code_values(tokens, known, flat=1):
    """The texts that a list of expressions most likely makes, ANY for what is not in it; a comma in more than `flat` parentheses joins a path."""
    out, depth = "", 0
    for n, (kind, text) in enumerate(tokens):
        depth += (kind in ("(", "[", "{")) - (kind in (")", "]", "}"))
        if kind == "s":
            out += text
        elif kind == "n" and text.rpartition(".")[2] in ("home", "homedir"):
            out += "~"
        elif kind == "n" and ".O_" in text:
            out += "w" * ("RDONLY" not in text)
        elif kind == "=":  # mode="w"
            out = out[:out.rfind("\n") + 1]
        elif kind == "n" and tokens[n + 1:n + 2] != [("(", "(")]:
            out += known.get(text.partition(".")[0], ANY) if text[:1] != "." else "/"
        elif kind == "/" or kind == "n" and text[:1] == "." or kind == "," and depth > flat:
            out += "/"
        elif kind == ",":
            out += "\n"
    return out[:MOST_ITEMS].split("\n")


def code_writes(text, command):
    """[(path, how)] of the calls in inline code that change files: a path as it stands there, or a variable that was given one."""
    tokens, known, out, begin, budget = code_tokens(text), {}, [], 0, 10 * MOST_ITEMS
    for i, (kind, name) in enumerate(tokens):
        where = CODE_CALLS.get(name) or CODE_CALLS.get(name.rpartition(".")[2]) if kind == "n" else None
        follow = tokens[i + 1][1] if i + 1 < len(tokens) else ""
        assigns = kind == "n" and follow in ("=", "in", "of") and tokens[i + 2:i + 3] != [("=", "=")]
        if (where or assigns) and budget > 0:
            first = i + 1 + bool(assigns)
            end = code_end(tokens, first, not assigns and follow == "(")
            joins = assigns and tokens[first:first + 1] and tokens[first][0] == "n"  # p = join(a, b)
            values = code_values(tokens[first:end] if follow == "(" or assigns else [("(", "(")] + tokens[first:end], known, not joins)
            budget -= end - begin
            if assigns:
                known[name] = values[0]
            else:
                owner = known.get(name.partition(".")[0]) or ("/".join(code_values(tokens[begin:i], known)) if name[:1] == "." else "")
                strings = [word for kind, word in tokens[first:end] if kind == "s"]
                out += code_call(where, owner, values if where != "run" else strings, command)
        begin = i + 1 if (name if kind == "n" else kind) in CODE_BREAKS else begin
    return [pair for pair in out if pair[0].strip(ANY + "/")]


def code_end(tokens, i, called):
    """Where the arguments or the expression that begin at i end."""
    depth = 0
    for n in range(i, len(tokens)):
        kind = tokens[n][0]
        depth += (kind in ("(", "[", "{")) - (kind in (")", "]", "}"))
        if depth < 0 or depth == 0 and (kind == ")" if called else kind in ("\n", ";", ":")):
            return n
    return len(tokens)


def code_call(where, owner, values, command):
    """What one call changes. A file is opened for writing by a mode (w, a, x, +, O_WRONLY) or, in Perl, a > before its name."""
    if where == "run":
        inner = read_commands(" ".join(values), command.cwd, "~", {})[0]
        return [pair for one in inner for pair in written_paths(one)]
    if where == "mode":
        modes = [n for n, value in enumerate(values) if n + bool(owner) and 0 < len(value) < 5 and not value.strip("rwaxbt+U") and value.strip("rbtU")]
        arrows = [n for n, value in enumerate(values) if value.lstrip("+<")[:1] == ">"]
        where = "." if modes == [0] else "0" if modes else ""
        if arrows:
            values, where = [values[arrows[0]].lstrip("+<> ")] + values[arrows[0] + 1:], "0"
            values = values[1:] if not values[0] else values
    return [(path, "writes") for path in [owner] * ("." in where) + [values[int(c)] for c in where if c in "0123456789" and int(c) < len(values)] if path]


WRITE_VERBS = ("write", "edit", "create", "move", "delete", "remove", "append", "replace", "str_replace", "patch", "insert", "update")
WRITE_TOOLS = ("call_mcp_tool", "write_to_file", "replace_file_content", "multi_replace_file_content", "create_file", "edit_file", "write_file", "replace")


def changed_files(call, world):
    """(absolute path, how) of all that a call changes, in order. Globs stand for what is there; a link that the command itself makes is followed."""
    if call.tool != "run_command":
        args = call.args
        if call.tool == "call_mcp_tool":
            args = args.get("Arguments") if as_text(args.get("ToolName")).lower().startswith(WRITE_VERBS) else None
        for name in (*PATH_ARGUMENTS, "source", "destination", "relative_path") if isinstance(args, dict) else ():
            path = tool_path(args.get(name), call.cwd, world.home)
            if path:
                yield path, "writes"
        return
    feeds, before = {}, None
    for command in call.commands + (read_commands(call.unread[-4096:], call.cwd, world.home, {})[0] if call.unread else []):
        if command.name == "read" and command.loop:
            feeds[command.loop] = command.source
        found = written_paths(command, feeds.get(command.loop))
        if before and command.words and before.name.partition("]::")[2] in POWERSHELL_CALLS:
            found = [(command.words[0].replace("\\", "/").partition(",")[0], "writes")]
        before = command
        for word, how in dict.fromkeys(found):
            target, marked, name = word.partition("//") if "://" not in word else ("", "", "")
            path = absolute(world.home + word[1:] if word[:2] == "~/" or word == "~" else word, command.cwd or "/" + ANY)
            if marked and name and command.name in WRITERS and file_kind(path.rpartition("/")[0]) != "folder" and target[-1:] != "/":
                continue
            for spot in spread(path):
                yield spot, how
        if command.name == "ln" and len(command.words) > 2 and command.cwd:
            for key in [key for key in world.links if key[0] == "real"]:  # what was resolved before the link was there
                del world.links[key]
            world.links[absolute(command.words[-1], command.cwd)] = absolute(command.words[-2], command.cwd)


def spread(path):
    """The paths that a glob stands for on this disk, at most 200; as it is where it stands for none, or holds what only the shell knows."""
    if ANY in path or not is_pattern(path):
        return [path]
    found = [""]
    for part in path.split("/")[1:]:
        names = [part] if not is_pattern(part) else None
        found = [folder + "/" + name for folder in found for name in names or names_in(folder or "/") if names or glob_fits(part, name)][:200]
    return found or [path]


def names_in(folder):
    try:
        return sorted(posix.listdir(folder))[:2000]
    except (OSError, ValueError):
        return []


# guard: evaluation
# What evaluation files lie under, by folder name in lower case, - as _; EARLY: protected also before an evaluator has run.
EVALUATION_FOLDERS = frozenset("benchmark benchmarks evaluator evaluators evaluation evaluations scoring ground_truth prompt_templates".split())
EARLY = ("scoring", "ground_truth", "evaluation_paths")
NOT_OURS = frozenset((".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", ".pytest_cache", "build", "dist", "target", ".gemini"))
NOT_DATA = (".log", ".out", ".err", ".tmp", ".md", ".rst", ".pyc", ".o")
OUTCOMES = frozenset("result results output outputs out report reports log logs".split())  # eval_results.json is what an evaluation leaves
# Programs and Python modules that evaluate; with a word where only that subcommand does.
HARNESSES = frozenset("lm_eval lm-eval lm-eval-harness lighteval opencompass deepeval ragas helm-run evalplus mteb oaieval oaievalset alpaca_eval promptfoo"
                      " evaluate_functional_correctness garak bfcl swebench swe-bench bigcode_eval bigcode-evaluation-harness pytest-benchmark tau-bench"
                      " terminal-bench livebench evals inspect_ai inspect:eval inspect:eval-set tb:run harbor:run sb-cli:submit asv:run cargo:bench"
                      " llm-eval human_eval simple_evals simple-evals".split())
SCRIPT_PROGRAMS = frozenset("python pypy node bash sh zsh dash ruby perl php rscript julia deno bun ts-node tsx go pwsh powershell pytest py.test . source"
                    " torchrun accelerate coverage".split())
TASK_PROGRAMS = frozenset("make just task npm pnpm yarn tox nox rake invoke".split())


def evaluation(call, world):
    """Asks before a file of an evaluation is changed: always ("on"), or ("auto") once this conversation has run an evaluator; ground truth,
    scoring and the configured patterns are protected before that too."""
    mode = world.config.get("evaluation", "auto")
    if mode == "off":
        return None
    ran = mode == "auto" and any(runs_evaluator(command, call, world) for command in call.commands)
    marker, active = ("evaluating", conversation_key(call.conversation)), ran or mode == "on" or None
    for path, how in changed_files(call, world):
        if active is None:
            active = file_kind("/".join((world.state, *marker)), posix.lstat) == "file"
        find = evaluation_inside if how in ("deletes", "moves") or how == "reverts" and active or ANY + ANY in path else evaluation_file
        found, kind = find(path, call, world, () if active else EARLY)
        if kind and how != "modes":
            return force_ask("evaluation", f"this {how.replace('reverts', 'may change')} {shown(found, call)}, a file of an evaluation ({kind}): the user"
                             " decides. Next step: wait for the answer, or leave that file as it is and work on a copy in another folder. The user can"
                             ' put "evaluation": "off" into ~/.gemini/antigravity/agy_config.json.')
    if ran:
        try:
            posix.close(posix.open(state_path(world, *marker), posix.O_CREAT | posix.O_WRONLY | getattr(posix, "O_NOFOLLOW", 0), 0o600))
        except OSError:  # the next decision stands on what is known then
            pass
    return None


def shown(path, call):
    """A path for a reason: relative to its workspace, at most 120 characters, markers as the globs they were."""
    base = next((base for base in call.workspaces if path.startswith(base.rstrip("/") + "/")), "")
    path = path[len(base.rstrip("/")) + 1:] if base else path
    path = path.translate({0: "*", 1: "*", 2: "?", 3: "["})
    return path if len(path) < 120 else "..." + path[-117:]


def evaluation_file(path, call, world, kinds=()):
    """(path, what protects it, one of `kinds` if given, or ""). Within a workspace only the folders below it count, so that one which lies in a
    folder named benchmarks is not protected as a whole; elsewhere all count, but for scratch files in /tmp."""
    for spot in spellings(path, world.links):
        base = max([base for w in call.workspaces for base in (absolute(w, "/"), real_path(w, world.links))
                    if spot.lower().startswith(base.lower().rstrip("/") + "/")], key=len, default="")
        parts = [part.lower() for part in spot[len(base):].split("/") if part]
        kind = evaluation_kind(parts, bool(base), spot, world)
        if kind and (not kinds or kind in kinds):
            return spot, kind
    return path, ""


def evaluation_kind(parts, inside, spot, world):
    if not parts or NOT_OURS.intersection(parts) or not inside and parts[0] == "tmp" and len(parts) < 4:
        return ""
    for pattern in world.config.get("evaluation_paths", ()):
        if isinstance(pattern, str) and fits_path(pattern, parts, spot, world):
            return "evaluation_paths"
    names = [part.replace("-", "_") for part in parts]
    hits = [name for name in names[:-1] if name in EVALUATION_FOLDERS]
    if not hits and names[-1] in EVALUATION_FOLDERS and file_kind(spot) == "folder":
        hits = names[-1:]
    stem = names[-1].partition(".")[0]
    if hits:
        return "scoring" if stem.startswith(("score", "scoring", "grade", "grading")) else next((hit for hit in hits if hit in EARLY), hits[0])
    if stem in ("ground_truth", "groundtruth"):
        return "ground_truth"
    named = parts[-1].startswith(("eval_", "bench_")) and not parts[-1].endswith(NOT_DATA) and OUTCOMES.isdisjoint(stem.split("_"))
    return parts[-1][:parts[-1].index("_")] + "_*" if named else ""


def fits_path(pattern, parts, spot, world):
    """A pattern of "evaluation_paths": * stands for any text, ? for one character, [ab] for one of a set. Without a slash it fits the name of
    any file or folder; with one, a path from the workspace on, or from / or ~. What lies in a folder that fits is meant as well."""
    text = pattern.lower().rstrip("/").replace("**/", "*")[:1000].translate({42: ANY, 63: ONE, 91: SET if "]" in pattern else "["})
    text = world.home.lower() + text[1:] if text[:2] == "~/" else text[2:] if text[:2] == "./" else text
    whole = spot.lower() if text[:1] == "/" else "/".join(parts)
    return any(glob_fits(text, part) for part in parts) if "/" not in text else glob_fits(text, whole) or glob_fits(text + "/" + ANY, whole)


def evaluation_inside(path, call, world, kinds):
    """evaluation_file for what is to go as a whole: of a folder, its first protected entry, of at most 400 and three levels down; of what `find`
    comes upon, the first that fits."""
    left, queue = 400, [(path, 0)]
    if "/" + ANY + ANY in path:
        queue.append((path.partition("/" + ANY + ANY)[0], 0))
    for folder, depth in queue:
        found, kind = evaluation_file(folder, call, world, kinds)
        if kind and (folder == path or ANY not in path or glob_fits(path, folder)):
            return found, kind
        if depth < 3 and left > 0 and folder.rpartition("/")[2].lower() not in NOT_OURS and file_kind(folder, posix.lstat) == "folder":
            names = names_in(folder)[:left]
            left -= len(names)
            queue += [(folder + "/" + name, depth + 1) for name in names]
    return path, ""


def runs_evaluator(command, call, world):
    """Whether a command runs a protected script, or a known harness."""
    words = [word for word in command.words if word[:1] != "-"]
    name = command.name.rstrip("0123456789.") or command.name
    if not words:
        return False
    module = command.words[command.words.index("-m") + 1:][:1] if "-m" in command.words else []
    if {command.name, ":".join((command.name, *words[1:2])), *[m.partition(".")[0] for m in module]} & HARNESSES or "--benchmark-only" in command.words:
        return True
    if name in TASK_PROGRAMS:
        return any(word.startswith(("bench", "eval")) for word in words[1:])
    scripts = words[:1] if "/" in words[0] else []
    if name in ("pytest", "py.test") or module == ["pytest"]:
        scripts = scripts + words[1:]
    elif name in SCRIPT_PROGRAMS:
        scripts = scripts + ([m.replace(".", "/") for m in module] or [word for word in words[1:3] if word not in ("run", "launch", "test")][:1])
    paths = [absolute(word.partition("::")[0], command.cwd) for word in scripts]
    return any(evaluation_file(path, call, world)[1] for path in paths if path)


# guard: own-files
OWN_NAMES = frozenset(("agy_hook.py", "agy_mcp.py", "agy_config.json", "hooks.json", "mcp_config.json"))
OWN_FOLDERS = ("", "/config", "/config/plugins", *["/" + name for name in DATA_FOLDERS])  # below ~/.gemini


def own_files(call, world):
    """Asks before the hook, the server, their state and configuration, hooks.json and mcp_config.json (host.md §1, §5) are changed."""
    for path, how in changed_files(call, world):
        for spot in spellings(path, world.links):
            if is_own(spot) or holds_own(spot, how, world):
                what = {"modes": "changes the permissions of", "reverts": "may change", "unpacks": "unpacks into"}.get(how, how)
                return force_ask("own-files", f"this {what} {shown(spot, call)}, which steers or belongs to the hook that guards this session: the user"
                                 " decides. Next step: wait for the answer, or go on without it. Reading it is free; python3"
                                 " ~/.gemini/antigravity/agy_mcp.py status shows the installation.")
    return None


def is_own(path):
    """Whether a path is one of ours in ~/.gemini, its data folders and plugins, in a workspace's .agents/, or in the folder that this hook runs
    from, unless that is a checkout. A hooks.json or agy_hook.py elsewhere is a project's own."""
    parts = path.lower().split("/")
    compiled = parts[-1][-4:] == ".pyc" and parts[-1].startswith(("agy_hook.", "agy_mcp."))
    folder = parts[:-2] if compiled and parts[-2:-1] == ["__pycache__"] else parts[:-1]
    named = compiled or parts[-1] in OWN_NAMES or parts[-1] == "__pycache__"
    for root in (".gemini", ".agents"):
        if root in parts[:-1]:
            rest = folder[parts.index(root) + 1:]
            rest = rest[1:] if "/" + "/".join(rest[:1]) in OWN_FOLDERS else rest
            if (rest + parts[-1:])[0] == "agy_state" or named and (not rest or rest[0] == "plugins" and len(rest) == 2):
                return True
    here = __file__.replace("\\", "/").lower().rpartition("/")[0]
    return named and parts[-1][:4] == "agy_" and "/".join(folder) == here and not file_kind(here + "/.git")


def holds_own(path, how, world):
    """Whether a folder that is moved, deleted, unpacked into or locked holds files of ours, or a pattern (of find) is meant for them."""
    low = (path[:-2] if path[-2:] == "/" + ANY and "/.gemini" in path else path).lower()
    owned = [world.home.lower() + "/.gemini" + name for name in OWN_FOLDERS]
    if ANY in low:
        return bool(low.rpartition("/")[2].strip(ANY)) and any(
            glob_fits(low, folder + "/" + name) for folder in owned for name in (*OWN_NAMES, "agy_state/x.json", "__pycache__/agy_hook.cpython-312.pyc"))
    if how in ("deletes", "moves"):
        return any((folder + "/").startswith(low + "/") for folder in owned) or any(
            is_own(top + name) and file_kind(top + name) for top in (path + "/", path + "/.agents/") for name in OWN_NAMES)
    return how != "writes" and low in owned


# ---- The ledger and the state of tasks ------------------------------------------------------------------------------------------------
# Where a notice may stand, how far back it is looked for first, and how far at most (bytes); how long a log may be silent (seconds).
TRANSCRIPTS = ("/transcript_full.jsonl", "/transcript.jsonl")
TAIL, BLOCK, FARTHEST, SILENCE = 1 << 18, 1 << 20, 1 << 30, 300
RESTARTED = "[Notice] All your subagents and background tasks have been stopped due to server restart"
STARTED, INPUT_WANTED = "Tool is running as a background task with task id: ", "The command appears to be waiting for input"
ENDINGS = (" finished with result:", " failed with result:", " was canceled with result:")
TELLING = (b'SYSTEM_MESSAGE"', b'"RUNNING"', b"Status: ", b"cancelled.")  # one of these stands in each line that may be a notice
PROGRESS = ("running", "reported", "waiting", "stopped", "finished")  # what a notice says, least to most


def task_state(world, logs_folder, number, log_path=None):
    """"running", "finished" or "waiting" (it runs, and its newest notice says that it waits for input) for background task `number`.

    logs_folder: <brain>/.system_generated/logs; log_path: the task's log where it is not ../tasks/task-<n>.log. The transcript decides; with
    no notice of an end, a log that has not been written for 5 minutes means finished, and so does a task that left no trace (transcript.md §4)."""
    state = task_notice(logs_folder, number)
    if state in ("finished", "stopped", "waiting"):
        return "waiting" if state == "waiting" else "finished"
    try:
        silent = world.now - posix.stat(log_path or f"{logs_folder}/../tasks/task-{number}.log").st_mtime
    except (OSError, ValueError):
        silent = 0 if state else SILENCE
    return "finished" if silent >= SILENCE else "running"


def task_notice(logs_folder, number):
    """One of PROGRESS, what the newest notice on a task in the two transcript files says, or None. "stopped": a restart of the server, where no
    start of this task was seen. Tails first; the whole files where these say nothing."""
    conversation = logs_folder.replace("\\", "/").rstrip("/").split("/")[-3:][0]
    for reach in (TAIL, FARTHEST):
        found = filter(None, [newest_notice(logs_folder + name, f"{conversation}/task-{number}", reach) for name in TRANSCRIPTS])
        found = [(as_text(row.get("created_at")), PROGRESS.index(state)) for state, row in found]
        if found:  # either file may have lost lines or begun anew (transcript.md §3): the later notice is right
            return PROGRESS[max(found)[1]]
    return None


def newest_notice(path, task, reach):
    """(state, row) of the last line that is a notice on `task` ("<conversation>/task-<n>") in the last `reach` bytes of a file, or None. Later
    lines win over higher indexes: after a rewind old numbers come back."""
    number, stopped = int(task.rpartition("-")[2]), None
    needles = (b"/task-%d" % number, RESTARTED[-29:].encode())
    for block, first in blocks_from_end(path, reach):
        for at, line in lines_with(block, first, needles):
            row = read_row(line) if any(mark in line for mark in TELLING) else None
            state = row and notice_in(row, task, number, block, at)
            if state == "stopped":
                stopped = stopped or row
            elif state:
                return "finished" if stopped else state, row
        if stopped:
            return "stopped", stopped
    return None


def blocks_from_end(path, reach):
    """(bytes, offset of the first whole line) for blocks of the last `reach` bytes of a regular file, the last block first. Not mapped into memory:
    the host may cut the file at any time, and a mapped page that is gone ends the process. Not joined either: copies take longer than the search."""
    if file_kind(path) != "file":
        return
    try:
        with open(path, "rb", 0) as file:
            end, size = file.seek(0, 2), min(BLOCK, reach)
            floor = max(0, end - reach)
            while end > floor:
                start = max(floor, end - size)
                file.seek(start)
                block = file.read(end - start) or b""
                first = block.find(b"\n", 0, len(block) - 1) + 1 if start > floor else 0
                if start > floor and not first and size < 1 << 26:
                    size *= 2  # one line fills the block
                    continue
                yield block, first
                end, size = start + first, min(BLOCK, reach)
    except (OSError, ValueError):
        return


def lines_with(block, first, needles):
    """(offset, line) of each line of a block, from offset `first` on, that holds one of the needles; the last line first."""
    hits = [block.rfind(needle, first) for needle in needles]
    while max(hits) >= 0:
        start, line = line_at(block, max(hits))
        yield start, line
        hits = [block.rfind(needle, first, start) if hit >= start else hit for needle, hit in zip(needles, hits)]


def line_at(block, offset):
    start, stop = block.rfind(b"\n", 0, offset) + 1, block.find(b"\n", offset)
    return start, block[start:stop if stop >= 0 else None]


def read_row(line):
    """One transcript line as a dict; {} where it is damaged or none."""
    try:
        row = parse_json(line.decode("utf-8", "replace").strip("\ufeff\0 \r\n"))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def notice_in(row, task, number, block, at):
    """One of PROGRESS where this row is the host's own notice on `task`, else None: its type, source, index and shape must be those of a notice,
    as the same words stand in prompts, answers and outputs as well."""
    text, index = row.get("content"), row.get("step_index")
    if not isinstance(text, str):
        return None
    if row.get("type") == "SYSTEM_MESSAGE":
        return system_notice(text, task) if row.get("source") == "SYSTEM" else None
    while text.startswith(("Created At: ", "Completed At: ", "\n", "\r")):
        text = text.partition("\n")[2]
    first, _, rest = text.partition("\n")
    if row.get("source") != "MODEL" or row.get("type") == "PLANNER_RESPONSE":
        return None
    if row.get("status") == "RUNNING":
        return "running" if index == number and first.startswith(STARTED) and first.rstrip().endswith(f"/task-{number}") else None
    told = f'Task "{task}" cancelled.' in first or first.strip() == "Task: " + task and rest.startswith(("Status: DONE", "Status: ERROR"))
    return "finished" if told and answers_manage_task(block, at, index) else None


def system_notice(text, task):
    """What a SYSTEM_MESSAGE says on a task: only its first sender= counts, and the text right behind the first content=."""
    head, sent, rest = text.partition("sender=")
    if RESTARTED in head:
        return "stopped"
    sender, _, rest = rest.partition(" ")
    if not sent or sender.casefold() != task.casefold():
        return None
    said = rest.partition("content=")[2].lstrip()
    if said.startswith(tuple(f'Task id "{sender}"{ending}' for ending in ENDINGS)):
        return "finished"
    return "waiting" if INPUT_WANTED in said[:2000] else "reported"


def answers_manage_task(block, at, index):
    """Whether the row at offset `at` is the result of a manage_task call: result p+1+k belongs to call k of the model row p (transcript.md §3).
    Its text alone proves nothing, newer builds write every result as GENERIC and an MCP tool may answer anything."""
    for back in range(8) if isinstance(index, int) else ():
        for form in (b'"step_index":%d,', b'"step_index": %d,'):
            hit = block.rfind(form % (index - 1 - back), max(0, at - TAIL), at + TAIL)
            calls = read_row(line_at(block, hit)[1]).get("tool_calls") if hit >= 0 else None
            if isinstance(calls, list):
                return len(calls) > back and isinstance(calls[back], dict) and calls[back].get("name") == "manage_task"
    return False


# Seconds between the k-th allowed check and the next; the shortest timer on a task; the denied checks from which on the user is asked.
WINDOWS, SHORTEST, MOST_STRIKES = (0, 30, 75, 188, 469, 600), 30, 5
# Words of a timer's prompt: what is done, to what; in a question or a condition, how that is; who is reminded where it is not the user.
CHECKING = frozenset("""check checks checked checking recheck rechecking poll polls polled polling wait waits waited waiting await awaits awaiting
    watch watches watched watching monitor monitors monitored monitoring status verify verifies verifying inspect inspects inspecting
    look looking follow following progress tail""".split())
WATCHED = frozenset("task tasks process processes subprocess subprocesses job jobs build builds test tests command commands subagent subagents".split())
CONDITIONS = frozenset("if whether until till when once after is are has have did".split())
ENDED = frozenset("done finish finishes finished complete completes completed end ends ended over ready running run pass passes passed fail failed"
                  " succeeded stopped exited".split())
SELF = frozenset("me myself yourself agent assistant".split()) | CHECKING


def polling(call, world):
    """The guard: a check that comes inside its window, and a timer or cron schedule that polls sooner than the window, add a strike and are
    denied; from the fifth strike on the user is asked. The window runs from the last allowed check, so no denial moves it."""
    found = check_of(call)
    if found is None:
        return None
    what, covers, task = found
    free = task if task is not None and task_notice(logs_of(call), task) == "finished" else None
    verdict = in_ledger(world, call.conversation, lambda ledger: weigh(ledger, world.now, call, covers, free))
    return None if verdict is None else too_early(call, what, *verdict)


def weigh(ledger, now, call, covers, free):
    """Counts one check. covers: the seconds that the call itself lets pass, or None; free: the number of a task known to have finished, or None.
    None where it may pass, else (seconds left, strikes, shortest span that would pass)."""
    window = WINDOWS[min(ledger["checks"], len(WINDOWS) - 1)]
    need = max(window, SHORTEST)
    if covers is not None and covers >= need:
        return None
    if free is not None and free not in ledger["free"]:
        ledger["free"] = ledger["free"][-199:] + [free]
        return None
    left = -int(-(window - max(0, now - ledger["last_check"])) // 1)
    due = left <= 0 and call.tool != "schedule"
    ledger["pending"] = [entry for entry in ledger["pending"] if entry[0] != call.step][-7:]
    if due and ledger["strikes"] < MOST_STRIKES:
        ledger["checks"], ledger["last_check"] = ledger["checks"] + 1, now
        return None
    ledger["strikes"] += not due
    if ledger["strikes"] >= MOST_STRIKES:
        ledger["pending"].append([call.step, call.tool, digest(write_json(call.args))])
    return max(left, 0), ledger["strikes"], need


def too_early(call, what, left, strikes, need):
    """The denial of a check, at most 400 bytes."""
    waits = waiting_task(logs_of(call))
    told = f"a timer or cron on a task must leave {need} s or more" if call.tool == "schedule" else f"{left} s left until the next check"
    text = f"{what}: {told}. The host wakes you by itself when the task ends: end your turn. kill and send_input are free. "
    if waits is not None:
        text += f'task-{waits} waits for input: manage_task {{"Action": "send_input", "TaskId": "task-{waits}", "Input": "y"}}'
    else:
        text += f'Or set one timer: schedule {{"Prompt": "Check the task", "DurationSeconds": "{need}", "TimerCondition": "any"}}'
    if strikes >= MOST_STRIKES:
        return force_ask("polling", f"Strike {strikes}, the user decides. {text}")
    return deny("polling", text)


def add_strike(call, world):
    """Counts a strike for a check that another guard denied, as reading the log of a running task; returns the strikes so far. Moves no window."""
    def strike(ledger):
        ledger["strikes"] += 1
        return ledger["strikes"]
    return in_ledger(world, call.conversation, strike)


def post_tool_use(call, world):
    """PostToolUse: a check that went out as force_ask has run, so the user approved it: it counts as allowed and the strikes end. It is known by
    its step, where the host names none by tool and arguments; toolCall may be null, tool is "" then (host.md §3). Any other call writes nothing."""
    path = f"{world.state}/ledger/{conversation_key(call.conversation)}.json"
    if any(is_about(entry, call) for entry in read_ledger(read_file(path, 1 << 20), world.now)["pending"]):
        in_ledger(world, call.conversation, lambda ledger: approve(ledger, call, world.now))


def approve(ledger, call, now):
    kept = [entry for entry in ledger["pending"] if not is_about(entry, call)]
    if len(kept) < len(ledger["pending"]):  # else another process was faster
        ledger["pending"], ledger["strikes"], ledger["checks"], ledger["last_check"] = kept, 0, ledger["checks"] + 1, now


def is_about(entry, call):
    """Whether a pending entry [step, tool, digest of the arguments] is about this call."""
    if call.tool and call.tool != entry[1]:
        return False
    if isinstance(call.step, int) and entry[0] is not None:
        return call.step == entry[0]
    return bool(call.tool) and digest(write_json(call.args)) == entry[2]


def in_ledger(world, conversation, rule):
    """What rule(ledger) returns. The ledger as the rule leaves it is saved under its lock, so of 32 simultaneous first checks one passes; where
    that cannot be done, the decision stands on what is known."""
    answers = []

    def change(data):
        ledger = read_ledger(data, world.now)
        before = write_json(ledger)
        answers.append(rule(ledger))
        after = write_json(ledger)
        return None if after == before else after.encode()

    name = conversation_key(conversation) + ".json"
    try:
        update_file(state_path(world, "ledger", name), change)
        sweep(world.state + "/ledger", name)
    except OSError:
        if not answers:
            change(read_file(f"{world.state}/ledger/{name}"))
    return answers[0]


def read_ledger(data, now):
    """A ledger's bytes as {"checks", "last_check" (epoch seconds), "strikes", "free": numbers of finished tasks whose free status call is used,
    "pending": [[step, tool, digest of the arguments]] of checks that the user was asked about}. What is broken, foreign or dated in
    the future counts as none."""
    try:
        value = parse_json(data.decode("utf-8-sig")) if data else {}
    except (ValueError, RecursionError):
        value = {}
    value = value if isinstance(value, dict) else {}
    number = lambda item: item if isinstance(item, (int, float)) and not isinstance(item, bool) and 0 <= item < 1e12 else 0
    items = lambda key, kind: [item for item in value.get(key) or () if isinstance(item, kind)] if isinstance(value.get(key), list) else []
    last = number(value.get("last_check"))
    return {
        "checks": int(number(value.get("checks"))), "last_check": last if last <= now + 60 else 0, "strikes": int(number(value.get("strikes"))),
        "free": items("free", int), "pending": [entry for entry in items("pending", list) if len(entry) == 3],
    }


def sweep(folder, written):
    """At most once a day: removes ledgers untouched for 30 days, and their locks. The time is that of the ledger just written, so that a clock
    that stands wrong removes nothing in use."""
    marker, now = folder + "/.swept", posix.stat(f"{folder}/{written}").st_mtime
    if file_kind(marker) and abs(now - posix.stat(marker).st_mtime) < 86400:
        return
    posix.close(posix.open(marker, posix.O_CREAT | posix.O_WRONLY | getattr(posix, "O_NOFOLLOW", 0), 0o600))  # OSError where it is a planted link
    posix.utime(marker, (now, now))
    names = set(posix.listdir(folder)[:4000])
    old = {name for name in names if ".json" in name and now - posix.lstat(f"{folder}/{name}").st_mtime > 30 * 86400}
    for name in old:  # the lock of a ledger in use is as old as the conversation, and must stay
        if not name.endswith(".lock") or name[:-5] in old or name[:-5] not in names:
            posix.unlink(f"{folder}/{name}")


def logs_of(call):
    path = call.transcript.replace("\\", "/")
    return path.rpartition("/")[0] if "/logs/" in path else call.artifacts + "/.system_generated/logs"


def waiting_task(logs_folder):
    """The number of the task whose notice that it waits for input is the newest of that kind, if it still does, or None."""
    for name in TRANSCRIPTS:
        for block, first in blocks_from_end(logs_folder + name, TAIL):
            for _, line in lines_with(block, first, (INPUT_WANTED.encode(),)):
                row = read_row(line)
                sender = str(row.get("content")).partition("sender=")[2].partition(" ")[0]
                number = task_number(sender)
                if number is not None and row.get("type") == "SYSTEM_MESSAGE" and task_notice(logs_folder, number) == "waiting":
                    return number
    return None


def task_number(value, conversation=None):
    """8 of "task-8" and "<conversation>/task-8", None of anything else, as of delivery-1."""
    owner, slash, name = unquote(as_text(value).strip()).rpartition("/")
    own = conversation is None or not slash or owner == conversation
    return int(name[5:]) if own and name.startswith("task-") and name.isascii() and name[5:].isdigit() and len(name) < 15 else None


def as_seconds(value):
    """A number, or one in a string ("10", "10 s", "2m"), in seconds; None of anything else."""
    text = str(value).strip(" \"'").lower() if isinstance(value, (str, int, float)) else ""
    digits = text.rstrip(" acdehimnorstuy")  # s, sec, seconds, minutes, hours
    return seconds(digits.rstrip() + text[len(digits):].strip()[:1])


def check_of(call):
    """What a call checks: None, or (what to call it, seconds that it lets pass by itself or None, task number of a status call or None)."""
    action, args = unquote(as_text(call.args.get("Action")).strip()).lower(), call.args
    if call.tool == "manage_task" and action == "status":
        return "Status check", None, task_number(args.get("TaskId"), call.conversation)
    if call.tool in ("manage_task", "manage_subagents"):
        return ("Status check", None, None) if action == "list" else None
    if call.tool == "command_status":
        return "Status check", as_seconds(args.get("WaitDurationSeconds")) or 0, None
    if call.tool == "schedule":
        spans = [s for s in (as_seconds(args.get("DurationSeconds")), cron_gap(args.get("CronExpression"))) if s is not None]
        watches = names_task(args.get("TimerCondition")) or speaks_of_polling(args.get("Prompt"))
        return (f"{min(spans):g} s is too short", min(spans), None) if spans and watches else None
    what = "" if is_daemon(call) else foreground_wait(call.commands)
    return (what, None, None) if what else None


def names_task(condition):
    words = "".join(c if c.isalnum() or c == "-" else " " for c in as_text(condition)[:4000].lower()).split()
    return any(task_number(word) is not None for word in words)


def speaks_of_polling(prompt):
    """Whether a timer's prompt speaks of checking a task, job, build and the like. Words are whole words (the latest is no test), and a reminder for
    the user is none."""
    words = "".join(c if c.isalnum() else " " for c in as_text(prompt)[:4000].casefold()).split()
    for i, word in enumerate(words):
        behind = words[i + 1:i + 9]
        to_user = word in ("tell", "ask", "notify", "alert", "prompt", "reminder") and "user" in behind[:3]
        if to_user or word in ("remind", "nudge") and SELF.isdisjoint(behind[:2]):
            return False
        asked = word in CONDITIONS and not ENDED.isdisjoint(behind) and not WATCHED.isdisjoint(behind)
        if asked or word in CHECKING and not WATCHED.isdisjoint(words[max(0, i - 8):i] + behind):
            return True
    return False


def cron_gap(expression):
    """The shortest time between two firings of a cron expression in seconds (5 fields, or 6 with seconds first, @hourly, @every 90s), or None
    where it cannot be read. Days matter only for the gap over midnight."""
    fields = [f for f in unquote(as_text(expression).strip()).split() if not f.startswith(("TZ=", "CRON_TZ="))]
    if fields[:1] == ["@every"]:
        parts = "".join(fields[1:]).replace("ms", "*0 ").replace("h", "*3600 ").replace("m", "*60 ").replace("s", "*1 ").split()
        return sum((as_seconds(part.partition("*")[0]) or 0) * int(part.partition("*")[2] or 0) for part in parts) or None
    if len(fields) == 1 and fields[0][0] == "@":
        return 3600 if fields[0] == "@hourly" else 86400
    if len(fields) < 5:
        return None
    try:
        second, minute, hour = map(cron_field, ["0"] + fields if len(fields) == 5 else fields, (60, 60, 24))
    except ValueError:
        return None
    times = [h * 3600 + m * 60 + s for h in hour for m in minute for s in second]
    if set(fields[-3:]) <= {"*", "?"}:
        times.append(times[0] + 86400)
    return min([b - a for a, b in zip(times, times[1:])], default=86400)


def cron_field(text, size):
    """The sorted values of one field; ValueError where it is none."""
    values = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = ("0", "-", str(size - 1)) if span in ("*", "?") else span.partition("-")
        last = last if dash else str(size - 1) if step else first
        if not 0 <= int(first) <= int(last) < size:
            raise ValueError(text)
        values.update(range(int(first), int(last) + 1, max(1, int(step or 1))))
    return sorted(values)


FOREVER = float("inf")
IDLE = frozenset("sleep gsleep start-sleep : true false [ [[ test echo printf date".split())
LOOKING = IDLE | frozenset("grep egrep pgrep pidof ps kill jobs wait fuser lsof".split())
EXITS = ("break", "exit", "return")
COMPARISONS = frozenset("-lt -le -gt -ge -eq -ne".split())
FOLLOWED = ("docker", "podman", "docker-compose", "kubectl", "oc")


def foreground_wait(commands):
    """What a command line waits for in the foreground ("30 s of sleep", "tail -f", "watch", "an endless loop"), "" for nothing worth a check:
    less than 10 s of sleep in all, what a `timeout` of at most 600 s bounds, what runs in the background, a bounded retry loop."""
    joined = any(command.name == "wait" for command in commands)
    total, bodies = 0, {}
    for command in commands:
        bodies.setdefault(command.loop, []).append(command)
    loops = {loop: read_loop(body if loop else []) for loop, body in bodies.items()}
    for command in commands:
        if command.background and not joined or command.bound is not None and command.bound <= 600:
            continue
        if follows(command.words) and not any(c.source is command and c.name == "head" for c in commands):
            return "tail -f"
        if command.name == "watch" or any(program(w) == "watch" and before[:1] != "-" for before, w in zip([""] + command.outer, command.outer)):
            return "watch"
        pause, loop = pause_of(command), loops[command.loop]
        if pause or command.times == FOREVER and loop.idle:
            total += time_in_loop(pause, command, loop)
    return "" if total < 10 else "an endless loop" if total == FOREVER else f"{total:g} s of sleep"


# limit: how often a while or until loop runs at most, as its counter says, or None; exits: it holds a break; works: it does more than sleep and
# test; idle: it does nothing but look.
Loop = record("Loop", "limit exits works idle")


def read_loop(body):
    """The Loop that a list of its commands makes."""
    names = {command.name for command in body if command.name[:1] != ANY}
    words = [word for command in body if not COMPARISONS.isdisjoint(command.words) for word in command.words]
    counts = any(c.assigned or c.words and c.words[0][-2:] == "++" for c in body) or names & {"let", "expr", "date"}
    counter = counts and words or any(c.words == [ANY] and c.shell == "sh" for c in body)  # (( ))
    limit = 1 if "read" in names else max([int(w[:6]) for w in words if w.isascii() and w.isdigit()], default=1) if counter else None
    return Loop(limit, not names.isdisjoint(EXITS), not names <= IDLE | {"", "read"}, names <= LOOKING and not any(c.assigned for c in body))


def time_in_loop(pause, command, loop):
    """Seconds that a command which takes `pause` takes in all; 0 for a bounded retry loop."""
    if command.times == FOREVER:
        total = FOREVER if loop.limit is None else pause * loop.limit
    else:
        values = sum(seconds(word) is not None for word in command.words) if command.times > 1 else 1  # sleep $i has all values of i in its words
        total = pause * command.times / max(1, values)
    return 0 if total <= 600 and (loop.exits or command.times == FOREVER and loop.works) else total


def follows(words):
    """Whether this is a tail -f, or its like: journalctl -f, docker logs -f, kubectl logs -f, Get-Content -Wait."""
    name = program(words[0]) if words else ""
    if name in ("get-content", "gc"):
        return any(word.lower() == "-wait" for word in words)
    logs = words.index("logs") + 1 if name in FOLLOWED and "logs" in words else 0
    flags = words[logs or 1:] if logs or name in ("tail", "gtail", "journalctl") else []
    flags = flags[:flags.index("--")] if "--" in flags else flags
    return any(word.startswith("--follow") or word[:1] == "-" != word[1:2] and ("f" in word or "F" in word) for word in flags)


def pause_of(command):
    """Seconds that one run of this command sleeps, as far as its words say."""
    name, words = command.name, command.words
    if name in ("sleep", "gsleep", "start-sleep"):
        scale = 0.001 if any(word.lower().startswith("-m") for word in words) else 1
        return sum(seconds(word) or 0 for word in words[1:]) * scale
    whole = [word.lower() for word in command.outer[-2:] + words]
    if whole and program(whole[0]) == "timeout" and ("/t" in whole or len(whole) == 2):  # timeout /t 30 in cmd
        return sum(seconds(word) or 0 for word in whole)
    if name == "ping" and {"localhost", "127.0.0.1", "::1"} & set(words):  # how cmd sleeps without a console
        return sum(seconds(count) or 0 for flag, count in zip(words, words[1:]) if flag in ("-n", "-c"))
    language = name.rstrip("0123456789.")
    return script_pause(inline_code(command, INLINE[language].split()), language) if language in INLINE else 0


def script_pause(script, language):
    """Seconds that inline code sleeps, by its sleep and setTimeout calls, range() and `while True` around them, and the commands it runs."""
    if "sleep" not in script and "setTimeout" not in script:
        return 0
    tokens, total, times = code_tokens(script), 0, 1
    given = {name: value for (_, name), sign, (_, value) in zip(tokens, tokens[1:], tokens[2:]) if sign[0] == "="}
    for i, (kind, text) in enumerate(tokens):
        name = text.rpartition(".")[2] if kind == "n" else ""
        if name not in ("while", "range", "sleep", "setTimeout") and CODE_CALLS.get(name) != "run":
            continue
        part = tokens[i + 1:i + 60]
        part = part[:code_end(part, 0, part[:1] == [("(", "(")])]
        words = [given.get(word, word).replace("_", "") for kind, word in part if kind == "n"]
        numbers = [n for n in [seconds(word) for word in words if word[:1].isdigit() or word[:1] == "."] if n is not None]
        if name == "while" and {"True", "true", "1", "not"} & {word for _, word in part[:2]}:
            times = FOREVER
        elif name == "range":
            times *= max(numbers, default=1)
        elif CODE_CALLS.get(name) == "run":
            total += sum(map(pause_of, read_commands(" ".join([word for kind, word in part if kind == "s"]), None, "", {})[0]))
        elif numbers and ("/", "/") not in part:
            product = 1
            for number in numbers if name == "sleep" else numbers[-2 if ("*", "*") in part[-4:] else -1:]:
                product *= number
            total += product * times * (0.001 if language in ("node", "bun", "deno") else 1) if product else 0
    exits = any(text in EXITS for kind, text in tokens if kind == "n")
    return 0 if exits and 1 < times and total <= 600 else total


# ---- The guard table ------------------------------------------------------------------------------------------------------------------
# id: as in the configuration's "off" and in AGY_OFF. tools: the names it looks at. function(call, world) -> Decision or None. stops, passes:
# example calls, (tool, arguments) or a command line, that the tests run. polling comes last: it counts what it lets pass.
Guard = record("Guard", "id tools function stops passes")
GUARDS = [
    Guard("internal-state", (
        "run_command", "view_file", "list_dir", "grep_search", "find_by_name", "write_to_file", "replace_file_content", "multi_replace_file_content",
        "call_mcp_tool", "view_file_outline", "view_code_item", "codebase_search", "read_file", "read_many_files", "read_resource",
    ), internal_state, stops=(
        ("view_file", {"AbsolutePath": "{SG}/logs/transcript.jsonl", "StartLine": 1, "EndLine": 5}), "cat {SG}/logs/transcript.jsonl | head -5",
        "grep -r error {HOME}/.gemini/antigravity/brain", "cd {BRAIN} && ls -R", "rtk read {SG}/tasks/task-8.log",
    ), passes=(
        ("view_file", {"AbsolutePath": "{SG}/steps/15/output.txt", "StartLine": 1, "EndLine": 100}), "rtk read {SG}/tasks/task-2.log",
        'git commit -m "guard .system_generated/ from reads"', "ls ~/.gemini/config", "grep -r .system_generated docs",
    )),
    Guard("bounded-reads", tuple(MEASURES), bounded_reads, stops=(
        ("view_file", {"AbsolutePath": "{WS}/src/big.py"}), ("view_file", {"AbsolutePath": "{WS}/src/big.py", "StartLine": 100, "EndLine": 250}),
        ("list_dir", {"DirectoryPath": "{WS}/many"}), ("find_by_name", {"SearchDirectory": "{WS}", "Pattern": "*.py"}),
        ("grep_search", {"SearchPath": "{WS}", "Query": "def f1", "MatchPerLine": True}),
    ), passes=(
        ("view_file", {"AbsolutePath": "{WS}/src/big.py", "StartLine": 1, "EndLine": 150}), ("view_file", {"AbsolutePath": "{WS}/src/exact.txt"}),
        ("view_file", {"AbsolutePath": "{WS}/AGENTS.md"}), ("view_file", {"AbsolutePath": "{WS}/logo.png"}),
        ("list_dir", {"DirectoryPath": "{WS}/few"}), ("grep_search", {"SearchPath": "{WS}/few", "Query": "x", "MatchPerLine": True}),
        "cat {WS}/src/big.py",
    )),
    Guard("evaluation", ("run_command", *WRITE_TOOLS), evaluation, stops=(
        ("write_to_file", {"TargetFile": "{WS}/ground_truth/answers.json", "CodeContent": "x"}), "cp /tmp/x ground_truth/answers.json",
        "sed -i 's/0/1/' ground_truth/answers.json", "python3 benchmarks/run.py && rm benchmarks/task_01.json",
    ), passes=(
        ("write_to_file", {"TargetFile": "{WS}/src/small.py", "CodeContent": "x"}), "cat ground_truth/answers.json > /tmp/y",
        "cp ground_truth/answers.json /tmp/", 'git commit -m "rm ground_truth/answers.json"',
    )),
    Guard("own-files", ("run_command", *WRITE_TOOLS), own_files, stops=(
        ("write_to_file", {"TargetFile": "{HOME}/.gemini/config/hooks.json", "CodeContent": "x"}), "rm -rf ~/.gemini/antigravity/agy_state",
        "cp agy_hook.py ~/.gemini/antigravity/", "mv ~/.gemini /tmp/x",
    ), passes=(
        ("write_to_file", {"TargetFile": "{WS}/agy_hook.py", "CodeContent": "x"}), "python3 ~/.gemini/antigravity/agy_mcp.py status",
        "cat ~/.gemini/config/hooks.json", "cp ~/.gemini/config/hooks.json /tmp/",
    )),
    Guard("polling", ("manage_task", "manage_subagents", "command_status", "schedule", "run_command"), polling, stops=(
        ("schedule", {"DurationSeconds": "10", "Prompt": "check on the background task", "TimerCondition": "task-8"}),
        ("schedule", {"CronExpression": "*/10 * * * * *", "Prompt": "poll the running job"}),
    ), passes=(
        ("manage_task", {"Action": "status", "TaskId": "task-8"}), ("manage_task", {"Action": "kill", "TaskId": "task-8"}),
        ("schedule", {"DurationSeconds": "5", "Prompt": "Remind the user to review the pull request"}),
        "sleep 2 && curl -s localhost:8080", "timeout 60 sh -c 'until curl -sf localhost:8080; do sleep 1; done'",
    )),
]


def switched_off(world):
    """The ids that the configuration ("off") and AGY_OFF (separated by commas or blanks) switch off."""
    named = world.env.get("AGY_OFF", "").replace(",", " ").split()
    return set(named + [item for item in world.config.get("off", ()) if isinstance(item, str)])


def run_guards(call, world, guards=None):
    """The strictest Decision of all guards, the first of equals, or None; behind a denial none is asked, as a call that does not run is no check.
    A guard that fails asks: neither a silent pass nor a brick wall."""
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
        if found and found.decision == "deny":
            break
    return verdict


# ---- Rewriting ------------------------------------------------------------------------------------------------------------------------
# What one event led to. decision: Decision, or None for no objection; refused: why rtk's answer is not used, or ""; fresh: (key, code, text) for
# the cache, or None; fault: what went wrong, or "".
Outcome = record("Outcome", "decision refused fresh fault")
NO_OBJECTION = Outcome(None, "", None, "")
WAIT_MS = 10000  # the host's ceiling (host.md §4)
RTK_SECONDS, RTK_BYTES = 1.5, 1 << 20
LONGEST_ARGUMENT = 131071  # bytes, Linux; more cannot be handed to a process (rtk.md §1)
CACHE_ENTRIES, CACHE_TEXT, CACHE_HEAD, CACHE_TAIL = 500, 4096, b'{"version": 1, "entries": [\n', b"\n]}\n"
CACHE_CODES = (b'", 0, "', b'", 1, "', b'", 3, "')
RTK_FOLDERS = ("~/.local/bin", "~/.cargo/bin", "/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin", "~/.gemini/antigravity/bin")
RTK_CONFIGS = ("~/.config/rtk/config.toml", "~/Library/Application Support/rtk/config.toml")
RTK_VARIABLES = ("RTK_", "CLAUDE_", "GIT_", "XDG_", "APPDATA", "HOME", "PATH", "USERPROFILE")
SECRET_NAMES = ("password", "passwd", "passphrase", "token", "secret", "credential", "api_key", "apikey", "api-key", "access_key", "access-key",
                "private_key", "private-key", "cookie")
SECRET_SIGNS = ("bearer ", "authorization", "-----begin", "pass=", "--pass ", "pwd=", "sshpass")
SECRET_STARTS = ("ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-", "sk_live", "xoxb-", "xoxp-", "AKIA", "ASIA", "AIza", "eyJ",
                 "npm_", "pypi-", "hf_")


def rewrite(call, world):
    """The Outcome of a run_command call that no guard objects to. Asks the cache, else `rtk rewrite -- COMMAND` once (exit codes: rtk.md §1)."""
    command, folder = as_text(call.args.get("CommandLine")), call.cwd or world.home
    rtk, word = find_rtk(world) if is_askable(command) else ("", "")
    if not word or is_rtk(command, word) or not is_rooted(folder):
        return NO_OBJECTION
    try:
        back = posix.getcwd()
        posix.chdir(folder)  # rtk reads its rules from where it runs, symlinks resolved
    except (OSError, ValueError):  # the command would not start there either
        return NO_OBJECTION
    try:
        key = "" if holds_secret(command) else cache_key(command, rtk, posix.getcwd(), world)
        found = cached_answer(key, world) if key else None
        code, text = found or ask_rtk(rtk, command, world.env)
        fresh = (key, code, text) if key and not found and code in (0, 1, 3) and len(text) <= CACHE_TEXT else None
        return Outcome(*judge_answer(call, code, text, word, world), fresh, "")
    finally:
        posix.chdir(back)


def is_askable(command):
    """Whether rtk can be asked about it. It panics on a lone surrogate, which the host would not hand on unchanged either."""
    try:
        return bool(command.strip()) and "\0" not in command and len(command.encode()) <= LONGEST_ARGUMENT
    except UnicodeEncodeError:
        return False


def is_rtk(command, word):
    """Whether a command is nothing but one call of rtk."""
    first = command.strip()
    if any(c in first for c in ";&|\n"):
        return False
    quote = first[0] if first[0] in "'\"" else None
    return first.startswith(word + " ") or program(first[1:].split(quote)[0] if quote else first.split(None, 1)[0]) == "rtk"


def judge_answer(call, code, text, word, world):
    """(Decision or None, why the rewrite is refused or "") for rtk's exit code (-1: none) and stdout."""
    command = call.args["CommandLine"]
    if code == 2:
        if text.strip():
            return deny("rtk", text.strip()), ""
        return ask("rtk", "a deny rule in rtk's permission settings (.claude/settings.json) matches this command; approve it to run it unchanged"), ""
    if code not in (0, 3) or not text.strip() or text == command:
        return None, ""
    refused, text = check_rewrite(command, text, word, posix.getcwd() if call.cwd else None, world)
    if refused or text == command:
        return None, refused
    overwrite = {"CommandLine": text}
    if not is_daemon(call) and number(call.args.get("WaitMsBeforeAsync")) < WAIT_MS:
        overwrite["WaitMsBeforeAsync"] = WAIT_MS
    return Decision("allow", "", overwrite, "rewrite"), ""


def is_daemon(call):
    return is_set(call.args.get("IsDaemon")) or is_set(call.args.get("RunPersistent"))


def is_set(value):
    return value not in (None, False, 0, "", "false", "False", "0")


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0


def find_rtk(world):
    """(absolute path, the word to write into a command) or ("", ""): configuration, PATH, the usual places. It is not started for that."""
    name = "rtk.exe" if sys.platform == "win32" else "rtk"
    told = tool_path(world.config.get("rtk"), None, world.home)
    folder = "" if is_program(told) else folder_on_path(name, world)
    if folder:
        return folder + "/" + name, "rtk"
    usual = [tool_path(folder, None, world.home) + "/" + name for folder in RTK_FOLDERS]
    path = next(filter(is_program, [told, *usual]), "")
    return path, path and quote_program(path)


def folder_on_path(name, world):
    """The folder on PATH in which a program is found first, or ""."""
    separator = ";" if sys.platform == "win32" else ":"
    return next((folder for folder in world.env.get("PATH", "").split(separator) if is_program(folder + "/" + name)), "")


def is_rooted(path):
    return path[:1] == "/" or path[1:2] == ":"


def is_program(path):
    """Whether an absolute path is a file that may be run. A relative entry of PATH means another file in every folder: never rtk."""
    return is_rooted(path) and file_kind(path) == "file" and posix.access(path, posix.X_OK)


def quote_program(path):
    """A path as one shell word, or "". cmd and PowerShell quote differently: there only what needs no quotes is usable."""
    if sys.platform == "win32":
        return path if all(c.isalnum() or c in "/._-+:\\" for c in path) else ""
    return quote_shell(path)


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
    pause = 0.0001
    while True:
        done, status = posix.waitpid(child, posix.WNOHANG)
        if done:
            return 256 + (status & 0x7F) if status & 0x7F else status >> 8
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


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
    if len(text) > 1 << 17 or [sign for sign in SECRET_SIGNS if sign in low] or "curl" in low and (" -u" in low or "--user" in low):
        return True
    return bool([name for name in SECRET_NAMES if name in low and is_given(low, name)]) or has_url_login(low) or has_key(text)


def is_given(low, name):
    """Whether `name` is a variable, header or option that gets a value: TOKEN=, token: or --token."""
    for piece in low.replace("'", " ").replace('"', " ").split():
        _, found, after = piece.partition(name)
        after = after.lstrip("abcdefghijklmnopqrstuvwxyz0123456789_-")
        if found and (piece.startswith("-") or after[:1] == "=" or after[:1] == ":" and after[:2] != "::"):
            return True
    return False


def has_url_login(low):
    return any("@" in part.replace("?", "/").replace(" ", "/").partition("/")[0] for part in low.split("://")[1:])


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
    names = (folder.replace("\\", "/") if sys.platform == "win32" else folder).rstrip("/").split("/")
    upward = ["/".join(names[:n]) + "/.claude" for n in range(len(names), 0, -1)]
    files = [rtk, folder + "/composer.json", *rtk_configs(world)]
    for place in [world.home + "/.claude", env.get("CLAUDE_CONFIG_DIR", ""), env.get("GIT_WORK_TREE", "") + "/.claude", *upward]:
        if file_stamp(place):  # one look instead of two at the many folders that have none
            files += place + "/settings.json", place + "/settings.local.json"
    parts = [f"{name}={value}" for name, value in sorted(env.items()) if name.startswith(RTK_VARIABLES)]
    return digest("\0".join([command, *parts, *[name + stamp for name in files if (stamp := file_stamp(name))]]))


def rtk_configs(world):
    """Where rtk may look for its config.toml."""
    below = [folder for folder in (world.env.get("XDG_CONFIG_HOME"), world.env.get("APPDATA")) if folder]
    return [tool_path(name, None, world.home) for name in RTK_CONFIGS] + [folder + "/rtk/config.toml" for folder in below]


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
    """The entries in a cache file, each as one line of bytes; none where the file is broken, and none that looks broken."""
    if not data or not data.startswith(CACHE_HEAD) or not data.endswith(CACHE_TAIL) or not data.isascii():
        return []
    lines = data[len(CACHE_HEAD):-len(CACHE_TAIL)].split(b",\n")
    return [line for line in lines if line[:2] == b'["' and line[34:41] in CACHE_CODES and line[-2:] == b'"]']


# The rewrite check (rtk.md §2). An answer is used only if it is the command with rtk put before command words, or one of few equivalences;
# what it would change beyond that is a kind of refusal, for the log. Spaces count as the shell counts them.
SAFE_WRAPPERS = ("env", "timeout", "gtimeout", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "command", "exec", "uv run")
NPX_FORMS = (("npx",), ("npm", "exec"), ("pnpm", "exec"))
NPX_ROUTES = ("tsc", "eslint", "vitest", "jest", "prettier", "playwright", "prisma", "next")
# What rtk runs, but not as it is meant (each seen with rtk 1.1.0): kind, how the command begins, words of which one makes it so (() for always).
# It shows nothing before the end and hands no keys on, so a question is not seen and a server's log stays empty; some words it does not know.
HELD_BACK = (
    ("interactive", ("git add", "git checkout", "git commit", "git stash push"), ("-p", "--patch", "-i", "--interactive", "-e", "--edit")),
    ("interactive", ("pytest", "python -m pytest", "python3 -m pytest"), ("--pdb", "--trace")),
    ("interactive", ("ssh",), ("-t", "-tt")),
    ("interactive", ("make", "php artisan"), ("menuconfig", "nconfig", "tinker")),
    ("interactive", ("prisma migrate dev", "npx prisma migrate dev", "aws sso login", "gcloud auth login", "gcloud init"), ()),
    ("streams", ("",), ("--watch", "--watchAll", "--ui")),
    ("streams", ("tsc", "npx tsc"), ("-w",)),
    ("streams", ("curl",), ("-N", "--no-buffer")),
    ("streams", ("make run", "just run", "sbt run", "npx playwright codegen", "npx playwright show-report", "npx prisma studio"), ()),
    ("other-output", ("tsc", "npx tsc"), ("--showConfig", "--listFiles", "--listFilesOnly", "--explainFiles", "--traceResolution")),
    ("other-output", ("vitest", "npx vitest"), ("--version", "-v", "--help", "-h", "list", "bench", "init")),
)
RUNNERS = ("npm", "npx", "nx", "turbo", "just", "task", "mise", "sbt", "php", "make", "next", "vitest", "uv")
SERVERS = frozenset(("dev", "develop", "start", "serve", "server", "watch", "preview", "storybook", "nodemon"))
LISTINGS = ("ls", "find", "wc", "tree", "ps")  # rtk sorts, groups or sums up what these print: right to read, wrong to pick a line from
# Commands that open an editor or a prompt, unless one of these options is there: long ones, letters of short ones.
ASKING = (
    ("git commit", ("--message", "--file", "--reuse-message", "--no-edit", "--fixup", "--dry-run", "--help", "--squash"), "mFCh"),
    ("psql", ("--command", "--file", "--list", "--version", "--help"), "cflV?"),
    ("ping", ("--help",), "cwnV"),
)
WINDOWS_NAMES = ("ls", "cat", "ps", "diff", "curl", "wget", "find", "sort", "tree", "tee")  # other programs, or none, in cmd and PowerShell
MOST_READ = 4 << 20
Segment = record("Segment", "items end")  # one simple command: tokens with their place, [(kind, raw, parts, start)], and the operator behind it


def check_rewrite(command, answer, word, folder, world):
    """(kind of refusal or "", the text to run): whether rtk's answer means what the command means, run in `folder` (None: not known). `word` is
    what is written for rtk in the text to run."""
    old, new = segments(command), segments(answer)
    if command.count("\r") != answer.count("\r") or old is None or new is None:
        return "unread", ""
    if [s.end for s in old] != [s.end for s in new]:
        return "operators", ""
    check = RewriteCheck(word, folder, world)
    for before, after, following in zip(old, new, [*old[1:], None]):
        refused = check.segment(before, after, following)
        if refused:
            return refused, ""
    for start, length, text in reversed(check.edits):
        answer = answer[:start] + text + answer[start + length:]
    return ("shadowed", "") if check.shadowed else ("", answer)


def segments(text):
    """The simple commands of a command line, newlines that end nothing left out; None where it could not be read to its end."""
    tokens, unread, _ = scan(text)
    if unread:
        return None
    out, items, at = [], [], 0
    for n, (kind, raw, parts) in enumerate(tokens):
        at = text.find(raw, at)
        if kind != "op":
            items.append((kind, raw, parts, at))
        elif raw != "\n" or items or out and out[-1].end == ")":
            out.append(Segment(items, "" if raw == "\n" and n == len(tokens) - 1 else raw))
            items = []
        at += len(raw)
    return out + [Segment(items, "")] if items else out


def shapes(items):
    """What must be equal: joined lines are one, and a comment's trailing blanks are nothing."""
    return [(kind, raw.rstrip() if kind == "comment" else raw if "'" in raw or '"' in raw else raw.replace("\\\n", "")) for kind, raw, _, _ in items]


def split_redirects(items):
    """(argv, the rest) of a simple command's tokens."""
    argv, rest, target = [], [], False
    for item in items:
        (argv if item[0] == "word" and not target else rest).append(item)
        target = item[0] == "redirect"
    return argv, rest


class RewriteCheck:
    """What is known where a simple command stands: folder (None: not known), folders kept by open parentheses, path ("" as in the environment,
    "changed", or "lost": rtk may not be found any more), pipe: whether it reads one. edits: (start, length, text) for the answer."""
    __slots__ = ("word", "folder", "world", "folders", "path", "pipe", "edits", "shadowed", "cases", "variables")

    def __init__(self, word, folder, world):
        self.word, self.folder, self.world, self.variables = word, folder, world, {}
        self.folders, self.path, self.pipe, self.edits, self.shadowed, self.cases = [], "", False, [], False, False

    def segment(self, before, after, following):
        names = [raw for _, raw, _, _ in before.items[:2]]
        if len(names) == 2 and names[0].lower() == "set" and assigned_name(names[1]):
            return "cmd-set"  # there a blank before the operator becomes part of the value
        refused = self.change(before, after, following) if shapes(before.items) != shapes(after.items) else ""
        self.follow(before, following)
        return refused

    def change(self, before, after, following):
        """The kind of refusal of one changed command, or ""."""
        old, new = shapes(before.items), shapes(after.items)
        at = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), min(len(old), len(new)))
        if before.end == "(" or before.end == ")" and (self.cases or not self.folders):
            return "pattern"
        if len(old) == len(new) and old[at + 1:] == new[at + 1:] and new[at][1] != "rtk":
            return self.script(before.items, after.items, at)
        if at == len(new) or new[at] != ("word", "rtk"):
            return "words"
        refused = self.prefix(before.items[:at])
        (argv, rest), (routed, kept) = split_redirects(before.items[at:]), split_redirects(after.items[at + 1:])
        if refused:
            return refused
        if not argv or shapes(rest) != shapes(kept):
            return "redirects"
        self.edits.append((after.items[at][3], 3, self.word))
        names, others = ([raw for _, raw in shapes(items)] for items in (argv, routed))
        refused = self.veto([unquoted(item[2]) for item in argv], argv, before, following)
        return refused or (self.plain(names) if names == others else self.route(argv, names, others))

    def plain(self, names):
        """`rtk playwright` asks npx for what lies in node_modules, and `rtk npx next` builds, whatever was asked of next."""
        other = names[0] == "playwright" and not self.local_program("playwright") and folder_on_path("playwright", self.world)
        return "other-program" if other or names[0] == "npx" and len(names) > 1 and names[1] in NPX_ROUTES else ""

    def script(self, old, new, at):
        """sh -c '…': the same rules inside, where its quotes hold nothing but text."""
        quote, before, after = old[at][1][:1], old[at][1], new[at][1]
        unsafe = "'" if quote == "'" else '"\\$`'
        plain = quote in ("'", '"') and all(len(t) > 1 and t[0] == t[-1] == quote and not any(c in t[1:-1] for c in unsafe) for t in (before, after))
        if not plain or at < 2 or old[at - 1][1] != "-c" or program(old[at - 2][1]) not in SHELLS or self.pipe:
            return "quoted"
        refused, text = check_rewrite(before[1:-1], after[1:-1], self.word, self.folder, self.world)
        if refused or any(c in text for c in unsafe):
            return refused or "quoted"
        self.edits.append((new[at][3], len(after), quote + text + quote))
        return self.prefix(old[:at - 2])

    def prefix(self, items):
        """Whether only assignments, keywords and known wrappers stand before the command word, and rtk is found there: "" or a kind of refusal."""
        i = 0
        while i < len(items):
            kind, raw = items[i][:2]
            key = raw + " run" if raw == "uv" and i + 1 < len(items) and items[i + 1][1] == "run" else raw
            if kind != "word":
                i += 2
            elif assigned_name(raw):
                i += 1
                if assigned_name(raw) == "PATH" and loses_path(raw) and self.word == "rtk":
                    return "path-lost"
                self.path = self.path or ("changed" if assigned_name(raw) == "PATH" else "")
            elif key in SAFE_WRAPPERS:
                i = self.wrapper(key, items, i + 1 + (key != raw))
            elif raw in OPENERS and raw != "for":
                i += 1
            elif self.transparent(items):
                i = len(items)
            else:
                return "inside"
        if i != len(items):
            return "wrapper"
        return "path-lost" if self.path == "lost" and self.word == "rtk" else ""

    def wrapper(self, key, items, i):
        """The position behind a wrapper's own words, or one that is out of range where it takes away what rtk needs."""
        valued, positions = WRAPPERS[key]
        self.path = self.path or ("changed" if key == "uv run" else "")
        while i < len(items) and (items[i][1][:1] == "-" or key == "env" and assigned_name(items[i][1])):
            raw = items[i][1]
            unset = raw in ("-u", "--unset") and i + 1 < len(items) and items[i + 1][1] == "PATH"
            if key == "env" and (unset or raw in ("-", "-i", "-S") or raw[:3] in ("--i", "--s") or "PATH=" in raw + "=" and loses_path(raw)):
                return len(items) + 1
            self.path = self.path or ("changed" if assigned_name(raw) == "PATH" else "")
            i += 1 + (raw in valued.split())
        return i + positions

    def transparent(self, items):
        """Whether the user told rtk (transparent_prefixes) that these words only wrap a command."""
        words = " ".join(raw for _, raw, _, _ in items)
        data = b"".join(read_file(path, 1 << 20) or b"" for path in rtk_configs(self.world))
        return any((quote + words + quote).encode("utf-8", "replace") in data for quote in "'\"")

    def located(self, value):
        """The absolute path that a word's value names, or None where that is not known."""
        return absolute(value, self.folder) if is_known(value) else None

    def scope(self):
        return Scope(self.folder, self.world.home, self.variables)

    def follow(self, segment, following):
        """What a command does to those behind it."""
        argv = split_redirects(segment.items)[0]
        names = [raw for _, raw, _, _ in argv]
        if all(map(assigned_name, names)):
            self.variables.update({assigned_name(raw): [v.partition("=")[2] for v in expand(parts, self.scope())] for _, raw, parts, _ in argv})
        assigned = [raw for raw in names if assigned_name(raw) == "PATH"]
        if assigned and (len(assigned) == len(names) or names[0] in ("export", "declare", "typeset", "set")):
            self.path = "lost" if self.path == "lost" or loses_path(assigned[-1]) else "changed"
        name = names[0] if names else ""
        if name in ("cd", "pushd", "chdir"):
            values = expand(argv[-1][2], self.scope()) if len(argv) == 2 else [ANY]
            self.folder = self.located(values[0]) if len(values) == 1 and values[0] != "-" else None
        self.folder = None if name == "popd" else self.folder
        self.path = self.path or ("changed" if name in ("source", ".", "eval", "conda", "nvm", "pyenv", "asdf", "unset") else "")
        defines = segment.end == "(" and len(argv) == 1 and following is not None and (following.items, following.end) == ([], ")")  # name ()
        self.shadowed |= defines or name in ("alias", "function")
        self.cases |= name == "case"
        self.pipe = segment.end in ("|", "|&")
        if segment.end == "(":
            self.folders.append(self.folder)
        elif segment.end == ")" and self.folders:
            self.folder = self.folders.pop()

    def veto(self, words, argv, segment, following):
        """Commands that rtk runs, but not as they are meant: a kind of refusal, or ""."""
        head = " ".join([w for w in words[:8] if w[:1] != "-" or w == "-m"]) + " "
        name, parts = words[0], {part for w in words[1:] if w[:1] != "-" for part in w.replace("-", ":").replace(".", ":").split(":")}
        for kind, programs, marks in HELD_BACK:
            if (not marks or any(w in marks for w in words)) and any(not p or head.startswith(p + " ") for p in programs):
                return kind
        if name in RUNNERS and parts & SERVERS or name == "npx" and parts == {"vite"}:
            return "streams"
        if is_asking(words, head):
            return "interactive"
        if name in LISTINGS and segment.end in ("|", "|&") and not is_viewer(following):
            return "piped-listing"
        if sys.platform == "win32" and name in WINDOWS_NAMES:
            return "windows-name"
        return self.operands(name, argv, segment) if name in ("find", "diff", "grep") else ""

    def operands(self, name, argv, segment):
        """Where rtk's own find, diff and grep end with another exit code: a missing folder to start from, a folder, a binary file."""
        judged = segment.end in ("&&", "||")
        careless = not judged and any(raw == "2>" for _, raw, _, _ in segment.items)
        for _, raw, parts, _ in argv[1:]:
            if name == "find" and raw[:1] in ("-", "(", "!", "\\"):
                break
            for value in expand(parts, self.scope()):
                path = self.located(value)
                kind = file_kind(path) if path else ""
                if name == "find" and not careless and (not kind if path else judged):
                    return "missing-start"
                if name == "diff" and kind == "folder" and len(argv) == 3:
                    return "folder"
                if name == "grep" and kind == "file" and b"\0" in (read_file(path, 32768) or b""):
                    return "not-text"
        return ""

    def route(self, argv, old, new):
        """The equivalences: "" where `rtk NEW` does what OLD does."""
        if old[0] in ("cat", "head", "tail"):
            return self.reading(argv, old, new)
        for form in NPX_FORMS:
            if tuple(old[:len(form)]) == form and len(old) > len(form) and old[len(form)] in NPX_ROUTES:
                return self.packaged(old[len(form):], new)
        if old[0] in NPX_ROUTES:
            return "" if is_routed(old, new) else "other-program"
        if old[0] in ("python", "python3") and old[1:2] == ["-m"] and old[2:] == new and new[0] in ("pytest", "mypy"):
            beside = not self.path and folder_on_path(old[0], self.world)
            same = beside and beside == folder_on_path(new[0], self.world)
            return "" if same and not (new[0] == "pytest" and self.has_modules()) else "other-program"
        return "other-program"

    def has_modules(self):
        """Whether tests may import what lies in the folder itself: `python -m` finds it, pytest by itself only beside a conftest.py."""
        try:
            names = [] if self.folder is None else posix.listdir(self.folder)
        except OSError:
            return False
        return "conftest.py" not in names and any(
            n.endswith(".py") and n not in ("setup.py", "noxfile.py") or "." not in n and file_kind(f"{self.folder}/{n}/__init__.py") for n in names)

    def packaged(self, old, new):
        """npx X: what lies in node_modules goes first, while rtk takes what PATH has, and installs nothing but tsc."""
        name = old[0]
        local, found = self.local_program(name), folder_on_path(name, self.world)
        if found and local and real_path(found + "/" + name, {}) != real_path(local, {}):
            return "other-program"
        if not local and (name == "playwright" or not found and name != "tsc"):
            return "not-installed"
        return "" if is_routed(old, new) else "other-program"

    def local_program(self, name):
        path = self.folder
        while path:
            if file_kind(f"{path}/node_modules/.bin/{name}") == "file":
                return f"{path}/node_modules/.bin/{name}"
            path = path.rpartition("/")[0]
        return ""

    def reading(self, argv, old, new):
        """cat, head and tail become rtk read, which fails on what is not UTF-8."""
        files = [item for item in argv[1:] if item[1][:1] != "-"]
        if old[0] == "cat":
            right = new == ["read", *old[1:]] and all(w == "-n" for w in old[1:] if w[:1] == "-")
        else:
            files, count = argv[-1:], "".join(old[1:-1])
            count = next((count[len(p):] for p in ("--lines=", "--lines", "-n", "-") if count.startswith(p)), count or "10")
            right = len(old) > 1 and old[-1][:1] != "-" and count.isdigit() and new == ["read", old[-1], f"--{old[0]}-lines", count]
        if not right or not files:
            return "options"
        values = [path for item in files for value in expand(item[2], self.scope()) for path in self.globbed(value)]
        return next(filter(None, map(self.unreadable, values)), "")

    def globbed(self, value):
        """What a glob in the last part of a path may mean: every name in the folder with its beginning and end; at most MOST_WORDS."""
        folder, slash, name = value.rpartition("/")
        if STAR not in name or not is_known(folder + "/") or ANY in name or SET in name:
            return [value]
        first, last = name.replace(ONE, STAR).split(STAR)[0], name.replace(ONE, STAR).split(STAR)[-1]
        try:
            names = posix.listdir(absolute(folder or ".", self.folder) or "")
        except OSError:
            return []
        found = [folder + slash + n for n in names if n.startswith(first) and n.endswith(last)]
        return found if len(found) <= MOST_WORDS else [value]

    def unreadable(self, value):
        path = self.located(value)
        if path is None or path.startswith(("/dev/", "/proc/")):
            return "unknown-file"
        kind = file_kind(path)
        data = read_file(path, MOST_READ + 1) if kind == "file" else b""
        try:
            (data or b"").decode()
        except UnicodeDecodeError:
            return "not-text"
        return "unknown-file" if kind == "other" or data and len(data) > MOST_READ else ""


def is_known(value):
    return bool(value) and not any(c < "\x07" for c in value)


def assigned_name(raw):
    name, equals, _ = raw.partition("=")
    return name if equals and name.isidentifier() else ""


def loses_path(raw):
    return "$PATH" not in raw and "${PATH}" not in raw


def is_routed(old, new):
    """Whether rtk's own name for a program and its arguments stand for it: `rtk next` builds, `rtk vitest` runs, and `rtk lint` takes a first
    word that is no path for the name of another linter."""
    name, args = old[0], old[1:]
    if name == "eslint":
        return new == ["lint", *args] and bool(args) and (args[0][0] == "-" or "/" in args[0] or "." in args[0])
    if name == "next":
        return args[:1] == ["build"] and new == [name, *args[1:]]
    return new == [name, *(args[1:] if name == "vitest" and args[:1] == ["run"] else args)]


def is_viewer(segment):
    """Whether a pipe only leads into `cat`, or `head` or `tail` of five lines and more, at its end."""
    words = [raw for _, raw, _, _ in segment.items] if segment and segment.end not in ("|", "|&") else []
    count = "".join(words[1:]).lstrip("-n")
    return words == ["cat"] or words[:1] in (["head"], ["tail"]) and (len(words) == 1 or count.isdecimal() and int(count[:9]) > 4)


def is_asking(words, head):
    """Whether a command would open an editor, a prompt, or go on for ever."""
    short = "".join([w[1:] for w in words[1:] if w[:1] == "-" and w[1:2] != "-"])
    for name, long, letters in ASKING:
        if head.startswith(name + " "):
            return not any(w.split("=")[0] in long for w in words) and not any(c in short for c in letters)
    valued = ("-p", "-i", "-l", "-o", "-F", "-J", "-L", "-R", "-b", "-c", "-D")
    return words[0] == "ssh" and len([w for before, w in zip(words, words[1:]) if w[:1] != "-" and before not in valued]) < 2


# ---- The edge -------------------------------------------------------------------------------------------------------------------------
SECONDS = 2.0  # after which the answer is neutral, whatever hangs
LOG_BYTES = 1 << 20
UNQUOTED = ("Action", "TaskId")  # enums that models send with JSON quotes inside the string (host.md §4)


def make_call(payload, world):
    """The Call in a PreToolUse or PostToolUse payload (host.md §2), an object, whatever is missing or of a wrong type in it."""
    call = payload.get("toolCall")
    call = call if isinstance(call, dict) else {}
    given = call.get("args")
    args = {name: unquote(value) if name in UNQUOTED else value for name, value in given.items()} if isinstance(given, dict) else {}
    workspaces = payload.get("workspacePaths")
    workspaces = [path for path in workspaces if isinstance(path, str) and path] if isinstance(workspaces, list) else []
    step = payload.get("stepIdx")
    tool, cwd = unquote(as_text(call.get("name"))), as_text(args.get("Cwd"))
    cwd = tool_path(cwd or ".", workspaces[0] if workspaces else None, world.home) or (cwd if "\0" in cwd else None)
    commands, unread = read_commands(as_text(args.get("CommandLine")), cwd, world.home, world.env) if tool == "run_command" else ([], "")
    return Call(tool, args, as_text(payload.get("conversationId")), cwd, workspaces, as_text(payload.get("transcriptPath")),
                as_text(payload.get("artifactDirectoryPath")), step if isinstance(step, int) else None, commands, unread)


def as_text(value):
    return value if isinstance(value, str) else ""


def unquote(value):
    return value[1:-1] if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"' else value


def pre_tool_use(call, world):
    verdict = run_guards(call, world)
    if verdict and verdict.decision != "allow" or call.tool != "run_command" or "rewrite" in switched_off(world):
        return Outcome(verdict, "", None, "")
    try:
        return rewrite(call, world)
    except Exception as error:  # the command runs as it is
        return Outcome(None, "", None, f"rewriting failed: {type(error).__name__}: {error}"[:200])


EVENTS = {"PreToolUse": pre_tool_use, "PostToolUse": post_tool_use}  # name -> function(call, world) -> Outcome or None; others: {}


def decide(event, data, world):
    """(Call or None, Outcome) of one event. data: the bytes of stdin. Never raises."""
    doing = "unreadable payload"
    try:
        payload = parse_json((data[3:] if data[:3] == b"\xef\xbb\xbf" else data).decode("utf-8", "surrogateescape"))
        if not isinstance(payload, dict):
            raise ValueError("not an object")
        doing = event + " failed"
        call = make_call(payload, world)
        return call, EVENTS[event](call, world) or NO_OBJECTION
    except Exception as error:
        return None, Outcome(None, "", None, f"{doing}: {type(error).__name__}: {error}"[:200])


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
    """What is written after the answer is out: the cache and the log. Whatever fails (a full disk, a planted link, a lock not had), the exit code
    stays 0: another would deny the call all the same."""
    for write, what in ((store_answer, outcome.fresh), (append_log, log_line(call, outcome, world.now))):
        try:
            if what:
                write(what, world)
        except Exception:
            pass


def read_all(handle):
    """stdin to its end: a process that ends before can kill the host's writer (host.md §1)."""
    parts = []
    try:
        while not parts or parts[-1]:
            parts.append(posix.read(handle, 1 << 16))
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
    elif event in ("--help", "-h") or not words and posix.isatty(0):
        say(__doc__.strip().encode("ascii", "replace"))
    else:
        handle(event)
    if argv is None and sys.flags.isolated and sys.flags.no_site:
        # Started by the host, nothing is buffered or open: leaving the interpreter's own clearing up out saves a tenth of a bare start.
        posix._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
