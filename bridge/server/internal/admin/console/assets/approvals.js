// The calls that wait for an operator's approval.
import { get, part } from './api.js';
import { html, View } from './dom.js';
import { named } from './names.js';
import { every } from './page.js';
import { age, time } from './parts.js';
import { count } from './text.js';

/** The buttons, by the decision that each makes. @type {Map<string, {text: string, tone?: string}>} */
const buttons = new Map([['once', { text: 'Allow once' }], ['session', { text: 'Allow for the session' }], ['no', { text: 'Refuse', tone: 'danger' }]]);

class ApprovalList extends View {
  /** Whether the operator may decide. */
  may = false;
  /** @type {any[]} */
  #rows = [];
  #end = () => {};

  connectedCallback() {
    super.connectedCallback();
    this.addEventListener('acted', () => this.#load());
    this.#end = every(2000, () => this.#load());
  }

  disconnectedCallback() { this.#end(); }

  async #load() {
    this.#rows = (await get('approvals')).waiting;
    this.update();
  }

  view() {
    if (!this.#rows.length) return '';
    return html`<section aria-labelledby="approvals"><h2 id="approvals">${count(this.#rows.length, 'call')} waiting for approval</h2>
      <ul class="entries">${this.#rows.map((w) => html`<li key=${w.id}>
        <strong>${w.tool}</strong> of ${w.server}, asked by ${w.principal ?? 'a client'}${w.client ? html` with ${named(w.client)}` : ''} ${age(w.since)} ago. Without a decision it is refused at ${time(w.until)}.
        ${w.arguments === undefined ? '' : html`<pre>${JSON.stringify(w.arguments, null, 1)}${w.arguments_cut ? ' …' : ''}</pre>`}
        ${this.may ? html`<act-bar .actions=${w.decisions.map((/** @type {string} */ d) => ({ ...buttons.get(d), path: `approvals/${part(w.id)}`, body: { decision: d } }))}></act-bar>` : ''}</li>`)}</ul></section>`;
  }
}

customElements.define('approval-list', ApprovalList);
