// What several pages show: states, times, JSON, errors, buttons that act.
import { post, root } from './api.js';
import { sure } from './dialog.js';
import { html, View } from './dom.js';
import { Exact, stringify } from './json.js';
import { ago, clock, link, most, quote } from './text.js';

/** The shape, the class and the text of a word that says how something is. @type {Record<string, string[]>} */
const shapes = {
  ready: ['●', 'good'], closed: ['●', 'good'], idle: ['○', 'quiet'], starting: ['◐', 'busy'], 'half-open': ['◐', 'busy', 'Circuit half-open'],
  failing: ['▲', 'bad'], open: ['▲', 'bad', 'Circuit open'], off: ['○', 'quiet'], drained: ['◇', 'busy'],
};

/** @param {string} word */
export function badge(word) {
  const [shape, tone, text] = shapes[word] ?? ['✘', 'bad'];
  return html`<span class="badge ${tone}"><span aria-hidden="true">${shape}</span> ${text ?? word[0]?.toUpperCase() + word.slice(1).replaceAll('_', ' ')}</span>`;
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
class LongText extends View {
  text = '';
  #all = '';
  view() {
    const cut = this.text.length > most && this.#all !== this.text;
    return html`<pre tabindex="0">${cut ? this.text.slice(0, most) : this.text}</pre>${cut ? html`<button type="button" @click=${() => { this.#all = this.text; this.update(); }}>show all ${this.text.length} characters</button>` : ''}`;
  }
}
customElements.define('long-text', LongText);

/** JSON as a tree that opens and closes. */
class JsonTree extends View {
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

/** A button that opens a list of actions. */
class MenuButton extends View {
  /** @type {{text: string, tone?: string, group?: string, hint?: string, pressed?: boolean, run: () => void}[]} */
  items = [];
  #open = false;

  connectedCallback() {
    super.connectedCallback();
    this.addEventListener('focusout', (e) => { if (!this.contains(/** @type {any} */ (e.relatedTarget))) this.#show(false); });
    this.addEventListener('keydown', (e) => {
      const all = [...this.querySelectorAll('button')];
      const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
      if (step && this.#open) all[(all.indexOf(/** @type {any} */ (document.activeElement)) + step + all.length) % all.length].focus();
      else if (e.key === 'Escape' && this.#open) { this.#show(false); all[0].focus(); } else return;
      e.preventDefault();
    });
  }

  /** @param {boolean} open */
  #show(open) {
    if (open === this.#open) return;
    this.#open = open;
    this.update();
  }

  view() {
    return html`<button type="button" aria-expanded=${String(this.#open)} @click=${() => this.#show(!this.#open)}>Actions ${icon('down')}</button>${this.#open ? html`<div class="items">${this.items.map((i, at) => html`${i.group && i.group !== this.items[at - 1]?.group ? html`<p class="hint" key=${i.group}>${i.group}</p>` : ''}<button type="button" key=${i.text} class=${i.tone ?? ''} aria-label=${i.text} aria-description=${i.hint} aria-pressed=${i.pressed === undefined ? undefined : String(i.pressed)} @click=${() => { this.#show(false); i.run(); }}>${i.text}${i.hint ? html`<small>${i.hint}</small>` : ''}</button>`)}</div>` : ''}`;
  }
}
customElements.define('menu-button', MenuButton);

/**
 * @typedef {object} Action
 * @property {string} text of the button
 * @property {string} path below the API, where it is posted to
 * @property {object} [body]
 * @property {string} [confirm] is asked before
 * @property {(answer: any) => string} [done] what the line below says when it is done
 * @property {(answer: any) => boolean} [failed] whether the answer is bad news
 * @property {string} [tone] act or danger
 * @property {string} [group] of the menu: actions with the same group stand below this name
 * @property {string} [hint] of the menu: what happens to whom
 * @property {boolean} [pressed] of the menu: whether it is so already
 * @property {boolean} [menu] it stands in the menu
 */

/** Actions at the bridge, one at a time, with a single line below for what came of the last one. It fires "acted". */
class ActBar extends View {
  /** @type {(Action|false|undefined|'')[]} */
  actions = [];
  #busy = '';
  #said = '';
  #wrong = false;

  /** @param {Action} a */
  async #act(a) {
    if (this.#busy || (a.confirm && !(await sure(a.text, a.confirm, a.text, a.tone)))) return;
    this.#busy = a.text;
    this.update();
    try {
      const answer = await post(a.path, a.body);
      this.#said = (a.done ?? (() => `${a.text}: done`))(answer);
      this.#wrong = a.failed?.(answer) ?? false;
    } catch (e) {
      this.#said = `Failed: ${/** @type {any} */ (e).message}`;
      this.#wrong = true;
    }
    this.#busy = '';
    this.update();
    this.dispatchEvent(new Event('acted', { bubbles: true }));
  }

  view() {
    const all = /** @type {Action[]} */ (this.actions.filter(Boolean));
    const items = all.filter((a) => a.menu).map((a) => ({ ...a, run: () => this.#act(a) }));
    return html`<div class="actions">${all.filter((a) => !a.menu).map((a) => html`<button type="button" key=${a.text} class=${a.tone ?? ''} disabled=${Boolean(this.#busy)} @click=${() => this.#act(a)}>${a.text}</button>`)}${items.length ? html`<menu-button .items=${items}></menu-button>` : ''}</div>
      <p class="said ${this.#wrong ? 'bad' : 'good'}" role="status">${this.#busy ? 'Working…' : this.#said}</p>`;
  }
}
customElements.define('act-bar', ActBar);

/** Drawings of 20 by 20, of one line each. @type {Record<string, string>} */
const drawings = {
  overview: 'M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z', calls: 'M2 10h4l2.5-6 3.5 12 2.5-6H18', try: 'M6 4l10 6-10 6z',
  servers: 'M3 3.5h14v5H3zM3 11.5h14v5H3zM6 6v.01M6 14v.01',
  sessions: 'M7.5 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2 17c0-3 2.5-5 5.5-5s5.5 2 5.5 5M13 3.5a3 3 0 0 1 0 5.2M15 12.3c2 .7 3 2.5 3 4.7',
  traffic: 'M3 7h13l-3-3M17 13H4l3 3', log: 'M4 5h12M4 10h12M4 15h7', config: 'M3 6h6M13 6h4M3 14h3M10 14h7M11 4v4M8 12v4', search: 'M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12zM13.5 13.5 17 17',
  pause: 'M7 4v12M13 4v12', auto: 'M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14', light: 'M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6 16 16M4 16l1.4-1.4M14.6 5.4 16 4',
  dark: 'M16.5 12A7 7 0 1 1 8 3.5a5.5 5.5 0 0 0 8.5 8.5z', more: 'M10 4.5v.01M10 10v.01M10 15.5v.01', right: 'M8 5l5 5-5 5', keys: 'M7 7a3 3 0 1 1 4.4 2.6C10.4 10.2 10 10.8 10 12M10 15.5v.01', down: 'M5 8l5 5 5-5', alert: 'M10 3 18 17H2zM10 8v4M10 14.5v.01', check: 'M4 10.5l4 4 8-9',
};

/** A drawing beside a word. @param {string} name */
export const icon = (name) => html`<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d=${drawings[name]} /></svg>`;

/** A button that copies a text. @param {string} label @param {string|(() => string)} text or what makes it */
export const copy = (label, text) => html`<button type="button" class="small" @click=${(/** @type {any} */ e) => { navigator.clipboard?.writeText(typeof text === 'string' ? text : text()).then(() => { const said = e.target.nextElementSibling; if (said) said.textContent = 'copied'; }); }}>${label}</button><span class="said" role="status"></span>`;

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
  return `mcp-bridge call ${quote(endpoint(server))} ${quote(tool)} --json ${quote(args)}`;
}
