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
