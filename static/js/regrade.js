/* A back-test or re-grade while it is under way: the page follows its stream. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";

export function mount(element) {
  if (element.dataset.ended !== undefined) return;
  const feed = follow(element, (events) => {
    refreshSoon();
    if (events.some((event) => event.kind === "regrade.ended")) feed.end();
  });
}
