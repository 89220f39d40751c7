// Try: a client of MCP in the page. It speaks to the bridge's own endpoints, so that filters, limits and
// access rules act on it as on everybody.
import { answer } from './ask.js';
import { root } from './api.js';
import { headersOf } from './curl.js';
import { html } from './dom.js';
import { Client, legacy, modern, paramHeaders, revisions } from './mcp.js';
import { Page, to } from './page.js';
import { chips } from './names.js';
import { download, fault } from './parts.js';
import { parse, stringify } from './json.js';
import { addressOf, exported, imported, saved, unsave } from './saved.js';
import { count } from './text.js';
import './protocol.js';
import { agree } from './try-item.js';

/** The name under which all servers are one. */
const together = '*';
const mostMessages = 500;
/** The title of a tool and the like. @param {any} e */
const titleOf = (e) => e.title ?? e.annotations?.title ?? e.name;
/** @type {{tab: string, method: string, member: string, needs: string, id: string}[]} */
const kinds = [
  { tab: 'tools', method: 'tools/list', member: 'tools', needs: 'tools', id: 'name' },
  { tab: 'prompts', method: 'prompts/list', member: 'prompts', needs: 'prompts', id: 'name' },
  { tab: 'resources', method: 'resources/list', member: 'resources', needs: 'resources', id: 'uri' },
  { tab: 'templates', method: 'resources/templates/list', member: 'resourceTemplates', needs: 'resources', id: 'uriTemplate' },
];

class Try extends Page {
  /** @type {Client|undefined} */
  client = undefined;
  /** @type {Record<string, any[]>} */
  #lists = {};
  /** @type {Record<string, any>} */
  #faults = {};
  #taken = '';
  #error = /** @type {any} */ (undefined);
  #opening = false;
  /** What the client says it can. */
  #can = { elicitation: true, sampling: true, roots: false, tasks: true };
  #roots = 'file:///';
  /** Headers that the user adds to each request: as they are written, and as they count. */
  #written = '';
  /** @type {Record<string, string>} */
  headers = {};
  #wrong = '';
  #search = '';
  /** The messages of the wire, the oldest first. @type {import('./protocol.js').Seen[]} */
  messages = [];
  #seen = 0;
  /** @type {any[]} */
  #heard = [];
  /** Resources that have changed since they were read. @type {Set<string>} */
  changed = new Set();
  #opened = '';

  get server() { return this.route.rest[0] ?? ''; }
  get revision() { const r = this.route.query.get('revision') ?? ''; return revisions.includes(r) ? r : modern; }

  #gone = () => this.client?.close();

  connectedCallback() {
    super.connectedCallback();
    addEventListener('pagehide', this.#gone);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener('pagehide', this.#gone);
    this.client?.close();
    this.#opened = '';
  }

  /** Opens a client for what the address says, unless it is open. */
  async #open() {
    const wanted = stringify([this.server, this.revision, this.#can, this.headers]);
    if (this.#opened === wanted) return;
    this.#opened = wanted;
    this.client?.close();
    Object.assign(this, { client: undefined, messages: [], changed: new Set() });
    this.#lists = {};
    this.#faults = {};
    this.#heard = [];
    this.#error = undefined;
    if (!this.server) return;
    this.#opening = true;
    /** @type {any} */
    const capabilities = {};
    if (this.#can.elicitation) capabilities.elicitation = { form: {}, url: {} };
    if (this.#can.sampling) capabilities.sampling = {};
    if (this.#can.roots) capabilities.roots = {};
    if (this.#can.tasks && this.revision === modern) capabilities.extensions = { 'io.modelcontextprotocol/tasks': {} };
    const name = this.server === together ? 'the bridge' : this.server;
    const client = new Client({
      url: this.server === together ? `${root}mcp` : `${root}mcp/${encodeURIComponent(this.server)}`,
      revision: this.revision, capabilities, headers: { ...this.headers, 'Bridge-Console': '1' },
      seen: (direction, message) => {
        if (this.client !== client) return;
        this.messages = [...this.messages.slice(1 - mostMessages), { n: ++this.#seen, at: Date.now(), to: direction, message }];
        this.#wire();
      },
      ask: (request, signal) => answer(name, request, () => this.#roots.split(/\s+/).filter(Boolean).map((uri) => ({ uri })), signal),
      heard: (n) => this.client === client && this.#hear(n),
    });
    this.client = client;
    this.update();
    try {
      await client.open();
      if (this.client !== client) return;
      await Promise.all(kinds.map((k) => this.#list(k)));
    } catch (e) {
      if (this.client === client && !client.closed.signal.aborted) this.#error = e;
    }
    if (this.client !== client) return;
    this.#opening = false;
    this.update();
  }

  /** Shows the messages of the wire. */
  #wire() {
    const panel = /** @type {any} */ (this.querySelector('try-protocol'));
    if (panel) Object.assign(panel, { messages: this.messages }).update();
  }

  /** Sends a request by hand: its answer is in the protocol. @param {string} method @param {any} params */
  send = async (method, params) => {
    const { client } = this;
    const tool = method === 'tools/call' ? this.#lists.tools?.find((t) => t.name === params.name) ?? { name: params.name } : undefined;
    if (tool && !(await agree(this.server, tool, true))) return;
    client?.request(method, params, { headers: tool ? paramHeaders(tool.inputSchema, params.arguments) : {} }).catch(() => {});
  };

  #clear = () => { this.messages = []; this.#wire(); };

  /** @param {typeof kinds[0]} kind */
  async #list(kind) {
    const client = this.client;
    if (!client?.server.capabilities?.[kind.needs]) return;
    try {
      const list = await client.list(kind.method, kind.member);
      if (this.client !== client) return;
      this.#lists[kind.tab] = list;
      delete this.#faults[kind.tab];
    } catch (e) {
      if (this.client === client) this.#faults[kind.tab] = e;
    }
    this.update();
  }

  /** @param {any} n a notification */
  #hear(n) {
    const listed = /^notifications\/(tools|prompts|resources)\/list_changed$/.exec(n.method);
    if (listed) kinds.filter((k) => k.needs === listed[1]).forEach((k) => this.#list(k));
    else if (n.method === 'notifications/resources/updated') this.changed.add(n.params?.uri);
    else if (n.method === 'notifications/message') {
      this.#heard.push({ at: new Date().toISOString(), ...n.params });
      if (this.#heard.length > 200) this.#heard.shift();
    }
    this.update();
  }

  /** @param {string} tab @param {any} entry @param {string} id */
  #address(tab, entry, id) {
    const query = this.route.query.get('revision') ? `?revision=${this.revision}` : '';
    return to('try', this.server, tab, entry[id]) + query;
  }

  view() {
    queueMicrotask(() => this.#open());
    const servers = this.store.state.status?.servers ?? [];
    const go = (/** @type {any} */ e) => { location.hash = to('try', e.target.value) + (this.revision === modern ? '' : `?revision=${this.revision}`); };
    /** @param {'elicitation'|'sampling'|'roots'|'tasks'} name */
    const ability = (name) => html`<label><input type="checkbox" .checked=${this.#can[name]} @change=${(/** @type {any} */ e) => { this.#can = { ...this.#can, [name]: e.target.checked }; this.update(); }} /> ${name}</label>`;
    const n = Object.keys(this.headers).length;
    const off = Object.entries(this.#can).filter(([k, v]) => !v && k !== 'roots').map(([k]) => `no ${k}`);
    return html`<div class="head"><h1>Try</h1>
      <div class="line options">
        <label for="server">Server</label><select id="server" .value=${this.server} @change=${go}><option value="">Choose…</option>${servers.map((/** @type {any} */ s) => html`<option value=${s.name} selected=${s.name === this.server}>${s.name}</option>`)}<option value=${together} selected=${this.server === together}>All servers (/mcp)</option></select>
        <label for="revision">Protocol</label><select id="revision" .value=${this.revision} @change=${(/** @type {any} */ e) => this.ask('revision', e.target.value === modern ? '' : e.target.value)}>${revisions.map((r) => html`<option value=${r} selected=${r === this.revision}>${r}${r === legacy ? ' (with a session)' : ''}</option>`)}</select>
      </div></div>
      ${this.server ? html`<details class="card"><summary>Client options${n || off.length ? html`<span class="quiet">: ${[n ? count(n, 'custom header') : '', ...off].filter(Boolean).join(', ')}</span>` : ''}</summary>
        <div class="line"><span class="quiet">Capabilities</span><span class="choices" role="group" aria-label="Capabilities of the client">${ability('elicitation')}${ability('sampling')}${ability('roots')}${this.revision === modern ? ability('tasks') : ''}</span>
        ${this.#can.roots ? html`<span class="line"><label for="roots">Roots</label><input id="roots" .value=${this.#roots} @change=${(/** @type {any} */ e) => { this.#roots = e.target.value; }} /></span>` : ''}</div>
        ${this.#more()}</details>` : ''}${this.#body()}`;
  }

  /** Headers for each request: with others, it is another client. */
  #more() {
    const take = (/** @type {any} */ e) => {
      this.#written = e.target.value;
      try {
        this.headers = headersOf(this.#written);
        this.#wrong = '';
      } catch (wrong) {
        this.#wrong = /** @type {Error} */ (wrong).message;
      }
      this.update();
    };
    return html`<div class="field"><label for="headers">Custom headers, one per line</label><textarea id="headers" rows="2" spellcheck="false" placeholder="X-Tenant: acme" .value=${this.#written} @change=${take}></textarea>${this.#wrong ? html`<p class="wrong" role="alert">▲ ${this.#wrong}</p>` : ''}<p class="quiet">They go with each request to the bridge. A server gets those that its forward lists. They are forgotten when you leave Try.</p></div>`;
  }

  /** Calls that somebody has saved, in this browser. */
  #saved() {
    const who = this.store.me?.principal ?? '';
    const all = saved(who).filter((c) => !this.server || c.server === this.server);
    const take = async (/** @type {any} */ e) => {
      const [file] = e.target.files;
      try {
        this.#taken = `Imported ${count(imported(who, await file.text()), 'call')} of ${file.name}.`;
      } catch (wrong) {
        this.#taken = `${file.name}: ${/** @type {Error} */ (wrong).message}`;
      }
      e.target.value = '';
      this.update();
    };
    const give = () => {
      try {
        download('calls.json', [exported(all)]);
      } catch (wrong) {
        this.#taken = `${/** @type {Error} */ (wrong).message}. Remove this call to export the others.`;
        this.update();
      }
    };
    return html`<details class="card"><summary>Saved calls <span class="quiet">${all.length}</span></summary><ul class="entries">${all.map((c) => html`<li key=${c.name}><a href=${addressOf(c)}>${c.name}</a> <span class="quiet">${c.server} ${c.tool}</span> <button type="button" class="small" aria-label=${`Remove ${c.name}`} @click=${() => { unsave(who, c.name); this.update(); }}>Remove</button></li>`)}</ul>
      <div class="actions">${all.length ? html`<button type="button" class="small" @click=${give}>Export</button>` : ''}<label for="import">Import</label><input id="import" type="file" accept=".json,application/json" @change=${take} /><span role="status">${this.#taken}</span></div></details>`;
  }

  #body() {
    if (!this.server) return [html`<div class="empty"><h2>Select a server</h2><p>Then call its tools, as any MCP client does.</p><p class="links">${(this.store.state.status?.servers ?? []).slice(0, 12).map((/** @type {any} */ s) => html`<a class="button" href=${to('try', s.name)}>${s.name}</a>`)}<a class="button" href=${to('try', together)}>All servers (/mcp)</a></p></div>`, this.#saved()];
    if (this.#error) return [fault(this.#error), html`<button type="button" @click=${() => { this.#opened = ''; this.update(); }}>Try again</button>`];
    const client = this.client;
    if (this.#opening || !client) return html`<p role="status">Connecting…</p>`;
    const info = client.server.serverInfo;
    const there = kinds.filter((k) => this.#lists[k.tab] || this.#faults[k.tab]);
    const kind = kinds.find((k) => k.tab === this.route.rest[1]) ?? there[0] ?? kinds[0];
    const { tab } = kind;
    const list = this.#lists[tab] ?? [];
    const words = this.#search.toLowerCase();
    const found = list.filter((e) => !words || `${e.name} ${titleOf(e)} ${e.description ?? ''} ${e.uri ?? ''}`.toLowerCase().includes(words));
    const chosen = list.find((e) => e[kind.id] === this.route.rest[2]);
    return html`
      <p class="quiet" role="status">${info ? `${info.title ?? info.name} ${info.version ?? ''}, ` : ''}${client.revision}${client.session ? ', with a session' : ''}</p>
      ${client.server.instructions ? html`<details class="card"><summary>Server instructions</summary><long-text .text=${client.server.instructions}></long-text></details>` : ''}
      <div class="three">
        <nav class="card" aria-label="What the server has">
          <div class="tabs">${there.map((k) => html`<a class="tab" aria-current=${k.tab === tab ? 'true' : undefined} href=${to('try', this.server, k.tab) + (this.revision === modern ? '' : `?revision=${this.revision}`)}>${k.tab} ${(this.#lists[k.tab] ?? []).length}</a>`)}</div>
          ${fault(this.#faults[tab])}
          <label class="hidden" for="search">Search</label><input id="search" type="search" placeholder=${`Search ${tab}`} .value=${this.#search} @input=${(/** @type {any} */ e) => { this.#search = e.target.value; this.update(); }} />
          <ul class="entries">${found.slice(0, 500).map((e) => html`<li key=${e[kind.id]}><a href=${this.#address(tab, e, kind.id)} aria-current=${e === chosen ? 'true' : undefined}>${titleOf(e)}${titleOf(e) === e.name ? '' : html` <code>${e.name}</code>`}${tab === 'tools' ? html`<span class="chips">${chips(e)}</span>` : ''}${this.changed.has(e.uri) ? html`<span class="badge busy">● Changed</span>` : ''}</a></li>`)}</ul>
          ${found.length > 500 ? html`<p class="quiet">${found.length - 500} more: search for them</p>` : ''}
          ${this.#saved()}
        </nav>
        ${chosen ? html`<try-item key=${`${tab} ${chosen[kind.id]} ${this.#opened}`} .page=${this} .client=${client} .kind=${tab} .entry=${chosen} .given=${given(this.route.query.get('arguments'))}></try-item>` : html`<div class="empty"><h2>${this.route.rest[2] ? `There is no ${this.route.rest[2]} here` : `Select ${one[tab]}`}</h2><p>Its form and its result are shown here.</p></div>`}
        <try-protocol .messages=${this.messages} .send=${this.send} .clear=${this.#clear}></try-protocol>
      </div>
      ${this.#heard.length ? html`<details class="card"><summary>Log messages of the server <span class="quiet">${this.#heard.length}</span></summary><json-tree .value=${[...this.#heard].reverse()}></json-tree></details>` : ''}`;
  }
}

/** @param {string|null} text arguments in the address */
function given(text) {
  try { return text ? parse(text) : undefined; } catch { return undefined; }
}

/** One of each kind. @type {Record<string, string>} */
const one = { tools: 'a tool', prompts: 'a prompt', resources: 'a resource', templates: 'a template' };

customElements.define('page-try', Try);
