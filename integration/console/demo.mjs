// A small MCP server on stdio with tools that are plausible, for the pictures of the console.
//
//	node demo.mjs NAME [UNTIL]     UNTIL is a time in milliseconds since 1970: from then on it cannot start
import readline from 'node:readline';

const [name, until] = process.argv.slice(2);
const string = (description) => ({ type: 'string', description });
const schema = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const looks = { readOnlyHint: true, openWorldHint: false };

/** For each server its tools: description, arguments, hints, the usual time in milliseconds, and what it answers. */
const servers = {
  files: {
    list_directory: ['Lists the files of a folder', schema({ path: string('The folder') }), looks, 4, (a) => `${a.path}/report.md\n${a.path}/figures.csv`],
    read_file: ['Returns the text of a file', schema({ path: string('The file'), lines: { type: 'integer', description: 'At most so many lines', default: 200 } }, ['path']), looks, 6, (a) => `# ${a.path}\n\nRevenue grew by 12 % in the third quarter.`],
    search_files: ['Finds files by their content', schema({ query: string('Words to find') }), looks, 22, () => '3 files'],
    write_file: ['Replaces the text of a file', schema({ path: string('The file'), text: string('Its new text') }), { destructiveHint: true, idempotentHint: true }, 9, () => 'written'],
  },
  search: {
    web_search: ['Searches the web', schema({ query: string('Words'), limit: { type: 'integer', default: 10 } }, ['query']), { readOnlyHint: true, openWorldHint: true }, 120, (a) => `10 results for ${a.query}`],
    fetch_page: ['Returns a page as text', schema({ url: string('Its address') }), { readOnlyHint: true, openWorldHint: true }, 210, () => (Math.random() < 0.15 ? undefined : 'The page says: welcome.')],
  },
  tickets: {
    find_tickets: ['Finds tickets of customers', schema({ query: string('Words') }), looks, 35, () => '#1041 Login fails after the update'],
    close_ticket: ['Closes a ticket', schema({ id: { type: 'integer' } }), { destructiveHint: false, idempotentHint: true }, 40, () => 'closed'],
  },
  memory: {
    remember: ['Keeps a fact', schema({ fact: string('What to keep') }), { destructiveHint: false }, 3, () => 'kept'],
    recall: ['Returns facts about a topic', schema({ topic: string('About what') }), looks, 5, () => 'The customer prefers short answers.'],
    forget: ['Removes all facts about a topic', schema({ topic: string('About what') }), { destructiveHint: true }, 4, () => 'removed'],
  },
  time: {
    now: ['Returns the time of a place', schema({ zone: string('Such as Europe/Berlin') }), looks, 1, () => new Date().toISOString()],
    convert: ['Converts a time between places', schema({ time: string('Such as 14:30'), to: string('Such as Asia/Tokyo') }), looks, 1, () => '22:30'],
  },
};

const tools = servers[name];
if (until && Date.now() > Number(until)) {
  process.stderr.write(`${name}: cannot open the database: /var/lib/${name}.db is locked\n`);
  process.exit(1);
}
if (until) setTimeout(() => process.exit(1), Number(until) - Date.now()).unref();
const say = (m) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...m })}\n`);

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  switch (method) {
    case 'initialize': return say({ id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name, version: '1.4.0' } } });
    case 'tools/list': return say({ id, result: { tools: Object.entries(tools).map(([name, [description, inputSchema, annotations]]) => ({ name, description, inputSchema, annotations })) } });
    case 'tools/call': {
      const [, , , usual, run] = tools[params.name];
      const took = usual * (0.6 + Math.random() * 0.8) * (Math.random() < 0.04 ? 4 : 1);
      const text = run(params.arguments ?? {});
      setTimeout(() => say({ id, result: { content: [{ type: 'text', text: text ?? 'The page answered with status 503.' }], isError: text === undefined || undefined } }), took);
      return undefined;
    }
    default: return id === undefined ? undefined : say(method === 'ping' ? { id, result: {} } : { id, error: { code: -32601, message: 'unknown method' } });
  }
});
