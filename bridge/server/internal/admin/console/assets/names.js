// Names for people: how calls end, and which client is at the other end.
import { html } from './dom.js';
import { clock } from './text.js';

/** Outcomes by their names in metrics: the words, and the tone. @type {Record<string, [string, string, string]>} */
const outcomes = {
  ok: ['✔', 'good', 'OK'], tool_error: ['✘', 'bad', 'Tool error'], error: ['✘', 'bad', 'Error'], cancelled: ['○', 'quiet', 'Cancelled'], timeout: ['✘', 'bad', 'Timed out'],
  unavailable: ['✘', 'bad', 'Unavailable'], circuit_open: ['▲', 'bad', 'Circuit open'], drained: ['◇', 'busy', 'Drained'], lost: ['✘', 'bad', 'Connection lost'],
  overloaded: ['▲', 'bad', 'Overloaded'], rate_limited: ['▲', 'busy', 'Rate limited'], denied: ['✘', 'bad', 'Denied'], too_large: ['✘', 'bad', 'Too large'], other: ['✘', 'bad', 'Failed'],
};

/** The words for an outcome. @param {string|undefined} name absent while the call is active */
export const outcomeText = (name) => (name ? outcomes[name]?.[2] ?? name : 'Active');

/** An outcome, in its colour. @param {string|undefined} name @param {number} [n] how many calls ended so */
export function outcome(name, n) {
  const [shape, tone] = name ? outcomes[name] ?? ['✘', 'bad'] : ['◐', 'busy'];
  return html`<span class="badge ${tone}"><span aria-hidden="true">${shape}</span> ${outcomeText(name)}${n ? ` ×${n}` : ''}</span>`;
}

/** The name of what is called, without the prefix of its server: the server is named beside it. @param {any} c */
export function bare(c) {
  const name = c.name ?? c.method;
  return c.server && name.startsWith(`${c.server}__`) ? name.slice(c.server.length + 2) || name : name;
}

/** Says why there are only failures below, in a list of calls. @param {string} since when the recording of all calls began */
export const recorded = (since) => `Since ${clock(since)} all calls are recorded. Earlier, only failures.`;

/** The clients of a list of sessions, by session. @type {WeakMap<object, Map<string, string>>} */
const clients = new WeakMap();

/**
 * The name of a client: as it says itself, else its principal.
 * @param {import('./store.js').State} state @param {{client?: string, session?: string, principal?: string}} of
 */
export function clientOf(state, of) {
  const rows = state.sessions?.sessions;
  if (rows && !clients.has(rows)) clients.set(rows, new Map(rows.map((/** @type {any} */ s) => [s.id, s.client])));
  return named(of.client || (of.session && rows && clients.get(rows)?.get(of.session)) || '') || of.principal || of.session || 'a stateless client';
}

/** The name of a client with its version, such as claude-code v1: a bare number reads as a count. @param {string} client */
export const named = (client) => client.replace(/ (?=\d[\w.+-]*$)/, ' v');

/** A fact of a list of facts; nothing if it is not known. @param {string} term @param {any} value */
export const fact = (term, value) => (value === undefined || value === null || value === '' || value === false ? '' : html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`);

/**
 * Whether a tool is destructive.
 * @param {any} tool @param {boolean} assumed whether one without hints is, as MCP has it
 */
export const destructive = ({ annotations: a }, assumed) => !a?.readOnlyHint && Boolean(a?.destructiveHint ?? assumed);

/**
 * What a tool says of itself, as chips.
 * @param {any} tool
 */
export function chips(tool) {
  const a = tool.annotations ?? {};
  /** @param {string} text @param {string} [tone] @param {string} [title] */
  const chip = (text, tone = '', title = '') => html`<span key=${text} class="chip ${tone}" title=${title || undefined}>${text}</span>`;
  return [
    a.readOnlyHint ? chip('Read-only', 'good') : a.destructiveHint ? chip('Destructive', 'bad') : [a.readOnlyHint, a.destructiveHint, a.idempotentHint, a.openWorldHint].some((hint) => hint !== undefined) ? '' : chip('no hints', '', 'The tool does not say whether it changes something: by the default of MCP, it may destroy'),
    a.idempotentHint ? chip('Idempotent') : '', a.openWorldHint ? chip('Open world') : '',
  ];
}
