// Makes the pictures of README and docs: clients use a bridge for some minutes, then each page is taken.
//
//	node shots.mjs OPTIONS     OPTIONS is JSON: base, the bridge; chromium, the program; pages and pictures, where
//	                           pictures are put; minutes, for how long there are calls before; program, mcp-bridge
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';

const o = JSON.parse(process.argv[2]);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let ended = false;

/** The calls of clients: the tool's name without a prefix, its arguments, how often. @type {Record<string, [object, number]>} */
const calls = {
  read_file: [{ path: '/reports/q3.md' }, 9], list_directory: [{ path: '/reports' }, 5], search_files: [{ query: 'revenue' }, 3], write_file: [{ path: '/reports/q3.md', text: 'x' }, 1],
  web_search: [{ query: 'model context protocol' }, 5], fetch_page: [{ url: 'https://example.com' }, 3], find_tickets: [{ query: 'login' }, 4],
  remember: [{ fact: 'short answers' }, 2], recall: [{ topic: 'answers' }, 4], now: [{ zone: 'Europe/Berlin' }, 1], convert: [{ time: '14:30', to: 'Asia/Tokyo' }, 1], listPets: [{}, 3], getPet: [{ id: 7 }, 2],
};

/** A client that calls tools until the end. @param {string} name @param {string} version @param {string} at @param {number} rate calls a second @param {RegExp} [only] */
async function client(name, version, at, rate, only = /./) {
  while (!ended) {
    const c = new Client({ name, version });
    try {
      await c.connect(new StreamableHTTPClientTransport(new URL(o.base + at)));
      const { tools } = await c.listTools();
      const choice = tools.filter((t) => only.test(t.name)).flatMap((t) => {
        const [args, often] = calls[Object.keys(calls).find((n) => t.name.endsWith(n)) ?? ''] ?? [{}, 0];
        return new Array(often).fill([t.name, args]);
      });
      for (let n = 0; !ended && choice.length; n++) {
        const [tool, args] = choice[Math.floor(Math.random() * choice.length)];
        const wave = 1 + 0.5 * Math.sin(Date.now() / 25000 + name.length);
        c.callTool({ name: tool, arguments: args }).catch(() => {});
        await pause((1000 / (rate * wave)) * (0.4 + 1.2 * Math.random()));
      }
    } catch {
      await pause(3000);
    }
    await c.close().catch(() => {});
  }
}

/** Runs a server as a user does. It returns the lines that run prints before its log, and those of a call. */
async function run() {
  const here = path.dirname(new URL(import.meta.url).pathname);
  const args = ['run', '--listen', '127.0.0.1:0', '--', 'node', 'demo.mjs', 'files'];
  const child = spawn(o.program, args, { cwd: here, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  await new Promise((done, fail) => {
    const take = (/** @type {Buffer} */ part) => { out += part; if (/\n\}\n/.test(out)) done(undefined); };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    child.on('exit', () => fail(new Error(out)));
  });
  const address = /http:\/\/[\d.:]+\/mcp/.exec(out)?.[0] ?? '';
  const answer = execFileSync(o.program, ['call', address, 'list_directory', 'path=/reports'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  child.removeAllListeners('exit');
  child.kill();
  const usual = (/** @type {string} */ text) => text.replaceAll(new URL(address).host, '127.0.0.1:8808').trimEnd().split('\n');
  const lines = usual(out.slice(0, out.search(/\n\}\n/) + 2)).filter((l) => l[0] !== '{' || l === '{');
  return { lines, call: usual(answer), command: `mcp-bridge ${['run', ...args.slice(3)].join(' ')}` };
}

/** A picture of a terminal in which lines appear: run, paste, call. */
async function terminal() {
  const { lines, call, command } = await run();
  const clean = (/** @type {string} */ text) => text.replace(/[<&>]/g, (c) => `&#${c.charCodeAt(0)};`);
  const from = lines.indexOf('{');
  /** @type {{text: string, kind: string, at: number}[]} */
  const all = [{ text: `$ ${command}`, kind: 'typed', at: 2 }];
  lines.forEach((text, i) => all.push({ text, kind: from >= 0 && i >= from ? 'block' : 'said', at: i < from ? 10 : 22 }));
  all.push({ text: '', kind: 'said', at: 40 }, { text: '$ mcp-bridge call http://127.0.0.1:8808/mcp list_directory path=/reports', kind: 'typed', at: 46 });
  for (const text of call) all.push({ text, kind: 'said', at: 58 });
  const [first, high] = [64, 20];
  const y = (/** @type {number} */ i) => first + i * high;
  const block = all.findIndex((l) => l.kind === 'block');
  const blocks = all.filter((l) => l.kind === 'block').length;
  const tall = y(all.length) + 8;
  const moments = [...new Set([...all.map((l) => l.at), 28])];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 ${tall}" role="img" aria-label="mcp-bridge run starts a server and prints what to paste into a client; mcp-bridge call calls a tool of it">
<style>
text { font: 13.5px ui-monospace, "SF Mono", Menlo, Consolas, monospace; fill: #c9d1dc; white-space: pre }
.typed { fill: #fff; font-weight: 600 } .block { fill: #a9b5ff } .note { font: 600 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #98a6ff }
@media (prefers-reduced-motion: no-preference) {
${moments.map((m) => `.t${m} { animation: t${m} 14s step-end infinite } @keyframes t${m} { 0% { opacity: 0 } ${m}% { opacity: 1 } 100% { opacity: 1 } }`).join('\n')}
}
</style>
<rect width="880" height="${tall}" rx="10" fill="#12151c"/><circle cx="22" cy="22" r="6" fill="#ff6b62"/><circle cx="42" cy="22" r="6" fill="#f5bf4f"/><circle cx="62" cy="22" r="6" fill="#5fc454"/>
${block < 0 ? '' : `<g class="t28"><rect x="16" y="${y(block) - 16}" width="420" height="${blocks * high + 6}" rx="6" fill="#98a6ff" opacity=".12"/><text class="note" x="452" y="${y(block + blocks / 2)}">paste this into your client</text></g>`}
${all.map((l, i) => `<text class="${l.kind} t${l.at}" x="24" y="${y(i)}">${clean(l.text)}</text>`).join('\n')}
</svg>
`;
  const file = path.join(o.pictures, 'start.svg');
  fs.writeFileSync(file, svg);
  console.log(`ok start.svg (${svg.length} bytes)`);
}

await terminal();

const users = [
  client('claude-ai', '1.0.0', '/mcp', 14), client('claude-ai', '1.0.0', '/mcp', 8), client('claude-ai', '1.0.0', '/mcp', 5),
  client('Cursor', '1.7.44', '/mcp', 9), client('Cursor', '1.7.44', '/mcp', 4), client('Visual Studio Code', '1.104.0', '/mcp', 6),
  client('nightly-report', '2.3.1', '/files/mcp', 22, /read|list/), client('support-desk', '0.9.2', '/tickets/mcp', 5),
];
await pause(o.minutes * 60000);

const browser = await chromium.launch({ executablePath: o.chromium, args: ['--no-sandbox', '--headless=new', '--disable-dev-shm-usage', '--disable-gpu'] });
/** @param {'light'|'dark'} colorScheme @param {number} width @param {number} height */
async function open(colorScheme, width, height) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-GB' });
  return context.newPage();
}

/** @param {import('playwright-core').Page} page @param {string} file */
async function take(page, file) {
  await page.screenshot({ path: file, animations: 'disabled' });
  const { size } = fs.statSync(file);
  if (size > 300 << 10) throw new Error(`${file} has ${size} bytes, more than 300 KiB`);
  console.log(`ok ${path.basename(file)} (${size} bytes)`);
}

for (const [scheme, name] of /** @type {['light'|'dark', string][]} */ ([['light', 'overview'], ['dark', 'overview-dark']])) {
  const page = await open(scheme, 1280, 1000);
  await page.goto(`${o.base}/ui/`);
  await page.locator('.topology').waitFor();
  await page.locator('time-chart').nth(4).waitFor();
  await page.locator('.topology a', { hasText: /Cursor.* · [\d.]+\/s/ }).waitFor(); // clients are counted while somebody looks
  await pause(20000);
  await page.locator('.side .state', { hasText: 'Live' }).waitFor();
  await take(page, path.join(o.pictures, `${name}.png`));
}

const page = await open('light', 1280, 800);
/** Each page: its name, its address, an element to wait for, and an action before the picture. @type {[string, string, string, (() => Promise<void>)?][]} */
const pages = [
  ['overview', '#/overview', '.topology'],
  ['server', '#/servers/files', 'main h1'],
  ['calls', '#/calls', '.long tbody tr', async () => { await page.locator('.long tbody tr').nth(5).click(); }],
  ['sessions', '#/sessions', 'tbody tr'],
  ['try', '#/try/files/tools/read_file', 'section.item', async () => {
    await page.locator('div.field').filter({ hasText: /^path/ }).locator('input, textarea').first().fill('/reports/q3.md');
    await page.locator('section.item button.act').first().click();
    await page.locator('.verdict').waitFor();
  }],
  ['traffic', '#/traffic', '.long tbody tr'],
  ['log', '#/log', '.log li'],
  ['config', '#/config', 'main table'],
];
for (const [name, address, ready, act] of pages) {
  await page.goto(`${o.base}/ui/${address}`);
  await page.locator(ready).first().waitFor();
  if (act) await act();
  await page.waitForLoadState('networkidle', { timeout: 3000 }).catch(() => {}); // an event stream is never idle
  await take(page, path.join(o.pages, `${name}.png`));
}
await browser.close();
ended = true;
await Promise.race([Promise.allSettled(users), pause(5000)]);
process.exit(0);
