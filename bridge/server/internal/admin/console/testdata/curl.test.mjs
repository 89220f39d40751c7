import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import test from 'node:test';
import { curl, headersOf, metaOf } from '../assets/curl.js';
import { Client, legacy, modern } from '../assets/mcp.js';

test('headers are read line by line', () => {
  assert.deepEqual(headersOf(''), {});
  assert.deepEqual(headersOf(' X-Tenant : acme\n\nX-Empty:\nAuthorization: Bearer a:b \r\n'), { 'X-Tenant': 'acme', 'X-Empty': '', Authorization: 'Bearer a:b' });
  assert.deepEqual(Object.keys(headersOf('__proto__: a')), ['__proto__']);
  for (const [text, why] of [
    ['X-Tenant', /Name: value/], ['a b: c', /Name: value/], [': c', /Name: value/], ['Cookie: a=b', /sets Cookie/], ['content-type: text/plain', /sets content-type/], ['Bridge-Console: 1', /sets/],
    ['Mcp-Session-Id: a', /sets/], ['Sec-Fetch-Site: none', /sets/], ['Origin: http://a', /sets/], ['X: a\nx: b', /twice/], ['X: 日本', /no header can have/], ['X: a\u0000b', /no header can have/],
  ]) assert.throws(() => headersOf(text), why, text);
});

test('_meta is an object', () => {
  assert.equal(metaOf('  '), undefined);
  assert.deepEqual(metaOf('{"a": {"b": "c"}}'), { a: { b: 'c' } });
  for (const [text, why] of [['{"a"', /no JSON yet/], ['[]', /object/], ['null', /object/], ['1.50', /object/], ['"a"', /object/]]) assert.throws(() => metaOf(text), why, text);
});

/** What curl gets when a shell runs the command. @param {string} text */
function run(text) {
  const script = `curl() { for a in "$@"; do printf '%s\\0' "$a"; done; printf '\\0'; }\nMCP_BRIDGE_KEY=secret\n${text}\n`;
  return execFileSync('sh', ['-c', script], { encoding: 'utf8' }).split('\0\0').filter(Boolean).map((one) => {
    const args = one.split('\0');
    const headers = Object.fromEntries(args.flatMap((a, i) => (args[i - 1] === '-H' ? [[a.split(/[:;]/)[0], a.slice(a.search(/[:;]/) + 1).trim()]] : [])));
    return { args, headers, body: args[args.indexOf('--data-binary') + 1] };
  });
}

const nasty = `it's "$HOME" \`id\` \\ ! ; & \n @file`;
const tool = ['tools/call', { name: 'größe', arguments: { text: nasty }, _meta: { own: 'o' } }];

test('a request without a session is one command, which a shell takes as it is', () => {
  const client = new Client({ url: 'http://x', revision: modern, capabilities: { sampling: {} } });
  const all = run(curl(client, { url: "http://127.0.0.1:8808/it's/mcp", headers: { 'X-Tenant': "a'b", 'X-Empty': '' }, repeated: { 'Mcp-Param-A': '1' }, key: true }, ...tool));
  assert.equal(all.length, 1);
  const [{ args, headers, body }] = all;
  assert.ok(args.includes("http://127.0.0.1:8808/it's/mcp"));
  assert.deepEqual(headers, {
    'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'MCP-Protocol-Version': modern, 'Mcp-Param-A': '1', 'Mcp-Method': 'tools/call', 'Mcp-Name': '=?base64?Z3LDtsOfZQ==?=',
    'X-Tenant': "a'b", 'X-Empty': '', 'X-API-Key': 'secret',
  });
  const message = JSON.parse(body);
  assert.equal(message.params.arguments.text, nasty);
  assert.equal(message.params._meta.own, 'o');
  assert.deepEqual(message.params._meta['io.modelcontextprotocol/clientCapabilities'], { sampling: {} });
});

test('with a session it is opened before, and ended after it', () => {
  const client = new Client({ url: 'http://x', revision: legacy, capabilities: { sampling: {} } });
  const text = curl(client, { url: 'http://127.0.0.1:8808/one/mcp', headers: { authorization: 'Bearer mine' }, key: true }, ...tool);
  assert.doesNotMatch(text, /MCP_BRIDGE_KEY/, 'a key of their own is enough');
  assert.match(text, /^session=\$\(curl /);
  const all = run(`curl() { printf 'HTTP/1.1 200 OK\\r\\nmcp-session-id: S1\\r\\n\\r\\n'; }\n${text.slice(0, text.indexOf('\n', text.indexOf('//p')))}\nunset -f curl\ncurl() { for a in "$@"; do printf '%s\\0' "$a"; done; printf '\\0'; }\n${text.slice(text.indexOf('\n', text.indexOf('//p')) + 1)}`);
  assert.deepEqual(all.map((a) => [a.headers['Mcp-Session-Id'], a.headers['MCP-Protocol-Version'], a.headers.authorization]), Array(3).fill(['S1', legacy, 'Bearer mine']));
  assert.equal(JSON.parse(all[0].body).method, 'notifications/initialized');
  assert.deepEqual(JSON.parse(all[1].body), { jsonrpc: '2.0', id: 1, method: 'tools/call', params: tool[1] });
  assert.ok(all[2].args.includes('DELETE'));
});
