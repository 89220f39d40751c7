// Calls: those that are active and those that have ended, as a table. A panel at the right has the chosen one.
import { get, part } from './api.js';
import { connect } from './connect.js';
import { html } from './dom.js';
import { exchanges, spread, trail } from './exchanges.js';
import { callRows, early, passes, terms } from './filter.js';
import { bare, clientOf, fact, outcome, outcomeText, recorded } from './names.js';
import { Page, to } from './page.js';
import { command, copy, fault, icon, table, time } from './parts.js';
import { replay } from './saved.js';
import { bytes, clock, count, duration, notWhole } from './text.js';
import './row-table.js';

/** @type {[string, string][]} */
const heads = [['Time', 'at'], ['Client', 'client'], ['Server', 'server'], ['Tool', 'tool'], ['Duration', 'took'], ['Outcome', 'outcome']];

/** Whether a row has two lines: the second one is what a narrow window has no columns for. */
const narrow = globalThis.matchMedia?.('(max-width: 760px)') ?? { matches: false };

/** How long a call takes, or has taken until now. @param {any} c */
const took = (c) => c.took_ms ?? Math.max(0, Date.now() - Date.parse(c.began));

class Calls extends Page {
  /** Whether messages are recorded, for the panel. */
  #records = false;
  get topics() { return ['servers', 'calls', 'sessions', ...(this.#records ? ['traffic'] : [])]; }
  /** @type {any} */
  #detail = undefined;
  /** @type {any} */
  #error = undefined;
  /** Which call is read, or was. */
  #reading = '';
  /** The rows of several calls that are unfolded. @type {Set<string>} */
  #unfolded = new Set();

  disconnectedCallback() {
    super.disconnectedCallback();
    this.store.state.messages = [];
  }

  /** @param {any} c what the filter knows of a call */
  #fields(c) {
    return { server: c.server, method: c.method, name: c.name, client: clientOf(this.store.state, c), principal: c.principal, session: c.session, status: `${c.outcome ?? 'running'} ${outcomeText(c.outcome)}${['ok', 'cancelled', undefined].includes(c.outcome) ? '' : ' error'}`, error: c.error, code: c.code, duration: took(c), size: c.bytes_out, revision: c.revision };
  }

  /** @param {string} id */
  async #read(id) {
    try {
      const detail = await get(`calls/${part(id)}`);
      if (this.route.query.get('call') === id) [this.#detail, this.#error] = [detail, undefined];
    } catch (e) {
      this.#error = e;
    }
    this.update();
  }

  /** @param {string} id */
  #open(id) { this.ask('call', this.route.query.get('call') === id ? '' : id); }

  /** Shows the calls of a row, or hides them. @param {string} id */
  #unfold(id) {
    if (!this.#unfolded.delete(id)) this.#unfolded.add(id);
    this.update();
  }

  view() {
    const { store } = this;
    const wanted = terms(this.route.query.get('filter') ?? '');
    const all = [...store.state.calls.values()].filter((c) => passes(wanted, this.#fields(c)));
    const active = all.filter((c) => !c.outcome).reverse();
    const head = store.state.callsHead ?? {};
    const ended = all.filter((c) => c.outcome).reverse();
    const before = ended.filter((c) => early(c, head.since)).length;
    const rows = callRows([...active, ...ended], head.since, (id) => this.#unfolded.has(id));
    const shown = this.route.query.get('call') ?? '';
    const state = store.state.calls.get(shown)?.outcome ?? '';
    if (`${shown} ${state}` !== this.#reading) { // its result comes when it ends
      if (!this.#reading.startsWith(`${shown} `)) [this.#detail, this.#error] = [undefined, undefined];
      this.#reading = `${shown} ${state}`;
      if (shown) this.#read(shown);
    }
    const dropped = store.state.dropped;
    return html`<h1>Calls</h1>
      ${this.filterLine('server:files status:error duration:>500ms', store.me?.look ? html`<label><input type="checkbox" .checked=${this.#records} @change=${(/** @type {any} */ e) => { this.#records = e.target.checked; this.store.watch(this.topics, this.#records && store.me?.payloads ? '&payloads=true' : ''); this.update(); }} /> Record messages</label>` : '')}
      <p class="summary" role="status">${active.length} active · ${ended.length - before} finished${head.since ? ` since ${clock(head.since)}` : ''}${before ? ` · ${count(before, 'earlier failure')}` : ''}${head.before ? ` · ${head.before} active from before` : ''}${dropped ? ` · ${count(dropped, 'event')} dropped` : ''}</p>
      <div class=${shown ? 'master open' : 'master'} @keydown=${(/** @type {KeyboardEvent} */ e) => { if (e.key === 'Escape' && shown) this.#open(shown); }}>
        ${rows.length ? html`<row-table class="calls" .name=${'calls'} .heads=${heads} .height=${narrow.matches ? 50 : 34} .rows=${rows} .same=${(/** @type {any} */ c) => c.id} .show=${(/** @type {any} */ c) => this.#row(c, shown)}></row-table>` : html`<div class="empty"><h2>${wanted.length ? 'No call matches the filter' : 'No calls yet'}</h2><p>${wanted.length ? 'Change or clear it.' : 'Calls appear here as clients make them.'}</p>${wanted.length ? html`<button type="button" @click=${() => this.ask('filter', '')}>Clear filter</button>` : html`<a class="button" href=${to('try')}>Call a tool in Try</a>`}</div>`}
        ${rows.length || wanted.length ? '' : connect(store)}
        ${shown ? html`<aside class="panel" aria-label="the chosen call">${this.#one(shown)}</aside>` : ''}
      </div>`;
  }

  /** @param {any} c @param {string} shown */
  #row(c, shown) {
    const { state } = this.store;
    if (c.id === 'since') return html`<tr key="since" class="since"><td><div>${recorded(state.callsHead.since)}</div></td></tr>`;
    const open = c.run ? this.#unfolded.has(c.id) : c.id === shown;
    const names = new Set((c.run ?? [c]).map((/** @type {any} */ one) => clientOf(state, one)));
    const client = names.size > 1 ? `${names.size} clients` : [...names][0];
    return html`<tr key=${c.id} class=${c.run ? 'run' : `${c.within ? 'within' : ''} ${open ? 'chosen' : ''}`} @click=${() => (c.run ? this.#unfold(c.id) : this.#open(c.id))}>
      <td class="at">${time(c.began)}</td><td class="client" title=${client}>${client}</td><td class="server" title=${c.server}>${c.server ?? '–'}</td>
      <td class="tool"><button type="button" class="link" aria-expanded=${String(open)} title=${c.name ?? c.method}>${c.run ? icon('right') : ''}${bare(c)}</button><div class="of">${[c.server, client].filter(Boolean).join(' · ')}</div></td>
      <td class="took">${c.run ? '' : html`${bar(c)}<span class="n">${duration(took(c))}</span>`}</td><td class="outcome">${outcome(c.outcome, c.run?.length)}${c.run ? '' : html`<div class="of">${duration(took(c))}</div>`}</td></tr>`;
  }

  /** @param {string} id */
  #one(id) {
    const c = { ...this.#detail, ...this.store.state.calls.get(id) };
    const close = html`<button type="button" class="small close" @click=${() => this.#open(id)}>Close</button>`;
    if (!c.id) return [close, this.#error ? fault(this.#error) : html`<p>Loading…</p>`];
    const why = notWhole(this.#detail);
    const args = why ? undefined : this.#detail?.arguments;
    const tool = c.method === 'tools/call' && c.server;
    const waits = !this.#detail && !this.#error && this.store.me?.payloads && this.store.me?.act; // the buttons keep their places when it is there
    const messages = this.#related(c);
    /** @param {string} title @param {string|undefined} text */
    const payload = (title, text) => (text ? html`<h3>${title}</h3><long-text .text=${spread(text)}></long-text>` : '');
    return html`${close}<h2>${c.name ?? c.method}</h2>
      <p>${outcome(c.outcome)} <span class="quiet">after ${duration(took(c))}</span></p>
      ${c.error ? html`<p class="bad">${c.error}${c.code ? ` (${c.code})` : ''}</p>` : ''}
      <div class="actions">
        ${tool && waits ? ['Replay', 'Open in Try', 'Copy as command'].map((text) => html`<button type="button" disabled>${text}</button>`) : tool ? html`<a class="button act" href=${openInTry(c, args)} title=${args ? 'Opens it in Try and calls it again' : why || 'The arguments are not known here: fill them in'} @click=${(/** @type {MouseEvent} */ e) => { if (args && !e.ctrlKey && !e.metaKey && !e.shiftKey) replay(openInTry(c, args)); }}>${args ? 'Replay' : 'Open in Try'}</a>` : ''}
        ${tool && args ? html`<a class="button" href=${openInTry(c, args)}>Open in Try</a>` : ''}
        ${tool && args ? copy('Copy as command', command(c.server, c.name, args)) : ''}
      </div>
      ${!c.outcome && this.store.has('calls/{}/cancel') ? html`<act-bar .actions=${[{ text: 'Cancel call', path: `calls/${part(id)}/cancel`, tone: 'danger' }]}></act-bar>` : ''}
      <dl class="facts">
        ${fact('Client', clientOf(this.store.state, c))}${fact('Server', c.server && html`<a href=${to('servers', c.server)}>${c.server}</a>`)}${fact('Method', c.method)}${fact('Session', c.session && html`<a href=${`${to('sessions')}?filter=session:${part(c.session)}`}>${c.session}</a>`)}${fact('Principal', c.principal)}
        ${fact('Protocol', c.revision && c.speaks && c.revision !== c.speaks ? `${c.revision} → ${c.speaks}, translated` : c.revision)}${fact('Received', bytes(c.bytes_in))}${fact('Sent', c.outcome && bytes(c.bytes_out))}
      </dl>
      ${table('What happened', ['At', 'What', ''], [html`<tr><td>${time(c.began)}</td><td>Received</td><td></td></tr>`, ...(c.marks ?? []).map((/** @type {any} */ m) => html`<tr><td class="n">+${duration(m.at_ms)}</td><td>${{ place: 'Started', progress: 'Progress', asked: 'Server asked', answered: 'Client answered' }[/** @type {string} */ (m.what)] ?? m.what}</td><td>${m.text ?? ''}</td></tr>`), c.outcome ? html`<tr><td class="n">+${duration(c.took_ms)}</td><td>Finished</td><td>${outcomeText(c.outcome)}</td></tr>` : ''])}
      ${messages ? html`<h3>Messages</h3>${trail(this.store.state, messages)}` : ''}
      ${payload('Arguments', this.#detail?.arguments)}${why ? html`<p class="quiet">${why}</p>` : ''}${payload('Result', this.#detail?.result)}
      ${!this.#detail?.arguments && !messages && this.store.me?.act && !this.store.me?.payloads ? html`<p class="quiet">Arguments and results are not recorded. Set <code>console: payloads</code> in bridge.yaml to see them here.</p>` : ''}`;
  }

  /** The messages of a call, of both sides. @param {any} c */
  #related(c) {
    const began = Date.parse(c.began);
    const apart = (/** @type {any} */ e) => Math.abs(Date.parse(e.asked.at) - began);
    return exchanges(this.store.state.messages).filter((e) => e.asked.side === 'client' && e.asked.method === c.method && e.asked.name === c.name && (e.asked.session ?? '') === (c.session ?? '') && apart(e) < 100).sort((a, b) => apart(a) - apart(b))[0];
  }
}

/** @param {any} c @param {string|undefined} args */
const openInTry = (c, args) => `${to('try', c.server, 'tools', c.name)}${args ? `?arguments=${part(args)}` : ''}`;

/** Where a time stands on the scale, from 0.1 ms to 100 s, in percent. @param {number} ms */
const place = (ms) => Math.min(100, Math.max(0, (Math.log10(Math.max(ms, 0.1)) + 1) * (100 / 6)));

/** The time of a call on a logarithmic scale: until it started, at the server, waiting for its user. @param {any} c */
function bar(c) {
  const end = took(c);
  /** @type {any[]} */
  const parts = [];
  let from = 0;
  let kind = c.marks?.some((/** @type {any} */ m) => m.what === 'place') ? 'waits' : 'works';
  for (const m of [...(c.marks ?? []), { at_ms: end }]) {
    const next = m.what === 'asked' ? 'asks' : m.what === 'place' || m.what === 'answered' ? 'works' : kind;
    if (next === kind && m.what) continue;
    parts.push(html`<rect class=${c.outcome && c.outcome !== 'ok' && kind === 'works' ? 'fails' : kind} x=${from ? place(from) : 0} width=${Math.max(1, place(m.at_ms) - (from ? place(from) : 0))} y="3" height="6" />`);
    [from, kind] = [m.at_ms, next];
  }
  return html`<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">${[1, 2, 3, 4, 5].map((n) => html`<line x1=${n * (100 / 6)} x2=${n * (100 / 6)} y1="0" y2="12" />`)}${parts}</svg>`;
}

customElements.define('page-calls', Calls);
