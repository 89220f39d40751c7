// The panel of Try with what was on the wire: each request with its answer, to be sent again, changed or exported.
import { dialog } from './dialog.js';
import { html, View } from './dom.js';
import { isObject, parse, stringify } from './json.js';
import { copy, download } from './parts.js';
import { count, duration } from './text.js';

/** @typedef {{n: number, at: number, to: string, message: any}} Seen a message of the wire */
/** @typedef {{seen: Seen, answer?: Seen}} Line a request with its answer, or a notification */

/** Each request with its answer, and what else has passed. @param {Seen[]} messages the oldest first @returns {Line[]} the newest first */
export function lines(messages) {
  /** @type {Line[]} */
  const all = [];
  /** @type {Map<string, Line>} */
  const open = new Map();
  for (const seen of messages) {
    const { id, method } = seen.message;
    const asked = method === undefined ? open.get(`${seen.to === 'client' ? 'server' : 'client'} ${id}`) : undefined;
    if (asked && !asked.answer) {
      asked.answer = seen;
      continue;
    }
    const line = { seen };
    all.push(line);
    if (method !== undefined && id !== undefined) open.set(`${seen.to} ${id}`, line);
  }
  return all.reverse();
}

/** The parameters of a request without what a client adds by itself. @param {any} params */
export function bare(params) {
  const { _meta, ...rest } = params ?? {};
  const own = Object.fromEntries(Object.entries(_meta ?? {}).filter(([k]) => k !== 'progressToken' && !k.startsWith('io.modelcontextprotocol/')));
  return Object.keys(own).length ? { ...rest, _meta: own } : rest;
}

class TryProtocol extends View {
  /** @type {Seen[]} */
  messages = [];
  /** @type {(method: string, params: any) => void} */
  send = () => {};
  /** @type {() => void} */
  clear = () => {};

  /** Asks what to send. @param {string} method @param {any} params */
  async #edit(method, params) {
    let name = method;
    let text = stringify(params, 2);
    const wrong = () => { try { const v = parse(text || '{}'); return isObject(v) ? '' : 'This must be an object.'; } catch { return 'This is no JSON yet.'; } };
    const sent = await dialog('Send a request', (close, again) => html`<form @submit=${(/** @type {Event} */ e) => { e.preventDefault(); if (!wrong()) close(true); }}>
      <div class="field"><label for="method">Method</label><input id="method" required spellcheck="false" autocomplete="off" placeholder="tools/list" .value=${name} @input=${(/** @type {any} */ e) => { name = e.target.value; }} /></div>
      <div class="field"><label for="params">Parameters, as JSON</label><textarea id="params" rows="10" spellcheck="false" .value=${text} @input=${(/** @type {any} */ e) => { text = e.target.value; again(); }}></textarea>${wrong() ? html`<p class="wrong">▲ ${wrong()}</p>` : ''}</div>
      <div class="actions"><button type="button" @click=${() => close(false)}>Cancel</button><button type="submit" class="act" disabled=${Boolean(wrong())}>Send</button></div></form>`);
    if (sent) this.send(name, parse(text || '{}'));
  }

  view() {
    const all = lines(this.messages);
    return html`<section class="protocol card" aria-label="Protocol">
      <h2>Protocol</h2>
      <div class="actions"><button type="button" class="small" @click=${() => this.#edit('', {})}>New request…</button><button type="button" class="small" disabled=${!all.length} @click=${() => download('messages.jsonl', this.messages.map((m) => `${stringify({ at: new Date(m.at).toISOString(), to: m.to, message: m.message })}\n`))}>Export</button><button type="button" class="small" disabled=${!all.length} @click=${() => this.clear()}>Clear</button></div>
      <p class="hidden" role="status">${count(this.messages.length, 'message')}</p>
      <ol class="history">${all.map((l) => this.#line(l))}</ol></section>`;
  }

  /** @param {Line} l */
  #line({ seen, answer }) {
    const { message } = seen;
    const failed = answer?.message.error ?? message.error;
    const again = seen.to === 'server' && message.id !== undefined && message.method !== undefined && message.method !== 'initialize';
    const state = answer ? (failed ? html`<span class="bad">error ${failed.code}</span>` : html`<span class="${answer.message.result?.isError ? 'bad' : 'good'}">${answer.message.result?.isError ? 'tool error' : 'OK'}</span>`) : message.id !== undefined && message.method !== undefined ? html`<span class="busy">waiting…</span>` : '';
    return html`<li key=${seen.n}><details><summary><span aria-hidden="true">${seen.to === 'server' ? '→' : '←'}</span> <b>${message.method ?? (message.error ? 'error' : 'result')}</b> ${message.params?.name ?? message.params?.uri ?? ''} <span class="quiet">${answer ? duration(answer.at - seen.at) : ''}</span> ${state}</summary>
      ${again ? html`<div class="actions"><button type="button" class="small" @click=${() => this.send(message.method, bare(message.params))}>Replay</button><button type="button" class="small" @click=${() => this.#edit(message.method, bare(message.params))}>Edit and send…</button>${copy('Copy', stringify(message, 2))}</div>` : ''}
      <h3>${seen.to === 'server' ? 'To the server' : 'From the server'}</h3><long-text .text=${stringify(message, 2)}></long-text>
      ${answer ? html`<h3>${answer.to === 'server' ? 'To the server' : 'From the server'}</h3><long-text .text=${stringify(answer.message, 2)}></long-text>` : ''}</details></li>`;
  }
}
customElements.define('try-protocol', TryProtocol);
