// What every client of the era matrix has: all that it was sent, and the words
// of the script.

import { brief, deadline, equal, fail } from '../peer.mjs';
import { modern } from './features.mjs';

export class Base {
  wire = []; // what came, before the SDK has judged it where that can be had
  asked = []; // the questions, as [method, params]
  unseen = []; // methods of questions that do not come to be asked
  errors = [];
  answers = {
    'roots/list': () => ({ roots: [{ uri: 'file:///era/home', name: 'home' }] }),
    'sampling/createMessage': (q) => ({
      role: 'assistant',
      model: 'model-of-the-client',
      stopReason: 'endTurn',
      content: { type: 'text', text: `answer to ${[q.messages[0].content].flat()[0].text}` },
    }),
    'elicitation/create': () => ({ action: 'cancel' }),
  };
  #waiting = new Set();

  /** where is {transport, url} or {transport: 'stdio', command: […]}. */
  constructor(revision, where) {
    Object.assign(this, { revision, where, modern: revision >= modern });
  }

  saw(m) {
    this.wire.push(m);
    for (const look of [...this.#waiting]) look();
  }

  mark() {
    return this.wire.length;
  }

  seen(from, match) {
    return this.wire.slice(from).filter(match);
  }

  /** next resolves to the first message since from that matches. */
  next(from, what, match) {
    return new Promise((resolve, reject) => {
      const end = (settle, value) => {
        this.#waiting.delete(look);
        clearTimeout(timer);
        settle(value);
      };
      const look = () => {
        const m = this.wire.slice(from).find(match);
        if (m !== undefined) end(resolve, m);
      };
      const timer = setTimeout(
        () => end(reject, new Error(`no ${what} within ${deadline} ms, but ${brief(this.wire.slice(from).slice(-10))}`)),
        deadline,
      );
      this.#waiting.add(look);
      look();
    });
  }

  /** raw is the result of the last such request, as it came. */
  async raw(method, params) {
    const from = this.mark();
    await this.request(method, params);
    return this.seen(from, (m) => m.result !== undefined).at(-1).result;
  }

  tool(name, args = {}, { meta, ...options } = {}) {
    return this.callTool({ name, arguments: { key: 'none', ...args }, ...(meta && { _meta: meta }) }, options);
  }

  async text(name, args, options) {
    const r = await this.tool(name, args, options);
    if (r.isError) fail(`${name} failed:`, brief(r));
    return r.content.map((c) => c.text ?? '').join('\n');
  }

  /** counted is how often a tool was run with that key. */
  async counted(key) {
    return JSON.parse(await this.text('count', { of: key }));
  }

  /** once checks that a tool ran once for the key, and to its end. */
  async once(key) {
    equal(await this.counted(key), { begun: 1, ended: 1, cancelled: 0 }, `runs of ${key}`);
  }
}
