// The configuration: the file as it counts, what a reload would change, and the reload.
import { get, post } from './api.js';
import { html } from './dom.js';
import { Page } from './page.js';
import { fault, table, time } from './parts.js';
import { stringify } from './json.js';

class Configuration extends Page {
  /** @type {any} */
  #file = undefined;
  /** @type {any} */
  #plan = undefined;
  /** @type {any} */
  #error = undefined;
  /** @type {any} */
  #unread = undefined;
  #said = '';
  #busy = false;

  connectedCallback() {
    super.connectedCallback();
    this.#read();
  }

  async #read() {
    try {
      this.#file = await get('config');
    } catch (e) {
      this.#unread = e;
    }
    this.update();
    if (this.store.can('reload')) await this.#reload(true);
  }

  /** @param {boolean} dry */
  async #reload(dry) {
    this.#busy = true;
    this.update();
    try {
      const answer = await post('reload', dry ? { dry_run: true } : {});
      this.#error = undefined;
      this.#said = '';
      if (dry) this.#plan = answer;
      else {
        this.#said = answer.changes?.length ? `reloaded, with ${answer.changes.length} changes` : 'reloaded: nothing has changed';
        this.#plan = { changes: [] };
        this.#file = await get('config').catch(() => this.#file);
      }
    } catch (e) {
      this.#error = e;
    }
    this.#busy = false;
    this.update();
  }

  view() {
    const f = this.#file;
    const p = this.#plan;
    const now = this.store.state.status?.config;
    const waits = now?.pending_restart ?? f?.pending_restart ?? [];
    return html`<h1>Configuration</h1>
      ${f ? html`<p>${f.file} · loaded ${time(now?.loaded_at ?? f.loaded_at)} · hash <code>${now?.hash ?? f.hash}</code></p>` : fault(this.#unread)}
      ${now?.last_error ? html`<div class="fault"><p>The last reload failed: ${now.last_error}</p></div>` : ''}
      ${waits.length ? html`<p>▲ waits for a restart: ${waits.join(', ')}</p>` : ''}
      ${this.store.can('reload') ? html`<h2>What a reload would change</h2>
        ${fault(this.#error)}
        ${(p?.warnings ?? []).map((/** @type {any} */ w) => html`<p>warning: ${typeof w === 'string' ? w : w.message ?? stringify(w)}</p>`)}
        ${p?.changes?.length ? table('changes', ['when', 'what', 'from', 'to'], p.changes.map((/** @type {any} */ c) => html`<tr><td>${c.effect}</td><td>${c.path}</td><td>${shown(c.from)}</td><td>${shown(c.to)}</td></tr>`)) : html`<p>${this.#busy ? 'looking…' : this.#error ? 'The file has faults: a reload changes nothing.' : 'Nothing: the file is as it counts.'}</p>`}
        <div class="actions"><button type="button" disabled=${this.#busy} @click=${() => this.#reload(true)}>look again</button><button type="button" class="act" disabled=${this.#busy} @click=${() => this.#reload(false)}>reload now</button><span class="said" role="status">${this.#said}</span></div>` : ''}
      ${f ? html`<h2>The file</h2><long-text .text=${f.text}></long-text>` : ''}`;
  }
}

/** @param {any} v */
const shown = (v) => (v === undefined ? '–' : typeof v === 'string' ? v : stringify(v));

customElements.define('page-config', Configuration);
