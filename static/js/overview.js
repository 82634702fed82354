/* Looks again at what runs and what needs somebody, while anything runs and the page is seen. */
import { refreshSoon } from "./parts.js";

const EVERY_MS = 10_000;

export function mount(element) {
  const timer = setInterval(() => {
    if (!element.isConnected || !element.querySelector(".works")) clearInterval(timer);
    else if (!document.hidden && !document.querySelector("dialog[open]")) refreshSoon(0);
  }, EVERY_MS);
}
