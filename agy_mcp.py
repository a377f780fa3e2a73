#!/usr/bin/env python3
"""agy_mcp.py: an MCP server over Google Antigravity's transcripts, and the commands that people type.

Copy this file into ~/.gemini/antigravity and name it in ~/.gemini/config/mcp_config.json (README.md); it needs nothing beside it.

usage: agy_mcp.py                       serve MCP on stdin and stdout
       agy_mcp.py install | uninstall | status | explain     (agy_mcp.py COMMAND --help)
       agy_mcp.py --version | --help
"""
import _thread
import os
import sys
import time

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
# Two eras of the protocol in one process (mcp.md §1). The core is Server: a line of bytes in, bytes or a job out, and it never raises. serve()
# is the shell around it: this thread reads, a lane of workers runs the calls, a lane of one writes what the reader has to say and cannot write
# at once: neither a full pipe nor a slow tool keeps the reader from a ping or a cancel. Imports are few: json and threading double the start.
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
BATCH_VERSION = "2025-03-26"  # the only one that has batches
META = "io.modelcontextprotocol/"
CONVERSATION_META = "antigravity.google/conversation_id"
LINE_LIMIT = 10 << 20  # bytes of a line that comes in
MESSAGE_LIMIT = 8_000_000  # bytes of a line that goes out; clients give up at 10 MiB
WORKERS = 4
CALL_SECONDS = 50  # a call's deadline; the shortest patience of a client is 60 s
PROGRESS_SECONDS = 0.1  # no more often than that
QUIET_SECONDS = 0.02  # between the last progress and the reply: a client that reads both at once takes the progress for a stray one
LAST_SECONDS = 1.5  # what is left to the calls in hand once the input has ended (clients kill after 2 s)
PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNKNOWN_RESOURCE, UNKNOWN_VERSION = -32002, -32022
SPARE_ARGUMENTS = ("toolAction", "toolSummary")  # the host's own habit (host.md §4): let through and dropped


class ToolError(Exception):
    """What a tool raises to answer `isError` with its own words."""


class Cancelled(Exception):
    """Raised by Context.check() once nobody waits for the answer any more."""


class ProtocolError(Exception):
    def __init__(self, code, message, data=None):
        Exception.__init__(self, message)
        self.error = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}


class Tool:
    """One tool. `schema` and `output` are JSON Schemas with a plain `type: object` root (output None: text only). `function(arguments, context)`
    gets arguments that fit the schema, its defaults filled in, and returns text, or (text, structured) where there is an output schema."""
    __slots__ = ("name", "description", "schema", "function", "output", "reads")

    def __init__(self, name, description, schema, function, output=None, reads=True):
        self.name, self.description, self.schema, self.function, self.output, self.reads = name, description, schema, function, output, reads

    def listing(self):
        entry = {"name": self.name, "description": self.description, "inputSchema": self.schema}
        if self.output is not None:
            entry["outputSchema"] = self.output
        return dict(entry, annotations={"readOnlyHint": True}) if self.reads else entry


class Prompt:
    """One prompt. `arguments` is a tuple of (name, description, required); `function(arguments, context)` gets a dict of str, returns text."""
    __slots__ = ("name", "description", "arguments", "function")

    def __init__(self, name, description, arguments, function):
        self.name, self.description, self.arguments, self.function = name, description, arguments, function

    def listing(self):
        fields = [{"name": name, "description": text, "required": required} for name, text, required in self.arguments]
        return {"name": self.name, "description": self.description, "arguments": fields}

    def schema(self):
        return {"properties": {name: {"type": "string"} for name, _, _ in self.arguments}, "required": [a[0] for a in self.arguments if a[2]]}


class Resource:
    """One resource; `function(context)` returns its text."""
    __slots__ = ("uri", "name", "description", "mime", "function")

    def __init__(self, uri, name, description, mime, function):
        self.uri, self.name, self.description, self.mime, self.function = uri, name, description, mime, function

    def listing(self):
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": self.mime}


class Context:
    """What a tool knows of its call: `meta` (dict), `conversation` (str or None: the host's own id of the conversation that calls), `deadline`
    (seconds on the server's clock). Long work calls check() now and then, and progress() where it can say how far it is."""
    __slots__ = ("meta", "conversation", "deadline", "stopped", "server", "token", "last", "sent")

    def __init__(self, server, meta):
        conversation, token = meta.get(CONVERSATION_META), meta.get("progressToken")
        self.server, self.meta, self.stopped, self.last, self.sent = server, meta, False, None, None
        self.conversation = conversation if isinstance(conversation, str) and conversation else None
        self.token = token if is_id(token) else None
        self.deadline = server.clock() + CALL_SECONDS

    def cancelled(self):
        return self.stopped

    def remaining(self):
        """Seconds to the deadline, 0 once it has passed."""
        return max(0.0, self.deadline - self.server.clock())

    def check(self):
        """Raises where going on is of no use: Cancelled, or ToolError past the deadline."""
        if self.stopped:
            raise Cancelled
        if self.server.clock() > self.deadline:
            raise ToolError(f"This took more than {CALL_SECONDS} s. Ask for less: one conversation, fewer steps, a plain word.")

    def progress(self, done, total=None, message=None):
        """Tells the client, if it asked to be told. Only what rises goes out, at most every 0.1 s; the last step is told by the reply."""
        now = self.server.clock()
        soon = self.sent is not None and now - self.sent < PROGRESS_SECONDS
        if self.token is None or self.stopped or soon or (self.last is not None and done <= self.last) or (total is not None and done >= total):
            return
        self.last, self.sent = done, now
        params = {"progressToken": self.token, "progress": done, "total": total, "message": message}
        params = {key: value for key, value in params.items() if value is not None}
        self.server.send(write_json({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

    def settle(self):
        """Waits, on the worker's time, until the last progress is old enough for the reply to follow."""
        if self.sent is not None:
            self.server.sleep(max(0.0, self.sent + QUIET_SECONDS - self.server.clock()))


class JsonRules:
    """What the C scanner behind json wants to know. json itself, which imports re, costs as much as the interpreter's whole start."""
    strict, object_hook, object_pairs_hook, parse_float, memo = True, None, None, float, {}

    def parse_int(text):
        if len(text) > 4300:  # newer Pythons have that limit themselves: int() takes quadratic time
            raise ValueError("an integer of more than 4300 digits")
        return int(text)

    def parse_constant(name):
        raise ValueError(f"{name} is not JSON")


class LaxJsonRules(JsonRules):
    strict = False


def parse_json(text, rules=JsonRules):
    """The value of one JSON document, strictly (LaxJsonRules: control characters may stand in strings). ValueError where it is none,
    RecursionError where it is nested too deep."""
    try:
        from _json import make_scanner
    except ImportError:
        from json.scanner import make_scanner
    text = text.strip(" \t\r\n")
    try:
        value, end = make_scanner(rules)(text, 0)
    except StopIteration as error:
        raise ValueError(f"no JSON value at character {error.value}") from None
    if end != len(text):
        raise ValueError(f"something follows the JSON value at character {end}")
    return value


def make_encoder(quote):
    """A function from value to JSON text; ValueError or TypeError where the value has no JSON form (NaN, bytes)."""
    def refuse(value):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    try:
        from _json import make_encoder as make
        encoder = make(None, refuse, quote, None, ":", ",", False, False, False)
        return lambda value: "".join(encoder(value, 0))
    except (ImportError, TypeError):
        from json import dumps
        return lambda value: dumps(value, ensure_ascii=quote("\xe9") != '"\xe9"', separators=(",", ":"), allow_nan=False)


def quotes():
    try:
        from _json import encode_basestring, encode_basestring_ascii
    except ImportError:
        from json.encoder import encode_basestring, encode_basestring_ascii
    return encode_basestring, encode_basestring_ascii


encode_unicode, encode_ascii = [make_encoder(quote) for quote in quotes()]


def write_json(value):
    """One line of the wire: ASCII bytes, no blanks, a newline."""
    return encode_ascii(value).encode("ascii") + b"\n"


def without_lone_surrogates(value):
    """The value with U+FFFD for every half of a surrogate pair that stands alone: strict parsers (Codex's) drop a whole message over one."""
    text = encode_unicode(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return parse_json(text, LaxJsonRules)


def shown(value, limit=60):
    """A value as an error message quotes it: JSON, on one line, short."""
    try:
        text = encode_ascii(value)
    except (ValueError, TypeError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= limit else text[:limit - 1] + "..."


def is_id(value):
    """Ids and progress tokens: strings and integers, 0 and "" among them."""
    return isinstance(value, str) and len(value) <= 4096 or isinstance(value, int) and not isinstance(value, bool)


# Argument checks. A rule is a JSON Schema of the kind the tools use: type (one), enum, minimum, maximum, items, properties, required, default.
def as_integer(value):
    if isinstance(value, str) and len(value) < 20 and value.strip().lstrip("+-").isdecimal():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_number(value):
    try:
        return float(value) if isinstance(value, str) and len(value) < 40 and "_" not in value else value
    except ValueError:
        return value


def as_boolean(value):
    return {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value


# type -> (what a message calls it, what may be meant by what was sent, the Python types of it); bool is an int to Python, never to us
KINDS = {
    "string": ("a string", None, (str,)),
    "integer": ("an integer", as_integer, (int,)),
    "number": ("a number", as_number, (int, float)),
    "boolean": ("true or false", as_boolean, (bool,)),
    "array": ("a list", None, (list,)),
    "object": ("an object", None, (dict,)),
}


def wanted(rule):
    """What a rule allows, in words."""
    if "enum" in rule:
        return "one of " + ", ".join(shown(item) for item in rule["enum"])
    text = KINDS[rule["type"]][0] if "type" in rule else "any value"
    if "items" in rule:
        text += ", each item " + wanted(rule["items"])
    low, high = rule.get("minimum"), rule.get("maximum")
    if low is not None and high is not None:
        return f"{text} from {low} to {high}"
    return text + (f" of at least {low}" if low is not None else f" of at most {high}" if high is not None else "")


def fit(path, value, rule, faults):
    """The value as its rule wants it; what is wrong with it goes into `faults` as sentences. Numbers and booleans sent as strings ("3", "true")
    and whole numbers sent as floats (3.0) are taken for what they plainly mean: models write them so."""
    _, convert, types = KINDS.get(rule.get("type"), (None, None, (object,)))
    meant = convert(value) if convert else value
    good = isinstance(meant, types) and (not isinstance(meant, bool) or bool in types or object in types)
    if good and isinstance(meant, (int, float)) and not isinstance(meant, bool):
        good = rule.get("minimum", -1e308) <= meant <= rule.get("maximum", 1e308)  # neither infinite nor NaN
    if not good or ("enum" in rule and meant not in rule["enum"]):
        faults.append(f"{path} must be {wanted(rule)}, not {shown(value)}.")
    elif isinstance(meant, list) and "items" in rule:
        return [fit(f"{path}[{i}]", item, rule["items"], faults) for i, item in enumerate(meant)]
    elif isinstance(meant, dict) and "properties" in rule:
        return fit_object(path + ".", meant, rule, faults)
    return meant


def fit_object(path, given, schema, faults):
    properties, clean = schema.get("properties", {}), {}
    for key, value in given.items():
        if key not in properties:
            if key not in SPARE_ARGUMENTS:
                faults.append(unknown_argument(path, key, properties))
        elif value is not None:  # null is how some models leave an argument out
            clean[key] = fit(path + key, value, properties[key], faults)
    for key, rule in properties.items():
        if key not in clean and key in schema.get("required", ()):
            faults.append(f"{path}{key} is missing: it must be {wanted(rule)}.")
        elif key not in clean and "default" in rule:
            clean[key] = rule["default"]
    return clean


def unknown_argument(path, key, properties):
    from difflib import get_close_matches
    near = get_close_matches(key.lower().replace("_", ""), [name.lower() for name in properties], 1)
    hint = "".join(f' Did you mean "{name}"?' for name in properties if near and name.lower() == near[0])
    return f"{path}{shown(key)[1:-1]} is not an argument.{hint} Valid: {', '.join(properties) or 'none'}."


def check_arguments(schema, given):
    """(arguments that fit, faults): `faults` is text that names each field, what was wrong and what is valid; "" where nothing is."""
    faults = []
    clean = fit_object("", given, schema, faults)
    more = f" And {len(faults) - 5} more." if len(faults) > 5 else ""
    return clean, " ".join(faults[:5]) + more


# The methods: function(server, params, context) -> result, or ProtocolError.
def initialize(server, params, context):
    version = params.get("protocolVersion")
    server.version = version if version in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
    return dict(server.introduction(), protocolVersion=server.version, serverInfo=server.info)


def discover(server, params, context):
    return dict(server.introduction(), supportedVersions=list(MODERN_VERSIONS))


def ping(server, params, context):
    return {}


def lister(name):
    def listing(server, params, context):
        if params.get("cursor") is not None:
            raise ProtocolError(INVALID_PARAMS, f"No such cursor: {shown(params['cursor'])}. The list has one page.")
        return {name: [entry.listing() for entry in getattr(server, name, {}).values()]}
    return listing


def named(table, params, key, what):
    name = params.get(key)
    if isinstance(name, str) and name in table:
        return table[name]
    raise ProtocolError(INVALID_PARAMS, f"Unknown {what}: {shown(name)}. Known: {', '.join(table)}.")


def given_arguments(params):
    given = params.get("arguments")
    if given is not None and not isinstance(given, dict):
        raise ProtocolError(INVALID_PARAMS, f"arguments must be an object, not {shown(given)}.")
    return given or {}


def call_tool(server, params, context):
    tool, given = named(server.tools, params, "name", "tool"), given_arguments(params)
    arguments, faults = check_arguments(tool.schema, given)
    if faults:
        return tool_result(f"{tool.name}: {faults}", error=True)
    try:
        answer = tool.function(arguments, context)
        return tool_result(answer) if isinstance(answer, str) else tool_result(*answer)
    except ToolError as error:
        return tool_result(str(error), error=True)
    except Exception as error:
        return tool_result(f"{tool.name} failed: {type(error).__name__}: {error}"[:1000], error=True)


def tool_result(text, structured=None, error=False):
    result = {"content": [{"type": "text", "text": text}], "isError": error}
    return result if structured is None else dict(result, structuredContent=structured)


def get_prompt(server, params, context):
    prompt = named(server.prompts, params, "name", "prompt")
    arguments, faults = check_arguments(prompt.schema(), given_arguments(params))
    if faults:
        raise ProtocolError(INVALID_PARAMS, f"{prompt.name}: {faults}")
    text = prompt.function(arguments, context)
    return {"description": prompt.description, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def read_resource(server, params, context):
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise ProtocolError(INVALID_PARAMS, f"uri must be a string, not {shown(uri)}.")
    if uri not in server.resources:
        code = INVALID_PARAMS if modern(params) else UNKNOWN_RESOURCE
        raise ProtocolError(code, f"No such resource: {shown(uri)}. Known: {', '.join(server.resources)}.", {"uri": uri[:1000]})
    resource = server.resources[uri]
    return {"contents": [{"uri": uri, "mimeType": resource.mime, "text": resource.function(context)}]}


def modern(params):
    """Whether a request speaks the newer protocol: it says so in every request."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and META + "protocolVersion" in meta


# name -> (function, which eras have it, whether a worker runs it, whether a modern client may keep the result)
METHODS = {
    "initialize": (initialize, "legacy", False, False),
    "ping": (ping, "legacy", False, False),
    "server/discover": (discover, "modern", False, True),
    "tools/list": (lister("tools"), "both", False, True),
    "tools/call": (call_tool, "both", True, False),
    "prompts/list": (lister("prompts"), "both", False, True),
    "prompts/get": (get_prompt, "both", True, False),
    "resources/list": (lister("resources"), "both", False, True),
    "resources/templates/list": (lister("resourceTemplates"), "both", False, True),
    "resources/read": (read_resource, "both", True, True),
}


class Server:
    """The protocol over one connection. accept(line) -> None, bytes to send, or a job for a worker: a callable that returns bytes or None.
    handle(line) does the job at once. Neither ever raises. `send` takes the bytes of progress notifications, from any thread."""
    __slots__ = ("tools", "prompts", "resources", "instructions", "info", "version", "running", "send", "clock", "sleep")

    def __init__(self, tools=(), prompts=(), resources=(), instructions="", clock=time.monotonic, sleep=time.sleep, send=lambda data: None):
        self.tools, self.prompts = {tool.name: tool for tool in tools}, {prompt.name: prompt for prompt in prompts}
        self.resources, self.instructions = {resource.uri: resource for resource in resources}, instructions
        self.info = {"name": "agy-context-saver", "version": __version__}
        self.version, self.running = None, {}
        self.send, self.clock, self.sleep = send, clock, sleep

    def introduction(self):
        parts = {"tools": self.tools, "prompts": self.prompts, "resources": self.resources}
        answer = {"capabilities": {name: {} for name, part in parts.items() if part or name == "tools"}}
        return dict(answer, instructions=self.instructions) if self.instructions else answer

    def handle(self, line):
        work = self.accept(line)
        return work() if callable(work) else work

    def accept(self, line):
        """`line` is one line without its newline, or None for one that was too long to keep."""
        if line is None:
            return failure(None, INVALID_REQUEST, f"The message is longer than {LINE_LIMIT} bytes.")
        try:
            text = line.decode("utf-8").lstrip("\ufeff")
            if not text.strip(" \t\r\n"):
                return None
            message = parse_json(text)
        except (ValueError, RecursionError, MemoryError) as error:
            return failure(None, PARSE_ERROR, f"Not JSON: {error}"[:200])
        if isinstance(message, list) and message and self.version == BATCH_VERSION:
            return self.batch(message)
        return self.dispatch(message)

    def batch(self, messages):
        works = [self.dispatch(message, batched=True) for message in messages]

        def job():
            replies = [work(MESSAGE_LIMIT // len(works)) if callable(work) else work for work in works]
            replies = [reply.rstrip(b"\n") for reply in replies if reply]
            return b"[" + b",".join(replies) + b"]\n" if replies else None
        return job

    def dispatch(self, message, batched=False):
        try:
            return self.route(message, batched)
        except ProtocolError as error:
            key = message.get("id") if isinstance(message, dict) else None
            return write_json({"jsonrpc": "2.0", "id": key if is_id(key) else None, "error": error.error})

    def route(self, message, batched):
        """The order of these checks is the protocol's (mcp.md §1)."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
            raise ProtocolError(INVALID_REQUEST, "Not a request: it takes jsonrpc \"2.0\" and a method; a list only at " + BATCH_VERSION + ".")
        if "id" not in message:
            return self.notice(message)
        method, params = message["method"], message.get("params", {})
        if not is_id(message["id"]) or (batched and method == "initialize"):
            raise ProtocolError(INVALID_REQUEST, "An id is a string or an integer, and initialize stands alone.")
        if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
            raise ProtocolError(INVALID_PARAMS, "params and params._meta must be objects.")
        newer = modern(params) or method == "server/discover"
        if newer:
            check_modern(params)
        elif self.version is None and method not in ("initialize", "ping"):
            raise ProtocolError(INVALID_PARAMS, f"Send initialize first, or name {META}protocolVersion in params._meta.")
        function, eras, slow, keep = METHODS.get(method, (None, None, None, None))
        if eras not in ("both", "modern" if newer else "legacy"):
            raise ProtocolError(UNKNOWN_METHOD, f"Unknown method: {shown(method)}")
        job = Job(self, message["id"], params, function, newer, keep)
        return job if slow else job()

    def notice(self, message):
        """A notification is never answered, whatever is wrong with it."""
        params = message.get("params")
        if message["method"] == "notifications/cancelled" and isinstance(params, dict) and is_id(params.get("requestId")):
            context = self.running.get(params["requestId"])
            if context is not None:
                context.stopped = True


class Job:
    """One request on its way to a reply. Made when it is accepted, so that a cancel that comes before a worker is free finds it."""
    __slots__ = ("server", "key", "params", "function", "newer", "keep", "context")

    def __init__(self, server, key, params, function, newer, keep):
        self.server, self.key, self.params, self.function, self.newer, self.keep = server, key, params, function, newer, keep
        self.context = server.running[key] = Context(server, params.get("_meta", {}))

    def __call__(self, limit=MESSAGE_LIMIT):
        try:
            reply = None if self.context.stopped else self.reply(limit)
            self.context.settle()
        except Cancelled:
            reply = None
        except BaseException as error:  # the one place: whatever a tool does, its caller is answered and the worker lives
            reply = failure(self.key, INTERNAL_ERROR, f"{type(error).__name__}: {error}"[:1000])
        if self.server.running.get(self.key) is self.context:
            del self.server.running[self.key]
        return None if self.context.stopped else reply

    def reply(self, limit):
        try:
            result = self.function(self.server, self.params, self.context)
        except ProtocolError as error:
            return write_json({"jsonrpc": "2.0", "id": self.key, "error": error.error})
        try:
            data = self.encode(result)
        except (TypeError, ValueError, RecursionError) as error:
            data = self.encode(tool_result(f"The result has no JSON form: {error}", error=True))
        if len(data) <= limit:
            return data
        text = f"The result has {len(data)} bytes, more than the {limit} that fit into a message. Ask for less (maxBytes, a narrower query)."
        return self.encode(tool_result(text, error=True)) if self.function is call_tool else failure(self.key, INTERNAL_ERROR, text)

    def encode(self, result):
        if self.newer:
            result = dict(result, resultType="complete", _meta={META + "serverInfo": self.server.info})
            if self.keep:
                result.update(ttlMs=0, cacheScope="private")
        message = {"jsonrpc": "2.0", "id": self.key, "result": result}
        data = write_json(message)
        return write_json(dict(message, result=without_lone_surrogates(result))) if b"\\ud" in data else data


def failure(key, code, message):
    message = message.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    return write_json({"jsonrpc": "2.0", "id": key, "error": {"code": code, "message": message}})


def check_modern(params):
    meta = params.get("_meta", {})
    version, capabilities = meta.get(META + "protocolVersion"), meta.get(META + "clientCapabilities")
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise ProtocolError(INVALID_PARAMS, f"params._meta must hold {META}protocolVersion (string) and {META}clientCapabilities (object).")
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": version[:100]}
        raise ProtocolError(UNKNOWN_VERSION, f"Unsupported protocol version: {shown(version)}", data)


# The shell: descriptors, threads, the end.
class Lane:
    """Work done by at most `size` threads, which start when there is work for them. Work is bytes to write or a job that returns some."""
    __slots__ = ("size", "write", "queue", "lock", "threads", "pending")

    def __init__(self, size, write):
        self.size, self.write, self.queue, self.lock, self.threads, self.pending = size, write, None, _thread.allocate_lock(), 0, 0

    def put(self, work):
        if self.queue is None:
            try:
                from _queue import SimpleQueue
            except ImportError:
                from queue import SimpleQueue
            self.queue = SimpleQueue()
        with self.lock:
            self.pending += 1
            more = self.threads < min(self.size, self.pending)
            self.threads += more
        self.queue.put(work)
        if more:
            _thread.start_new_thread(self.run, ())

    def run(self):
        while True:
            work = self.queue.get()
            data = work() if callable(work) else work
            if data:
                self.write(data)
            with self.lock:
                self.pending -= 1


def private_descriptors():
    """(source, sink): where 0 and 1 led, above 2. 0 now is the null device and 1 is 2: no print, no child and no C code can touch the wire, and
    no child can eat requests. None where 0 or 1 is closed."""
    try:
        posix.fstat(0), posix.fstat(1)
    except OSError:
        return None
    null = posix.open("nul" if sys.platform == "win32" else "/dev/null", posix.O_RDWR)
    if null <= 2:  # stderr was closed: without this the wire would be it
        null = posix.dup(null)
        posix.dup2(null, 2)
    source, sink = posix.dup(0), posix.dup(1)
    posix.dup2(null, 0)
    posix.dup2(2, 1)
    posix.close(null)
    return source, sink


class Output:
    """Where lines go, whole and one at a time. Where nobody reads any more the process ends, whether or not there is something to write."""
    __slots__ = ("handle", "lock", "poll", "atom")

    def __init__(self, handle):
        self.handle, self.lock, self.poll, self.atom = handle, _thread.allocate_lock(), None, 0
        try:
            import select
            self.poll, self.atom = select.poll(), select.PIPE_BUF
            self.poll.register(handle, select.POLLOUT)
        except (ImportError, AttributeError):  # Windows: nothing is known to go through at once
            pass

    def write(self, data):
        with self.lock:
            self.push(data)

    def push(self, data):
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[posix.write(self.handle, rest):]
        except OSError:
            posix._exit(0)

    def offer(self, data):
        """Writes where that is sure not to wait for anyone, and says whether it did: short data, a free lock, room in the pipe."""
        if len(data) > self.atom or not self.lock.acquire(False):
            return False
        room = bool(self.poll.poll(0))
        if room:
            self.push(data)
        self.lock.release()
        return room


def make_reader(source, sink):
    """A function that returns the next bytes, b"" at the end. Where nobody reads what we write any more the process ends, idle or not."""
    read = lambda: posix.read(source, 65536)
    try:
        from select import POLLERR, POLLHUP, POLLIN, poll
    except ImportError:  # Windows
        return read
    poller = poll()
    poller.register(source, POLLIN)
    poller.register(sink, 0)  # tells errors and the end only

    def read_while_heard():
        if any(handle == sink and flags & (POLLERR | POLLHUP) for handle, flags in poller.poll()):
            posix._exit(0)
        return read()
    return read_while_heard


def read_lines(read, limit=LINE_LIMIT):
    """Lines without their newline; None for one of more than `limit` bytes, which is never held whole. A last line needs no newline."""
    line, size = bytearray(), 0
    while True:
        try:
            chunk = read()
        except OSError:
            chunk = b""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            size += len(piece)
            yield None if size > limit else bytes(line + piece) if line else piece
            line, size = bytearray(), 0
        size += len(rest)
        line += rest
        if size > limit:
            line = bytearray()
        if not chunk:
            break
    if size:
        yield None if size > limit else bytes(line)


def serve(server):
    """Serves until the input ends, the output is closed or a signal comes; never returns. What was accepted is answered first, for LAST_SECONDS."""
    handles = private_descriptors()
    if handles is None:
        posix._exit(0)
    output = Output(handles[1])
    server.send = output.write
    workers, replies = Lane(WORKERS, output.write), Lane(1, output.write)
    try:
        for line in read_lines(make_reader(*handles)):
            work = server.accept(line)
            if callable(work):
                workers.put(work)
            elif work and (replies.pending or not output.offer(work)):
                replies.put(work)
        end = time.monotonic() + LAST_SECONDS
        while workers.pending + replies.pending and time.monotonic() < end:
            time.sleep(0.002)
        posix._exit(0)
    except KeyboardInterrupt:
        posix._exit(130)


# ---- Conversations and the transcript reader ------------------------------------------------------------------------------------------
# transcript.md is the source of every fact here. What other sections may use:
#   find_conversation(value, home, current=None) -> Conversation(id, folder, compact, full, sizes, changed); list_conversations(home)
#   with Transcript(conversation, check=None) as transcript:      both files as one; closes them; check() may raise to stop a long read
#       transcript.steps(first=0, last=None)   live steps, rising index, noise left out, memory bounded: Step(index source type status created
#                                              content thinking calls exit_code error error_code tokens truncated size full)
#       transcript.turns(before=None)          turns, newest first, read from the end: Turn(first, rows); rows.steps(), rows.steps_backward()
#       transcript.skipped                     unreadable lines in what has been read so far;   transcript.step(index) -> Step or None
#   pair_results(steps) -> (step, results) pairs: results[k] is the Step that answers step.calls[k], or None; all other steps come with []
#   user_text(step), body(step), outcome(step) -> Outcome(kind, code, text), notice(step), roles(step), task_start(step), task_end(step)
#   shorten(text, limit), fence(text), close_fences(text), clip(text, limit), Page(limit): Markdown that never passes its limit of bytes
NOISE = ("EPHEMERAL_MESSAGE", "CONVERSATION_HISTORY", "KNOWLEDGE_ARTIFACTS")
CHUNK = 1 << 18  # bytes read at a time
HEAD = 256  # a line's head, up to its type, is shorter
MOST_STEPS = 1 << 23  # an index above this is a broken line
LONGEST_LINE = 1 << 28  # bytes; a longer line is counted as unreadable
DISORDER = 64  # rows: a late row is at most that far from its place, a jump back beyond it is a rewind
MARGIN = 16  # rows before the first one wanted, so that none of its neighbours was written before the part that is read
TAILS = (1 << 18, 1 << 21, 1 << 24, 1 << 27, 1 << 62)  # bytes from the end: more is read only where that was not enough


class Conversation:
    """One brain folder: `id`, `folder`, `compact` and `full` (paths, None where missing), `sizes` (of both, bytes), `changed` (epoch seconds)."""
    __slots__ = ("id", "folder", "compact", "full", "sizes", "changed")

    def __init__(self, folder):
        self.id, self.folder = os.path.basename(folder), folder
        found = [regular_file(folder + "/.system_generated/logs/" + name, folder) for name in ("transcript.jsonl", "transcript_full.jsonl")]
        self.compact, self.full = [path for path, _ in found]
        self.sizes = tuple(stat.st_size if stat else 0 for _, stat in found)
        self.changed = max((stat.st_mtime for _, stat in found if stat), default=0.0)


def inside(path, folder):
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def regular_file(path, folder):
    """(path, stat) of a regular file that really lies below the folder, else (None, None)."""
    try:
        if inside(os.path.realpath(path), os.path.realpath(folder)):
            stat = os.stat(path)
            if stat.st_mode & 0o170000 == 0o100000:
                return path, stat
    except (OSError, ValueError):
        pass
    return None, None


def brain_folders(home):
    return [os.path.join(folder, "brain") for folder in data_folders(home)]


def list_conversations(home):
    """Every conversation that has a transcript, the newest first; folders that are links out of brain/ are passed over."""
    found = []
    for brain in brain_folders(home):
        try:
            names = os.listdir(brain)
        except OSError:
            continue
        top = os.path.realpath(brain)
        found += [Conversation(os.path.join(brain, name)) for name in names if inside(os.path.realpath(os.path.join(brain, name)), top)]
    return sorted((c for c in found if c.compact or c.full), key=lambda c: (-c.changed, c.id))


def find_conversation(value, home, current=None):
    """The Conversation that an id, or a path inside a brain folder, names; None or "" is the call's own (`current`), else the newest.
    ToolError where there is none, with the nearest ids that exist, or where the path leads out of brain/."""
    value = (value or "").strip()
    if not value:
        value = current if current and os.path.basename(current) == current else ""
        known = None if value else list_conversations(home)
        if not value and not known:
            raise ToolError("There is no conversation with a transcript below " + ", ".join(brain_folders(home)) + ".")
        if known:
            return known[0]
    name = value if "/" not in value and "\\" not in value and value not in (".", "..") and "\0" not in value else named_by_path(value, home)
    top = [(brain, os.path.join(brain, name)) for brain in brain_folders(home)]
    there = [(brain, folder) for brain, folder in top if os.path.isdir(folder)]
    for brain, folder in there:
        if not inside(os.path.realpath(folder), os.path.realpath(brain)):
            raise ToolError(f"{shown(folder, 200)} is a link that leads out of {brain}; nothing outside brain/ is read.")
    found = sorted((Conversation(folder) for _, folder in there), key=lambda c: -c.changed)
    found = [c for c in found if c.compact or c.full]
    if found:
        return found[0]
    if there:
        raise ToolError(f"The conversation {shown(name)} has no transcript yet{suggestion(name, home)}")
    raise ToolError(f"There is no conversation {shown(name)}{suggestion(name, home)}")


def named_by_path(value, home):
    """The id in a path inside a brain folder; ToolError for any other path."""
    path = value
    if path.lower().startswith("file://"):
        from urllib.parse import unquote
        path = unquote(path[7:])
    if path.startswith("~"):
        path = home + path[1:]
    parts = path.replace("\\", "/").split("/")
    if ".." not in parts and "\0" not in path and os.path.isabs(path):
        for brain in brain_folders(home):
            for top, real in ((brain, path), (os.path.realpath(brain), os.path.realpath(path))):
                if inside(os.path.normpath(real), os.path.normpath(top)) and os.path.normpath(real) != os.path.normpath(top):
                    return os.path.relpath(os.path.normpath(real), os.path.normpath(top)).replace("\\", "/").split("/")[0]
    raise ToolError(f"conversationId {shown(value, 200)} is neither an id nor an absolute path inside a brain folder "
                    f"({', '.join(brain_folders(home))}); nothing outside brain/ is read.")


def suggestion(name, home):
    from difflib import get_close_matches
    known = [c.id for c in list_conversations(home)]
    near = [i for i in known if name.lower() in i.lower()] or get_close_matches(name, known, 3, 0.5)
    if near:
        return ". Did you mean " + " or ".join(near[:3]) + "?"
    return ". The newest are " + ", ".join(known[:3]) + "." if known else "; there is none at all with a transcript."


class Log:
    """One transcript file, opened for one call. `end` is the offset after its last complete line: what a writer has half written is left out,
    but a last line that is whole and only lacks its newline counts."""
    __slots__ = ("path", "full", "file", "size", "end", "span")

    def __init__(self, path, full):
        self.path, self.full, self.span = path, full, None
        self.file = open(path, "rb", buffering=0, opener=lambda p, flags: os.open(p, flags | getattr(os, "O_NONBLOCK", 0)))
        try:
            self.size = self.end = self.file.seek(0, 2)
            self.end = self.complete_end()
        except BaseException:
            self.file.close()
            raise

    def read(self, offset, length):
        self.file.seek(offset)
        data = self.file.read(length) or b""
        while 0 < len(data) < length:  # a read may come back short
            more = self.file.read(length - len(data))
            if not more:
                break
            data += more
        return data

    def line_start(self, offset):
        """The start of the line that the byte before `offset` ends or lies in; 0 at the top."""
        at = offset
        while at > 0:
            low = max(0, at - CHUNK)
            found = self.read(low, at - low).rfind(b"\n")
            if found >= 0:
                return low + found + 1
            at = low
        return 0

    def line_end(self, offset):
        """The offset after the newline that ends the line at `offset`."""
        while offset < self.end:
            found = self.read(offset, min(CHUNK, self.end - offset)).find(b"\n")
            if found >= 0:
                return offset + found + 1
            offset += CHUNK
        return self.end

    def complete_end(self):
        start = self.line_start(self.size)
        if start == self.size or self.size - start > LONGEST_LINE:
            return start
        return self.size if isinstance(parse_line(self.read(start, self.size - start)), dict) else start


def parse_line(raw):
    """The JSON value of a line, or None where it has none. A blank line is an empty string. Bad UTF-8 reads as U+FFFD."""
    raw = raw.strip(b"\xef\xbb\xbf\0 \t\r\n") if raw[:1] != b"{" or raw[-1:] != b"}" else raw
    if not raw:
        return ""
    try:
        value = parse_json(raw.decode("utf-8", "replace"), LaxJsonRules)
    except (ValueError, RecursionError):
        return None
    return value if value != "" else 0


def head_matcher():
    import re
    return re.compile(rb'\{"step_index":(\d{1,7}),(?:"source":"\w{0,40}","type":"(?:(USER_INPUT")|\w))?').match


class Span:
    """What is known of a log from offset `start` on: which indexes live there, where runs were rewound, where user turns begin.

    `rewinds` holds (offset, index, height): lines before that offset with that index or a higher one, below height, are dead. Offset and index
    rise along the list, for a deeper rewind makes the ones before it void. `live` has a byte for every index up to the highest that lives."""
    __slots__ = ("start", "first", "lowest", "last", "live", "rewinds", "users", "skipped", "run")

    def __init__(self, start):
        self.start, self.first, self.lowest, self.last = start, None, None, -1
        self.live, self.rewinds, self.users, self.skipped, self.run = bytearray(), [], [], 0, None

    def add(self, index, offset, user):
        """Takes in the row at `offset`, rows coming in the order of the file."""
        live = self.live
        if self.first is None:
            self.first = self.lowest = index
        if self.run is not None:
            self.step_in_run(index, user)
        if index >= len(live):
            live.extend(bytes(index - len(live)))
            live.append(1)
        elif live[index] or len(live) - 1 - index > DISORDER:
            self.rewind(index, offset, user)
        else:
            live[index] = 1
        if index < self.lowest:
            self.lowest = index
        if user:
            self.users.append(index)
        self.last = index

    def step_in_run(self, index, user):
        """The first rows of a run may be out of order too: one just below the rewind, used before, moves the rewind down."""
        rows, mark = self.run, self.rewinds[-1]
        if len(rows) >= 8 or rows[0] < 0:
            self.run = None
        elif 0 < mark[1] - index <= (1 if user else 8) and self.live[index]:
            self.cut(index, mark[0])
            for row in rows:
                self.live.extend(bytes(max(0, row + 1 - len(self.live))))
                self.live[row] = 1
        if self.run is not None:
            rows.append(index)

    def rewind(self, index, offset, user):
        self.cut(index, offset)
        self.live.append(1)
        self.run = [-1 if user else index]

    def cut(self, index, offset):
        """Everything before `offset` from `index` on is dead."""
        height = len(self.live)
        del self.live[index:]
        while self.rewinds and self.rewinds[-1][1] >= index:
            height = max(height, self.rewinds.pop()[2])
        self.rewinds.append((offset, index, height))
        while self.users and self.users[-1] >= index:
            self.users.pop()

    def is_dead(self, index, offset):
        for mark, lowest, _ in self.rewinds:
            if mark > offset:
                return index >= lowest
        return False

    def closed(self):
        """True where no rewind can have begun before the part that was read and reach into it."""
        return self.start == 0 or self.first is not None and self.lowest == self.first

    def reaches(self, index):
        """True where every live row from `index` on lies in the part that was read."""
        return self.start == 0 or self.closed() and self.first + MARGIN <= index


class Step:
    """One live row of a transcript (transcript.md §1). `calls` is a list of Call, `tokens` a dict, `truncated` what the compact form cut,
    `size` the bytes of its line, `full` whether it is the full form."""
    __slots__ = ("index", "source", "type", "status", "created", "content", "thinking", "calls", "exit_code", "error", "error_code", "tokens",
                 "truncated", "size", "full")

    def __init__(self, index, row, full, size):
        self.index, self.full, self.size = index, full, size
        self.source, self.type, self.status, self.created, self.content, self.thinking, self.error = [
            as_text(row.get(key)) for key in ("source", "type", "status", "created_at", "content", "thinking", "error")]
        self.exit_code = row["exit_code"] if is_int(row.get("exit_code")) else None
        self.error_code = row.get("error_code")
        self.tokens = {key: row[key] for key in ("input_tokens", "cache_read_tokens", "output_tokens") if is_int(row.get(key))}
        cut = row.get("truncated_fields")
        self.truncated = tuple(item for item in cut if isinstance(item, str)) if isinstance(cut, list) else ()
        calls = row.get("tool_calls")
        self.calls = [Call(call, full) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


class Call:
    """One tool call: `name`, `args` (name -> native value), `truncated` (names of arguments of which only the beginning is left)."""
    __slots__ = ("name", "args", "truncated")

    def __init__(self, call, full):
        args = call.get("args")
        self.name, self.args, self.truncated = as_text(call.get("name")), dict(args) if isinstance(args, dict) else {}, ()
        if not full:
            for key, value in self.args.items():
                if isinstance(value, str):
                    self.args[key], whole = decode_argument(value)
                    self.truncated += () if whole else (key,)


def is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def as_text(value):
    return value if isinstance(value, str) else "" if value is None else encode_unicode(value)


def decode_argument(text):
    """(value, whole) of an argument in the compact file: JSON in a string, which may be cut at its end (transcript.md §2)."""
    try:
        return parse_json(text, LaxJsonRules), True
    except (ValueError, RecursionError):
        pass
    if text[:1] != '"':
        return text, False
    head, mark, tail = text[1:].rpartition("\n<truncated ")
    head, tail = (head, mark + tail) if mark else (text[1:], "")
    for cut in range(7):  # an escape may have been cut in two
        try:
            return parse_json('"' + head[:len(head) - cut] + '"', LaxJsonRules) + tail, False
        except ValueError:
            continue
    return text, False


class Rows:
    """Places of live rows, in rising order of their indexes: 25 bytes a row."""
    __slots__ = ("transcript", "indexes", "offsets", "lengths", "logs")

    def __init__(self, transcript, rows=()):
        from array import array
        self.transcript, self.indexes, self.offsets, self.lengths, self.logs = transcript, array("q"), array("q"), array("q"), array("b")
        for index, log, offset, length in rows:
            self.append(index, log, offset, length)

    def append(self, index, log, offset, length):
        self.indexes.append(index)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.logs.append(log)

    def slice(self, first, last):
        """The rows from index `first` to before index `last`."""
        from bisect import bisect_left
        low, high = bisect_left(self.indexes, first), bisect_left(self.indexes, last)
        if (low, high) == (0, len(self)):
            return self
        part = Rows(self.transcript)
        part.indexes, part.offsets = self.indexes[low:high], self.offsets[low:high]
        part.lengths, part.logs = self.lengths[low:high], self.logs[low:high]
        return part

    def __len__(self):
        return len(self.indexes)

    def steps(self):
        return self.transcript.parsed(zip(self.indexes, self.logs, self.offsets, self.lengths))

    def steps_backward(self):
        return self.transcript.parsed(zip(*[reversed(part) for part in (self.indexes, self.logs, self.offsets, self.lengths)]))


class Turn:
    """A user turn and all that follows it: `first` (index of its user row; of its first row where the beginning has no user), `rows` (Rows)."""
    __slots__ = ("first", "rows", "user")

    def __init__(self, first, rows, user):
        self.first, self.rows, self.user = first, rows, user


class Transcript:
    """Both files of a conversation read as one: the union by index, the full form first (transcript.md §3). A context manager: files are open
    only inside `with`. `check` is called now and then and may raise to stop."""

    def __init__(self, conversation, check=None):
        self.conversation, self.check, self.broken = conversation, check or (lambda: None), 0
        self.logs, self.match = [], head_matcher()
        try:
            for path, full in ((conversation.full, True), (conversation.compact, False)):
                if path:
                    self.logs.append(Log(path, full))
        except OSError as error:
            self.close()
            raise ToolError(f"{conversation.id}: {error.strerror or error}")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for log in self.logs:
            log.file.close()

    @property
    def skipped(self):
        """Unreadable lines in the parts that were read."""
        return self.broken + sum(log.span.skipped for log in self.logs if log.span)

    def lines(self, log, start, span=None):
        """(index, offset, length, is user turn) of every row from offset `start`, in the order of the file; faults are counted in the span."""
        match, offset, end = self.match, start, log.end
        while offset < end:
            self.check()
            chunk = log.read(offset, min(CHUNK, end - offset))
            size, at = len(chunk), 0
            if not size:
                return  # the file was cut while it was read
            limit = size if offset + size >= end else size - HEAD
            while at < limit or at == 0:
                stop = chunk.find(b"\n", at)
                length = (stop if stop >= 0 else log.line_end(offset + size) - offset) - at
                head = match(chunk, at)
                if head and (stop < 0 or chunk[stop - 1] == 125 or chunk[stop - 2:stop] == b"}\r"):
                    index, user = head.groups()
                    yield int(index), offset + at, length, user
                else:
                    row = self.odd_line(log, offset + at, length, span)
                    if row:
                        yield row
                at += length + (stop >= 0)
                if stop < 0:
                    break
            offset += at

    def odd_line(self, log, offset, length, span):
        """A line whose head is not as usual: CRLF, another order of keys, or no row at all."""
        row = parse_line(log.read(offset, length)) if length <= LONGEST_LINE else None
        if isinstance(row, dict):
            index = row.get("step_index")
            if is_int(index) and 0 <= index < MOST_STEPS:
                return index, offset, length, row.get("type") == "USER_INPUT"
        elif row != "" and span:
            span.skipped += 1
        return None

    def scan(self, log, start):
        """The Span of a log from a line's start on."""
        span = Span(start)
        live, add = span.live, span.add
        for index, offset, _, user in self.lines(log, start, span):
            if index == len(live) and not user and span.run is None and span.first is not None:  # the common case, not worth a call
                live.append(1)
                span.last = index
            elif index < MOST_STEPS:
                add(index, offset, user)
        log.span = span

    def reach(self, enough):
        """Reads both logs from the end, further and further, until `enough(self)` says so or all is read."""
        for tail in TAILS:
            for log in self.logs:
                if log.span is None or log.span.start > 0:
                    start = log.line_start(log.end - tail) if log.end > tail else 0
                    self.scan(log, start)
            self.settle()
            if all(log.span.start == 0 for log in self.logs) or all(log.span.closed() for log in self.logs) and enough(self):
                return

    def reach_index(self, index):
        if not all(log.span and log.span.reaches(index) for log in self.logs):
            self.reach(lambda _: all(log.span.reaches(index) for log in self.logs))

    def settle(self):
        """Makes the rewinds of the two logs agree where the first row of a run is lost in one of them, or not yet written."""
        spans = [log.span for log in self.logs]
        if len(spans) < 2 or not (spans[0].rewinds or spans[1].rewinds):
            return
        one, two = spans
        for back in range(1, min(len(one.rewinds), len(two.rewinds)) + 1):
            a, b = one.rewinds[-back], two.rewinds[-back]
            if a[1] != b[1] and abs(a[1] - b[1]) <= DISORDER:
                late, mark, index = (one, a, b[1]) if a[1] > b[1] else (two, b, a[1])
                late.rewinds[-back] = (mark[0], index, mark[2])
                late.live[index:mark[1]] = bytes(mark[1] - index)
                late.users = [user for user in late.users if not index <= user < mark[1]]
        if len(one.rewinds) != len(two.rewinds):
            self.settle_single(*sorted(self.logs, key=lambda log: -len(log.span.rewinds)))

    def settle_single(self, rewound, other):
        """A rewind that stands in one log only: the other has not got it yet, or began anew before its index."""
        (_, index, height), ahead, top = rewound.span.rewinds[-1], other.span, len(rewound.span.live)
        if top + 2 < len(ahead.live) <= height + 2 and ahead.live[index]:
            ahead.cut(index if ahead.last > top + 1 else top, other.end)

    def places(self, log, number, first, last):
        """(index, log's number, offset, length) of a log's live rows in [first, last), rising: late rows are put in their place."""
        from heapq import heappop, heappush
        heap, dead = [], log.span.is_dead if log.span.rewinds else None
        for index, offset, length, _ in self.lines(log, log.span.start):
            if first <= index < last and not (dead and dead(index, offset)):
                heappush(heap, (index, number, offset, length))
                if len(heap) > DISORDER:
                    yield heappop(heap)
            elif index >= last + DISORDER and not dead:
                break
        while heap:
            yield heappop(heap)

    def merged(self, first=0, last=None):
        """(index, log's number, offset, length) of the live rows of both logs, rising; where both have one, that of the full log."""
        from heapq import merge
        self.reach_index(first)
        last, done = MOST_STEPS if last is None else last, -1
        for place in merge(*[self.places(log, number, first, last) for number, log in enumerate(self.logs)]):
            if place[0] != done:
                yield place
            done = place[0]

    def rows(self, first=0, last=None):
        return Rows(self, self.merged(first, last))

    def load(self, index, number, offset, length):
        """The Step at a place, or None where it cannot be read, neither there nor in the other log."""
        row = parse_line(self.logs[number].read(offset, length)) if length <= LONGEST_LINE else None
        if isinstance(row, dict):
            return Step(index, row, self.logs[number].full, length)
        self.broken += 1
        for other in range(number + 1, len(self.logs)):
            for place in self.places(self.logs[other], other, index, index + 1):
                return self.load(*place)
        return None

    def parsed(self, places):
        """The Steps at places, without the noise."""
        for place in places:
            step = self.load(*place)
            if step and step.type not in NOISE:
                yield step

    def steps(self, first=0, last=None):
        """Live steps with first <= index < last, rising. Memory does not grow with the files."""
        return self.parsed(self.merged(first, last))

    def step(self, index):
        """The live step of that index, noise too, or None."""
        for place in self.merged(index, index + 1):
            return self.load(*place)
        return None

    def bounds(self):
        """(lowest, highest) index that lives, None where there is none; the lowest only as far as it was read."""
        spans = [log.span for log in self.logs if log.span and log.span.first is not None]
        return (min(s.lowest for s in spans), max(len(s.live) for s in spans) - 1) if spans else None

    def users(self):
        """Indexes of the live user turns in what was read, rising."""
        found = set()
        for log in self.logs:
            found.update(user for user in log.span.users if user < len(log.span.live) and log.span.live[user])
        return sorted(found)

    def turns(self, before=None):
        """Turns, newest first, of the steps below index `before`: only as much is read as is asked for."""
        before = MOST_STEPS if before is None else before
        wanted = 4
        while before > 0:
            self.reach(lambda _, wanted=wanted, before=before: self.has_turns(wanted, before))
            starts = [user for user in self.users() if user < before][-wanted:]
            whole = all(log.span.start == 0 for log in self.logs)
            starts = [user for user in starts if whole or all(log.span.reaches(user) for log in self.logs)]
            rows = self.rows(starts[0] if starts and not (whole and len(starts) < wanted) else 0, before)
            for user in reversed(starts):
                yield Turn(user, rows.slice(user, before), True)
                before = user
            if whole and len(starts) < wanted:
                rest = rows.slice(0, before)
                if len(rest):
                    yield Turn(rest.indexes[0], rest, False)
                return
            wanted *= 4

    def has_turns(self, wanted, before):
        starts = [user for user in self.users() if user < before][-wanted:]
        return len(starts) == wanted and all(log.span.reaches(starts[0]) for log in self.logs)


def exit_code(step):
    """The exit code of a command's result, or None: its own field, else the sentence in its text (transcript.md §3)."""
    if step.exit_code is not None:
        return step.exit_code
    text = body(step)[:400]
    for mark in ("The command exited with code ", "failed with exit code: "):
        at = text.find(mark)
        if at >= 0:
            number = text[at + len(mark):at + len(mark) + 12].split(".")[0].split("\n")[0].strip()
            return int(number) if number.lstrip("-").isdigit() else None
    return None


def user_text(step):
    """What the user wrote: between the first <USER_REQUEST> and the last </USER_REQUEST>; without them all up to the host's metadata."""
    text = step.content
    first, last = text.find("<USER_REQUEST>"), text.rfind("</USER_REQUEST>")
    if 0 <= first < last:
        return text[first + len("<USER_REQUEST>"):last].strip()
    return text.split("\n<ADDITIONAL_METADATA>")[0].strip()


def body(step):
    """The text of a row without the host's wrapping: a result without its times, a user's request, a notice's message."""
    text = step.content
    if step.type == "USER_INPUT":
        return user_text(step)
    if text.startswith("Created At: "):
        lines = text.split("\n", 2)
        rest = lines[1:] if len(lines) < 2 or not lines[1].startswith("Completed At: ") else lines[2:]
        return "\n".join(rest).strip("\n")
    if step.type == "SYSTEM_MESSAGE":
        first, last = text.rfind("\n<SYSTEM_MESSAGE>\n"), text.rfind("</SYSTEM_MESSAGE>")
        return text[first + 18:last].strip() if 0 <= first < last else text.strip()
    return text


class Outcome:
    """How a result ended: `kind` is ok, failed (a command's exit code is not 0), error, denied or running; `code` (int or None), `text`."""
    __slots__ = ("kind", "code", "text")

    def __init__(self, kind, code=None, text=""):
        self.kind, self.code, self.text = kind, code, text


DENIALS = ("denied by pre-tool hook", "denied by user", "permission denied by the user", "user denied", "user rejected")


def outcome(step):
    """The Outcome of a result row, an ERROR_MESSAGE among them."""
    if step.status == "ERROR" or step.type == "ERROR_MESSAGE" or step.error:
        text = step.error or body(step)
        mark = "Encountered error in step execution: "
        text = text[len(mark):] if text.startswith(mark) else text
        return Outcome("denied" if any(word in text[:400].lower() for word in DENIALS) else "error", None, text.strip())
    if step.status == "RUNNING":
        return Outcome("running")
    code = exit_code(step)
    return Outcome("failed" if code else "ok", code)


def is_result(step):
    """A row that answers a call: neither the user's, nor the model's, nor the host's own."""
    if step.type == "ERROR_MESSAGE":
        return True
    return step.source != "SYSTEM" and step.type not in ("USER_INPUT", "PLANNER_RESPONSE", "SYSTEM_MESSAGE", "CHECKPOINT")


def roles(step):
    """The roles of a row, as query_transcript names them, the one to show first."""
    if step.type == "ERROR_MESSAGE":
        return ("error",)
    if step.type == "USER_INPUT":
        return ("user",)
    if step.type == "PLANNER_RESPONSE":
        return ("error", "assistant") if step.status == "ERROR" or step.error else ("assistant",)
    if not is_result(step):
        return ("system",)
    return ("error", "tool") if step.status == "ERROR" or step.error else ("tool",)


def pair_results(steps):
    """(step, results) of rising steps: a model row comes with its results, in the order of its calls, None where there is none; every row that
    is no such result comes by itself with []. Call k of row p is answered by row p+1+k (transcript.md §3), or, where other rows stand between
    and the numbers agree, by the k-th result."""
    waiting, rest = None, []
    for step in steps:
        if waiting and (step.type in ("PLANNER_RESPONSE", "USER_INPUT") or len(rest) > 4 * len(waiting.calls) + 64):
            yield from paired(waiting, rest)
            waiting, rest = None, []
        if step.calls:
            waiting = step
        elif waiting:
            rest.append(step)
        else:
            yield step, []
    if waiting:
        yield from paired(waiting, rest)


def paired(model, rest):
    count = len(model.calls)
    answers = [step for step in rest if is_result(step)]
    near = {step.index: step for step in answers}
    results = [near.get(model.index + 1 + k) for k in range(count)]
    if len(answers) == count or len(answers) > sum(1 for step in results if step):
        left = [step for step in answers if step not in results]
        results = answers[:] if len(answers) == count else [step or (left.pop(0) if left else None) for step in results]
    yield model, results
    for step in rest:
        if step not in results:
            yield step, []


class Task:
    """A background task's start: `number` (its row's index), `kind` (command or timer), `text` (what it runs), `log` (path or ""); its end:
    `number` (None: all of them), `how` (finished, failed, canceled, fired, stopped)."""
    __slots__ = ("number", "kind", "text", "log", "how")

    def __init__(self, number, kind="", text="", log="", how=""):
        self.number, self.kind, self.text, self.log, self.how = number, kind, text, log, how


def after(text, mark, stop="\n"):
    """What stands behind a mark, up to a stop; "" where there is no mark."""
    at = text.find(mark)
    return text[at + len(mark):].split(stop, 1)[0] if at >= 0 else ""


def task_number(text):
    """5 of "<conversation>/task-5" or "task-5", else None."""
    number = text.rsplit("/", 1)[-1].rstrip()
    return int(number[5:]) if number.startswith("task-") and number[5:].isdecimal() and len(number) < 15 else None


def task_start(step):
    """The Task that a row started, or None. The number must be the row's own: a quoted id proves nothing (transcript.md §4)."""
    text = body(step)
    if step.status != "RUNNING" or not text.startswith("Tool is running as a background task with task id: "):
        return None
    if task_number(after(text, "task id: ")) != step.index:
        return None
    about, log = after(text, "\nTask Description: ", "\nTask logs are available at: "), after(text, "\nTask logs are available at: ").strip()
    return Task(step.index, "timer" if about.startswith("Timer: ") else "command", about.strip(), log[7:] if log.startswith("file://") else log)


def task_end(step):
    """The Task that a row ended, or None: the host's notice, the answer to a kill or to a status call, or a restart of the server."""
    text = body(step)
    if step.type == "SYSTEM_MESSAGE":
        if "[Notice] All your subagents and background tasks have been stopped due to server restart" in text[:400]:
            return Task(None, how="stopped")
        number = task_number(after(text[:400], "sender=", " "))
        if number is None:
            return None
        said = after(text, " content=", "\n")
        for how in ("finished", "failed", "canceled"):
            if said.startswith("Task id ") and said.rstrip().endswith(f'" {"was " if how == "canceled" else ""}{how} with result:'):
                return Task(number, how=how)
        return Task(number, how="fired")
    if text.startswith('Task "') and after(text, '" ').startswith("cancelled."):
        number = task_number(text[6:].split('"', 1)[0])
        return None if number is None else Task(number, how="canceled")
    if text.startswith("Task: ") and after(text, "\nStatus: ") in ("DONE", "ERROR"):
        number = task_number(after(text, "Task: "))
        return None if number is None else Task(number, how="finished" if after(text, "\nStatus: ") == "DONE" else "failed")
    return None


def notice(step, limit=200):
    """A system row in one line: who sent it and what it says."""
    text = body(step)
    sender, said = after(text[:400], "sender=", " "), text.split(" content=", 1)[-1] if text.startswith("[Message]") else text
    name = sender.rsplit("/", 1)[-1] if sender and sender != "system" else ""
    said = " ".join(said.split("\n\nLog: ")[0].split())
    return shorten(f"{name}: {said}" if name else said, limit)


def size_of(count):
    """A size as people read it: 20 B, 14.2 KB, 3.1 MB."""
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} KB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def utf8(text):
    return text.encode("utf-8", "replace")


def head_of(text, limit):
    """The first characters that fit into `limit` bytes."""
    return utf8(text[:limit])[:max(0, limit)].decode("utf-8", "ignore")


def tail_of(text, limit):
    return utf8(text[-limit:])[-limit:].decode("utf-8", "ignore") if limit > 0 else ""


def shorten(text, limit):
    """A text of at most `limit` bytes: what does not fit is taken out of the middle, and how much it was stands there."""
    size = len(utf8(text)) if len(text) * 4 > limit else 0
    if size <= limit:
        return text
    mark = f" …[{size_of(size - limit)} left out]… "
    room = limit - len(utf8(mark)) - 4
    if room < 20:
        return head_of(text, limit - 3) + "…" if limit > 3 else head_of(text, limit)
    return head_of(text, room * 2 // 3) + mark + tail_of(text, room - room * 2 // 3)


def fence(text, language=""):
    """The text as a fenced block that nothing in it can close."""
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{text}\n{mark}"


def open_fence(text):
    """The mark that would close the fenced block which the text leaves open, or ""."""
    mark = ""
    for line in text.split("\n"):
        bare = line.lstrip(" >")
        run = len(bare) - len(bare.lstrip(bare[:1])) if bare[:1] in ("`", "~") else 0
        if run >= 3 and len(line) - len(bare) < 4:
            if not mark:
                mark = bare[:run] if bare[0] == "~" or "`" not in bare[run:] else ""
            elif bare[0] == mark[0] and run >= len(mark) and not bare[run:].strip():
                mark = ""
    return mark


def close_fences(text):
    """The text with the fenced block closed that it leaves open."""
    mark = open_fence(text)
    return text + ("" if text.endswith("\n") else "\n") + mark if mark else text


def clip(text, limit):
    """At most `limit` bytes of Markdown, cut at a line where one is near, its fence closed."""
    if len(utf8(text)) <= limit:
        return text
    room = limit - 4
    while room > 0:
        head = head_of(text, room)
        line = head.rfind("\n")
        done = close_fences((head[:line] if line > room * 3 // 4 else head).rstrip() + "…")
        if len(utf8(done)) <= limit:
            return done
        room -= max(4, len(utf8(done)) - limit)
    return head_of(text, limit)


class Page:
    """Markdown of at most `limit` bytes, built of blocks with a blank line between. add() takes a block or, where it does not fit, says False."""
    __slots__ = ("limit", "blocks", "used")

    def __init__(self, limit):
        self.limit, self.blocks, self.used = limit, [], 0

    def room(self):
        """Bytes that the next block may have."""
        return self.limit - self.used - (2 if self.blocks else 0)

    def add(self, block, at=None):
        size = len(utf8(block))
        if size > self.room():
            return False
        self.used += size + (2 if self.blocks else 0)
        self.blocks.insert(len(self.blocks) if at is None else at, block)
        return True

    def text(self):
        return "\n\n".join(self.blocks)


# ---- Tools over transcripts: read_transcript, query_transcript ------------------------------------------------------------------------


# ---- Context health, digest, briefs, prompts, rules -----------------------------------------------------------------------------------


# ---- Installation: install, uninstall, status, explain --------------------------------------------------------------------------------


# ---- The tool table and main ----------------------------------------------------------------------------------------------------------
# A new tool, prompt, resource or command is one entry here; what it is stands in its own section.
TOOLS = (
    # read_transcript
    # query_transcript
    # check_context_health
    # subagent_brief
    # get_installation_status
    # sync_installation
)
PROMPTS = (
    # context_shield
    # btw
)
RESOURCES = (
    # agy://rules
)
# What a client puts into the model's context when it connects.
INSTRUCTIONS = "Reads this user's Antigravity conversations. Use these tools in place of opening transcript files."
COMMANDS = {  # name -> function(arguments after it) -> exit code
    # install uninstall status explain
}


def main(argv=None):
    """Serves where there is no argument, else runs the command that people type; returns the exit code. Also what an importing starter calls:
    python -I -S -c 'import sys; sys.path.insert(0, FOLDER); import agy_mcp; sys.exit(agy_mcp.main())' has a compiled copy to start from."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments and not posix.isatty(0):
        return serve(Server(TOOLS, PROMPTS, RESOURCES, INSTRUCTIONS))
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    if arguments in (["--version"], ["-V"]):
        print(__version__)
        return 0
    asked = arguments in ([], ["--help"], ["-h"])
    print(__doc__.strip() if asked else f"agy_mcp.py: unknown command {arguments[0]!r}; see --help", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
