import assert from 'node:assert/strict';
import test from 'node:test';
import './fake-dom.mjs';

globalThis.customElements ??= { define() {} };
const { byServer, failing, merge: mergeOf, missing, sentence, shares, users } = await import('../assets/figures.js');
const { ticks, written } = await import('../assets/chart.js');
const { layout } = await import('../assets/topology.js');

const merge = (had, now) => mergeOf(had, now, 4);
const step = 5000;
const answer = (to, servers, total, marks = []) => ({ step, to, total, servers, marks });

test('new buckets follow the old ones, and the oldest go', () => {
  const first = answer(20000, [{ server: 'a', calls: [1, 2, 3, 4] }, { server: 'b' }], { calls: [1, 2, 3, 4], p50: [1, null, 2, 3] }, [{ at: 1000, text: 'old' }, { at: 19000, text: 'kept' }]);
  const next = merge(first, answer(30000, [{ server: 'a' }, { server: 'b', calls: [0, 7], errors: [0, 1] }], { calls: [0, 7], p50: [null, 9] }, [{ at: 19000, text: 'kept' }, { at: 29000, text: 'new' }]));
  assert.deepEqual(next.total, { calls: [3, 4, 0, 7], p50: [2, 3, null, 9] });
  assert.deepEqual(next.servers, [{ server: 'a', calls: [3, 4, 0, 0] }, { server: 'b', calls: [0, 7], errors: [0, 1] }]);
  assert.deepEqual(next.marks.map((m) => m.text), ['kept', 'new']);
  assert.equal(next.to, 30000);
});

test('nothing new changes nothing, a long gap starts anew, and a quiet server stays the same object', () => {
  const first = answer(20000, [{ server: 'a' }], { calls: [1] });
  assert.deepEqual(merge(first, answer(20000, [{ server: 'a' }], { calls: [] })), first);
  assert.equal(merge(first, answer(25000, [{ server: 'a' }], {})).servers[0], first.servers[0]);
  const late = answer(90000, [], { calls: [5] });
  assert.equal(merge(first, late), late);
  assert.equal(merge(undefined, late), late);
  const restarted = answer(10000, [], { calls: [5] });
  assert.equal(merge(first, restarted), restarted, 'its clock was set back');
});

test('one server alone is merged too', () => {
  const one = (to, calls) => ({ step, to, server: 'a', calls, marks: [] });
  assert.deepEqual(merge(one(10000, [1, 2, 3, 4]), one(15000, [5])), one(15000, [2, 3, 4, 5]));
});

test('the busiest servers have colours that stay theirs, and the others are one', () => {
  const colours = new Map();
  const servers = Array.from({ length: 12 }, (_, i) => ({ server: `s${i}`, calls: [0, 5 * (12 - i)] }));
  const first = byServer({ step, servers }, colours);
  assert.deepEqual(first.map((s) => s.name), ['s0', 's1', 's2', 's3', 's4', 's5', 's6', '5 others']);
  assert.deepEqual(first.at(-1).values, [0, 5 + 4 + 3 + 2 + 1]);
  assert.equal(new Set(first.map((s) => s.colour)).size, 8);
  const had = colours.get('s3');
  servers[3].calls = [900, 900];
  assert.equal(byServer({ step, servers }, colours)[0].colour, had);
  assert.deepEqual(byServer({ step, servers: [{ server: 'quiet' }] }, colours), []);
});

test('shares are of the calls of the last half minute', () => {
  assert.deepEqual(shares([1], [4, 0, 1]), [0, 0, 20]);
  assert.deepEqual(shares([5, 0, 0, 0, 0, 0, 1], [5, 0, 0, 0, 0, 3, 2]), [100, 100, 100, 100, 100, 62.5, 20]);
});

test('the tools that fail most often come first, also those that fail fast', () => {
  const tool = (tool, errors, tool_errors) => ({ tool, errors, tool_errors });
  const all = [tool('slow', 0, 0), tool('fails', 0, 9), tool('lost', 7, 0), tool('both', 5, 5), tool('rare', 0, 1)];
  assert.deepEqual(failing(all, 3).map((t) => t.tool), ['both', 'fails', 'lost']);
});

test('servers that are missing from lists are one sentence', () => {
  const lacks = (name, n) => ({ name, state: 'ready', missing_from_lists: n, missing_from_lists_why: 'it is still starting' });
  assert.equal(missing([{ name: 'files', state: 'ready' }]), '');
  assert.equal(missing([lacks('a', 1), { name: 'files', state: 'ready' }, lacks('b', 3)]), 'Missing from the lists of clients: a (1 client: it is still starting), b (3 clients: it is still starting)');
  assert.match(missing([...'abcdefghij'].map((name) => lacks(name, 1))), /h \(1 client: it is still starting\) and 2 more$/);
});

test('the state is one sentence', () => {
  const say = (status) => { const { tone, text, names } = sentence({ ready: true, ...status }); return `${tone}: ${text}${names.join(', ')}`; };
  const [fine, failing] = [{ name: 'files', state: 'ready' }, { name: 'tickets', state: 'failing' }];
  assert.equal(say({ servers: [fine, failing, { name: 'memory', state: 'idle' }] }), 'busy: 1 of 3 servers failing: tickets');
  assert.equal(say({ servers: [fine, { ...fine, name: 'b' }] }), 'good: All 2 servers working');
  assert.equal(say({ servers: [fine] }), 'good: The server is working');
  assert.equal(say({ ready: false, servers: [failing] }), 'bad: The server is failing: tickets');
  assert.equal(say({ servers: [fine, { name: 'b', state: 'ready', circuit_breaker: 'open' }] }), 'busy: 1 of 2 servers refused by the circuit breaker: b');
  assert.equal(say({ servers: [fine, { name: 'b', state: 'ready', drained: {} }] }), 'busy: 1 of 2 servers drained: b');
  assert.equal(say({ ready: false, drained: {}, reason: 'drained by an operator', servers: [fine] }), 'busy: The bridge is drained by an operator: current clients are still served');
  assert.equal(say({ ready: false, draining: true, servers: [fine] }), 'busy: The bridge is stopping');
  assert.equal(say({ servers: [] }), 'busy: No servers yet: add one to the configuration');
  assert.equal(say({ ready: false, reason: 'no store', servers: [] }), 'bad: Not ready: no store');
});

test('an axis has round values', () => {
  assert.deepEqual(ticks(186, '/s'), [0, 50, 100, 150]);
  assert.deepEqual([ticks(1, ''), ticks(2.2, ''), ticks(8, ''), ticks(70, '')], [[0, 1], [0, 1, 2], [0, 2, 4, 6, 8], [0, 20, 40, 60]], 'counts are whole');
  assert.deepEqual(ticks(1, '/s'), [0, 0.5, 1]);
  assert.deepEqual(ticks(3 << 20, 'bytes').map((v) => written(v, 'bytes')), ['0 B', '1.0 MB', '2.0 MB', '3.0 MB']);
  assert.deepEqual([written(null, 'ms'), written(5.25, '%'), written(1234.5, '/s'), written(2, 'calls')], ['–', '5.3 %', '1,235/s', '2 calls']);
});

test('the picture has a box for each, and groups what there are many of', () => {
  const states = Array.from({ length: 50 }, (_, i) => ({ name: `s${i}`, state: i === 40 ? 'failing' : 'idle' }));
  const t = {
    clients: [{ client: 'a 1.0', transport: 'streamable', address: '/mcp', sessions: 2, rate: 3, calls: 9, servers: [{ server: 's7', rate: 3, calls: 8 }, { server: 's1', rate: 0, calls: 1 }] }, { client: 'b', transport: 'stateless', address: '/s1/mcp', sessions: 0, rate: 0, calls: 1, servers: [{ server: 's1', rate: 0, calls: 1 }] }],
    addresses: [{ path: '/mcp', rate: 3 }, { path: '/s1/mcp', rate: 0 }],
    edges: [{ address: '/mcp', server: 's7', rate: 3 }, { address: '/s1/mcp', server: 's1', rate: 0 }], servers: [{ server: 's7', rate: 3, error_rate: 0 }],
  };
  const { nodes, edges } = layout(t, states);
  const column = (n) => nodes.filter((b) => b.column === n).map((b) => [b.name, b.tone]);
  assert.deepEqual(column(3), [['s40', 'failing'], ['s7', ''], ['48 more', 'cold']]);
  assert.deepEqual(column(1), [['/mcp', ''], ['/s1/mcp', 'cold']]);
  assert.equal(edges.find((e) => e.to === 's:s40').tone, 'failing');
  const way = edges.find((e) => e.to === 's:s7');
  assert.equal(way.rate, 3);
  assert.ok(way.through.has('c:0:a 1.0') && way.through.has('a:/mcp'), 'it lights up with its client and address');
  assert.ok(!way.through.has('c:1:b'));
  assert.match(nodes.find((b) => b.name === 'a v1.0').said, /9 calls in all\. Uses s7 \(3\/s\), s1 \(quiet\)$/);
  assert.match(nodes.find((b) => b.name === 's7').said, /Used by a v1\.0 \(3\/s\)$/);
  assert.deepEqual(users(t).get('s1'), [{ client: 'a 1.0', rate: 0, calls: 1 }, { client: 'b', rate: 0, calls: 1 }]);
  assert.deepEqual(layout(t, states.slice(0, 8)).nodes.filter((b) => b.column === 3).map((b) => b.name), ['s0', 's1', 's2', 's3', 's4', 's5', 's6', 's7'], 'few stand in the order of the file');
});
