// The console of the bridge: the head, the sign-in form, and the page that the address names.
import { get, signedOut, signIn, signOut } from './api.js';
import { dialog } from './ask.js';
import { html, render, View } from './dom.js';
import { routeOf, to } from './page.js';
import { fault } from './parts.js';
import { Store } from './store.js';
import './overview.js';
import './server.js';
import './calls.js';
import './sessions.js';
import './try.js';
import './traffic.js';
import './log.js';
import './config.js';

const themes = ['auto', 'light', 'dark'];

class App extends View {
  store = new Store();
  route = routeOf(location.hash);
  #out = false;
  /** @type {any} */
  #error = undefined;
  #theme = localStorage.getItem('theme') ?? 'auto';

  connectedCallback() {
    super.connectedCallback();
    this.#paint();
    addEventListener('hashchange', () => {
      const before = this.route;
      this.route = routeOf(location.hash);
      this.update();
      if (before.page !== this.route.page) queueMicrotask(() => /** @type {HTMLElement|null} */ (this.querySelector('main'))?.focus());
    });
    addEventListener('keydown', (e) => {
      if ((e.ctrlKey || e.metaKey) && e.key === 'k') { e.preventDefault(); this.#jump(); }
    });
    this.store.addEventListener('change', () => this.update());
    signedOut.addEventListener('signedout', () => {
      this.store.forget();
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
    const all = [['overview', 'Overview'], ['calls', 'Calls'], ['sessions', 'Sessions'], ['try', 'Try']];
    if (look) all.push(['traffic', 'Traffic']);
    return act ? [...all, ['log', 'Log'], ['config', 'Configuration']] : all;
  }

  /** Ctrl-K: a page, a server or a session by some letters of its name. */
  #jump() {
    if (!this.store.me || document.querySelector('dialog')) return;
    let words = '';
    const state = this.store.state;
    /** @type {[string, string][]} */
    const places = [
      ...this.pages.map(([page, name]) => /** @type {[string, string]} */ ([name, to(page)])),
      ...(state.status?.servers ?? []).flatMap((/** @type {any} */ s) => [[`server ${s.name}`, to('servers', s.name)], [`try ${s.name}`, to('try', s.name)]]),
      ...(state.sessions?.sessions ?? []).map((/** @type {any} */ s) => [`session ${s.id} ${s.principal ?? ''} ${s.client ?? ''}`, `${to('sessions')}?filter=session:${s.id}`]),
    ];
    const found = () => places.filter(([name]) => words.toLowerCase().split(' ').every((w) => name.toLowerCase().includes(w))).slice(0, 12);
    dialog('Go to', (close, again) => html`
      <form @submit=${(/** @type {Event} */ e) => { e.preventDefault(); close(found()[0]?.[1]); }}><label class="hidden" for="jump">name</label><input id="jump" autocomplete="off" spellcheck="false" placeholder="a page, a server, a session" @input=${(/** @type {any} */ e) => { words = e.target.value; again(); }} /></form>
      <ul class="entries">${found().map(([name, hash]) => html`<li key=${hash}><a href=${hash} @click=${() => close(undefined)}>${name}</a></li>`)}</ul>`)
      .then((hash) => { if (hash) location.hash = hash; });
  }

  view() {
    const me = this.store.me;
    if (this.#out || (!me && !this.#error)) return this.#out ? html`<sign-in @signedin=${() => this.#begin()}></sign-in>` : html`<main><p role="status">reading…</p></main>`;
    if (!me) return html`<main>${fault(this.#error)}<p>The page tries again.</p></main>`;
    const { store, route } = this;
    return html`
      <a class="skip" href="#main" @click=${(/** @type {Event} */ e) => { e.preventDefault(); /** @type {HTMLElement} */ (this.querySelector('main')).focus(); }}>to the content</a>
      <header>
        <span class="brand">mcp-bridge <span class="quiet">${me.version}${me.instance ? ` · ${me.instance}` : ''}</span></span>
        <nav aria-label="pages">${this.pages.map(([page, name]) => html`<a href=${to(page)} aria-current=${page === route.page || (page === 'overview' && route.page === 'servers') ? 'page' : undefined}>${name}</a>`)}</nav>
        <span class="tools">
          <span class="quiet">${store.paused ? '⏸ paused' : store.live ? '● live' : '○ every few seconds'}</span>
          <button type="button" class="small" aria-pressed=${String(store.paused)} @click=${() => { store.paused = !store.paused; store.changed(); }}>pause</button>
          <button type="button" class="small" title="Ctrl+K" @click=${() => this.#jump()}>go to</button>
          <button type="button" class="small" aria-label=${`colours: ${this.#theme}`} @click=${() => this.#turn()}>${{ auto: '◑', light: '☀', dark: '☾' }[this.#theme] ?? '◑'}</button>
          ${me.keys ? html`<span class="quiet">${me.principal}</span><button type="button" class="small" @click=${() => signOut().catch(() => {}).then(() => signedOut.dispatchEvent(new Event('signedout')))}>sign out</button>` : ''}
        </span>
      </header>
      <main id="main" tabindex="-1">${this.#page(route, store)}</main>`;
  }

  /** @param {import('./page.js').Route} route @param {Store} store */
  #page(route, store) {
    switch (route.page) {
      case 'overview': return html`<page-overview .store=${store} .route=${route}></page-overview>`;
      case 'servers': return html`<page-server key=${route.rest[0]} .store=${store} .route=${route}></page-server>`;
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
      this.#error = f.status === 401 ? new Error('This key is not known.') : f.after ? new Error(`${f.message} Try again in ${f.after} s.`) : f;
      field.value = '';
      field.focus();
    }
    this.#busy = false;
    this.update();
  }

  view() {
    return html`<main class="signin"><h1>mcp-bridge</h1><form @submit=${(/** @type {any} */ e) => this.#send(e)}>
      <label for="key">key</label><input id="key" name="key" type="password" autocomplete="current-password" required autofocus />
      <button type="submit" class="act" disabled=${this.#busy}>sign in</button></form>${fault(this.#error)}</main>`;
  }
}

customElements.define('sign-in', SignIn);
customElements.define('console-app', App);
render(html`<console-app></console-app>`, document.body);
