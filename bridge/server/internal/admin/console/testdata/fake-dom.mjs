// As much of a DOM as dom.js needs.
class FakeNode {
  childNodes = [];
  parentNode = null;
  get nextSibling() { return this.parentNode?.childNodes[this.parentNode.childNodes.indexOf(this) + 1] ?? null; }
  removeChild(node) {
    const i = this.childNodes.indexOf(node);
    if (i < 0) throw new Error('removeChild: it is no child');
    this.childNodes.splice(i, 1);
    node.parentNode = null;
  }
  insertBefore(node, before) {
    FakeNode.moves++;
    node.parentNode?.removeChild(node);
    const i = before ? this.childNodes.indexOf(before) : this.childNodes.length;
    if (i < 0) throw new Error('insertBefore: it is no child');
    this.childNodes.splice(i, 0, node);
    node.parentNode = this;
  }
}
FakeNode.moves = 0;

class Text extends FakeNode {
  constructor(data) { super(); this.data = data; }
  toString() { return this.data.replace(/[<&]/g, (c) => `[${c}]`); }
}

class Element extends FakeNode {
  attributes = new Map();
  listeners = {};
  constructor(tag, space = 'html') { super(); this.tagName = tag; this.namespaceURI = space; }
  setAttribute(name, value) { this.attributes.set(name, value); }
  removeAttribute(name) { this.attributes.delete(name); }
  addEventListener(type, f) { (this.listeners[type] ??= []).push(f); }
  fire(type, e = {}) { for (const f of this.listeners[type] ?? []) f(e); }
  toString() {
    const attributes = [...this.attributes].map(([k, v]) => ` ${k}="${v}"`).join('');
    return `<${this.tagName}${attributes}>${this.childNodes.join('')}</${this.tagName}>`;
  }
}

globalThis.HTMLElement = class extends Element {
  constructor() { super('own-element'); }
  get isConnected() { return true; }
};
globalThis.document = {
  createTextNode: (data) => new Text(data),
  createElement: (tag) => (globalThis.customs?.[tag] ? new globalThis.customs[tag]() : new Element(tag)),
  createElementNS: (space, tag) => new Element(tag, space),
};
export { Element, FakeNode };
