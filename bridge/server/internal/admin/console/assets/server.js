// A server: how it fares, its connections and settings, and what operators do with it.
import { get, part } from './api.js';
import { html } from './dom.js';
import { Page, to } from './page.js';
import { age, badge, fault, table, time } from './parts.js';
import { breaker, speaks, times } from './overview.js';
import { bytes, duration, share } from './text.js';

class ServerPage extends Page {
  /** @type {any} */
  #detail = undefined;
  /** @type {any} */
  #error = undefined;
  /** @type {{at: number, connections: any[]}|undefined} */
  #before = undefined;
  #at = 0;
  /** @type {any} */
  #timer;

  connectedCallback() {
    super.connectedCallback();
    this.#ask();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.#timer);
  }

  async #ask() {
    clearTimeout(this.#timer);
    try {
      const detail = await get(`servers/${part(this.route.rest[0])}`);
      this.#before = this.#detail && { at: this.#at, connections: this.#detail.connections ?? [] };
      this.#detail = detail;
      this.#at = performance.now();
      this.#error = undefined;
    } catch (e) {
      this.#error = e;
    }
    if (!this.isConnected) return;
    this.#timer = setTimeout(() => this.#ask(), 3000);
    if (!this.store.paused) this.update();
  }

  view() {
    const name = this.route.rest[0];
    const head = html`<h1>${name}</h1>`;
    if (!this.#detail) return [head, this.#error ? fault(this.#error) : html`<p>reading…</p>`];
    const now = this.store.state.status?.servers.find((/** @type {any} */ s) => s.name === name);
    const s = now ?? this.#detail.server;
    const { connections, settings } = this.#detail;
    /** @param {string} term @param {any} value */
    const fact = (term, value) => (value === undefined || value === '' || value === false ? '' : html`<div><dt>${term}</dt><dd>${value}</dd></div>`);
    return [head, this.#error ? fault(this.#error) : '', html`
      <p class="summary" role="status">${badge(s.drained ? 'draining' : s.state)} ${s.since ? html`<span>for ${age(s.since)}</span>` : ''} ${s.reason ?? ''}</p>
      ${this.#actions(name, s)}
      <p><a class="button" href=${to('try', name)}>Try its tools</a> <a class="button" href=${`${to('calls')}?filter=server:${part(name)}`}>Calls</a> ${this.store.me?.look ? html`<a class="button" href=${`${to('traffic')}?filter=server:${part(name)}`}>Traffic</a>` : ''}</p>
      <dl class="facts">
        ${fact('speaks', `${speaks(s)}${s.era ? ` (${s.era})` : ''}`)}
        ${fact('calls in flight', s.calls)}${fact('p50 / p95 / p99', s.p50_ms === undefined ? undefined : `${times(s)} / ${duration(s.p99_ms)}`)}${fact('waiting', s.queued)}${fact('waiting for their client', s.parked_calls)}
        ${fact('sessions', s.sessions)}${fact('connections', s.connections)}${fact('restarts', s.restarts || undefined)}
        ${fact('circuit breaker', breaker(s))}${fact('opened', s.circuit_breaker_opened ? `${s.circuit_breaker_opened} times` : undefined)}
        ${fact('cached lists', s.cache && `${s.cache.entries} (${bytes(s.cache.bytes)}), ${s.cache.oldest} old${s.cache.stale ? ', stale' : ''}, ${s.cache.hits} hits, ${s.cache.misses} misses`)}
        ${fact('drained', s.drained && html`<span>since ${time(s.drained.since)} by ${s.drained.by || 'an operator'}${s.drained.until ? html`<span>, until ${time(s.drained.until)}</span>` : ''}</span>`)}
        ${fact('last failure', s.last_error && html`<span>${time(s.last_error_at)} ${s.last_error}</span>`)}
      </dl>
      ${connections ? html`<h2>Connections</h2>${connections.length ? table('connections', ['id', 'process', 'for', 'client', 'revision', 'open', 'memory', 'CPU time', 'calls', ...(this.store.me?.act ? ['last on stderr'] : []), ''], connections.map((/** @type {any} */ c) => html`<tr key=${c.id}>
        <td>${c.id}</td><td>${c.pid ?? '–'}</td><td>${c.for} ${c.principal ?? ''}</td><td>${c.client ?? '–'}</td><td>${c.revision ?? '–'}</td><td>${age(c.opened)}</td><td class="n">${bytes(c.rss_bytes)}</td><td class="n">${this.#cpu(c)}</td><td class="n">${c.calls}</td>
        ${this.store.me?.act ? html`<td>${c.stderr ? lastLines(c.stderr) : ''}</td>` : ''}
        <td>${this.store.can('servers/{}/connections/{}/stop') ? html`<act-button .label=${'stop'} .path=${`servers/${part(name)}/connections/${part(c.id)}/stop`} .confirm=${'Stop this connection? Its calls end without an answer.'} @acted=${() => this.#ask()}></act-button>` : ''}</td>
      </tr>`)) : html`<p>There is none.</p>`}` : ''}
      ${settings ? html`<h2>Settings</h2><long-text .text=${settings}></long-text>` : ''}`];
  }

  /** The processor time of a connection's processes, and their share since the last look. @param {any} c */
  #cpu(c) {
    if (c.cpu_ms === undefined) return '–';
    const was = this.#before?.connections.find((/** @type {any} */ o) => o.id === c.id);
    return `${duration(c.cpu_ms)}${was && this.#before ? ` (${share(was.cpu_ms ?? 0, c.cpu_ms, this.#at - this.#before.at)})` : ''}`;
  }

  /** @param {string} name @param {any} s */
  #actions(name, s) {
    const path = `servers/${part(name)}`;
    const again = () => this.#ask();
    const can = (/** @type {string} */ a) => this.store.can(a);
    const forced = s.forced?.breaker;
    return html`<div class="actions">
      ${can('servers/{}/probe') ? html`<act-button .label=${'try now'} .path=${`${path}/probe`} .done=${probed} @acted=${again}></act-button>` : ''}
      ${can('servers/{}/breaker') ? [
        forced ? html`<act-button key="auto" .label=${'leave the breaker to itself'} .path=${`${path}/breaker`} .body=${{ state: 'auto' }} @acted=${again}></act-button>` : '',
        forced !== 'open' ? html`<act-button key="open" .label=${'open the breaker'} .path=${`${path}/breaker`} .body=${{ state: 'open' }} .confirm=${`Refuse all calls to ${name}?`} @acted=${again}></act-button>` : '',
        forced !== 'closed' ? html`<act-button key="closed" .label=${'close the breaker'} .path=${`${path}/breaker`} .body=${{ state: 'closed' }} @acted=${again}></act-button>` : '',
      ] : ''}
      ${can('servers/{}/lists/forget') ? html`<act-button .label=${'forget its lists'} .path=${`${path}/lists/forget`} .done=${(/** @type {any} */ a) => `${a.forgotten} forgotten`} @acted=${again}></act-button>` : ''}
      ${can('servers/{}/connections/stop') ? html`<act-button .label=${'restart idle connections'} .path=${`${path}/connections/stop`} .confirm=${`Close the connections to ${name} that no call uses? What they keep for their sessions is lost; the next call opens others.`} .done=${(/** @type {any} */ a) => `${a.stopped} closed`} @acted=${again}></act-button>` : ''}
      ${can('servers/{}/drain') ? (s.drained
        ? html`<act-button key="resume" .label=${'resume'} .path=${`${path}/resume`} @acted=${again}></act-button>`
        : html`<act-button key="drain" .label=${'drain'} .path=${`${path}/drain`} .confirm=${`Drain ${name}? It gets no new calls. Calls in flight finish.`} @acted=${again}></act-button>`) : ''}
    </div>`;
  }
}

/** The last line, and those before it. @param {string} text */
function lastLines(text) {
  const last = text.slice(text.lastIndexOf('\n') + 1);
  return last === text ? html`<code class="cut" title=${text}>${text}</code>` : html`<details><summary><code class="cut">${last}</code></summary><pre tabindex="0">${text}</pre></details>`;
}

/** @param {any} a */
const probed = (a) => (a.ok ? `it works (${duration(a.took_ms)})` : `it does not work: ${a.error}`);

customElements.define('page-server', ServerPage);
