import assert from 'node:assert/strict';
import test from 'node:test';
import { Store } from '../assets/store.js';

/** The streams that were opened, and the requests that were made, each with what answers it. */
const streams = [];
const requests = [];
globalThis.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 0;
  constructor(address) { super(); this.address = address; streams.push(this); }
  close() { this.readyState = 2; }
  tell(type, data) { this.dispatchEvent(Object.assign(new Event(type), { data: JSON.stringify(data) })); }
};
globalThis.fetch = (address) => new Promise((answer) => {
  requests.push({ address, answer: (status, body) => answer({ ok: status === 200, status, json: async () => body, headers: new Headers() }) });
});

const settled = () => new Promise((done) => setImmediate(done));

test('who signs in next sees nothing of who has signed out, and has a stream', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const store = new Store();
  store.me = { principal: 'ops', act: true };
  store.watch(['servers', 'log']);
  await settled();
  streams[0].tell('snapshot', { status: { servers: [{ name: 'files' }] }, calls: { recent: [{ id: '1', began: '1' }] }, sessions: { total: 1 }, lines: [{ msg: 'of the operator' }] });
  assert.equal(store.state.lines.length, 1);
  store.paused = true;

  store.forget();
  assert.equal(streams[0].readyState, 2);
  assert.deepEqual([store.me, store.paused, store.live], [undefined, false, false]);
  assert.deepEqual({ ...store.state }, { calls: new Map(), lines: [], messages: [], dropped: 0, totals: [] });

  store.watch(['servers', 'log']); // the same page of somebody else
  await settled();
  assert.equal(streams.length, 2, 'the same topics are followed again');
  streams[1].tell('snapshot', { status: { servers: [] } });
  assert.ok(store.live);
  store.stop();
});

test('messages have numbers and a bound, and what is missed is counted', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const store = new Store();
  store.watch(['traffic'], '&payloads=true');
  await settled();
  const stream = streams.at(-1);
  assert.match(stream.address, /topics=traffic&payloads=true$/);
  stream.tell('snapshot', {});
  for (let i = 0; i < 2100; i++) stream.tell('message', { id: String(i) });
  assert.equal(store.state.messages.length, 2000);
  assert.deepEqual([store.state.messages[0].id, store.state.messages.at(-1).n], ['100', 2100]);
  stream.dispatchEvent(new Event('error'));
  assert.equal(store.live, false);
  stream.tell('resumed', { missed: 7 });
  assert.deepEqual([store.live, store.state.dropped], [true, 7]);
  store.watch(['traffic'], '&payloads=true');
  await settled();
  assert.equal(streams.at(-1), stream, 'the same is not followed anew');
  store.watch(['traffic']);
  await settled();
  assert.notEqual(streams.at(-1), stream, 'another query is');
  store.stop();
});

test('an answer that comes after the end changes nothing, and nothing is asked again', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const store = new Store();
  requests.length = 0;
  store.watch(['log']); // no stream comes: it asks
  await settled();
  assert.equal(requests.length, 1);
  store.forget();
  requests[0].answer(200, { lines: [{ msg: 'of who was here before' }] });
  await settled();
  assert.deepEqual(store.state.lines, []);
  t.mock.timers.tick(60000);
  await settled();
  assert.equal(requests.length, 1);
});

test('the rights of who is signed in are asked again', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const store = new Store();
  store.me = { principal: 'ops', act: true };
  store.watch(['servers']);
  await settled();
  streams.at(-1).tell('snapshot', { status: { servers: [] } });
  requests.at(-1).answer(200, { servers: [] }); // what it asked before there was a stream
  await settled();
  t.mock.timers.tick(4000);
  const asked = requests.find((r) => /\/me$/.test(r.address));
  asked.answer(200, { principal: 'ops', act: false });
  await settled();
  assert.equal(store.me.act, false);
  store.stop();
});

test('a tab in the back has no stream and asks nothing, and has one when it is in front again', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const tab = globalThis.document = Object.assign(new EventTarget(), { hidden: true });
  const turn = (hidden) => { tab.hidden = hidden; tab.dispatchEvent(new Event('visibilitychange')); };
  t.after(() => { delete globalThis.document; });
  const store = new Store();
  const [before, asked] = [streams.length, requests.length];
  store.watch(['servers']); // it was opened in the back
  await settled();
  t.mock.timers.tick(60000);
  await settled();
  assert.deepEqual([streams.length, requests.length], [before, asked]);
  turn(false);
  await settled();
  assert.equal(streams.length, before + 1);
  streams.at(-1).tell('snapshot', { status: { servers: [] } });
  assert.ok(store.live);
  turn(true);
  assert.deepEqual([streams.at(-1).readyState, store.live], [2, false]);
  t.mock.timers.tick(60000);
  await settled();
  assert.deepEqual([streams.length, requests.length], [before + 1, asked]);
  turn(false);
  await settled();
  assert.equal(streams.length, before + 2);
  store.stop();
  turn(true);
  turn(false);
  await settled();
  assert.equal(streams.length, before + 2, 'nothing is followed any more');
});

test('three tabs have a stream, others ask until one of them is closed', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  globalThis.document = Object.assign(new EventTarget(), { hidden: false });
  const held = new Set();
  const locks = {
    async request(name, { ifAvailable }, use) {
      if (held.has(name)) return use(null);
      assert.ok(ifAvailable);
      held.add(name);
      await use({ name });
      held.delete(name);
    },
  };
  const had = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  t.after(() => {
    delete globalThis.document;
    if (had) Object.defineProperty(globalThis, 'navigator', had);
    else delete globalThis.navigator;
  });
  const [before, asked] = [streams.length, requests.length];
  const tabs = Array.from({ length: 4 }, () => new Store());
  for (const tab of tabs) {
    tab.watch(['servers']);
    await settled();
  }
  assert.equal(streams.length, before + 3);
  assert.equal(requests.slice(asked).filter((r) => /status$/.test(r.address)).length, 4, 'each asks');
  tabs[0].watch(['servers', 'log']);
  await settled();
  assert.equal(streams.length, before + 4, 'it keeps its place for other topics');
  tabs[0].stop();
  await settled();
  t.mock.timers.tick(5000);
  await settled();
  assert.equal(streams.length, before + 5);
  for (const tab of tabs) tab.stop();
  await settled();
  assert.equal(held.size, 0, 'no place stays taken');
});

test('the bridge counts as lost while nobody answers, and is followed anew when it answers', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1000 });
  const tab = globalThis.document;
  delete globalThis.document;
  const fetch = globalThis.fetch;
  let answers = async () => { throw new TypeError('fetch failed'); };
  globalThis.fetch = (address) => { requests.push({ address }); return answers(); };
  const body = (status, value) => async () => ({ ok: status === 200, status, json: async () => value, headers: new Headers() });
  const store = new Store();
  store.watch(['servers']);
  await settled();
  const stream = streams.at(-1);
  stream.tell('snapshot', { status: { servers: [] } });
  assert.equal(store.lost, undefined);
  stream.dispatchEvent(new Event('error'));
  await settled();
  assert.equal(store.lost, Date.now());
  const since = store.lost;
  t.mock.timers.tick(1500);
  await settled();
  assert.equal(store.lost, since, 'the time of the first failure stays');
  answers = body(502, null); // a proxy that finds no bridge
  t.mock.timers.tick(1500);
  await settled();
  assert.equal(store.lost, since);
  answers = body(403, { error: { code: 'forbidden', message: 'no' } }); // it answers
  t.mock.timers.tick(1500);
  await settled();
  assert.equal(store.lost, undefined);
  assert.notEqual(streams.at(-1), stream, 'it is followed anew at once');
  store.forget();
  globalThis.fetch = fetch;
  globalThis.document = tab;
});
