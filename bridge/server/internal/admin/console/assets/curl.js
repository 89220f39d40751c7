// A request for a terminal, as curl makes it, and what somebody adds to requests by hand.
import { isObject, parse, stringify } from './json.js';
import { quote } from './text.js';

// Headers that the page or the browser sets.
const own = /^(accept.*|access-control-.*|bridge-console|connection|content-.*|cookie.*|date|dnt|expect|host|keep-alive|last-event-id|mcp-.*|origin|proxy-.*|referer|sec-.*|te|trailer|transfer-encoding|upgrade|via)$/i;

/** The headers in a text, one in a line. It throws what is wrong with it. @param {string} text @returns {Record<string, string>} */
export function headersOf(text) {
  const all = new Map();
  for (const line of text.split('\n').filter((l) => l.trim())) {
    const m = /^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*(.*?)\s*$/.exec(line);
    if (!m) throw new Error(`Write a header as Name: value, not as ${line.trim().slice(0, 80)}.`);
    const [, name, value] = m;
    if (own.test(name)) throw new Error(`The page or the browser sets ${name}: leave it out.`);
    if (!/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) throw new Error(`${name} has a character that no header can have.`);
    if ([...all.keys()].some((n) => n.toLowerCase() === name.toLowerCase())) throw new Error(`${name} is there twice.`);
    all.set(name, value);
  }
  return Object.fromEntries(all);
}

/** The object in a text, or undefined if that is empty. It throws what is wrong with it. @param {string} text */
export function metaOf(text) {
  if (!text.trim()) return undefined;
  let v;
  try { v = parse(text); } catch { throw new Error('This is no JSON yet.'); }
  if (!isObject(v)) throw new Error('This must be an object, such as {"traceparent": "00-…"}.');
  return v;
}

/**
 * A request as a command. With a session there are four: it is opened, and ended.
 * @param {import('./mcp.js').Client} client
 * @param {{url: string, headers: Record<string, string>, repeated?: Record<string, string>, key: boolean}} to headers are those
 *   of the user, repeated those that have arguments; key says that a key is needed
 * @param {string} method @param {any} params
 */
export function curl(client, to, method, params) {
  const key = to.key && !Object.keys(to.headers).some((n) => /^(authorization|x-api-key)$/i.test(n)) ? ['-H "X-API-Key: $MCP_BRIDGE_KEY"'] : [];
  /** @param {string} flags @param {Record<string, string>} more @param {any} [message] @param {string[]} [also] */
  const request = (flags, more, message, also = []) => [
    `curl -sS ${flags}${quote(to.url)}`,
    ...Object.entries({ ...(message ? { 'Content-Type': 'application/json' } : {}), Accept: 'application/json, text/event-stream', ...more, ...to.headers }).map(([n, v]) => `-H ${quote(v === '' ? `${n};` : `${n}: ${v}`)}`),
    ...key, ...also, ...(message ? [`--data-binary ${quote(stringify(message))}`] : []),
  ].join(' \\\n  ');
  const version = { 'MCP-Protocol-Version': client.revision };
  const { message, headers } = client.written(1, method, params, { headers: to.repeated });
  if (client.modern) return request('-N ', { ...version, ...headers }, message);
  const session = ['-H "Mcp-Session-Id: $session"'];
  const opened = client.written(0, 'initialize', { protocolVersion: client.revision, capabilities: {}, clientInfo: { name: 'curl', version: '1' } });
  return [
    `session=$(${request('-D - -o /dev/null ', {}, opened.message)} |\n  tr -d '\\r' | sed -n 's/^[Mm][Cc][Pp]-[Ss]ession-[Ii][Dd]: *//p')`,
    request('', version, { jsonrpc: '2.0', method: 'notifications/initialized' }, session),
    request('-N ', version, message, session),
    request('-X DELETE ', version, undefined, session),
  ].join('\n');
}
