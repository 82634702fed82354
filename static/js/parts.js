/* Fetches the page again and exchanges the parts that changed: elements with data-part. Open folds, the focus and
   the reading position stay. */
import { mountAll } from "./mount.js";

let running = false;
let again = false;
let timer = 0;

export function refreshSoon(delayMs = 200) {
  /* Not put off again by the next event: a steady stream must not starve the page. */
  timer ||= setTimeout(() => {
    timer = 0;
    refresh();
  }, delayMs);
}

export async function refresh() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    /* The feed notices a lost server and says so; the next event refreshes again. */
  } finally {
    running = false;
    if (again) {
      again = false;
      refreshSoon();
    }
  }
}

function exchange(page) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!next || next.innerHTML === part.dataset.shown) continue;
    if (part.dataset.shown === undefined && next.innerHTML === part.innerHTML) continue;
    const open = new Map([...part.querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
    const tab = part.querySelector('[role="tab"][aria-selected="true"]')?.id;
    const scrolled = [...part.querySelectorAll(".say, .scroll")].map((e) => [e.scrollTop, e.scrollLeft]);
    const focus = part.contains(document.activeElement) ? document.activeElement.id : "";
    const shown = next.innerHTML;
    part.replaceChildren(...next.childNodes);
    part.dataset.shown = shown;
    for (const [id, state] of open) {
      const details = document.getElementById(id);
      if (details) details.open = state;
    }
    [...part.querySelectorAll(".say, .scroll")].forEach((e, i) => {
      if (scrolled[i]) [e.scrollTop, e.scrollLeft] = scrolled[i];
    });
    mountAll(part);
    if (tab) document.getElementById(tab)?.click();
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  }
  const title = page.querySelector("title")?.textContent;
  if (title) document.title = title;
}
