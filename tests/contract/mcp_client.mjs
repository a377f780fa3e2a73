// The TypeScript SDK's half of mcp_client.py: node mcp_client.mjs ts1|ts2 MODE COMMAND [ARGUMENT ...] < plan. It is copied into the folder
// that has the packages, for node looks for them beside the script.
import { readFileSync } from "node:fs";

const [sdk, mode, command, ...args] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(0, "utf8"));
const load = async () => sdk === "ts1"
  ? [await import("@modelcontextprotocol/sdk/client/index.js"), await import("@modelcontextprotocol/sdk/client/stdio.js")]
  : [await import("@modelcontextprotocol/client"), await import("@modelcontextprotocol/client/stdio")];
const [{ Client }, { StdioClientTransport }] = await load();
const negotiation = mode === "auto" || mode === "-" || mode === "legacy" ? mode.replace("-", "legacy") : { pin: mode };
const client = new Client({ name: "t", version: "1" }, sdk === "ts1" ? {} : { versionNegotiation: { mode: negotiation } });
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env } }));

const use = (params, options) => sdk === "ts1" ? client.callTool(params, undefined, options) : client.callTool(params, options);
const call = async (name, given, meta) => {
  const progress = [];
  const onprogress = ({ progress: done, total, message }) => progress.push([done, total, message]);
  return { ...await use({ name, arguments: given, ...(meta ? { _meta: meta } : {}) }, { onprogress }), progress };
};
const cancel = async (name, given) => {
  const controller = new AbortController();
  setTimeout(() => controller.abort("enough"), 300);
  return use({ name, arguments: given }, { signal: controller.signal }).catch(() => ({ "given up": true }));
};
const verbs = {
  tools: () => client.listTools(), prompts: () => client.listPrompts(), resources: () => client.listResources(),
  templates: () => client.listResourceTemplates(), prompt: (name, given) => client.getPrompt({ name, arguments: given }),
  read: (uri) => client.readResource({ uri }), call, cancel, ping: () => client.ping(),
  together: async (name, ...many) => (await Promise.all(many.map((given) => call(name, given)))).map((result) => result.content[0].text),
};
const found = [{ instructions: client.getInstructions() }];
for (const [verb, ...rest] of plan) {
  found.push(await verbs[verb](...rest).catch((error) => ({ error: String(error) })));
}
await client.close();
console.log(JSON.stringify(found));
