import assert from 'node:assert/strict';
import test from 'node:test';
import { Element, FakeNode } from './fake-dom.mjs';
const { html, render, View } = await import('../assets/dom.js');

const shown = (template, into = new Element('div')) => { render(template, into); return into.childNodes.join(''); };

test('templates become elements', () => {
  const cases = [
    [html`<p>hello</p>`, '<p>hello</p>'],
    [html`<p>a ${'b'} c</p>`, '<p>a b c</p>'],
    [html`<p class="x y" title=${'t'} id="a${1}b${2}">x</p>`, '<p class="x y" title="t" id="a1b2">x</p>'],
    [html`<br /><input disabled type="text" />`, '<br></br><input disabled="" type="text"></input>'],
    [html`<p>${null}${undefined}${false}${true}${''}${0}</p>`, '<p>0</p>'],
    [html`<ul>${[1, 2].map((n) => html`<li>${n}</li>`)}</ul>`, '<ul><li>1</li><li>2</li></ul>'],
    [html`<p disabled=${false} hidden=${true} title=${null}></p>`, '<p hidden=""></p>'],
    [html`<p>
      two
      lines
    </p>`, '<p>two lines</p>'],
    [html`text ${'only'}`, 'text only'],
    [html`<a><b>x</b></a><c></c>`, '<a><b>x</b></a><c></c>'],
  ];
  for (const [template, want] of cases) assert.equal(shown(template), want);
});

test('what stands in a hole is text, never markup', () => {
  const evil = '<img src=x onerror=alert(1)>&amp;';
  assert.equal(shown(html`<p>${evil}</p>`), '<p>[<]img src=x onerror=alert(1)>[&]amp;</p>');
  assert.equal(shown(html`<p title=${evil}></p>`), `<p title="${evil}"></p>`);
});

test('an object in a hole is text, although it looks like a template', () => {
  const evil = { tag: 'act-bar', attrs: [['.actions', [{ path: 'drain' }]]], children: ['x'] };
  for (const template of [html`<p>${evil}</p>`, html`<p>${[evil]}</p>`]) assert.match(shown(template), /^<p>\{"tag":"act-bar".*\}<\/p>$/);
  assert.match(shown(evil), /^\{"tag":"act-bar"/);
});

test('hidden characters are shown', () => {
  assert.equal(shown(html`<p title=${'a\u202eb'}>${'c\u200bd'}</p>`), '<p title="a⟦U+202E⟧b">c⟦U+200B⟧d</p>');
});

test('addresses are those of pages', () => {
  for (const [href, ok] of [
    ['https://example.com/', true], ['http://example.com/', true], ['#/servers/a', true], ['icon.svg', true], ['blob:http://here/1', true],
    ['javascript:alert(1)', false], ['JAVASCRIPT:alert(1)', false], [' javascript:alert(1)', false], ['java\nscript:alert(1)', false], ['\u0001javascript:alert(1)', false],
    ['data:text/html,x', false], ['file:///etc/passwd', false], ['vbscript:x', false],
  ]) {
    const into = new Element('div');
    render(html`<a href=${href}>x</a>`, into);
    assert.equal(into.childNodes[0].attributes.has('href'), ok, href);
  }
});

test('templates cannot have scripts or styles', () => {
  for (const template of [html`<p onclick=${'x'}></p>`, html`<p .innerHTML=${'x'}></p>`, html`<p .outerHTML=${'x'}></p>`, html`<p style=${'x'}></p>`, html`<iframe srcdoc=${'x'}></iframe>`]) {
    assert.throws(() => shown(template), /is not for templates/);
  }
});

test('what is no markup is refused', () => {
  for (const bad of ['<p>', '</p>', '<p></q>', '<p', 'a < b']) assert.throws(() => html(Object.assign([bad], { raw: [bad] })), /no markup/, bad);
});

test('rendering again changes what differs, and keeps nodes', () => {
  const into = new Element('div');
  const view = (name, busy) => html`<p class="a">${name}</p><button disabled=${busy}>go</button>`;
  render(view('one', false), into);
  const [p, button] = into.childNodes;
  FakeNode.moves = 0;
  render(view('two', true), into);
  assert.deepEqual([into.childNodes[0], into.childNodes[1]], [p, button]);
  assert.equal(into.childNodes.join(''), '<p class="a">two</p><button disabled="">go</button>');
  assert.equal(FakeNode.moves, 0);
});

test('elements with keys keep their nodes, whatever comes and goes', () => {
  const into = new Element('div');
  const view = (names) => html`<ul>${names.map((n) => html`<li key=${n}>${n}</li>`)}</ul>`;
  render(view(['a', 'b', 'c', 'd']), into);
  const list = into.childNodes[0];
  const node = Object.fromEntries(list.childNodes.map((n) => [n.childNodes[0].data, n]));
  for (const names of [['d', 'a'], ['a', 'b', 'c', 'd', 'e'], ['e', 'd', 'c', 'b', 'a'], [], ['c'], ['x', 'c', 'y']]) {
    render(view(names), into);
    assert.equal(list.childNodes.map((n) => n.childNodes[0].data).join(), names.join());
  }
  render(view(['a', 'b']), into);
  const b = list.childNodes[1];
  render(view(['b', 'a']), into);
  assert.equal(list.childNodes[0], b);
  assert.notEqual(list.childNodes[1], node.a, 'a was taken away in between');
});

test('a row in front moves nothing else', () => {
  const into = new Element('div');
  const view = (n) => Array.from({ length: n }, (_, i) => html`<p key=${n - i}>${n - i}</p>`);
  render(view(100), into);
  FakeNode.moves = 0;
  render(view(101), into);
  assert.equal(FakeNode.moves, 2, 'the row, and the text in it');
});

test('listeners are the last that were given', () => {
  const into = new Element('div');
  const heard = [];
  for (const n of [1, 2]) render(html`<button @click=${() => heard.push(n)}>x</button>`, into);
  into.childNodes[0].fire('click');
  assert.deepEqual(heard, [2]);
  assert.equal(into.childNodes[0].listeners.click.length, 1);
});

test('attributes and properties of before are taken away', () => {
  const into = new Element('div');
  render(html`<p title="x" .value=${1}></p>`, into);
  assert.equal(into.childNodes[0].value, 1);
  render(html`<p></p>`, into);
  assert.equal(into.childNodes.join(''), '<p></p>');
  assert.equal(into.childNodes[0].value, undefined);
});

test('a property that has not changed is not set again: what is typed stays', () => {
  const into = new Element('div');
  const view = (v, n) => html`<input .value=${v} /><i>${n}</i>`;
  render(view('', 1), into);
  into.childNodes[0].value = 'typed';
  render(view('', 2), into);
  assert.equal(into.childNodes[0].value, 'typed');
});

test('pictures are SVG', () => {
  const into = new Element('div');
  render(html`<svg viewBox="0 0 1 1"><g><rect width="1" /></g></svg><p>x</p>`, into);
  const svg = into.childNodes[0];
  assert.match(svg.namespaceURI, /svg$/);
  assert.match(svg.childNodes[0].childNodes[0].namespaceURI, /svg$/);
  assert.equal(into.childNodes[1].namespaceURI, 'html');
});

test('a view renders once for several changes, and its host does not touch what it shows', async () => {
  let n = 0;
  globalThis.customs = { 'own-view': class extends View { name = ''; view() { n++; return html`<b>${this.name}</b>`; } } };
  const into = new Element('div');
  const host = (name) => html`<own-view .name=${name}></own-view>`;
  render(host('a'), into);
  const view = into.childNodes[0];
  view.update();
  await null;
  assert.equal(view.childNodes.join(''), '<b>a</b>');
  assert.equal(n, 1);
  render(host('b'), into);
  await null;
  assert.equal(into.childNodes[0], view);
  assert.equal(view.childNodes.join(''), '<b>b</b>');
});
