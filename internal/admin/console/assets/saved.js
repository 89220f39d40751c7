// Calls that somebody has saved. They are kept in the browser only, for each caller by itself.
import { to } from './page.js';

/** @typedef {{name: string, server: string, tool: string, revision: string, arguments: string}} Saved */

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
export function save(who, call) {
  if (call.arguments.length > mostText) throw new Error('The arguments are too long to be saved.');
  const others = saved(who).filter((c) => c.name !== call.name);
  if (others.length >= most) throw new Error(`${most} calls are saved already: remove some first.`);
  localStorage.setItem(place(who), JSON.stringify([...others, call].sort((a, b) => (a.name < b.name ? -1 : 1))));
}

/** @param {string} who @param {string} name */
export const unsave = (who, name) => localStorage.setItem(place(who), JSON.stringify(saved(who).filter((c) => c.name !== name)));

/** Where it can be made again. @param {Saved} c */
export const addressOf = (c) => `${to('try', c.server, 'tools', c.tool)}?${new URLSearchParams({ revision: c.revision, arguments: c.arguments })}`;
