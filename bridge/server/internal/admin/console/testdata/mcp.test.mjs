import assert from 'node:assert/strict';
import test from 'node:test';
import { Client, events, headerValue, HttpError, legacy, modern, paramHeaders, RpcError } from '../assets/mcp.js';

const prefix = 'io.modelcontextprotocol/';
const sse = (...messages) => new Response(messages.map((m) => `event: message\ndata: ${JSON.stringify(m)}\n\n`).join(''), { headers: { 'Content-Type': 'text/event-stream' } });
const json = (m, init = {}) => new Response(JSON.stringify(m), { ...init, headers: { 'Content-Type': 'application/json', ...init.headers } });
const result = (id, r) => ({ jsonrpc: '2.0', id, result: r });

/** A client before a server that answers as reply says, and what came to it. */
function rig(revision, reply, options = {}) {
  const seen = [];
  const fake = async (_url, init) => {
    init.signal?.throwIfAborted();
    const m = init.body ? JSON.parse(init.body) : { method: init.method ?? 'GET' };
    seen.push({ m, headers: init.headers, signal: init.signal });
    const answer = await reply(m, init, seen);
    if (answer) return answer;
    if (m.method === 'initialize') return json(result(m.id, { protocolVersion: legacy, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } }), { headers: { 'Mcp-Session-Id': 'S1' } });
    if (m.method === 'server/discover') return json(result(m.id, { resultType: 'complete', supportedVersions: [modern], capabilities: {}, _meta: { [`${prefix}serverInfo`]: { name: 's', version: '1' } } }));
    if (m.method === 'GET') return new Response('', { status: 405 });
    return new Response('', { status: 202 });
  };
  const client = new Client({ url: 'http://here/mcp', revision, capabilities: { elicitation: { form: {}, url: {} }, sampling: {} }, fetch: fake, headers: { 'Bridge-Console': '1' }, ...options });
  return { client, seen };
}

test('the legacy era has a session', async () => {
  const { client, seen } = rig(legacy, (m) => m.method === 'tools/call' && json(result(m.id, { content: [] })));
  await client.open();
  await client.request('tools/call', { name: 'x', arguments: {} });
  await client.close();
  assert.deepEqual(seen.map((s) => s.m.method), ['initialize', 'notifications/initialized', 'GET', 'tools/call', 'DELETE']);
  assert.equal(seen[0].headers['Mcp-Session-Id'], undefined);
  assert.equal(seen[0].m.params.protocolVersion, legacy);
  for (const s of seen.slice(1)) {
    assert.equal(s.headers['Mcp-Session-Id'], 'S1');
    assert.equal(s.headers['MCP-Protocol-Version'], legacy);
    assert.equal(s.headers['Bridge-Console'], '1');
  }
  assert.equal(seen[3].headers['Mcp-Method'], undefined);
  assert.equal(seen[3].m.params._meta, undefined);
});

test('a list that is being read when the client is closed asks for no more pages', async () => {
  for (const revision of [legacy, modern]) {
    let closing;
    const { client, seen } = rig(revision, (m) => {
      if (m.method !== 'tools/list') return undefined;
      closing = client.close();
      return json(result(m.id, { resultType: 'complete', tools: [], nextCursor: '2' }));
    });
    await client.open();
    await assert.rejects(client.list('tools/list', 'tools'), { name: 'AbortError' });
    await closing;
    assert.equal(seen.filter((s) => s.m.method === 'tools/list').length, 1, revision);
  }
});

test('_meta of the user goes along', async () => {
  for (const revision of [legacy, modern]) {
    const { client, seen } = rig(revision, (m) => m.method === 'tools/call' && json(result(m.id, { resultType: 'complete', content: [] })));
    await client.open();
    await client.request('tools/call', { name: 'x', arguments: {}, _meta: { own: 1, progressToken: 'mine' } }, { progress() {} });
    const { _meta } = seen.find((s) => s.m.method === 'tools/call').m.params;
    assert.equal(_meta.own, 1);
    assert.equal(typeof _meta.progressToken, 'number', 'the page needs its own');
    await client.close();
  }
});

test('the modern era says all with each request', async () => {
  const { client, seen } = rig(modern, (m) => m.method !== 'server/discover' && json(result(m.id, { resultType: 'complete', content: [] })));
  await client.open();
  await client.request('tools/call', { name: 'größe', arguments: { a: 1 } }, { level: 'debug', headers: { 'Mcp-Param-A': '1' } });
  await client.request('resources/read', { uri: 'file:///a' });
  await client.close();
  assert.deepEqual(seen.map((s) => s.m.method), ['server/discover', 'tools/call', 'resources/read']);
  for (const s of seen) {
    assert.equal(s.headers['MCP-Protocol-Version'], modern);
    assert.equal(s.headers['Mcp-Method'], s.m.method);
    assert.equal(s.headers['Mcp-Session-Id'], undefined);
    assert.equal(s.m.params._meta[`${prefix}protocolVersion`], modern);
    assert.deepEqual(Object.keys(s.m.params._meta[`${prefix}clientCapabilities`]), ['elicitation', 'sampling']);
  }
  assert.equal(seen[1].headers['Mcp-Name'], '=?base64?Z3LDtsOfZQ==?=');
  assert.equal(seen[1].headers['Mcp-Param-A'], '1');
  assert.equal(seen[1].m.params._meta[`${prefix}logLevel`], 'debug');
  assert.equal(seen[2].headers['Mcp-Name'], 'file:///a');
  assert.equal(client.server.serverInfo.name, 's');
});

test('headers', () => {
  for (const [text, want] of [['a b', 'a b'], ['', ''], [' a', '=?base64?IGE=?='], ['a\tb', '=?base64?YQli?='], ['=?base64?x?=', '=?base64?PT9iYXNlNjQ/eD89?='], ['é', '=?base64?w6k=?='], ['x', 'x']]) assert.equal(headerValue(text), want, text);
  const schema = { properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, n: { type: 'integer', 'x-mcp-header': 'N' }, bad: { 'x-mcp-header': 'a b' }, in: { properties: { on: { type: 'boolean', 'x-mcp-header': 'On' } } } } };
  assert.deepEqual(paramHeaders(schema, { region: 'eu', n: 5, bad: 'x', in: { on: true } }), { 'Mcp-Param-Region': 'eu', 'Mcp-Param-N': '5', 'Mcp-Param-On': 'true' });
  assert.deepEqual(paramHeaders(schema, { region: null }), {});
  assert.deepEqual(paramHeaders(undefined, {}), {});
});

test('the server asks in the legacy era', async () => {
  const asked = [];
  let done;
  const answered = new Promise((r) => { done = r; });
  const { client, seen } = rig(legacy, async (m) => {
    if (m.id === 'q1' || m.id === 'q2' || m.id === 'q3') {
      if (seen.filter((s) => /^q\d$/.test(s.m.id)).length === 3) done();
      return undefined;
    }
    if (m.method !== 'tools/call') return undefined;
    const stream = new ReadableStream({
      async start(c) {
        const put = (x) => c.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(x)}\n\n`));
        put({ jsonrpc: '2.0', id: 'q1', method: 'elicitation/create', params: { message: 'who?' } });
        put({ jsonrpc: '2.0', id: 'q2', method: 'sampling/createMessage', params: {} });
        put({ jsonrpc: '2.0', id: 'q3', method: 'roots/list' });
        await answered;
        put(result(m.id, { content: [{ type: 'text', text: 'done' }] }));
        c.close();
      },
    });
    return new Response(stream, { headers: { 'Content-Type': 'text/event-stream' } });
  }, { ask: async (r) => { asked.push(r.method); return r.method === 'elicitation/create' ? { action: 'accept', content: { name: 'kim' } } : null; } });
  await client.open();
  assert.equal((await client.request('tools/call', { name: 'x' })).content[0].text, 'done');
  const replies = Object.fromEntries(seen.filter((s) => /^q\d$/.test(s.m.id)).map((s) => [s.m.id, s.m]));
  assert.deepEqual(replies.q1.result, { action: 'accept', content: { name: 'kim' } });
  assert.equal(replies.q2.error.code, -1);
  assert.equal(replies.q3.error.code, -32601, 'roots were not declared');
  assert.deepEqual(asked, ['elicitation/create', 'sampling/createMessage']);
  await client.close();
});

test('the server asks in the modern era', async () => {
  const rounds = [];
  const { client } = rig(modern, (m) => {
    if (m.method !== 'tools/call') return undefined;
    rounds.push(m);
    if (!m.params.inputResponses) return json(result(m.id, { resultType: 'input_required', requestState: 'one', inputRequests: { who: { method: 'elicitation/create', params: { message: 'who?' } } } }));
    if (m.params.requestState === 'one') return json(result(m.id, { resultType: 'input_required', inputRequests: { what: { method: 'sampling/createMessage', params: {} } } }));
    return json(result(m.id, { resultType: 'complete', content: [{ type: 'text', text: 'done' }] }));
  }, { ask: async (r) => ({ for: r.method }) });
  await client.open();
  assert.equal((await client.request('tools/call', { name: 'x', arguments: { a: 1 } })).content[0].text, 'done');
  assert.deepEqual(rounds.map((m) => [m.params.inputResponses, m.params.requestState]), [[undefined, undefined], [{ who: { for: 'elicitation/create' } }, 'one'], [{ what: { for: 'sampling/createMessage' } }, undefined]]);
  assert.equal(new Set(rounds.map((m) => m.id)).size, 3, 'each round has an id of its own');
  assert.ok(rounds.every((m) => m.params.arguments.a === 1));
});

test('refusing what is asked in the modern era ends the call', async () => {
  const { client } = rig(modern, (m) => m.method === 'tools/call' && json(result(m.id, { resultType: 'input_required', inputRequests: { q: { method: 'sampling/createMessage', params: {} } } })), { ask: async () => null });
  await assert.rejects(client.request('tools/call', { name: 'x' }), /you refused sampling\/createMessage/);
});

test('what the client does not offer is not asked in the modern era', async () => {
  const input = { q: { method: 'roots/list', params: {} } };
  const { client, seen } = rig(modern, (m) => {
    if (m.method === 'tools/call') return json(result(m.id, m.params.name === 'task' ? { resultType: 'task', taskId: 't', status: 'input_required', inputRequests: input } : { resultType: 'input_required', inputRequests: input }));
    return m.method === 'tasks/cancel' && json(result(m.id, { resultType: 'complete' }));
  }, { ask: async () => assert.fail('it asks') });
  for (const name of ['call', 'task']) await assert.rejects(client.request('tools/call', { name }), /roots\/list is not offered/);
  assert.equal(seen.at(-1).m.method, 'tasks/cancel');
});

test('a server that asks for ever is stopped', async () => {
  let n = 0;
  const { client } = rig(modern, (m) => { n++; return json(result(m.id, { resultType: 'input_required', requestState: 's' })); });
  await assert.rejects(client.request('tools/call', { name: 'x' }), /more than 20 rounds/);
  assert.equal(n, 20);
});

test('addresses that must be agreed to first (2025-11-25)', async () => {
  let n = 0;
  const asked = [];
  const { client } = rig(legacy, (m) => {
    if (m.method !== 'tools/call') return undefined;
    return n++ ? json(result(m.id, { content: [] })) : json({ jsonrpc: '2.0', id: m.id, error: { code: -32042, message: 'first', data: { elicitations: [{ mode: 'url', url: 'https://a.example/', message: 'm', elicitationId: 'e' }] } } });
  }, { ask: async (r) => { asked.push(r); return { action: 'accept' }; } });
  await client.open();
  await client.request('tools/call', { name: 'x' });
  assert.equal(asked[0].params.url, 'https://a.example/');
  assert.equal(n, 2);
  await client.close();
});

test('progress and notifications', async () => {
  const progress = [];
  const heard = [];
  const { client } = rig(modern, (m) => m.method === 'tools/call' && sse(
    { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: m.params._meta.progressToken, progress: 1, total: 2 } },
    { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 'another', progress: 9 } },
    { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } },
    result(m.id, { resultType: 'complete', content: [] })), { heard: (n) => heard.push(n.method) });
  await client.request('tools/call', { name: 'x' }, { progress: (p) => progress.push(p.progress) });
  assert.deepEqual(progress, [1]);
  assert.deepEqual(heard, ['notifications/message']);
});

for (const revision of [legacy, modern]) {
  test(`cancelling, ${revision}`, async () => {
    let begun;
    const waiting = new Promise((r) => { begun = r; });
    const { client, seen } = rig(revision, (m, init) => (m.method === 'tools/call' ? new Promise((_, no) => { begun(); init.signal.addEventListener('abort', () => no(init.signal.reason)); }) : undefined));
    await client.open();
    const stop = new AbortController();
    const call = client.request('tools/call', { name: 'x' }, { signal: stop.signal });
    await waiting;
    stop.abort();
    await assert.rejects(call, { name: 'AbortError' });
    const id = seen.find((s) => s.m.method === 'tools/call').m.id;
    const told = seen.filter((s) => s.m.method === 'notifications/cancelled').map((s) => s.m.params.requestId);
    assert.deepEqual(told, revision === legacy ? [id] : [], 'in the modern era, closing the stream says it');
    await client.close();
  });
}

test('a request of the server that is withdrawn gets no answer', async () => {
  const { client, seen } = rig(legacy, (m) => {
    if (m.method !== 'tools/call') return undefined;
    return sse({ jsonrpc: '2.0', id: 'q', method: 'elicitation/create', params: {} }, { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'q' } }, result(m.id, { content: [] }));
  }, { ask: (_, signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve({ action: 'cancel' }))) });
  await client.open();
  await client.request('tools/call', { name: 'x' });
  await new Promise((r) => setImmediate(r));
  assert.ok(!seen.some((s) => s.m.id === 'q'));
  await client.close();
});

test('errors', async () => {
  const error = { code: -32602, message: 'bad', data: { a: 1 } };
  for (const [response, check] of [
    [(m) => json({ jsonrpc: '2.0', id: m.id, error }), (e) => e instanceof RpcError && e.code === -32602 && e.data.a === 1],
    [(m) => json({ jsonrpc: '2.0', id: m.id, error }, { status: 400 }), (e) => e instanceof RpcError && e.status === 400],
    [() => new Response('no such thing', { status: 404 }), (e) => e instanceof HttpError && /404: no such thing/.test(e.message)],
    [() => json({ error: { code: 'denied', message: 'not for you' } }, { status: 403 }), (e) => e instanceof HttpError && /403: not for you/.test(e.message)],
    [() => sse({ jsonrpc: '2.0', method: 'notifications/message', params: {} }), (e) => /before the answer/.test(e.message)],
    [(m) => json(result(m.id, { resultType: 'odd', taskId: '1' })), (e) => /type odd/.test(e.message)],
  ]) {
    const { client } = rig(modern, (m) => m.method === 'tools/call' && response(m));
    await assert.rejects(client.request('tools/call', { name: 'x' }), check);
  }
});

test('all pages of a list', async () => {
  const { client, seen } = rig(modern, (m) => m.method === 'tools/list' && json(result(m.id, m.params.cursor ? { tools: [{ name: 'b' }], nextCursor: '' } : { tools: [{ name: 'a' }], nextCursor: 'c' })));
  assert.deepEqual((await client.list('tools/list', 'tools')).map((t) => t.name), ['a', 'b']);
  assert.deepEqual(seen.map((s) => s.m.params.cursor), [undefined, 'c']);
});

test('a page that comes again ends a list', async () => {
  for (const cursor of [() => 'same', (n) => `fresh${n}`]) {
    let n = 0;
    const { client } = rig(modern, (m) => m.method === 'tools/list' && json(result(m.id, { tools: [{ name: 'a' }], nextCursor: cursor(n++) })));
    assert.deepEqual((await client.list('tools/list', 'tools')).map((t) => t.name), ['a']);
    assert.equal(n, 2);
  }
});

test('subscriptions of the modern era are one stream with all wishes', async () => {
  const { client, seen } = rig(modern, (m, init) => {
    if (m.method === 'server/discover') return json(result(m.id, { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } }));
    return m.method === 'subscriptions/listen' ? new Promise((_, no) => init.signal.addEventListener('abort', () => no(init.signal.reason))) : undefined;
  });
  await client.open();
  await client.subscribe('file:///a');
  await client.unsubscribe('file:///a');
  await client.close();
  const listens = seen.filter((s) => s.m.method === 'subscriptions/listen');
  assert.deepEqual(listens.map((s) => s.m.params.notifications), [{ toolsListChanged: true }, { toolsListChanged: true, resourceSubscriptions: ['file:///a'] }, { toolsListChanged: true }]);
  assert.ok(listens.every((s) => s.signal.aborted), 'all have ended');
});

test('streams of events, however they are cut', async () => {
  const text = ': comment\r\nid: 1\r\nevent: a\r\ndata: x\r\ndata: y\r\n\r\ndata:z\n\nretry: 5\ndata: ü\rid: 2\r\rdata: lost';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 2, 3, 7, 1000]) {
    const body = new ReadableStream({ start(c) { for (let i = 0; i < bytes.length; i += size) c.enqueue(bytes.slice(i, i + size)); c.close(); } });
    const got = [];
    for await (const e of events(body)) got.push(`${e.id ?? ''}|${e.event}|${e.data}`);
    assert.deepEqual(got, ['1|a|x\ny', '|message|z', '2|message|ü'], `in parts of ${size}`);
  }
});

test('a task of 2025-11-25 is asked for until it ends, and its result is that of the call', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const states = ['working', 'working', 'completed'];
  const { client, seen } = rig(legacy, (m) => {
    if (m.method === 'tools/call') return json(result(m.id, { task: { taskId: 't1', status: states.shift(), pollInterval: 5 } }));
    if (m.method === 'tasks/get') { assert.equal(m.params.taskId, 't1'); return json(result(m.id, { taskId: 't1', status: states.shift(), statusMessage: 'soon' })); }
    return m.method === 'tasks/result' && json(result(m.id, { content: [{ type: 'text', text: 'done' }] }));
  });
  await client.open();
  const told = [];
  const call = client.request('tools/call', { name: 'x', task: { ttl: 1 } }, { task: (s) => told.push(s.status) });
  const ended = { value: false };
  call.finally(() => { ended.value = true; });
  while (!ended.value) {
    await new Promise((done) => setImmediate(done));
    t.mock.timers.tick(100);
  }
  assert.equal((await call).content[0].text, 'done');
  assert.deepEqual(told, ['working', 'working', 'completed']);
  assert.deepEqual(seen.slice(3).map((s) => s.m.method), ['tools/call', 'tasks/get', 'tasks/get', 'tasks/result']);
  await client.close();
});

test('a task of 2026-07-28 has its result with it, and asks by it', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const question = { method: 'elicitation/create', params: { message: 'who?' } };
  const states = [{ status: 'input_required', inputRequests: { a: question } }, { status: 'input_required', inputRequests: { a: question } }, { status: 'completed', result: { content: [], isError: false } }];
  const asked = [];
  const { client, seen } = rig(modern, (m, init) => {
    if (m.method === 'tools/call') return json(result(m.id, { resultType: 'task', taskId: 't1', status: 'working', pollIntervalMs: 100 }));
    if (!m.method?.startsWith('tasks/')) return undefined;
    assert.equal(init.headers['Mcp-Name'], 't1');
    return json(result(m.id, m.method === 'tasks/get' ? { resultType: 'complete', taskId: 't1', ...states.shift() } : { resultType: 'complete' }));
  }, { ask: async (r) => { asked.push(r.method); return { action: 'accept', content: { name: 'kim' } }; } });
  await client.open();
  const call = client.request('tools/call', { name: 'x' });
  const ended = { value: false };
  call.finally(() => { ended.value = true; });
  while (!ended.value) {
    await new Promise((done) => setImmediate(done));
    t.mock.timers.tick(1000);
  }
  assert.deepEqual(await call, { content: [], isError: false });
  assert.deepEqual(asked, ['elicitation/create'], 'each question is asked once');
  assert.deepEqual(seen.slice(1).map((s) => s.m.method), ['tools/call', 'tasks/get', 'tasks/update', 'tasks/get', 'tasks/get']);
  assert.deepEqual(seen.find((s) => s.m.method === 'tasks/update').m.params.inputResponses, { a: { action: 'accept', content: { name: 'kim' } } });
  await client.close();
});

test('who cancels a call cancels its task, and a task that fails says why', async () => {
  for (const [revision, first] of [[legacy, { task: { taskId: 't1', status: 'working' } }], [modern, { resultType: 'task', taskId: 't1', status: 'working' }]]) {
    const stop = new AbortController();
    const { client, seen } = rig(revision, (m) => m.method === 'tools/call' && json(result(m.id, first)));
    await client.open();
    await assert.rejects(client.request('tools/call', { name: 'x', task: {} }, { signal: stop.signal, task: () => stop.abort() }), { name: 'AbortError' });
    assert.deepEqual(seen.at(-1).m.method, 'tasks/cancel');
    assert.equal(seen.at(-1).m.params.taskId, 't1');
    await client.close();
  }
  const { client } = rig(modern, (m) => m.method === 'tools/call' && json(result(m.id, { resultType: 'task', taskId: 't1', status: 'failed', error: { code: -32000, message: 'no disk' } })));
  await client.open();
  await assert.rejects(client.request('tools/call', { name: 'x' }), { message: 'no disk', code: -32000 });
  await client.close();
});

test('a tab in the back holds no stream, in both eras, and goes on in front', async (t) => {
  const tab = globalThis.document = Object.assign(new EventTarget(), { hidden: false });
  t.after(() => { delete globalThis.document; });
  const turn = (hidden) => { tab.hidden = hidden; tab.dispatchEvent(new Event('visibilitychange')); };
  const open = (signal) => new Response(new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode('id: 7\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n'));
      signal.addEventListener('abort', () => c.error(signal.reason));
    },
  }), { headers: { 'Content-Type': 'text/event-stream' } });
  for (const [revision, method] of [[legacy, 'GET'], [modern, 'subscriptions/listen']]) {
    let told = () => {};
    const { client, seen } = rig(revision, (m, init) => {
      if (m.method === 'server/discover') return json(result(m.id, { resultType: 'complete', supportedVersions: [modern], capabilities: { tools: { listChanged: true } } }));
      if (m.method !== method) return undefined;
      queueMicrotask(() => told());
      return open(init.signal);
    });
    const streams = () => seen.filter((s) => s.m.method === method);
    const next = () => new Promise((done) => { told = () => done(undefined); });
    let opened = next();
    await client.open();
    await opened;
    await new Promise((done) => { setImmediate(done); }); // its first event is read
    turn(true);
    assert.ok(streams()[0].signal.aborted, revision);
    opened = next();
    turn(false);
    await opened;
    assert.equal(streams().length, 2, revision);
    assert.ok(!streams()[1].signal.aborted);
    if (revision === legacy) assert.equal(streams()[1].headers['Last-Event-ID'], '7');
    await client.close();
    assert.ok(streams()[1].signal.aborted);
  }
});
