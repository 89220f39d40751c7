// One tool, prompt, resource or template in Try: its form, the call, and what came of it.
import { dialog, sure } from './dialog.js';
import { curl, metaOf } from './curl.js';
import { html, View } from './dom.js';
import { Exact, parse, stringify } from './json.js';
import { paramHeaders, RpcError } from './mcp.js';
import { chips, destructive } from './names.js';
import { address, command, copy, endpoint, fault } from './parts.js';
import { replayed, save } from './saved.js';
import { fieldOf, initial, problems } from './schema-form.js';
import { expand, variables } from './uri-template.js';
import { duration } from './text.js';
import './form.js';

/** Destructive tools that somebody has agreed to call, until they sign out. */
export const agreed = new Set();

/**
 * Asks before a call of a destructive tool, once for each.
 * @param {string} server @param {any} tool @param {boolean} assumed whether one without hints is destructive
 */
export async function agree(server, tool, assumed) {
  const id = `${server} ${tool.name}`;
  if (agreed.has(id) || !destructive(tool, assumed)) return true;
  const yes = await sure('Call a destructive tool?', tool.annotations?.destructiveHint ? `${tool.name} says of itself that it may destroy something.` : `${tool.name} does not say whether it destroys something.`, 'Call it', 'danger');
  if (yes) agreed.add(id);
  return yes;
}

class TryItem extends View {
  /** @type {any} the page it is on */
  page = undefined;
  /** @type {import('./mcp.js').Client} */
  client = /** @type {any} */ (undefined);
  kind = 'tools';
  /** @type {any} */
  entry = {};
  /** Arguments to begin with. @type {any} */
  given = undefined;
  /** @type {any} */
  #value = undefined;
  /** The text of the JSON view; undefined while the form is shown. @type {string|undefined} */
  #text = undefined;
  /** What the user adds to _meta, as text. */
  #meta = '';
  #strict = false;
  /** @type {AbortController|undefined} */
  #running = undefined;
  /** @type {any[]} */
  #progress = [];
  /** The task that the call has become. @type {any} */
  #task = undefined;
  /** Whether a tool that can be is called as a task (2025-11-25). */
  #asTask = false;
  /** @type {any} */
  #outcome = undefined;
  #tab = 'result';
  #subscribed = false;
  /** Completes what is typed, the same function each time: so the form is not shown anew. @type {((name: string, text: string) => Promise<string[]>)|undefined} */
  completes = undefined;
  /** @type {any} */
  #schema = undefined;
  /** @type {string[]} addresses of blobs */
  #blobs = [];

  connectedCallback() {
    this.#schema = this.#schemaOf();
    this.#value = this.given ?? initial(fieldOf(this.#schema)) ?? {};
    super.connectedCallback();
    if (replayed(location.hash)) this.#call(true);
  }

  disconnectedCallback() {
    this.#running?.abort();
    this.#forget();
  }

  #forget() {
    this.#blobs.forEach((b) => URL.revokeObjectURL(b));
    this.#blobs = [];
  }

  #schemaOf() {
    const e = this.entry;
    if (this.kind === 'tools') return e.inputSchema ?? { type: 'object' };
    const names = this.kind === 'prompts' ? e.arguments ?? [] : this.kind === 'templates' ? variables(e.uriTemplate).map((name) => ({ name, required: true })) : [];
    return {
      type: 'object', additionalProperties: false, required: names.filter((/** @type {any} */ a) => a.required).map((/** @type {any} */ a) => a.name),
      properties: Object.fromEntries(names.map((/** @type {any} */ a) => [a.name, { type: 'string', title: a.title, description: a.description }])),
    };
  }

  /** What is sent, and by which method. @returns {[string, any]} */
  #request() {
    const [method, params] = this.#bare();
    const _meta = metaOf(this.#meta);
    return [method, _meta ? { ...params, _meta } : params];
  }

  /** @returns {[string, any]} */
  #bare() {
    const e = this.entry;
    if (this.kind === 'tools') return ['tools/call', { name: e.name, arguments: this.#value, ...(this.#tasks() === 'required' || this.#asTask ? { task: { ttl: 3600000 } } : {}) }];
    if (this.kind === 'prompts') return ['prompts/get', { name: e.name, arguments: this.#value }];
    return ['resources/read', { uri: this.kind === 'templates' ? expand(e.uriTemplate, texts(this.#value)) : e.uri }];
  }

  /** Whether the tool can be called as a task: required, optional, or nothing. In the modern era the server decides. */
  #tasks() {
    const support = this.entry.execution?.taskSupport;
    return !this.client.modern && this.client.server.capabilities?.tasks?.requests?.tools?.call && ['required', 'optional'].includes(support) ? support : '';
  }

  async #save() {
    let name = this.entry.name;
    const given = await dialog('Save this call', (close) => html`<form @submit=${(/** @type {Event} */ e) => { e.preventDefault(); close(name); }}>
      <div class="field"><label for="saved">Name</label><input id="saved" .value=${name} required @input=${(/** @type {any} */ e) => { name = e.target.value; }} /></div>
      <p class="quiet">It is kept in this browser, with its arguments.</p>
      <div class="actions"><button type="button" @click=${() => close(undefined)}>Cancel</button><button type="submit" class="act">Save</button></div></form>`);
    if (!given) return;
    try {
      save(this.page.store.me?.principal ?? '', { name: given, server: this.page.server, tool: this.entry.name, revision: this.client.o.revision, arguments: stringify(this.#value) });
    } catch (e) {
      this.#outcome = { error: e, took: 0 };
      this.update();
    }
    this.page.update();
  }

  /** What is wrong with _meta; empty if it can be sent. */
  #wrongMeta() {
    try {
      metaOf(this.#meta);
      return '';
    } catch (e) {
      return /** @type {Error} */ (e).message;
    }
  }

  /** @param {boolean} [again] whether it is a call of before */
  async #call(again = false) {
    if (this.#running || this.#wrongMeta()) return;
    if (this.#text !== undefined && !this.#taken(this.#text)) return;
    const wrong = problems(fieldOf(this.#schema), this.#value);
    if (wrong.some((p) => p.message !== 'is required' || this.kind === 'templates' || this.#text === undefined)) { this.#strict = true; this.update(); return; }
    if (this.kind === 'tools' && !(await agree(this.page.server, this.entry, again))) return;
    const [method, params] = this.#request();
    const stop = this.#running = new AbortController();
    this.#progress = [];
    this.#task = undefined;
    this.#forget();
    this.#outcome = undefined;
    this.#strict = true;
    this.update();
    const began = performance.now();
    /** @type {any} */
    const outcome = {};
    try {
      outcome.result = await this.client.request(method, params, {
        signal: stop.signal, headers: this.kind === 'tools' ? paramHeaders(this.#schema, this.#value) : {},
        progress: (p) => { this.#progress.push(p); this.update(); },
        task: (t) => { this.#task = t; this.update(); },
      });
      if (params.uri) this.page.changed.delete(params.uri);
    } catch (e) {
      outcome.error = stop.signal.aborted ? new Error('Cancelled') : e;
    }
    outcome.took = performance.now() - began;
    this.#outcome = outcome;
    this.#running = undefined;
    this.#tab = outcome.result?.structuredContent === undefined ? 'result' : 'structured';
    this.update();
    setTimeout(() => this.querySelector('.outcome')?.scrollIntoView({ block: 'nearest' }));
  }

  /** Takes the text of the JSON view as the value, if it is JSON. @param {string} text */
  #taken(text) {
    try {
      this.#value = text.trim() === '' ? {} : parse(text);
      return true;
    } catch {
      return false;
    }
  }

  /** @param {string} name @param {string} text @returns {Promise<string[]>} */
  async #complete(name, text) {
    if (!this.client.server.capabilities?.completions && this.client.modern) return [];
    const ref = this.kind === 'prompts' ? { type: 'ref/prompt', name: this.entry.name } : { type: 'ref/resource', uri: this.entry.uriTemplate };
    const { [name]: _, ...others } = this.#value;
    const answer = await this.client.request('completion/complete', { ref, argument: { name, value: text }, context: { arguments: others } }).catch(() => undefined);
    return answer?.completion?.values ?? [];
  }

  view() {
    const e = this.entry;
    const wrongText = this.#text === undefined || this.#taken(this.#text) ? '' : 'This is no JSON yet.';
    const wrongMeta = this.#wrongMeta();
    const title = e.title ?? e.annotations?.title ?? e.name;
    const missing = this.#text === undefined ? problems(fieldOf(this.#schema), this.#value) : [];
    const completes = this.kind === 'prompts' || this.kind === 'templates' ? (/** @type {string} */ n, /** @type {string} */ t) => this.#complete(n, t) : undefined;
    this.completes ??= completes;
    return html`<section class="item" aria-label=${e.name} @keydown=${(/** @type {any} */ k) => { if (k.key === 'Enter' && (k.ctrlKey || k.metaKey)) { k.preventDefault(); this.#call(); } }}>
      <h2>${title}${title === e.name ? '' : html` <code>${e.name}</code>`} ${this.kind === 'tools' ? chips(e) : ''}</h2>
      ${e.uri || e.uriTemplate ? html`<p><code>${e.uri ?? e.uriTemplate}</code></p>` : ''}
      ${e.mimeType ? html`<p class="quiet">${e.mimeType}</p>` : ''}
      ${e.description ? html`<p class="message">${e.description}</p>` : ''}
      ${this.kind === 'resources' ? '' : html`<div class="tabs" role="group" aria-label="How arguments are written">
        <button type="button" class="tab" aria-pressed=${String(this.#text === undefined)} disabled=${Boolean(wrongText)} @click=${() => { this.#text = undefined; this.update(); }}>Form</button>
        <button type="button" class="tab" aria-pressed=${String(this.#text !== undefined)} @click=${() => { this.#text ??= stringify(this.#value, 2); this.update(); }}>JSON</button></div>
      ${this.#text === undefined
        ? html`<schema-form .schema=${this.#schema} .value=${this.#value} .strict=${this.#strict} .complete=${this.completes} @changed=${(/** @type {any} */ c) => { this.#value = c.detail; this.update(); }}></schema-form>`
        : html`<div class="field"><label for="arguments">Arguments</label><textarea id="arguments" rows="8" spellcheck="false" .value=${this.#text} @input=${(/** @type {any} */ i) => { this.#text = i.target.value; this.update(); }}></textarea>${wrongText ? html`<p class="wrong">▲ ${wrongText}</p>` : ''}</div>`}`}
      ${this.kind === 'templates' ? html`<p>Reads <code>${expand(e.uriTemplate, texts(this.#value))}</code></p>` : ''}
      <details class="card"><summary>_meta${this.#meta.trim() ? html` <span class="quiet">set</span>` : ''}</summary><div class="field"><label for="meta">_meta, as JSON</label><textarea id="meta" rows="2" spellcheck="false" placeholder=${'{"traceparent": "00-…"}'} .value=${this.#meta} @input=${(/** @type {any} */ i) => { this.#meta = i.target.value; this.update(); }}></textarea>${wrongMeta ? html`<p class="wrong">▲ ${wrongMeta}</p>` : ''}</div></details>
      <div class="callbar"><div class="actions">
        <button type="button" class="act" disabled=${Boolean(this.#running || wrongText || wrongMeta || missing.length)} title="Ctrl+Enter" @click=${() => this.#call()}>${this.kind === 'tools' ? 'Call' : this.kind === 'prompts' ? 'Get' : 'Read'}</button><kbd>Ctrl+Enter</kbd>
        ${this.#running ? html`<button type="button" @click=${() => this.#running?.abort()}>Cancel</button>` : ''}
        ${this.kind === 'tools' ? html`<button type="button" disabled=${Boolean(wrongText)} @click=${() => { if (this.#text === undefined || this.#taken(this.#text)) this.#save(); }}>Save…</button>` : ''}
        ${this.#tasks() ? html`<label><input type="checkbox" .checked=${this.#asTask || this.#tasks() === 'required'} disabled=${this.#tasks() === 'required'} @change=${(/** @type {any} */ c) => { this.#asTask = c.target.checked; this.update(); }} /> As a task</label>` : ''}
        ${this.kind === 'resources' && this.client.server.capabilities?.resources?.subscribe ? html`<button type="button" aria-pressed=${String(this.#subscribed)} @click=${() => this.#toggle()}>${this.#subscribed ? 'Unsubscribe' : 'Subscribe'}</button>` : ''}
        ${missing.length ? html`<span class="hint">${needed(missing)}</span>` : ''}
      </div>
      ${this.#bar()}<div aria-live="polite">${this.#verdict()}</div></div>
      ${this.#shown()}
      ${this.#as()}
    </section>`;
  }

  async #toggle() {
    this.#subscribed = !this.#subscribed;
    try {
      await (this.#subscribed ? this.client.subscribe(this.entry.uri) : this.client.unsubscribe(this.entry.uri));
    } catch (e) {
      this.#outcome = { error: e, took: 0 };
    }
    this.update();
  }

  #bar() {
    const p = this.#progress[this.#progress.length - 1];
    if (!this.#running) return '';
    const n = Number(p?.progress ?? 0);
    const of = p?.total === undefined ? undefined : Number(p.total);
    return html`<div class="line" role="status"><progress aria-label="progress" max=${of ?? 1} value=${of === undefined ? undefined : n}></progress><span>${p ? `${p.progress}${p.total === undefined ? '' : ` of ${p.total}`} ${p.message ?? ''}` : this.#task ? '' : 'Waiting…'}${this.#task ? ` Task ${this.#task.taskId}: ${this.#task.status} ${this.#task.statusMessage ?? ''}` : ''}</span></div>`;
  }

  /** How it ended, beside the button. */
  #verdict() {
    const o = this.#outcome;
    if (!o) return '';
    const r = o.result;
    const verdict = o.error ? (o.error instanceof RpcError ? `Error ${o.error.code}` : 'Failed') : r?.isError ? 'Tool returned an error' : 'OK';
    let fits = '';
    if (this.entry.outputSchema && r && !r.isError) {
      const wrong = r.structuredContent === undefined ? ['there is none'] : problems(fieldOf(this.entry.outputSchema), r.structuredContent).map((p) => `${p.path.join('.')} ${p.message}`);
      fits = wrong.length ? `output does not match its schema ✘ (${wrong[0]})` : 'output matches its schema ✔';
    }
    const head = [verdict, duration(o.took), this.#progress.length ? `${this.#progress.length} progress` : '', this.#task ? `task ${this.#task.taskId}` : '', fits].filter(Boolean).join(' · ');
    return html`<p class=${o.error || r?.isError ? 'verdict bad' : 'verdict good'}>${o.error || r?.isError ? '✘' : '✔'} ${head}</p>`;
  }

  /** The result of the call. */
  #shown() {
    const o = this.#outcome;
    if (!o) return '';
    const r = o.result;
    /** @param {string} id @param {string} label */
    const tab = (id, label) => html`<button type="button" class="tab" aria-pressed=${String(this.#tab === id)} @click=${() => { this.#tab = id; this.update(); }}>${label}</button>`;
    return html`<div class="outcome">
      ${o.error ? fault(o.error) : ''}
      ${o.error?.data !== undefined ? html`<json-tree .value=${o.error.data}></json-tree>` : ''}
      <div class="tabs" role="group" aria-label="Views of the result">${r?.structuredContent === undefined ? '' : tab('structured', 'Structured')}${r ? tab('result', 'Content') : ''}${r ? tab('json', 'JSON') : ''}</div>
      ${this.#view(o)}</div>`;
  }

  /** @param {any} o */
  #view(o) {
    const r = o.result;
    if (!r) return '';
    if (this.#tab === 'json') return html`<json-tree .value=${r}></json-tree>`;
    if (this.#tab === 'structured' && r.structuredContent !== undefined) return html`<json-tree .value=${r.structuredContent}></json-tree>`;
    if (r.messages) return r.messages.map((/** @type {any} */ m) => html`<h3>${m.role}</h3>${this.#block(m.content)}`);
    const blocks = r.content ?? r.contents ?? [];
    return blocks.length ? blocks.map((/** @type {any} */ b) => this.#block(b)) : html`<p class="quiet">No content.</p>`;
  }

  /** A block of content: text is text, pictures and sound are shown, everything else is JSON. @param {any} b @returns {any} */
  #block(b) {
    if (Array.isArray(b)) return b.map((x) => this.#block(x));
    if (b?.type === 'resource') return this.#block(b.resource ?? {});
    if (typeof b?.text === 'string') return html`${b.uri ? html`<p class="quiet">${b.uri} ${b.mimeType ?? ''}</p>` : ''}<long-text .text=${b.text}></long-text>`;
    if (b?.type === 'resource_link') return html`<p>Resource: ${address(b.uri)} ${b.title ?? b.name ?? ''} ${b.mimeType ?? ''}</p>`;
    const data = b?.data ?? b?.blob;
    const type = String(b?.mimeType ?? '');
    if (typeof data === 'string') {
      const blob = this.#blob(b, data, type);
      if (blob && /^image\/(png|jpeg|gif|webp|avif|bmp)$/.test(type)) return html`<p><img src=${blob} alt=${`Picture from the server, ${type}`} /></p>`;
      if (blob && type.startsWith('audio/')) return html`<p><a href=${blob} download="sound">Sound, ${type}</a></p>`;
      return html`<p>${b.uri ?? ''} ${type || 'bytes'}, ${Math.floor(data.length * 0.75)} bytes ${blob ? html`<a href=${blob} download="content">Save</a>` : ''}</p>`;
    }
    return html`<json-tree .value=${b}></json-tree>`;
  }

  /** @param {any} b @param {string} data in base64 @param {string} type */
  #blob(b, data, type) {
    if (this.#outcome.blobs?.has(b)) return this.#outcome.blobs.get(b);
    this.#outcome.blobs ??= new Map();
    let made;
    try {
      const safe = /^(image\/(png|jpeg|gif|webp|avif|bmp)|audio\/[\w.+-]+)$/.test(type) ? type : 'application/octet-stream'; // never a page of our origin
      made = URL.createObjectURL(new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], { type: safe }));
      this.#blobs.push(made);
    } catch { /* it is no base64 */ }
    this.#outcome.blobs.set(b, made);
    return made;
  }

  /** The same for a terminal. */
  #as() {
    if (this.#value === undefined || this.#wrongMeta()) return '';
    const tool = this.kind === 'tools';
    const args = stringify(this.#value);
    const call = command(this.page.server, this.entry.name, args);
    const to = { url: endpoint(this.page.server), headers: this.page.headers, key: Boolean(this.page.store.me?.keys), repeated: tool ? paramHeaders(this.#schema, this.#value) : {} };
    const request = curl(this.client, to, ...this.#request());
    return html`<details class="card"><summary>As a command</summary>
      ${tool ? html`<pre tabindex="0">${call}</pre><div class="actions">${copy('Copy as command', call)}${copy('Copy arguments', args)}</div>` : ''}
      <pre class="curl" tabindex="0">${request}</pre><div class="actions">${copy('Copy as curl', request)}</div></details>`;
  }
}

/** The fields that still need a value. @param {import('./schema-form.js').Problem[]} wrong */
function needed(wrong) {
  const names = wrong.filter((p) => p.message === 'is required').map((p) => p.path.join('.'));
  return names.length ? `Required: ${names.slice(0, 4).join(', ')}${names.length > 4 ? '…' : ''}` : 'Correct the fields marked in red';
}

/** @param {any} values @returns {Record<string, string|undefined>} */
const texts = (values) => Object.fromEntries(Object.entries(values ?? {}).map(([k, v]) => [k, typeof v === 'string' || v instanceof Exact ? String(v) : undefined]));

customElements.define('try-item', TryItem);
