// A run of the feature script by the official TypeScript client (SDK 1.x).
//
//   node client.mjs TRANSPORT FLAVOUR URL
//   node client.mjs stdio FLAVOUR -- COMMAND ARGS…
//
// TRANSPORT is streamable, sse or stdio. FLAVOUR names an entry of
// flavours.json. For each check one line of JSON goes to stdout:
// {"name": …, "ok": …, "detail": …}; the last line is {"name": "end"}. The
// checks, their names and their order are those of script_test.go, so that two
// independent clients judge the same features.
//
// Nothing here sleeps: a check that expects a message waits for it with a
// deadline, and a check that expects none sends something after it whose
// arrival proves that the first would have come.

import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { CallToolResultSchema, EmptyResultSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { Peer, brief, deadline, equal, everyCapability, fail, promptOf } from './peer.mjs';

const [transportName, flavourName, ...target] = process.argv.slice(2);
const flavours = JSON.parse(readFileSync(new URL('flavours.json', import.meta.url)));
const flavour = like(flavours[flavourName]);
const names = flavour.names; // of the tools that the servers name differently
// Of a command, the arguments after -- are what counts.
const where = [transportName, ...target.slice(transportName === 'stdio' ? 1 : 0)];

/** like returns the flavour; one that is like another differs from it in its errors. */
function like(f) {
  if (!f.like) return f;
  return { ...flavours[f.like], errors: { ...flavours[f.like].errors, ...f.errors } };
}

const isLog = (m) => m.method === 'notifications/message';
const isUpdate = (uri) => (m) => m.method === 'notifications/resources/updated' && m.params.uri === uri;
const textURI = (n) => `demo://resource/dynamic/text/${n}`;
const blobURI = (n) => `demo://resource/dynamic/blob/${n}`;

/** refused checks how a wrong request is answered: with a code, or within a tool's result. */
async function refused(kind, request) {
  const want = flavour.errors[kind];
  if (!want) return; // this server takes it
  let got;
  try {
    const r = await request();
    got = r.isError ? { inResult: true, text: r.content[0].text } : { result: brief(r) };
  } catch (e) {
    if (!(e instanceof McpError)) throw e;
    got = { code: e.code, text: e.message };
  }
  if (want.code !== undefined && got.code !== want.code) fail(`${kind}: got`, got, 'want code', want.code);
  if (want.inResult && !got.inResult) fail(`${kind}: got`, got, 'want an error within the result');
  if (want.text && !got.text.includes(want.text)) fail(`${kind}: got`, got, 'want the text', want.text);
}

/** pages follows the cursors of a listing and returns all items and the number of pages. */
async function pages(list, key) {
  const items = [];
  let cursor;
  for (let n = 1; ; n++) {
    const page = await list(cursor === undefined ? {} : { cursor });
    items.push(...page[key]);
    if (page.nextCursor === undefined) return { items, n };
    if (n === 100) fail(`${key}: still a cursor after 100 pages`);
    cursor = page.nextCursor;
  }
}

/**
 * provokeLine makes the server write a log line at the level flavour.log.level
 * and returns what only that line has in it. n tells one such line from another.
 */
async function provokeLine(p, n) {
  if (flavour.log.by === 'operation') {
    await p.tool(names.long, { duration: 0, steps: n });
    return `Step 1 of ${n}`;
  }
  const uri = textURI(200 + n);
  await p.client.subscribeResource({ uri });
  await p.client.unsubscribeResource({ uri });
  return `Subscribe Resource request for URI: ${uri}`;
}

/** skipped is what a check returns whose feature this server does not have. */
const skipped = Symbol('skipped');

const unicode = 'é 日本語 🎉👩‍👩‍👧 \u2028\u2029 \t"quoted" \\back\\ \u0001 </script> \ufeff end\nline\r\nline';

/** The checks in order. p is the peer; each has seen what those before it did. */
const checks = {
  async initialize(p) {
    const info = p.client.getServerVersion();
    equal(info.name, flavour.server.name, 'server name');
    equal(info.version, flavour.server.version, 'server version');
    const instructions = p.client.getInstructions() ?? '';
    if (!instructions.includes(flavour.server.instructions)) fail('instructions:', brief(instructions));
    const caps = p.client.getServerCapabilities();
    for (const [name, want] of Object.entries(flavour.server.capabilities)) equal(caps[name], want, `capability ${name}`);
    equal(p.wire[0].result?.protocolVersion, '2025-11-25', 'revision');
  },

  async ping(p) {
    await p.client.ping();
  },

  async 'tools-list'(p) {
    const { items } = await pages((q) => p.client.listTools(q), 'tools');
    const listed = items.map((t) => t.name);
    for (const name of [...flavour.tools, ...Object.values(names)]) {
      if (!listed.includes(name)) fail(`no tool ${name} in`, listed);
    }
    equal(new Set(listed).size, listed.length, 'distinct names');
    const sum = items.find((t) => t.name === 'get-sum');
    equal(Object.keys(sum.inputSchema.properties).sort(), ['a', 'b'], 'properties of get-sum');
    equal(sum.inputSchema.properties.a.type, 'number', 'type of a');
    const structured = items.find((t) => t.name === 'get-structured-content');
    if (!structured.outputSchema) fail('get-structured-content has no output schema');
  },

  async echo(p) {
    equal(await p.text('echo', { message: 'hello' }), 'Echo: hello', 'echo');
    equal(await p.text('echo', { message: '' }), 'Echo: ', 'echo of nothing');
  },

  async 'echo-unicode'(p) {
    equal(await p.text('echo', { message: unicode }), 'Echo: ' + unicode, 'echo');
  },

  async 'echo-1mb'(p) {
    // Characters of 1, 2, 3 and 4 bytes: whatever the chunks, some boundary falls inside one.
    const big = 'aé日🎉'.repeat((1 << 20) / 10);
    const got = await p.text('echo', { message: big });
    if (got !== 'Echo: ' + big) fail(`1 MB came back as ${got.length} characters, want ${big.length + 6}`);
  },

  async 'get-sum'(p) {
    const got = await p.text('get-sum', { a: 2.5, b: 40 });
    if (!got.includes('42.5')) fail('get-sum:', got);
  },

  async 'structured-content'(p) {
    const r = await p.tool('get-structured-content', { location: 'Chicago' });
    const want = { temperature: 36, conditions: 'Light rain / drizzle', humidity: 82 };
    equal(r.structuredContent, want, 'structured content');
    equal(JSON.parse(r.content[0].text), want, 'text content');
  },

  async image(p) {
    const { content } = await p.tool('get-tiny-image');
    const image = content.find((c) => c.type === 'image');
    equal(image?.mimeType, 'image/png', 'type');
    equal(Buffer.from(image.data, 'base64').subarray(1, 4).toString(), 'PNG', 'signature');
  },

  async annotations(p) {
    const { content } = await p.tool('get-annotated-message', { messageType: 'error', includeImage: true });
    equal(content[0].annotations.priority, 1, 'priority');
    equal(content[0].annotations.audience, ['user', 'assistant'], 'audience');
    equal(content[1].type, 'image', 'second block');
    equal(content[1].annotations, { priority: 0.5, audience: ['user'] }, 'annotations of the image');
  },

  async 'resource-links'(p) {
    const { content } = await p.tool('get-resource-links', { count: 4 });
    const links = content.filter((c) => c.type === 'resource_link');
    equal(links.map((l) => l.uri), flavour.links.map((l) => `demo://resource/dynamic/${l}`), 'links');
  },

  async 'embedded-resource'(p) {
    const embedded = async (resourceType, resourceId) => {
      const { content } = await p.tool('get-resource-reference', { resourceType, resourceId });
      return content.find((c) => c.type === 'resource').resource;
    };
    const text = await embedded(flavour.resourceTypes.text, 3);
    equal(text.uri, textURI(3), 'uri');
    if (!text.text.includes('Resource 3')) fail('text:', text);
    const blob = await embedded(flavour.resourceTypes.blob, 4);
    equal(blob.uri, blobURI(4), 'uri');
    if (!Buffer.from(blob.blob, 'base64').toString().includes('Resource 4')) fail('blob:', blob);
  },

  async 'resources-list'(p) {
    const { items } = await pages((q) => p.client.listResources(q), 'resources');
    const one = items.find((r) => r.uri === flavour.resource.uri);
    if (!one) fail(`no ${flavour.resource.uri} in`, items.map((r) => r.uri));
    equal(one.mimeType, flavour.resource.mimeType, 'type');
  },

  async 'resources-read'(p) {
    const read = async (uri) => (await p.client.readResource({ uri })).contents[0];
    const file = await read(flavour.resource.uri);
    if (!file.text.includes(flavour.resource.contains)) fail('static resource:', brief(file));
    const text = await read(textURI(12));
    equal(text.uri, textURI(12), 'uri');
    if (!text.text.includes('Resource 12')) fail('text:', text);
    const blob = await read(blobURI(13));
    if (!Buffer.from(blob.blob, 'base64').toString().includes('Resource 13')) fail('blob:', blob);
  },

  async 'resource-templates'(p) {
    const { items } = await pages((q) => p.client.listResourceTemplates(q), 'resourceTemplates');
    const templates = items.map((t) => t.uriTemplate);
    for (const kind of ['text', 'blob']) {
      const want = `demo://resource/dynamic/${kind}/{${flavour.templateArgument}}`;
      if (!templates.includes(want)) fail(`no ${want} in`, templates);
    }
  },

  async pagination(p) {
    const { items, n } = await pages((q) => p.client.listTools(q), 'tools');
    equal(new Set(items.map((t) => t.name)).size, items.length, 'distinct tools over all pages');
    if (flavour.paginates && n < 2) fail(`tools came in ${n} page, want several`);
    await refused('badCursor', () => p.client.listTools({ cursor: 'no such cursor' }));
  },

  async subscriptions(p) {
    const [first, second] = [textURI(101), textURI(102)];
    await p.client.subscribeResource({ uri: first });
    await p.client.subscribeResource({ uri: second });
    let from = p.mark();
    await p.tool(names.updates); // the first round of updates comes at once
    await p.next(from, 'update of the first resource', isUpdate(first));
    await p.next(from, 'update of the second resource', isUpdate(second));
    await p.tool(names.updates);
    await p.client.unsubscribeResource({ uri: first });
    from = p.mark();
    await p.tool(names.updates);
    await p.next(from, 'update of the second resource', isUpdate(second));
    await p.tool(names.updates);
    await p.client.unsubscribeResource({ uri: second });
    equal(p.seen(from, isUpdate(first)), [], 'updates after unsubscribing');
  },

  async 'prompts-list'(p) {
    const { items } = await pages((q) => p.client.listPrompts(q), 'prompts');
    const listed = items.map((t) => t.name);
    for (const name of flavour.prompts) if (!listed.includes(name)) fail(`no prompt ${name} in`, listed);
    const args = items.find((t) => t.name === 'args-prompt').arguments;
    equal(args.map((a) => [a.name, !!a.required]), [['city', true], ['state', false]], 'arguments of args-prompt');
  },

  async 'prompts-get'(p) {
    const simple = await p.client.getPrompt({ name: 'simple-prompt' });
    equal(simple.messages[0].content.text, 'This is a simple prompt without arguments.', 'simple-prompt');
    const args = await p.client.getPrompt({ name: 'args-prompt', arguments: { city: 'Köln', state: 'NRW' } });
    equal(args.messages[0].content.text, "What's weather in Köln, NRW?", 'args-prompt');
    const completed = await p.client.getPrompt({
      name: 'completable-prompt',
      arguments: { department: 'Sales', name: 'Eve' },
    });
    equal(completed.messages[0].content.text, 'Please promote Eve to the head of the Sales team.', 'completable-prompt');
    const resource = await p.client.getPrompt({
      name: 'resource-prompt',
      arguments: { resourceType: flavour.resourceTypes.text, resourceId: '7' },
    });
    equal(resource.messages[1].content.resource.uri, textURI(7), 'resource-prompt');
  },

  async completion(p) {
    const ask = async (ref, name, value, context) =>
      (await p.client.complete({ ref, argument: { name, value }, ...(context && { context }) })).completion.values;
    const prompt = { type: 'ref/prompt', name: 'completable-prompt' };
    equal(await ask(prompt, 'department', 'S'), ['Sales', 'Support'], 'departments');
    equal(await ask(prompt, 'name', '', { arguments: { department: 'Marketing' } }), ['Grace', 'Henry', 'Iris'], 'names');
    equal(await ask(prompt, 'name', 'J', { arguments: { department: 'Support' } }), ['John'], 'names with J');
    const template = { type: 'ref/resource', uri: `demo://resource/dynamic/text/{${flavour.templateArgument}}` };
    equal((await ask(template, flavour.templateArgument, '12'))[0], '12', 'first of the resource ids');
  },

  async 'logging-level'(p) {
    const from = p.mark();
    await p.client.setLoggingLevel('error');
    const silent = await provokeLine(p, 3);
    await p.client.setLoggingLevel(flavour.log.level);
    const loud = await provokeLine(p, 4);
    const line = (part) => (m) => isLog(m) && String(m.params.data).includes(part);
    const got = await p.next(from, `log line at level ${flavour.log.level}`, line(loud));
    equal(got.params.level, flavour.log.level, 'level');
    equal(p.seen(from, line(silent)), [], 'lines below the level');
    await p.client.setLoggingLevel('debug');
    const again = p.mark();
    await p.tool(names.logging); // the first line, of any level, comes at once
    await p.next(again, 'simulated log line', line(flavour.log.simulated));
    await p.tool(names.logging);
  },

  async progress(p) {
    // What comes in one read with the answer is lost: the SDK has by then forgotten
    // the call. On a machine with much to do that may be more than the last of
    // them, which another attempt shows to be chance.
    for (let attempt = 1; ; attempt++) {
      const from = p.mark();
      const told = [];
      const r = await p.tool(names.long, { duration: 0.5, steps: 5 }, { onprogress: (n) => told.push(n) });
      if (!r.content[0].text.includes('completed')) fail('result:', brief(r));
      // The SDK's own token is a number; the notifications came before the answer.
      const before = p.wire.slice(from, p.wire.findIndex((m, i) => i >= from && m.result?.content));
      const numbers = before.filter((m) => m.method === 'notifications/progress');
      equal(numbers.map((m) => [m.params.progress, m.params.total]), [1, 2, 3, 4, 5].map((n) => [n, 5]), 'progress');
      if (told.length >= 4) break;
      if (attempt === 10) fail('the SDK matched', told.length, 'notifications to the call');
    }
    // A token of our own, of the other type.
    const token = 'tøken "1"';
    const again = p.mark();
    await p.client.callTool({
      name: names.long,
      arguments: { duration: 0.1, steps: 2 },
      _meta: { progressToken: token },
    });
    const own = p.seen(again, (m) => m.method === 'notifications/progress');
    equal(own.map((m) => [m.params.progressToken, m.params.progress]), [[token, 1], [token, 2]], 'own token');
  },

  async cancellation(p) {
    const from = p.mark();
    const stop = new AbortController();
    const call = p.tool(
      names.long,
      { duration: 10, steps: 100 },
      { signal: stop.signal, onprogress: () => stop.abort('enough') },
    );
    let failed;
    await call.catch((e) => (failed = e));
    if (!failed) fail('the cancelled call was answered');
    equal(await p.text('echo', { message: 'after' }), 'Echo: after', 'the next call');
    const late = p.seen(from, (m) => m.result?.content?.[0]?.text?.includes('operation completed'));
    equal(late, [], 'answers to the cancelled call');
    if (!flavour.stopsOnCancel) return;
    // The server logs each step, ten in a second. The next operation takes as
    // long as several of them.
    await p.client.setLoggingLevel('debug');
    const fence = p.mark();
    await p.tool(names.long, { duration: 0.5, steps: 1 });
    equal(p.seen(fence, (m) => isLog(m) && m.params.data.includes('of 100')), [], 'steps of the cancelled operation');
  },

  async sampling(p) {
    const from = p.sampled.length;
    const got = await p.text(names.sampling, { prompt: 'tell ⟨me⟩', maxTokens: 77 });
    equal(p.sampled.length, from + 1, 'requests');
    const asked = p.sampled.at(-1);
    if (!promptOf(asked).includes('tell ⟨me⟩')) fail('asked:', asked);
    equal(asked.maxTokens, 77, 'maxTokens');
    equal(asked.temperature, 0.7, 'temperature');
    equal(asked.systemPrompt, 'You are a helpful test server.', 'system prompt');
    if (!got.includes('answer to') || !got.includes('model-of-the-client')) fail('result:', got);
  },

  async 'sampling-refused'(p) {
    const before = p.onSampling;
    p.onSampling = () => {
      throw new McpError(-1, 'the person said no');
    };
    const r = await p.tool(names.sampling, { prompt: 'x' }).finally(() => (p.onSampling = before));
    if (!r.isError || !r.content[0].text.includes('the person said no')) fail('result:', brief(r));
  },

  async elicitation(p) {
    p.onElicit = () => ({ action: 'accept', content: flavour.form.content });
    const got = await p.text(names.elicitation);
    const asked = p.elicited.at(-1);
    equal(asked.requestedSchema.required, ['name'], 'required properties');
    equal(asked.requestedSchema.properties[flavour.form.integer].maximum, 100, 'maximum of an integer');
    if (!got.includes('Zoë') || !got.includes('7')) fail('result:', got);
  },

  async 'elicitation-declined'(p) {
    p.onElicit = () => ({ action: 'decline' });
    const declined = await p.text(names.elicitation);
    if (!/declined/.test(declined)) fail('declined:', declined);
    p.onElicit = () => ({ action: 'cancel' });
    const cancelled = await p.text(names.elicitation);
    if (!/cancel/.test(cancelled)) fail('cancelled:', cancelled);
  },

  async 'elicitation-url'(p) {
    if (!names.elicitationURL) return skipped;
    p.onElicit = () => ({ action: 'accept' });
    const url = 'https://example.com/consent?x=1&y=2';
    const got = await p.text(names.elicitationURL, { url, elicitationId: 'e-1' });
    const asked = p.elicited.at(-1);
    equal([asked.mode, asked.url, asked.elicitationId], ['url', url, 'e-1'], 'request');
    if (!got.includes('e-1')) fail('result:', got);
    // The other way: the call fails with a code whose data says what to open.
    const answer = await p.tool(names.elicitationURL, { url, errorPath: true, elicitationId: 'e-2' }).then(
      (r) => fail('result:', brief(r)),
      (e) => e,
    );
    equal(answer.code, -32042, 'code');
    equal(answer.data?.elicitations?.[0]?.mode, 'url', 'mode in the data');
  },

  async roots(p) {
    const got = await p.text(names.roots);
    if (!got.includes('file:///tmp/first')) fail('roots:', got);
  },

  async 'roots-changed'(p) {
    const asked = p.mark();
    p.roots = [...p.roots, { uri: 'file:///tmp/second', name: 'second' }];
    await p.client.sendRootsListChanged();
    if (flavour.asksOnChange) await p.next(asked, 'roots/list', (m) => m.method === 'roots/list');
    // The server may have asked and not have digested the answer yet.
    const until = Date.now() + deadline;
    for (;;) {
      const got = await p.text(names.roots);
      if (got.includes('file:///tmp/second')) return;
      if (Date.now() > until) fail('roots:', got);
    }
  },

  async 'list-changed'(p) {
    const items = {
      tool: async () => (await pages((q) => p.client.listTools(q), 'tools')).items.map((i) => i.name),
      prompt: async () => (await pages((q) => p.client.listPrompts(q), 'prompts')).items.map((i) => i.name),
      resource: async () => (await pages((q) => p.client.listResources(q), 'resources')).items.map((i) => i.uri),
    };
    for (const change of flavour.changes) {
      // A new name each time: some servers share what they list among sessions.
      const { tool, arguments: args, method, kind, item } = JSON.parse(
        JSON.stringify(change).replaceAll('NAME', `changed-ts-${process.pid}`),
      );
      const from = p.mark();
      await p.text(tool, args);
      await p.next(from, method, (m) => m.method === method);
      const listed = await items[kind]();
      if (!listed.includes(item)) fail(`no ${item} in`, listed);
      if (!item.includes('changed')) continue;
      const { contents } = await p.client.readResource({ uri: item });
      equal(gunzipSync(Buffer.from(contents[0].blob, 'base64')).toString(), 'hello', 'content of the new resource');
    }
  },

  async errors(p) {
    await refused('unknownTool', () => p.tool('no-such-tool'));
    await refused('invalidArguments', () => p.tool('get-sum', { a: 'one' }));
    await refused('unknownPrompt', () => p.client.getPrompt({ name: 'no-such-prompt' }));
    await refused('missingArgument', () => p.client.getPrompt({ name: 'args-prompt', arguments: {} }));
    await refused('unknownResource', () => p.client.readResource({ uri: 'demo://no/such/thing' }));
    await refused('unknownMethod', () => p.client.request({ method: 'no/such/method' }, EmptyResultSchema));
    await refused('badLevel', () => p.client.request({ method: 'logging/setLevel', params: { level: 'loud' } }, EmptyResultSchema));
    equal(await p.text('echo', { message: 'still here' }), 'Echo: still here', 'the next call');
  },

  async concurrent(p) {
    const words = Array.from({ length: 100 }, (_, i) => `word ${i}`);
    const got = await Promise.all(words.map((message) => p.text('echo', { message })));
    equal(got, words.map((w) => `Echo: ${w}`), 'answers');
  },

  async 'no-capabilities'() {
    const plain = await new Peer(where, 'plain', {}).connect();
    try {
      const { items } = await pages((q) => plain.client.listTools(q), 'tools');
      const offered = items.map((t) => t.name).filter((n) => flavour.hidden.includes(n));
      equal(offered, [], 'tools that need a capability');
      const r = await plain.tool(names.sampling, { prompt: 'x' });
      if (!r.isError) fail('sampling without the capability:', brief(r));
      const asked = plain.wire.filter((m) => m.method && m.id !== undefined);
      equal(asked, [], 'requests to a client without capabilities');
    } finally {
      await plain.close();
    }
  },

  async 'two-clients'(p) {
    const other = await new Peer(where, 'other', everyCapability).connect();
    try {
      other.roots = [{ uri: 'file:///tmp/other', name: 'other' }];
      const [from, otherFrom] = [p.mark(), other.mark()];
      const sampled = p.sampled.length;
      const [mine, theirs] = [textURI(301), textURI(302)];
      await Promise.all([p.client.subscribeResource({ uri: mine }), other.client.subscribeResource({ uri: theirs })]);
      const both = (name, args) => Promise.all([p.text(name, args('first')), other.text(name, args('other'))]);
      for (let round = 0; round < 10; round++) {
        const [a, b] = await both('echo', (who) => ({ message: `${who} ${round}` }));
        equal([a, b], [`Echo: first ${round}`, `Echo: other ${round}`], 'echoes');
      }
      await both(names.sampling, (who) => ({ prompt: `prompt of ${who}` }));
      const [a, b] = await both(names.roots, () => ({}));
      if (a.includes('/tmp/other') || !b.includes('/tmp/other')) fail('roots:', a, b);
      await both(names.updates, () => ({}));
      await p.next(from, 'own update', isUpdate(mine));
      await other.next(otherFrom, 'own update', isUpdate(theirs));
      await both(names.updates, () => ({}));
      await p.client.unsubscribeResource({ uri: mine });
      equal(p.seen(from, isUpdate(theirs)), [], 'updates of the other client');
      equal(other.seen(otherFrom, isUpdate(mine)), [], 'updates of the first client');
      const prompts = (x, n) => x.sampled.slice(n).map((s) => /prompt of (\w+)/.exec(promptOf(s))?.[1]);
      equal([prompts(p, sampled), prompts(other, 0)], [['first'], ['other']], 'sampling requests');
    } finally {
      await other.close();
    }
    equal(await p.text('echo', { message: 'alone again' }), 'Echo: alone again', 'after the other client left');
  },

  async tasks(p) {
    if (!names.task) return skipped;
    p.onElicit = ({ requestedSchema: s }) => ({
      action: 'accept',
      content: { interpretation: s.properties.interpretation.oneOf[0].const },
    });
    const seen = [];
    const stream = p.client.experimental.tasks.callToolStream(
      { name: names.task, arguments: { topic: 'bridges', ambiguous: true } },
      CallToolResultSchema,
      { timeout: deadline, task: { ttl: 60000 } },
    );
    for await (const step of stream) {
      seen.push(step.type);
      if (step.type === 'error') fail('task:', String(step.error));
      if (step.type === 'result' && !JSON.stringify(step.result).includes('bridges')) fail('result:', brief(step.result));
    }
    equal([seen[0], seen.at(-1)], ['taskCreated', 'result'], 'first and last step');
  },
};

function report(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

const p = new Peer(where, 'first', everyCapability);
try {
  await p.connect();
  for (const [name, check] of Object.entries(checks)) {
    const start = Date.now();
    try {
      const result = await check(p);
      report({ name, ok: true, skipped: result === skipped, ms: Date.now() - start });
    } catch (e) {
      report({ name, ok: false, ms: Date.now() - start, detail: `${e?.stack ?? e}\nclient errors: ${brief(p.errors)}` });
    }
  }
  await p.close();
  report({ name: 'end' });
} catch (e) {
  report({ name: 'session', ok: false, detail: `${e?.stack ?? e}\nclient errors: ${brief(p.errors)}` });
}
// A leftover timer of a library must not hold up the test: all that matters has been said.
process.exit(0);
