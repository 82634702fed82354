/* The live page of a search: progress moves with each event; everything else is drawn by the server and exchanged. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";

const OVER = ["awaiting_approval", "completed", "failed", "cancelled"];

export function mount(element) {
  if (element.dataset.ended !== undefined) return;
  const feed = follow(element, (events) => {
    for (const event of events) {
      if (event.kind === "progress") progress(element, event.payload);
      else refreshSoon();
      if (event.kind === "search.state" && OVER.includes(event.payload.state)) feed.end();
    }
  });
}

function progress(element, { progress: share, doing }) {
  const item = element.querySelector(".phases li.running");
  if (!item) return refreshSoon();
  const meter = item.querySelector("progress");
  if (typeof share === "number") meter.value = Math.max(meter.value, share);
  const slot = item.querySelector('[data-slot="share"]');
  if (slot) slot.textContent = `${Math.round(100 * meter.value)} %`;
  const words = item.querySelector('[data-slot="doing"]');
  if (words && doing) words.textContent = doing;
}
