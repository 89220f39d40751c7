// The log: the bridge's own lines, and what servers write to stderr, since somebody looks.
import { html } from './dom.js';
import { passes, terms } from './filter.js';
import { Page } from './page.js';
import { time } from './parts.js';
import { count } from './text.js';

const levels = ['DEBUG', 'INFO', 'WARN', 'ERROR'];

class Log extends Page {
  get topics() { return ['servers', 'log']; }

  view() {
    const wanted = terms(this.route.query.get('filter') ?? '');
    const level = this.route.query.get('level') ?? '';
    const rows = this.store.state.lines.filter((l) => levels.indexOf(l.level) >= levels.indexOf(level) && passes(wanted, { level: l.level, server: l.server, msg: l.msg, ...l.attrs }));
    return html`<h1>Log</h1>
      ${this.filterLine('server:files msg:"cannot be reached"', html`<label for="level">from level</label><select id="level" .value=${level} @change=${(/** @type {any} */ e) => this.ask('level', e.target.value)}><option value="">all</option>${levels.slice(1).map((l) => html`<option value=${l}>${l}</option>`)}</select>`)}
      <p class="summary" role="status">${count(rows.length, 'line')}${this.store.state.dropped ? `, ${count(this.store.state.dropped, 'event')} dropped` : ''}</p>
      <row-window .name=${'lines of the log'} .follow=${true} .rows=${rows} .show=${line}></row-window>`;
  }
}

/** What else a line says, as text. @param {any} l */
export const attributes = (l) => (l.msg === 'stderr' && l.attrs?.text) || Object.entries(l.attrs ?? {}).map(([k, v]) => `${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`).join(' ');

/** @param {any} l */
const line = (l) => {
  const rest = attributes(l);
  return html`<div class="row log"><span class="quiet">${time(l.at)}</span> <b class=${l.level}>${l.level}</b> <span>${l.server ?? ''}</span> <span class="cut" title=${`${l.msg} ${rest}`}>${l.msg} <span class="quiet">${rest}</span></span></div>`;
};

customElements.define('page-log', Log);
