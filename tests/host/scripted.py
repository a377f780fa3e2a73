"""An OpenAI-compatible model server on 127.0.0.1 that plays a script.

A step is text (the turn ends), a tuple (tool, arguments), or a function that is given the messages of the request and returns one of the
two, so that a script can react to what a tool answered. The k-th request gets the k-th step; after the last, the text "done".
The server takes at most LIMIT requests and lives at most LIFETIME seconds, whatever happens to its owner.
"""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT = 60
LIFETIME = 120


def last_result(messages):
    """The text of the newest tool result in a request."""
    for message in reversed(messages):
        if message.get("role") == "tool":
            return text_of(message.get("content"))
    return ""


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def deltas(step, number):
    """The two choices that stream one step: what the model says, and why it stops."""
    if isinstance(step, str):
        return {"role": "assistant", "content": step}, "stop"
    tool, arguments = step
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "tool_calls": [call]}, "tool_calls"


def stream(step, number):
    """The body of one answer: server-sent events."""
    said, reason = deltas(step, number)
    for delta, finish in ((said, None), ({}, reason)):
        chunk = {"id": f"turn-{number}", "object": "chat.completion.chunk", "created": 0, "model": "scripted",
                 "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        number, step = self.server.script.next(request)
        self.send_response(200 if step is not None else 503)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in stream(step, number) if step is not None else ():
            self.wfile.write(part)

    def log_message(self, *args):
        pass


class Script:
    """The steps, and what has been asked so far: requests is the list of request bodies, faults what a step's function raised."""

    def __init__(self, steps):
        self.steps, self.requests, self.faults, self.lock = list(steps), [], [], threading.Lock()

    def next(self, request):
        with self.lock:
            number = len(self.requests)
            if number >= LIMIT:
                return number, None
            self.requests.append(request)
        step = self.steps[number] if number < len(self.steps) else "done"
        try:
            return number, step(request["messages"]) if callable(step) else step
        except Exception as error:  # the script's own fault ends the conversation instead of hanging it
            self.faults.append(f"step {number}: {error!r}")
            return number, "the script failed"


class ModelServer:
    """`with ModelServer(steps) as server:` serves on server.url; server.script tells what was asked."""

    def __init__(self, steps):
        self.script = Script(steps)

    def __enter__(self):
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads, self.http.script = True, self.script
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.alarm = threading.Timer(LIFETIME, self.http.shutdown)
        self.alarm.daemon = True
        self.alarm.start()
        return self

    def __exit__(self, *_):
        self.alarm.cancel()
        self.http.shutdown()
        self.http.server_close()
