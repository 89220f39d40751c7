// A long table, of which only the rows in sight are in the page. All rows are equally high.
import { html, View } from './dom.js';

class RowTable extends View {
  name = 'rows';
  /** The heads: a text, and the class of its column. @type {[string, string][]} */
  heads = [];
  /** @type {any[]} */
  rows = [];
  /** Makes a row's template, a tr. @type {(row: any) => any} */
  show = () => '';
  /** The identity of a row, which stays. @type {(row: any) => any} */
  same = (row) => row;
  height = 34;
  #top = 0;
  #tall = 640; // until it is known
  /** The row at the top, which keeps its place when others come before it. @type {any} */
  #first = undefined;

  /** How high the window is. */
  #size = new ResizeObserver(([{ target }]) => {
    if (target.clientHeight === this.#tall) return;
    this.#tall = target.clientHeight;
    this.update();
  });

  connectedCallback() {
    super.connectedCallback();
    queueMicrotask(() => { if (this.firstElementChild) this.#size.observe(this.firstElementChild); });
  }

  disconnectedCallback() { this.#size.disconnect(); }

  view() {
    const { rows, height } = this;
    if (this.#top > 0 && this.#first !== undefined) {
      const moved = rows.findIndex((r) => this.same(r) === this.#first) - Math.floor(this.#top / height);
      if (moved > 0) this.#scroll(this.#top += moved * height);
    }
    const first = Math.max(0, Math.min(Math.floor(this.#top / height) - 10, rows.length - 1));
    const last = Math.min(rows.length, Math.ceil((this.#top + this.#tall) / height) + 10);
    // Without a colspan: a narrow window hides columns, and the rest would make room for them.
    const gap = (/** @type {string} */ key, /** @type {number} */ n) => (n > 0 ? html`<tr key=${key} aria-hidden="true"><td class="gap"><svg width="1" height=${n * height}></svg></td></tr>` : '');
    return html`<div class="window" role="region" tabindex="0" aria-live="off" aria-label=${this.name} @scroll=${(/** @type {any} */ e) => this.#scrolled(e.target)} @keydown=${(/** @type {KeyboardEvent} */ e) => this.#move(e)}>
      <table class="long" aria-rowcount=${rows.length + 1}><thead><tr>${this.heads.map(([text, kind]) => html`<th scope="col" class=${kind}>${text}</th>`)}</tr></thead>
      <tbody>${gap('before', first)}${rows.slice(first, last).map(this.show)}${gap('after', rows.length - last)}</tbody></table></div>`;
  }

  /** Scrolls when the rows are there, as far as there are any. @param {number} top */
  #scroll(top) {
    queueMicrotask(() => {
      const box = this.firstElementChild;
      if (!box) return;
      box.scrollTop = top;
      this.#top = box.scrollTop;
    });
  }

  /** @param {HTMLElement} box */
  #scrolled(box) {
    [this.#top, this.#tall] = [box.scrollTop, box.clientHeight];
    const row = this.rows[Math.floor(this.#top / this.height)];
    this.#first = row && this.same(row);
    this.update();
  }

  /** The arrow keys go from row to row. @param {KeyboardEvent} e */
  #move(e) {
    const step = { ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling' }[e.key];
    if (!step) return;
    /** @type {any} */
    let row = /** @type {HTMLElement} */ (e.target).closest('tbody tr');
    do row = row?.[step]; while (row && !row.querySelector('button')); // a row between others may only say something
    const button = row?.querySelector('button');
    if (!button) return;
    e.preventDefault();
    button.focus();
  }
}
customElements.define('row-table', RowTable);
