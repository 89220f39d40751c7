// Sessions: who is here, with which client, and which connections that takes.
import { part } from './api.js';
import { html } from './dom.js';
import { passes, terms } from './filter.js';
import { Page, to } from './page.js';
import { age, table } from './parts.js';
import { count } from './text.js';

class Sessions extends Page {
  get topics() { return ['servers', 'sessions']; }
  #most = 200;

  view() {
    const s = this.store.state.sessions;
    if (!s) return html`<h1>Sessions</h1><p>reading…</p>`;
    const wanted = terms(this.route.query.get('filter') ?? '');
    const rows = s.sessions.filter((/** @type {any} */ r) => passes(wanted, { session: r.id, server: r.server, principal: r.principal, client: r.client, revision: r.revision, calls: r.calls, streams: r.streams }));
    const may = this.store.has('sessions/{}/end');
    const guests = s.without_session;
    return html`<h1>Sessions</h1>
      ${this.filterLine('server:files principal:agents client:cursor')}
      <p class="summary" role="status">${count(s.total, 'session')}, ${rows.length} shown${guests ? `; clients without sessions: ${count(guests.calls ?? 0, 'call')}, ${count(guests.subscriptions ?? 0, 'subscription')}` : ''}</p>
      ${rows.length ? table('sessions', ['session', 'caller', 'client', 'revision', 'at', 'age', 'idle', 'calls', 'streams', ''], rows.slice(0, this.#most).map((/** @type {any} */ r) => html`<tr key=${r.id}>
        <th scope="row"><a href=${`${to('calls')}?filter=session:${part(r.id)}`}>${r.id}</a></th><td>${r.principal ?? '–'}</td><td>${r.client ?? '–'}</td><td>${r.revision}</td>
        <td>${r.server ? html`<a href=${to('servers', r.server)}>${r.server}</a>` : 'all as one'}</td><td>${age(r.began)}</td><td>${age(r.used)}${r.left ? ', client left' : ''}</td><td class="n">${r.calls}</td><td class="n">${r.streams}</td>
        <td>${may ? html`<act-button .label=${'end'} .path=${`sessions/${part(r.id)}/end`} .confirm=${`End the session ${r.id}? Its client has to initialize again.`}></act-button>` : ''}</td>
      </tr>`)) : html`<p>There is none${wanted.length ? ' that passes the filter' : ''}.</p>`}
      ${rows.length > this.#most ? html`<button type="button" @click=${() => { this.#most += 200; this.update(); }}>show more</button>` : ''}`;
  }
}

customElements.define('page-sessions', Sessions);
