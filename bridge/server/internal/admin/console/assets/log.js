// The log: the bridge's own lines, and what servers write to stderr. The bridge keeps the last 500.
import { html } from './dom.js';
import { passes, terms } from './filter.js';
import { Page, to } from './page.js';
import { copy, time } from './parts.js';
import { stringify } from './json.js';
import { count } from './text.js';

const levels = ['DEBUG', 'INFO', 'WARN', 'ERROR'];
/** How many lines are shown at once. */
const someLines = 500;

class Log extends Page {
  get topics() { return ['servers', 'log']; }
  #wrap = localStorage.getItem('wrap') !== 'no';
  #most = someLines;

  view() {
    const wanted = terms(this.route.query.get('filter') ?? '');
    const level = this.route.query.get('level') ?? '';
    const all = this.store.state.lines.filter((l) => levels.indexOf(l.level) >= levels.indexOf(level) && passes(wanted, { level: l.level, server: l.server, msg: l.msg, ...l.attrs }));
    const rows = all.slice(-this.#most).reverse();
    const narrow = level || wanted.length;
    return html`<h1>Log</h1>
      ${this.filterLine('server:files msg:"cannot be reached"', html`<label for="level">Minimum level</label><select id="level" .value=${level} @change=${(/** @type {any} */ e) => this.ask('level', e.target.value)}><option value="">all</option>${levels.slice(1).map((l) => html`<option value=${l}>${l}</option>`)}</select>
        <label><input type="checkbox" .checked=${this.#wrap} @change=${(/** @type {any} */ e) => { this.#wrap = e.target.checked; localStorage.setItem('wrap', this.#wrap ? 'yes' : 'no'); this.update(); }} /> Wrap lines</label>`)}
      <div class="line"><p class="summary" role="status">${count(all.length, 'line')}, the newest first${this.store.state.dropped ? ` · ${count(this.store.state.dropped, 'event')} dropped` : ''}</p>${rows.length ? html`<span key=${`${rows[0].at} ${all.length}`}>${copy('Copy lines', () => all.map(text).join('\n'))}</span>` : ''}</div>
      ${rows.length ? html`<div class="log card" role="region" tabindex="0" aria-live="off" aria-label="lines of the log"><ol class=${this.#wrap ? 'wraps' : ''}>${rows.map(line)}</ol></div>` : html`<div class="empty"><h2>${narrow ? 'No line matches the filter' : 'No lines yet'}</h2><p>${narrow ? 'Change or clear it.' : 'Lines of the bridge, and what servers write to stderr, appear here.'}</p></div>`}
      ${all.length > this.#most ? html`<button type="button" @click=${() => { this.#most += someLines; this.update(); }}>Show more</button>` : ''}`;
  }
}

/** The other members of a line, as text. @param {any} l */
export const attributes = (l) => (l.msg === 'stderr' && l.attrs?.text) || Object.entries(l.attrs ?? {}).map(([k, v]) => `${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`).join(' ');

/** A line as text. @param {any} l */
const text = (l) => [l.at, l.level, l.server, l.msg, attributes(l)].filter(Boolean).join(' ');

/** The templates of lines: a line never changes, so it is made once. @type {WeakMap<object, any>} */
const made = new WeakMap();

/** @param {any} l */
function line(l) {
  if (!made.has(l)) {
    made.set(l, html`<li key=${l.n ?? `${l.at}${l.msg}${attributes(l)}`}><details><summary><span class="quiet">${time(l.at)}</span> <b class=${l.level}>${l.level}</b> <span>${l.server ?? ''}</span> <span>${l.msg}</span> <span class="quiet">${attributes(l)}</span></summary>
      <dl class="facts">${Object.entries({ at: l.at, ...l.attrs }).map(([k, v]) => html`<div><dt>${k}</dt><dd>${typeof v === 'string' ? v : stringify(v)}</dd></div>`)}</dl>${copy('Copy', text(l))}${l.server ? html` <a href=${to('servers', l.server)}>Open ${l.server}</a>` : ''}</details></li>`);
  }
  return made.get(l);
}

customElements.define('page-log', Log);
