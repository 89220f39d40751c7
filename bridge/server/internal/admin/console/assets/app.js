// The console of the bridge: the navigation, the sign-in form, and the page that the address names.
import { get, signedOut, signIn, signOut } from './api.js';
import { dialog } from './dialog.js';
import { html, render, View } from './dom.js';
import { routeOf, to } from './page.js';
import { fault, icon } from './parts.js';
import { moved } from './saved.js';
import { Store } from './store.js';
import { clock, visible } from './text.js';
import './overview.js';
import './server.js';
import './calls.js';
import './sessions.js';
import './try.js';
import { agreed } from './try-item.js';
import './traffic.js';
import './log.js';
import './config.js';

/** The right that a page needs. */
const rights = new Map([['traffic', 'look'], ['log', 'act'], ['config', 'act']]);

/** What keys do. */
const keys = [
  ['Ctrl K', 'goes to a page, a server, a tool or a session'], ['Ctrl Enter', 'calls the tool whose form you are in'], ['↑ ↓', 'go from row to row of a list'],
  ['← →', 'read out another time of a chart'], ['Escape', 'closes a panel or a question'], ['?', 'shows this list'],
];

const themes = ['auto', 'light', 'dark'];

/** The bridge's own mark: an arch that carries a road. */
const mark = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect class="ground" width="32" height="32" rx="7" /><path class="arch" d="M5 23.5h22M6 23.5v-4a10 10 0 0 1 20 0v4" /><path class="arch thin" d="M16 10v13.5M11 11.4v12.1M21 11.4v12.1" /></svg>`;

class App extends View {
  store = new Store();
  route = routeOf(location.hash);
  #out = false;
  /** @type {any} */
  #error = undefined;
  #theme = localStorage.getItem('theme') ?? 'auto';
  /** The element that had the focus before the bridge was lost. @type {any} */
  #focused = undefined;

  connectedCallback() {
    super.connectedCallback();
    this.#paint();
    addEventListener('hashchange', () => {
      const before = this.route;
      this.route = routeOf(location.hash);
      moved(location.hash);
      this.update();
      if (before.page !== this.route.page) queueMicrotask(() => /** @type {HTMLElement|null} */ (this.querySelector('main'))?.focus());
    });
    addEventListener('keydown', (e) => {
      if ((e.ctrlKey || e.metaKey) && e.key === 'k') { e.preventDefault(); this.#search(); }
      if (e.key === '?' && !/** @type {Element} */ (e.target).closest('input, textarea, select')) this.#keys();
    });
    this.store.addEventListener('change', () => this.#changed());
    signedOut.addEventListener('signedout', () => {
      this.store.forget();
      moved();
      agreed.clear();
      this.#out = true;
      this.update();
    });
    this.#begin();
  }

  async #begin() {
    try {
      this.store.me = await get('me');
      this.#out = false;
      this.#error = undefined;
    } catch (e) {
      if (/** @type {any} */ (e).status !== 401) {
        this.#error = e;
        setTimeout(() => this.#begin(), 3000);
      }
    }
    this.update();
  }

  /** While the bridge does not answer, nothing can be used. The focus comes back with the bridge. */
  #changed() {
    const { lost } = this.store;
    if (lost) this.#focused ??= document.activeElement;
    this.update();
    if (lost || !this.#focused) return;
    const back = this.#focused;
    this.#focused = undefined;
    setTimeout(() => { if (document.activeElement === document.body) back.focus?.(); });
  }

  async #leave() {
    await signOut().catch(() => {});
    history.replaceState(null, '', '#/'); // it may have arguments of a call
    this.route = routeOf('');
    signedOut.dispatchEvent(new Event('signedout'));
  }

  #paint() {
    if (this.#theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.#theme;
  }

  #turn() {
    this.#theme = themes[(themes.indexOf(this.#theme) + 1) % themes.length];
    localStorage.setItem('theme', this.#theme);
    this.#paint();
    this.update();
  }

  /** @type {[string, string][]} */
  get pages() {
    const { act, look } = this.store.me ?? {};
    /** @type {[string, string][]} */
    const all = [['overview', 'Overview'], ['servers', 'Servers'], ['calls', 'Calls'], ['sessions', 'Sessions'], ['try', 'Try']];
    if (look) all.push(['traffic', 'Traffic']);
    return act ? [...all, ['log', 'Log'], ['config', 'Configuration']] : all;
  }

  /** Goes to a page, a server, a session, or a tool that was called lately, by some letters of its name. */
  #search() {
    if (!this.store.me || document.querySelector('dialog')) return;
    let words = '';
    const state = this.store.state;
    /** @type {[string, string, string][]} */
    const places = [
      ...this.pages.map(([page, name]) => /** @type {[string, string, string]} */ ([name, to(page), page])),
      ...(state.status?.servers ?? []).flatMap((/** @type {any} */ s) => [[`Server ${s.name}`, to('servers', s.name), 'servers'], [`Try ${s.name}`, to('try', s.name), 'try'], [`Calls of ${s.name}`, `${to('calls')}?filter=server:${encodeURIComponent(s.name)}`, 'calls']]),
      ...(state.sessions?.sessions ?? []).map((/** @type {any} */ s) => [`Session ${s.id} ${s.principal ?? ''} ${s.client ?? ''}`, `${to('sessions')}?filter=session:${s.id}`, 'sessions']),
    ];
    if (this.store.me.look) get('tools?minutes=15').then(({ tools }) => places.push(...tools.filter((/** @type {any} */ t) => t.tool !== 'other').map((/** @type {any} */ t) => [`Tool ${t.tool} of ${t.server}`, to('try', t.server, 'tools', t.tool), 'try'])), () => {});
    const found = () => places.filter(([name]) => words.toLowerCase().split(' ').every((w) => name.toLowerCase().includes(w))).slice(0, 12);
    const move = (/** @type {any} */ e) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[/** @type {string} */ (e.key)];
      if (!step) return;
      e.preventDefault();
      const all = [...e.currentTarget.querySelectorAll('input, a')];
      all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
    };
    dialog('Search', (close, again) => html`<div @keydown=${move}>
      <form @submit=${(/** @type {Event} */ e) => { e.preventDefault(); close(found()[0]?.[1]); }}><label class="hidden" for="jump">Page, server, tool or session</label><input id="jump" autocomplete="off" spellcheck="false" placeholder="Page, server, tool or session" @input=${(/** @type {any} */ e) => { words = e.target.value; again(); }} /></form>
      <ul class="entries places">${found().map(([name, hash, page]) => html`<li key=${hash}><a href=${hash} @click=${() => close(undefined)}>${icon(page)} ${name}</a></li>`)}</ul></div>`)
      .then((hash) => { if (hash) location.hash = hash; });
  }

  /** Lists the keys. */
  #keys() {
    if (document.querySelector('dialog')) return;
    dialog('Keys', (close) => html`<dl class="keys">${keys.map(([key, does]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl><div class="actions"><button type="button" autofocus @click=${() => close(undefined)}>Close</button></div>`);
  }

  /** The title of the tab. */
  get #title() {
    const { page, rest } = this.route;
    const name = page === 'servers' && rest[0] ? rest[0] : this.pages.find(([p]) => p === page)?.[1];
    return [name, 'mcp-bridge'].filter(Boolean).join(' · ');
  }

  view() {
    const me = this.store.me;
    document.title = visible(this.#title);
    if (this.#out) return html`<sign-in @signedin=${() => this.#begin()}></sign-in>`;
    if (!me) return html`<main class="signin">${this.#error ? [fault(this.#error), html`<p role="status">Retrying…</p>`] : html`<p role="status">Loading…</p>`}</main>`;
    const { store, route } = this;
    const [tone, state] = store.lost ? ['bad', 'Not connected'] : store.paused ? ['busy', 'Paused'] : store.live ? ['good', 'Live'] : ['busy', 'Polling (live updates unavailable)'];
    return html`
      <header class="side">
        <a class="skip" href="#main" @click=${(/** @type {Event} */ e) => { e.preventDefault(); /** @type {HTMLElement} */ (this.querySelector('main')).focus(); }}>Skip to content</a>
        <a class="brand" href=${to('overview')}>${mark()}<span>mcp-bridge<small title=${me.version}>${[me.instance, me.version].filter(Boolean).join(' · ')}</small></span></a>
        <button type="button" class="search" title="Search (Ctrl+K)" @click=${() => this.#search()}>${icon('search')}<span>Search</span><kbd aria-hidden="true">Ctrl K</kbd></button>
        <nav aria-label="Pages">${this.pages.map(([page, name]) => html`<a href=${to(page)} aria-current=${page === route.page ? 'page' : undefined}>${icon(page)}${name}</a>`)}</nav>
        <div class="tools">
          ${me.keys ? html`<div class="who"><span class="cut" title=${me.principal}>${me.principal}</span><button type="button" class="small" @click=${() => this.#leave()}>Sign out</button></div>` : ''}
          <div class="state" title=${state}><span class="dot ${tone}"></span><span>${state}</span></div>
          <button type="button" class="square" title="Keys (?)" aria-label="Keys" @click=${() => this.#keys()}>${icon('keys')}</button>
          <button type="button" class="square" title="Pause" aria-label="Pause" aria-pressed=${String(store.paused)} @click=${() => { store.paused = !store.paused; store.changed(); }}>${icon('pause')}</button>
          <button type="button" class="square" title=${`Colours: ${this.#theme}`} aria-label=${`Colours: ${this.#theme}`} @click=${() => this.#turn()}>${icon(this.#theme)}</button>
        </div>
      </header>
      <div class="body">
        <div class="alerts" role="alert">${store.lost ? html`<p class="lost"><span class="spin"></span><span>The bridge has not answered since ${clock(new Date(store.lost).toISOString())}. Retrying…</span></p>` : ''}</div>
        <main id="main" tabindex="-1" inert=${Boolean(store.lost)}>${this.#page(route, store)}</main>
      </div>`;
  }

  /** @param {import('./page.js').Route} route @param {Store} store */
  #page(route, store) {
    const right = rights.get(route.page);
    if (right && !store.me[right]) return html`<h1>No access</h1><p>This page needs the rights of ${right === 'act' ? 'an operator' : 'a viewer'}. <a href=${to('overview')}>Overview</a></p>`;
    switch (route.page) {
      case 'overview': return html`<page-overview .store=${store} .route=${route}></page-overview>`;
      case 'servers': return !route.rest[0] ? html`<page-overview .store=${store} .route=${route}></page-overview>` : html`<page-server key=${route.rest[0]} .store=${store} .route=${route}></page-server>`;
      case 'calls': return html`<page-calls .store=${store} .route=${route}></page-calls>`;
      case 'sessions': return html`<page-sessions .store=${store} .route=${route}></page-sessions>`;
      case 'try': return html`<page-try .store=${store} .route=${route}></page-try>`;
      case 'traffic': return html`<page-traffic .store=${store} .route=${route}></page-traffic>`;
      case 'log': return html`<page-log .store=${store} .route=${route}></page-log>`;
      case 'config': return html`<page-config .store=${store} .route=${route}></page-config>`;
      default: return html`<p>There is no page ${route.page}. <a href=${to('overview')}>Overview</a></p>`;
    }
  }
}

/** The sign-in form: one field, and the same answer for every wrong key. */
class SignIn extends View {
  #busy = false;
  /** @type {any} */
  #error = undefined;

  /** @param {any} e */
  async #send(e) {
    e.preventDefault();
    const field = e.target.elements.key;
    this.#busy = true;
    this.update();
    try {
      await signIn(field.value);
      this.dispatchEvent(new Event('signedin'));
    } catch (error) {
      const f = /** @type {any} */ (error);
      this.#error = f.status === 401 ? new Error('Unknown key') : f.after ? new Error(`${f.message} Try again in ${f.after} s.`) : f;
      field.value = '';
      field.focus();
    }
    this.#busy = false;
    this.update();
  }

  view() {
    return html`<main class="signin"><h1 class="brand">${mark()} mcp-bridge</h1><form @submit=${(/** @type {any} */ e) => this.#send(e)}>
      <label for="key">Access key</label><p class="hint" id="which">A token of <code>access</code> in bridge.yaml.</p><input aria-describedby="which" id="key" name="key" type="password" autocomplete="current-password" required autofocus />
      <button type="submit" class="act" disabled=${this.#busy}>Sign in</button></form>${fault(this.#error)}</main>`;
  }
}

customElements.define('sign-in', SignIn);
customElements.define('console-app', App);
document.body.replaceChildren();
render(html`<console-app></console-app>`, document.body);
