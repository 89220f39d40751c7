// Traffic: messages as they pass, each request with its answer and with both sides of the bridge, for as long as this page is open.
import { html } from './dom.js';
import { exchanges, passed, trail } from './exchanges.js';
import { passes, terms } from './filter.js';
import { clientOf, outcome } from './names.js';
import { Page } from './page.js';
import { download } from './parts.js';
import { bytes, clock, count, duration } from './text.js';
import './row-table.js';

/** @typedef {import('./exchanges.js').Exchange} Exchange */

/** @type {[string, string][]} */
const heads = [['Time', 'at'], ['From', 'from'], ['To', 'to'], ['Message', 'message'], ['Size', 'size'], ['Answer', 'answer']];

/** @param {string} at */
const moment = (at) => `${clock(at)}.${String(new Date(at).getMilliseconds()).padStart(3, '0')}`;

class Traffic extends Page {
  #payloads = false;
  /** The number of the first message of the exchange in the panel. */
  #chosen = 0;
  get topics() { return ['servers', 'sessions', 'traffic']; }
  get query() { return this.#payloads ? '&payloads=true' : ''; }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.store.state.messages = [];
  }

  /** @param {any} m what the filter knows of a message */
  #fields(m) {
    return { server: m.server, client: m.side === 'client' ? clientOf(this.store.state, m) : undefined, session: m.session, principal: m.principal, side: m.side, to: m.to, kind: m.kind, method: m.method, name: m.name, id: m.id, size: m.bytes, duration: m.took_ms, code: m.code };
  }

  view() {
    const { store } = this;
    const wanted = terms(this.route.query.get('filter') ?? '');
    const all = exchanges(store.state.messages);
    const rows = all.filter((e) => passed(e).some((m) => passes(wanted, this.#fields(m)))).reverse();
    const chosen = all.find((e) => e.asked.n === this.#chosen);
    const n = rows.reduce((sum, e) => sum + passed(e).length, 0);
    const { dropped } = store.state;
    return html`<h1>Traffic</h1>
      ${this.filterLine('server:files -method:ping side:client', html`
        ${store.me?.payloads ? html`<label><input id="payloads" type="checkbox" .checked=${this.#payloads} @change=${(/** @type {any} */ e) => { this.#payloads = e.target.checked; store.watch(this.topics, this.query); this.update(); }} /> Show payloads</label>` : ''}
        <button type="button" disabled=${!all.length} @click=${() => { store.state.messages = []; this.#chosen = 0; this.update(); }}>Clear</button>
        <button type="button" disabled=${!rows.length} @click=${() => save(rows)}>Save</button>`)}
      <p class="summary" role="status">${count(n, 'message')} in ${count(rows.length, 'row')} since this page is open${dropped ? ` · ${count(dropped, 'event')} dropped` : ''}</p>
      <div class=${chosen ? 'master open' : 'master'} @keydown=${(/** @type {KeyboardEvent} */ e) => { if (e.key === 'Escape' && chosen) this.#open(0); }}>
        ${rows.length ? html`<row-table class="traffic" .name=${'messages'} .heads=${heads} .rows=${rows} .same=${(/** @type {Exchange} */ e) => e.asked.n} .show=${(/** @type {Exchange} */ e) => this.#row(e)}></row-table>`
          : html`<div class="empty"><h2>${all.length ? 'No message matches the filter' : 'No messages yet'}</h2><p>${all.length ? 'Change or clear it.' : store.live ? 'Messages between clients, the bridge and servers appear here as they pass.' : 'Waiting for live updates, with which messages come. A browser has three windows with them at a time.'}</p></div>`}
        ${chosen ? html`<aside class="panel" aria-label="the chosen message"><button type="button" class="small close" @click=${() => this.#open(0)}>Close</button>${this.#one(chosen)}</aside>` : ''}
      </div>`;
  }

  /** @param {number} n */
  #open(n) {
    this.#chosen = this.#chosen === n ? 0 : n;
    this.update();
  }

  /** The sender and the receiver: a client, a server, or the bridge itself. @param {Exchange} e @returns {[string, string]} */
  #ends({ asked, inner }) {
    const client = [asked, inner?.asked].find((m) => m?.side === 'client');
    const server = [asked, inner?.asked].find((m) => m?.side === 'server')?.server;
    const ends = /** @type {[string, string]} */ ([client ? clientOf(this.store.state, client) : 'the bridge', server ?? 'the bridge']);
    return asked.to === 'server' ? ends : [ends[1], ends[0]];
  }

  /** @param {Exchange} e */
  #row(e) {
    const { asked: m, answer, inner } = e;
    const [from, to] = this.#ends(e);
    const open = m.n === this.#chosen;
    const took = (/** @type {any} */ a) => (a?.took_ms === undefined ? '' : duration(a.took_ms));
    return html`<tr key=${m.n} class=${open ? 'chosen' : ''} @click=${() => this.#open(m.n)}>
      <td class="at"><time datetime=${m.at} title=${m.at}>${moment(m.at)}</time></td><td class="from">${from}</td><td class="to">${to}</td>
      <td class="message"><button type="button" class="link" aria-expanded=${String(open)} title=${m.name ?? m.method}>${m.method ?? m.kind} <b>${m.name ?? ''}</b></button></td>
      <td class="size">${bytes(m.bytes)}${answer ? ` / ${bytes(answer.bytes)}` : ''}</td>
      <td class="answer">${answer ? html`${outcome(answer.kind === 'error' ? 'error' : answer.tool_error ? 'tool_error' : 'ok')} ${took(answer)}${inner?.answer ? html` <span class="quiet">server ${took(inner.answer)}</span>` : ''}` : html`<span class="quiet">${m.kind === 'request' ? 'waiting…' : m.kind}</span>`}</td></tr>`;
  }

  /** @param {Exchange} e */
  #one(e) {
    const [from, to] = this.#ends(e);
    const { asked: m, inner, answer } = e;
    const within = answer && inner?.answer ? answer.took_ms - inner.answer.took_ms : undefined;
    return html`<h2>${m.method ?? m.kind} ${m.name ?? ''}</h2><p class="quiet">From ${from} to ${to}${m.principal ? `, as ${m.principal}` : ''}${m.session ? `, session ${m.session}` : ''}</p>
      ${within === undefined ? '' : html`<p>${duration(answer.took_ms)}, of which the bridge took ${duration(Math.max(0, within))}.</p>`}
      ${trail(this.store.state, e)}
      ${!this.#payloads && this.store.me?.act ? html`<p class="quiet">${this.store.me?.payloads ? 'Tick “Show payloads” to see what further messages carry.' : html`Payloads are not recorded. Set <code>console: payloads</code> in bridge.yaml to see them.`}</p>` : ''}`;
  }
}

/** Saves messages as lines of JSON. @param {Exchange[]} rows */
const save = (rows) => download('traffic.jsonl', rows.flatMap(passed).sort((a, b) => a.n - b.n).map(({ n, ...m }) => `${JSON.stringify(m)}\n`));

customElements.define('page-traffic', Traffic);
