import assert from 'node:assert/strict';
import test from 'node:test';
import { Draft, Exact, stringify } from '../assets/json.js';
import { at, fieldOf, initial, problems, put, typedJSON, typedNumber, variantOf } from '../assets/schema-form.js';

/** A field in one line: its kind, and what is in it. */
function told(f, depth = 0) {
  const null_ = f.nullable ? '?' : '';
  if (depth > 3) return '…';
  switch (f.kind) {
    case 'choice': case 'choices': return `${f.kind}${null_}(${f.options.map((o) => o.label).join(' ')})`;
    case 'const': return `const${null_}(${stringify(f.schema.const)})`;
    case 'number': return (f.integer ? 'integer' : 'number') + null_;
    case 'object': return `object${null_}{${f.members().map((m) => `${m.name}${m.required ? '*' : ''}:${told(m.field(), depth + 1)}`).join(' ')}${f.extra ? ` …:${told(f.extra(), depth + 1)}` : ''}}`;
    case 'list': return `list${null_}[${[0, 1].map((i) => { const e = f.item(i); return e ? told(e, depth + 1) : '-'; }).join(' ')}]`;
    case 'union': return `union${null_}<${f.variants.map((v) => `${v.label}=${told(v.field(), depth + 1)}`).join(' | ')}>`;
    default: return f.kind + null_;
  }
}

const object = (properties, more = {}) => ({ type: 'object', properties, ...more });

test('what form schemas ask for', () => {
  const cases = [
    // plain types
    [{ type: 'string' }, 'text'], [{ type: 'number' }, 'number'], [{ type: 'integer' }, 'integer'], [{ type: 'boolean' }, 'boolean'], [{ type: 'null' }, 'const?(null)'],
    [{ type: 'object' }, 'object{ …:json}'], [{ type: 'array' }, 'list[json json]'], [{}, 'json'], [true, 'json'], [{ type: 'whatever' }, 'json'],
    // types that are not said
    [{ properties: { a: { type: 'string' } } }, 'object{a:text}'], [{ items: { type: 'integer' } }, 'list[integer integer]'], [{ minLength: 1 }, 'text'], [{ minimum: 1 }, 'number'], [{ format: 'uri' }, 'text'], [{ description: 'x' }, 'json'],
    // lists of types
    [{ type: ['string', 'null'] }, 'text?'], [{ type: ['string'] }, 'text'], [{ type: ['string', 'number'] }, 'union<string=text | number=number>'], [{ type: ['integer', 'number'] }, 'number'], [{ type: ['string', 'integer', 'null'] }, 'union?<string=text | integer=integer>'],
    [{ type: 'string', nullable: true }, 'text?'],
    // choices
    [{ enum: ['a', 'b'] }, 'choice(a b)'], [{ type: 'string', enum: ['a', null] }, 'choice?(a)'], [{ enum: [1, true, 'x', { a: 1 }] }, 'choice(1 true x {"a":1})'], [{ const: 5 }, 'const(5)'], [{ enum: ['a', 'b'], enumNames: ['A', 'B'] }, 'choice(A B)'],
    [{ oneOf: [{ const: 'r', title: 'Red' }, { const: 'g', title: 'Green' }] }, 'choice(Red Green)'], [{ type: 'string', anyOf: [{ const: 'r' }, { const: null }] }, 'choice?(r)'], [{ enum: [''] }, 'choice((empty text))'],
    [{ type: 'array', items: { enum: ['a', 'b'] } }, 'choices(a b)'], [{ type: 'array', items: { anyOf: [{ const: 'x', title: 'X' }] } }, 'choices(X)'],
    // null collapses
    [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, 'text?'], [{ oneOf: [{ type: 'null' }, object({ a: { type: 'integer' } }, { additionalProperties: false })] }, 'object?{a:integer}'], [{ anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'null' }] }, 'union?<string=text | integer=integer>'],
    [{ anyOf: [{ type: 'string' }], title: 'T' }, 'text'], [{ anyOf: [{ type: 'array', items: { type: 'string' } }, { type: 'null' }], default: null }, 'list?[text text]'],
    // objects
    [object({ a: { type: 'string' }, b: { type: 'integer' } }, { required: ['b'] }), 'object{b*:integer a:text}'], [object({}, { required: ['x'], additionalProperties: false }), 'object{x*:json}'],
    [object({}, { additionalProperties: { type: 'integer' } }), 'object{ …:integer}'], [object({ a: {} }, { additionalProperties: true }), 'object{a:json …:json}'], [object({}, { additionalProperties: false }), 'object{}'],
    [object({}, { patternProperties: { '^x': { type: 'string' } }, additionalProperties: false }), 'object{}'], [object({}, { patternProperties: { '^x': { type: 'string' } } }), 'object{ …:text}'], [object({ a: false, b: true }), 'object{b:json}'],
    [object({ a: object({ b: object({ c: { type: 'string' } }, { required: ['c'] }) }, { required: ['b'] }) }), 'object{a:object{b*:object{c*:text}}}'],
    // lists
    [{ type: 'array', items: { type: 'array', items: { type: 'number' } } }, 'list[list[number number] list[number number]]'], [{ type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], items: false }, 'list[text integer]'],
    [{ type: 'array', prefixItems: [{ type: 'string' }], items: false }, 'list[text -]'], [{ type: 'array', items: [{ type: 'string' }], additionalItems: { type: 'boolean' } }, 'list[text boolean]'], [{ type: 'array', items: object({ a: { type: 'string' } }) }, 'list[object{a:text} object{a:text}]'],
    // references
    [{ $ref: '#/$defs/a', $defs: { a: { type: 'string' } } }, 'text'], [object({ a: { $ref: '#/definitions/b' } }, { definitions: { b: { type: 'integer' } } }), 'object{a:integer}'], [object({ a: { $ref: '#/$defs/x~1y' } }, { $defs: { 'x/y': { type: 'boolean' } } }), 'object{a:boolean}'],
    [object({ a: { $ref: '#/$defs/a%20b' } }, { $defs: { 'a b': { type: 'boolean' } } }), 'object{a:boolean}'], [object({ a: { $ref: '#anchor' } }, { $defs: { x: { $anchor: 'anchor', type: 'number' } } }), 'object{a:number}'], [object({ a: { $ref: 'https://x.example/s' } }, { $defs: { x: { $id: 'https://x.example/s', type: 'number' } } }), 'object{a:number}'],
    [object({ a: { $ref: '#/$defs/none' } }), 'object{a:json}'], [object({ a: { $ref: 'https://elsewhere.example/schema' } }), 'object{a:json}'], [{ $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } } }, 'json'],
    [object({ next: { $ref: '#' } }), 'object{next:object{next:object{next:object{next:…}}}}'], [object({ a: { $ref: '#/$defs/a', description: 'other' } }, { $defs: { a: { type: 'string' } } }), 'object{a:text}'],
    [object({ kids: { type: 'array', items: { $ref: '#' } } }), 'object{kids:list[object{kids:list[… …]} object{kids:list[… …]}]}'], [{ $ref: '#/constructor' }, 'json'],
    // allOf
    [{ allOf: [{ type: 'string' }, { minLength: 2 }] }, 'text'], [{ allOf: [object({ a: { type: 'string' } }, { required: ['a'] }), object({ b: { type: 'integer' } })] }, 'object{a*:text b:integer}'], [{ allOf: [{ type: 'string' }, { type: 'integer' }] }, 'json'],
    [{ allOf: [{ $ref: '#/$defs/a' }], $defs: { a: { enum: ['x', 'y'] } } }, 'choice(x y)'], [{ allOf: [{ enum: ['a', 'b'] }, { enum: ['b', 'c'] }] }, 'choice(b)'], [{ type: ['integer', 'string'], allOf: [{ type: 'integer' }] }, 'integer'],
    [object({ a: { allOf: [{ type: 'number' }, { type: 'integer' }] } }), 'object{a:integer}'], [{ allOf: [{ anyOf: [{ type: 'string' }, { type: 'null' }] }] }, 'text?'],
    // unions
    [{ oneOf: [object({ kind: { const: 'a' } }), object({ kind: { const: 'b' }, n: { type: 'integer' } })] }, 'union<kind: a=object{kind:const("a")} | kind: b=object{kind:const("b") n:integer}>'],
    [{ type: 'object', properties: { id: { type: 'string' } }, anyOf: [{ required: ['id'] }, { required: ['name'] }] }, 'union<with id=object{id*:text} | with name=object{name*:json id:text}>'],
    [{ anyOf: [{ title: 'One', type: 'string' }, { type: 'string', format: 'uri' }, {}] }, 'union<One=text | string (uri)=text | choice 3=json>'], [{ oneOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/b' }], $defs: { a: { type: 'string', title: 'A' }, b: { type: 'integer', title: 'B' } } }, 'union<A=text | B=integer>'],
    [{ anyOf: [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, { type: 'integer' }] }, 'union<choice 1=text? | integer=integer>'], [{ oneOf: [] }, 'json'], [{ oneOf: [false, { type: 'string' }] }, 'text'],
    // what is no form, for that part only
    [object({ a: { type: 'string' }, b: { not: { type: 'string' } }, c: false }), 'object{a:text b:json}'], [object({ a: 5, b: 'x', c: null }), 'object{a:json b:json c:json}'], [object({ a: { type: 5 } }), 'object{a:json}'], [object({ a: { enum: 'x' } }), 'object{a:json}'], [object('x'), 'object{ …:json}'],
    [object({ __proto__x: { type: 'string' } }), 'object{__proto__x:text}'],
  ];
  for (const [schema, want] of cases) assert.equal(told(fieldOf(schema)), want, JSON.stringify(schema));
  assert.ok(cases.length > 70);
});

test('titles, hints and reasons', () => {
  assert.equal(fieldOf({ type: 'string', title: 'T', description: 'D' }).title, 'T');
  assert.equal(fieldOf({ type: 'string', description: 7 }).description, '');
  for (const [schema, hint] of [
    [{ type: 'string', format: 'date' }, 'date'], [{ type: 'string', minLength: 1, maxLength: 5 }, 'string, 1 to 5 characters'], [{ type: 'integer', minimum: 0 }, 'integer, at least 0'], [{ type: 'number', maximum: 9, exclusiveMinimum: 1 }, 'number, at most 9, above 1'],
    [{ type: 'array', maxItems: 3 }, 'array, at most 3 items'], [{ type: 'integer', multipleOf: 5 }, 'integer, a multiple of 5'], [{ type: 'string', pattern: '^a' }, 'string, matches ^a'], [{ const: 1 }, 'always 1'],
  ]) assert.equal(fieldOf(schema).hint, hint, JSON.stringify(schema));
  assert.match(fieldOf({ $ref: '#/x' }).why, /leads nowhere/);
  assert.match(fieldOf({ allOf: [{ type: 'string' }, { type: 'object' }] }).why, /at once/);
  assert.match(fieldOf({ $ref: '#' }).why, /circle/);
});

test('a field that was not touched is sent with its default only', () => {
  for (const [schema, want] of [
    [object({ a: { type: 'string' }, b: { type: ['string', 'null'] } }), '{}'], [object({ a: { type: 'string', default: 'x' } }), '{"a":"x"}'], [object({ a: { type: 'string', default: 'x' } }, { required: ['a'] }), '{"a":"x"}'],
    [object({ a: { const: 1 }, b: { const: 2 } }, { required: ['a'] }), '{"a":1}'], [object({ a: object({ b: { const: 1 }, c: { type: 'string' } }, { required: ['b', 'c'] }) }, { required: ['a'] }), '{"a":{"b":1}}'],
    [object({ a: object({ b: { const: 1 } }, { required: ['b'] }) }), '{}'], [object({ a: { type: 'array', minItems: 1 } }, { required: ['a'] }), '{}'], [object({ a: { $ref: '#' } }, { required: ['a'] }), undefined],
    [{ oneOf: [object({ kind: { const: 'a' } }, { required: ['kind'] }), object({})] }, '{"kind":"a"}'], [object({ a: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null } }), '{}'],
    [object({ a: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null } }, { required: ['a'] }), '{"a":null}'],
  ]) {
    const got = initial(fieldOf(schema));
    if (want) assert.equal(stringify(got), want, JSON.stringify(schema));
  }
});

test('what is wrong with values', () => {
  const schema = object({
    name: { type: 'string', minLength: 2, maxLength: 4 }, age: { type: 'integer', minimum: 0, maximum: 150 }, ratio: { type: 'number', exclusiveMaximum: 1 }, when: { type: 'string', format: 'date' }, at: { type: 'string', format: 'date-time' }, mail: { type: 'string', format: 'email' }, to: { type: 'string', format: 'uri' },
    code: { type: 'string', pattern: '^[a-z]+$' }, odd: { type: 'string', pattern: '(' }, on: { type: 'boolean' }, colour: { enum: ['red', 2] }, tags: { type: 'array', items: { enum: ['x', 'y'] }, minItems: 1, maxItems: 2 }, list: { type: 'array', items: { type: 'integer' }, uniqueItems: true }, pair: { type: 'array', prefixItems: [{ type: 'string' }], items: false },
    nested: object({ a: { type: 'string' } }, { required: ['a'], additionalProperties: false }), either: { anyOf: [{ type: 'string' }, { type: 'integer' }] }, maybe: { type: ['integer', 'null'] }, any: {}, map: object({}, { additionalProperties: { type: 'integer' } }),
  }, { required: ['name'] });
  const field = fieldOf(schema);
  for (const [value, want] of [
    [{ name: 'ann' }, ''], [{}, 'name is required'], [{ name: 'a' }, 'name must have at least 2 characters'], [{ name: 'abcde' }, 'name must have at most 4 characters'], [{ name: '👩👩👩👩' }, ''], [{ name: 5 }, 'name must be text'],
    [{ age: 5.5 }, 'age must be a whole number'], [{ age: -1 }, 'age must be at least 0'], [{ age: 151 }, 'age must be at most 150'], [{ age: '5' }, 'age must be a whole number'], [{ age: new Exact('5.0') }, ''], [{ age: new Draft('5x') }, 'age must be a whole number'], [{ age: new Exact('12345678901234567890') }, 'age must be at most 150'],
    [{ ratio: 1 }, 'ratio must be below 1'], [{ ratio: new Exact('0.50') }, ''], [{ when: '2026-07-28' }, ''], [{ when: '28.7.2026' }, 'when must be a date such as 2026-07-28'], [{ when: '2026-13-01' }, 'when must be a date such as 2026-07-28'], [{ at: '2026-07-28T10:00:00Z' }, ''], [{ at: '2026-07-28' }, 'at must be a time such as 2026-07-28T10:30:00Z'],
    [{ mail: 'a@b' }, ''], [{ mail: 'ab' }, 'mail must be an email address'], [{ to: 'urn:x' }, ''], [{ to: 'x y' }, 'to must be a URI'], [{ code: 'Ab' }, 'code must match ^[a-z]+$'], [{ odd: 'x' }, ''], [{ on: 'true' }, 'on must be true or false'],
    [{ colour: 'blue' }, 'colour must be one of red, 2'], [{ colour: 2 }, ''], [{ tags: [] }, 'tags must have at least 1 items'], [{ tags: ['x', 'y', 'x'] }, 'tags must have at most 2 items'], [{ tags: ['z'] }, 'tags has an item that is none of the choices'], [{ list: [1, 1] }, 'list must not have the same item twice'], [{ list: [1, 'x'] }, 'list.1 must be a whole number'], [{ list: {} }, 'list must be a list'],
    [{ pair: ['a', 'b'] }, 'pair.1 has no place here'], [{ nested: {} }, 'nested.a is required'], [{ nested: { a: 'x', b: 1 } }, 'nested.b is not known here'], [{ nested: [] }, 'nested must be an object'], [{ either: 'x' }, ''], [{ either: 7 }, ''], [{ either: true }, 'either must be text'],
    [{ maybe: null }, ''], [{ maybe: 'x' }, 'maybe must be a whole number'], [{ any: new Draft('{') }, 'any is no JSON yet'], [{ any: [1] }, ''], [{ map: { a: 1, b: 'x' } }, 'map.b must be a whole number'], [{ unknown: 1 }, ''],
  ]) {
    const full = 'name' in value || want === 'name is required' ? value : { name: 'ann', ...value };
    assert.equal(problems(field, full).map((p) => [p.path.join('.'), p.message].filter(Boolean).join(' ')).join('; '), want, stringify(value));
  }
});

test('the variant that a value is of', () => {
  const field = fieldOf({ oneOf: [object({ kind: { const: 'a' }, n: { type: 'integer' } }, { required: ['kind'] }), object({ kind: { const: 'b' }, s: { type: 'string' } }, { required: ['kind'] }), { type: 'string' }] });
  for (const [value, want] of [[{ kind: 'a' }, 0], [{ kind: 'b', s: 'x' }, 1], ['x', 2], [{ s: 'x' }, 0], [5, 0]]) assert.equal(variantOf(field, value), want, JSON.stringify(value));
});

test('parts of values', () => {
  const value = { a: [1, { b: 2 }] };
  assert.equal(at(value, ['a', 1, 'b']), 2);
  assert.equal(at(value, ['x', 1, 'b']), undefined);
  assert.deepEqual(put(value, ['a', 1, 'b'], 3), { a: [1, { b: 3 }] });
  assert.deepEqual(value, { a: [1, { b: 2 }] }, 'nothing is changed in place');
  assert.deepEqual(put({ a: 1, b: 2 }, ['a'], undefined), { b: 2 });
  assert.deepEqual(put(undefined, ['a', 0], 'x'), { a: ['x'] });
  assert.deepEqual(put({}, ['a', 'b'], undefined), {});
  const odd = put({}, ['__proto__'], { polluted: true });
  assert.equal(stringify(odd), '{"__proto__":{"polluted":true}}');
  assert.equal({}.polluted, undefined);
});

test('what is typed', () => {
  assert.equal(typedNumber(''), undefined);
  assert.equal(typedNumber(' 5 '), 5);
  assert.equal(String(typedNumber('12345678901234567890')), '12345678901234567890');
  assert.ok(typedNumber('5x') instanceof Draft);
  assert.equal(typedJSON(' '), undefined);
  assert.deepEqual(typedJSON('{"a":1}'), { a: 1 });
  assert.equal(stringify({ a: typedJSON('{"a":') }), '{"a":{"a":}', 'the JSON view shows what was typed');
});

test('a pattern that may take forever is for the server', () => {
  const wrong = (pattern, value) => problems(fieldOf({ type: 'string', pattern }), value).length;
  const many = `${'a'.repeat(40)}!`;
  for (const pattern of ['^(a+)+$', '^((a+)b?)*$', '^(a|a)*$', '^(a?){40}$', '^(a|aa)+$', `^${'a?'.repeat(40)}${'a'.repeat(41)}$`, '^(?:a*)*$', '^(?<x>[a]+){2,}$']) assert.equal(wrong(pattern, many), 0, pattern);
  assert.equal(wrong('a*a*a*a*$', `${'a'.repeat(900)}!`), 0);
  assert.equal(wrong('^a$', 'b'.repeat(1001)), 0);
  for (const pattern of ['^[a-z]+$', '^(a|b|c)$', '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', '^[(+*]$', '^\\(\\+\\)*$', '^[^@]+@[^@]+\\.[a-z]+$', '^v?\\d+\\.\\d+(-\\w+)?$']) assert.equal(wrong(pattern, '1?'), 1, pattern);
});

test('parts that name each other again and again end', () => {
  const $defs = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`d${i}`, { allOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}`, title: String(i) }] }]));
  fieldOf({ $ref: '#/$defs/d0', $defs });
  const self = { type: 'object', properties: { a: { $ref: '#' }, b: { $ref: '#' } }, required: ['a', 'b'] };
  initial(fieldOf(self));
});

test('members may have names of prototypes', () => {
  const f = fieldOf({ type: 'object', properties: { constructor: { type: 'string' }, toString: { type: 'string' } }, required: ['toString'] });
  assert.deepEqual(problems(f, {}).map((p) => `${p.path} ${p.message}`), ['toString is required']);
  assert.equal(at({}, ['constructor', 'name']), undefined);
  assert.equal(stringify(initial(fieldOf(JSON.parse('{"type":"object","properties":{"__proto__":{"const":1}},"required":["__proto__"]}')))), '{"__proto__":1}');
});
