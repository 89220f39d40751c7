import assert from 'node:assert/strict';
import test from 'node:test';
import './fake-dom.mjs';

globalThis.customElements = { define() {} };
const { bare, lines } = await import('../assets/protocol.js');

test('each request has its answer, whichever side asked', () => {
  const all = [['server', { id: 1, method: 'tools/call' }], ['client', { method: 'notifications/progress' }], ['client', { id: 1, method: 'elicitation/create' }], ['server', { id: 1, result: {} }], ['client', { id: 1, error: { code: 1 } }], ['client', { id: 9, result: {} }]]
    .map(([to, message], n) => ({ n, at: n, to, message }));
  assert.deepEqual(lines(all).map((l) => [l.seen.n, l.answer?.n]), [[5, undefined], [2, 3], [1, undefined], [0, 4]]);
});

test('what a client adds by itself is left out', () => {
  assert.deepEqual(bare({ name: 'a', _meta: { progressToken: 1, 'io.modelcontextprotocol/protocolVersion': 'x' } }), { name: 'a' });
  assert.deepEqual(bare({ name: 'a', _meta: { progressToken: 1, mine: 2 } }), { name: 'a', _meta: { mine: 2 } });
  assert.deepEqual(bare(undefined), {});
});
