// Sessions: who is here, with which client, and what that uses.
import { part, post } from './api.js';
import { connect } from './connect.js';
import { sure } from './dialog.js';
import { html } from './dom.js';
import { passes, terms } from './filter.js';
import { named } from './names.js';
import { Page, to } from './page.js';
import { age, table } from './parts.js';
import { count } from './text.js';

class Sessions extends Page {
  get topics() { return ['servers', 'sessions']; }
  #most = 200;
  /** The answer to ending one. */
  #said = '';

  /** @param {string} id */
  async #end(id) {
    if (!(await sure('End this session?', `The client of session ${id} has to initialize again.`, 'End session', 'danger'))) return;
    try {
      await post(`sessions/${part(id)}/end`);
      this.#said = `Session ${id} ended`;
    } catch (e) {
      this.#said = `Failed: ${/** @type {any} */ (e).message}`;
    }
    this.update();
  }

  view() {
    const s = this.store.state.sessions;
    if (!s) return html`<h1>Sessions</h1><p role="status">Loading…</p>`;
    const wanted = terms(this.route.query.get('filter') ?? '');
    const rows = s.sessions.filter((/** @type {any} */ r) => passes(wanted, { session: r.id, server: r.server, principal: r.principal, client: r.client, revision: r.revision, calls: r.calls, streams: r.streams }));
    const may = this.store.has('sessions/{}/end');
    const keyed = rows.some((/** @type {any} */ r) => r.principal);
    const guests = s.without_session;
    return html`<h1>Sessions</h1>
      ${this.filterLine('server:files principal:agents client:cursor')}
      <p class="summary" role="status">${count(s.total, 'session')}${rows.length === s.total ? '' : ` · ${rows.length} shown`}${guests ? ` · stateless clients: ${count(guests.calls ?? 0, 'call')} in flight, ${count(guests.subscriptions ?? 0, 'subscription')}` : ''}</p>
      ${rows.length ? table('sessions', ['Session', 'Client', ...(keyed ? ['Principal'] : []), 'Protocol', 'Address', 'Age', 'Idle', 'Active calls', 'Streams', ...(may ? [''] : [])], rows.slice(0, this.#most).map((/** @type {any} */ r) => html`<tr key=${r.id}>
        <th scope="row"><a href=${`${to('calls')}?filter=session:${part(r.id)}`}>${r.id}</a></th><td>${named(r.client ?? '–')}</td>${keyed ? html`<td>${r.principal ?? '–'}</td>` : ''}<td class="whole">${r.revision}</td>
        <td>${r.server && this.store.state.status?.servers.some((/** @type {any} */ one) => one.name === r.server) ? html`<a href=${to('servers', r.server)}>/${r.server}/mcp</a>` : r.server ? `/${r.server}/mcp` : '/mcp'}</td><td class="whole">${age(r.began)}</td><td class="whole">${age(r.used)}${r.left ? ' · client left' : ''}</td><td class="n">${r.calls}</td><td class="n">${r.streams}</td>
        ${may ? html`<td><button type="button" class="small" aria-label=${`End session ${r.id}`} @click=${() => this.#end(r.id)}>End</button></td>` : ''}
      </tr>`)) : wanted.length ? html`<div class="empty"><h2>No session matches the filter</h2><p>Change or clear it.</p></div>` : html`<div class="empty"><h2>No sessions yet</h2><p>A session begins when a client connects.</p></div>`}
      <p class="said" role="status">${this.#said}</p>
      ${rows.length > this.#most ? html`<button type="button" @click=${() => { this.#most += 200; this.update(); }}>Show more</button>` : ''}
      ${connect(this.store)}`;
  }
}

customElements.define('page-sessions', Sessions);
