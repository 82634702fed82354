/* A trace whose cards are all on the page: keys n and p, permalinks. */

export class StaticTrace {
  constructor(element) {
    this.element = element;
    this.cards = element.querySelector("[data-cards]");
    addEventListener("hashchange", () => this.mark(location.hash.slice(1)));
    document.addEventListener("switchback:key", (event) => this.key(event.detail));
    if (location.hash) this.mark(location.hash.slice(1));
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
    const card = document.getElementById(id);
    if (card?.dataset.seq) card.classList.add("current");
  }
}
