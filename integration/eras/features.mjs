// What a server of exactly one revision offers, whichever SDK serves it: for
// each method a function of its params and of the request's surroundings.
//
// The surroundings (env) are:
//   ask(key, method, params)  puts a question to the client and returns the
//                             answer. In the modern era it may throw, and the
//                             function runs again from its beginning, with the
//                             answers so far
//   first                     true the first time that the function runs
//   notify(method, params)    sends what belongs to this request
//   log(level, data)          the same for a log line
//   changed(kind), updated(uri) tell who wants to know
//   can(name)                 whether the client declared a capability
//   token                     the progress token, if any
//   signal                    ends with the request
//   state                     what is remembered: of a session, or of the process
//   error(code, message, data)  makes the error to throw

export const [rev1, rev2, rev3, rev4, modern] = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25', '2026-07-28'];

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const wav = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEA';
const text = (text) => ({ type: 'text', text });
const object = (properties = {}, required = Object.keys(properties)) => ({
  type: 'object',
  properties: { key: { type: 'string' }, ...properties },
  required,
});

/** runs counts what happened to each key, over the whole process. */
const runs = new Map();
function count(key, what) {
  const n = runs.get(key) ?? { begun: 0, ended: 0, cancelled: 0 };
  n[what]++;
  runs.set(key, n);
}

const form = {
  type: 'object',
  properties: { name: { type: 'string', title: 'Name' }, age: { type: 'integer', maximum: 150 } },
  required: ['name'],
};

/** asking makes a tool that puts one question and shows the answer. */
const asking = (method, params) => async (args, env) => {
  const answer = await env.ask('q', method, params(args));
  return { content: [text(JSON.stringify(answer))] };
};

const sampling = ({ prompt }) => ({
  messages: [{ role: 'user', content: text(prompt) }],
  systemPrompt: 'Be brief.',
  maxTokens: 77,
});

/** Each tool says since when it is there, what it is listed as, and what it does. */
const tools = {
  text: {
    input: object({ message: { type: 'string' } }),
    more: { title: [rev3, 'Echo'], annotations: [rev2, { readOnlyHint: true }], icons: [rev4, [{ src: 'https://icons.example/echo.png' }]] },
    run: async ({ message }) => ({ content: [text(message)] }),
  },
  image: { run: async () => ({ content: [{ type: 'image', data: png, mimeType: 'image/png' }] }) },
  audio: { since: rev2, run: async () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] }) },
  embedded: {
    run: async () => ({ content: [{ type: 'resource', resource: { uri: 'era://text/1', mimeType: 'text/plain', text: 'text 1' } }] }),
  },
  link: {
    since: rev3,
    run: async () => ({ content: [{ type: 'resource_link', uri: 'era://text/2', name: 'second', description: 'the second text' }] }),
  },
  structured: {
    since: rev3,
    more: { outputSchema: [rev3, { type: 'object', properties: { degrees: { type: 'number' } }, required: ['degrees'] }] },
    run: async () => ({ content: [text('{"degrees":21.5}')], structuredContent: { degrees: 21.5 } }),
  },
  scalar: {
    since: modern,
    more: { outputSchema: [modern, { type: 'array', items: { type: 'integer' } }] },
    run: async () => ({ content: [text('three numbers')], structuredContent: [1, 2, 3] }),
  },
  mirrored: {
    since: modern,
    input: object({ region: { type: 'string', 'x-mcp-header': 'Region' } }),
    run: async ({ region }) => ({ content: [text(`in ${region}`)] }),
  },
  failing: { run: async () => ({ content: [text('it went wrong')], isError: true }) },
  steps: {
    input: object({ n: { type: 'integer' } }),
    run: async ({ n }, env) => {
      for (let i = 1; i <= n; i++) {
        const params = { progressToken: env.token, progress: i, total: n };
        if (env.revision >= rev2) params.message = `step ${i}`;
        if (env.token !== undefined) await env.notify('notifications/progress', params);
      }
      return { content: [text(`${n} steps`)] };
    },
  },
  say: {
    input: object({ lines: { type: 'array', items: { type: 'array', items: { type: 'string' } } } }),
    run: async ({ lines }, env) => {
      for (const [level, data] of lines) await env.log(level, data);
      return { content: [text('said')] };
    },
  },
  wait: {
    run: ({ key }, env) =>
      new Promise((resolve, reject) => {
        env.signal.addEventListener('abort', () => {
          count(key, 'cancelled');
          reject(new Error('cancelled'));
        });
        if (env.token !== undefined) env.notify('notifications/progress', { progressToken: env.token, progress: 1 }).catch(() => {});
      }),
  },
  change: {
    input: object({ kind: { type: 'string' }, name: { type: 'string' } }),
    run: async ({ kind, name }, env) => {
      env.state[kind].add(name);
      await env.changed(kind);
      return { content: [text('changed')] };
    },
  },
  touch: {
    input: object({ uri: { type: 'string' } }),
    run: async ({ uri }, env) => {
      await env.updated(uri);
      return { content: [text('touched')] };
    },
  },
  sample: { input: object({ prompt: { type: 'string' } }), needs: 'sampling', run: asking('sampling/createMessage', sampling) },
  roots: { needs: 'roots', run: asking('roots/list', () => ({})) },
  form: {
    since: rev3,
    needs: 'elicitation',
    run: asking('elicitation/create', () => ({ message: 'Who are you?', requestedSchema: form })),
  },
  url: {
    since: rev4,
    needs: 'elicitation.url',
    run: asking('elicitation/create', ({ key }) => ({ mode: 'url', message: 'Agree', url: 'https://example.com/agree?a=1&b=2', elicitationId: key })),
  },
  // A list of choices of which several may be taken: new with 2025-11-25.
  choices: {
    since: rev4,
    needs: 'elicitation',
    run: asking('elicitation/create', () => ({
      mode: 'form',
      message: 'Which?',
      requestedSchema: {
        type: 'object',
        properties: { colours: { type: 'array', items: { type: 'string', enum: ['red', 'green', 'blue'] } } },
        required: ['colours'],
      },
    })),
  },
  // A choice with titles and a default: older clients know both in another form.
  titled: {
    since: rev4,
    needs: 'elicitation',
    run: asking('elicitation/create', () => ({
      mode: 'form',
      message: 'Which one?',
      requestedSchema: {
        type: 'object',
        properties: { colour: { type: 'string', oneOf: [{ const: 'r', title: 'Red' }, { const: 'g', title: 'Green' }], default: 'g' } },
        required: ['colour'],
      },
    })),
  },
  'sample-tools': {
    since: rev4,
    needs: 'sampling.tools',
    run: asking('sampling/createMessage', () => ({
      ...sampling({ prompt: 'use a tool' }),
      tools: [{ name: 'adder', inputSchema: { type: 'object' } }],
      toolChoice: { mode: 'auto' },
    })),
  },
  // Two rounds, of which the second builds on the answer to the first.
  rounds: {
    needs: 'sampling',
    run: async (args, env) => {
      const first = await env.ask('first', 'sampling/createMessage', sampling({ prompt: 'one' }));
      const said = [first.content].flat()[0].text;
      const second = await env.ask('second', 'sampling/createMessage', sampling({ prompt: `after ${said}` }));
      return { content: [text([second.content].flat()[0].text)] };
    },
  },
};

export function features(revision) {
  const since = (r) => revision >= (r ?? rev1);
  const mine = Object.entries(tools).filter(([, t]) => since(t.since));
  const listed = ([name, t]) => {
    const tool = { name, description: `the tool ${name}`, inputSchema: t.input ?? object() };
    for (const [field, [from, value]] of Object.entries(t.more ?? {})) if (since(from)) tool[field] = value;
    return tool;
  };
  const capabilities = {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    logging: {},
  };
  if (since(rev2)) capabilities.completions = {};

  async function call({ name, arguments: args = {} }, env) {
    if (name === 'count') return { content: [text(JSON.stringify(runs.get(args.of) ?? {}))] };
    const tool = mine.find(([n]) => n === name)?.[1] ?? (env.state.tool.has(name) && tools.text);
    if (!tool) throw env.error(-32602, `Unknown tool: ${name}`);
    if (env.first) count(args.key, 'begun');
    if (tool.needs && !env.can(tool.needs)) return env.lacking(tool.needs);
    try {
      const result = await tool.run(args, env);
      count(args.key, 'ended');
      return result;
    } catch (e) {
      if (!env.refused(e)) throw e;
      return { content: [text(`refused: ${e.code} ${e.message}`)], isError: true };
    }
  }

  const methods = {
    'tools/list': async ({ cursor } = {}, env) => {
      const all = [...mine.map(listed), { name: 'count', inputSchema: object({ of: { type: 'string' } }) }];
      for (const name of env.state.tool) all.push({ name, inputSchema: object({ message: { type: 'string' } }) });
      if (cursor !== undefined && !/^\d+$/.test(cursor)) throw env.error(-32602, 'Invalid cursor');
      const from = Number(cursor ?? 0);
      const next = from + 6;
      return { tools: all.slice(from, next), ...(next < all.length && { nextCursor: String(next) }) };
    },
    'tools/call': call,
    'resources/list': async (_, env) => ({
      resources: [
        { uri: 'era://text/1', name: 'text 1', mimeType: 'text/plain', ...(since(rev3) && { title: 'The first text' }) },
        { uri: 'era://blob/1', name: 'blob 1', mimeType: 'image/png' },
        ...[...env.state.resource].map((name) => ({ uri: `era://more/${name}`, name })),
      ],
    }),
    'resources/templates/list': async () => ({
      resourceTemplates: [{ uriTemplate: 'era://text/{n}', name: 'texts', mimeType: 'text/plain' }],
    }),
    'resources/read': async ({ uri }, env) => {
      const [, kind, n] = /^era:\/\/(text|blob)\/(\d+)$/.exec(uri) ?? [];
      if (kind === 'text') return { contents: [{ uri, mimeType: 'text/plain', text: `text ${n}` }] };
      if (kind === 'blob') return { contents: [{ uri, mimeType: 'image/png', blob: png }] };
      throw env.error(revision >= modern ? -32602 : -32002, `Resource not found: ${uri}`, { uri });
    },
    'prompts/list': async (_, env) => ({
      prompts: [
        { name: 'greet', description: 'a greeting', arguments: [{ name: 'who', required: true }, { name: 'how' }] },
        { name: 'media' },
        ...[...env.state.prompt].map((name) => ({ name })),
      ],
    }),
    'prompts/get': async ({ name, arguments: args = {} }, env) => {
      if (name === 'greet') return { messages: [{ role: 'user', content: text(`${args.how ?? 'Hello'}, ${args.who}!`) }] };
      if (name !== 'media') throw env.error(-32602, `Unknown prompt: ${name}`);
      const messages = [{ role: 'user', content: { type: 'image', data: png, mimeType: 'image/png' } }];
      if (since(rev2)) messages.push({ role: 'user', content: { type: 'audio', data: wav, mimeType: 'audio/wav' } });
      return { messages };
    },
    'completion/complete': async ({ argument, context }, env) => {
      if (argument.name === 'asks') {
        // Not a request that may ask in return, in the modern era.
        try {
          const { content } = await env.ask('q', 'sampling/createMessage', sampling({ prompt: 'complete' }));
          return { completion: { values: [[content].flat()[0].text] } };
        } catch (e) {
          return { completion: { values: [`refused ${e.code}`] } };
        }
      }
      const values = ['calmly', 'cheerfully', 'coldly'].filter((v) => v.startsWith(argument.value));
      if (context?.arguments?.who) values.push(`as ${context.arguments.who} likes it`);
      return { completion: { values, total: values.length, hasMore: false } };
    },
  };
  if (revision < modern) {
    methods['logging/setLevel'] = async ({ level }, env) => ((env.state.level = level), {});
    methods['resources/subscribe'] = async ({ uri }, env) => (env.state.subscribed.add(uri), {});
    methods['resources/unsubscribe'] = async ({ uri }, env) => (env.state.subscribed.delete(uri), {});
  }
  return {
    info: { name: `era-${revision}`, version: '1.0.0' },
    options: { capabilities, instructions: `I speak ${revision}.` },
    methods,
  };
}

export const newState = () => ({ tool: new Set(), prompt: new Set(), resource: new Set(), subscribed: new Set(), level: undefined });

export const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];
