import assert from 'node:assert/strict';
import test from 'node:test';

const kept = new Map();
globalThis.customElements = { define() {} };
globalThis.localStorage = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
const { routeOf } = await import('../assets/page.js');
const { addressOf, save, saved, unsave } = await import('../assets/saved.js');
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
