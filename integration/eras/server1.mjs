// A server of exactly one legacy revision by the TypeScript SDK 1.x.
//
//   node server1.mjs REVISION stdio|sse|streamable
//
// Over HTTP it picks a port and says where it listens.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { McpError, ResultSchema, SUPPORTED_PROTOCOL_VERSIONS } from '@modelcontextprotocol/sdk/types.js';
import { features, levels, newState } from './features.mjs';

const [revision, kind] = process.argv.slice(2);
const { info, options, methods } = features(revision);

// The SDK has no option for the revisions to speak. The list is what it checks
// the header against; the shim in serve makes it answer every handshake so.
SUPPORTED_PROTOCOL_VERSIONS.splice(0, Infinity, revision);

/** serve makes a session on the transport. */
async function serve(transport) {
  const server = new Server(info, options);
  const state = newState();
  server.removeRequestHandler('logging/setLevel');
  server.fallbackRequestHandler = (request, extra) => {
    const method = methods[request.method];
    if (!method) throw new McpError(-32601, 'Method not found');
    const send = (method, params) => extra.sendNotification({ method, params });
    const declared = server.getClientCapabilities() ?? {};
    return method(request.params, {
      revision,
      state,
      first: true,
      token: extra._meta?.progressToken,
      signal: extra.signal,
      ask: (key, method, params) => extra.sendRequest({ method, params }, ResultSchema),
      notify: send,
      log: async (level, data) => {
        if (levels.indexOf(level) >= levels.indexOf(state.level ?? 'debug')) await send('notifications/message', { level, data });
      },
      changed: (kind) => server.notification({ method: `notifications/${kind}s/list_changed` }),
      updated: async (uri) => {
        if (state.subscribed.has(uri)) await server.notification({ method: 'notifications/resources/updated', params: { uri } });
      },
      can: (name) => name.split('.').reduce((c, part) => c?.[part], declared) !== undefined,
      lacking: (name) => ({ content: [{ type: 'text', text: `the client lacks ${name}` }], isError: true }),
      error: (code, message, data) => new McpError(code, message, data),
      refused: (e) => e instanceof McpError,
    });
  };
  await server.connect(transport);
  const dispatch = transport.onmessage;
  transport.onmessage = (m, extra) => {
    if (m.method === 'initialize') m = { ...m, params: { ...m.params, protocolVersion: revision } };
    dispatch(m, extra);
  };
}

if (kind === 'stdio') {
  const transport = new StdioServerTransport();
  await serve(transport);
  process.stdin.on('end', () => process.exit(0));
} else {
  const sessions = new Map();
  const http = createServer(async (req, res) => {
    const url = new URL(req.url, 'http://localhost');
    const id = url.searchParams.get('sessionId') ?? req.headers['mcp-session-id'];
    const session = sessions.get(id);
    if (kind === 'sse' && req.method === 'GET') {
      const transport = new SSEServerTransport('/messages', res);
      sessions.set(transport.sessionId, transport);
      res.on('close', () => sessions.delete(transport.sessionId));
      return serve(transport);
    }
    if (kind === 'sse') return session ? session.handlePostMessage(req, res) : res.writeHead(404).end();
    if (session) return session.handleRequest(req, res);
    if (id !== undefined) return res.writeHead(404).end();
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
      onsessionclosed: (id) => sessions.delete(id),
    });
    await serve(transport);
    return transport.handleRequest(req, res);
  });
  http.listen(0, '127.0.0.1', () => {
    const base = `http://127.0.0.1:${http.address().port}`;
    console.log(`era ${revision} at ${base}/mcp`);
  });
}
