// Requests of servers that the person at the page answers.
import { dialog } from './dialog.js';
import { html } from './dom.js';
import { address, copy } from './parts.js';
import { fieldOf, problems } from './schema-form.js';
import { count } from './text.js';

/**
 * Answers a request of a server by asking.
 * @param {string} server its name
 * @param {{method: string, params: any}} request
 * @param {() => {uri: string, name?: string}[]} roots what roots/list is answered with
 * @param {AbortSignal} signal
 * @returns {Promise<any>} the result; null refuses
 */
export async function answer(server, request, roots, signal) {
  const p = request.params ?? {};
  switch (request.method) {
    case 'roots/list': return { roots: roots() };
    case 'elicitation/create': return p.mode === 'url' ? agree(server, p, signal) : fill(server, p, signal);
    case 'sampling/createMessage': return write(server, p, signal);
    default: return null;
  }
}

/** @param {string} server @param {any} p @param {AbortSignal} signal */
async function fill(server, p, signal) {
  const schema = p.requestedSchema ?? { type: 'object', properties: {} };
  /** @type {any} */
  let value = {};
  for (const [name, s] of Object.entries(schema.properties ?? {})) if (s && typeof s === 'object' && 'default' in s) value[name] = s.default;
  let strict = false;
  const given = await dialog(`Request from ${server}`, (close, again) => html`
    <p class="message">${p.message}</p>
    <schema-form .schema=${schema} .value=${value} .strict=${strict} @changed=${(/** @type {any} */ e) => { value = e.detail; again(); }}></schema-form>
    <div class="actions">
      <button type="button" @click=${() => close({ action: 'decline' })}>Decline</button><button type="button" @click=${() => close({ action: 'cancel' })}>Cancel</button>
      <button type="button" class="act" @click=${() => {
        if (problems(fieldOf(schema), value).length) { strict = true; again(); } else close({ action: 'accept', content: value });
      }}>Submit</button>
    </div>`, signal);
  return given ?? { action: 'cancel' };
}

/** @param {string} server @param {any} p @param {AbortSignal} signal */
async function agree(server, p, signal) {
  const given = await dialog(`Request from ${server}: open an address`, (close) => html`
    <p class="message">${p.message}</p>
    <p class="address">${address(String(p.url))}</p>
    <p class="quiet">Nothing is opened unless you open it. Look at the address first: what you type there goes to whoever has it.</p>
    <div class="actions">${copy('Copy address', String(p.url))}
      <button type="button" @click=${() => close({ action: 'decline' })}>Decline</button><button type="button" @click=${() => close({ action: 'cancel' })}>Cancel</button>
      <button type="button" class="act" @click=${() => close({ action: 'accept' })}>Agree</button>
    </div>`, signal);
  return given ?? { action: 'cancel' };
}

/** A message of a prompt. @param {any} m */
const said = (m) => html`<h3>${m.role}</h3>${[m.content].flat().map((c) => (typeof c?.text === 'string' ? html`<long-text .text=${c.text}></long-text>` : html`<json-tree .value=${c}></json-tree>`))}`;

/** @param {string} server @param {any} p @param {AbortSignal} signal */
async function write(server, p, signal) {
  let text = '';
  let model = 'by hand';
  const given = await dialog(`Request from ${server}: write a completion`, (close) => html`
    ${p.systemPrompt ? html`<h3>System prompt</h3><long-text .text=${String(p.systemPrompt)}></long-text>` : ''}
    ${[p.messages ?? []].flat().map(said)}
    <p class="quiet">At most ${p.maxTokens ?? '–'} tokens${p.tools?.length ? `; it offers ${count(p.tools.length, 'tool')}` : ''}</p>
    <div class="field"><label for="sampled">Your answer, as the model</label><textarea id="sampled" rows="4" autofocus @input=${(/** @type {any} */ e) => { text = e.target.value; }}></textarea></div>
    <div class="field"><label for="model">Model</label><input id="model" .value=${model} @input=${(/** @type {any} */ e) => { model = e.target.value; }} /></div>
    <div class="actions"><button type="button" @click=${() => close(undefined)}>Decline</button><button type="button" class="act" @click=${() => close(true)}>Submit</button></div>`, signal);
  return given ? { role: 'assistant', content: { type: 'text', text }, model, stopReason: 'endTurn' } : null;
}
