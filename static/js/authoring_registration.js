/* A source on its way to becoming an environment: each step is fetched when it is told. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";

export function mount(element) {
  if (element.dataset.ended !== undefined) return;
  const feed = follow(element, (events) => {
    refreshSoon();
    if (events.some((event) => event.kind === "registration.ended")) feed.end();
  });
}
