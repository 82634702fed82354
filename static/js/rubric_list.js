/* The criteria as cards: chosen, dragged, moved by keyboard. */
import { bars, h, icon } from "./rubric_dom.js";

export class CriteriaList {
  constructor({ list, store, choose }) {
    Object.assign(this, { list, store, choose });
    this.notes = new Map();
    list.addEventListener("click", (event) => {
      const card = event.target.closest("[data-id]");
      if (card) choose(card.dataset.id, { isByKey: event.detail === 0 });
    });
    list.addEventListener("dragstart", (event) => this.start(event));
    list.addEventListener("dragover", (event) => this.over(event));
    list.addEventListener("drop", (event) => this.drop(event));
    list.addEventListener("dragend", () => this.end());
  }

  show(selected) {
    this.selected = selected;
    /* Drawn anew a card would fall from the hand that is about to drag it. */
    const shown = JSON.stringify([this.store.criteria, this.store.groups, selected, [...this.notes]]);
    if (this.dragged || shown === this.shown) return;
    this.shown = shown;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.closest("[data-id]")?.dataset.id : null;
    const groups = new Map(this.store.groups.map((group) => [group.id, group]));
    this.list.replaceChildren(...this.store.criteria.map((criterion) => this.card(criterion, selected, groups)));
    if (focused) this.focus(this.store.criterion(focused) ? focused : selected);
  }

  focus(id) {
    this.list.querySelector(`[data-id="${CSS.escape(id ?? "")}"] .crit-open`)?.focus({ preventScroll: false });
  }

  get focused() {
    return document.activeElement?.closest?.("[data-id]")?.dataset.id ?? null;
  }

  card(criterion, selected, groups) {
    const kind = this.store.kindOf(criterion);
    const isOn = criterion.id === selected;
    const group = groups.get(criterion.group);
    const list = this.notes.get(criterion.id) ?? [];
    const problems = list.filter((note) => note.level === "problem").length;
    const tag = (text, cls = "") => h("span", { class: `tag ${cls}` }, text);
    return h(
      "li",
      { class: isOn ? "crit edit on" : "crit edit", "data-id": criterion.id, draggable: "true" },
      h("span", { class: "grip", title: "Drag to order" }, icon("grip")),
      h(
        "div",
        { class: "what" },
        h(
          "div",
          { class: "name" },
          h("button", { type: "button", class: "crit-open", "aria-current": isOn ? "true" : false, dir: "auto" }, criterion.name || criterion.id),
          tag(kind ? kind.label : criterion.kind || "no kind"),
          criterion.required ? tag("required", "seal") : null,
          criterion.negative ? tag("penalty", "neg") : null,
          criterion.gate ? tag("gate") : null,
          group ? tag(`in ${group.name || group.id}`) : null,
          problems ? h("span", { class: "pill warn" }, `${problems} to do`) : list.length ? h("span", { class: "pill" }, `${list.length} hint${list.length > 1 ? "s" : ""}`) : null,
        ),
        h("p", { class: "muted small line", dir: "auto" }, about(criterion, kind)),
      ),
      bars(criterion.weight ?? 1),
    );
  }

  /* --- dragging ---------------------------------------------------------------------------------------------- */

  start(event) {
    const card = event.target.closest?.("[data-id]");
    if (!card) return; // a text that was marked is dragged
    this.dragged = card.dataset.id;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", this.dragged);
    card.classList.add("dragged");
  }

  over(event) {
    const card = event.target.closest("[data-id]");
    if (!this.dragged || !card) return;
    event.preventDefault();
    this.unmark();
    card.classList.add(this.isBelow(event, card) ? "drop-after" : "drop-before");
  }

  drop(event) {
    const card = event.target.closest("[data-id]");
    if (!this.dragged || !card) return;
    event.preventDefault();
    const ids = this.store.criteria.map((criterion) => criterion.id).filter((id) => id !== this.dragged);
    const at = ids.indexOf(card.dataset.id);
    const id = this.dragged;
    const place = at + (this.isBelow(event, card) ? 1 : 0);
    this.end();
    if (at >= 0) this.store.moveTo(id, place);
  }

  isBelow(event, card) {
    const box = card.getBoundingClientRect();
    return event.clientY > box.top + box.height / 2;
  }

  unmark() {
    for (const card of this.list.querySelectorAll(".drop-before, .drop-after")) card.classList.remove("drop-before", "drop-after");
  }

  end() {
    this.unmark();
    this.dragged = null;
    this.show(this.selected);
  }
}

/* What it checks, in a line. */
function about(criterion, kind) {
  const params = criterion.params ?? {};
  if (params.question) return String(params.question);
  if (params.source) return docOf(String(params.source)) || kind?.about || "";
  const said = Object.entries(params).map(([name, value]) => `${name.replaceAll("_", " ")}: ${plain(value)}`);
  return said.join(" · ") || kind?.about || "";
}

function plain(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value.join(", ");
  return JSON.stringify(value);
}

function docOf(source) {
  return /"""\s*([^\n"]+)/.exec(source)?.[1] ?? /^def .*$/m.exec(source)?.[0] ?? "";
}
