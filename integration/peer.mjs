// What the feature script of client.mjs is written in: a client that remembers
// all that it was sent, and the words to judge it with.

import { isDeepStrictEqual } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

/** deadline, in milliseconds, bounds every wait; nothing waits it out when all is well. */
export const deadline = Number(process.env.BRIDGE_TEST_DEADLINE_MS ?? 60000);

/** fail ends the current check with a reason. */
export function fail(...parts) {
  throw new Error(parts.map((p) => (typeof p === 'string' ? p : JSON.stringify(p))).join(' '));
}

export function equal(got, want, what) {
  if (!isDeepStrictEqual(got, want)) fail(`${what} =`, brief(got), 'want', brief(want));
}

export function brief(v) {
  const s = JSON.stringify(v) ?? 'undefined';
  return s.length > 300 ? s.slice(0, 300) + '…' : s;
}

/**
 * Peer is one client with everything that it was sent. wire holds each message
 * as it came from the transport, before the SDK has judged it.
 */
export class Peer {
  wire = [];
  roots = [{ uri: 'file:///tmp/first', name: 'first' }];
  sampled = [];
  elicited = [];
  errors = [];
  onSampling = (params) => ({
    role: 'assistant',
    model: 'model-of-the-client',
    stopReason: 'endTurn',
    content: { type: 'text', text: `answer to ${promptOf(params)}` },
  });
  onElicit = () => ({ action: 'cancel' });
  #waiting = new Set();

  /** where is [TRANSPORT, URL], or ['stdio', COMMAND, ARGS…]. */
  constructor(where, name, capabilities) {
    this.where = where;
    this.client = new Client({ name, version: '1.0.0' }, { capabilities });
    this.client.onerror = (e) => this.errors.push(String(e));
    if (capabilities.roots)
      this.client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: this.roots }));
    if (capabilities.sampling)
      this.client.setRequestHandler(CreateMessageRequestSchema, async ({ params }) => {
        this.sampled.push(params);
        return this.onSampling(params);
      });
    if (capabilities.elicitation)
      this.client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
        this.elicited.push(params);
        return this.onElicit(params);
      });
  }

  async connect() {
    const t = openTransport(this.where);
    // Protocol.connect keeps a handler that is already there and calls it first.
    t.onmessage = (m) => {
      this.wire.push(m);
      for (const look of [...this.#waiting]) look();
    };
    await this.client.connect(t, { timeout: deadline });
    this.transport = t;
    return this;
  }

  async close() {
    // Close alone leaves a Streamable HTTP session behind: only DELETE ends it.
    if (this.transport?.terminateSession) await this.transport.terminateSession();
    await this.client.close();
  }

  /** mark is a place in the wire log for seen and next. */
  mark() {
    return this.wire.length;
  }

  seen(from, match) {
    return this.wire.slice(from).filter(match);
  }

  /** next resolves to the first message since from that matches. */
  next(from, what, match) {
    return new Promise((resolve, reject) => {
      const look = () => {
        const m = this.wire.slice(from).find(match);
        if (m === undefined) return;
        this.#waiting.delete(look);
        clearTimeout(timer);
        resolve(m);
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(look);
        reject(new Error(`no ${what} within ${deadline} ms; then came ${this.wire.length - from} messages, the last of them ${brief(this.wire.slice(Math.max(from, this.wire.length - 10)))}`));
      }, deadline);
      this.#waiting.add(look);
      look();
    });
  }

  tool(name, args = {}, options = {}) {
    return this.client.callTool({ name, arguments: args }, CallToolResultSchema, { timeout: deadline, ...options });
  }

  async text(name, args) {
    const r = await this.tool(name, args);
    if (r.isError) fail(`${name} failed:`, brief(r));
    return r.content.map((c) => c.text ?? '').join('\n');
  }
}

/** promptOf is the text of a sampling request, whose content is a block or an array of them. */
export function promptOf(params) {
  return [params.messages[0].content].flat()[0].text;
}

function openTransport([transport, ...target]) {
  switch (transport) {
    case 'streamable':
      return new StreamableHTTPClientTransport(new URL(target[0]));
    case 'sse':
      return new SSEClientTransport(new URL(target[0]));
    case 'stdio':
      return new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: 'ignore' });
  }
  throw new Error(`unknown transport ${transport}`);
}

export const everyCapability = {
  roots: { listChanged: true },
  sampling: {},
  elicitation: { form: {}, url: {} },
};
