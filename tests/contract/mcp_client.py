"""Run by the Python of an environment that has the client in question: follows a plan and prints what came back, as one JSON list.

mcp_client.py mcp1|mcp2|fastmcp MODE COMMAND [ARGUMENT ...] < plan; the plan is a JSON list of [verb, argument ...], see VERBS.
"""
import contextlib
import json
import sys

import anyio

PATIENCE = 30


@contextlib.asynccontextmanager
async def mcp1(mode, command):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    async with stdio_client(StdioServerParameters(command=command[0], args=command[1:])) as streams, ClientSession(*streams) as session:
        yield session, await session.initialize()


@contextlib.asynccontextmanager
async def mcp2(mode, command):
    from mcp import Client, StdioServerParameters
    async with Client(StdioServerParameters(command=command[0], args=command[1:]), mode=mode) as client:
        yield client, {"protocolVersion": client.protocol_version, "instructions": client.instructions}


@contextlib.asynccontextmanager
async def fastmcp(mode, command):
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    async with Client(StdioTransport(command[0], command[1:], keep_alive=False), mode=mode) as client:
        yield client, {}


def method(client, name):
    """fastmcp has the plain protocol results under names of their own."""
    return getattr(client, name + "_mcp", None) or getattr(client, name)


async def call(client, name, arguments, meta=None):
    steps = []

    async def told(done, total, message):
        steps.append([done, total, message])
    handler = {"progress_handler": told} if hasattr(client, "call_tool_mcp") else {"progress_callback": told}
    result = plain(await method(client, "call_tool")(name, arguments, meta=meta, **handler))
    return dict(result, progress=steps)


async def cancel(client, name, arguments):
    """Gives up a call, with whatever this client sends then."""
    with anyio.move_on_after(0.3):
        return plain(await method(client, "call_tool")(name, arguments))
    return {"given up": True}


async def together(client, name, *many):
    found = [None] * len(many)

    async def one(i):
        found[i] = (await call(client, name, many[i]))["content"][0]["text"]
    async with anyio.create_task_group() as group:
        for i in range(len(many)):
            group.start_soon(one, i)
    return found


async def ping(client):
    return await getattr(client, "ping" if hasattr(client, "ping") else "send_ping")()


VERBS = {
    "tools": lambda client: method(client, "list_tools")(), "prompts": lambda client: method(client, "list_prompts")(),
    "resources": lambda client: method(client, "list_resources")(), "templates": lambda client: method(client, "list_resource_templates")(),
    "prompt": lambda client, name, arguments: method(client, "get_prompt")(name, arguments), "together": together,
    "read": lambda client, uri: method(client, "read_resource")(uri), "call": call, "cancel": cancel, "ping": ping,
}


def plain(value):
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [plain(item) for item in value] if isinstance(value, list) else value


async def follow(name, mode, command, plan):
    async with {"mcp1": mcp1, "mcp2": mcp2, "fastmcp": fastmcp}[name](mode, command) as (client, greeting):
        found = [plain(greeting)]
        for verb, *arguments in plan:
            try:
                with anyio.fail_after(PATIENCE):
                    found.append(plain(await VERBS[verb](client, *arguments)))
            except Exception as error:
                found.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(found))


if __name__ == "__main__":
    anyio.run(follow, sys.argv[1], sys.argv[2], sys.argv[3:], json.load(sys.stdin))
