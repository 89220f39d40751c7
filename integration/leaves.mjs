// A client (SDK 1.x) that makes one call and leaves as SDKs do: it closes its
// stream and sends no DELETE.
//
//   node leaves.mjs URL TOOL
//
// What the tool says goes to stdout.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, tool] = process.argv.slice(2);
const open = Promise.withResolvers();
const client = new Client({ name: 'leaves', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(url), {
  async fetch(at, init) {
    if (init?.method === 'DELETE') throw new Error('the SDK sends DELETE: the test is of no use any more');
    const answer = await fetch(at, init);
    if (init?.method === 'GET') open.resolve();
    return answer;
  },
}));
await open.promise;
const { content } = await client.callTool({ name: tool, arguments: { message: 'hello' } });
process.stdout.write(content[0].text);
await client.close();
