// An identity provider: oidc-provider, as its authors set it up, with dynamic
// registration, resource indicators and a login form that takes any name.
//
//   node idp.mjs
//
// Its tokens for an address with "opaque" in it are opaque; all others are JSON
// Web Tokens. Who is called eng-… is in the group eng.

import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const scopes = 'mcp:use files:write';
const server = createServer();
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'bridge', client_secret: 'the-secret-of-the-bridge', redirect_uris: [], response_types: [], grant_types: ['client_credentials'],
    },
  ],
  scopes: ['openid', 'offline_access', ...scopes.split(' ')],
  claims: { openid: ['sub', 'groups'] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: id.startsWith('eng-') ? ['eng'] : [] }) }),
  extraTokenClaims: (_, token) => (token.accountId?.startsWith('eng-') ? { groups: ['eng'] } : {}),
  cookies: { keys: ['of this test alone'] },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    registration: { enabled: true },
    revocation: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        audience: resource, scope: scopes, accessTokenTTL: 600, accessTokenFormat: resource.includes('opaque') ? 'opaque' : 'jwt',
      }),
    },
  },
});
provider.on('server_error', (_, err) => console.error(err));
const answer = provider.callback();
server.on('request', async (req, res) => {
  if (req.method === 'POST' && req.url === '/reg') {
    // The client of the TypeScript SDK registers with the scopes of its first challenge,
    // and asks for others later. This issuer does not hold it to the former.
    const parts = [];
    for await (const part of req) parts.push(part);
    req.body = JSON.parse(Buffer.concat(parts));
    delete req.body.scope;
  }
  answer(req, res);
});
console.log(`listens at ${issuer}/mcp`); // the form in which tests look for addresses
