// Messages that belong together: a request with its answer, and what passes on the other side of the bridge for it.
import { html } from './dom.js';
import { parse, stringify } from './json.js';
import { clientOf } from './names.js';
import { copy } from './parts.js';
import { bytes, duration } from './text.js';

/**
 * @typedef {object} Exchange a request and its answer, or a notification, on one side of the bridge
 * @property {any} asked the first message
 * @property {any} [answer]
 * @property {Exchange} [inner] the same on the other side of the bridge, later
 * @property {boolean} [paired] it is the inner one of another
 */

/** How long the two sides of a notification are apart at most, in milliseconds. */
const near = 1000;

/** Whether two names are the same, one of them with a server's prefix perhaps. @param {string} [a] @param {string} [b] */
const alike = (a = '', b = '') => a === b || (b !== '' && a.endsWith(b)) || (a !== '' && b.endsWith(a));

/** Whether a message can be what the first one has become on the other side. @param {any} a @param {any} b */
const same = (a, b) => a.side !== b.side && a.to === b.to && a.method === b.method && (a.server === b.server || !a.server || !b.server) && alike(a.name, b.name) && (!a.principal || !b.principal || a.principal === b.principal);

/**
 * What belongs together in a list of messages, the oldest first. The bridge gives each request another id on its other side,
 * so the sides are matched by server, method, name and time.
 * @param {any[]} messages
 * @returns {Exchange[]} those that began it, each with its inner one
 */
export function exchanges(messages) {
  /** @type {Exchange[]} */
  const all = [];
  /** Requests without an answer, by side, direction, server, session and id. @type {Map<string, Exchange[]>} */
  const open = new Map();
  /** Requests that wait, and notifications, by method. @type {Map<string, Exchange[]>} */
  const waiting = new Map();
  const key = (/** @type {any} */ m, /** @type {string} */ to) => [m.side, to, m.server ?? '', m.session ?? '', m.id].join(' ');
  for (const m of messages) {
    if (m.kind === 'result' || m.kind === 'error') {
      const queue = open.get(key(m, m.to === 'server' ? 'client' : 'server')) ?? [];
      const began = Date.parse(m.at) - (m.took_ms ?? 0);
      queue.sort((a, b) => Math.abs(Date.parse(a.asked.at) - began) - Math.abs(Date.parse(b.asked.at) - began)); // ids of several connections
      const of = queue.shift();
      if (of) {
        of.answer = m;
        continue;
      }
    }
    /** @type {Exchange} */
    const one = { asked: m };
    const others = (waiting.get(m.method) ?? []).filter((e) => !e.answer && (e.asked.kind === 'request' || Date.parse(m.at) - Date.parse(e.asked.at) < near));
    const outer = m.kind === 'request' || m.kind === 'notification' ? others.find((e) => !e.inner && !e.paired && e.asked.kind === m.kind && same(e.asked, m)) : undefined;
    if (outer) {
      outer.inner = one;
      one.paired = true;
    } else all.push(one);
    waiting.set(m.method, [...others, one]);
    if (m.kind === 'request') {
      const k = key(m, m.to);
      open.set(k, [...(open.get(k) ?? []), one]);
    }
  }
  return all;
}

/** Its messages, in the order in which they passed. @param {Exchange} e @returns {any[]} */
export const passed = (e) => [e.asked, e.inner?.asked, e.inner?.answer, e.answer].filter(Boolean);

/** Which way a message passes, in words. @param {import('./store.js').State} state @param {any} m */
export const way = (state, m) => `${(m.side === m.to ? 'to' : 'from')} ${m.side === 'client' ? `client ${clientOf(state, m)}` : `server ${m.server}`}`;

/** JSON with line breaks, to be read. @param {string} text */
export function spread(text) {
  try { return stringify(parse(text), 2); } catch { return text; }
}

/** The messages of an exchange, each with what is known of it. @param {import('./store.js').State} state @param {Exchange} e */
export function trail(state, e) {
  const began = Date.parse(e.asked.at);
  return html`<ol class="trail">${passed(e).map((m) => html`<li key=${m.n} class=${m.side}>
    <p><b>${way(state, m)}</b> <span class="quiet">+${duration(Date.parse(m.at) - began)}</span></p>
    <p class="quiet">${m.kind}${m.id ? ` · id ${m.id}` : ''} · ${bytes(m.bytes)}${m.took_ms === undefined ? '' : ` · after ${duration(m.took_ms)}`}${m.code ? ` · code ${m.code}` : ''}</p>
    ${m.payload ? html`<details open><summary>${m.cut ? 'Payload (truncated)' : 'Payload'}</summary><long-text .text=${spread(m.payload)}></long-text>${copy('Copy', m.payload)}</details>` : m.cut ? html`<p class="quiet">The payload is too large to be shown.</p>` : ''}</li>`)}</ol>`;
}
