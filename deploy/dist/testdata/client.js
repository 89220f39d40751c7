// Connects the TypeScript SDK to a stdio server and calls its tool get-sum:
// node client.js PACKAGE.JSON COMMAND ARGS...
"use strict";
const { createRequire } = require("node:module");
const sdk = createRequire(process.argv[2]);
const { Client } = sdk("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = sdk("@modelcontextprotocol/sdk/client/stdio.js");

(async () => {
  const [command, ...args] = process.argv.slice(3);
  const client = new Client({ name: "packages", version: "1.0.0" });
  await client.connect(new StdioClientTransport({ command, args, env: process.env }), { timeout: 600000 });
  const { tools } = await client.listTools();
  const sum = await client.callTool({ name: "get-sum", arguments: { a: 2, b: 3 } });
  console.log(`${tools.length > 3}: ${sum.content[0].text}`);
  await client.close();
})();
