/* The report of a check while it is made: the page is fetched again until it has ended. */
import { refresh } from "./parts.js";

const EVERY_MS = 1000;

export function mount(element) {
  const look = async () => {
    if (!element.querySelector("[data-running]")) return;
    if (!document.hidden) await refresh();
    setTimeout(look, EVERY_MS);
  };
  setTimeout(look, EVERY_MS);
}
