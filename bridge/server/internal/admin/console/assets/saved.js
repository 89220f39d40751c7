// Calls that somebody has saved. They are kept in the browser only, for each caller by itself. A
// file has them for others, and for 'mcp-bridge call --saved'.
import { isObject, parse, stringify } from './json.js';
import { modern, revisions } from './mcp.js';
import { to } from './page.js';

/** @typedef {{name: string, server: string, tool: string, revision: string, arguments: string, expect?: string}} Saved */

const most = 100;
const mostText = 65536;

/** @param {string} who */
const place = (who) => `saved ${who}`;

/** The calls of a caller, by name. @param {string} who @returns {Saved[]} */
export function saved(who) {
  try {
    const all = JSON.parse(localStorage.getItem(place(who)) ?? '[]');
    return Array.isArray(all) ? all.filter((c) => ['name', 'server', 'tool', 'revision', 'arguments'].every((m) => typeof c?.[m] === 'string')) : [];
  } catch {
    return [];
  }
}

/** Saves a call, in the place of one with the same name. @param {string} who @param {Saved} call */
export const save = (who, call) => keep(who, [call]);

/** Saves all of them, or none. @param {string} who @param {Saved[]} calls */
function keep(who, calls) {
  const all = new Map(saved(who).map((c) => [c.name, c]));
  for (const call of calls) {
    if (call.arguments.length + (call.expect?.length ?? 0) > mostText) throw new Error(`The arguments are too long to be saved: ${call.name}.`);
    read(call);
    all.set(call.name, call);
  }
  if (all.size > most) throw new Error(`More than ${most} calls cannot be saved: remove some first.`);
  localStorage.setItem(place(who), JSON.stringify([...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1))));
}

/** A call as a file has it. A form may have the first half of a number, which is no JSON. @param {Saved} call */
function read({ arguments: args, expect, ...c }) {
  try {
    return { ...c, arguments: parse(args), expect: expect === undefined ? undefined : parse(expect) };
  } catch {
    throw new Error(`The arguments of ${c.name} are no JSON: ${args.slice(0, 200)}`);
  }
}

/** The file that has these calls. @param {Saved[]} calls */
export const exported = (calls) => `${stringify({ calls: calls.map(read) }, 2)}\n`;

/** Saves the calls of such a file, and says how many they are. @param {string} who @param {string} text */
export function imported(who, text) {
  let calls;
  try { calls = parse(text)?.calls; } catch { /* it is no JSON */ }
  if (!Array.isArray(calls)) throw new Error('The file has no list of "calls", as export writes it.');
  keep(who, calls.map((c, i) => {
    for (const m of ['server', 'tool']) if (typeof c?.[m] !== 'string' || !c[m]) throw new Error(`Call ${i + 1}: "${m}" is missing.`);
    if (c.arguments !== undefined && !isObject(c.arguments)) throw new Error(`Call ${i + 1}: "arguments" must be an object.`);
    return {
      name: typeof c.name === 'string' && c.name ? c.name : c.tool, server: c.server, tool: c.tool, revision: revisions.includes(c.revision) ? c.revision : modern,
      arguments: stringify(c.arguments ?? {}), ...(isObject(c.expect) ? { expect: stringify(c.expect) } : {}),
    };
  }));
  return calls.length;
}

/** @param {string} who @param {string} name */
export const unsave = (who, name) => localStorage.setItem(place(who), JSON.stringify(saved(who).filter((c) => c.name !== name)));

/** Where it can be made again. @param {Saved} c */
export const addressOf = (c) => `${to('try', c.server, 'tools', c.tool)}?${new URLSearchParams({ revision: c.revision, arguments: c.arguments })}`;

/** The address in Try of the call that somebody has asked to make again. The address itself does not say so: a link never calls. */
let asked = '';

/** Has Try make a call again when it opens that address next. @param {string} hash */
export const replay = (hash) => { asked = hash; };

/** Forgets the call that is to be made again, unless it is at that address. @param {string} [hash] */
export const moved = (hash) => { if (asked !== hash) asked = ''; };

/** Whether the call of that address is to be made again, once. @param {string} hash */
export function replayed(hash) {
  moved(hash);
  const yes = asked !== '';
  asked = '';
  return yes;
}
