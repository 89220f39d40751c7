// A client of exactly one revision by the TypeScript SDK, 1.x or 2.x.

import * as v2 from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport as SSE1 } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as Streamable1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as types1 from '@modelcontextprotocol/sdk/types.js';
import { deadline } from '../peer.mjs';
import { Base } from './base.mjs';
import { modern, rev3, rev4 } from './features.mjs';

const schemas1 = {
  'tools/list': types1.ListToolsResultSchema,
  'tools/call': types1.CallToolResultSchema,
  'resources/list': types1.ListResourcesResultSchema,
  'resources/templates/list': types1.ListResourceTemplatesResultSchema,
  'resources/read': types1.ReadResourceResultSchema,
  'prompts/list': types1.ListPromptsResultSchema,
  'prompts/get': types1.GetPromptResultSchema,
  'completion/complete': types1.CompleteResultSchema,
};

/** capabilitiesOf is everything that a client of the revision can declare. */
function capabilitiesOf(revision) {
  const all = { roots: revision < modern ? { listChanged: true } : {}, sampling: {} };
  if (revision >= rev3) all.elicitation = {};
  if (revision >= rev4) Object.assign(all, { sampling: { tools: {} }, elicitation: { form: {}, url: {} } });
  return all;
}

export class TypeScriptPeer extends Base {
  constructor(sdk, revision, where) {
    super(revision, where);
    this.sdk = sdk;
    const info = { name: `client-${revision}`, version: '1.0.0' };
    const capabilities = capabilitiesOf(revision);
    if (sdk === 1) this.client = new Client1(info, { capabilities });
    else
      this.client = new v2.Client(info, {
        capabilities,
        supportedProtocolVersions: [revision],
        versionNegotiation: { mode: this.modern ? { pin: revision } : 'legacy' },
      });
    this.client.onerror = (e) => this.errors.push(String(e));
    const answer = (method) => async (request) => {
      this.asked.push([method, request.params ?? {}]);
      return this.answers[method](request.params ?? {});
    };
    const kinds = {
      'roots/list': types1.ListRootsRequestSchema,
      'sampling/createMessage': types1.CreateMessageRequestSchema,
      ...(capabilities.elicitation && { 'elicitation/create': types1.ElicitRequestSchema }),
    };
    for (const [method, schema] of Object.entries(kinds))
      this.client.setRequestHandler(sdk === 1 ? schema : method, answer(method));
  }

  async connect() {
    const t = this.#open();
    if (this.sdk === 1) {
      // The SDK has no option for the revision that it asks for.
      const send = t.send.bind(t);
      t.send = (m, options) =>
        send(m.method === 'initialize' ? { ...m, params: { ...m.params, protocolVersion: this.revision } } : m, options);
    }
    // Protocol.connect keeps a handler that is already there and calls it first.
    t.onmessage = (m) => this.saw(m);
    await this.client.connect(t, { timeout: deadline });
    this.transport = t;
    return this;
  }

  #open() {
    const { transport, url, command } = this.where;
    const [Stdio, SSE, Streamable] =
      this.sdk === 1
        ? [Stdio1, SSE1, Streamable1]
        : [Stdio2, v2.SSEClientTransport, v2.StreamableHTTPClientTransport];
    switch (transport) {
      case 'streamable':
        return new Streamable(new URL(url));
      case 'sse':
        return new SSE(new URL(url));
    }
    return new Stdio({ command: command[0], args: command.slice(1), stderr: 'ignore' });
  }

  /** negotiated is the revision that the server confirmed. */
  get negotiated() {
    if (this.sdk === 2) return this.client.getNegotiatedProtocolVersion();
    return this.wire.find((m) => m.result?.protocolVersion).result.protocolVersion;
  }

  /** server is what the server said of itself. */
  get server() {
    return {
      name: this.client.getServerVersion()?.name,
      instructions: this.client.getInstructions(),
      capabilities: this.client.getServerCapabilities(),
    };
  }

  get session() {
    return this.transport.sessionId;
  }

  async close() {
    if (!this.modern) await this.transport?.terminateSession?.();
    await this.client.close();
  }

  request(method, params = {}, options = {}) {
    options = { timeout: deadline, ...options };
    if (this.sdk === 1) return this.client.request({ method, params }, schemas1[method] ?? types1.EmptyResultSchema, options);
    if (method.startsWith('no/')) return this.client.request({ method, params }, v2.specTypeSchemas.Result, options);
    return this.client.request({ method, params }, options);
  }

  callTool(params, options) {
    options = { timeout: deadline, ...options };
    if (this.sdk === 1) return this.client.callTool(params, types1.CallToolResultSchema, options);
    return this.client.callTool(params, options);
  }

  ping() {
    return this.client.ping();
  }

  /** listAll makes the SDK know all tools, as it must to mirror arguments. */
  async listAll() {
    if (this.sdk === 2) await this.client.listTools();
  }

  /** watch makes notifications of these changes come, until its result is called. */
  async watch({ lists = false, uri }) {
    if (this.modern) {
      const filter = lists ? { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true } : {};
      const subscription = await this.client.listen({ ...filter, ...(uri && { resourceSubscriptions: [uri] }) });
      return () => subscription.close();
    }
    if (uri) await this.request('resources/subscribe', { uri });
    return async () => uri && (await this.request('resources/unsubscribe', { uri }));
  }
}
