// A server: how it fares, its tools, calls, connections and settings, and what operators do with it.
import { get, part, post, root } from './api.js';
import { axis, chartsHead, markLegend, timeChart } from './chart.js';
import { sure } from './dialog.js';
import { html } from './dom.js';
import { shares } from './figures.js';
import { callRows, foldedLines, refused } from './filter.js';
import { brief } from './log.js';
import { Client, modern } from './mcp.js';
import { bare, chips, clientOf, fact, named, outcome, recorded } from './names.js';
import { every, Page, to } from './page.js';
import { age, badge, fault, table, time } from './parts.js';
import { bytes, clock, count, duration, number, reason, share } from './text.js';

/** Whom a connection serves. @type {Record<string, string>} */
const users = { session: 'one session', principal: 'one principal', all: 'all clients', call: 'one call', stateless: 'a stateless client' };
const someRows = 8;
const someTools = 50;
const someClients = 20;

class ServerPage extends Page {
  /** @type {any} */
  #detail = undefined;
  /** @type {any} */
  #error = undefined;
  /** @type {{at: number, connections: any[]}|undefined} */
  #before = undefined;
  #at = 0;
  /** @type {any} as GET series answers */
  #series = undefined;
  /** @type {import('./chart.js').Chart[]} */
  #charts = [];
  /** Whether the charts stay as they are. */
  #still = false;
  /** How its tools are used, by name. @type {Map<string, any>} */
  #uses = new Map();
  /** The clients that use it. @type {any[]|undefined} */
  #clients = undefined;
  /** Its tools; undefined before anybody has listed them. @type {any[]|undefined} */
  #tools = undefined;
  /** How many tools it has: the bridge keeps the first of many. */
  #total = 0;
  /** @type {any} */
  #untold = undefined;
  #listing = false;
  #mostTools = someTools;
  /** The line of the file that says how it is reached. */
  #line = 0;
  /** The answer to stopping a connection. */
  #said = '';
  /** @type {(() => void)[]} */
  #ends = [];

  get topics() { return ['servers', 'calls', 'sessions', ...(this.store.me?.act ? ['log'] : [])]; }
  get name() { return this.route.rest[0]; }
  #asks = () => this.#ask();

  connectedCallback() {
    super.connectedCallback();
    const of = `?server=${part(this.name)}`;
    this.#ends = [
      every(3000, this.#asks),
      every(5000, async () => {
        if (this.store.paused) return;
        const answer = await get(`series${of}`);
        if (!(answer.to > 0)) return; // the bridge has only just begun
        this.#series = answer;
        if (this.#still) return this.update();
        const { step, to: until, marks, limits, ...c } = this.#series;
        const common = axis(step, until, c.calls, marks);
        const rate = (/** @type {number[]} */ column = []) => column.map((n) => n / (step / 1000));
        this.#charts = [
          { ...common, title: 'Calls', unit: '/s', series: [{ name: 'Calls', values: rate(c.calls), colour: 's1' }] },
          { ...common, title: 'Errors', note: 'of the last 30 s', unit: '%', stacked: true, series: [{ name: 'Failed', values: shares(c.errors, c.calls), colour: 'bad' }, { name: 'Tool error', values: shares(c.tool_errors, c.calls), colour: 'warn' }] },
          { ...common, title: 'Response time', unit: 'ms', series: [{ name: 'p50', values: c.p50 ?? [], colour: 's2' }, { name: 'p95', values: c.p95 ?? [], colour: 's1' }, { name: 'p99', values: c.p99 ?? [], colour: 's3' }] },
          { ...common, title: 'Calls in flight', unit: '', max: limits?.calls, series: [{ name: 'In flight', values: c.in_flight ?? [], colour: 's5' }] },
          ...(c.memory?.some(Boolean) ? [{ ...common, title: 'Memory', unit: 'bytes', series: [{ name: 'Memory', values: c.memory, colour: 's4' }] }] : []),
        ];
        this.update();
      }),
      every(5000, async () => {
        if (this.store.paused || !this.store.me?.look) return;
        const { tools } = await get(`tools${of}&minutes=5`);
        this.#uses = new Map(tools.map((/** @type {any} */ t) => [t.tool, t]));
        this.update();
      }),
      every(5000, async () => {
        if (this.store.paused) return;
        const { clients } = await get('topology');
        this.#clients = clients.flatMap((/** @type {any} */ c) => c.servers.filter((/** @type {any} */ s) => s.server === this.name).map((/** @type {any} */ s) => ({ ...c, ...s })));
        this.update();
      }),
    ];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    for (const end of this.#ends) end();
  }

  async #ask() {
    try {
      const detail = await get(`servers/${part(this.name)}`);
      this.#before = this.#detail && { at: this.#at, connections: this.#detail.connections ?? [] };
      this.#detail = detail;
      this.#at = performance.now();
      this.#error = undefined;
      if (detail.server.reason && this.store.me?.act && !this.#line) {
        const { values = [] } = await get(`config/values?server=${part(this.name)}`).catch(() => ({}));
        this.#line = values.find((/** @type {any} */ v) => v.line && /^(stdio\.command|http\.url|rest\.)/.test(v.key))?.line ?? 0;
      }
      if (!this.#tools && this.store.me?.look) {
        const { tools, total } = await get(`servers/${part(this.name)}/tools`).catch(() => ({})); // what the bridge has: to look starts no process
        if (tools && !this.#tools) [this.#tools, this.#total] = [tools, total];
      }
    } catch (e) {
      this.#error = e;
    }
    if (!this.store.paused) this.update();
  }

  /** Lists the tools, as a client sees them. */
  async #list() {
    if (this.#listing) return;
    this.#listing = true;
    this.update();
    const client = new Client({ url: `${root}mcp/${part(this.name)}`, revision: modern, capabilities: {}, headers: { 'Bridge-Console': '1' } });
    try {
      await client.open();
      this.#tools = client.server.capabilities?.tools ? await client.list('tools/list', 'tools') : [];
      this.#total = 0;
      this.#untold = undefined;
    } catch (e) {
      this.#untold = e;
    }
    client.close();
    this.#listing = false;
    this.update();
  }

  view() {
    const { name, store } = this;
    if (!this.#detail) return [html`<h1>${name}</h1>`, this.#error ? fault(this.#error) : html`<p role="status">Loading…</p>`];
    const s = store.state.status?.servers.find((/** @type {any} */ s) => s.name === name) ?? this.#detail.server;
    const { connections, settings } = this.#detail;
    const filter = `?filter=server:${part(name)}`;
    return [html`<div class="head"><h1>${name}</h1><span class="summary" role="status">${badge(s.drained ? 'drained' : s.state)}${s.since ? html` <span class="quiet">for ${age(s.since)}</span>` : ''}</span>
        <span class="links"><a class="button" href=${to('try', name)}>Open in Try</a><a class="button" href=${to('calls') + filter}>Calls</a>${store.me?.look ? html`<a class="button" href=${to('traffic') + filter}>Traffic</a>` : ''}</span>${this.#actions(name, s)}</div>
      ${this.#error ? fault(this.#error) : ''}
      ${s.reason ? this.#reason(s, settings) : ''}
      ${this.#charts.length ? html`${chartsHead(this.#still, () => { this.#still = !this.#still; this.update(); })}<section class="charts" aria-label="The last 15 minutes">${this.#charts.map(timeChart)}</section>${markLegend(this.#charts[0].marks ?? [])}` : ''}
      ${this.#facts(s)}
      ${this.#clientTable()}
      ${this.#toolTable(name)}
      ${this.#calls(name)}
      ${this.#log(name)}
      ${store.me?.look ? this.#connections(name, connections ?? []) : ''}
      ${settings ? html`<details class="card"><summary>Settings (secrets masked)</summary><long-text .text=${settings}></long-text></details>` : ''}`];
  }

  /** Why it fails: a sentence, what its process wrote, and what was tried. @param {any} s @param {string|undefined} settings */
  #reason(s, settings = '') {
    const { said, stderr, more } = reason(s.reason, s.name);
    const tried = target(settings);
    return html`<div class="fault"><p>${said}</p>${stderr ? html`<p class="hint">Its last lines on stderr:</p><pre tabindex="0">${stderr}</pre>` : ''}${more ? html`<p>${more}</p>` : ''}
      ${tried ? html`<p class="hint">${tried.program ? 'Run the same in a terminal:' : 'The address:'} <code>${tried.text}</code>${this.#line ? html` (<a href=${to('config')}>line ${this.#line} of the file</a>)` : ''}</p>` : ''}</div>`;
  }

  /** Who used the server lately, for a question. */
  #users() {
    const names = [...new Set((this.#clients ?? []).map((c) => named(c.client)))];
    return names.length ? `${count(names.length, 'client')} used it in the last 15 minutes (${names.slice(0, 3).join(', ')}${names.length > 3 ? ', …' : ''}).` : 'No client used it in the last 15 minutes.';
  }

  /** @param {string} name @param {any} s */
  #actions(name, s) {
    const path = `servers/${part(name)}`;
    const can = (/** @type {string} */ a) => this.store.can(a);
    const forced = s.forced?.breaker;
    const group = `Calls to ${name} (circuit breaker)`;
    const breaker = { group, path: `${path}/breaker`, menu: true };
    return html`<act-bar @acted=${this.#asks} .actions=${[
      can('servers/{}/probe') && { text: 'Test connection', path: `${path}/probe`, failed: (/** @type {any} */ a) => !a.ok, done: (/** @type {any} */ a) => (a.ok ? `Connected in ${duration(a.took_ms)}` : `Failed: ${reason(a.error, name).said}`) },
      can('servers/{}/drain') && s.drained && { text: 'Resume', path: `${path}/resume`, tone: 'act', done: () => `${name} gets new calls again` },
      can('servers/{}/connections/stop') && { text: 'Restart idle connections', hint: 'Those that no call uses; the next call opens others', path: `${path}/connections/stop`, menu: true, confirm: 'Connections that no call uses are closed. Their state for sessions is lost; the next call opens others.', done: (/** @type {any} */ a) => `${a.stopped} closed` },
      can('servers/{}/lists/forget') && { text: 'Clear cached lists', hint: 'Clients get lists that are read anew', path: `${path}/lists/forget`, menu: true, done: (/** @type {any} */ a) => { this.#tools = undefined; return `${a.forgotten} cleared`; } },
      ...(can('servers/{}/breaker') ? [
        { ...breaker, text: 'Automatic', hint: 'Stops calls after failures, and tries again', body: { state: 'auto' }, pressed: !forced, done: () => 'Calls are stopped after failures only' },
        { ...breaker, text: 'Stop calls', hint: 'For 10 minutes, clients get an error', body: { state: 'open' }, pressed: forced === 'open', tone: 'danger', confirm: `For 10 minutes, each call to ${name} is answered with an error. ${this.#users()}`, done: () => 'Calls are stopped for 10 minutes' },
        { ...breaker, text: 'Let all pass', hint: 'For 10 minutes, also while they fail', body: { state: 'closed' }, pressed: forced === 'closed', confirm: `For 10 minutes, calls go to ${name} even while they fail. ${this.#users()}`, done: () => 'All calls pass for 10 minutes' },
      ] : []),
      can('servers/{}/drain') && !s.drained && { text: 'Drain server', hint: 'Calls in flight finish; new ones get an error', group: 'Maintenance', menu: true, path: `${path}/drain`, tone: 'danger', confirm: `Calls in flight finish. New calls to ${name} get an error, until you resume. ${this.#users()}`, done: () => `${name} gets no new calls` },
    ]}></act-bar>`;
  }

  /** @param {any} s */
  #facts(s) {
    const limits = this.#series?.limits ?? {};
    /** How much of a limit is used. @param {string} name @param {number|undefined} n @param {number|undefined} of */
    const use = (name, n, of) => (of ? html`<span>${n ?? 0} of ${of} <meter aria-label=${name} min="0" max=${of} high=${of * 0.8} value=${n ?? 0}></meter></span>` : n);
    return html`<dl class="facts card">
      ${fact('Protocol', [s.transport, s.revision].filter(Boolean).join(' · ') || 'not known yet')}
      ${fact('Calls in flight', use('Calls in flight', s.calls, limits.calls))}${fact('Queued', use('Queued', s.queued, limits.queue))}${fact('Limit for each principal', limits.per_principal && `${limits.per_principal} calls`)}${fact('Waiting for their client', s.parked_calls)}
      ${fact('Response time p50 / p95 / p99', s.p50_ms === undefined ? undefined : [s.p50_ms, s.p95_ms, s.p99_ms].map((ms) => duration(ms)).join(' / '))}
      ${fact(`Sessions at /${s.name}/mcp`, s.sessions || undefined)}${fact('Connections', s.connections)}${fact('Restarts', s.restarts || undefined)}
      ${fact('Circuit breaker', s.circuit_breaker && html`<span>${badge(s.circuit_breaker)}${s.retry_at ? html` <span class="quiet">until ${time(s.retry_at)}</span>` : ''}${s.forced ? html` <span class="quiet">forced ${s.forced.breaker} by ${s.forced.by || 'an operator'} until ${time(s.forced.until)}</span>` : ''}${s.circuit_breaker_opened ? html` <span class="quiet">Opened ${s.circuit_breaker_opened}×</span>` : ''}</span>`)}
      ${fact('Cached lists', s.cache && `${s.cache.entries} (${bytes(s.cache.bytes)}), ${s.cache.oldest} old${s.cache.stale ? ', stale' : ''}`)}${fact('Cache hits', s.cache && (s.cache.hits + s.cache.misses ? `${number(s.cache.hits)} of ${number(s.cache.hits + s.cache.misses)}` : undefined))}
      ${fact(`Tools at /${s.name}/mcp`, s.tools_mode && (s.tools_mode === 'search' ? 'found by search' : 'listed'))}${fact('Size of the tool list', s.list_tokens && `about ${number(s.list_tokens)} tokens`)}
      ${fact('Drained', s.drained && html`<span>since ${time(s.drained.since)} by ${s.drained.by || 'an operator'}${s.drained.until ? html`<span>, until ${time(s.drained.until)}</span>` : ''}</span>`)}
      ${fact('Last failure', s.last_error && html`<span>${time(s.last_error_at)} ${reason(s.last_error, s.name).said}</span>`)}
    </dl>`;
  }

  /** The clients that use it, the busiest first. */
  #clientTable() {
    const all = this.#clients?.toSorted((a, b) => b.rate - a.rate || b.calls - a.calls);
    if (!all) return '';
    const keyed = all.some((c) => c.principal);
    return html`<h2>Clients <span class="quiet">${all.length}</span></h2>
      ${all.length ? table('Clients', ['Client', ...(keyed ? ['Principal'] : []), 'Address', 'Calls/s', 'Calls'], all.slice(0, someClients).map((c) => html`<tr><th scope="row">${named(c.client)}</th>${keyed ? html`<td>${c.principal ?? '–'}</td>` : ''}<td>${c.address}</td><td class="n">${number(c.rate)}</td><td class="n">${number(c.calls)}</td></tr>`)) : html`<p class="quiet">No client has called it in the last 15 minutes.</p>`}
      ${all.length > someClients ? html`<p class="quiet">${all.length - someClients} more call it less often.</p>` : ''}`;
  }

  /** @param {string} name */
  #toolTable(name) {
    const tools = this.#tools;
    const list = html`<button type="button" class="small" @click=${() => this.#list()}>List tools</button>`;
    if (!tools) return html`<h2>Tools</h2>${this.#listing ? html`<p role="status">Loading…</p>` : html`${fault(this.#untold)}<p class="quiet">${this.#untold || !this.store.me?.look ? '' : 'No client has listed its tools yet. '}${list}</p>`}`;
    return html`<h2>Tools <span class="quiet">${this.#total || tools.length}</span></h2>${fault(this.#untold)}
      ${tools.length ? table('Tools', ['Tool', '', 'Calls in 5 min', 'Tool errors', 'Failed', 'Mean time', ''], tools.slice(0, this.#mostTools).map((t) => {
        const u = this.#uses.get(t.name) ?? {};
        const errors = (/** @type {number|undefined} */ n) => html`<td class=${n ? 'n bad' : 'n'}>${n ?? 0}</td>`;
        return html`<tr key=${t.name}><th scope="row">${t.title ?? t.annotations?.title ?? t.name}${(t.title ?? t.annotations?.title ?? t.name) === t.name ? '' : html` <code class="quiet">${t.name}</code>`}</th>
          <td>${chips(t)}</td><td class="n">${u.calls ?? 0}</td>${errors(u.tool_errors)}${errors(u.errors)}<td class="n">${u.calls ? duration(u.mean_ms) : '–'}</td><td class="whole"><a href=${to('try', name, 'tools', t.name)}>Open in Try</a></td></tr>`;
      })) : html`<p class="quiet">It has no tools.</p>`}
      ${tools.length > this.#mostTools ? html`<button type="button" @click=${() => { this.#mostTools += 200; this.update(); }}>Show more</button>` : this.#total > tools.length ? html`<p class="quiet">The bridge keeps the first ${tools.length} tools. ${list}</p>` : ''}`;
  }

  /** Its last calls, and those that failed: what an open circuit breaker refused is one row, so that the causes are in sight. @param {string} name */
  #calls(name) {
    const { state } = this.store;
    const since = state.callsHead?.since;
    const all = [...state.calls.values()].filter((c) => c.server === name).reverse();
    const failed = all.filter((c) => c.outcome && c.outcome !== 'ok');
    const open = failed.filter(refused);
    const those = `${to('calls')}?filter=${part(`server:${name} status:circuit_open`)}`;
    const heads = ['Time', 'Tool', 'Client', 'Duration', 'Outcome'];
    const row = (/** @type {any} */ c) => (c.id === 'since' ? html`<tr key="since"><td class="quiet" colspan="4">${recorded(since)}</td><td class="fill"></td></tr>`
      : c.run ? html`<tr key=${c.id}><td>${time(c.began)}</td><td><a href=${those}>${c.method ? bare(c) : 'Refused calls'}</a></td><td></td><td colspan="2">${outcome(c.outcome, c.run.length)}</td></tr>`
        : html`<tr key=${c.id}><td>${time(c.began)}</td><td><a href=${`${to('calls')}?call=${c.id}`} title=${c.name}>${bare(c)}</a></td><td><span class="cut">${clientOf(state, c)}</span></td><td class="n">${duration(c.took_ms)}</td><td>${outcome(c.outcome)}</td></tr>${c.error && !refused(c) ? html`<tr key=${`why ${c.id}`} class="why"><td></td><td colspan="3"><div class="reason">${reason(c.error, name).said}</div></td><td class="fill"></td></tr>` : ''}`);
    const causes = [...failed.filter((c) => !refused(c)).slice(0, someRows), ...(open.length ? [{ id: 'refused', began: open[0].began, outcome: open[0].outcome, run: open }] : [])];
    return html`<div class="pair"><section><h2>Last calls</h2>${all.length ? table('Last calls', heads, callRows(all, since).slice(0, someRows).map(row)) : html`<p class="quiet">No calls yet.</p>`}</section>
      <section><h2>Last failures</h2>${causes.length ? table('Last failures', heads, causes.map(row)) : html`<p class="quiet">No call failed.</p>`}</section></div>`;
  }

  /** @param {string} name */
  #log(name) {
    if (!this.store.me?.act) return '';
    const lines = foldedLines(this.store.state.lines.filter((l) => l.server === name).reverse()).slice(0, someRows);
    return html`<h2>Log <a class="more" href=${`${to('log')}?filter=server:${part(name)}`}>All lines</a></h2>${lines.length ? html`<ol class="lines card">${lines.map(({ line, run }) => html`<li>${brief({ ...line, server: undefined }, run.length)}</li>`)}</ol>` : html`<p class="quiet">No lines of this server.</p>`}`;
  }

  /** @param {string} name @param {any[]} all */
  #connections(name, all) {
    const may = this.store.can('servers/{}/connections/{}/stop');
    const act = this.store.me?.act;
    return html`<h2>Connections <span class="quiet">${all.length}</span></h2>
      ${all.length ? table('Connections', ['PID', 'Used by', 'Client', 'Protocol', 'Age', 'Memory', 'CPU time', 'Active calls', ...(act ? ['Last stderr line'] : []), ...(may ? [''] : [])], all.map((c) => html`<tr key=${c.id}>
        <td title=${`connection ${c.id}`}>${c.pid ?? '–'}</td><td>${users[c.for] ?? c.for}${c.principal ? ` (${c.principal})` : ''}</td><td class="whole">${named(c.client ?? '–')}</td><td class="whole">${c.revision ?? '–'}</td><td class="whole">${age(c.opened)}</td><td class="n">${bytes(c.rss_bytes)}</td><td class="n">${this.#cpu(c)}</td><td class="n">${c.calls}</td>
        ${act ? html`<td>${c.stderr ? lastLines(c.stderr) : ''}</td>` : ''}
        ${may ? html`<td><button type="button" class="small" aria-label=${`Stop connection ${c.id}`} @click=${() => this.#stop(name, c.id)}>Stop</button></td>` : ''}
      </tr>`)) : html`<p class="quiet">None is open${this.#detail.server.retry_at ? `: calls are refused until ${clock(this.#detail.server.retry_at)}` : ': the next call opens one'}.</p>`}<p class="said" role="status">${this.#said}</p>`;
  }

  /** @param {string} name @param {string} id */
  async #stop(name, id) {
    if (!(await sure('Stop this connection?', 'Its calls end without an answer.', 'Stop', 'danger'))) return;
    try {
      await post(`servers/${part(name)}/connections/${part(id)}/stop`);
      this.#said = 'Connection stopped';
    } catch (e) {
      this.#said = `Failed: ${/** @type {any} */ (e).message}`;
    }
    this.#ask();
  }

  /** The processor time of a connection's processes, and their share since the last look. @param {any} c */
  #cpu(c) {
    if (c.cpu_ms === undefined) return '–';
    const was = this.#before?.connections.find((/** @type {any} */ o) => o.id === c.id);
    return `${duration(c.cpu_ms)}${was && this.#before ? ` (${share(was.cpu_ms ?? 0, c.cpu_ms, this.#at - this.#before.at)})` : ''}`;
  }
}

/** What the bridge starts or calls, by the settings of a server in YAML. @param {string} settings */
function target(settings) {
  const [, command] = /^  command: (.+)$/m.exec(settings) ?? [];
  const [, url] = /^  (?:url|base_url): (.+)$/m.exec(settings) ?? [];
  const args = /^  args:\n((?: {4}- .*\n)+)/m.exec(settings)?.[1].split('\n').map((l) => l.slice(6)) ?? [];
  return command ? { program: true, text: [command, ...args].join(' ').trim() } : url ? { program: false, text: url } : undefined;
}

/** The last line, and those before it. @param {string} text */
function lastLines(text) {
  const last = text.slice(text.lastIndexOf('\n') + 1);
  return last === text ? html`<code class="cut" title=${text}>${text}</code>` : html`<details><summary><code class="cut">${last}</code></summary><pre tabindex="0">${text}</pre></details>`;
}

customElements.define('page-server', ServerPage);
