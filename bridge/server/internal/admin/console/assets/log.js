// The log: the bridge's own lines, and what servers write to stderr. The bridge keeps the last 500.
import { html } from './dom.js';
import { foldedLines, passes, terms } from './filter.js';
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
    const rows = foldedLines(all.slice(-this.#most).reverse());
    const narrow = level || wanted.length;
    return html`<h1>Log</h1>
      ${this.filterLine('server:files msg:"cannot be reached"', html`<label for="level">Minimum level</label><select id="level" .value=${level} @change=${(/** @type {any} */ e) => this.ask('level', e.target.value)}><option value="">all</option>${levels.slice(1).map((l) => html`<option value=${l}>${l}</option>`)}</select>
        <label><input type="checkbox" .checked=${this.#wrap} @change=${(/** @type {any} */ e) => { this.#wrap = e.target.checked; localStorage.setItem('wrap', this.#wrap ? 'yes' : 'no'); this.update(); }} /> Wrap lines</label>`)}
      <div class="line"><p class="summary" role="status">${count(all.length, 'line')}${this.store.state.dropped ? ` · ${count(this.store.state.dropped, 'event')} dropped` : ''}</p>${rows.length ? html`<span key=${`${rows[0].line.at} ${all.length}`}>${copy('Copy lines', () => all.map(text).join('\n'))}</span>` : ''}</div>
      ${rows.length ? html`<div class="log card" role="region" tabindex="0" aria-live="off" aria-label="lines of the log"><ol class=${this.#wrap ? 'wraps' : ''}>${rows.map(row)}</ol></div>` : html`<div class="empty"><h2>${narrow ? 'No line matches the filter' : 'No lines yet'}</h2><p>${narrow ? 'Change or clear it.' : 'Lines of the bridge, and what servers write to stderr, appear here.'}</p></div>`}
      ${all.length > this.#most ? html`<button type="button" @click=${() => { this.#most += someLines; this.update(); }}>Show more</button>` : ''}`;
  }
}

/** The other members of a line, as text. @param {any} l */
export const attributes = (l) => (l.msg === 'stderr' && l.attrs?.text) || Object.entries(l.attrs ?? {}).map(([k, v]) => `${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`).join(' ');

/** A line as text. @param {any} l */
const text = (l) => [l.at, l.level, l.server, l.msg, attributes(l)].filter(Boolean).join(' ');

/** A line in short: its time, level, server and message, and below what else it says. @param {any} l @param {number} [times] how often it was said */
export const brief = (l, times = 1) => html`<span class="quiet">${time(l.at)}</span> <b class=${l.level}>${l.level}</b> ${l.server ? html`<span class="chip">${l.server}</span> ` : ''}<span>${l.msg}</span>${l.msg === 'stderr' ? html` <code>${attributes(l)}</code>` : ''}${times > 1 ? html` <b>×${times}</b>` : ''}${l.msg !== 'stderr' && attributes(l) ? html`<span class="attrs">${attributes(l)}</span>` : ''}`;

/** The templates of rows: they are made once for each number of lines. @type {WeakMap<object, {times: number, row: any}>} */
const made = new WeakMap();

/** @param {{line: any, run: any[]}} r */
function row({ line: l, run }) {
  const had = made.get(l);
  if (had?.times === run.length) return had.row;
  const first = run[run.length - 1];
  const shown = html`<li key=${first.n ?? `${first.at}${first.msg}${attributes(first)}`}><details><summary>${brief(l, run.length)}</summary>
    ${run.length > 1 ? html`<p class="quiet">${run.length} times, ${time(first.at)} to ${time(l.at)}. The last one:</p>` : ''}<dl class="facts">${Object.entries({ at: l.at, ...l.attrs }).map(([k, v]) => html`<div><dt>${k}</dt><dd>${typeof v === 'string' ? v : stringify(v)}</dd></div>`)}</dl>${copy('Copy', run.map(text).join('\n'))}${l.server ? html` <a href=${to('servers', l.server)}>Open ${l.server}</a>` : ''}</details></li>`;
  made.set(l, { times: run.length, row: shown });
  return shown;
}

customElements.define('page-log', Log);
