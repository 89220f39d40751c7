// The configuration: the file as it counts, what a reload would change, and the reload.
import { get, part, post } from './api.js';
import { html } from './dom.js';
import { Page } from './page.js';
import { fault, table, time } from './parts.js';
import { stringify } from './json.js';
import { count } from './text.js';

class Configuration extends Page {
  /** @type {any} */
  #file = undefined;
  /** @type {any} */
  #plan = undefined;
  /** @type {any} */
  #error = undefined;
  /** @type {any} */
  #unread = undefined;
  /** Whose settings are shown; empty for those of the file. */
  #of = '';
  /** @type {any[]|undefined} */
  #values = undefined;
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
    await this.#show();
    if (this.store.can('reload')) await this.#reload(true);
  }

  /** Reads the settings that count. */
  async #show() {
    const of = this.#of;
    const answer = await get(`config/values?server=${part(of)}`).catch(() => undefined);
    if (of === this.#of) this.#values = answer?.values;
    this.update();
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
        this.#said = answer.changes?.length ? `reloaded, with ${count(answer.changes.length, 'change')}` : 'reloaded: nothing has changed';
        this.#plan = { changes: [] };
        this.#file = await get('config').catch(() => this.#file);
        this.#show();
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
      ${f ? html`<h2>What counts</h2>
        <div class="line"><label for="of">settings of</label><select id="of" .value=${this.#of} @change=${(/** @type {any} */ e) => { this.#of = e.target.value; this.#show(); }}><option value="">the file</option>${(this.store.state.status?.servers ?? []).map((/** @type {any} */ s) => html`<option value=${s.name}>${s.name}</option>`)}</select></div>
        ${this.#values ? table('settings', ['key', 'value', 'from'], this.#values.map((v) => html`<tr key=${v.key}><td>${v.key}</td><td>${v.value}</td><td>${from(v)}</td></tr>`)) : html`<p>There are none.</p>`}` : ''}
      ${f ? html`<h2>The file</h2><long-text .text=${f.text}></long-text>` : ''}`;
  }
}

/** Where a setting is from. @param {any} v */
function from(v) {
  const said = v.from === 'file' ? [v.line ? `line ${v.line}` : 'the file', ...(v.variables ?? []).map((/** @type {string} */ n) => `\${${n}}`)].join(', ') : v.flag ?? 'default';
  return html`<span class=${v.from === 'default' ? 'quiet' : ''}>${said}</span>${v.waits_for_restart ? ' ▲ the file has another value, for after a restart' : ''}`;
}

/** @param {any} v */
const shown = (v) => (v === undefined ? '–' : typeof v === 'string' ? v : stringify(v));

customElements.define('page-config', Configuration);
