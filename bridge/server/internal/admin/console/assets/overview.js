// The first page: is it the bridge, or a server? Who calls what, and how it went in the last minutes.
import { get } from './api.js';
import { axis, chartsHead, markLegend, spark, timeChart } from './chart.js';
import { html } from './dom.js';
import { badness, byServer, failing, merge, missing, sentence, shares, sum, users } from './figures.js';
import { passes, terms } from './filter.js';
import { bare, clientOf, named, outcome } from './names.js';
import { every, Page, to } from './page.js';
import { age, badge, icon, table, time } from './parts.js';
import { rates } from './store.js';
import { count, duration, number, percent, reason } from './text.js';
import './approvals.js';
import './topology.js';

/** How many rows of servers are shown at first, and how many more at a click: a filter finds the others. */
const someRows = 100;
/** How many characters of an error are in sight at a width of 360 pixels. */
const longLine = 70;
/** How many tools a table has. */
const someTools = 5;

class Overview extends Page {
  /** @type {any[]} */
  #failures = [];
  /** Calls that an open circuit breaker refused. @type {any[]} */
  #refused = [];
  /** @type {any} as GET series answers, and what came since */
  #series = undefined;
  /** @type {any} as GET topology answers */
  #topology = undefined;
  /** The clients of each server. @type {Map<string, any[]>} */
  #users = new Map();
  /** How many clients a server has. @type {Map<string, number>} */
  #clients = new Map();
  /** Those that were called in the last minutes, the slowest first. @type {any[]} */
  #tools = [];
  /** @type {any[]} */
  #states = [];
  /** @type {import('./chart.js').Chart[]} made when the series change: charts are drawn again for new ones only */
  #charts = [];
  /** Whether the charts stay as they are. */
  #still = false;
  /** @type {Map<string, string>} */
  #colours = new Map();
  /** @type {Map<string, any>} the series of each server */
  #of = new Map();
  /** @type {Map<string, {of: any[], row: any}>} the rows that were shown, with what they were made of */
  #rows = new Map();
  #most = someRows;
  /** @type {(() => void)[]} */
  #ends = [];

  connectedCallback() {
    super.connectedCallback();
    this.#ends = [
      every(5000, async () => {
        if (this.store.paused) return;
        const answer = await get(`series${this.#series ? `?from=${this.#series.to}` : ''}`);
        if (answer.to > 0) this.#take(merge(this.#series, answer)); // else the bridge has only just begun
        this.update();
      }),
      every(5000, async () => {
        if (this.store.paused) return;
        this.#topology = await get('topology');
        this.#users = this.#topology.users = users(this.#topology);
        this.#clients = new Map(this.#topology.servers.map((/** @type {any} */ s) => [s.server, s.clients]));
        this.update();
      }),
      every(10000, async () => {
        if (this.store.me?.look) this.#tools = (await get('tools')).tools;
        /** @type {Map<string, any>} the newest of each kind, with their number */
        const kinds = new Map();
        for (const c of (await get('calls?status=failed')).failures) {
          const kind = [c.server, c.name ?? c.method, c.outcome].join('\n');
          kinds.set(kind, { ...(kinds.get(kind) ?? c), times: 1 + (kinds.get(kind)?.times ?? 0) });
        }
        this.#failures = [...kinds.values()].slice(0, 10);
        this.#refused = (await get('calls?status=circuit_open')).failures;
        this.update();
      }),
    ];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const end of this.#ends) end();
  }

  /** @param {any} series */
  #take(series) {
    if (series === this.#series) return;
    this.#series = series;
    this.#of = new Map(series.servers.map((/** @type {any} */ s) => [s.server, s]));
    this.#chart();
  }

  /** Makes the charts, unless somebody has stopped them. */
  #chart() {
    const series = this.#series;
    if (this.#still) return;
    const { step, to, marks, total: t } = series;
    const limit = t.limits?.calls ?? series.limits?.calls;
    const common = axis(step, to, t.calls, marks);
    this.#charts = [
      { ...common, title: 'Calls a second', unit: '/s', stacked: true, series: byServer(series, this.#colours) },
      { ...common, title: 'Errors', note: 'of the last 30 s', unit: '%', stacked: true, series: [{ name: 'Failed', values: shares(t.errors, t.calls), colour: 'bad' }, { name: 'Tool error', values: shares(t.tool_errors, t.calls), colour: 'warn' }] },
      { ...common, title: 'Response time', unit: 'ms', series: [{ name: 'p50', values: t.p50 ?? [], colour: 's2' }, { name: 'p95', values: t.p95 ?? [], colour: 's1' }, { name: 'p99', values: t.p99 ?? [], colour: 's3' }] },
      { ...common, title: 'Calls in flight', unit: '', max: limit, series: [{ name: 'In flight', values: t.in_flight ?? [], colour: 's5' }] },
      { ...common, title: 'Memory of child processes', unit: 'bytes', series: [{ name: 'Memory', values: t.memory ?? [], colour: 's4' }] },
    ];
  }

  view() {
    const s = this.store.state.status;
    if (!s) return html`<h1>Overview</h1><p role="status">Loading…</p>`;
    const b = s.bridge ?? {};
    const p = s.process ?? {};
    const { tone, text, names } = sentence(s);
    const lack = missing(s.servers);
    const bad = s.servers.filter((/** @type {any} */ one) => one.state === 'failing');
    const charts = this.#charts.length ? html`<div key="charts">${chartsHead(this.#still, () => { this.#still = !this.#still; this.#chart(); this.update(); })}<section class="charts" aria-label="The last 15 minutes">${this.#charts.map(timeChart)}</section>${markLegend(this.#charts[0].marks ?? [])}</div>` : '';
    const servers = html`<div key="servers">${this.#servers(s.servers)}${(s.groups ?? []).map((/** @type {any} */ g) => html`<p class="hint" key=${g.name}>${offers(g)}</p>`)}</div>`;
    if (this.route.page === 'servers') return html`<h1>Servers</h1>${servers}`;
    return html`
      <div class="head"><h1>Overview</h1>
        ${this.store.can('drain') ? html`<act-bar .actions=${s.drained
          ? [{ text: 'Resume', path: 'resume', tone: 'act', done: () => 'The bridge takes new clients again.' }]
          : [{ text: 'Drain bridge', path: 'drain', menu: true, tone: 'danger', hint: 'New clients go to other instances; current ones are still served', done: () => '', confirm: `Load balancers send no new clients here. ${b.sessions ? `${count(b.sessions, 'session')} and their` : 'Current'} clients are still served.` }]}></act-bar>` : ''}</div>
      <p class="summary state-line ${tone}" role="status">${icon(tone === 'good' ? 'check' : 'alert')}<span>${text}${names.slice(0, 8).map((n, i) => [i ? ', ' : '', html`<a href=${to('servers', n)}>${n}</a>`])}${names.length > 8 ? ` and ${names.length - 8} more` : ''}${bad.length === 1 && bad[0].reason ? html`<small>since ${time(bad[0].since)}: ${reason(bad[0].reason, bad[0].name).said}</small>` : ''}</span></p>
      ${lack ? html`<p class="summary state-line busy" key="lack">${icon('alert')}<span>${lack}</span></p>` : ''}
      ${p.approvals && this.store.me?.look ? html`<approval-list .may=${this.store.has('approvals/{}')}></approval-list>` : ''}
      ${this.#tiles(b, p)}
      ${servers}
      ${this.#toolTable('Failing tools', failing(this.#tools, someTools))}
      ${this.#failures.length ? html`<h2>Last failures</h2>${table('Last failures', ['Time', 'Client', 'Server', 'Call', 'Outcome', 'Duration'], this.#failures.map((c) => html`<tr key=${c.id}>
        <td class="whole">${time(c.began)}</td><td>${clientOf(this.store.state, c)}</td><td>${c.server ?? '–'}</td><td><a href=${`${to('calls')}?call=${c.id}`}>${bare(c)}</a></td><td>${outcome(c.outcome, c.times > 1 ? c.times : 0)}${c.error ? html`<div class="reason">${reason(c.error, c.server).said}</div>` : ''}</td><td class="n">${duration(c.took_ms)}</td>
      </tr>`))}` : ''}
      ${this.#refused.length ? html`<p class="hint">${this.#refused.length < 64 ? '' : 'At least '}${count(this.#refused.length, 'more call')} refused by an open circuit breaker, last at ${time(this.#refused[0].began)}. <a href=${`${to('calls')}?filter=${encodeURIComponent('status:circuit')}`}>Show</a></p>` : ''}
      ${this.#topology ? html`<h2>Who calls what</h2><section class="card picture" aria-label="Topology"><topology-view .topology=${this.#topology} .states=${this.#same(s.servers)}></topology-view></section>` : ''}
      ${charts}
      ${this.#toolTable('Slowest tools', this.#tools.slice(0, someTools))}`;
  }

  /** @param {string} name @param {any[]} tools */
  #toolTable(name, tools) {
    return tools.length ? html`<h2>${name}, last 5 minutes</h2>${table(name, ['Tool', 'Server', 'Calls', 'Tool errors', 'Failed', 'Mean time'], tools.map((t) => html`<tr key=${`${t.server} ${t.tool}`}>
      <td>${t.tool === 'other' ? html`<span class="quiet">tools that no client has listed</span>` : html`<a href=${`${to('calls')}?filter=${encodeURIComponent(`name:${t.tool} server:${t.server}`)}`}>${t.tool}</a>`}</td><td><a href=${to('servers', t.server)}>${t.server}</a></td><td class="n">${number(t.calls)}</td>${share(t.tool_errors, t.calls)}${share(t.errors, t.calls)}<td class="n">${duration(t.mean_ms)}</td></tr>`))}` : '';
  }

  /** The names and states of servers: the same array while they are. @param {any[]} servers */
  #same(servers) {
    if (servers.length !== this.#states.length || servers.some((s, i) => s.name !== this.#states[i].name || s.state !== this.#states[i].state)) this.#states = servers;
    return this.#states;
  }

  /** @param {any} b the bridge @param {any} p its process */
  #tiles(b, p) {
    const t = this.#series?.total;
    const seconds = (this.#series?.step ?? 5000) / 1000;
    const recent = Math.min(6, t?.calls?.length ?? 0);
    const speed = rates(this.store.state.totals);
    const now = recent ? sum(t.calls, recent) / (recent * seconds) : speed[speed.length - 1];
    const all = sum(t?.calls, recent);
    const part = (/** @type {any[]|undefined} */ column) => (all ? sum(column, recent) / all : undefined);
    const limit = t?.limits?.calls;
    /** @param {string} name @param {any} value @param {any} [note] */
    const tile = (name, value, note = '') => (value === undefined || value === '' ? '' : html`<div class="tile" key=${name}><dt>${name}</dt><dd>${value}${note ? html`<small>${note}</small>` : ''}</dd></div>`);
    return html`<dl class="tiles">
      ${tile('Calls/s', now === undefined ? undefined : number(now), 'in 30 s')}
      ${tile('Failed', t ? percent(part(t.errors)) : undefined, 'in 30 s')}
      ${tile('Tool errors', t ? percent(part(t.tool_errors)) : undefined, 'in 30 s')}
      ${tile('p95', t ? duration(t.recent?.p95) : undefined, 'in 5 min')}
      ${tile('In flight', b.calls, limit ? `of ${number(limit)}` : 'now')}
      ${tile('Sessions', b.sessions, 'now')}
      ${tile('Uptime', p.started_at && age(p.started_at))}
    </dl>`;
  }

  /** @param {any[]} all */
  #servers(all) {
    const query = this.route.query;
    const wanted = terms(query.get('filter') ?? '');
    const sort = query.get('sort') ?? '';
    const by = orders[sort.replace('-', '')];
    const rows = all.filter((s) => passes(wanted, { server: s.name, state: s.state, transport: s.transport, revision: s.revision, breaker: s.circuit_breaker, error: s.last_error }));
    const sign = sort[0] === '-' ? -1 : 1;
    rows.sort((a, b) => (by ? sign * compare(by(a, this), by(b, this)) : 0) || badness(a) - badness(b));
    const shown = rows.slice(0, this.#most);
    /** @param {string} name @param {string} key @param {string} [title] */
    const head = (name, key, title) => ({ name, key, title });
    const heads = [head('Server', 'name'), head('State', 'state'), head('Failed', 'errors', 'Share of the calls of the last 5 minutes that the bridge or the server could not answer'), head('Tool errors', 'tool_errors', 'Share of the calls of the last 5 minutes whose tool said that it failed'), head('Calls/s', 'calls', 'The last 30 seconds'), head('p50 / p95', 'time', 'Response time, last 5 minutes'), head('Clients', 'clients', 'Clients that called in the last 15 minutes, the busiest first'), head('Tools', 'tools', 'Tools, and about how many tokens their list takes')];
    const turn = (/** @type {string} */ key) => this.ask('sort', sort === key ? `-${key}` : sort === `-${key}` ? '' : key);
    return html`<div class="head servers"><h2>${this.route.page === 'servers' ? 'All' : 'Servers'} <span class="quiet">${rows.length === all.length ? all.length : `${rows.length} of ${all.length}`}</span></h2><span class="hint">Shares and times are of the last 5 minutes.</span>${all.length > 3 ? this.filterLine('state:failing') : ''}</div>
      ${all.length ? html`<div class="wide" role="region" tabindex="0" aria-label="Servers"><table class="rows" aria-live="off"><thead><tr>${heads.map((h) => html`<th scope="col" key=${h.key} class=${counts.includes(h.key) ? 'n' : ''} aria-sort=${sort.replace('-', '') !== h.key ? undefined : (sort[0] === '-') === texts.includes(h.key) ? 'descending' : 'ascending'}><button type="button" title=${h.title} @click=${() => turn(h.key)}>${h.name}${sort.replace('-', '') !== h.key ? '' : (sort[0] === '-') === texts.includes(h.key) ? ' ↓' : ' ↑'}</button></th>`)}</tr></thead>
        <tbody>${shown.map((s) => this.#row(s))}</tbody></table></div>` : ''}
      ${rows.length > shown.length ? html`<p><button type="button" @click=${() => { this.#most += someRows; this.update(); }}>Show more (${rows.length - shown.length})</button></p>` : ''}`;
  }

  /** The share of calls of a server that failed. @param {any} s */
  errors(s) { return s.error_share ?? this.#part(s, 'errors'); }

  /** The share of calls of a server whose tool failed. @param {any} s */
  toolErrors(s) { return s.tool_error_share ?? this.#part(s, 'tool_errors'); }

  /** The share of a column in the calls of the last 5 minutes. @param {any} s @param {string} column */
  #part(s, column) {
    const f = this.#of.get(s.name);
    const calls = sum(f?.calls, 60);
    return calls ? sum(f[column], 60) / calls : undefined;
  }

  /** How many clients use a server. @param {any} s */
  clients(s) { return this.#clients.get(s.name) ?? 0; }

  /** Calls a second of a server. @param {any} s */
  speed(s) {
    const f = this.#of.get(s.name);
    return sum(f?.calls, 6) / (Math.min(6, f?.calls?.length || 6) * ((this.#series?.step ?? 5000) / 1000));
  }

  /** The row of a server: the same one while nothing of it has changed. @param {any} s */
  #row(s) {
    const f = this.#of.get(s.name);
    const who = (this.#users.get(s.name) ?? []).slice(0, 20).map((u) => named(u.client));
    const shown = `${this.clients(s)} ${who.join()}`;
    const had = this.#rows.get(s.name);
    if (had && had.of[0] === s && had.of[1] === f && had.of[2] === shown) return had.row;
    const error = s.reason ?? s.last_error;
    const row = html`<tr key=${s.name} class=${error ? 'told' : ''}>
      <th scope="row"><a href=${to('servers', s.name)}>${s.name}</a><div class="hint">${speaks(s)}</div></th>
      <td class="how">${badge(s.drained ? 'drained' : s.state)}${s.circuit_breaker && s.circuit_breaker !== 'closed' ? html`<div>${breaker(s)}</div>` : s.forced?.breaker ? html`<div>${breaker(s)}</div>` : ''}</td>
      ${part(this.errors(s))}${part(this.toolErrors(s))}
      <td class="whole pulse">${f?.calls ? spark(`Calls of ${s.name}`, thin(f.calls)) : ''} <span class="n">${this.#series ? number(this.speed(s)) : '–'}</span>${s.calls || s.queued ? html`<div class="hint">${s.calls} in flight${s.queued ? `, ${s.queued} queued` : ''}</div>` : ''}</td>
      <td class="n">${times(s)}</td>
      <td class="n who">${who.length ? html`<span title=${who.join(', ')}>${this.clients(s)}<div class="hint">${who[0]}</div></span>` : html`<span class="quiet">–</span>`}</td>
      <td class="n">${s.tools === undefined ? '–' : html`<span>${s.tools}${s.list_tokens ? html`<div class="hint">${short(s.list_tokens)} tokens</div>` : ''}</span>`}${s.tools_mode === 'search' ? html`<div class="hint">search</div>` : ''}</td>
    </tr>${error ? html`<tr key=${`why ${s.name}`} class="why"><td colspan=${columns}>${why(error, s)}</td></tr>` : ''}`;
    this.#rows.set(s.name, { of: [s, f, shown], row });
    return row;
  }
}

/** The columns of the table of servers. */
const columns = 8;

/** The last error of a server, in two lines; the rest unfolds. @param {string} error @param {any} s */
function why(error, s) {
  const { said, stderr, more } = reason(error, s.name);
  const line = html`${s.last_error_at ?? s.since ? html`<span class="quiet">${time(s.last_error_at ?? s.since)}</span> ` : ''}${said}${stderr ? html` <code>${stderr.split('\n').at(-1)}</code>` : ''}`;
  const all = [said, stderr, more].filter(Boolean).join('\n');
  return all.length > longLine || all.includes('\n') ? html`<details><summary>${line}</summary>${stderr ? html`<pre tabindex="0">${stderr}</pre>` : ''}${more ? html`<p>${more}</p>` : ''}</details>` : html`<p>${line}</p>`;
}

/** A cell with a share of calls, in red if it is high. @param {number|undefined} of */
const part = (of) => html`<td class="n"><span class=${of && of > 0.05 ? 'bad' : ''}>${percent(of)}</span></td>`;

/** A cell with a number of calls, and their share in all. @param {number} n @param {number} calls */
const share = (n, calls) => html`<td class="n"><span class=${n ? 'bad' : 'quiet'}>${number(n)}${n ? html` <span class="quiet">${percent(n / calls)}</span>` : ''}</span></td>`;

/** Every three values as one: a small chart has no room for more. @param {number[]} column */
const thin = (column) => {
  const all = new Array(180 - column.length).fill(0).concat(column);
  return Array.from({ length: 60 }, (_, i) => all[3 * i] + all[3 * i + 1] + all[3 * i + 2]);
};

/** @param {number} n */
const short = (n) => (n < 1000 ? String(n) : `${number(n / 1000)}k`);

/** The order of the table of servers: texts upwards, figures downwards. @type {Record<string, (s: any, page: Overview) => any>} */
const orders = {
  name: (s) => s.name, state: (s) => `${badness(s)} ${s.state}`, calls: (s, page) => -page.speed(s), errors: (s, page) => -(page.errors(s) ?? -1), tool_errors: (s, page) => -(page.toolErrors(s) ?? -1), time: (s) => -(s.p95_ms ?? -1),
  clients: (s, page) => -page.clients(s), tools: (s) => -(s.tools ?? -1),
};

const texts = ['name', 'state'];
const counts = ['errors', 'tool_errors', 'time', 'clients', 'tools'];

/** @param {any} a @param {any} b */
const compare = (a, b) => (typeof a === 'string' ? a.localeCompare(b) : a - b);

/** @param {any} s */
const speaks = (s) => [s.transport, s.revision].filter(Boolean).join(' ') || '–';
/** The durations that half, and 95 of 100 of its calls do not exceed. @param {any} s */
const times = (s) => (s.p50_ms === undefined ? '–' : `${duration(s.p50_ms)} / ${duration(s.p95_ms)}`);
/** @param {any} s */
const breaker = (s) => html`<span>${s.circuit_breaker ? badge(s.circuit_breaker) : '–'} ${s.retry_at ? html`<span class="quiet">until ${time(s.retry_at)}</span>` : ''} ${s.forced?.breaker ? html`<span class="quiet">forced ${s.forced.breaker} by ${s.forced.by || 'an operator'}</span>` : ''}</span>`;

/** What an address of several servers offers, in a line. @param {{name: string, servers: string[], tools_mode: string}} g */
export const offers = (g) => `${g.name ? `/${g.name}/mcp has ${g.servers.join(', ')}` : '/mcp has all servers'}: ${{ all: 'tools are listed', search: 'tools are found by search' }[g.tools_mode] ?? 'some tools are listed, the others found by search'}`;

customElements.define('page-overview', Overview);
