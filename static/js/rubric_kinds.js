/* The dialog that asks what decides a criterion: a search over the kinds, by keyboard or pointer. */
import { h } from "./rubric_dom.js";

export class KindChooser {
  constructor(dialog, kinds) {
    this.dialog = dialog;
    this.kinds = kinds;
    this.search = dialog.querySelector("input");
    this.list = dialog.querySelector("[role=listbox]");
    this.none = dialog.querySelector("[data-no-kind]");
    this.active = 0;
    this.search.addEventListener("input", () => this.show(0));
    this.search.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => this.choose(event.target.closest("[role=option]")?.dataset.kind));
  }

  ask(done, current = "") {
    this.done = done;
    this.current = current;
    this.search.value = "";
    this.dialog.showModal();
    this.show(Math.max(0, this.kinds.findIndex((kind) => kind.name === current)));
    this.search.focus();
  }

  found() {
    const wanted = this.search.value.toLowerCase().replaceAll("_", " ").split(/\s+/).filter(Boolean);
    const rank = (kind) => (wanted.length && kind.label.startsWith(wanted[0]) ? 0 : kind.label.includes(wanted[0] ?? "") ? 1 : 2);
    return this.kinds
      .filter((kind) => wanted.every((word) => `${kind.label} ${kind.about} ${kind.looks_at}`.toLowerCase().includes(word)))
      .sort((a, b) => rank(a) - rank(b));
  }

  show(active) {
    const found = this.found();
    this.active = Math.max(0, Math.min(found.length - 1, active));
    this.none.hidden = found.length > 0;
    this.list.replaceChildren(
      ...found.map((kind, i) =>
        h(
          "li",
          { role: "option", id: `kind-${kind.name}`, "data-kind": kind.name, "aria-selected": String(i === this.active) },
          h("span", { class: "strong" }, kind.label),
          h("span", { class: "muted small" }, kind.about),
          h("span", { class: "tag" }, kind.looks_at),
        ),
      ),
    );
    const option = this.list.children[this.active];
    if (option) this.search.setAttribute("aria-activedescendant", option.id);
    else this.search.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 6, PageUp: -6 }[event.key];
    if (step) this.show(this.active + step);
    else if (event.key === "Enter") this.choose(this.list.children[this.active]?.dataset.kind);
    else return;
    event.preventDefault();
  }

  choose(name) {
    if (!name) return;
    this.dialog.close();
    this.done(name);
  }
}
