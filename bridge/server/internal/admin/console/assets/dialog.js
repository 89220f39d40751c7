// The one kind of dialog that the page has.
import { html, render } from './dom.js';

/**
 * Shows a dialog until it is closed. The focus goes into it and back.
 * @param {string} title
 * @param {(close: (answer: any) => void, again: () => void) => any} view
 * @param {AbortSignal} [signal] closes it, with undefined
 * @returns {Promise<any>} what close was given; undefined by Escape
 */
export function dialog(title, view, signal) {
  return new Promise((resolve) => {
    const box = document.createElement('dialog');
    box.setAttribute('aria-label', title);
    /** @type {any} */
    let answer;
    const close = (/** @type {any} */ a) => { answer = a; box.close(); };
    const again = () => render(html`<h2>${title}</h2>${view(close, again)}`, box);
    const abort = () => box.close();
    box.addEventListener('close', () => {
      signal?.removeEventListener('abort', abort);
      box.remove();
      resolve(answer);
    });
    signal?.addEventListener('abort', abort);
    document.body.append(box);
    again();
    if (signal?.aborted) box.remove(), resolve(undefined);
    else {
      box.showModal();
      setTimeout(() => /** @type {HTMLElement|null} */ (box.querySelector('input, select, textarea, [autofocus]'))?.focus()); // when forms in it are there
    }
  });
}

/**
 * Asks whether to do something. The focus is on the button that does nothing.
 * @param {string} title @param {string} text @param {string} yes the text of the button that does it
 * @param {string} [tone] danger, if it hurts
 * @returns {Promise<boolean>}
 */
export const sure = (title, text, yes, tone = '') => dialog(title, (close) => html`<p>${text}</p><div class="actions"><button type="button" autofocus @click=${() => close(false)}>Cancel</button><button type="button" class="act ${tone}" @click=${() => close(true)}>${yes}</button></div>`).then(Boolean);
