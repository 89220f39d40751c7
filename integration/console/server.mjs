// A server on stdio (2025-11-25) with what the console has to be careful with: texts of strangers, schemas of
// every shape, a destructive tool, and long results.
import readline from 'node:readline';

const text = (t) => ({ content: [{ type: 'text', text: t }] });
const tools = {
  erase: {
    description: 'Erases\u202e a file', annotations: { destructiveHint: true },
    inputSchema: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
    run: (a) => text(`erased ${a.path}`),
  },
  shapes: {
    description: 'Returns what it was given',
    inputSchema: {
      type: 'object', required: ['name', 'big'],
      properties: {
        name: { type: 'string' }, big: { type: 'integer' }, left: { type: 'string', description: 'never touched' },
        maybe: { anyOf: [{ type: 'number' }, { type: 'null' }] }, colour: { enum: ['red', 'green'] },
        rows: { type: 'array', items: { type: 'array', items: { type: 'integer' } } },
        tree: { $ref: '#/$defs/tree' }, either: { oneOf: [{ title: 'by lines', type: 'object', properties: { lines: { type: 'integer' } }, required: ['lines'] }, { title: 'by bytes', type: 'object', properties: { bytes: { type: 'integer' } }, required: ['bytes'] }] },
      },
      $defs: { tree: { type: 'object', properties: { leaf: { type: 'string' }, next: { $ref: '#/$defs/tree' } }, additionalProperties: false } },
    },
    run: (a, raw) => text(raw),
  },
  markup: {
    inputSchema: { type: 'object', properties: {} },
    run: () => ({ content: [{ type: 'text', text: '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>' }, { type: 'resource_link', uri: 'javascript:window.hurt=1', name: '<b>link</b>' }, { type: 'resource_link', uri: 'https://example.com/a?b=1', name: 'page' }] }),
  },
  long: { inputSchema: { type: 'object', properties: {} }, run: () => text('x'.repeat(100000)) },
  slow: {
    execution: { taskSupport: 'required' }, inputSchema: { type: 'object', properties: { n: { type: 'integer' } } },
    run: (a) => text(`slowly ${a.n}`),
  },
  scribble: { inputSchema: { type: 'object', properties: {} }, run: () => { process.stderr.write('scribbled on stderr\n'); return text('ok'); } },
};

/** Calls that have become tasks. */
const tasks = new Map();
const say = (m) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...m })}\n`);
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const m = JSON.parse(line);
  switch (m.method) {
    case 'initialize': return say({ id: m.id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {}, tasks: { cancel: {}, requests: { tools: { call: {} } } } }, serverInfo: { name: 'odd', version: '1' } } });
    case 'tools/list': return say({ id: m.id, result: { tools: Object.entries(tools).map(([name, { run, ...t }]) => ({ name, ...t })) } });
    case 'ping': return say({ id: m.id, result: {} });
    case 'tools/call':
      if (m.params.task) {
        const task = { taskId: `task-${tasks.size}`, status: 'working', statusMessage: 'digging', createdAt: new Date().toISOString(), lastUpdatedAt: new Date().toISOString(), ttl: null, pollInterval: 100 };
        tasks.set(task.taskId, { task, left: 3, result: tools[m.params.name].run(m.params.arguments ?? {}) });
        return say({ id: m.id, result: { task } });
      }
      return say({ id: m.id, result: tools[m.params.name].run(m.params.arguments ?? {}, /"arguments":(\{.*?\})(?:,"_meta"|\}\}?$)/.exec(line)?.[1] ?? '') });
    case 'tasks/get': {
      const one = tasks.get(m.params.taskId);
      if (one.result.content[0].text !== 'slowly 0' && one.left-- < 1 && one.task.status === 'working') one.task.status = 'completed'; // that of 0 never ends
      return say({ id: m.id, result: one.task });
    }
    case 'tasks/cancel': tasks.get(m.params.taskId).task.status = 'cancelled'; return say({ id: m.id, result: tasks.get(m.params.taskId).task });
    case 'tasks/result': return say({ id: m.id, result: tasks.get(m.params.taskId).result });
    default: if (m.id !== undefined) say({ id: m.id, error: { code: -32601, message: 'unknown' } });
  }
});
