// What several pages show: states, times, JSON, errors, buttons that act.
import { post, root } from './api.js';
import { html, View } from './dom.js';
import { Exact, stringify } from './json.js';
import { ago, clock, link, most } from './text.js';

/** The shape and the class of a word that says how something is. @type {Record<string, [string, string]>} */
const shapes = {
  ready: ['●', 'good'], ok: ['✔', 'good'], closed: ['●', 'good'], idle: ['○', 'quiet'], starting: ['◐', 'busy'], 'half-open': ['◐', 'busy'], running: ['◐', 'busy'],
  failing: ['▲', 'bad'], open: ['▲', 'bad'], 'not ready': ['▲', 'bad'], off: ['○', 'quiet'], draining: ['◇', 'busy'],
};

/** @param {string} word */
export function badge(word) {
  const [shape, tone] = shapes[word] ?? ['✘', 'bad'];
  return html`<span class="badge ${tone}"><span aria-hidden="true">${shape}</span> ${word}</span>`;
}

/** A time of day, with the instant as title. @param {string|undefined} at */
export const time = (at) => html`<time datetime=${at} title=${at}>${clock(at)}</time>`;
/** How long ago, with the instant as title. @param {string|undefined} at */
export const age = (at) => html`<time datetime=${at} title=${at}>${ago(at)}</time>`;

/** @param {unknown} e what was thrown */
export function fault(e) {
  if (!e) return '';
  const error = /** @type {any} */ (e);
  return html`<div class="fault" role="alert"><p>${error.message ?? String(e)}</p>${error.faults?.length ? html`<ul>${error.faults.map((/** @type {any} */ f) => html`<li>${[f.file, f.line].filter(Boolean).join(':')} ${f.message}</li>`)}</ul>` : ''}</div>`;
}

/** An address that somebody else wrote, whole. @param {string} address */
export const address = (address) => (link(address) ? html`<a href=${link(address)} rel="noreferrer noopener" target="_blank">${address}</a>` : html`<span>${address}</span>`);

/** A table that can be wider than the page. @param {string} name @param {any[]} heads @param {any} rows */
export const table = (name, heads, rows) => html`<div class="wide" role="region" tabindex="0" aria-label=${name}><table aria-live="off"><thead><tr>${heads.map((h) => html`<th scope="col">${h}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`;

/** A text that may be long: cut, with the rest on demand. */
export class LongText extends View {
  text = '';
  #all = '';
  view() {
    const cut = this.text.length > most && this.#all !== this.text;
    return html`<pre tabindex="0">${cut ? this.text.slice(0, most) : this.text}</pre>${cut ? html`<button type="button" @click=${() => { this.#all = this.text; this.update(); }}>show all ${this.text.length} characters</button>` : ''}`;
  }
}
customElements.define('long-text', LongText);

/** JSON as a tree that opens and closes. */
export class JsonTree extends View {
  /** @type {any} */
  value = undefined;
  /** @type {Map<string, number>} how many members of a part are shown */
  #shown = new Map();

  view() { return html`<div class="tree">${this.#node('', this.value, '$', 0)}</div>`; }

  /** @param {string} name @param {any} v @param {string} path @param {number} depth @returns {any} */
  #node(name, v, path, depth) {
    const head = name === '' ? '' : html`<span class="name">${name}: </span>`;
    if (v === null || typeof v !== 'object' || v instanceof Exact) {
      if (typeof v === 'string' && v.length > 400) return html`<div>${head}<long-text .text=${v}></long-text></div>`;
      return html`<div>${head}<span class=${v === null ? 'null' : v instanceof Exact ? 'number' : typeof v}>${stringify(v)}</span></div>`;
    }
    const names = Object.keys(v);
    const brackets = Array.isArray(v) ? '[]' : '{}';
    if (!names.length) return html`<div>${head}${brackets}</div>`;
    const n = this.#shown.get(path) ?? (depth < 2 ? 100 : 0);
    const open = () => { if (!this.#shown.has(path) && depth >= 2) { this.#shown.set(path, 100); this.update(); } };
    return html`<details open=${depth < 2} @toggle=${open}><summary>${head}<span class="quiet">${brackets[0]}${names.length}${brackets[1]}</span></summary>
      ${names.slice(0, n).map((k) => this.#node(k, v[k], `${path}.${k}`, depth + 1))}
      ${n && names.length > n ? html`<button type="button" @click=${() => { this.#shown.set(path, n + 1000); this.update(); }}>show ${Math.min(1000, names.length - n)} more</button>` : ''}
    </details>`;
  }
}
customElements.define('json-tree', JsonTree);

/** A button that acts at the bridge, once at a time, and says what came of it. */
export class ActButton extends View {
  label = '';
  path = '';
  /** @type {object} */
  body = {};
  /** What is asked before; empty: nothing. */
  confirm = '';
  /** @type {(answer: any) => string} what is said when it is done */
  done = () => 'done';
  #busy = false;
  #said = '';
  /** @type {any} */
  #error = undefined;

  async #act() {
    if (this.confirm && !globalThis.confirm(this.confirm)) return;
    this.#busy = true;
    this.update();
    try {
      this.#said = this.done(await post(this.path, this.body));
      this.#error = undefined;
    } catch (e) {
      this.#error = e;
      this.#said = '';
    }
    this.#busy = false;
    this.update();
    this.dispatchEvent(new Event('acted', { bubbles: true }));
  }

  view() {
    return html`<button type="button" disabled=${this.#busy} @click=${() => this.#act()}>${this.label}</button><span class="said" role="status">${this.#error ? `${this.#error.message}` : this.#said}</span>`;
  }
}
customElements.define('act-button', ActButton);

/** A button that copies a text. @param {string} label @param {string} text */
export const copy = (label, text) => html`<button type="button" class="small" @click=${(/** @type {any} */ e) => { navigator.clipboard?.writeText(text).then(() => { const said = e.target.nextElementSibling; if (said) said.textContent = 'copied'; }); }}>${label}</button><span class="said" role="status"></span>`;

/** Has the browser save a text as a file. @param {string} name @param {string[]} parts */
export function download(name, parts) {
  const address = URL.createObjectURL(new Blob(parts, { type: 'application/octet-stream' }));
  const a = document.createElement('a');
  a.href = address;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Where clients reach a server. @param {string} server * is all as one */
export const endpoint = (server) => `${root.replace(/ui\/$/, '')}${server === '*' ? '' : `${encodeURIComponent(server)}/`}mcp`;

/** A call for a terminal. @param {string} server * is all as one @param {string} tool @param {string} args JSON */
export function command(server, tool, args) {
  const quote = (/** @type {string} */ s) => `'${s.replace(/'/g, `'\\''`)}'`;
  return `mcp-bridge call ${quote(endpoint(server))} ${quote(tool)} --json ${quote(args)}`;
}

/** A chart of the last values. @param {string} name @param {number[]} values */
export function spark(name, values) {
  if (values.length < 2) return '';
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${((i / (values.length - 1)) * 100).toFixed(1)},${(23 - (v / top) * 22).toFixed(1)}`).join(' ');
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${`${name}: now ${values[values.length - 1].toFixed(1)}, at most ${top.toFixed(1)}`}><polyline points=${points} /></svg>`;
}
