import assert from 'node:assert/strict';
import test from 'node:test';
import './fake-dom.mjs';

globalThis.customElements = { define() {} };
const { exchanges, passed, way } = await import('../assets/exchanges.js');
const { clientOf, outcomeText } = await import('../assets/names.js');

let n = 0;
/** @param {string} side @param {string} to @param {string} kind @param {object} [more] */
const m = (side, to, kind, more = {}) => ({ n: ++n, at: new Date(1e12 + n * 10).toISOString(), side, to, kind, server: 'files', method: 'tools/call', name: 'read', ...more });
const numbers = (list) => list.map((e) => passed(e).map((x) => x.n));

test('a request, its answer, and both sides', () => {
  n = 0;
  assert.deepEqual(numbers(exchanges([
    m('client', 'server', 'request', { id: '1', session: 'a' }), m('server', 'server', 'request', { id: '7' }),
    m('server', 'client', 'result', { id: '7', took_ms: 10 }), m('client', 'client', 'result', { id: '1', session: 'a', took_ms: 30 }),
  ])), [[1, 2, 3, 4]]);
});

test('calls at the same time, with the same ids on several connections', () => {
  n = 0;
  assert.deepEqual(numbers(exchanges([
    m('client', 'server', 'request', { id: '1', session: 'a' }), m('server', 'server', 'request', { id: '7' }),
    m('client', 'server', 'request', { id: '1', session: 'b' }), m('server', 'server', 'request', { id: '7' }),
    m('server', 'client', 'result', { id: '7', took_ms: 10 }), m('client', 'client', 'result', { id: '1', session: 'b', took_ms: 30 }),
    m('server', 'client', 'error', { id: '7', took_ms: 50 }), m('client', 'client', 'error', { id: '1', session: 'a', took_ms: 70 }),
  ])), [[1, 2, 7, 8], [3, 4, 5, 6]]);
});

test('what a server asks, a name with a prefix, and what has no other side', () => {
  n = 0;
  assert.deepEqual(numbers(exchanges([
    m('client', 'server', 'request', { id: '1', session: 'a', server: '', name: 'files__read' }), m('server', 'server', 'request', { id: '7' }),
    m('server', 'client', 'request', { id: '3', method: 'elicitation/create', name: undefined }), m('client', 'client', 'request', { id: 'x', session: 'a', method: 'elicitation/create', name: undefined }),
    m('client', 'server', 'result', { id: 'x', session: 'a', method: 'elicitation/create', name: undefined }), m('server', 'server', 'result', { id: '3', method: 'elicitation/create', name: undefined }),
    m('server', 'client', 'result', { id: '99' }), m('server', 'server', 'request', { id: '8', method: 'ping', name: undefined }),
  ])), [[1, 2], [3, 4, 5, 6], [7], [8]]);
});

test('notifications are paired while they are near', () => {
  n = 0;
  const first = m('server', 'client', 'notification', { method: 'notifications/progress', name: '1' });
  const later = m('client', 'client', 'notification', { method: 'notifications/progress', name: '1' });
  assert.deepEqual(numbers(exchanges([first, later])), [[1, 2]]);
  assert.deepEqual(numbers(exchanges([first, { ...later, at: new Date(1e12 + 5000).toISOString() }])), [[1], [2]]);
});

test('words for both ends, and for outcomes', () => {
  const state = { sessions: { sessions: [{ id: 'a', client: 'Cursor 1' }] } };
  assert.equal(way(state, m('client', 'server', 'request', { session: 'a' })), 'from client Cursor v1');
  assert.equal(way(state, m('server', 'server', 'request')), 'to server files');
  assert.equal(clientOf(state, { session: 'b', principal: 'ops' }), 'ops');
  assert.equal(clientOf(state, {}), 'a stateless client');
  assert.deepEqual(['ok', 'circuit_open', 'new_one', undefined].map(outcomeText), ['OK', 'Circuit open', 'new_one', 'Active']);
});
