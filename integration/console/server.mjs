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
  scribble: { inputSchema: { type: 'object', properties: {} }, run: () => { process.stderr.write('scribbled on stderr\n'); return text('ok'); } },
};

const say = (m) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...m })}\n`);
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const m = JSON.parse(line);
  switch (m.method) {
    case 'initialize': return say({ id: m.id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'odd', version: '1' } } });
    case 'tools/list': return say({ id: m.id, result: { tools: Object.entries(tools).map(([name, { run, ...t }]) => ({ name, ...t })) } });
    case 'ping': return say({ id: m.id, result: {} });
    case 'tools/call': return say({ id: m.id, result: tools[m.params.name].run(m.params.arguments ?? {}, /"arguments":(\{.*?\})(?:,"_meta"|\}\}?$)/.exec(line)?.[1] ?? '') });
    default: if (m.id !== undefined) say({ id: m.id, error: { code: -32601, message: 'unknown' } });
  }
});
