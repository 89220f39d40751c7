// The checks of the era matrix: for each what a client of revision c gets from
// a server of revision s, and that it gets exactly that.
//
// outcome is one of
//   'full'        as if the client spoke to the server itself
//   'graded'      as the older revision can say it
//   'refused: N'  the refusal with that number in the bridge's documentation
//   'absent'      one of the two revisions has no such thing

import { brief, deadline, equal, fail } from '../peer.mjs';
import { modern, rev1, rev2, rev3, rev4 } from './features.mjs';

const later = (a, b) => (a > b ? a : b);

/** needs is the outcome of what both sides must know, since that revision; an older client gets what is given. */
const needs = (revision, older = 'graded') => (c, s) => (s < revision ? 'absent' : c < revision ? older : 'full');
const always = () => 'full';

/** failed is what a request ended with that must not succeed. */
async function failed(request) {
  try {
    return { result: await request };
  } catch (e) {
    return { code: e.code, status: e.status ?? e.data?.status, message: e.message, data: e.data };
  }
}

const isError = (r, what, ...texts) => {
  if (!r.result?.isError) fail(`${what}: got`, brief(r), 'want an error within the result');
  for (const text of texts) if (!r.result.content[0].text.includes(text)) fail(`${what}: got`, brief(r), 'want the text', text);
};

/** lacks checks the refusal of a server whose client lacks a capability. */
async function lacks(p, s, tool, capability) {
  const from = p.asked.length;
  const got = await failed(p.tool(tool));
  if (s < modern) isError(got, tool, 'lacks');
  else {
    equal(got.code, -32021, 'code');
    const want = capability.split('.').reduceRight((inner, part) => ({ [part]: inner }), {});
    equal(got.data?.requiredCapabilities, want, 'required capabilities');
  }
  equal(p.asked.length, from, 'questions');
}

const question = (p) => p.asked.at(-1)[1];

/** answered calls a tool that puts one question, and returns what the server was answered. */
async function answered(p, key, tool, args, method, answer) {
  const [before, from] = [p.answers[method], p.asked.length];
  if (answer) p.answers[method] = () => answer;
  try {
    const got = JSON.parse(await p.text(tool, { ...args, key }));
    const methods = p.asked.slice(from).map(([m]) => m);
    if (!p.unseen.includes(method)) equal(methods, [method], 'questions');
    await p.once(key);
    return got;
  } finally {
    p.answers[method] = before;
  }
}

const unicode = 'é 日本語 🎉👩‍👩‍👧 \u2028\u2029 \t"quoted" \\back\\ \u0001 </script> \ufeff end\nline\r\nline';

const toolNames = {
  [rev1]: ['text', 'image', 'embedded', 'failing', 'steps', 'say', 'wait', 'change', 'touch', 'sample', 'roots', 'rounds', 'count'],
  [rev2]: ['audio'],
  [rev3]: ['link', 'structured', 'form'],
  [rev4]: ['url', 'choices', 'titled', 'sample-tools'],
  [modern]: ['scalar', 'mirrored'],
};

/** all is every page of a listing, as it came. */
async function all(p, method, key) {
  const items = [];
  for (let cursor; ; ) {
    const page = await p.raw(method, cursor === undefined ? {} : { cursor });
    items.push(...page[key]);
    if (page.nextCursor === undefined) return items;
    cursor = page.nextCursor;
  }
}

const lists = {
  tool: (p) => all(p, 'tools/list', 'tools'),
  prompt: (p) => all(p, 'prompts/list', 'prompts'),
  resource: (p) => all(p, 'resources/list', 'resources'),
};

const placeholder = /^\[audio audio\/wav, \d+ bytes\]$/;

/**
 * Each check has its outcome and what proves it: run(p, {c, s, as, by, upstream,
 * key, n}), where by is the SDK that serves, upstream its transport, and key and
 * n are a word and a number that no other check has.
 */
export const checks = {
  opening: {
    outcome: always,
    async run(p, { c, s }) {
      equal(p.negotiated, c, 'revision');
      const { name, instructions, capabilities } = p.server;
      equal(name, `era-${s}`, 'server name');
      equal(instructions, `I speak ${s}.`, 'instructions');
      equal(capabilities.tools, { listChanged: true }, 'tools');
      equal(capabilities.prompts, { listChanged: true }, 'prompts');
      equal(capabilities.resources, { subscribe: true, listChanged: true }, 'resources');
      equal(capabilities.logging, {}, 'logging');
      equal(capabilities.completions, s >= rev2 ? {} : undefined, 'completions');
    },
  },
  ping: {
    outcome: (c) => (c < modern ? 'full' : 'absent'),
    run: (p) => p.ping(),
  },
  'tool definitions': {
    outcome: (c, s) => (c < s && c < modern ? 'graded' : 'full'),
    async run(p, { c, s }) {
      const tools = await lists.tool(p);
      const names = Object.entries(toolNames).filter(([r]) => r <= s).flatMap(([, n]) => n);
      const listed = tools.map((t) => t.name).filter((n) => !n.startsWith('era-'));
      equal(listed.sort(), names.sort(), 'tools');
      const [echo, structured, scalar] = ['text', 'structured', 'scalar'].map((n) => tools.find((t) => t.name === n));
      const both = c < s ? c : s;
      equal(echo.title, both >= rev3 ? 'Echo' : undefined, 'title');
      equal(echo.icons?.length, both >= rev4 ? 1 : undefined, 'icons');
      equal(echo.annotations?.readOnlyHint, both >= rev2 ? true : undefined, 'annotations');
      equal(echo.annotations?.title, c === rev2 && s >= rev3 ? 'Echo' : undefined, 'title among the annotations');
      if (structured) equal(structured.outputSchema?.type, c >= rev3 ? 'object' : undefined, 'output schema');
      if (scalar) equal(scalar.outputSchema?.type, c >= modern ? 'array' : undefined, 'output schema of any type');
    },
  },
  pagination: {
    outcome: always,
    async run(p) {
      const { tools, nextCursor } = await p.raw('tools/list');
      equal([tools.length, typeof nextCursor], [6, 'string'], 'first page');
      const got = await failed(p.request('tools/list', { cursor: 'no such cursor' }));
      equal(got.code, -32602, 'code of a bad cursor');
    },
  },
  text: {
    outcome: always,
    async run(p, { key }) {
      equal(await p.text('text', { message: unicode, key }), unicode, 'text');
      await p.once(key);
    },
  },
  image: {
    outcome: always,
    async run(p) {
      const { content } = await p.tool('image');
      equal(content.map((c) => [c.type, c.mimeType]), [['image', 'image/png']], 'content');
      equal(Buffer.from(content[0].data, 'base64').subarray(1, 4).toString(), 'PNG', 'signature');
    },
  },
  audio: {
    outcome: needs(rev2),
    async run(p, { as }) {
      const { content: [block] } = await p.tool('audio');
      if (as === 'full') equal([block.type, block.mimeType], ['audio', 'audio/wav'], 'content');
      else if (block.type !== 'text' || !placeholder.test(block.text)) fail('content:', block);
    },
  },
  'embedded resource': {
    outcome: always,
    async run(p) {
      const { content: [block] } = await p.tool('embedded');
      equal([block.type, block.resource.uri, block.resource.text], ['resource', 'era://text/1', 'text 1'], 'content');
    },
  },
  'resource link': {
    outcome: needs(rev3),
    async run(p, { as }) {
      const { content: [block] } = await p.tool('link');
      if (as === 'full') return equal([block.type, block.uri, block.name], ['resource_link', 'era://text/2', 'second'], 'content');
      equal(block.type, 'text', 'type');
      for (const part of ['second', 'era://text/2', 'the second text']) if (!block.text.includes(part)) fail('text:', block.text);
    },
  },
  'structured content': {
    outcome: needs(rev3),
    async run(p, { as }) {
      const r = await p.tool('structured');
      equal(r.structuredContent, as === 'full' ? { degrees: 21.5 } : undefined, 'structured content');
      equal(r.content.map((c) => JSON.parse(c.text)), [{ degrees: 21.5 }], 'content');
    },
  },
  'structured content of any type': {
    outcome: needs(modern),
    async run(p, { as }) {
      const r = await p.tool('scalar');
      if (as === 'full') return equal(r.structuredContent, [1, 2, 3], 'structured content');
      equal(r.structuredContent, undefined, 'structured content');
      equal(r.content[0].text, 'three numbers', 'content');
      equal(JSON.parse(r.content[1].text), [1, 2, 3], 'the text in its place');
    },
  },
  'mirrored argument': {
    outcome: (c, s) => (s < modern ? 'absent' : 'full'),
    async run(p) {
      await lists.tool(p);
      await p.listAll();
      equal(await p.text('mirrored', { region: 'zürich' }), 'in zürich', 'text');
    },
  },
  isError: {
    outcome: always,
    run: async (p) => isError(await failed(p.tool('failing')), 'failing', 'it went wrong'),
  },
  'unknown tool': {
    outcome: always,
    run: async (p) => equal((await failed(p.tool('no-such-tool'))).code, -32602, 'code'),
  },
  'unknown method': {
    outcome: always,
    async run(p, { s, by, upstream }) {
      // The Go SDK answers over HTTP with status 400, which says nothing more to
      // a bridge.
      const dull = by === 'go' && upstream !== 'stdio' && s < modern;
      const got = await failed(p.request('no/such/method'));
      if (dull && got.code === -32603) return;
      // Over HTTP the SDK 2.x shows the status alone.
      if (got.code !== -32601 && !/\b404\b|-32601/.test(`${got.status} ${got.message}`)) fail('got', brief(got), 'want -32601');
    },
  },
  resources: {
    outcome: always,
    async run(p) {
      const listed = (await lists.resource(p)).map((r) => r.uri);
      for (const uri of ['era://text/1', 'era://blob/1']) if (!listed.includes(uri)) fail(`no ${uri} in`, listed);
      const { resourceTemplates } = await p.request('resources/templates/list');
      if (!resourceTemplates.some((r) => r.uriTemplate === 'era://text/{n}')) fail('templates:', brief(resourceTemplates));
      const read = async (uri) => (await p.request('resources/read', { uri })).contents[0];
      equal((await read('era://text/12')).text, 'text 12', 'text');
      equal(Buffer.from((await read('era://blob/3')).blob, 'base64').subarray(1, 4).toString(), 'PNG', 'blob');
    },
  },
  'missing resource': {
    outcome: (c, s) => ((c < modern) === (s < modern) ? 'full' : 'graded'),
    async run(p, { c }) {
      const from = p.mark();
      await failed(p.request('resources/read', { uri: 'era://none' }));
      const [{ error }] = p.seen(from, (m) => m.error); // the SDK 2.x makes one code of the two
      equal([error.code, error.data?.uri], [c < modern ? -32002 : -32602, 'era://none'], 'code and uri');
    },
  },
  prompts: {
    outcome: (c, s) => (c < rev2 && s >= rev2 ? 'graded' : 'full'),
    async run(p, { as, s }) {
      const greet = (await lists.prompt(p)).find((q) => q.name === 'greet');
      equal(greet.arguments.map((a) => [a.name, !!a.required]), [['who', true], ['how', false]], 'arguments');
      const get = async (name, args) => (await p.request('prompts/get', { name, ...(args && { arguments: args }) })).messages;
      equal((await get('greet', { who: 'Zoë', how: 'Grüezi' }))[0].content.text, 'Grüezi, Zoë!', 'greet');
      const [image, audio] = (await get('media')).map((m) => m.content);
      equal(image.type, 'image', 'image');
      if (as === 'graded') return placeholder.test(audio.text) || fail('audio:', audio);
      equal(audio?.type, s >= rev2 ? 'audio' : undefined, 'audio');
    },
  },
  completion: {
    outcome: always,
    async run(p, { c, s }) {
      const params = { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'how', value: 'c' } };
      const { completion } = await p.request('completion/complete', params);
      equal(completion.values, ['calmly', 'cheerfully', 'coldly'], 'values');
      if (c < rev3 || s < rev3) return;
      const more = await p.request('completion/complete', { ...params, context: { arguments: { who: 'Eve' } } });
      equal(more.completion.values.at(-1), 'as Eve likes it', 'value from the context');
    },
  },
  progress: {
    outcome: (c, s) => (c < rev2 && s >= rev2 ? 'graded' : 'full'),
    async run(p, { c, s }) {
      const from = p.mark();
      await p.tool('steps', { n: 4 }, { onprogress: () => {} });
      const progress = (m) => m.method === 'notifications/progress';
      // The Go SDK may show the answer first.
      await p.next(from, 'last step', (m) => progress(m) && m.params.progress === 4);
      const steps = p.seen(from, progress).map(({ params: n }) => [n.progress, n.total, n.message]);
      const message = (i) => (c >= rev2 && s >= rev2 ? `step ${i}` : undefined);
      equal(steps, [1, 2, 3, 4].map((i) => [i, 4, message(i)]), 'progress');
    },
  },
  logging: {
    outcome: always,
    async run(p, { key }) {
      let meta;
      if (p.modern) meta = { 'io.modelcontextprotocol/logLevel': 'warning' };
      else await p.request('logging/setLevel', { level: 'warning' });
      const from = p.mark();
      const lines = [['info', `quiet ${key}`], ['error', `loud ${key}`]];
      const mine = (m) => m.method === 'notifications/message' && m.params.data.endsWith(key);
      await p.tool('say', { lines }, { meta });
      await p.next(from, 'log line', mine);
      if (p.modern) await p.tool('say', { lines }); // asks for none
      await p.text('text', { message: 'a fence' });
      equal(p.seen(from, mine).map((m) => [m.params.level, m.params.data]), [['error', `loud ${key}`]], 'log lines');
    },
  },
  cancellation: {
    outcome: always,
    async run(p, { key }) {
      const stop = new AbortController();
      const got = await failed(p.tool('wait', { key }, { signal: stop.signal, onprogress: () => stop.abort('enough') }));
      if (got.result) fail('the cancelled call was answered:', brief(got));
      for (const until = Date.now() + deadline; ; ) {
        const n = await p.counted(key);
        if (n.cancelled === 1) return;
        if (Date.now() > until) fail('the server was not told:', n);
      }
    },
  },
  'list changes': {
    outcome: always,
    async run(p, { key }) {
      const stop = await p.watch({ lists: true });
      for (const kind of ['tool', 'prompt', 'resource']) {
        const from = p.mark();
        await p.text('change', { kind, name: `era-${key}` });
        await p.next(from, `news of a ${kind}`, (m) => m.method === `notifications/${kind}s/list_changed`);
        const names = (await lists[kind](p)).map((item) => item.name);
        if (!names.includes(`era-${key}`)) fail(`no era-${key} in`, names);
      }
      await stop();
    },
  },
  'resource updates': {
    outcome: always,
    async run(p, { n }) {
      const [mine, other] = [`era://text/${n}`, `era://text/${n}0`];
      const updated = (uri) => (m) => m.method === 'notifications/resources/updated' && m.params.uri === uri;
      const stop = await p.watch({ uri: mine });
      const from = p.mark();
      await p.text('touch', { uri: other });
      await p.text('touch', { uri: mine });
      await p.next(from, 'update', updated(mine));
      equal(p.seen(from, updated(other)), [], 'updates of another resource');
      await stop();
    },
  },
  sampling: {
    outcome: always,
    async run(p, { key }) {
      const got = await answered(p, key, 'sample', { prompt: 'tell ⟨me⟩' }, 'sampling/createMessage');
      equal([question(p).maxTokens, question(p).systemPrompt], [77, 'Be brief.'], 'question');
      equal([got.model, [got.content].flat()[0].text], ['model-of-the-client', 'answer to tell ⟨me⟩'], 'answer');
    },
  },
  'sampling in two rounds': {
    outcome: always,
    async run(p, { key }) {
      const from = p.asked.length;
      equal(await p.text('rounds', { key }), 'answer to after answer to one', 'text');
      equal(p.asked.length, from + 2, 'questions');
      await p.once(key);
    },
  },
  'sampling with tools': {
    outcome: needs(rev4, 'refused: 7'),
    async run(p, { as, s, key }) {
      if (as !== 'full') return lacks(p, s, 'sample-tools', 'sampling.tools');
      const content = [{ type: 'tool_use', id: 't1', name: 'adder', input: { a: 1 } }];
      const answer = { role: 'assistant', model: 'm', stopReason: 'toolUse', content };
      const got = await answered(p, key, 'sample-tools', {}, 'sampling/createMessage', answer);
      equal(question(p).tools.map((t) => t.name), ['adder'], 'tools');
      equal([got.content].flat()[0].name, 'adder', 'tool used');
    },
  },
  'sampling refused': {
    // A modern client that does not want to answer has nothing to send.
    outcome: (c, s) => (c >= modern ? 'absent' : s < modern ? 'full' : 'refused: 5'),
    async run(p, { as }) {
      const before = p.answers['sampling/createMessage'];
      p.answers['sampling/createMessage'] = () => {
        throw Object.assign(new Error('the person said no'), { code: -1 });
      };
      const got = await failed(p.tool('sample', { prompt: 'x' }));
      p.answers['sampling/createMessage'] = before;
      isError(got, 'sample', ...(as === 'full' ? ['refused: -1', 'the person said no'] : []));
    },
  },
  'sampling during a completion': {
    outcome: (c, s) => (s >= modern ? 'absent' : c >= modern ? 'refused: 2' : 'full'),
    async run(p, { as }) {
      const from = p.asked.length;
      const params = { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'asks', value: '' } };
      const { completion } = await p.request('completion/complete', params);
      equal(completion.values, [as === 'full' ? 'answer to complete' : 'refused -32602'], 'values');
      equal(p.asked.length - from, as === 'full' ? 1 : 0, 'questions');
    },
  },
  elicitation: {
    outcome: needs(rev3, 'refused: 6'),
    async run(p, { as, c, s, key }) {
      if (as !== 'full') return lacks(p, s, 'form', 'elicitation');
      const answer = { action: 'accept', content: { name: 'Zoë', age: 33 } };
      equal(await answered(p, key, 'form', {}, 'elicitation/create', answer), answer, 'answer');
      const { message, requestedSchema: schema } = question(p);
      equal([message, schema.required, schema.properties.age.maximum], ['Who are you?', ['name'], 150], 'question');
      const declined = await answered(p, `${key}-declined`, 'form', {}, 'elicitation/create', { action: 'decline' });
      equal(declined.action, 'decline', 'action');
    },
  },
  'elicitation by URL': {
    outcome: needs(rev4, 'refused: 8'),
    async run(p, { as, c, s, key }) {
      // What a client lacks altogether is named by the whole, not the part.
      if (as !== 'full') return lacks(p, s, 'url', 'elicitation.url');
      const got = await answered(p, key, 'url', {}, 'elicitation/create', { action: 'accept' });
      equal(got.action, 'accept', 'action');
      const q = question(p);
      equal([q.mode, q.url], ['url', 'https://example.com/agree?a=1&b=2'], 'question');
      if (c >= modern) equal(q.elicitationId, undefined, 'id');
      else if (s < modern) equal(q.elicitationId, key, 'id');
      else if (typeof q.elicitationId !== 'string') fail('no id in', q);
    },
  },
  'elicitation with titles and a default': {
    outcome: (c, s) => (s < rev4 ? 'absent' : c >= rev4 ? 'full' : c === rev3 ? 'graded' : 'refused: 6'),
    async run(p, { as, s, key }) {
      if (as === 'refused: 6') return lacks(p, s, 'titled', 'elicitation');
      const got = await answered(p, key, 'titled', {}, 'elicitation/create', { action: 'accept', content: { colour: 'r' } });
      equal(got.content, { colour: 'r' }, 'answer');
      const { colour } = question(p).requestedSchema.properties;
      if (as === 'full') return equal([colour.oneOf?.length, colour.default], [2, 'g'], 'question');
      equal([colour.enum, colour.enumNames, colour.oneOf, colour.default], [['r', 'g'], ['Red', 'Green'], undefined, undefined], 'question');
    },
  },
  'elicitation of several choices': {
    outcome: (c, s) => (s < rev4 ? 'absent' : c >= rev4 ? 'full' : c === rev3 ? 'refused: 7' : 'refused: 6'),
    async run(p, { as, s, key }) {
      if (as === 'refused: 6') return lacks(p, s, 'choices', 'elicitation');
      if (as === 'full') {
        const answer = { action: 'accept', content: { colours: ['red', 'blue'] } };
        return equal(await answered(p, key, 'choices', {}, 'elicitation/create', answer), answer, 'answer');
      }
      const from = p.asked.length;
      isError(await failed(p.tool('choices')), 'choices', ...(s < modern ? ['refused: -32602'] : []));
      equal(p.asked.length, from, 'questions');
    },
  },
  roots: {
    outcome: always,
    async run(p, { key }) {
      const got = await answered(p, key, 'roots', {}, 'roots/list');
      equal(got.roots, [{ uri: 'file:///era/home', name: 'home' }], 'roots');
    },
  },
  concurrent: {
    outcome: always,
    async run(p) {
      const words = Array.from({ length: 20 }, (_, i) => `word ${i}`);
      equal(await Promise.all(words.map((message) => p.text('text', { message }))), words, 'answers');
    },
  },
};
