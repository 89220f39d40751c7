// What the page knows of the bridge, kept up to date by its events. Without a stream (there are as many as
// the bridge allows already) it asks every few seconds.
import { follow, get } from './api.js';
import { hidden } from './tab.js';

/** How many rows the page holds of what grows. */
export const mostRows = 5000;
const mostPoints = 120;
/** How many messages it holds, which may have much to carry. */
const mostMessages = 2000;
/** How long an answer may take before the bridge counts as lost, in milliseconds. */
const patience = 5000;

/**
 * @typedef {object} State
 * @property {any} [status]
 * @property {Map<string, any>} calls by id, the newest last
 * @property {any} [callsHead] since when calls are watched, and what is told once
 * @property {any} [sessions]
 * @property {any[]} lines of the log
 * @property {any[]} messages that have passed, each with a number n
 * @property {number} dropped events
 * @property {{at: number, total: number}[]} totals calls so far, for the chart
 */

/** @returns {State} */
export const empty = () => ({ calls: new Map(), lines: [], messages: [], dropped: 0, totals: [] });

/** @param {Map<string, any>|any[]} rows */
function trim(rows) {
  if (rows instanceof Map) {
    for (const id of rows.keys()) {
      if (rows.size <= mostRows) break;
      rows.delete(id);
    }
  } else if (rows.length > mostRows) rows.splice(0, rows.length - mostRows);
}

/** @param {State} state @param {any} status */
function total(state, status) {
  const n = status?.process?.calls_total;
  if (n === undefined) return;
  state.totals.push({ at: Date.now(), total: n });
  if (state.totals.length > mostPoints) state.totals.shift();
}

/** @param {State} state @param {any} page as GET calls answers */
function takeCalls(state, page) {
  const rows = [...(page.failures ?? []), ...(page.recent ?? []), ...(page.under_way ?? [])].sort((a, b) => (a.began < b.began ? -1 : 1));
  state.calls = new Map(rows.map((c) => [c.id, c]));
  state.callsHead = { since: page.since, before: page.before };
  trim(state.calls);
}

/**
 * Takes an event into the state.
 * @param {State} state @param {string} type @param {any} data
 */
export function apply(state, type, data) {
  switch (type) {
    case 'snapshot':
      if (data.status) { state.status = data.status; total(state, data.status); }
      if (data.calls) takeCalls(state, data.calls);
      if (data.sessions) state.sessions = data.sessions;
      if (data.lines) state.lines = data.lines.slice(-mostRows);
      break;
    case 'status': {
      const { servers = [], removed = [], ...rest } = data;
      /** @type {Map<string, any>} */
      const rows = new Map((state.status?.servers ?? []).map((/** @type {any} */ s) => [s.name, s]));
      for (const name of removed) rows.delete(name);
      for (const s of servers) rows.set(s.name, s);
      state.status = { ...state.status, reason: undefined, draining: undefined, drained: undefined, groups: undefined, ...rest, servers: [...rows.values()] };
      total(state, data);
      break;
    }
    case 'call.begin': case 'call.end': {
      const had = state.calls.get(data.id);
      state.calls.set(data.id, { ...had, ...data, marks: data.marks ?? had?.marks });
      trim(state.calls);
      break;
    }
    case 'call.mark': {
      const call = state.calls.get(data.id);
      const { id, ...mark } = data;
      if (call) state.calls.set(id, { ...call, marks: [...(call.marks ?? []).slice(-199), mark] });
      break;
    }
    case 'sessions': state.sessions = data; break;
    case 'log': state.lines.push(data); trim(state.lines); break;
    case 'message':
      state.messages.push({ ...data, n: (state.messages.at(-1)?.n ?? 0) + 1 });
      if (state.messages.length > mostMessages) state.messages.shift();
      break;
    case 'dropped': state.dropped += data.count; break;
    case 'resumed': state.dropped += data.missed; break;
    default:
  }
}

/**
 * Calls per second, from how many there were so far.
 * @param {{at: number, total: number}[]} totals
 * @returns {number[]}
 */
export function rates(totals) {
  return totals.slice(1).map((p, i) => Math.max(0, (p.total - totals[i].total) / Math.max(0.001, (p.at - totals[i].at) / 1000)));
}

/** The state, with an event "change" at most some times a second. */
export class Store extends EventTarget {
  state = empty();
  /** @type {any} */
  me = undefined;
  live = false;
  paused = false;
  /** Since when the bridge does not answer, if so. @type {number|undefined} */
  lost = undefined;
  /** @type {string[]} */
  #topics = [];
  #query = '';
  /** @type {{close: () => void}|undefined} */
  #stream;
  /** @type {any} */
  #timer;
  #due = false;
  #checking = false;
  /** @type {any} */
  #again;

  /** Follows these topics from now on, and no others. @param {string[]} topics @param {string} [query] what else is asked for */
  watch(topics, query = '') {
    if (topics.join() === this.#topics.join() && query === this.#query) return;
    this.stop();
    this.#topics = [...topics];
    this.#query = query;
    if (!topics.length) return;
    this.#stream = follow(topics, (type, data) => { apply(this.state, type, data); this.changed(); }, (live, lost) => {
      this.live = live;
      if (live) this.lost = undefined;
      if (lost) this.#check();
      this.changed();
    }, query);
    this.#ask();
  }

  /** Follows nothing, until watch is called again. An answer that comes later is nobody's. */
  stop() {
    this.#stream?.close();
    clearTimeout(this.#timer);
    clearTimeout(this.#again);
    this.#topics = [];
    this.#query = '';
    this.live = false;
  }

  /** Forgets all that somebody saw who has signed out. */
  forget() {
    this.stop();
    this.state = empty();
    this.me = undefined;
    this.paused = false;
    this.lost = undefined;
  }

  /** Asks for what no stream tells. */
  async #ask() {
    const topics = this.#topics;
    const wanted = /** @type {[string, string, string][]} */ ([['servers', 'status', 'status'], ['calls', 'calls', 'calls'], ['sessions', 'sessions', 'sessions'], ['log', 'log', 'lines']]);
    for (const [topic, path, member] of wanted) {
      if (this.live || hidden() || !topics.includes(topic)) continue;
      const answer = await get(path, patience).catch((e) => { if (topics === this.#topics) this.#failed(e); });
      if (topics !== this.#topics) return;
      if (answer) this.lost = undefined;
      if (answer && !this.live) apply(this.state, 'snapshot', { [member]: member === 'lines' ? answer.lines : answer });
      this.changed();
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), 4000);
    if (this.live) this.#check();
  }

  /** Finds out whether the bridge answers, again and again while it does not. It also notices that somebody has to sign in again. */
  async #check() {
    if (this.#checking || hidden()) return;
    this.#checking = true;
    const topics = this.#topics;
    const wrong = await get('me', patience).then((me) => { if (topics === this.#topics) this.me = me; }, (e) => e);
    this.#checking = false;
    if (topics !== this.#topics) return;
    if (wrong?.gone) this.#failed(wrong);
    else if (this.lost) { // follow anew at once: a browser waits for some seconds
      const query = this.#query;
      this.stop();
      this.lost = undefined;
      this.watch(topics, query);
    }
    this.changed();
  }

  /** @param {any} e why a request has no answer */
  #failed(e) {
    if (!e.gone) return;
    this.lost ??= Date.now();
    this.live = false;
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.#check(), 1500);
    this.changed();
  }

  /** Tells soon that something has changed. */
  changed() {
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => { this.#due = false; this.dispatchEvent(new Event('change')); }, 100);
  }

  /** Whether the bridge has an action. @param {string} path with {} for what differs, such as servers/{}/probe */
  has(path) { return Boolean(this.me?.actions?.some((/** @type {string} */ a) => a.replace(/\{[^}]*\}/g, '{}') === path)); }

  /** Whether it has it, and the viewer may do it to whatever is there. @param {string} path */
  can(path) { return Boolean(this.me?.act) && this.has(path); }
}
