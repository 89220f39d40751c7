// A server of revision 2026-07-28 and of no other, by the TypeScript SDK 2.x.
//
//   node server2.mjs 2026-07-28 stdio|streamable
//
// Over HTTP it picks a port and says where it listens.

import { createServer } from 'node:http';
import { ProtocolError, Server, createMcpHandler, inputRequired } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { features, levels, newState } from './features.mjs';

const [revision, kind] = process.argv.slice(2);
const { info, options, methods } = features(revision);
const state = newState(); // requests belong to no session
let publish; // set over HTTP, where each request has a server of its own

const reserved = (name) => `io.modelcontextprotocol/${name}`;

/** A Need is a question that the client has not answered yet. */
class Need extends Error {
  constructor(key, method, params) {
    super(`${key}: ${method}`);
    const { elicitationId: _, ...rest } = params;
    this.requests = { [key]: { method, params: rest } };
  }
}

function serve() {
  const server = new Server(info, { ...options, supportedProtocolVersions: [revision] });
  for (const [name, method] of Object.entries(methods)) {
    server.setRequestHandler(name, async ({ params }, { mcpReq }) => {
      const before = mcpReq.requestState();
      const answers = { ...(before && JSON.parse(before)), ...mcpReq.inputResponses };
      const declared = mcpReq.envelope[reserved('clientCapabilities')];
      const wanted = mcpReq.envelope[reserved('logLevel')];
      const notify = (method, params) => mcpReq.notify({ method, params });
      try {
        return await method(params, {
          revision,
          state,
          first: before === undefined && mcpReq.inputResponses === undefined,
          token: mcpReq._meta?.progressToken,
          signal: mcpReq.signal,
          ask: async (key, method, params) => {
            if (key in answers) return answers[key];
            throw new Need(key, method, params);
          },
          notify,
          log: async (level, data) => {
            if (wanted && levels.indexOf(level) >= levels.indexOf(wanted)) await notify('notifications/message', { level, data });
          },
          changed: (kind) =>
            publish ? publish[`${kind}sChanged`]() : server.notification({ method: `notifications/${kind}s/list_changed` }),
          updated: (uri) =>
            publish ? publish.resourceUpdated(uri) : server.notification({ method: 'notifications/resources/updated', params: { uri } }),
          can: (name) => name.split('.').reduce((c, part) => c?.[part], declared) !== undefined,
          lacking: (name) => {
            const requiredCapabilities = name.split('.').reduceRight((inner, part) => ({ [part]: inner }), {});
            throw new ProtocolError(-32021, `the client lacks ${name}`, { requiredCapabilities });
          },
          error: (code, message, data) => new ProtocolError(code, message, data),
          refused: () => false, // a client has no way to say so
        });
      } catch (e) {
        if (!(e instanceof Need)) throw e;
        return inputRequired({ inputRequests: e.requests, requestState: JSON.stringify(answers) });
      }
    });
  }
  return server;
}

if (kind === 'stdio') {
  serveStdio(serve, { legacy: 'reject' });
} else {
  const handler = createMcpHandler(serve, { legacy: 'reject' });
  publish = handler.notify;
  const http = createServer(toNodeHandler(handler));
  http.listen(0, '127.0.0.1', () => console.log(`era ${revision} at http://127.0.0.1:${http.address().port}/mcp`));
}
