// The form of a schema, as schema-form.js describes it. Its value is told by the event "changed".
import { html, View } from './dom.js';
import { Draft, Exact, stringify } from './json.js';
import { at, fieldOf, initial, problems, put, typedJSON, typedNumber, variantOf } from './schema-form.js';

/** @typedef {import('./schema-form.js').Field} Field */
/** @typedef {import('./schema-form.js').Path} Path */

let forms = 0;

class SchemaForm extends View {
  /** @type {any} */
  schema = {};
  /** @type {any} */
  value = undefined;
  /** Whether what is required and not there is shown as a fault. */
  strict = false;
  /** Completes what is typed into a field of text at the root. @type {((name: string, text: string) => Promise<string[]>)|undefined} */
  complete = undefined;
  #id = `form${++forms}`;
  /** Which variant of a union was chosen by hand. @type {Map<string, number>} */
  #chosen = new Map();
  /** Names of members that are being added. @type {Map<string, string>} */
  #adding = new Map();
  /** What was typed where a number or JSON is wanted. @type {Map<string, string>} */
  #typed = new Map();
  /** @type {Map<string, string[]>} */
  #completions = new Map();
  /** What is wrong, by path. @type {Map<string, string>} */
  found = new Map();
  /** @type {any} */
  #made = {};

  /** @returns {Field} */
  get field() {
    if (this.#made.of !== this.schema) this.#made = { of: this.schema, field: fieldOf(this.schema) };
    return this.#made.field;
  }

  view() {
    this.found = new Map();
    for (const p of problems(this.field, this.value)) {
      const key = stringify(p.path);
      if (this.strict || p.message !== 'is required') this.found.set(key, p.message);
    }
    const root = this.field;
    if (root.kind === 'object') {
      const inner = this.#members(root, []);
      return html`<div class="fields">${inner.length ? inner : html`<p class="quiet">No arguments.</p>`}</div>`;
    }
    return html`<div class="fields">${this.#row('value', root, [], true)}</div>`;
  }

  /** @param {Path} path @param {any} part */
  #put(path, part) {
    this.value = put(this.value, path, part);
    this.dispatchEvent(new CustomEvent('changed', { detail: this.value }));
    this.update();
  }

  /** @param {Path} path */
  #name(path) { return `${this.#id}-${path.map((p) => String(p).replace(/[^\w-]/g, (c) => `_${c.charCodeAt(0)}`)).join('-')}`; }

  /** @param {Field} field @param {Path} path @returns {any[]} */
  #members(field, path) {
    const value = at(this.value, path);
    const members = field.members?.() ?? [];
    const known = new Set(members.map((m) => m.name));
    const rows = members.map((m) => this.#row(m.name, m.field(), [...path, m.name], m.required));
    for (const name of Object.keys(value && typeof value === 'object' ? value : {})) {
      if (known.has(name)) continue;
      rows.push(this.#row(name, field.extra?.() ?? fieldOf({}), [...path, name], false));
    }
    if (field.extra) {
      const key = stringify(path);
      const id = `${this.#name(path)}-add`;
      const add = () => {
        const name = this.#adding.get(key) ?? '';
        if (!name || at(this.value, [...path, name]) !== undefined) return;
        this.#adding.set(key, '');
        const inner = field.extra?.();
        this.#put([...path, name], inner ? initial(inner) ?? blank(inner) : '');
      };
      rows.push(html`<div class="add line" key=${`add ${key}`}><label class="hidden" for=${id}>Property name</label><input id=${id} .value=${this.#adding.get(key) ?? ''} placeholder="Property name" @input=${(/** @type {any} */ e) => { this.#adding.set(key, e.target.value); this.update(); }} @keydown=${(/** @type {any} */ e) => { if (e.key === 'Enter') { e.preventDefault(); add(); } }} /><button type="button" class="small" @click=${add}>Add property</button></div>`);
    }
    return rows;
  }

  /** @param {string} name @param {Field} field @param {Path} path @param {boolean} needed @param {string} [inside] of a union, which has the same path */
  #row(name, field, path, needed, inside = '') {
    const value = at(this.value, path);
    const id = this.#name(path) + inside;
    const grouped = ['object', 'list', 'choices', 'union'].includes(field.kind);
    const wrong = this.found.get(stringify(path));
    const head = html`<span class="label">${field.title || name}${needed ? html`<span class="needed" title="required"> *</span>` : ''}${field.title && field.title !== name ? html`<code>${name}</code>` : ''}</span>`;
    const about = [
      field.hint, field.why, !needed && value === undefined ? 'optional' : '',
      'default' in field.schema && value === undefined ? `default: ${stringify(field.schema.default)}` : '',
      Array.isArray(field.schema.examples) && field.schema.examples.length ? `example: ${stringify(field.schema.examples[0])}` : '', field.schema.deprecated ? 'deprecated' : '',
    ].filter(Boolean).join(' · ');
    const notes = html`<div class="notes" id=${`${id}-notes`}>${field.description ? html`<p>${field.description}</p>` : ''}${about ? html`<p class="quiet">${about}</p>` : ''}${wrong ? html`<p class="wrong">▲ ${wrong}</p>` : ''}</div>`;
    const drop = !needed && value !== undefined && typeof path[path.length - 1] === 'string' ? html`<button type="button" class="small" aria-label=${`Clear ${name}`} @click=${() => this.#drop(path)}>Clear</button>` : '';
    const none = field.nullable && value !== null ? html`<button type="button" class="small" aria-label=${`Set ${name} to null`} @click=${() => this.#put(path, null)}>null</button>` : '';
    if (value === null && field.nullable) {
      return html`<div class="field" key=${`${id} null`}>${head}<div class="line"><code>null</code><button type="button" class="small" @click=${() => this.#put(path, needed ? blank(field) : undefined)}>Set a value</button>${drop}</div>${notes}</div>`;
    }
    if (grouped) return html`<fieldset class="field" key=${id}><legend>${head}</legend>${notes}<div class="line">${none}${drop}</div>${this.#control(field, path, id, needed, name)}</fieldset>`;
    return html`<div class="field" key=${id}><label for=${id}>${head}</label><div class="line">${this.#control(field, path, id, needed, name)}${none}${drop}</div>${notes}</div>`;
  }

  /** @param {Path} path */
  #drop(path) {
    this.#typed.delete(stringify(path));
    this.#chosen.delete(stringify(path));
    this.#put(path, undefined);
  }

  /** @param {Field} field @param {Path} path @param {string} id @param {boolean} needed @param {string} name @returns {any} */
  #control(field, path, id, needed, name) {
    const value = at(this.value, path);
    const key = stringify(path);
    const wrong = this.found.has(key) ? 'true' : undefined;
    const notes = `${id}-notes`;
    switch (field.kind) {
      case 'const': return html`<input id=${id} type="checkbox" aria-describedby=${notes} .checked=${value !== undefined} @change=${(/** @type {any} */ e) => this.#put(path, e.target.checked ? field.schema.const : undefined)} />`;
      case 'boolean': return html`<select id=${id} aria-describedby=${notes} aria-invalid=${wrong} .value=${value === undefined ? '' : String(value)} @change=${(/** @type {any} */ e) => this.#put(path, e.target.value === '' ? undefined : e.target.value === 'true')}><option value="">${needed ? 'Choose…' : 'not set'}</option><option value="true">true</option><option value="false">false</option></select>`;
      case 'choice': {
        const i = (field.options ?? []).findIndex((o) => stringify(o.value) === stringify(value));
        return html`<select id=${id} aria-describedby=${notes} aria-invalid=${wrong} .value=${value === undefined ? '' : String(i)} @change=${(/** @type {any} */ e) => this.#put(path, e.target.value === '' ? undefined : field.options?.[Number(e.target.value)].value)}><option value="">${needed ? 'Choose…' : 'not set'}</option>${(field.options ?? []).map((o, n) => html`<option value=${n}>${o.label}</option>`)}${value !== undefined && i < 0 ? html`<option value="-1">${stringify(value)}</option>` : ''}</select>`;
      }
      case 'text': return this.#text(field, path, id, name);
      case 'number': {
        const draft = this.#typed.get(key);
        const shown = draft !== undefined && String(typedNumber(draft) ?? '') === String(value ?? '') ? draft : String(value ?? '');
        return html`<input id=${id} inputmode=${field.integer ? 'numeric' : 'decimal'} autocomplete="off" aria-describedby=${notes} aria-invalid=${wrong} .value=${shown} @input=${(/** @type {any} */ e) => { this.#typed.set(key, e.target.value); this.#put(path, typedNumber(e.target.value)); }} />`;
      }
      case 'choices': {
        const chosen = Array.isArray(value) ? value : [];
        return html`<div class="choices">${(field.options ?? []).map((o, n) => html`<label><input type="checkbox" .checked=${chosen.some((v) => stringify(v) === stringify(o.value))} @change=${(/** @type {any} */ e) => this.#put(path, e.target.checked ? [...chosen, o.value] : chosen.filter((v) => stringify(v) !== stringify(o.value)))} /> ${o.label}</label>`)}${value === undefined ? html`<button type="button" class="small" @click=${() => this.#put(path, [])}>None</button>` : ''}</div>`;
      }
      case 'list': return this.#list(field, path, name);
      case 'object':
        if (value === undefined || typeof value !== 'object' || value === null) return html`<button type="button" class="small" @click=${() => this.#put(path, initial(field))}>Add ${name}</button>`;
        return html`<div class="fields">${this.#members(field, path)}</div>`;
      case 'union': {
        const variants = field.variants ?? [];
        const byHand = this.#chosen.get(key);
        const i = byHand ?? (value === undefined ? -1 : variantOf(field, value));
        const inner = variants[i]?.field();
        return html`<div class="union"><div class="choices" role="radiogroup" aria-label=${`Kind of ${name}`}>${variants.map((v, n) => html`<label><input type="radio" name=${id} .checked=${n === i} @change=${() => { this.#chosen.set(key, n); const f = v.field(); this.#put(path, initial(f) ?? blank(f)); }} /> ${v.label}</label>`)}</div>${inner ? html`<div class="inner" key=${i}>${this.#row(variants[i].label, { ...inner, title: '', hint: inner.hint }, path, true, `${id.slice(this.#name(path).length)}-of`)}</div>` : ''}</div>`;
      }
      default: {
        const draft = this.#typed.get(key);
        const shown = draft !== undefined && stringify(typedJSON(draft) ?? '') === stringify(value ?? '') ? draft : value === undefined ? '' : value instanceof Draft ? value.text : stringify(value, 2);
        return html`<textarea id=${id} rows="3" spellcheck="false" placeholder="JSON" aria-describedby=${notes} aria-invalid=${wrong} .value=${shown} @input=${(/** @type {any} */ e) => { this.#typed.set(key, e.target.value); this.#put(path, typedJSON(e.target.value)); }}></textarea>`;
      }
    }
  }

  /** @param {Field} field @param {Path} path @param {string} id @param {string} name */
  #text(field, path, id, name) {
    const value = at(this.value, path);
    const shown = value === undefined ? '' : typeof value === 'string' ? value : stringify(value);
    const wrong = this.found.has(stringify(path)) ? 'true' : undefined;
    const notes = `${id}-notes`;
    const input = (/** @type {any} */ e) => {
      this.#put(path, e.target.value);
      if (this.complete && path.length === 1) {
        const text = e.target.value;
        this.complete(name, text).then((values) => { if (at(this.value, path) === text) { this.#completions.set(name, values); this.update(); } });
      }
    };
    if (field.schema.format || field.schema.pattern || this.complete || (field.schema.maxLength ?? 1000) <= 120) {
      const type = field.schema.format === 'date' ? 'date' : 'text';
      return html`<input id=${id} type=${type} autocomplete="off" spellcheck="false" list=${this.complete ? `${id}-list` : undefined} aria-describedby=${notes} aria-invalid=${wrong} .value=${shown} @input=${input} />${this.complete ? html`<datalist id=${`${id}-list`}>${(this.#completions.get(name) ?? []).map((v) => html`<option value=${v}></option>`)}</datalist>` : ''}`;
    }
    return html`<textarea id=${id} rows="1" spellcheck="false" aria-describedby=${notes} aria-invalid=${wrong} .value=${shown} @input=${input}></textarea>`;
  }

  /** @param {Field} field @param {Path} path @param {string} name */
  #list(field, path, name) {
    const value = at(this.value, path);
    const items = Array.isArray(value) ? value : [];
    /** @param {number} from @param {number} to */
    const move = (from, to) => {
      const out = [...items];
      out.splice(to, 0, ...out.splice(from, 1));
      this.#typed.clear();
      this.#chosen.clear();
      this.#put(path, out);
    };
    const next = field.item?.(items.length);
    return html`<div class="list">${items.map((v, i) => html`<div class="item" key=${i}>${this.#row(`item ${i + 1}`, field.item?.(i) ?? fieldOf({}), [...path, i], true)}<div class="line">
        ${i ? html`<button type="button" class="small" aria-label=${`Move item ${i + 1} of ${name} up`} @click=${() => move(i, i - 1)}>↑</button>` : ''}
        ${i < items.length - 1 ? html`<button type="button" class="small" aria-label=${`Move item ${i + 1} of ${name} down`} @click=${() => move(i, i + 1)}>↓</button>` : ''}
        <button type="button" class="small" aria-label=${`Remove item ${i + 1} of ${name}`} @click=${() => { this.#typed.clear(); this.#chosen.clear(); this.#put(path, items.filter((_, n) => n !== i)); }}>Remove</button></div></div>`)}
      <div class="line">${next ? html`<button type="button" class="small" @click=${() => this.#put(path, [...items, initial(next) ?? blank(next)])}>Add item to ${name}</button>` : ''}${value === undefined ? html`<button type="button" class="small" @click=${() => this.#put(path, [])}>Empty list</button>` : ''}</div></div>`;
  }
}
customElements.define('schema-form', SchemaForm);

/** What an item begins with that has to be there. @param {Field} field @returns {any} */
function blank(field) {
  switch (field.kind) {
    case 'text': return '';
    case 'boolean': return false;
    case 'number': return new Draft('');
    case 'object': return {};
    case 'list': case 'choices': return [];
    case 'choice': return field.options?.[0]?.value;
    case 'union': return field.variants ? blank(field.variants[0].field()) : null;
    default: return new Draft('');
  }
}
