import assert from 'node:assert/strict';
import test from 'node:test';
import { callRows, early, foldedLines } from '../assets/filter.js';
import { bare } from '../assets/names.js';

const at = (/** @type {number} */ s) => new Date(1e12 + s * 1000).toISOString();
/** @param {number} n @param {string|undefined} outcome @param {string} [name] */
const call = (n, outcome, name = 'find') => ({ id: String(n), server: 'tickets', method: 'tools/call', name, began: at(n), outcome });
const ids = (/** @type {any[]} */ rows) => rows.map((r) => (r.run ? `${r.id} ×${r.run.length}` : r.id));

test('the name of a tool without the prefix of its server', () => {
  for (const [server, name, want] of [['tickets', 'tickets__find', 'find'], ['tickets', 'find', 'find'], ['tickets', 'files__find', 'files__find'], ['tickets', 'tickets__', 'tickets__'], [undefined, 'tickets__find', 'tickets__find'], ['tickets', undefined, 'tools/call']]) {
    assert.equal(bare({ server, name, method: 'tools/call' }), want);
  }
});

test('calls that an open circuit breaker refused one after the other are one row', () => {
  const open = 'circuit_open';
  const calls = [call(9, open, 'tickets__find'), call(8, open), call(7, open), call(6, 'unavailable'), call(5, open), call(4, open, 'close'), call(3, 'ok'), call(2, 'ok')];
  assert.deepEqual(ids(callRows(calls, undefined)), ['run 7 ×3', '6', '5', '4', '3', '2']);
  assert.deepEqual(ids(callRows(calls, undefined, (id) => id === 'run 7')), ['run 7 ×3', '9', '8', '7', '6', '5', '4', '3', '2']);
  assert.deepEqual(ids(callRows([call(10, open), ...calls], undefined)).slice(0, 2), ['run 7 ×4', '6'], 'the row stays the same when others come');
  assert.deepEqual(ids(callRows([{ ...call(9, open), server: 'files' }, call(8, open)], undefined)), ['9', '8']);
});

test('what began before all calls were recorded stands apart', () => {
  const open = 'circuit_open';
  const calls = [call(1, undefined), call(9, 'ok'), call(8, open), call(3, open), call(2, open)];
  assert.deepEqual(ids(callRows(calls, at(5))), ['1', '9', '8', 'since', 'run 2 ×2'], 'a call that is active is not early');
  assert.deepEqual(ids(callRows(calls.slice(0, 3), at(5))), ['1', '9', '8']);
  assert.deepEqual(ids(callRows(calls, undefined)), ['1', '9', 'run 2 ×3']);
  assert.equal(early(call(5, 'ok'), at(5)), false);
});

test('log lines that say the same but for numbers are one row', () => {
  const line = (n, server, msg, err) => ({ n, level: 'INFO', server, msg, attrs: { err } });
  const rows = foldedLines([line(5, 'a', 'call failed', 'next attempt in 3 s'), line(4, 'b', 'call failed', 'away'), line(3, 'a', 'call failed', 'next attempt in 12 s'), line(2, 'a', 'call failed', 'lost'), line(1, 'a', 'call failed', 'next attempt in 0.5 s')]);
  assert.deepEqual(rows.map((r) => r.run.map((l) => l.n)), [[5, 3, 1], [4], [2]]);
  const far = foldedLines([line(9, 'a', 'x', 'y'), ...Array.from({ length: 5 }, (_, i) => line(i, 'a', `m${'abcde'[i]}`, 'y')), line(0, 'a', 'x', 'y')]);
  assert.equal(far.length, 7, 'one far above is another');
});
