// The filter of lists: server:files status:error duration:>500 -method:ping words
//
// key:value wants a member that contains the value, key:>n and key:<n compare numbers (500ms and 2s are
// durations in milliseconds), a word wants any member that contains it, and a minus in front wants the
// opposite. All have to hold. "…" keeps blanks.
import { bare } from './names.js';

/** @typedef {{key: string, op: ':'|'>'|'<', value: string, not: boolean}} Term */

/** @param {string} text @returns {Term[]} */
export function terms(text) {
  return [...text.matchAll(/(-?)(?:([\w.]+):)?([<>]?)(?:"([^"]*)"?|(\S+))/g)].map((m) => ({
    not: m[1] === '-', key: m[2] ?? '', op: m[2] && m[3] ? /** @type {'>'|'<'} */ (m[3]) : ':', value: ((m[2] ? '' : m[3]) + (m[4] ?? m[5])).toLowerCase(),
  }));
}

/** @param {string} text */
function quantity(text) {
  const m = /^([\d.]+)(ms|s|min|kb|mb)?$/.exec(text);
  return m ? Number(m[1]) * ({ ms: 1, s: 1000, min: 60000, kb: 1024, mb: 1048576 }[m[2]] ?? 1) : NaN;
}

/**
 * Whether a row passes.
 * @param {Term[]} wanted
 * @param {Record<string, any>} row its members as the filter knows them
 */
export function passes(wanted, row) {
  return wanted.every(({ key, op, value, not }) => {
    if (key && !Object.hasOwn(row, key)) return not;
    const found = key ? [row[key]] : Object.values(row);
    const holds = found.some((v) => {
      if (op === ':') return String(v ?? '').toLowerCase().includes(value);
      return op === '>' ? Number(v) > quantity(value) : Number(v) < quantity(value);
    });
    return holds !== not;
  });
}

/** Whether a call ended before all calls were recorded: only failures are kept from then. @param {any} c @param {string|undefined} since */
export const early = (c, since) => Boolean(c.outcome && since && Date.parse(c.began) < Date.parse(since));

/** Whether an open circuit breaker refused a call. @param {any} c */
export const refused = (c) => c.outcome === 'circuit_open';

/**
 * The rows of a list of calls. Calls of a tool that are refused one after the other are one row, with these calls as run. A row
 * with the id "since" stands above the calls that are early.
 * @param {any[]} calls the newest first
 * @param {string|undefined} since when the recording of all calls began
 * @param {(id: string) => boolean} [unfolded] whether the calls of a run follow its row
 * @returns {any[]}
 */
export function callRows(calls, since, unfolded = () => false) {
  const before = calls.filter((c) => early(c, since));
  return [...folded(calls.filter((c) => !early(c, since)), unfolded), ...(before.length ? [{ id: 'since' }, ...folded(before, unfolded)] : [])];
}

/** @param {any[]} calls @param {(id: string) => boolean} unfolded */
function folded(calls, unfolded) {
  /** @type {any[]} */
  const rows = [];
  for (let i = 0, end = 0; i < calls.length; i = end) {
    const c = calls[i];
    do end++; while (end < calls.length && refused(c) && refused(calls[end]) && c.server === calls[end].server && bare(c) === bare(calls[end]));
    const run = calls.slice(i, end);
    if (run.length === 1) {
      rows.push(c);
      continue;
    }
    const id = `run ${calls[end - 1].id}`; // the oldest: it stays while others come
    rows.push({ ...c, id, run });
    if (unfolded(id)) rows.push(...run.map((one) => ({ ...one, within: true })));
  }
  return rows;
}

/** A line that repeats one of so many rows above it is folded into that row. */
const nearRows = 5;

/**
 * The rows of a list of log lines: lines that say the same but for numbers are one row, with all of them as run.
 * @param {any[]} lines the newest first
 * @returns {{line: any, run: any[]}[]}
 */
export function foldedLines(lines) {
  /** @type {{line: any, run: any[], same: string}[]} */
  const rows = [];
  for (const line of lines) {
    const same = [line.level, line.server, line.msg, JSON.stringify(line.attrs ?? {})].join('\n').replace(/\d+(\.\d+)?/g, '0');
    const row = rows.slice(-nearRows).find((r) => r.same === same);
    if (row) row.run.push(line);
    else rows.push({ line, run: [line], same });
  }
  return rows;
}
