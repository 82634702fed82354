/* The live ladder: progress moves with each event; everything else is drawn by the server and exchanged. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";

export function mount(element) {
  if (element.dataset.ended !== undefined) return;
  const feed = follow(element, (events) => {
    for (const event of events) {
      if (event.kind === "progress") progress(element, event.payload);
      else refreshSoon();
      if (event.kind === "climb.state" && ["completed", "failed", "cancelled"].includes(event.payload.state)) feed.end();
    }
  });
}

function progress(element, { rung, progress, doing }) {
  const item = element.querySelector(`.steps [data-rung="${rung}"]`);
  if (!item) return;
  const meter = item.querySelector("progress");
  meter.value = Math.max(meter.value, progress);
  if (item.classList.contains("pending")) {
    item.classList.replace("pending", "running");
    refreshSoon();
  }
  const share = item.querySelector('[data-slot="share"]');
  if (share && !share.querySelector("b")) share.textContent = `${Math.round(100 * meter.value)} %`;
  const words = item.querySelector('[data-slot="doing"]');
  if (words) words.textContent = doing;
}
