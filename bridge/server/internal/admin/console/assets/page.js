// The base of all pages: the store, the route, and the filter.
import { html, View } from './dom.js';
import { icon } from './parts.js';
import { hidden } from './tab.js';

/** @typedef {import('./store.js').Store} Store */
/** @typedef {{page: string, rest: string[], query: URLSearchParams}} Route */

/** @param {string} hash such as #/servers/files?filter=x @returns {Route} */
export function routeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [page, ...rest] = path.split('/').map((p) => { try { return decodeURIComponent(p); } catch { return p; } });
  return { page: page || 'overview', rest, query: new URLSearchParams(query ?? '') };
}

/** The address of a page. @param {...string} parts */
export const to = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

/**
 * Asks now, and again so long after each answer, while the tab is in front.
 * @param {number} ms @param {() => Promise<void>} ask
 * @returns {() => void} what ends that
 */
export function every(ms, ask) {
  let ended = false;
  /** @type {any} */
  let timer;
  const next = async () => {
    if (!hidden()) await ask().catch(() => {});
    if (!ended) timer = setTimeout(next, ms);
  };
  next();
  return () => { ended = true; clearTimeout(timer); };
}

/** A page: it is shown anew when the store changes. */
export class Page extends View {
  /** @type {Store} */
  store = /** @type {any} */ (undefined);
  /** @type {Route} */
  route = routeOf('');
  /** What its events are about. @returns {string[]} */
  get topics() { return ['servers']; }
  #changed = () => { if (!this.store.paused) this.update(); };

  connectedCallback() {
    this.store.addEventListener('change', this.#changed);
    this.store.watch(this.topics);
    super.connectedCallback();
  }

  disconnectedCallback() { this.store.removeEventListener('change', this.#changed); }

  /** Sets a part of the query, so that a view can be sent to somebody. @param {string} name @param {string} value */
  ask(name, value) {
    const query = new URLSearchParams(this.route.query);
    if (value) query.set(name, value);
    else query.delete(name);
    this.route = { ...this.route, query };
    const text = query.toString();
    history.replaceState(null, '', to(this.route.page, ...this.route.rest) + (text ? `?${text}` : ''));
    this.update();
  }

  /** The line with the filter. @param {string} hint @param {any} [more] */
  filterLine(hint, more = '') {
    return html`<form class="line filter" role="search" @submit=${(/** @type {Event} */ e) => e.preventDefault()}><label class="hidden" for="filter">Filter</label>${icon('search')}<input id="filter" type="search" spellcheck="false" autocomplete="off" placeholder=${`Filter, such as ${hint}`} .value=${this.route.query.get('filter') ?? ''} @input=${(/** @type {any} */ e) => this.ask('filter', e.target.value)} />${more}</form>`;
  }
}
