// Traffic: messages as they pass, on both sides of the bridge, for as long as this page is open.
import { html } from './dom.js';
import { passes, terms } from './filter.js';
import { parse, stringify } from './json.js';
import { Page } from './page.js';
import { badge, copy, download } from './parts.js';
import { bytes, clock, count, duration } from './text.js';

/** @param {any} m what the filter knows of a message */
const fields = (m) => ({ server: m.server, session: m.session, principal: m.principal, side: m.side, to: m.to, kind: m.kind, method: m.method, name: m.name, id: m.id, size: m.bytes, duration: m.took_ms, code: m.code });

/** @param {any} m */
const arrow = (m) => (m.to === 'server' ? '→' : '←');
/** At which end of the bridge it passes. @param {any} m */
const end = (m) => (m.side === 'client' ? `client ${m.session ?? m.principal ?? ''}` : m.server);
/** @param {any} m */
const what = (m) => (m.kind === 'result' || m.kind === 'error' ? `${m.kind}${m.method ? ` of ${m.method}` : ''}` : m.method);
/** @param {string} at */
const moment = (at) => `${clock(at)}.${String(new Date(at).getMilliseconds()).padStart(3, '0')}`;

class Traffic extends Page {
  #payloads = false;
  /** The number of the message that is shown whole. */
  #chosen = 0;
  get topics() { return ['servers', 'traffic']; }
  get query() { return this.#payloads ? '&payloads=true' : ''; }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.store.state.messages = [];
  }

  view() {
    const { store } = this;
    const wanted = terms(this.route.query.get('filter') ?? '');
    const rows = store.state.messages.filter((m) => passes(wanted, fields(m)));
    const chosen = store.state.messages.find((m) => m.n === this.#chosen);
    const { dropped } = store.state;
    return html`<h1>Traffic</h1>
      ${this.filterLine('server:files -method:ping side:client', html`
        ${store.me?.payloads ? html`<label><input id="payloads" type="checkbox" .checked=${this.#payloads} @change=${(/** @type {any} */ e) => { this.#payloads = e.target.checked; store.watch(this.topics, this.query); this.update(); }} /> with what they carry</label>` : ''}
        <button type="button" @click=${() => { store.state.messages = []; this.#chosen = 0; this.update(); }}>clear</button>
        <button type="button" disabled=${!rows.length} @click=${() => save(rows)}>save</button>`)}
      <p class="summary" role="status">${count(rows.length, 'message')} since this page is open${dropped ? `, ${count(dropped, 'event')} dropped` : ''}${store.live ? '' : '; there is no stream of events now'}</p>
      ${chosen ? this.#one(chosen) : ''}
      <row-window .name=${'messages'} .follow=${true} .rows=${rows} .show=${(/** @type {any} */ m) => this.#row(m)}></row-window>`;
  }

  /** @param {number} n */
  #open(n) {
    this.#chosen = this.#chosen === n ? 0 : n;
    this.update();
  }

  /** @param {any} m */
  #row(m) {
    return html`<div key=${m.n} class=${m.n === this.#chosen ? 'row traffic chosen' : 'row traffic'}>
      <time class="quiet" datetime=${m.at} title=${m.at}>${moment(m.at)}</time> <span class=${m.side}>${arrow(m)} ${end(m)}</span>
      <button type="button" class="link" aria-expanded=${String(m.n === this.#chosen)} @click=${() => this.#open(m.n)}>${what(m)} <b>${m.name ?? ''}</b></button>
      <span class="n">${bytes(m.bytes)}</span> <span class="quiet">${m.id ? `id ${m.id}` : ''}${m.took_ms === undefined ? '' : ` · ${duration(m.took_ms)}`}</span>${m.kind === 'error' ? badge('error') : ''}</div>`;
  }

  /** @param {any} m */
  #one(m) {
    /** @param {string} term @param {any} value */
    const fact = (term, value) => (value === undefined || value === '' ? '' : html`<div><dt>${term}</dt><dd>${value}</dd></div>`);
    return html`<section class="card" aria-label="the chosen message">
      <h2>${arrow(m)} ${what(m)} ${m.name ?? ''}</h2>
      <dl class="facts">${fact('at', m.at)}${fact('between', m.side === 'client' ? 'a client and the bridge' : 'the bridge and the server')}${fact('server', m.server)}${fact('caller', m.principal)}${fact('session', m.session)}
        ${fact('kind', m.kind)}${fact('id', m.id)}${fact('size', bytes(m.bytes))}${fact('after its request', m.took_ms === undefined ? '' : duration(m.took_ms))}${fact('code', m.code)}</dl>
      ${m.payload ? html`<h3>what it carries${m.cut ? ', cut' : ''}</h3><long-text .text=${spread(m.payload)}></long-text>` : m.cut ? html`<p>It is too large to be shown.</p>` : ''}
      <div class="actions">${m.payload ? copy('copy it', m.payload) : ''}<button type="button" @click=${() => this.#open(m.n)}>close</button></div></section>`;
  }
}

/** JSON with line breaks, to be read. @param {string} text */
function spread(text) {
  try { return stringify(parse(text), 2); } catch { return text; }
}

/** Saves messages as lines of JSON. @param {any[]} rows */
const save = (rows) => download('traffic.jsonl', rows.map(({ n, ...m }) => `${JSON.stringify(m)}\n`));

customElements.define('page-traffic', Traffic);
