// The TypeScript client (SDK 1.x) at a server that wants tokens: it finds the
// issuer, registers, asks for a code with PKCE, and makes a call for which it
// needs one scope more.
//
//   node oauth.mjs URL TOOL
//
// Where a browser would be opened, a line {"open": URL} goes to stdout, and the
// address at which the browser ends is read from stdin. The last line is
// {"answer": …, "opened": N}.

import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';

const [url, tool] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const redirect = 'http://127.0.0.1:9/callback';
const kept = {};
let opened = 0;

const provider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: 'test', redirect_uris: [redirect], grant_types: ['authorization_code'], response_types: ['code'],
    token_endpoint_auth_method: 'none', application_type: 'native',
  },
  state: () => 'a-state-of-this-test',
  clientInformation: () => kept.client,
  saveClientInformation: (c) => { kept.client = c; },
  tokens: () => kept.tokens,
  saveTokens: (t) => { kept.tokens = t; },
  saveCodeVerifier: (v) => { kept.verifier = v; },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (address) => {
    opened++;
    console.log(JSON.stringify({ open: address.href }));
  },
};

let transport;

/** signedIn makes an attempt again after the user has signed in. */
async function signedIn(attempt) {
  for (let n = 0; n < 3; n++) {
    try {
      return await attempt();
    } catch (e) {
      if (!(e instanceof UnauthorizedError)) throw e;
      const ended = new URL((await lines.next()).value);
      if (ended.searchParams.get('state') !== 'a-state-of-this-test') throw new Error(`another state: ${ended.search}`);
      if (!ended.searchParams.has('code')) throw new Error(`no code: ${ended.search}`);
      await transport.finishAuth(ended.searchParams.get('code'));
    }
  }
  throw new Error('signed in three times, and it still does not do');
}

let client;
await signedIn(async () => {
  client = new Client({ name: 'oauth', version: '1' });
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
});
const tools = (await client.listTools()).tools.map((t) => t.name);
if (!tools.includes(tool)) throw new Error(`${tool} is not listed: ${tools}`);
const answer = await signedIn(() => client.callTool({ name: tool, arguments: { message: 'hello' } }));
if (kept.tokens.refresh_token) { // the issuer gives some: one that does not count any more is renewed without the user
  kept.tokens.access_token = 'ended';
  await client.callTool({ name: tool, arguments: { message: 'hello' } });
  if (kept.tokens.access_token === 'ended') throw new Error('the token was not renewed');
}
console.log(JSON.stringify({ answer: answer.content[0].text, opened, renewable: !!kept.tokens.refresh_token }));
await client.close();
process.exit(0);
