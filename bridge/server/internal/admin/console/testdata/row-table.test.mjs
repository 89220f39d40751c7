import assert from 'node:assert/strict';
import test from 'node:test';
import './fake-dom.mjs';

let Table;
let sized;
globalThis.customElements = { define: (_, c) => { Table = c; } };
globalThis.ResizeObserver = class {
  constructor(f) { sized = f; }
  observe() {}
  disconnect() {}
};
await import('../assets/row-table.js');

test('a table shows as many rows as are in sight', () => {
  const table = new Table();
  let shown = 0;
  Object.assign(table, { rows: Array.from({ length: 100 }, (_, i) => i), show: () => { shown++; return ''; } });
  sized([{ target: { clientHeight: 1700 } }]);
  table.view();
  assert.equal(shown, 60, '50 in sight, and 10 below');
});

test('the arrow keys pass over rows without a button', () => {
  const table = new Table();
  const rows = [true, false, true].map((has) => ({ button: has && { focus() { focused = this; } }, querySelector() { return this.button || null; } }));
  rows.forEach((row, i) => Object.assign(row, { previousElementSibling: rows[i - 1] ?? null, nextElementSibling: rows[i + 1] ?? null }));
  let focused;
  let taken = 0;
  const press = (key, row) => table.view().attrs.find(([name]) => name === '@keydown')[1]({ key, target: { closest: () => row }, preventDefault() { taken++; } });
  press('ArrowDown', rows[0]);
  assert.equal(focused, rows[2].button);
  press('ArrowUp', rows[2]);
  assert.equal(focused, rows[0].button);
  press('ArrowUp', rows[0]);
  press('Enter', rows[0]);
  press('ArrowDown', null);
  assert.equal(taken, 2, 'other keys, and those at the ends, are left alone');
});
