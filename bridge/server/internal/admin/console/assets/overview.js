// The first page: is it us, or a server?
import { get } from './api.js';
import { html } from './dom.js';
import { Page, to } from './page.js';
import { age, badge, fault, spark, table, time } from './parts.js';
import { rates } from './store.js';
import { bytes, duration } from './text.js';

class Overview extends Page {
  /** @type {any[]} */
  #failures = [];
  /** @type {any} */
  #timer;

  connectedCallback() {
    super.connectedCallback();
    const ask = async () => {
      const answer = await get('calls?status=failed&limit=10').catch(() => undefined);
      if (answer) this.#failures = [...(answer.failures ?? []), ...(answer.recent ?? [])].filter((c, i, all) => all.findIndex((d) => d.id === c.id) === i).slice(0, 10);
      this.update();
      if (this.isConnected) this.#timer = setTimeout(ask, 10000);
    };
    ask();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.#timer);
  }

  view() {
    const s = this.store.state.status;
    if (!s) return html`<p>reading…</p>`;
    const working = s.servers.filter((/** @type {any} */ r) => r.state !== 'failing').length;
    const speed = rates(this.store.state.totals);
    const b = s.bridge ?? {};
    const p = s.process ?? {};
    /** @param {string} name @param {any} value */
    const tile = (name, value) => (value === undefined || value === '' ? '' : html`<div class="tile"><dt>${name}</dt><dd>${value}</dd></div>`);
    return html`
      <h1>Overview</h1>
      <p class="summary" role="status">${badge(s.ready ? 'ready' : s.draining ? 'draining' : 'not ready')} ${s.reason ?? ''} ${working} of ${s.servers.length} servers work</p>
      ${this.store.can('drain') ? html`<div class="actions">${s.drained
        ? html`<act-button key="resume" .label=${'resume'} .path=${'resume'}></act-button>`
        : html`<act-button key="drain" .label=${'drain'} .path=${'drain'} .confirm=${'Drain this bridge? Load balancers send no new clients here. Current clients are still served.'}></act-button>`}</div>` : ''}
      <dl class="tiles">
        ${tile('sessions', b.sessions)}
        ${tile('calls in flight', b.calls)}
        ${tile('calls per second', speed.length ? html`<span>${speed[speed.length - 1].toFixed(1)} ${spark('calls per second', speed)}</span>` : undefined)}
        ${tile('subscriptions', b.subscriptions)}
        ${tile('connections', b.connections === undefined ? undefined : `${b.connections}${p.max_connections ? ` of ${p.max_connections}` : ''}`)}
        ${tile('bytes in flight', b.bytes_in_flight === undefined ? undefined : `${bytes(b.bytes_in_flight)}${p.max_bytes_in_flight ? ` of ${bytes(p.max_bytes_in_flight)}` : ''}`)}
        ${tile('memory', p.memory_bytes && bytes(p.memory_bytes))}
        ${tile('running for', p.started_at && age(p.started_at))}
      </dl>
      <h2>Servers</h2>
      ${table('servers', ['server', 'state', 'speaks', 'calls', 'p50 / p95', 'sessions', 'connections', 'circuit breaker', 'last failure'], s.servers.map(row))}
      ${this.#failures.length ? html`<h2>Last failures</h2>${table('last failures', ['when', 'server', 'what', 'outcome', 'took', 'caller'], this.#failures.map((c) => html`<tr key=${c.id}>
        <td>${time(c.began)}</td><td>${c.server ?? '–'}</td><td><a href=${`${to('calls')}?call=${c.id}`}>${c.method} ${c.name ?? ''}</a></td><td>${badge(c.outcome)}</td><td class="n">${duration(c.took_ms)}</td><td>${c.principal ?? '–'}</td>
      </tr>`))}` : ''}`;
  }
}

/** @param {any} s */
export const speaks = (s) => [s.transport, s.revision].filter(Boolean).join(' ') || '–';
/** How long half of its calls take at most, and 95 of 100. @param {any} s */
export const times = (s) => (s.p50_ms === undefined ? '–' : `${duration(s.p50_ms)} / ${duration(s.p95_ms)}`);
/** @param {any} s */
export const breaker = (s) => html`<span>${s.circuit_breaker ? badge(s.circuit_breaker) : '–'} ${s.retry_at ? html`<span class="quiet">until ${time(s.retry_at)}</span>` : ''} ${s.forced?.breaker ? html`<span class="quiet">forced ${s.forced.breaker} by ${s.forced.by || 'an operator'}</span>` : ''}</span>`;

/** @param {any} s */
function row(s) {
  return html`<tr key=${s.name}>
    <th scope="row"><a href=${to('servers', s.name)}>${s.name}</a></th>
    <td>${badge(s.drained ? 'draining' : s.state)} ${s.since ? age(s.since) : ''}${s.reason ? html`<div class="reason">${s.reason}</div>` : ''}</td>
    <td class="whole">${speaks(s)}</td>
    <td class="n">${s.calls}${s.queued ? html`<span class="quiet"> +${s.queued} waiting</span>` : ''}</td>
    <td class="n">${times(s)}</td><td class="n">${s.sessions}</td><td class="n">${s.connections}</td>
    <td>${breaker(s)}</td>
    <td>${s.last_error ? html`<span class="cut" title=${s.last_error}>${age(s.last_error_at)} ago: ${s.last_error}</span>` : '–'}</td>
  </tr>`;
}

customElements.define('page-overview', Overview);
