// Calls: those under way and those that have ended, each a bar of time with what it waited for.
import { get, part } from './api.js';
import { html } from './dom.js';
import { passes, terms } from './filter.js';
import { Page } from './page.js';
import { badge, command, copy, fault, table, time } from './parts.js';
import { bytes, duration, notWhole } from './text.js';

/** @param {any} c what the filter knows of a call */
const fields = (c) => ({ server: c.server, method: c.method, name: c.name, principal: c.principal, session: c.session, status: c.outcome ?? 'running', error: c.error, code: c.code, duration: c.took_ms ?? Date.now() - Date.parse(c.began), size: c.bytes_out, revision: c.revision });

class Calls extends Page {
  get topics() { return ['servers', 'calls']; }
  /** @type {any} */
  #detail = undefined;
  /** @type {any} */
  #error = undefined;
  /** Which call is read, or was. */
  #reading = '';

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
  #open(id) {
    this.ask('call', this.route.query.get('call') === id ? '' : id);
  }

  view() {
    const wanted = terms(this.route.query.get('filter') ?? '');
    const all = [...this.store.state.calls.values()].filter((c) => passes(wanted, fields(c)));
    const running = all.filter((c) => !c.outcome).reverse();
    const rows = [...running, ...all.filter((c) => c.outcome).reverse()];
    const head = this.store.state.callsHead ?? {};
    const longest = Math.max(1, ...rows.slice(0, 200).map((c) => fields(c).duration));
    const shown = this.route.query.get('call') ?? '';
    if (shown !== this.#reading) {
      [this.#reading, this.#detail, this.#error] = [shown, undefined, undefined];
      if (shown) this.#read(shown);
    }
    const dropped = this.store.state.dropped;
    return html`<h1>Calls</h1>
      ${this.filterLine('server:files status:error duration:>500ms')}
      <p class="summary" role="status">${running.length} in flight, ${rows.length - running.length} ended${head.since ? html`<span>, watched since ${time(head.since)}</span>` : ''}${head.before ? `, ${head.before} from before` : ''}${dropped ? `, ${dropped} events dropped` : ''}</p>
      ${shown ? this.#one(shown) : ''}
      <row-window .name=${'calls'} .rows=${rows} .show=${(/** @type {any} */ c) => this.#row(c, longest, shown)}></row-window>`;
  }

  /** @param {any} c @param {number} longest @param {string} shown */
  #row(c, longest, shown) {
    return html`<div key=${c.id} class=${c.id === shown ? 'row call chosen' : 'row call'}>
      ${bar(c, longest)}
      <button type="button" class="link" aria-expanded=${String(c.id === shown)} @click=${() => this.#open(c.id)}>${c.server ?? '–'} <b>${c.name ?? c.method}</b></button>
      <span class="quiet">${c.principal ?? ''} ${c.session ?? ''}</span>
      <span class="n">${duration(fields(c).duration)}</span> ${badge(c.outcome ?? 'running')}</div>`;
  }

  /** @param {string} id */
  #one(id) {
    const c = { ...this.#detail, ...this.store.state.calls.get(id) };
    if (!c.id) return this.#error ? fault(this.#error) : html`<p>reading…</p>`;
    const why = notWhole(this.#detail);
    const args = why ? undefined : this.#detail?.arguments;
    /** @param {string} title @param {string|undefined} text */
    const payload = (title, text) => (text ? html`<h3>${title}</h3><long-text .text=${text}></long-text>` : '');
    return html`<section class="card" aria-label="the chosen call">
      <h2>${c.method} ${c.name ?? ''}</h2>
      <p>${badge(c.outcome ?? 'running')} ${c.error ?? ''} ${c.code ? `(${c.code})` : ''}</p>
      <p>${c.principal ? `by ${c.principal}, ` : ''}${c.session ? `session ${c.session}, ` : ''}client ${c.revision ?? '–'} → server ${c.server ?? '–'} ${c.speaks ?? ''}${c.revision && c.speaks && (c.revision >= '2026') !== (c.speaks >= '2026') ? ': translated' : ''}; ${bytes(c.bytes_in)} in, ${bytes(c.bytes_out)} out</p>
      ${table('what happened', ['at', 'what', ''], [html`<tr><td>${time(c.began)}</td><td>arrives</td><td></td></tr>`, ...(c.marks ?? []).map((/** @type {any} */ m) => html`<tr><td class="n">+${duration(m.at_ms)}</td><td>${m.what}</td><td>${m.text ?? ''}</td></tr>`), c.outcome ? html`<tr><td class="n">+${duration(c.took_ms)}</td><td>ends</td><td>${c.outcome}</td></tr>` : ''])}
      ${payload('arguments', this.#detail?.arguments)}${why ? html`<p class="quiet">${why}</p>` : ''}${payload('result', this.#detail?.result)}
      <div class="actions">
        ${!c.outcome && this.store.has('calls/{}/cancel') ? html`<act-button .label=${'cancel'} .path=${`calls/${part(id)}/cancel`}></act-button>` : ''}
        ${c.method === 'tools/call' && c.server ? html`<a class="button" href=${openInTry(c, args)}>open in Try</a>` : ''}
        ${args ? copy('copy the arguments', args) : ''}${args && c.method === 'tools/call' && c.server ? copy('copy as a command', command(c.server, c.name, args)) : ''}
        <button type="button" @click=${() => this.#open(id)}>close</button>
      </div></section>`;
  }
}

/** @param {any} c @param {string|undefined} args */
function openInTry(c, args) {
  return `#/try/${part(c.server)}/tools/${part(c.name)}${args ? `?arguments=${part(args)}` : ''}`;
}

/** The time of a call: until it had its place, at the server, waiting for its user. @param {any} c @param {number} longest */
function bar(c, longest) {
  const took = fields(c).duration;
  /** @type {any[]} */
  const parts = [];
  let from = 0;
  let kind = c.marks?.some((/** @type {any} */ m) => m.what === 'place') ? 'waits' : 'works';
  for (const m of [...(c.marks ?? []), { at_ms: took }]) {
    const next = m.what === 'asked' ? 'asks' : m.what === 'place' || m.what === 'answered' ? 'works' : kind;
    if (next === kind && m.what) continue;
    parts.push(html`<rect class=${kind} x=${(from / longest) * 100} width=${Math.max(0.5, ((m.at_ms - from) / longest) * 100)} y="2" height="8" />`);
    [from, kind] = [m.at_ms, next];
  }
  return html`<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">${parts}</svg>`;
}

customElements.define('page-calls', Calls);
