// What form a JSON schema asks for: a pure module, without a page.
//
// A schema becomes a Field, and the fields inside it are made when they are asked for, so that a schema may
// contain itself. The value is apart: plain JSON (with Exact for numbers), in which undefined is what was not
// touched, and is not sent. What cannot be a form is a field of kind "json", for that part only.
import { Draft, Exact, exact, isObject, parse, same, stringify } from './json.js';

/**
 * @typedef {object} Field
 * @property {'text'|'number'|'boolean'|'choice'|'choices'|'const'|'object'|'list'|'union'|'json'} kind
 * @property {any} schema with references, allOf and null resolved
 * @property {string} title
 * @property {string} description
 * @property {boolean} nullable null is a value, too
 * @property {string} hint what values it takes
 * @property {boolean} [integer] of number
 * @property {{label: string, value: any}[]} [options] of choice and choices
 * @property {() => Member[]} [members] of object
 * @property {(() => Field)|null} [extra] of object: what members of other names are; null if there are none
 * @property {(i: number) => Field|null} [item] of list: null where there can be none
 * @property {{label: string, field: () => Field}[]} [variants] of union
 * @property {string} [why] of json: why it is no form
 */
/** @typedef {{name: string, required: boolean, field: () => Field}} Member */
/** @typedef {(string|number)[]} Path */
/** @typedef {{path: Path, message: string}} Problem */

const deepest = 32;
/** How many parts of a schema one form, or one value to begin with, may need: parts can name each other again and again. */
const mostSteps = 2000;

/** @param {any} s */
const isNull = (s) => isObject(s) && (s.type === 'null' || s.const === null || (Array.isArray(s.enum) && s.enum.length === 1 && s.enum[0] === null));

/**
 * What a $ref leads to in the whole schema; undefined if nowhere. Nothing is fetched.
 * @param {any} root @param {string} ref
 */
function lookup(root, ref) {
  if (ref === '#') return root;
  if (ref.startsWith('#/')) {
    let at = root;
    for (const raw of ref.slice(2).split('/')) {
      let name = raw;
      try { name = decodeURIComponent(raw); } catch { /* a % that stands for itself */ }
      name = name.replace(/~1/g, '/').replace(/~0/g, '~');
      if (at === null || typeof at !== 'object' || !Object.hasOwn(at, name)) return undefined;
      at = at[name];
    }
    return at;
  }
  for (const defs of [root.$defs, root.definitions]) {
    for (const def of Object.values(isObject(defs) ? defs : {})) {
      if (isObject(def) && (def.$id === ref || `#${def.$anchor}` === ref || `#${def.$dynamicAnchor}` === ref)) return def;
    }
  }
  return undefined;
}

/**
 * A schema that says what both say; `unreadable` if that is no plain schema.
 * @param {any} a @param {any} b
 */
function merge(a, b) {
  /** @type {any} */
  const out = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const had = out[key];
    if (had === undefined || same(had, value)) out[key] = value;
    else if (key === 'properties') {
      out[key] = { ...had };
      for (const [name, s] of Object.entries(value)) out[key][name] = Object.hasOwn(had, name) ? { allOf: [had[name], s] } : s;
    } else if (key === 'required') out[key] = [...new Set([...had, ...value])];
    else if (key === 'enum') out[key] = had.filter((/** @type {any} */ v) => value.some((/** @type {any} */ w) => same(v, w)));
    else if (key === 'type') {
      const both = [had].flat().filter((t) => [value].flat().includes(t) || (t === 'integer' && [value].flat().includes('number')));
      if ([had].flat().includes('number') && [value].flat().includes('integer')) both.push('integer');
      if (!both.length) out.unreadable = `it is to be ${had} and ${value} at once`;
      out[key] = both.length === 1 ? both[0] : both;
    } else if (/^min|^exclusiveMin/.test(key)) out[key] = Math.max(had, value);
    else if (/^max|^exclusiveMax/.test(key)) out[key] = Math.min(had, value);
    else if (key === 'additionalProperties' && (had === false || value === false)) out[key] = false;
    else if (['items', 'additionalProperties'].includes(key)) out[key] = { allOf: [had, value] };
    else if (key === 'allOf') out[key] = [...had, ...value];
    else if (['anyOf', 'oneOf'].includes(key)) {
      out.allOf = [...(out.allOf ?? []), { [key]: value }];
    } else if (!['title', 'description', 'default', 'examples', '$comment', '$id', '$schema', 'deprecated', '$defs', 'definitions'].includes(key)) {
      if (key === 'pattern' || key === 'format' || key === 'multipleOf') continue; // the server checks the second, too
      if (key === 'const' || key === 'prefixItems') out.unreadable = `its parts disagree about ${key}`;
    }
  }
  return out;
}

/**
 * A schema without $ref and allOf at its root.
 * @param {any} schema @param {any} root @param {number} [depth] @param {{left: number}} [steps]
 * @returns {any}
 */
function settle(schema, root, depth = 0, steps = { left: mostSteps }) {
  if (schema === false) return { unreadable: 'no value is right here' };
  if (!isObject(schema)) return {};
  if (depth > deepest || steps.left-- <= 0) return { unreadable: 'its references lead in a circle' };
  let s = schema;
  const ref = s.$ref ?? s.$dynamicRef;
  if (typeof ref === 'string') {
    const { $ref: _, $dynamicRef: __, ...rest } = s;
    const to = lookup(root, ref);
    if (to === undefined) return { ...rest, unreadable: `its reference ${ref} leads nowhere` };
    s = merge(rest, settle(to, root, depth + 1, steps));
  }
  if (Array.isArray(s.allOf)) {
    const { allOf, ...rest } = s;
    // more than one anyOf or oneOf: the first is the choice, the server checks the others
    const choices = allOf.filter((/** @type {any} */ p) => isObject(p) && (p.anyOf || p.oneOf) && Object.keys(p).length === 1);
    const plain = allOf.filter((/** @type {any} */ p) => !choices.includes(p));
    s = plain.reduce((/** @type {any} */ a, /** @type {any} */ p) => merge(a, settle(p, root, depth + 1, steps)), rest);
    if (choices.length && !s.anyOf && !s.oneOf) s = merge(s, choices[0]);
    if (s.allOf) { const { allOf: _, ...without } = s; s = without; }
  }
  return s;
}

/** @param {any} s @returns {string[]} the types that a value can have; none is all */
function typesOf(s) {
  const types = [s.type ?? []].flat().filter((t) => typeof t === 'string');
  if (types.length) return s.nullable === true ? [...types, 'null'] : types;
  if (s.properties || s.additionalProperties !== undefined || s.patternProperties || s.required || s.propertyNames) return ['object'];
  if (s.items !== undefined || s.prefixItems || s.contains || s.minItems !== undefined || s.uniqueItems) return ['array'];
  if (s.pattern !== undefined || s.minLength !== undefined || s.maxLength !== undefined || typeof s.format === 'string') return ['string'];
  if (['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'].some((k) => typeof s[k] === 'number')) return ['number'];
  return [];
}

/** @param {any} v */
const label = (v) => (typeof v === 'string' ? v || '(empty text)' : stringify(v));

/** @param {any} s @param {string} type */
function hintOf(s, type) {
  const parts = [typeof s.format === 'string' ? s.format : type];
  const lowest = s.minimum ?? s.minLength ?? s.minItems ?? s.minProperties;
  const highest = s.maximum ?? s.maxLength ?? s.maxItems ?? s.maxProperties;
  const unit = type === 'string' ? ' characters' : type === 'array' ? ' items' : '';
  if (lowest !== undefined && highest !== undefined) parts.push(`${lowest} to ${highest}${unit}`);
  else if (lowest !== undefined && !(lowest === 0 && unit)) parts.push(`at least ${lowest}${unit}`);
  else if (highest !== undefined) parts.push(`at most ${highest}${unit}`);
  if (typeof s.exclusiveMinimum === 'number') parts.push(`above ${s.exclusiveMinimum}`);
  if (typeof s.exclusiveMaximum === 'number') parts.push(`below ${s.exclusiveMaximum}`);
  if (s.multipleOf !== undefined) parts.push(`a multiple of ${s.multipleOf}`);
  if (typeof s.pattern === 'string') parts.push(`matches ${s.pattern}`);
  return parts.filter(Boolean).join(', ');
}

/**
 * The field of a schema.
 * @param {any} schema
 * @param {any} [root] the whole, in which references are looked up
 * @returns {Field}
 */
export function fieldOf(schema, root = schema) { return make(schema, root, false, 0); }

/** @param {any} schema @param {any} root @param {boolean} nullable @param {number} depth @returns {Field} */
function make(schema, root, nullable, depth) {
  const s = settle(schema, root);
  const text = (/** @type {any} */ v) => (typeof v === 'string' ? v : '');
  const base = { schema: s, title: text(s.title), description: text(s.description), nullable, hint: '' };
  /** @param {string} why @returns {Field} */
  const json = (why) => ({ ...base, kind: 'json', why, hint: typesOf(s).join(' or ') || 'any JSON' });
  if (s.unreadable) return json(s.unreadable);
  if (depth > deepest) return json('it is a choice of itself');
  for (const key of ['anyOf', 'oneOf']) {
    if (!Array.isArray(s[key])) continue;
    const { [key]: listed, ...rest } = s;
    const choices = listed.map((/** @type {any} */ c) => settle(c, root)).filter((/** @type {any} */ c) => !c.unreadable || listed.length === 1);
    const others = choices.filter((/** @type {any} */ c) => !isNull(c));
    const none = nullable || others.length < choices.length;
    if (!others.length) return json('none of its choices is readable');
    if (others.every((/** @type {any} */ c) => 'const' in c)) {
      const options = others.map((/** @type {any} */ c) => ({ label: text(c.title) || label(c.const), value: c.const }));
      return { ...base, nullable: none, kind: 'choice', options };
    }
    if (others.length === 1) {
      const only = merge(rest, others[0]);
      return make(only, root, none, depth + 1);
    }
    /** @type {(c: any, i: number) => {label: string, field: () => Field}} */
    const variant = (c, i) => {
      const { title, description, default: _, ...shape } = rest;
      const merged = settle(merge(c, shape), root);
      return { label: variantLabel(c, i), field: () => make(merged, root, false, depth + 1) };
    };
    return { ...base, nullable: none, kind: 'union', variants: others.map(variant) };
  }
  if ('const' in s) return { ...base, kind: 'const', hint: `always ${label(s.const)}` };
  if (Array.isArray(s.enum)) {
    const names = Array.isArray(s.enumNames) ? s.enumNames : [];
    const options = s.enum.map((/** @type {any} */ v, /** @type {number} */ i) => ({ label: text(names[i]) || label(v), value: v })).filter((/** @type {any} */ o) => o.value !== null);
    return { ...base, nullable: nullable || s.enum.includes(null), kind: 'choice', options };
  }
  const all = typesOf(s);
  const types = all.filter((t) => t !== 'null' && !(t === 'integer' && all.includes('number')));
  if (all.length > types.length && all.includes('null')) base.nullable = true;
  if (!types.length) return all.length ? { ...base, kind: 'const', schema: { ...s, const: null }, hint: 'always null' } : json('');
  if (types.length > 1) {
    return { ...base, kind: 'union', variants: types.map((type) => ({ label: type, field: () => make({ ...s, type, nullable: undefined, title: undefined, description: undefined }, root, false, depth + 1) })) };
  }
  base.hint = hintOf(s, types[0]);
  switch (types[0]) {
    case 'string': return { ...base, kind: 'text' };
    case 'integer': case 'number': return { ...base, kind: 'number', integer: types[0] === 'integer' };
    case 'boolean': return { ...base, kind: 'boolean' };
    case 'array': return list(s, root, base);
    case 'object': return object(s, root, base);
    default: return json(`its type ${types[0]} is unknown`);
  }
}

/** @param {any} c @param {number} i */
function variantLabel(c, i) {
  if (typeof c.title === 'string' && c.title) return c.title;
  const told = Object.entries(isObject(c.properties) ? c.properties : {}).find(([, p]) => isObject(p) && 'const' in p);
  if (told) return `${told[0]}: ${label(told[1].const)}`;
  if ('const' in c) return label(c.const);
  const types = typesOf(c);
  if (types[0] === 'object' && c.properties) return `with ${(c.required ?? Object.keys(c.properties)).slice(0, 3).join(', ') || 'nothing needed'}`;
  if (c.required) return `with ${c.required.slice(0, 3).join(', ')}`;
  return types.join(' or ') + (c.format ? ` (${c.format})` : '') || `choice ${i + 1}`;
}

/** @param {any} s @param {any} root @param {any} base @returns {Field} */
function list(s, root, base) {
  const first = Array.isArray(s.prefixItems) ? s.prefixItems : Array.isArray(s.items) ? s.items : [];
  const rest = Array.isArray(s.items) ? s.additionalItems : s.items;
  const item = (/** @type {number} */ i) => {
    const of = i < first.length ? first[i] : rest;
    return of === false ? null : make(of ?? {}, root, false, 0);
  };
  if (!first.length && isObject(rest)) {
    const each = make(rest, root, false, 0);
    if (each.kind === 'choice' && !each.nullable) return { ...base, kind: 'choices', options: each.options };
  }
  return { ...base, kind: 'list', item };
}

/** @param {any} s @param {any} root @param {any} base @returns {Field} */
function object(s, root, base) {
  const properties = isObject(s.properties) ? s.properties : {};
  const required = Array.isArray(s.required) ? s.required.filter((/** @type {any} */ n) => typeof n === 'string') : [];
  const names = [...new Set([...Object.keys(properties), ...required])];
  const patterns = isObject(s.patternProperties) ? Object.values(s.patternProperties) : [];
  const others = s.additionalProperties ?? (patterns.length === 1 ? patterns[0] : patterns.length || !names.length);
  return {
    ...base,
    kind: 'object',
    members: () => names
      .filter((name) => properties[name] !== false)
      .map((name) => ({ name, required: required.includes(name), field: () => make(Object.hasOwn(properties, name) ? properties[name] : {}, root, false, 0) }))
      .sort((a, b) => Number(b.required) - Number(a.required)),
    extra: others === false ? null : () => make(others, root, false, 0),
  };
}

/**
 * The value with which a field begins: what must be there and can only be one thing, or has a default.
 * @param {Field} field
 * @param {boolean} [needed] whether it has to be there
 * @param {number} [depth]
 * @param {{left: number}} [steps]
 * @returns {any} undefined: nothing is sent
 */
export function initial(field, needed = true, depth = 0, steps = { left: mostSteps }) {
  if (!needed || depth > deepest || steps.left-- <= 0) return undefined;
  if (field.kind === 'const') return field.schema.const;
  if ('default' in field.schema) return field.schema.default;
  if (field.kind === 'union' && depth === 0) return initial(/** @type {any} */ (field.variants)[0].field(), true, depth + 1, steps);
  if (field.kind !== 'object') return undefined;
  let out = {};
  for (const m of /** @type {() => Member[]} */ (field.members)()) {
    const f = m.field();
    const v = m.required || (f.schema.default ?? undefined) !== undefined ? initial(f, true, depth + 1, steps) : undefined;
    out = put(out, [m.name], v);
  }
  return out;
}

/**
 * About how many steps it takes at worst to try a pattern. What repeats a part that repeats or chooses may never end.
 * @param {string} pattern @param {number} length of the text
 */
function effort(pattern, length) {
  if (length > 1000) return Infinity;
  let steps = length + 1;
  const varies = [false]; // for each open group
  for (const [t] of pattern.matchAll(/\\.|\[(?:\\.|[^\]\\])*\]|\(\??|\)[*+{]?|[*+]\??|\{\d+,|[?|]/gs)) {
    if (t[0] === '\\' || t[0] === '[') continue;
    if (t[0] === '(') {
      varies.push(false);
      continue;
    }
    const inner = t[0] === ')' && varies.pop();
    if (inner && t[1]) return Infinity;
    varies[varies.length - 1] ||= inner || t !== ')';
    if (t !== '|') steps *= t === '?' ? 2 : t === ')' ? 1 : length + 1;
  }
  return steps;
}

/** @param {any} v */
const isNumber = (v) => typeof v === 'number' || (v instanceof Exact && !(v instanceof Draft));

/**
 * What is wrong with a value, as far as a form can tell; the server has the last word.
 * @param {Field} field @param {any} value @param {boolean} [needed] @param {Path} [path]
 * @returns {Problem[]}
 */
export function problems(field, value, needed = true, path = []) {
  /** @param {string} message @returns {Problem[]} */
  const wrong = (message) => [{ path, message }];
  const s = field.schema;
  if (value === undefined) return needed ? wrong('is required') : [];
  if (value === null && field.nullable) return [];
  switch (field.kind) {
    case 'const': return same(value, s.const) ? [] : wrong(`must be ${label(s.const)}`);
    case 'choice': return field.options?.some((o) => same(o.value, value)) ? [] : wrong(`must be one of ${field.options?.map((o) => label(o.value)).join(', ')}`);
    case 'boolean': return typeof value === 'boolean' ? [] : wrong('must be true or false');
    case 'text': {
      if (typeof value !== 'string') return wrong('must be text');
      const length = [...value].length;
      if (length < (s.minLength ?? 0)) return wrong(`must have at least ${s.minLength} characters`);
      if (length > (s.maxLength ?? Infinity)) return wrong(`must have at most ${s.maxLength} characters`);
      let pattern;
      try { pattern = typeof s.pattern === 'string' ? new RegExp(s.pattern, 'u') : undefined; } catch { /* the server can tell */ }
      if (pattern && effort(s.pattern, length) < 1e7 && !pattern.test(value)) return wrong(`must match ${s.pattern}`);
      if (s.format === 'email' && !/^\S+@\S+$/.test(value)) return wrong('must be an email address');
      if (s.format === 'uri' && !URL.canParse(value)) return wrong('must be a URI');
      if (s.format === 'date' && !(/^\d{4}-\d\d-\d\d$/.test(value) && !Number.isNaN(Date.parse(value)))) return wrong('must be a date such as 2026-07-28');
      if (s.format === 'date-time' && !(/^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d/.test(value) && !Number.isNaN(Date.parse(value)))) return wrong('must be a time such as 2026-07-28T10:30:00Z');
      return [];
    }
    case 'number': {
      if (!isNumber(value)) return wrong(field.integer ? 'must be a whole number' : 'must be a number');
      const n = Number(value);
      if (field.integer && !Number.isInteger(n)) return wrong('must be a whole number');
      if (n < (s.minimum ?? -Infinity)) return wrong(`must be at least ${s.minimum}`);
      if (n > (s.maximum ?? Infinity)) return wrong(`must be at most ${s.maximum}`);
      if (typeof s.exclusiveMinimum === 'number' && n <= s.exclusiveMinimum) return wrong(`must be above ${s.exclusiveMinimum}`);
      if (typeof s.exclusiveMaximum === 'number' && n >= s.exclusiveMaximum) return wrong(`must be below ${s.exclusiveMaximum}`);
      return [];
    }
    case 'choices': case 'list': {
      if (!Array.isArray(value)) return wrong('must be a list');
      if (value.length < (s.minItems ?? 0)) return wrong(`must have at least ${s.minItems} items`);
      if (value.length > (s.maxItems ?? Infinity)) return wrong(`must have at most ${s.maxItems} items`);
      if (s.uniqueItems && value.some((v, i) => value.slice(0, i).some((w) => same(v, w)))) return wrong('must not have the same item twice');
      if (field.kind === 'choices') return value.every((v) => field.options?.some((o) => same(o.value, v))) ? [] : wrong('has an item that is none of the choices');
      return value.flatMap((v, i) => {
        const each = field.item?.(i);
        return each ? problems(each, v, true, [...path, i]) : [{ path: [...path, i], message: 'has no place here' }];
      });
    }
    case 'object': {
      if (!isObject(value)) return wrong('must be an object');
      const members = /** @type {() => Member[]} */ (field.members)();
      const found = members.flatMap((m) => (m.required || at(value, [m.name]) !== undefined ? problems(m.field(), at(value, [m.name]), m.required, [...path, m.name]) : []));
      const known = new Set(members.map((m) => m.name));
      for (const name of Object.keys(value)) {
        if (known.has(name) || value[name] === undefined) continue;
        if (field.extra) found.push(...problems(field.extra(), value[name], true, [...path, name]));
        else if (s.additionalProperties === false) found.push({ path: [...path, name], message: 'is not known here' });
      }
      return found;
    }
    case 'union': {
      const variants = field.variants ?? [];
      return problems(variants[variantOf(field, value)].field(), value, true, path);
    }
    default: return value instanceof Draft ? wrong('is no JSON yet') : [];
  }
}

/**
 * Which variant of a union a value is most likely of.
 * @param {Field} field @param {any} value
 */
export function variantOf(field, value) {
  let best = 0;
  let least = Infinity;
  (field.variants ?? []).forEach((v, i) => {
    const found = problems(v.field(), value);
    const n = found.some((p) => p.path.length === 0) ? 1000 : found.reduce((sum, p) => sum + (/^must be /.test(p.message) ? 10 : p.message === 'is required' ? 1 : 3), 0);
    if (n < least) [best, least] = [i, n];
  });
  return best;
}

/** @param {any} value @param {Path} path */
export const at = (value, path) => path.reduce((v, p) => (v === null || v === undefined || !Object.hasOwn(v, p) ? undefined : v[p]), value);

/**
 * A value in which the part at path is another; undefined takes a member away. Nothing is changed in place.
 * @param {any} value @param {Path} path @param {any} part
 * @returns {any}
 */
export function put(value, path, part) {
  if (!path.length || (part === undefined && at(value, path) === undefined)) return path.length ? value : part;
  const [first, ...rest] = path;
  if (typeof first === 'number') {
    const out = Array.isArray(value) ? [...value] : [];
    out[first] = put(out[first], rest, part);
    return out;
  }
  /** @type {Record<string, any>} */
  const out = isObject(value) ? { ...value } : {};
  const inner = put(Object.hasOwn(out, first) ? out[first] : undefined, rest, part);
  if (inner === undefined) delete out[first];
  else Object.defineProperty(out, first, { value: inner, writable: true, enumerable: true, configurable: true });
  return out;
}

/**
 * What was typed into a field of numbers; undefined for nothing.
 * @param {string} text
 */
export const typedNumber = (text) => (text.trim() === '' ? undefined : exact(text.trim()) ?? new Draft(text));

/**
 * What was typed into a field of JSON; undefined for nothing.
 * @param {string} text
 */
export function typedJSON(text) {
  if (text.trim() === '') return undefined;
  try { return parse(text); } catch { return new Draft(text); }
}
