// JSON that keeps its digits: 12345678901234567890 and 1.0 come out as they went in.

/** A number that JavaScript would write in another way. */
export class Exact {
  /** @param {string} text */
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}

/** What was typed as JSON and is none (yet). */
export class Draft extends Exact {}

const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/**
 * The number that a text of JSON is; undefined if it is none.
 * @param {string} text
 * @returns {number|Exact|undefined}
 */
export function exact(text) {
  number.lastIndex = 0;
  if (number.exec(text)?.[0] !== text) return undefined;
  return String(Number(text)) === text ? Number(text) : new Exact(text);
}

/**
 * @param {string} text
 * @returns {any} as JSON.parse, but with Exact
 */
export function parse(text) {
  JSON.parse(text); // faults are its to tell, in its words; what follows reads what is right
  const token = /\s*(?:([{}[\],:])|("[^"\\]*(?:\\.[^"\\]*)*")|([-\d][^\s,\]}]*)|(true|false|null))/y;
  const next = () => /** @type {RegExpExecArray} */ (token.exec(text));
  /** @param {RegExpExecArray} m @returns {any} */
  const value = (m) => {
    if (m[2] !== undefined) return JSON.parse(m[2]);
    if (m[3] !== undefined) return exact(m[3]);
    if (m[4] !== undefined) return JSON.parse(m[4]);
    if (m[1] === '[') {
      const list = [];
      for (m = next(); m[1] !== ']'; m = next()) if (m[1] !== ',') list.push(value(m));
      return list;
    }
    /** @type {Record<string, any>} */
    const object = {};
    for (m = next(); m[1] !== '}'; m = next()) {
      if (m[1] === ',') continue;
      const name = JSON.parse(m[2]);
      next(); // the colon
      // __proto__ is a name like others
      Object.defineProperty(object, name, { value: value(next()), writable: true, enumerable: true, configurable: true });
    }
    return object;
  };
  return value(next());
}

/**
 * @param {any} value members that are undefined are left out
 * @param {number} [indent] blanks for each level; 0 is one line
 * @param {string} [margin]
 * @returns {string}
 */
export function stringify(value, indent = 0, margin = '') {
  if (value instanceof Exact) return value.text;
  if (value === undefined) return 'null';
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const inner = margin + ' '.repeat(indent);
  const parts = Array.isArray(value)
    ? value.map((v) => stringify(v, indent, inner))
    : Object.keys(value).filter((k) => value[k] !== undefined).map((k) => `${JSON.stringify(k)}:${indent ? ' ' : ''}${stringify(value[k], indent, inner)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  if (!parts.length) return open + close;
  return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${margin}${close}` : open + parts.join(',') + close;
}

/** Whether a value of JSON is an object. @param {any} v */
export const isObject = (v) => v !== null && typeof v === 'object' && !Array.isArray(v) && !(v instanceof Exact);

/** Whether two values of JSON are the same. @param {any} a @param {any} b @returns {boolean} */
export function same(a, b) {
  if (a === b) return true;
  if (a instanceof Exact || b instanceof Exact) return String(a) === String(b) && typeof a !== 'string' && typeof b !== 'string';
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => k in b && same(a[k], b[k]));
}
