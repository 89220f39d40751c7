// Figures of the bridge over time, and what follows from its status. No part of it touches the page.

/** How many colours a chart tells apart; further series are one, called "other". */
const mostSeries = 7;

/**
 * A column with the entries that are new at its end, at most so many in all.
 * @param {any[]|undefined} had @param {any[]|undefined} now @param {number} fresh how many are new @param {number} points @param {any} none stands for those that are left out
 */
function append(had, now, fresh, points, none) {
  if (!had && !now) return undefined;
  const end = now?.slice(-fresh) ?? [];
  const gap = new Array(fresh - end.length).fill(none);
  return [...(had ?? []), ...gap, ...end].slice(-points);
}

const counted = ['calls', 'errors', 'tool_errors'];
const columns = [...counted, 'p50', 'p95', 'p99', 'in_flight', 'memory'];

/** @param {any} had @param {any} now @param {number} fresh @param {number} points */
function join(had, now, fresh, points) {
  const all = { ...had, ...now };
  for (const c of columns) {
    all[c] = append(had?.[c], now?.[c], fresh, points, counted.includes(c) ? 0 : null);
    if (all[c] === undefined) delete all[c];
  }
  return all;
}

/**
 * Appends an answer of GET series, which has only the buckets since the last one.
 * @param {any} had @param {any} now
 * @param {number} [points] how many buckets are kept
 */
export function merge(had, now, points = 180) {
  const fresh = had ? Math.round((now.to - had.to) / now.step) : Infinity;
  if (fresh >= points || now.step !== had.step || fresh < 0) return now;
  const since = now.to - points * now.step;
  const marks = [...had.marks, ...now.marks.filter((/** @type {any} */ m) => !had.marks.some((/** @type {any} */ h) => h.at === m.at && h.text === m.text))].filter((m) => m.at > since);
  if (!fresh) return { ...had, marks };
  if (!now.servers) return { ...join(had, now, fresh, points), marks };
  /** @type {Map<string, any>} */
  const before = new Map(had.servers.map((/** @type {any} */ s) => [s.server, s]));
  const of = (/** @type {any} */ s) => {
    const old = before.get(s.server);
    return old && !old.calls && !s.calls ? old : join(old, s, fresh, points); // a quiet server stays the same object: nothing of it is drawn again
  };
  return { ...now, marks, total: join(had.total, now.total, fresh, points), servers: now.servers.map(of) };
}

/** The sum of a column's last entries. @param {any[]|undefined} column @param {number} [n] */
export const sum = (column, n = Infinity) => (column ?? []).slice(-n).reduce((a, b) => a + (b ?? 0), 0);

/** Columns, the last n entries of each added up; a shorter one is aligned at its end. @param {any[][]} columns */
function add(columns) {
  const length = Math.max(0, ...columns.map((c) => c.length));
  const all = new Array(length).fill(0);
  for (const c of columns) c.forEach((v, i) => { all[length - c.length + i] += v ?? 0; });
  return all;
}

/**
 * Calls a second of the busiest servers, and of the others together.
 * @param {any} series as GET series answers @param {Map<string, string>} colours of the servers so far; new ones are added
 */
export function byServer(series, colours) {
  const busy = series.servers.filter((/** @type {any} */ s) => sum(s.calls) > 0).sort((/** @type {any} */ a, /** @type {any} */ b) => sum(b.calls) - sum(a.calls));
  const top = busy.slice(0, busy.length > mostSeries + 1 ? mostSeries : mostSeries + 1);
  for (const name of colours.keys()) if (!top.some((/** @type {any} */ s) => s.server === name)) colours.delete(name);
  for (const s of top) {
    if (!colours.has(s.server)) colours.set(s.server, [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `s${n}`).find((c) => ![...colours.values()].includes(c)) ?? 's8');
  }
  const rate = (/** @type {number} */ n) => n / (series.step / 1000);
  const all = top.map((/** @type {any} */ s) => ({ name: s.server, values: s.calls.map(rate), colour: colours.get(s.server) }));
  const rest = busy.slice(top.length);
  return rest.length ? [...all, { name: `${rest.length} others`, values: add(rest.map((/** @type {any} */ s) => s.calls)).map(rate), colour: 's8' }] : all;
}

/** How many buckets a share is of: one alone has too few calls. */
const shared = 6;

/** The share of one column in another in the last half minute, in percent. @param {any[]} part @param {any[]} whole */
export const shares = (part = [], whole = []) => whole.map((_, i) => {
  const all = sum(whole.slice(0, i + 1), shared);
  return all ? (100 * sum(part.slice(0, Math.max(0, part.length - whole.length + i + 1)), shared)) / all : 0;
});

/** How bad the state of a server is: 0 failing, 1 degraded, 2 working. @param {any} s */
export const badness = (s) => (s.state === 'failing' ? 0 : s.circuit_breaker === 'open' || s.circuit_breaker === 'half-open' || s.drained ? 1 : 2);

/**
 * The state of the bridge in one sentence, and the servers that it names.
 * @param {any} status
 * @returns {{tone: 'good'|'busy'|'bad', text: string, names: string[]}}
 */
export function sentence(status) {
  const all = status.servers;
  const named = (/** @type {(s: any) => boolean} */ test) => all.filter(test).map((/** @type {any} */ s) => s.name);
  const [failing, open, drained] = [named((s) => s.state === 'failing'), named((s) => s.state !== 'failing' && badness(s) === 1 && !s.drained), named((s) => s.state !== 'failing' && Boolean(s.drained))];
  const of = (/** @type {string[]} */ some) => (all.length === 1 ? 'The server is' : some.length === all.length ? `All ${all.length} servers` : `${some.length} of ${all.length} servers`);
  if (status.drained || status.draining) return { tone: 'busy', text: status.drained ? 'The bridge is drained by an operator: current clients are still served' : 'The bridge is stopping', names: [] };
  if (failing.length) return { tone: failing.length === all.length || !status.ready ? 'bad' : 'busy', text: `${of(failing)} failing: `, names: failing };
  if (!status.ready) return { tone: 'bad', text: `Not ready${status.reason ? `: ${status.reason}` : ''}`, names: [] };
  if (!all.length) return { tone: 'busy', text: 'No servers yet: add one to the configuration', names: [] };
  if (open.length) return { tone: 'busy', text: `${of(open)} refused by the circuit breaker: `, names: open };
  if (drained.length) return { tone: 'busy', text: `${of(drained)} drained: `, names: drained };
  return { tone: 'good', text: all.length === 1 ? 'The server is working' : `All ${all.length} servers working`, names: [] };
}

/** The servers that are missing from lists of clients, in a sentence; empty if none is. @param {any[]} servers */
export function missing(servers) {
  const all = servers.filter((s) => s.missing_from_lists);
  if (!all.length) return '';
  const each = all.slice(0, 8).map((s) => `${s.name} (${s.missing_from_lists} ${s.missing_from_lists === 1 ? 'client' : 'clients'}: ${s.missing_from_lists_why})`);
  return `Missing from the lists of clients: ${each.join(', ')}${all.length > 8 ? ` and ${all.length - 8} more` : ''}`;
}

/**
 * The clients of each server, the busiest first.
 * @param {any} topology as GET topology answers
 * @returns {Map<string, {client: string, rate: number, calls: number}[]>}
 */
export function users(topology) {
  /** @type {Map<string, Map<string, any>>} by server, and by client */
  const all = new Map();
  for (const c of topology.clients) {
    for (const { server, rate, calls } of c.servers ?? []) {
      const of = all.get(server) ?? new Map();
      const had = of.get(c.client);
      all.set(server, of.set(c.client, { client: c.client, rate: rate + (had?.rate ?? 0), calls: calls + (had?.calls ?? 0) }));
    }
  }
  return new Map([...all].map(([server, of]) => [server, [...of.values()].sort((a, b) => b.rate - a.rate || b.calls - a.calls)]));
}

/** The tools that failed most often, with their own errors or others. @param {any[]} tools as GET tools answers @param {number} most */
export const failing = (tools, most) => tools.filter((t) => t.errors + t.tool_errors > 0).sort((a, b) => b.errors + b.tool_errors - a.errors - a.tool_errors).slice(0, most);
