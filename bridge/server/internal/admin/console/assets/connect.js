// How a client is connected to this bridge, as blocks to paste.
import { html, View } from './dom.js';
import { copy, endpoint } from './parts.js';

/**
 * The blocks of a server, by client: what to do with it, and its text.
 * @param {string} server * is all of them @param {string} url where clients reach it @param {boolean} key whether they need a key
 * @returns {Record<string, [string, string]>}
 */
function blocks(server, url, key) {
  const name = server === '*' ? 'mcp-bridge' : server;
  const headers = key ? { headers: { Authorization: 'Bearer YOUR_KEY' } } : {};
  const json = (/** @type {any} */ v) => JSON.stringify(v, null, 2);
  const flag = key ? ' --header "Authorization: Bearer YOUR_KEY"' : '';
  return {
    'Claude Code': ['Run this in a terminal:', `claude mcp add --transport http ${name} ${url}${flag}`],
    'Claude Desktop': ['Add this to claude_desktop_config.json (Settings → Developer → Edit Config):', json({ mcpServers: { [name]: { command: 'mcp-bridge', args: ['connect', url, ...(key ? ['--header', 'Authorization: Bearer ${BRIDGE_KEY}'] : [])], ...(key ? { env: { BRIDGE_KEY: 'YOUR_KEY' } } : {}) } } })],
    Cursor: ['Add this to ~/.cursor/mcp.json:', json({ mcpServers: { [name]: { url, ...headers } } })],
    'VS Code': ['Add this to .vscode/mcp.json:', json({ servers: { [name]: { type: 'http', url, ...headers } } })],
    curl: ['Run this in a terminal:', `curl -sS ${url} \\\n  -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n${key ? "  -H 'Authorization: Bearer YOUR_KEY' \\\n" : ''}  -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'`],
  };
}

/** The blocks to paste into a client, for a server or for all of them. */
class ConnectClient extends View {
  /** The servers to choose from. @type {string[]} */
  servers = [];
  /** Whether clients need a key. */
  keys = false;
  #server = '*';
  #client = 'Claude Code';

  view() {
    const all = blocks(this.#server, endpoint(this.#server), this.keys);
    const [how, text] = all[this.#client];
    return html`<section class="connect card" aria-label="Connect a client"><h2>Connect a client</h2>
      <div class="line"><div class="tabs" role="group" aria-label="Client">${Object.keys(all).map((c) => html`<button type="button" class="tab" aria-pressed=${String(c === this.#client)} @click=${() => { this.#client = c; this.update(); }}>${c}</button>`)}</div>
        <label for="connect">to</label><select id="connect" .value=${this.#server} @change=${(/** @type {any} */ e) => { this.#server = e.target.value; this.update(); }}><option value="*">All servers (/mcp)</option>${this.servers.map((s) => html`<option value=${s}>${s}</option>`)}</select></div>
      <p>${how}</p><pre tabindex="0">${text}</pre><div class="actions" key=${this.#client + this.#server}>${copy('Copy', text)}${this.keys ? html`<span class="hint">YOUR_KEY is a token of <code>access</code> in bridge.yaml.</span>` : ''}</div></section>`;
  }
}
customElements.define('connect-client', ConnectClient);

/** The block for a page without clients. @param {import('./store.js').Store} store */
export const connect = (store) => html`<connect-client .servers=${(store.state.status?.servers ?? []).map((/** @type {any} */ s) => s.name)} .keys=${Boolean(store.me?.keys)}></connect-client>`;
