// Templates that become DOM, and that change what is there when they are rendered again.
//
//   html`<button class="act" disabled=${busy} @click=${save}>save ${name}</button>`
//
// attr=${…} sets an attribute (false, null and undefined take it away), .prop=${…} a property, @type=${…}
// listens, and key=${…} has an element keep its node when its neighbours change. What stands in a hole is
// text, a template, or an array of these: it is never markup, and its hidden characters are shown.
// Every element ends with </name> or with a space and />.
import { visible } from './text.js';

/** @typedef {{tag: string, attrs: [string, any][], children: any[], key?: any}} Template */

const hole = '\u0001';
const svgSpace = 'http://www.w3.org/2000/svg';
const token = /<\/([\w-]+)\s*>|<([\w-]+)((?:\s+[^\s=>/]+(?:=(?:"[^"]*"|[^\s">]+))?)*)\s*(\/?)>|([^<]+)/g;
const attribute = /([^\s=]+)(?:="([^"]*)"|=(\S+))?/g;
/** @type {WeakMap<TemplateStringsArray, Template>} */
const plans = new WeakMap();
/** The templates that html made: another object, which may be a server's, is text. @type {WeakSet<Template>} */
const made = new WeakSet();

/** @param {TemplateStringsArray} strings @param {...any} values @returns {any} a Template; an array unless it is one element */
export function html(strings, ...values) {
  const plan = plans.get(strings) ?? parse(strings.join(hole));
  plans.set(strings, plan);
  let next = 0;
  /** @param {string} s */
  const text = (s) => (s === hole ? values[next++] : s.replaceAll(hole, () => values[next++] ?? ''));
  /** @param {any} node @returns {any} */
  const fill = (node) => {
    if (typeof node === 'string') return text(node);
    const attrs = node.attrs.map((/** @type {[string, any]} */ [name, value]) => [name, typeof value === 'string' ? text(value) : value]);
    const key = attrs.find((/** @type {any} */ a) => a[0] === 'key')?.[1];
    const filled = { tag: node.tag, attrs: attrs.filter((/** @type {any} */ a) => a[0] !== 'key'), children: node.children.map(fill), key };
    made.add(filled);
    return filled;
  };
  const children = plan.children.map(fill);
  return children.length === 1 ? children[0] : children;
}

/** @param {string} text @returns {Template} */
function parse(text) {
  /** @type {Template[]} */
  const open = [{ tag: '', attrs: [], children: [] }];
  let at = 0;
  for (const m of text.matchAll(token)) {
    const top = open[open.length - 1];
    if (m.index !== at || (m[1] && top.tag !== m[1])) break;
    at += m[0].length;
    if (m[1]) open.pop();
    else if (m[2]) {
      const attrs = [...m[3].matchAll(attribute)].map((a) => /** @type {[string, any]} */ ([a[1], a[2] ?? a[3] ?? true]));
      top.children.push({ tag: m[2], attrs, children: [] });
      if (!m[4]) open.push(top.children[top.children.length - 1]);
    } else for (const part of m[5].split(/(\u0001)/)) { // a line break with the blanks around it is nothing at an end, and else a blank
      const words = part.replace(/\s*\n\s*/g, '\n').replace(/^\n|\n$/g, '').replace(/\n/g, ' ');
      if (words) top.children.push(words);
    }
  }
  if (at !== text.length || open.length > 1) throw new Error(`this template is no markup near: ${text.slice(at, at + 40)}`);
  return open[0];
}

/** What was rendered into a node. @type {WeakMap<Node, {parts: any[], nodes: any[]}>} */
const rendered = new WeakMap();
/** @type {WeakMap<Node, Record<string, (e: Event) => void>>} */
const listeners = new WeakMap();
/** @param {any} part */
const kind = (part) => (typeof part === 'object' ? `${part.tag} ${part.key ?? ''}` : '');

/** Makes what is in a node be what the template says. @param {any} template @param {any} into */
export function render(template, into) {
  const parts = [template].flat(Infinity).filter((c) => c !== null && c !== undefined && c !== '' && typeof c !== 'boolean').map((c) => (typeof c === 'object' && !made.has(c) ? JSON.stringify(c) : c));
  const old = rendered.get(into) ?? { parts: [], nodes: [] };
  /** @type {Map<string, number[]>} the places of what was there, last first */
  const free = new Map();
  for (let i = old.parts.length - 1; i >= 0; i--) {
    const k = kind(old.parts[i]);
    free.get(k)?.push(i) ?? free.set(k, [i]);
  }
  const nodes = parts.map((part) => {
    const i = free.get(kind(part))?.pop();
    return i === undefined ? create(part, into) : patch(old.nodes[i], old.parts[i], part);
  });
  const kept = new Set(nodes);
  for (const node of old.nodes) if (!kept.has(node)) into.removeChild(node);
  let cursor = old.nodes.find((n) => kept.has(n)) ?? null;
  for (const node of nodes) {
    if (node === cursor) cursor = cursor.nextSibling;
    else into.insertBefore(node, cursor);
  }
  rendered.set(into, { parts, nodes });
}

/** @param {any} part @param {any} into */
function create(part, into) {
  if (typeof part !== 'object') return document.createTextNode(visible(String(part)));
  const node = part.tag === 'svg' || into.namespaceURI === svgSpace ? document.createElementNS(svgSpace, part.tag) : document.createElement(part.tag);
  return patch(node, { attrs: [], children: [] }, part);
}

/** @param {any} node @param {any} was @param {any} now */
function patch(node, was, now) {
  if (was === now) return node; // the same template again, such as a row that has not changed
  if (typeof now !== 'object') {
    if (String(was) !== String(now)) node.data = visible(String(now));
    return node;
  }
  if (!(node instanceof View)) render(now.children, node); // first: a select takes a value when it has its options
  const had = new Map(was.attrs);
  for (const [name, value] of now.attrs) {
    if (!had.has(name) || had.get(name) !== value) set(node, name, value);
    had.delete(name);
  }
  for (const name of had.keys()) set(node, name, undefined);
  return node;
}

/** @param {any} node @param {string} name @param {any} value */
function set(node, name, value) {
  if (/^on|^style$|^srcdoc$|^\.(inner|outer|srcdoc)/i.test(name)) throw new Error(`${name} is not for templates`);
  if (name[0] === '@') {
    const type = name.slice(1);
    const all = listeners.get(node) ?? {};
    listeners.set(node, all);
    if (!(type in all)) node.addEventListener(type, (/** @type {Event} */ e) => all[type]?.(e));
    all[type] = value;
  } else if (name[0] === '.') {
    node[name.slice(1)] = value;
    if (node instanceof View) node.update();
  } else if (value === false || value === null || value === undefined || (/^(href|src)$/.test(name) && !/^(https?|blob):$/.test(new URL(value, 'http://here').protocol))) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? '' : /^(title|alt|placeholder|aria-label)$/.test(name) ? visible(String(value)) : String(value));
  }
}

/** An element that shows what its view returns, and again after update. */
export class View extends (globalThis.HTMLElement ?? Object) {
  #due = false;
  /** @returns {any} a template */
  view() {}
  connectedCallback() { this.update(); }
  /** Shows the view soon, once for all changes until then. */
  update() {
    if (this.#due) return;
    this.#due = true;
    queueMicrotask(() => {
      this.#due = false;
      if (this.isConnected) render(this.view(), this);
    });
  }
}
