// Whether the tab is in front. A browser opens at most six connections to a bridge over HTTP/1.1, for all tabs
// together: tabs in the back keep no stream open, else the seventh tab would wait for ever.

/** Whether the tab is in the back. */
export const hidden = () => Boolean(globalThis.document?.hidden);

/**
 * Calls turned whenever the tab comes to the front or goes to the back.
 * @param {() => void} turned
 * @returns {() => void} what ends that
 */
export function onTurn(turned) {
  globalThis.document?.addEventListener('visibilitychange', turned);
  return () => globalThis.document?.removeEventListener('visibilitychange', turned);
}
