// The bridge's API, as docs/console.md and the other clients of it have it, and its events.
import { hidden, onTurn } from './tab.js';

/** Where the console is, such as http://127.0.0.1:8808/ui/. */
export const root = new URL('.', globalThis.location?.href ?? 'http://localhost/ui/').href;

/** An answer that says no. */
class Refused extends Error {
  /** @param {number} status @param {any} body @param {string|null} [after] seconds to wait */
  constructor(status, body, after) {
    super(body?.error?.message ?? (status ? `the bridge answered with status ${status}` : 'The bridge does not answer.'));
    this.status = status;
    this.code = body?.error?.code ?? '';
    /** @type {{file?: string, line?: number, message: string}[]} */
    this.faults = body?.error?.faults ?? [];
    this.after = Number(after ?? 0);
    /** Whether no bridge answered: nobody did, or a proxy that found none. */
    this.gone = !status || (status >= 502 && !this.code);
  }
}

/** Told when a request was refused because nobody is signed in. */
export const signedOut = new EventTarget();

/**
 * @param {string} path below ui/
 * @param {object} [body] what is sent; without it, it is a GET
 * @param {number} [limit] how many milliseconds the answer may take
 */
async function request(path, body, limit) {
  let response;
  try {
    response = await fetch(root + path, body === undefined ? { credentials: 'same-origin', signal: limit ? AbortSignal.timeout(limit) : undefined } : {
      method: 'POST', credentials: 'same-origin', body: JSON.stringify(body),
      headers: { 'Content-Type': 'application/json', 'Bridge-Console': '1' },
    });
  } catch {
    throw new Refused(0, null);
  }
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  if (response.status === 401 && path !== 'login') signedOut.dispatchEvent(new Event('signedout'));
  throw new Refused(response.status, answer, response.headers.get('Retry-After'));
}

/** @param {string} path @param {number} [limit] @returns {Promise<any>} */
export const get = (path, limit) => request(`api/v1/${path}`, undefined, limit);
/** @param {string} path @param {object} [body] @returns {Promise<any>} */
export const post = (path, body = {}) => request(`api/v1/${path}`, body);
/** @param {string} key */
export const signIn = (key) => request('login', { key });
export const signOut = () => request('logout', {});

/** A part of a path. @param {string} s */
export const part = encodeURIComponent;

const kinds = ['snapshot', 'resumed', 'status', 'call.begin', 'call.mark', 'call.end', 'sessions', 'log', 'message', 'dropped'];

/** How many tabs of a browser have a stream at a time: over HTTP/1.1 it opens six connections to a bridge, and calls need some. */
const streams = 3;

/**
 * Takes the place of a stream among all tabs. Without TLS a browser has locks for this machine's own addresses only:
 * elsewhere each tab has a stream.
 * @returns {Promise<(() => void)|undefined>} gives the place back; undefined if all are taken
 */
async function place() {
  const locks = globalThis.navigator?.locks;
  const wire = /** @type {any} */ (globalThis.performance?.getEntriesByType?.('navigation')[0])?.nextHopProtocol;
  if (!locks || !globalThis.document || /^h[23]/.test(wire)) return () => {};
  for (let i = 0; i < 2 * streams; i++) { // twice: the place that this tab gave back a moment ago may count as taken at first
    const n = (i % streams) + 1;
    /** @type {(() => void)|undefined} */
    const free = await new Promise((taken) => {
      locks.request(`stream ${n} of ${root}`, { ifAvailable: true }, (lock) => (lock ? new Promise((/** @type {any} */ done) => { taken(done); }) : taken(undefined))).catch(() => taken(() => {}));
    });
    if (free) return free;
  }
  return undefined;
}

/**
 * Follows events until close is called. The browser connects again by itself after a loss, and says which
 * event was the last: what was missed comes then, or a snapshot; an answer that is no stream, or no free
 * place, is tried again after 5 s. There is no stream while the tab is in the back.
 * @param {string[]} topics
 * @param {(type: string, data: any) => void} heard
 * @param {(live: boolean, lost?: boolean) => void} [state] lost: the connection failed
 * @param {string} [query] what else is asked for
 * @returns {{close: () => void}}
 */
export function follow(topics, heard, state = () => {}, query = '') {
  /** @type {EventSource|undefined} */
  let source;
  /** @type {any} */
  let timer;
  /** @type {(() => void)|undefined} */
  let free;
  let turn = 0;
  const close = () => { turn++; source?.close(); free?.(); clearTimeout(timer); };
  const later = (/** @type {number} */ ms) => { close(); timer = setTimeout(open, ms); };
  const open = async () => {
    if (hidden()) return;
    const mine = ++turn;
    const got = await place();
    if (mine !== turn) { got?.(); return; }
    if (!got) { later(5000); return; }
    free = got;
    const s = new EventSource(`${root}api/v1/events?topics=${topics.join(',')}${query}`);
    source = s;
    for (const type of kinds) {
      s.addEventListener(type, (e) => {
        if (type === 'snapshot' || type === 'resumed') state(true);
        heard(type, JSON.parse(/** @type {MessageEvent} */ (e).data));
      });
    }
    s.addEventListener('bye', (e) => {
      close();
      state(false);
      if (JSON.parse(/** @type {MessageEvent} */ (e).data).reason === 'signed_out') signedOut.dispatchEvent(new Event('signedout'));
      else later(2000);
    });
    s.addEventListener('error', () => {
      state(false, true);
      if (s.readyState === EventSource.CLOSED) later(5000);
    });
  };
  const end = onTurn(() => {
    close();
    state(false);
    open();
  });
  open();
  return { close() { end(); close(); } };
}
