/* The live trace: new events are drawn by the server and appended; the reading position never moves by itself
   unless the reader is at the end. Keys n and p, permalinks, the outline's mark. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";

export function mount(element) {
  const trace = new Trace(element);
  if (element.dataset.ended !== undefined) return;
  const feed = follow(element, (events) => {
    for (const event of events) {
      if (event.kind === "rollout.restarted") trace.restarted = true;
      if (event.kind === "rollout.ended" || event.kind === "verdict" || event.kind === "rollout.restarted") refreshSoon();
      if (event.kind === "rollout.ended") feed.end();
    }
    trace.load();
  });
}

class Trace {
  constructor(element) {
    this.element = element;
    this.cards = element.querySelector("[data-cards]");
    this.outline = element.querySelector("[data-outline]");
    this.loading = false;
    this.again = false;
    this.restarted = false;
    addEventListener("hashchange", () => this.mark(location.hash.slice(1)));
    document.addEventListener("switchback:key", (event) => this.key(event.detail));
    if (location.hash) this.mark(location.hash.slice(1));
  }

  get last() {
    const all = this.cards.querySelectorAll("[data-seq]");
    return all.length ? Number(all[all.length - 1].dataset.seq) : Number(this.element.dataset.floor ?? 0);
  }

  async load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    try {
      if (this.restarted) await this.startAgain();
      const answer = await fetch(`${this.element.dataset.cardsUrl}?after=${this.last}`, { credentials: "same-origin" });
      if (answer.ok) this.append(await answer.text());
    } catch {
      /* The feed says that the server is gone; the next event loads what is missing. */
    } finally {
      this.loading = false;
      if (this.again) {
        this.again = false;
        this.load();
      }
    }
  }

  /* A restart: what is shown belongs to an attempt that was cut off. The server folds it. */
  async startAgain() {
    const answer = await fetch(location.pathname, { credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.querySelector("[data-cards]");
    this.element.dataset.floor = page.querySelector("[data-module='rollout']").dataset.after;
    this.cards.replaceChildren(...next.childNodes);
    this.outline.replaceChildren(...page.querySelector("[data-outline]").childNodes);
    this.restarted = false;
  }

  append(html) {
    const box = document.createElement("template");
    box.innerHTML = html;
    const lines = box.content.querySelector("[data-new-outline]");
    lines?.remove();
    const seen = this.last;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
    let added = 0;
    for (const node of [...box.content.children]) {
      const seq = Number(node.dataset.seq ?? node.id.replace("ctx-", ""));
      if (seq <= seen) continue;
      node.classList.add("fresh");
      this.cards.append(node);
      added += 1;
    }
    for (const line of lines ? [...lines.content.children] : []) {
      if (Number(line.dataset.seq) > seen) this.outline.append(line);
    }
    if (added) this.element.querySelector("[data-none]").hidden = true;
    if (added && atEnd && scrollY > 0) scrollTo({ top: document.documentElement.scrollHeight });
  }

  key(key) {
    if (key !== "n" && key !== "p") return;
    const all = [...this.cards.querySelectorAll("[data-seq]")];
    const at = all.findIndex((card) => card.classList.contains("current"));
    const next = all[key === "n" ? Math.min(all.length - 1, at + 1) : Math.max(0, at - 1)];
    if (!next) return;
    history.replaceState(null, "", `#${next.id}`);
    this.mark(next.id);
    next.scrollIntoView({ block: "nearest" });
    next.focus({ preventScroll: true });
  }

  mark(id) {
    for (const card of this.element.querySelectorAll(".ev.current")) card.classList.remove("current");
    for (const line of this.outline.querySelectorAll("[aria-current]")) line.removeAttribute("aria-current");
    const card = document.getElementById(id);
    if (!card?.dataset.seq) return;
    card.classList.add("current");
    const fold = card.closest("details.attempt");
    if (fold && !fold.open) {
      fold.open = true;
      card.scrollIntoView({ block: "center" });
    }
    this.outline.querySelector(`[href="#${id}"]`)?.setAttribute("aria-current", "true");
  }
}
