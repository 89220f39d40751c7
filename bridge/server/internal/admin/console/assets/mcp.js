// An MCP client over Streamable HTTP, of two eras: 2025-11-25, with a session, and 2026-07-28, in which
// each request says all there is to know. Whoever uses it notices the difference in the raw messages only.
import { parse, stringify } from './json.js';
import { hidden, onTurn } from './tab.js';

export const modern = '2026-07-28';
export const legacy = '2025-11-25';
export const revisions = [modern, legacy];

const meta = 'io.modelcontextprotocol/';
const mostRounds = 20;
const mostPages = 200;

/** An error that the server, or the bridge for it, has answered. */
export class RpcError extends Error {
  /** @param {any} error @param {number} [status] */
  constructor(error, status) {
    super(String(error?.message ?? 'an error without a message'));
    this.code = error?.code;
    this.data = error?.data;
    this.status = status;
  }
}

/** An answer of HTTP that is no answer of MCP. */
export class HttpError extends Error {
  /** @param {number} status @param {string} text */
  constructor(status, text) {
    super(`status ${status}${text ? `: ${text}` : ''}`);
    this.status = status;
  }
}

/**
 * @typedef {object} Options
 * @property {string} url
 * @property {string} revision modern or legacy
 * @property {any} capabilities of the client
 * @property {typeof fetch} [fetch]
 * @property {Record<string, string>} [headers] sent with every request
 * @property {(to: 'server'|'client', message: any) => void} [seen] each message, as it is on the wire
 * @property {(request: {method: string, params: any}, signal: AbortSignal) => Promise<any>} [ask] answers a server's
 *   request: with its result, or with null to refuse
 * @property {(notification: any) => void} [heard] notifications but progress
 */
/**
 * task is told how a task fares that the call has become.
 * @typedef {{signal?: AbortSignal, progress?: (p: any) => void, task?: (t: any) => void, level?: string, headers?: Record<string, string>}} CallOptions
 */

/** A value as a header carries it. @param {string} text */
export function headerValue(text) {
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$|^$/.test(text) && !/^=\?base64\?.*\?=$/.test(text)) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

/**
 * The headers that repeat arguments of a tool, as its schema marks them (x-mcp-header).
 * @param {any} schema @param {any} args
 * @returns {Record<string, string>}
 */
export function paramHeaders(schema, args) {
  /** @type {Record<string, string>} */
  const out = {};
  for (const [name, property] of Object.entries(schema?.properties ?? {})) {
    const value = args?.[name];
    const header = property?.['x-mcp-header'];
    if (value === undefined || value === null) continue;
    if (typeof header === 'string' && /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(header)) {
      if (['string', 'number', 'boolean'].includes(typeof value) || 'text' in value) out[`Mcp-Param-${header}`] = headerValue(String(value));
    } else if (property?.properties) Object.assign(out, paramHeaders(property, value));
  }
  return out;
}

/**
 * The events of a stream.
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<{id?: string, event: string, data: string}>}
 */
export async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  /** @type {any} */
  let e = { event: 'message', data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event without its empty line is none
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = /** @type {string} */ (lines.pop());
      for (const line of lines) {
        if (line === '') {
          if (e.data.length) yield { ...e, data: e.data.join('\n') };
          e = { event: 'message', data: [] };
        }
        const m = /^(data|event|id)(?:: ?(.*))?$/s.exec(line);
        if (m?.[1] === 'data') e.data.push(m[2] ?? '');
        else if (m) e[m[1]] = m[2] ?? '';
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the stream has ended, or is not wanted any more
  }
}

/** @param {number} ms @param {AbortSignal} [signal] ends it, with an error */
const pause = (ms, signal) => new Promise((done, fail) => {
  const stop = () => { clearTimeout(timer); fail(new DOMException('cancelled', 'AbortError')); };
  const timer = setTimeout(() => { signal?.removeEventListener('abort', stop); done(undefined); }, ms);
  if (signal?.aborted) stop();
  else signal?.addEventListener('abort', stop, { once: true });
});

export class Client {
  /** @param {Options} options */
  constructor(options) {
    this.o = options;
    this.modern = options.revision >= modern;
    this.session = '';
    this.revision = options.revision;
    /** What the server said of itself. @type {{capabilities: any, serverInfo?: any, instructions?: string}} */
    this.server = { capabilities: {} };
    this.level = '';
    this.closed = new AbortController();
    this.last = 0;
    /** @type {Map<any, (p: any) => void>} */
    this.progress = new Map();
    /** @type {Map<any, AbortController>} requests of the server that are being answered */
    this.asked = new Map();
    /** @type {AbortController|undefined} */
    this.listening = undefined;
    /** @type {Set<string>} */
    this.subscribed = new Set();
  }

  /** Opens what there is to open: a session, or the knowledge of the server. */
  async open() {
    if (this.modern) {
      const found = await this.request('server/discover', {});
      this.server = { ...found, serverInfo: found._meta?.[`${meta}serverInfo`] };
      this.#listen();
      this.closed.signal.addEventListener('abort', onTurn(() => this.#listen()));
      return;
    }
    const found = await this.request('initialize', { protocolVersion: this.revision, capabilities: this.o.capabilities, clientInfo: this.#info() });
    this.server = found;
    this.revision = found.protocolVersion;
    await this.#post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    this.#stream();
  }

  #info() { return { name: 'mcp-bridge-console', title: 'Console of mcp-bridge', version: '1' }; }

  /** Ends the session, and everything under way. */
  async close() {
    if (this.closed.signal.aborted) return;
    this.closed.abort();
    for (const asked of this.asked.values()) asked.abort();
    if (this.session) await (this.o.fetch ?? fetch)(this.o.url, { method: 'DELETE', headers: this.#headers(), keepalive: true }).catch(() => {});
  }

  /** @param {Record<string, string>} [more] */
  #headers(more) {
    /** @type {Record<string, string>} */
    const h = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', ...this.o.headers, ...more };
    if (this.session) h['Mcp-Session-Id'] = this.session;
    if (this.modern || this.server.serverInfo) h['MCP-Protocol-Version'] = this.revision;
    return h;
  }

  /** @param {any} message @param {AbortSignal} [signal] @param {Record<string, string>} [headers] */
  async #post(message, signal, headers) {
    this.o.seen?.('server', message);
    return (this.o.fetch ?? fetch)(this.o.url, { method: 'POST', credentials: 'same-origin', headers: this.#headers(headers), body: stringify(message), signal: signal ?? this.closed.signal });
  }

  /**
   * Makes a request, and answers what the server asks meanwhile.
   * @param {string} method @param {any} params @param {CallOptions} [options]
   * @returns {Promise<any>} its result
   */
  async request(method, params, options = {}) {
    /** @type {any} */
    let extra = {};
    for (let round = 0; round < mostRounds; round++) {
      let result;
      try {
        result = await this.#once(method, { ...params, ...extra }, options);
      } catch (e) {
        const urls = e instanceof RpcError && e.code === -32042 && e.data?.elicitations; // 2025-11-25: what must be agreed to first
        if (!Array.isArray(urls) || !urls.length) throw e;
        for (const url of urls) {
          const answer = await this.#answer({ method: 'elicitation/create', params: { mode: 'url', ...url } }, options.signal);
          if (answer?.action !== 'accept') throw e;
        }
        continue;
      }
      if (result?.resultType === 'task') return this.#follow(result, options);
      if (params.task && result?.task) return this.#follow(result.task, options);
      if (result?.resultType !== 'input_required') {
        if (result?.resultType !== undefined && result.resultType !== 'complete') throw new Error(`a result of type ${result.resultType}, which this page does not know`);
        return result;
      }
      /** @type {any} */
      const responses = {};
      for (const [key, request] of Object.entries(result.inputRequests ?? {})) {
        const answer = await this.#answer(request, options.signal);
        if (answer === null) throw new Error(`you refused ${request.method}, so the request was not continued`);
        responses[key] = answer;
      }
      extra = { inputResponses: responses };
      if (result.requestState !== undefined) extra.requestState = result.requestState;
    }
    throw new Error(`the server wanted more than ${mostRounds} rounds`);
  }

  /**
   * Waits for the end of a task, and answers what it asks meanwhile. Who aborts cancels it.
   * @param {any} task @param {CallOptions} options
   * @returns {Promise<any>} what the call would have had as its result
   */
  async #follow(task, options) {
    const { taskId } = task;
    /** @type {Set<string>} */
    const answered = new Set();
    /** @type {CallOptions} */
    const about = { signal: options.signal };
    try {
      for (;;) {
        options.task?.(task);
        if (task.status === 'cancelled') throw new Error(task.statusMessage ?? 'the server has cancelled the task');
        if (this.modern) {
          if (task.status === 'completed') return task.result;
          if (task.status === 'failed') throw new RpcError(task.error ?? { message: task.statusMessage ?? 'the task has failed' });
          /** @type {any} */
          const inputResponses = {};
          for (const [key, request] of Object.entries(task.inputRequests ?? {})) {
            if (answered.has(key)) continue;
            const answer = await this.#answer(request, options.signal);
            if (answer === null) throw new DOMException(`you refused ${request.method}`, 'AbortError');
            answered.add(key);
            inputResponses[key] = answer;
          }
          if (Object.keys(inputResponses).length) await this.#once('tasks/update', { taskId, inputResponses }, about);
        } else if (task.status !== 'working') return await this.#once('tasks/result', { taskId }, { ...about, progress: options.progress }); // a question comes with it
        await pause(Math.min(Math.max(Number(task.pollIntervalMs ?? task.pollInterval ?? 1000), 100), 30000), options.signal);
        task = await this.#once('tasks/get', { taskId }, about);
      }
    } catch (e) {
      if (e instanceof DOMException && !this.closed.signal.aborted) await this.#once('tasks/cancel', { taskId }, {}).catch(() => {});
      throw e;
    }
  }

  /** The capability that a request of a server needs. @param {string} method */
  #offers(method) {
    const c = this.o.capabilities;
    return new Map([['elicitation/create', c.elicitation], ['sampling/createMessage', c.sampling], ['roots/list', c.roots]]).get(method);
  }

  /** @param {any} request @param {AbortSignal} [signal] */
  async #answer(request, signal) {
    if (!this.#offers(request.method)) throw new DOMException(`${request.method} is not offered by this client`, 'AbortError');
    if (!this.o.ask) return null;
    const answer = await this.o.ask(request, signal ?? this.closed.signal);
    if (signal?.aborted) throw new DOMException('cancelled', 'AbortError');
    return answer;
  }

  /**
   * A request as it is sent: what it says, and the headers that say parts of it too.
   * @param {any} id @param {string} method @param {any} params @param {CallOptions} [options]
   */
  written(id, method, params, options = {}) {
    /** @type {any} */
    const message = { jsonrpc: '2.0', id, method, params: { ...params } };
    if (options.progress) message.params._meta = { ...params._meta, progressToken: id };
    /** @type {Record<string, string>} */
    const headers = {};
    if (!this.modern) return { message, headers };
    message.params._meta = {
      ...message.params._meta, [`${meta}protocolVersion`]: this.revision,
      [`${meta}clientCapabilities`]: this.o.capabilities, [`${meta}clientInfo`]: this.#info(),
    };
    const level = options.level ?? this.level;
    if (level) message.params._meta[`${meta}logLevel`] = level;
    Object.assign(headers, options.headers, { 'Mcp-Method': method });
    const name = method === 'resources/read' ? params.uri : method.startsWith('tasks/') ? params.taskId : ['tools/call', 'prompts/get'].includes(method) ? params.name : undefined;
    if (name !== undefined) headers['Mcp-Name'] = headerValue(name);
    return { message, headers };
  }

  /** @param {string} method @param {any} params @param {CallOptions} options */
  async #once(method, params, options) {
    this.closed.signal.throwIfAborted(); // the next page of a list, say: its session has ended
    const id = ++this.last;
    if (options.progress) this.progress.set(id, options.progress);
    const { message, headers } = this.written(id, method, params, options);
    const stop = new AbortController();
    const abort = () => {
      if (!this.modern && method !== 'initialize' && !this.closed.signal.aborted) {
        this.#post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id, reason: 'cancelled by hand' } }).catch(() => {});
      }
      stop.abort();
    };
    const ended = () => stop.abort();
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener('abort', abort);
    this.closed.signal.addEventListener('abort', ended);
    try {
      const response = await this.#post(message, stop.signal, headers);
      if (method === 'initialize') this.session = response.headers.get('Mcp-Session-Id') ?? '';
      const answer = await this.#read(response, id, stop.signal);
      if (answer.error) throw new RpcError(answer.error, response.status);
      return answer.result;
    } finally {
      options.signal?.removeEventListener('abort', abort);
      this.closed.signal.removeEventListener('abort', ended);
      this.progress.delete(id);
    }
  }

  /** The answer to a request; what comes before it is dealt with. @param {Response} response @param {any} id @param {AbortSignal} signal */
  async #read(response, id, signal) {
    const kind = response.headers.get('Content-Type') ?? '';
    if (kind.startsWith('text/event-stream') && response.body) {
      for await (const e of events(response.body)) {
        if (!e.data) continue;
        const m = parse(e.data);
        this.o.seen?.('client', m);
        if (m.id === id && m.method === undefined) return m;
        this.#incoming(m, signal);
      }
      throw new Error('the connection ended before the answer came');
    }
    const text = await response.text();
    let m;
    try { m = parse(text); } catch { throw new HttpError(response.status, text.slice(0, 500)); }
    this.o.seen?.('client', m);
    if (m?.jsonrpc === '2.0' && (m.error || (response.ok && m.id === id))) return m;
    throw new HttpError(response.status, m?.error?.message ?? text.slice(0, 500));
  }

  /** A message that is no answer. @param {any} m @param {AbortSignal} [signal] ends what it belongs to */
  #incoming(m, signal) {
    if (m.method === undefined) return;
    if (m.id !== undefined) {
      if (!this.modern) this.#reply(m, signal);
      return;
    }
    if (m.method === 'notifications/progress') this.progress.get(m.params?.progressToken)?.(m.params);
    else if (m.method === 'notifications/cancelled') this.asked.get(m.params?.requestId)?.abort();
    else this.o.heard?.(m);
  }

  /** Answers a request of the server, which only the legacy era has. @param {any} m @param {AbortSignal} [signal] */
  async #reply(m, signal) {
    const withdrawn = new AbortController();
    signal?.addEventListener('abort', () => withdrawn.abort());
    this.asked.set(m.id, withdrawn);
    /** @type {any} */
    const answer = { jsonrpc: '2.0', id: m.id };
    try {
      if (m.method !== 'ping' && !this.#offers(m.method)) answer.error = { code: -32601, message: `${m.method} is not offered by this client` };
      else if (m.method === 'ping') answer.result = {};
      else {
        const result = await this.#answer({ method: m.method, params: m.params }, withdrawn.signal);
        if (result === null) answer.error = { code: -1, message: 'the user refused' };
        else answer.result = result;
      }
    } catch (e) {
      if (withdrawn.signal.aborted) return;
      answer.error = { code: -32603, message: String(/** @type {any} */ (e).message) };
    } finally {
      this.asked.delete(m.id);
    }
    await this.#post(answer).catch(() => {});
  }

  /** The stream of a session for what belongs to no request; again when it was lost, and when the tab is in front again. */
  async #stream() {
    let id = '';
    for (let wait = 500; !this.closed.signal.aborted; wait = Math.min(wait * 2, 30000)) {
      while (hidden()) await new Promise((shown) => { const end = onTurn(() => { end(); shown(undefined); }); });
      const turned = new AbortController();
      const end = onTurn(() => { wait = 0; turned.abort(); });
      try {
        const response = await (this.o.fetch ?? fetch)(this.o.url, { headers: { ...this.#headers(id ? { 'Last-Event-ID': id } : {}), Accept: 'text/event-stream' }, signal: AbortSignal.any([this.closed.signal, turned.signal]) });
        if (!response.ok || !response.body) return; // the server has no such stream, or the session has ended
        for await (const e of events(response.body)) {
          wait = 500;
          id = e.id ?? id;
          if (!e.data) continue;
          const m = parse(e.data);
          this.o.seen?.('client', m);
          this.#incoming(m);
        }
      } catch { /* lost: again */ } finally { end(); }
      await new Promise((done) => { setTimeout(done, wait); });
      wait = Math.max(wait, 250);
    }
  }

  /** Subscribes to what changes, in the modern era: anew whenever the wishes have changed. */
  async #listen() {
    const c = this.server.capabilities ?? {};
    /** @type {any} */
    const wishes = {};
    for (const kind of ['tools', 'prompts', 'resources']) if (c[kind]?.listChanged) wishes[`${kind}ListChanged`] = true;
    if (this.subscribed.size) wishes.resourceSubscriptions = [...this.subscribed];
    this.listening?.abort();
    if (!Object.keys(wishes).length || hidden()) return;
    const stop = new AbortController();
    this.listening = stop;
    await this.#once('subscriptions/listen', { notifications: wishes }, { signal: stop.signal }).catch(() => {}); // it ends some time
  }

  /** @param {string} uri */
  async subscribe(uri) {
    this.subscribed.add(uri);
    if (this.modern) this.#listen();
    else await this.request('resources/subscribe', { uri });
  }

  /** @param {string} uri */
  async unsubscribe(uri) {
    this.subscribed.delete(uri);
    if (this.modern) this.#listen();
    else await this.request('resources/unsubscribe', { uri });
  }

  /** The level of what the server logs; empty: nothing is asked for. @param {string} level */
  async setLevel(level) {
    this.level = level;
    if (!this.modern && level) await this.request('logging/setLevel', { level });
  }

  /**
   * All pages of a list. A server that sends one again leads in a circle, or does not read cursors: the list ends there.
   * @param {string} method @param {string} member
   * @returns {Promise<any[]>}
   */
  async list(method, member) {
    const all = [];
    const seen = new Set();
    let cursor;
    for (let page = 0; page < mostPages; page++) {
      const result = await this.request(method, cursor ? { cursor } : {});
      const items = result[member] ?? [];
      cursor = result.nextCursor;
      const known = stringify(items.length ? items : cursor ?? null);
      if (seen.has(known)) break;
      seen.add(known);
      all.push(...items);
      if (!cursor) break;
    }
    return all;
  }
}
