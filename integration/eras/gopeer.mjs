// A client of exactly one revision by the Go SDK: the program of eraclient,
// which is told what to do.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { deadline } from '../peer.mjs';
import { Base } from './base.mjs';

export class GoPeer extends Base {
  // The SDK answers it by itself, and in the modern era without a trace.
  unseen = ['roots/list'];
  #next = 1;
  #calls = new Map();

  constructor(program, revision, where) {
    super(revision, where);
    this.program = program;
  }

  async connect() {
    const { transport, url, command } = this.where;
    const args = [this.revision, transport, ...(transport === 'stdio' ? command : [url])];
    this.child = spawn(this.program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.child.stderr.on('data', (text) => this.errors.push(String(text)));
    const opened = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`not open within ${deadline} ms`)), deadline);
      this.child.on('exit', (code) => {
        reject(new Error(`the client ended with code ${code}: ${this.errors.join('')}`));
        for (const { reject } of this.#calls.values()) reject(new Error('the client has ended'));
      });
      createInterface(this.child.stdout).on('line', (text) => {
        const m = JSON.parse(text);
        if (m.open) {
          clearTimeout(late);
          this.session = m.session;
          resolve(m.open);
        } else if (m.ask) this.#answer(m);
        else this.#came(m);
      });
    });
    this.opened = await opened;
    return this;
  }

  #came(m) {
    this.saw(m);
    const call = this.#calls.get(m.id);
    if (m.method === 'notifications/progress') this.#calls.get(m.params.progressToken)?.onprogress?.(m.params);
    if (!call) return;
    this.#calls.delete(m.id);
    if (m.error) call.reject(Object.assign(new Error(m.error.message), m.error));
    else call.resolve(m.result);
  }

  async #answer({ ask, method, params }) {
    this.asked.push([method, params]);
    try {
      this.#write({ answer: ask, result: await this.answers[method](params) });
    } catch (e) {
      this.#write({ answer: ask, error: { code: e.code, message: e.message } });
    }
  }

  #write(line) {
    this.child.stdin.write(JSON.stringify(line) + '\n');
  }

  #do(what, params, { onprogress, signal } = {}) {
    const id = this.#next++;
    if (onprogress) params = { ...params, _meta: { ...params._meta, progressToken: id } };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${what}: no answer within ${deadline} ms`)), deadline);
      const settle = (f) => (v) => (clearTimeout(timer), f(v));
      this.#calls.set(id, { resolve: settle(resolve), reject: settle(reject), onprogress });
      signal?.addEventListener('abort', () => this.#write({ do: 'cancel', target: id }));
      this.#write({ id, do: what, params });
    });
  }

  get negotiated() {
    return this.opened.protocolVersion;
  }

  get server() {
    const { serverInfo, instructions, capabilities } = this.opened;
    return { name: serverInfo?.name, instructions, capabilities };
  }

  ping = () => this.#do('ping');
  request = (method, params, options) => this.#do(method, params, options);
  callTool = (params, options) => this.#do('tools/call', params, options);
  listAll = async () => {}; // the lists that the script has read are what the SDK knows

  async watch(what) {
    await this.#do('watch', what);
    return async () => what.uri && (await this.#do('unwatch', { uri: what.uri }));
  }

  close() {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => this.child.kill('SIGKILL'), deadline);
      this.child.removeAllListeners('exit').on('exit', (code) => {
        clearTimeout(late);
        if (code === 0) resolve();
        else reject(new Error(`the client ended with code ${code}: ${this.errors.join('')}`));
      });
      this.#write({ do: 'close' });
    });
  }
}
