// A client that is a page, in Chromium: it finds out where to sign in, registers, and has its
// user sign in in a window that it opens (a pop-up), all by fetch from its own origin. Then it
// calls a tool.
//
//   node page.mjs CHROMIUM URL
//
// The output is what the page shows in the end.

import { createServer } from 'node:http';
import { chromium } from 'playwright-core';

const [program, url] = process.argv.slice(2);

/** What runs in the page. */
async function client(url) {
  const json = async (address, options) => {
    const r = await fetch(address, options);
    if (!r.ok) throw new Error(`${address}: ${r.status} ${await r.text()}`);
    return r.json();
  };
  const base64 = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');
  let token, session;
  const call = (id, method, params) => fetch(url, {
    method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', id, method, params }),
    headers: {
      'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'MCP-Protocol-Version': '2025-11-25',
      ...(token && { Authorization: `Bearer ${token}` }), ...(session && { 'Mcp-Session-Id': session }),
    },
  });
  const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'page', version: '1' } };
  const refused = await call(1, 'initialize', hello);
  const where = /resource_metadata="([^"]+)"/.exec(refused.headers.get('WWW-Authenticate') ?? '');
  if (refused.status !== 401 || !where) throw new Error(`without a token: ${refused.status} ${refused.headers.get('WWW-Authenticate')}`);
  const resource = await json(where[1], { headers: { 'MCP-Protocol-Version': '2025-11-25' } });
  const issuer = resource.authorization_servers[0];
  const server = await json(`${issuer}/.well-known/oauth-authorization-server`, { headers: { 'MCP-Protocol-Version': '2025-11-25' } });
  const redirect = `${location.origin}/callback`;
  const { client_id } = await json(server.registration_endpoint, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ client_name: 'A page', redirect_uris: [redirect] }),
  });
  const verifier = base64(crypto.getRandomValues(new Uint8Array(32)));
  const challenge = base64(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))));
  const ask = new URLSearchParams({
    response_type: 'code', client_id, redirect_uri: redirect, state: 'a state', scope: resource.scopes_supported.join(' '),
    code_challenge: challenge, code_challenge_method: 'S256', resource: resource.resource,
  });
  const ended = new Promise((done) => { addEventListener('message', (m) => m.origin === location.origin && done(new URLSearchParams(m.data))); });
  window.open(`${server.authorization_endpoint}?${ask}`, 'sign-in', 'popup,width=600,height=700');
  const answer = await ended;
  if (answer.get('state') !== 'a state' || answer.get('iss') !== issuer) throw new Error(`the window says ${answer}`);
  const tokens = await json(server.token_endpoint, {
    method: 'POST', body: new URLSearchParams({ grant_type: 'authorization_code', client_id, code: answer.get('code'), redirect_uri: redirect, code_verifier: verifier, resource: resource.resource }),
  });
  token = tokens.access_token;
  const met = await call(1, 'initialize', hello);
  session = met.headers.get('Mcp-Session-Id');
  if (!met.ok || !session) throw new Error(`with the token: ${met.status} ${await met.text()}`);
  return (await call(2, 'tools/call', { name: 'echo', arguments: { message: 'hello' } })).text();
}

const page = `<!doctype html><title>a client</title><button>Connect</button><pre></pre><script>
${client}
document.querySelector('button').onclick = () => client(${JSON.stringify(url)}).catch(String).then((text) => { document.querySelector('pre').textContent = text; });
</script>`;
const back = '<!doctype html><script>opener.postMessage(location.search, location.origin); close();</script>';
const site = createServer((req, res) => {
  res.setHeader('Content-Type', 'text/html');
  res.end(req.url.startsWith('/callback?') ? back : page);
});
await new Promise((listening) => site.listen(0, '127.0.0.1', listening));

const browser = await chromium.launch({ executablePath: program, args: ['--no-sandbox', '--headless=new', '--disable-dev-shm-usage', '--disable-gpu'] });
try {
  const context = await browser.newContext();
  context.setDefaultTimeout(Number(process.env.BRIDGE_TEST_DEADLINE_MS));
  const tab = await context.newPage();
  await tab.goto(`http://localhost:${site.address().port}/`);
  const [popup] = await Promise.all([tab.waitForEvent('popup'), tab.getByRole('button', { name: 'Connect' }).click()]);
  await popup.getByRole('button', { name: 'Allow', exact: true }).click();
  await popup.locator('input[name=login]').fill('eng-ann');
  await popup.locator('input[name=password]').fill('any');
  await popup.locator('button[type=submit]').click();
  await Promise.all([
    popup.waitForEvent('close'),
    popup.getByRole('button', { name: /continue/i }).click().catch(() => {}), // the window may close before it knows that it has clicked
  ]);
  await tab.locator('pre:not(:empty)').waitFor();
  console.log(await tab.locator('pre').textContent());
} finally {
  await browser.close();
  site.close();
}
