import assert from 'node:assert/strict';
import test from 'node:test';
import { passes, terms } from '../assets/filter.js';
import { Draft, Exact, exact, parse, same, stringify } from '../assets/json.js';
import { apply, empty, mostRows, rates } from '../assets/store.js';
import { bytes, clock, count, duration, link, notWhole, reason, share, visible } from '../assets/text.js';
import { expand, variables } from '../assets/uri-template.js';

test('JSON keeps its digits', () => {
  for (const text of ['12345678901234567890', '1.0', '1e400', '-0', '0.1', '1', '[1,2.50,{"a":1E5}]', '{"":null,"a b":[],"c":{}}', '"\\u2028\\"x\\\\"', '{"__proto__":{"a":1}}', 'true', '[[[]]]', '"\\\\"', '["\\"","]"]']) {
    const value = parse(text);
    assert.equal(stringify(value), text === '"\\u2028\\"x\\\\"' ? JSON.stringify(JSON.parse(text)) : text);
    assert.ok(same(value, parse(text)), text);
  }
  assert.deepEqual(parse('{"a":[1,"x",null,true]}'), { a: [1, 'x', null, true] });
  assert.equal({}.a, undefined, 'no prototype was changed');
  assert.equal(stringify({ a: [1, { b: undefined }], c: [] }, 2), '{\n  "a": [\n    1,\n    {}\n  ],\n  "c": []\n}');
  assert.equal(stringify({ a: undefined, b: 1 }), '{"b":1}');
  for (const bad of ['', '{', '01', '1.', '[1,]', '{"a":}', "{'a':1}", 'nul', '1 2']) assert.throws(() => parse(bad), SyntaxError, bad);
});

test('numbers', () => {
  assert.equal(exact('5'), 5);
  assert.equal(exact('1.5'), 1.5);
  assert.ok(exact('1.50') instanceof Exact);
  assert.ok(exact('9007199254740993') instanceof Exact);
  for (const no of ['', '1.', '+1', '01', 'x', '1e', '0x1', ' 1']) assert.equal(exact(no), undefined, no);
  assert.ok(!same(new Exact('1.0'), '1.0'));
  assert.ok(!same([1], { 0: 1 }));
  assert.ok(new Draft('x') instanceof Exact);
});

test('an error of a server is a sentence, and what its process wrote', () => {
  assert.deepEqual(reason('server a: handshake: its process has ended (exit status 3)\nits last lines on stderr:\n  boot error\n    at line 2\nopen x: no such file', 'a'),
    { said: 'It did not connect: its process has ended (exit status 3)', stderr: 'boot error\n  at line 2', more: 'open x: no such file' });
  assert.deepEqual(reason('server b: it cannot be reached', 'a'), { said: 'Server b: it cannot be reached', stderr: '', more: '' });
});

test('counts', () => {
  assert.deepEqual([0, 1, 2].map((n) => count(n, 'line')), ['0 lines', '1 line', '2 lines']);
});

test('hidden characters', () => {
  const cases = [
    ['plain ünï 日本\n\ttext', 'plain ünï 日本\n\ttext'], ['a\r\nb', 'a\nb'], ['a\rb', 'a⟦U+000D⟧b'], ['\x1b[2J', '⟦U+001B⟧[2J'], ['user\u202egnp.exe', 'user⟦U+202E⟧gnp.exe'],
    ['a\u200bb', 'a⟦U+200B⟧b'], ['\u{e0041}\u{e0042}', '⟦U+E0041⟧⟦U+E0042⟧'], ['\ufeff', '⟦U+FEFF⟧'], ['\u00adx', '⟦U+00AD⟧x'],
    ['👩\u200d💻', '👩\u200d💻'], ['❤\ufe0f', '❤\ufe0f'], ['❤\ufe0f\u200d🔥', '❤\ufe0f\u200d🔥'], ['👩🏽\u200d🚀', '👩🏽\u200d🚀'], // emoji
    ['می\u200cخواهم', 'می\u200cخواهم'], ['क्\u200dष', 'क्\u200dष'], // scripts that need joiners
    ['read\u200d_file', 'read⟦U+200D⟧_file'], ['re\u200cad', 're⟦U+200C⟧ad'], [' \u200d ', ' ⟦U+200D⟧ '],
  ];
  for (const [text, want] of cases) assert.equal(visible(text), want);
});

test('sizes, durations, links', () => {
  assert.deepEqual([0, 1023, 1024, 15000, 5e6, 7e9].map(bytes), ['0 B', '1023 B', '1.0 KB', '15 KB', '4.8 MB', '6.5 GB']);
  assert.deepEqual([0.25, 12.6, 999, 1500, 90000, 600000, 1e7, 4e8].map(duration), ['0.3 ms', '13 ms', '999 ms', '1.5 s', '90 s', '10 min', '3 h', '5 d']);
  assert.deepEqual([share(100, 400, 3000), share(100, 50, 3000), share(0, 6000, 3000), share(0, 1, 0)], ['10 %', '0 %', '200 %', '0 %']);
  assert.equal(bytes(undefined), '–');
  assert.equal(link('https://a.example/b'), 'https://a.example/b');
  for (const bad of ['javascript:alert(1)', 'ftp://x', 'x', 'data:,x', 'file:///a', 'ui://app']) assert.equal(link(bad), undefined, bad);
});

test('filters', () => {
  const row = { server: 'files', status: 'tool_error', duration: 1500, name: 'read_file', principal: undefined };
  for (const [filter, want] of [
    ['', true], ['server:files', true], ['server:fil', true], ['server:search', false], ['-server:search', true], ['-server:files', false],
    ['duration:>500', true], ['duration:>2s', false], ['duration:<2s', true], ['duration:>500ms server:files', true], ['read', true], ['READ_file', true], ['-read', false],
    ['nothing:x', false], ['-nothing:x', true], ['name:"read_file"', true], ['"ad_fi"', true], ['duration:>x', false], ['status:error files', true], ['status:ok files', false],
  ]) assert.equal(passes(terms(filter), row), want, filter);
});

test('URI templates, as RFC 6570 has them', () => {
  const values = { var: 'value', hello: 'Hello World!', empty: '', path: '/foo/bar', x: '1024', y: '768', half: '50%', pct: '%20', uni: 'ö🙂' };
  for (const [template, want] of [
    ['{var}', 'value'], ['{hello}', 'Hello%20World%21'], ['{half}', '50%25'], ['O{empty}X', 'OX'], ['O{undef}X', 'OX'], ['{x,y}', '1024,768'], ['{x,hello,y}', '1024,Hello%20World%21,768'], ['?{x,empty}', '?1024,'],
    ['{var:3}', 'val'], ['{var:30}', 'value'], ['{+var}', 'value'], ['{+hello}', 'Hello%20World!'], ['{+path}/here', '/foo/bar/here'], ['here?ref={+path}', 'here?ref=/foo/bar'], ['{+pct}', '%20'], ['{pct}', '%2520'], ['{+half}', '50%25'],
    ['{#x,hello,y}', '#1024,Hello%20World!,768'], ['{.x,y}', '.1024.768'], ['{/var,x}/here', '/value/1024/here'], ['{/var:1,var}', '/v/value'], ['{;x,y,empty}', ';x=1024;y=768;empty'],
    ['{?x,y}', '?x=1024&y=768'], ['{?x,y,empty}', '?x=1024&y=768&empty='], ['?fixed=yes{&x}', '?fixed=yes&x=1024'], ['{?undef}', ''], ['{uni}', '%C3%B6%F0%9F%99%82'], ['{uni:1}', '%C3%B6'], ['{var*}', 'value'],
    ['era://text/{x}', 'era://text/1024'],
  ]) assert.equal(expand(template, values), want, template);
  assert.deepEqual(variables('a/{x}/{?y,z*,x:3}{+p}'), ['x', 'y', 'z', 'p']);
});

test('events become the state', () => {
  const s = empty();
  apply(s, 'snapshot', { status: { ready: true, reason: '', servers: [{ name: 'a', calls: 0 }, { name: 'b', calls: 1 }], process: { calls_total: 5 } }, calls: { since: 'now', before: 2, under_way: [{ id: '3', began: '3' }], recent: [{ id: '2', began: '2', outcome: 'ok' }], failures: [{ id: '1', began: '1', outcome: 'lost' }] }, sessions: { sessions: [], total: 0 }, lines: [{ msg: 'x' }] });
  assert.deepEqual([...s.calls.keys()], ['1', '2', '3']);
  apply(s, 'status', { ready: false, reason: 'no', servers: [{ name: 'b', calls: 7 }, { name: 'c' }], removed: ['a'], process: { calls_total: 9 } });
  assert.deepEqual(s.status.servers.map((r) => [r.name, r.calls]), [['b', 7], ['c', undefined]]);
  assert.equal(s.status.reason, 'no');
  apply(s, 'status', { ready: true, servers: [] });
  assert.equal(s.status.reason, undefined, 'a reason that is not told is over');
  apply(s, 'call.begin', { id: '4', began: '4' });
  apply(s, 'call.mark', { id: '4', at_ms: 3, what: 'progress', text: '1/2' });
  apply(s, 'call.mark', { id: 'unknown', at_ms: 3, what: 'progress' });
  apply(s, 'call.end', { id: '4', began: '4', outcome: 'ok', took_ms: 5 });
  assert.deepEqual(s.calls.get('4'), { id: '4', began: '4', outcome: 'ok', took_ms: 5, marks: [{ at_ms: 3, what: 'progress', text: '1/2' }] });
  apply(s, 'dropped', { count: 3 });
  assert.equal(s.dropped, 3);
  for (let i = 0; i < mostRows + 10; i++) { apply(s, 'log', { msg: String(i) }); apply(s, 'call.begin', { id: `n${i}`, began: '5' }); }
  assert.equal(s.lines.length, mostRows);
  assert.equal(s.lines.at(-1).msg, String(mostRows + 9));
  assert.equal(s.calls.size, mostRows);
  assert.deepEqual(rates([{ at: 0, total: 0 }, { at: 2000, total: 10 }, { at: 3000, total: 10 }]), [5, 0]);
});

test('arguments that are not whole are not used again', () => {
  for (const whole of [undefined, {}, { arguments: '{"a":1}' }, { arguments: '{"a":1}', result: '{"b":"[redacted]"}', cut: ['result'] }]) assert.equal(notWhole(whole), '', JSON.stringify(whole));
  assert.match(notWhole({ arguments: '{"text":"x…"}', cut: ['arguments', 'result'] }), /too long/);
  assert.match(notWhole({ cut: ['arguments'] }), /too long/);
  assert.match(notWhole({ arguments: '{"password":"[redacted]"}' }), /secret/);
});

test('names of prototypes are no values', () => {
  assert.equal(expand('x:{constructor}', {}), 'x:');
  assert.equal(passes(terms('-constructor:native'), { server: 'a' }), true);
  assert.equal(passes(terms('constructor:native'), { server: 'a' }), false);
});

test('a time of day has 24 hours', () => {
  const midnight = new Date();
  midnight.setHours(0, 5, 9);
  assert.match(clock(midnight.toISOString()), /00.05.09$/);
});
