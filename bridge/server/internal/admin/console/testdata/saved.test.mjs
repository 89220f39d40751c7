import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';

const kept = new Map();
globalThis.customElements = { define() {} };
globalThis.localStorage = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
const { routeOf } = await import('../assets/page.js');
const { addressOf, exported, imported, moved, replay, replayed, save, saved, unsave } = await import('../assets/saved.js');
const call = (name, more = {}) => ({ name, server: 'files', tool: 'read', revision: '2026-07-28', arguments: '{"a":1.0}', ...more });

test('each caller has its own saved calls, one of a name', () => {
  save('ops', call('b'));
  save('ops', call('a'));
  save('ops', call('b', { arguments: '{}' }));
  save('dev', call('c'));
  assert.deepEqual(saved('ops').map((c) => [c.name, c.arguments]), [['a', '{"a":1.0}'], ['b', '{}']]);
  unsave('ops', 'a');
  assert.deepEqual(saved('ops').map((c) => c.name), ['b']);
  assert.deepEqual(saved('dev').map((c) => c.name), ['c']);
  assert.deepEqual(saved('nobody'), []);
});

test('an address has all of a call', () => {
  const route = routeOf(addressOf(call('x', { server: 'a b/c', tool: 'größe?', arguments: '{"q":"a&b=c#d"}' })));
  assert.deepEqual(route.rest, ['a b/c', 'tools', 'größe?']);
  assert.equal(route.query.get('arguments'), '{"q":"a&b=c#d"}');
  assert.equal(route.query.get('revision'), '2026-07-28');
});

test('a file of calls keeps digits and expectations', () => {
  const file = `{"calls":[{"server":"files","tool":"read","arguments":{"n":12345678901234567890,"f":1.0},"expect":{"equals":{"structuredContent.n":1.0}}},{"name":"b","server":"*","tool":"t","revision":"2025-11-25"}]}`;
  assert.equal(imported('file', file), 2);
  assert.deepEqual(saved('file'), [
    { name: 'b', server: '*', tool: 't', revision: '2025-11-25', arguments: '{}' },
    { name: 'read', server: 'files', tool: 'read', revision: '2026-07-28', arguments: '{"n":12345678901234567890,"f":1.0}', expect: '{"equals":{"structuredContent.n":1.0}}' },
  ]);
  const text = exported(saved('file'));
  assert.match(text, /"n": 12345678901234567890,\n\s+"f": 1\.0/);
  imported('again', text);
  assert.deepEqual(saved('again'), saved('file'));
  for (const [bad, why] of [['x', /no list/], ['null', /no list/], ['[]', /no list/], ['{"calls":1}', /no list/], ['{"calls":[{"server":"x","tool":"t"},{"server":"x"}]}', /Call 2: "tool" is missing/],
    ['{"calls":[{"tool":"t"}]}', /"server" is missing/], ['{"calls":[{"server":"x","tool":"t","arguments":[]}]}', /must be an object/], ['{"calls":[{"server":"x","tool":"t","arguments":1.0}]}', /must be an object/], ['{"calls":[1]}', /missing/]]) {
    assert.throws(() => imported('none', bad), why, bad);
  }
  const many = { calls: [...Array(101).keys()].map((i) => ({ name: `${i}`, server: 'x', tool: 't' })) };
  assert.throws(() => imported('none', JSON.stringify(many)), /remove some/);
  assert.deepEqual(saved('none'), []);
});

test('a file is exported as it was imported', () => { // and 'mcp-bridge call --saved' reads it: TestSavedByConsole
  const file = readFileSync(new URL('calls.json', import.meta.url), 'utf8');
  assert.equal(imported('same', file), 2);
  assert.equal(exported(saved('same')), file);
});

test('arguments of any name are imported, and half a number is not saved', () => {
  imported('text', '{"calls":[{"server":"s","tool":"say","arguments":{"text":"hello"},"expect":{"text":"hello"}}]}');
  assert.deepEqual(saved('text').map((c) => [c.arguments, c.expect]), [['{"text":"hello"}', '{"text":"hello"}']]);
  assert.throws(() => save('text', call('half', { arguments: '{"n":12a}' })), /of half are no JSON: {"n":12a}/);
  assert.equal(saved('text').length, 1);
  assert.throws(() => exported([call('old', { arguments: '{"n":12a}' })]), /of old are no JSON/); // before, they were saved
});

test('what is saved is bounded, and what is no list of calls is none', () => {
  assert.throws(() => save('ops', call('long', { arguments: 'x'.repeat(70000) })), /too long/);
  for (let i = 0; i < 100; i++) save('many', call(`call ${i}`));
  assert.throws(() => save('many', call('one more')), /remove some/);
  save('many', call('call 5', { arguments: '{}' }));
  for (const bad of ['', 'nonsense', '{}', '[1,null,{"name":"x"}]']) {
    kept.set('saved ops', bad);
    assert.deepEqual(saved('ops'), [], bad);
  }
});

test('only the call that somebody asked for last is made again, once', () => {
  replay('#/try/a');
  assert.deepEqual([replayed('#/try/a'), replayed('#/try/a')], [true, false]);
  replay('#/try/a');
  replay('#/try/b');
  assert.deepEqual([replayed('#/try/a'), replayed('#/try/b')], [false, false], 'another address was opened');
  replay('#/try/a');
  moved('#/try/a');
  assert.equal(replayed('#/try/a'), true);
  replay('#/try/a');
  moved('#/calls');
  assert.equal(replayed('#/try/a'), false, 'they went elsewhere');
});
