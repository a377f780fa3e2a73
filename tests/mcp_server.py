"""A server with a tool table of its own over the wire of agy_mcp.py: `python -I -S tests/mcp_server.py`."""
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from agy_mcp import Prompt, Resource, Server, Tool, ToolError, posix, serve, time


def slow(arguments, context):
    steps = round(arguments["seconds"] * 20)
    for step in range(steps):
        context.check()
        context.progress(step, steps, f"step {step}")
        time.sleep(0.05)
    return "done"


def broken(arguments, context):
    raise {"KeyError": KeyError, "SystemExit": SystemExit, "ToolError": ToolError, "RecursionError": RecursionError}[arguments["error"]]("why \ud800")


def ask(arguments, context):
    if arguments["question"] == "raise":
        raise ToolError("no such question")
    return "Q: " + arguments["question"]


def noise(arguments, context):
    print("printed")
    sys.stdout.flush()
    posix.write(1, b"written\n")
    posix.system("echo from a child; cat")
    return "quiet"


def numbers(arguments, context):
    return repr(sorted(arguments.items()))


def text(description=""):
    return {"type": "string", "description": description}


def schema(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


SECONDS = schema(["seconds"], seconds={"type": "number", "minimum": 0, "maximum": 60})
TOOLS = (
    Tool("echo", "Says it back.", schema(["text"], text=text()), lambda a, c: a["text"]),
    Tool("pair", "Says it back twice.", schema(["text"], text=text()), lambda a, c: (a["text"], {"text": a["text"]}),
         output=schema(["text"], text=text())),
    Tool("slow", "Works a while.", SECONDS, slow),
    Tool("deaf", "Works a while and hears no cancel.", SECONDS, lambda a, c: time.sleep(a["seconds"]) or "done"),
    Tool("broken", "Raises.", schema(["error"], error=text()), broken, reads=False),
    Tool("noise", "Prints.", schema(), noise),
    Tool("big", "A long text.", schema(["bytes"], bytes={"type": "integer"}), lambda a, c: "x" * a["bytes"]),
    Tool("nan", "Not JSON.", schema(), lambda a, c: ("nan", {"value": float("nan")})),
    Tool("who", "The conversation.", schema(), lambda a, c: repr(c.conversation)),
    Tool("numbers", "All kinds of arguments.", schema(
        ["count"], count={"type": "integer", "minimum": 0, "maximum": 10}, ratio={"type": "number"}, flag={"type": "boolean", "default": False},
        mode={"type": "string", "enum": ["compact", "full"]}, roles={"type": "array", "items": {"type": "string", "enum": ["user", "tool"]}},
        lastTurns={"type": "integer", "minimum": 0}), numbers),
)
PROMPTS = (Prompt("ask", "Asks.", (("question", "What to ask.", True),), ask),)
RESOURCES = (Resource("agy://rules", "rules", "The rules.", "text/markdown", lambda c: "# Rules"),
             Resource("agy://broken", "broken", "Raises.", "text/plain", lambda c: {}["missing"]))


if __name__ == "__main__":
    serve(Server(TOOLS, PROMPTS, RESOURCES, "Try echo."))
