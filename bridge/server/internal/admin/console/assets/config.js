// The configuration: what a reload would change, the settings in effect with their source, and the file.
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
  /** Which of them are shown. */
  #words = '';
  #changed = true;
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
        this.#said = answer.changes?.length ? `Reloaded with ${count(answer.changes.length, 'change')}` : 'Reloaded: nothing changed';
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
      ${f ? html`<p class="quiet">${f.file} · loaded ${time(now?.loaded_at ?? f.loaded_at)} · hash <code>${now?.hash ?? f.hash}</code></p>` : this.#unread ? fault(this.#unread) : html`<p role="status">Loading…</p>`}
      ${now?.last_error ? html`<div class="fault"><p>The last reload failed: ${now.last_error}</p></div>` : ''}
      ${waits.length ? html`<p class="busy">▲ Waits for a restart: ${waits.join(', ')}</p>` : ''}
      ${this.store.can('reload') ? html`<h2>Pending changes</h2>
        ${fault(this.#error)}
        ${(p?.warnings ?? []).map((/** @type {any} */ w) => html`<p class="busy">▲ ${typeof w === 'string' ? w : w.message ?? stringify(w)}</p>`)}
        ${p?.changes?.length ? table('changes', ['When', 'Setting', 'From', 'To'], p.changes.map((/** @type {any} */ c) => html`<tr><td>${c.effect}</td><td>${c.path}</td><td>${shown(c.from)}</td><td>${shown(c.to)}</td></tr>`)) : html`<p>${this.#busy || (!p && !this.#error) ? 'Checking…' : this.#error ? 'The file has faults: a reload changes nothing.' : 'No changes: the running configuration matches the file.'}</p>`}
        <div class="actions"><button type="button" disabled=${this.#busy} @click=${() => this.#reload(true)}>Check again</button><button type="button" class=${p?.changes?.length ? 'act' : ''} disabled=${this.#busy} @click=${() => this.#reload(false)}>Reload now</button></div><p class="said" role="status">${this.#said}</p>` : ''}
      ${f ? html`<h2>Effective settings</h2>
        <div class="line"><label for="of">Show</label><select id="of" .value=${this.#of} @change=${(/** @type {any} */ e) => { this.#of = e.target.value; this.#show(); }}><option value="">the whole bridge</option>${(this.store.state.status?.servers ?? []).map((/** @type {any} */ s) => html`<option value=${s.name}>${s.name}</option>`)}</select>
          <label class="hidden" for="words">Search settings</label><input id="words" type="search" placeholder="Search settings" .value=${this.#words} @input=${(/** @type {any} */ e) => { this.#words = e.target.value; this.update(); }} />
          <label><input type="checkbox" .checked=${this.#changed} @change=${(/** @type {any} */ e) => { this.#changed = e.target.checked; this.update(); }} /> Without defaults</label></div>
        ${this.#settings()}
        <details class="card"><summary>${f.file.split(/[\\/]/).pop()} (secrets masked)</summary><long-text .text=${f.text}></long-text></details>` : ''}`;
  }

  #settings() {
    const words = this.#words.toLowerCase();
    const rows = this.#values?.filter((v) => !(this.#changed && v.from === 'default') && `${v.key} ${v.value}`.toLowerCase().includes(words));
    if (!rows) return html`<p role="status">Loading…</p>`;
    return rows.length ? table('settings', ['Setting', 'Value', 'From'], rows.map((v) => html`<tr key=${v.key}><td><code>${v.key.split(/(?<=[._])/).map((/** @type {string} */ s) => [s, html`<wbr />`])}</code></td><td class=${v.from === 'default' ? 'quiet' : ''}>${v.value}</td><td>${from(v)}</td></tr>`)) : html`<p class="quiet">No setting matches.</p>`;
  }
}

/** Where a setting is from. @param {any} v */
function from(v) {
  const said = v.from === 'file' ? [v.line ? `line ${v.line}` : 'the file', ...(v.variables ?? []).map((/** @type {string} */ n) => `\${${n}}`)].join(', ') : v.flag ?? 'default';
  return html`<span class=${v.from === 'default' ? 'quiet' : ''}>${said}</span>${v.waits_for_restart ? ' ▲ the file has another value: restart the bridge' : ''}`;
}

/** @param {any} v */
const shown = (v) => (v === undefined ? '–' : typeof v === 'string' ? v : stringify(v));

customElements.define('page-config', Configuration);
